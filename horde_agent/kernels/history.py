"""What all demons share of the past: when each feature was on, and how past feature vectors overlap later ones.

Time is counted in feature vectors: phi_0, phi_1, ... The overlaps

    G(k, j) = phi_k . phi_j

of all past k with the present j are whole numbers. When j moves on by one step only some 270 of 6,065 features change,
and each adds (or takes) its own past, a row of bits: bit i says whether the feature was on at time ORIGIN + i. Where a
feature can be on more than once (a tile listed twice), plane p of the rows holds bit p of how often.

What belongs to one time lies in a ring of *slots*, so that demons may learn from it later. No demon is known here.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from horde_agent.kernels._jit import inner_kernel, kernel
from horde_agent.kernels.vectors import add_bits

Integers = NDArray[np.int64]

# Places in `clock`
NOW = 0  # time of the present feature vector, -1 before the first
ORIGIN = 1  # time of bit 0, a multiple of 32
OLDEST = 2  # the past before this time is needed by nobody
PLANES = 3  # of the bits that are in use
IS_RECEIVED = 4  # 1: the next slot has a feature vector that is yet to be observed
DUE = 5  # time up to which demons are to learn
N_CLOCK = 6

PHI, BALANCE = 0, 1  # columns of `features`
GAINED, LOST = 0, 1

# Columns of `counts`
N_TILES, N_GAINED, N_LOST = 0, 1, 2
NORM = 3  # |phi|^2
MOST = 4  # largest entry of phi
N_COUNTS = 5


class History(NamedTuple):
    """The past of n features since `clock[ORIGIN]`, and the last few times."""

    features: NDArray[np.int32]  # (n, 2): phi_now, and scratch that is zero between calls
    bits: NDArray[np.uint32]  # (planes, n, n_times / 32): each feature's past values, zero after NOW, in PLANES planes
    overlap: NDArray[np.int32]  # (slots, n_times): row of time t holds G(ORIGIN + i, t)
    tiles: Integers  # (slots, most active): active features
    changed: Integers  # (slots, 2, most active): features that went on and off at that time
    counts: Integers  # (slots, N_COUNTS)
    turned: Integers  # (2 most active + 2,): scratch
    clock: Integers  # (N_CLOCK,)


@inner_kernel
def slot_of(history: History, time: int) -> int:
    """Return the slot of a time."""
    return int(np.int64(time) % history.counts.shape[0])


@kernel
def has_room(history: History, n_active: int, n_more: int) -> bool:
    """Say whether so many more times, with so many active features, fit."""
    clock, n_times = history.clock, history.overlap.shape[1]
    return bool(clock[NOW] + n_more - clock[ORIGIN] < n_times and n_active <= history.tiles.shape[1])


@inner_kernel
def list_changes(history: History, old: Integers, new: Integers) -> int:
    """Note by how much features change between two lists of tiles, and return how many entries `turned` has.

    Tiles are compared place by place first: a tile coder keeps each tiling's place, and most tiles stay.
    """
    features, turned, n = history.features, history.turned, 0
    n_both = min(old.shape[0], new.shape[0])
    for i in range(n_both):  # without a branch: which tiles changed cannot be foretold
        turned[n], turned[n + 1] = old[i], new[i]
        n += 2 * (old[i] != new[i])
    for j in range(0, n, 2):
        features[turned[j], BALANCE] -= 1
        features[turned[j + 1], BALANCE] += 1
    for i in range(n_both, old.shape[0]):
        features[old[i], BALANCE] -= 1
        turned[n] = old[i]
        n += 1
    for i in range(n_both, new.shape[0]):
        features[new[i], BALANCE] += 1
        turned[n] = new[i]
        n += 1
    return n


@inner_kernel
def turn(history: History, slot: int, n: int, norm: int) -> int:
    """Give the features listed their new values, list those that went on and off, and return |phi|^2.

    One that changes by two is listed twice.
    """
    features, turned = history.features, history.turned
    gained, lost, n_gained, n_lost = history.changed[slot, GAINED], history.changed[slot, LOST], 0, 0
    for j in range(n):
        f = turned[j]
        more = features[f, BALANCE]
        norm += more * (2 * features[f, PHI] + more)
        features[f, PHI] += more
        features[f, BALANCE] = 0
        for _ in range(more):
            gained[n_gained] = f
            n_gained += 1
        for _ in range(-more):
            lost[n_lost] = f
            n_lost += 1
    history.counts[slot, N_GAINED], history.counts[slot, N_LOST] = n_gained, n_lost
    return norm


@inner_kernel
def receive(history: History, tiles: Integers) -> int:
    """Take in the feature vector at `tiles`, which is to be observed; return its slot."""
    slot = slot_of(history, history.clock[NOW] + 1)
    new = history.tiles[slot]
    for i in range(tiles.shape[0]):
        new[i] = tiles[i]
    history.counts[slot, N_TILES], history.clock[IS_RECEIVED] = tiles.shape[0], 1
    return int(slot)


@inner_kernel
def observe(history: History) -> None:
    """Move the present on by one time, to the feature vector that was received."""
    clock, counts = history.clock, history.counts
    before, slot = slot_of(history, clock[NOW]), slot_of(history, clock[NOW] + 1)
    old, tiles = history.tiles[before, : counts[before, N_TILES]], history.tiles[slot, : counts[slot, N_TILES]]
    norm = turn(history, slot, list_changes(history, old, tiles), counts[before, NORM])
    clock[NOW] += 1
    clock[IS_RECEIVED] = 0
    most = min(1, tiles.shape[0])
    if norm > tiles.shape[0]:  # a feature is on more than once
        for i in range(tiles.shape[0]):
            most = max(most, history.features[tiles[i], PHI])
    while most >> clock[PLANES] > 0:
        clock[PLANES] += 1
    counts[slot, NORM], counts[slot, MOST] = norm, most
    move_overlaps(history, before, slot)
    remember(history, tiles)
    history.overlap[slot, clock[NOW] - clock[ORIGIN]] = norm


@inner_kernel
def move_overlaps(history: History, before: int, slot: int) -> None:
    """Write the overlaps of the present with all times before it that are still needed."""
    clock, counts, bits = history.clock, history.counts, history.bits
    first = (clock[OLDEST] - clock[ORIGIN]) // 32
    last = (clock[NOW] - clock[ORIGIN] + 31) // 32
    old, new = history.overlap[before], history.overlap[slot]
    for i in range(32 * first, 32 * last):
        new[i] = old[i]
    for p in range(clock[PLANES]):
        add_bits(bits[p], first, last, history.changed[slot, GAINED], counts[slot, N_GAINED], 1 << p, new)
        add_bits(bits[p], first, last, history.changed[slot, LOST], counts[slot, N_LOST], -(1 << p), new)


@inner_kernel
def remember(history: History, tiles: Integers) -> None:
    """Enter the present into the bits."""
    at, bits, features = history.clock[NOW] - history.clock[ORIGIN], history.bits, history.features
    word, bit = at // 32, np.uint32(np.uint32(1) << np.uint32(at % 32))
    for p in range(history.clock[PLANES]):
        plane = bits[p]
        for i in range(tiles.shape[0]):
            if (features[tiles[i], PHI] >> p) & 1:
                plane[tiles[i], word] |= bit


@kernel
def overlaps_with(history: History, tiles: Integers, out: NDArray[np.int32]) -> None:
    """Write the overlaps of all times OLDEST..NOW with the feature vector at `tiles`, shape (n_times,)."""
    clock = history.clock
    first, last = (clock[OLDEST] - clock[ORIGIN]) // 32, (clock[NOW] - clock[ORIGIN]) // 32 + 1
    out[:] = 0
    for p in range(clock[PLANES]):
        add_bits(history.bits[p], first, last, tiles, tiles.shape[0], 1 << p, out)


@kernel
def forget(history: History) -> None:
    """Let go of what lies before OLDEST, as far as whole words allow."""
    clock, bits = history.clock, history.bits
    n_words = (clock[OLDEST] - clock[ORIGIN]) // 32
    n_kept = (clock[NOW] - clock[ORIGIN]) // 32 + 1 - n_words
    for p in range(clock[PLANES]):
        for f in range(bits.shape[1]):
            row = bits[p, f]
            for i in range(n_kept):
                row[i] = row[i + n_words]
            for i in range(max(n_kept, 0), n_kept + n_words):
                row[i] = 0
    overlap = history.overlap[slot_of(history, clock[NOW])]
    for i in range(32 * n_kept):
        overlap[i] = overlap[i + 32 * n_words]
    clock[ORIGIN] += 32 * n_words
