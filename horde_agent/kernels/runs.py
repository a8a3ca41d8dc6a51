"""When each feature was on, in runs: what a writing needs to know of the past beside the demons' own numbers.

A row of weights changes by the sum of the coefficients over the times at which its feature was on. Most times have a
coefficient for somebody; where a policy is seldom followed, few have. They are numbered, and a run is a pair of
such numbers: the first at which the feature was on, and the first at which it was not again. So a feature that went on
and off while nobody learned has no run.

Runs are read off the feature's row of bits (`history.py`), 64 times to a word. A bit at a time without a coefficient
takes the value of the time before, so that bits differ from their neighbours where a run begins or ends, and nowhere
else. Tiles of one family share their list.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from horde_agent.kernels import history as past
from horde_agent.kernels._jit import inner_kernel
from horde_agent.kernels.arrays import (
    FAMILY,
    FEATURES,
    FIRST,
    FIRST_RUN,
    LEADING,
    N_FEATURES,
    N_FILLS,
    N_KEPT,
    N_OWED,
    N_SPENT,
    N_TIMES,
    NUMBERED,
    PLACE,
    WHEN,
    Past,
    Span,
    Work,
    oldest_of,
)
from horde_agent.kernels.vectors import lowest_bit

Integers = NDArray[np.int64]
Words = NDArray[np.uint64]

_ONE, _ALL = np.uint64(1), np.uint64(0xFFFFFFFFFFFFFFFF)


@inner_kernel
def number_times(
    first_tile: int, last_tile: int, hand: int, is_mixed: bool, past_: Past, work: Work, history: past.History
) -> tuple[int, int]:
    """Number the times at which some tiles have a coefficient: place[t - first] is the number of those before t.

    A tile that writes may be ahead of others of its family, which have yet to take the steps in the slots. These may
    give each of the slots' times a coefficient. And others may have written already: which of their times are found is
    a matter of chance, which must change no bit. Tiles of one policy learn at the same times, but for tails, which come
    before a writer's own. In a mixed family all times are numbered.

    Returns:
        The first time, and how many there are.
    """
    now, place, total = history.clock[past.NOW], work.paper[hand, PLACE], 0
    in_slots = max(history.clock[past.ORIGIN], now + 1 - history.counts.shape[0])
    first = in_slots
    for b in range(first_tile, last_tile):
        first = min(first, oldest_of(b, past_, now))
    for i in range(now - first + 2):
        place[i] = i <= now - first and (is_mixed or i >= in_slots - first)
    for b in range(first_tile, last_tile):
        book = past_.book[b]
        for k in range(book[N_KEPT]):
            place[past_.times[b, 0, k] - first] = 1
            if k >= book[N_KEPT] - book[N_OWED]:
                place[past_.times[b, 0, k] + 1 - first] = 1
        for k in range(book[N_SPENT]):
            place[past_.times[b, 1, k] - first] = 1
    for i in range(now - first + 2):
        here = place[i]
        place[i] = total
        total += here
    return first, total


@inner_kernel
def mask_words(n: int, offset: int, place: Integers, masks: Words) -> None:
    """Write the masks with which bits at times without a coefficient are filled; bit `offset` is time 0 of n.

    Row NUMBERED has the times with a coefficient. Row k < N_FILLS has the places that take the value of the one 2^k
    before them, once those have taken that of 2^k - 1 before. Row LEADING has those before a word's first coefficient.
    """
    n_words = (offset + n - 1) // 64 + 1
    for word in range(n_words):
        masks[NUMBERED, word] = 0
    for i in range(n):
        if place[i + 1] > place[i]:
            masks[NUMBERED, (offset + i) // 64] |= _ONE << np.uint64((offset + i) % 64)
    for word in range(n_words):
        numbered = masks[NUMBERED, word]
        masks[LEADING, word] = np.uint64(_ONE << np.uint64(lowest_bit(numbered))) - _ONE if numbered != 0 else _ALL
        free = np.uint64(~numbered)
        for k in range(N_FILLS):
            masks[k, word] = free
            free &= np.uint64(free << np.uint64(1 << k))


@inner_kernel
def filled(here: np.uint64, word: int, masks: Words) -> np.uint64:
    """Return a word whose bits at times without a coefficient are those of the time before; the leading ones are 0."""
    if masks[0, word] == 0:  # all times have a coefficient
        return here
    here &= masks[NUMBERED, word]
    for k in range(N_FILLS):
        here |= masks[k, word] & np.uint64(here << np.uint64(1 << k))
    return here


@inner_kernel
def runs_of_row(
    row: NDArray[np.uint32],
    first_word: int,
    start: int,
    n: int,
    place: Integers,
    masks: Words,
    runs: NDArray[np.int32],
    n_ends: int,
) -> int:
    """Append the ends of the runs in a row of bits to `runs`, and return how many numbers it has.

    Time 0 of n is bit `start` of the row, and `masks` begins at its word `first_word`.
    """
    before, n_at_first, base = np.uint64(0), n_ends, 64 * first_word - start
    for word in range((start + n - 1) // 64 - first_word + 1):
        two = 2 * (first_word + word)
        here = np.uint64(row[two]) | np.uint64(np.uint64(row[two + 1]) << np.uint64(32))
        if here == 0 and before == 0:
            continue
        here = filled(here, word, masks) | (masks[LEADING, word] * before)
        turns = here ^ np.uint64(np.uint64(here << _ONE) | before)
        before = np.uint64(here >> np.uint64(63))
        while turns != 0:
            runs[n_ends] = place[base + 64 * word + lowest_bit(turns)]
            turns &= np.uint64(turns - _ONE)
            n_ends += 1
    if (n_ends - n_at_first) % 2:
        runs[n_ends] = place[n]
        n_ends += 1
    return n_ends


@inner_kernel
def is_dark(row: NDArray[np.uint32], first_word: int, last_word: int) -> bool:
    """Say whether no bit is set in some words of a row, as in those of most features."""
    bits = np.uint32(0)
    for word in range(first_word, last_word + 1):
        bits |= row[word]
    return bool(bits == 0)


@inner_kernel
def list_runs(hand: int, first: int, is_alive: NDArray[np.uint8], work: Work, history: past.History) -> int:
    """List the features that were on since `first`, with their runs as places in the table; return how many.

    A feature in the carried trace is listed too. A run during which a feature was on twice is listed twice.
    """
    features, first_run = work.paper[hand, FEATURES], work.paper[hand, FIRST_RUN]
    place, runs, masks, clock = work.paper[hand, PLACE], work.runs[hand], work.masks[hand], history.clock
    start, n = first - clock[past.ORIGIN], clock[past.NOW] - first + 1
    mask_words(n, start % 64, place, masks)
    n_listed, n_ends = 0, 0
    for f in range(history.bits.shape[1]):
        first_run[n_listed] = n_ends // 2
        for p in range(clock[past.PLANES]):
            if is_dark(history.bits[p, f], start // 32, (start + n - 1) // 32):
                continue
            since = n_ends
            n_ends = runs_of_row(history.bits[p, f], start // 64, start, n, place, masks, runs, n_ends)
            for _ in range((1 << p) - 1):
                for i in range(since, n_ends):
                    runs[i + n_ends - since] = runs[i]
                since, n_ends = n_ends, 2 * n_ends - since
        if n_ends // 2 > first_run[n_listed] or (is_alive.shape[0] > 0 and is_alive[f]):
            features[n_listed] = f
            n_listed += 1
    first_run[n_listed] = n_ends // 2
    return n_listed


@inner_kernel
def list_of(b: int, hand: int, span: Span, is_alive: NDArray[np.uint8]) -> tuple[int, int, int]:
    """List the runs that a tile's writing needs, for its whole family at once, if this hand has not done so before.

    Returns:
        The first time, how many times have a coefficient, how many features are listed.
    """
    listed, now, family = span.work.listed[hand], span.history.clock[past.NOW], span.tiles.family[b]
    if is_alive.shape[0] > 0:
        first, n_times = number_times(b, b + 1, hand, np.bool_(False), span.past, span.work, span.history)
        listed[FAMILY] = -1
        return first, n_times, list_runs(hand, first, is_alive, span.work, span.history)
    if listed[FAMILY] != family or listed[WHEN] != now:
        of_family = span.tiles.first
        is_mixed = span.tiles.is_mixed[family] != 0
        first, n_times = number_times(
            of_family[family], of_family[family + 1], hand, is_mixed, span.past, span.work, span.history
        )
        listed[FAMILY], listed[WHEN], listed[FIRST], listed[N_TIMES] = family, now, first, n_times
        listed[N_FEATURES] = list_runs(hand, first, is_alive, span.work, span.history)
    return listed[FIRST], listed[N_TIMES], listed[N_FEATURES]
