"""History shared by all demons: when each feature was active, and overlaps of feature vectors.

A feature vector is a row of bits. The overlaps G(k, j) = phi_k.phi_j are counts of common bits: 95
words of 64 bits for 6,065 features, so that computing those of a whole window of past steps takes 1
to 2 microseconds. Where step sizes depend on the rarity of features, phi_k.S.phi_j is the sum of the
counts of each class, times its factor. The features that switched between two steps are the bits in
which their rows differ.

A row of weights changes by the sum of the coefficients over the times at which its feature was
active: over its *runs*, by differences of a table of prefix sums (`writing.py`). Times without a
coefficient have no place in the table, so that a policy that is followed once in five steps has a
fifth of the runs.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from horde_agent.kernels._jit import inner_kernel
from horde_agent.kernels.span.arrays import (
    FLUSH,
    IDLE,
    LEARNS,
    N_PLACES,
    N_ROWS,
    NOW,
    OLDEST,
    Places,
    SpanArrays,
)
from horde_agent.types import Integers, Reals

_ONE = np.uint64(1)


@inner_kernel
def popcount(word: np.uint64) -> int:
    """Return the number of set bits of a word: of pairs, nibbles, bytes, all. LLVM makes one instruction of it."""
    word = word - ((word >> _ONE) & np.uint64(0x5555555555555555))
    word = (word & np.uint64(0x3333333333333333)) + (
        (word >> np.uint64(2)) & np.uint64(0x3333333333333333)
    )
    word = (word + (word >> np.uint64(4))) & np.uint64(0x0F0F0F0F0F0F0F0F)
    return (
        int(word) * 0x0101010101010101 >> 56
    ) & 0xFF  # integers: NumPy warns that the product overflows


@inner_kernel
def lowest_bit(word: np.uint64) -> int:
    """Return the place of the lowest set bit of a word that is not 0."""
    return int(popcount(~word & (word - _ONE)))


@inner_kernel
def observe(span: SpanArrays, tiles: Integers) -> None:
    """Advance the clock by one time to `tiles`, shape (n_active,), and list the rows that switched on and off."""
    time = span.clock[NOW] + 1
    place = time & (span.bits.shape[0] - 1)
    slot = time % span.active.shape[0]
    bits = span.bits[place]
    active = span.active[slot]
    n_rows = span.clock[N_ROWS]
    for word in range(bits.shape[0]):
        bits[word] = 0
    for i in range(tiles.shape[0]):
        row = span.row_of[tiles[i]]
        if row < 0:
            row = n_rows
            span.row_of[tiles[i]] = row
            span.feature_of[row] = tiles[i]
            n_rows += 1
        bits[row >> 6] |= _ONE << np.uint64(row & 63)
        active[i] = row
    span.clock[NOW] = time
    span.clock[N_ROWS] = n_rows
    list_changes(span, time)


@inner_kernel
def list_changes(span: SpanArrays, time: int) -> None:
    """List the rows that switched on and off at a time."""
    mask = span.bits.shape[0] - 1
    slot = time & 1
    words = span.bits[time & mask]
    previous_words = span.bits[(time - 1) & mask]
    gained = span.changed[slot, 0]
    lost = span.changed[slot, 1]
    n_gained = 0
    n_lost = 0
    for word in range(words_in_use(span)):
        on = words[word] & ~previous_words[word]
        off = previous_words[word] & ~words[word]
        while on != 0:
            gained[n_gained] = 64 * word + lowest_bit(on)
            n_gained += 1
            on &= on - _ONE
        while off != 0:
            lost[n_lost] = 64 * word + lowest_bit(off)
            n_lost += 1
            off &= off - _ONE
    span.n_changed[slot, 0] = n_gained
    span.n_changed[slot, 1] = n_lost


@inner_kernel
def words_in_use(span: SpanArrays) -> int:
    """Return the number of 64-bit words that contain a row in use."""
    return int((span.clock[N_ROWS] + 63) // 64)


@inner_kernel
def product(
    span: SpanArrays, bits: NDArray[np.uint64], other: NDArray[np.uint64], n_words: int
) -> float:
    """Return phi.S.phi' of two feature vectors given by their bits, shape (n / 64,)."""
    total = 0.0
    if span.has_scales:
        for k in range(span.class_scale.shape[0]):
            of_class = span.class_bits[k]
            n = 0
            for word in range(n_words):
                n += popcount(bits[word] & other[word] & of_class[word])
            total += span.class_scale[k] * n
    else:
        n = 0
        for word in range(n_words):
            n += popcount(bits[word] & other[word])
        total += n
    return total


@inner_kernel
def write_norm(span: SpanArrays, time: int) -> None:
    """Write phi.S.phi of the feature vector of a time."""
    bits = span.bits[time & (span.bits.shape[0] - 1)]
    span.norm[time % span.norm.shape[0]] = product(span, bits, bits, words_in_use(span))


@inner_kernel
def write_overlaps(span: SpanArrays, last: int, bits: NDArray[np.uint64], out: Reals) -> None:
    """Write the overlaps of the times oldest..last, (T,), with a feature vector given by its bits, (n / 64,)."""
    mask = span.bits.shape[0] - 1
    oldest = span.clock[OLDEST]
    n_words = words_in_use(span)
    for time in range(oldest, last + 1):
        out[time - oldest] = product(span, bits, span.bits[time & mask], n_words)


@inner_kernel
def list_history(span: SpanArrays, g: int, last: int) -> None:
    """List the runs at the times up to `last` of a flush group that have a coefficient.

    These are the steps of the tail, the steps in which the group learned or w decayed, and, because
    of h, the time after a step in which it learned.
    """
    first = span.tail_from[g]
    mask = span.bits.shape[0] - 1
    n = np.int64(0)  # not a literal, for which callees would be compiled once more
    has_learned = False
    for time in range(first, last + 1):
        span.run_place[time - first] = n
        is_tail = time < span.flushed_at[g]
        kind = span.kind[g, time & mask]
        if is_tail or has_learned or (time < last and kind != IDLE):
            span.run_time[FLUSH, n] = time
            n += 1
        has_learned = not is_tail and time < last and kind == LEARNS
    span.run_place[last + 1 - first] = n
    span.clock[N_PLACES] = n
    list_runs(span, FLUSH, n)


@inner_kernel
def list_runs(span: SpanArrays, which: int, n_places: int) -> None:
    """List the rows that were active at the times in `run_time`, each with its runs of places."""
    row_of = span.run_row[which]
    begin = span.run_first[which]
    end = span.run_last[which]
    ends = span.run_ends[which]
    n_rows = span.clock[N_ROWS]
    n_words = words_in_use(span)
    n_listed = 0
    make_room(span, which, n_places, begin, end)
    for place in range(n_places):
        bits, previous_bits, has_previous = bits_at(span, which, place)
        for word in range(n_words):
            turned = bits[word] ^ (previous_bits[word] & has_previous)
            while turned != 0:
                row = 64 * word + lowest_bit(turned)
                ends[end[row]] = place
                end[row] += 1
                turned &= turned - _ONE
    for row in range(n_rows):
        first_end = begin[row]
        last_end = end[row]
        if (last_end - first_end) % 2 == 1:  # still active
            ends[last_end] = n_places
            last_end += 1
        if last_end > first_end:
            # n_listed <= row: no entry is lost
            row_of[n_listed] = row
            begin[n_listed] = first_end
            end[n_listed] = last_end
            n_listed += 1
    span.n_runs[which] = n_listed


@inner_kernel
def bits_at(
    span: SpanArrays, which: int, place: int
) -> tuple[NDArray[np.uint64], NDArray[np.uint64], np.uint64]:
    """Return the feature vectors at a place in a list and before it, and a mask: 0 before the first place."""
    mask = span.bits.shape[0] - 1
    bits = span.bits[span.run_time[which, place] & mask]
    if place > 0:
        return bits, span.bits[span.run_time[which, place - 1] & mask], ~np.uint64(0)
    return bits, bits, np.uint64(0)


@inner_kernel
def make_room(span: SpanArrays, which: int, n_places: int, begin: Places, end: Places) -> None:
    """Reserve space in `run_ends` for each row: two ends for each time at which it switched on."""
    n_rows = span.clock[N_ROWS]
    n_words = words_in_use(span)
    total = 0
    for row in range(n_rows):
        end[row] = 0
    for place in range(n_places):
        bits, previous_bits, has_previous = bits_at(span, which, place)
        for word in range(n_words):
            on = bits[word] & ~(previous_bits[word] & has_previous)
            while on != 0:
                end[64 * word + lowest_bit(on)] += 2
                on &= on - _ONE
    for row in range(n_rows):
        n = end[row]
        begin[row] = total
        end[row] = total
        total += n
