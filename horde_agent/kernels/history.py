"""What all demons share of the past: when each feature was on, and how past feature vectors overlap the present one.

Time is counted in feature vectors: phi_0, phi_1, ... The overlaps

    G(k, j) = phi_k . phi_j

of all past k with the present j are whole numbers. When j moves on by one step only some 270 of 6,065 features change,
and each adds (or takes) its own past, a row of bytes. A *run* is a stretch of times [start, end) during which the value
of a feature (how often it is among the active tiles: 0 or 1, rarely more) stayed the same and above 0; closed runs are
logged in the order in which they ended. Rows and the log count time from ORIGIN. Nothing here knows of demons.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from horde_agent.kernels._jit import inner_kernel, kernel

Integers = NDArray[np.int64]

# Places in `clock`
NOW = 0  # time of the present feature vector, -1 before the first
ORIGIN = 1  # time of overlap[0]
OLDEST = 2  # the past before this time is needed by nobody
N_LOG = 3  # runs in the log
NORM = 4  # |phi_now|^2
NORM_BEFORE = 5  # |phi_{now - 1}|^2
MOST = 6  # largest entry of phi_now
MOST_BEFORE = 7
N_CHANGED = 8  # and the three after it: how many gained, lost at even times, then at odd ones
N_CLOCK = 12

PHI, SINCE, FRESH = 0, 1, 2  # rows of `features`
FEATURE, START, END, COUNT = 0, 1, 2, 3  # columns of `log`
GAINED, LOST = 0, 1


class History(NamedTuple):
    """The past of n features since `clock[ORIGIN]`."""

    features: Integers  # (3, n): phi_now, the time since which it has been so, and scratch that is zero between calls
    rows: NDArray[np.uint8]  # (n, n_times): each feature's past values up to SINCE; after that it is PHI
    log: NDArray[np.int32]  # (capacity, 4): closed runs
    overlap: Integers  # (n_times,): G(ORIGIN + i, NOW)
    changed: Integers  # (2, 2, most active): features that went on and off at time NOW (row NOW % 2), and before
    clock: Integers  # (N_CLOCK,)


@inner_kernel
def change(f: int, history: History) -> None:
    """Give feature `f` its fresh value from time NOW + 1 on: complete its row, log its run, correct the overlaps."""
    clock, log = history.clock, history.log
    phi, since = history.features[PHI, f], history.features[SINCE, f]
    more, origin, parity = history.features[FRESH, f] - phi, clock[ORIGIN], (clock[NOW] + 1) % 2
    oldest, end = clock[OLDEST] - origin, clock[NOW] + 1 - origin
    row, start = history.rows[f], max(since - origin, oldest)
    for i in range(start, end):
        row[i] = phi
    for i in range(oldest, end):
        history.overlap[i] += more * row[i]
    if phi > 0:
        k = clock[N_LOG]
        log[k, FEATURE], log[k, START], log[k, END], log[k, COUNT] = f, start, end, phi
        clock[N_LOG] = k + 1
    kind = GAINED if more > 0 else LOST
    for _ in range(abs(more)):  # one that changed by two is there twice
        history.changed[parity, kind, clock[N_CHANGED + 2 * parity + kind]] = f
        clock[N_CHANGED + 2 * parity + kind] += 1
    history.features[PHI, f], history.features[SINCE, f] = history.features[FRESH, f], clock[NOW] + 1


@kernel
def observe(history: History, tiles_t: Integers, tiles_tp1: Integers) -> None:
    """Move the present from the feature vector at `tiles_t` to the one at `tiles_tp1`."""
    clock, phi, fresh = history.clock, history.features[PHI], history.features[FRESH]
    parity = (clock[NOW] + 1) % 2
    clock[N_CHANGED + 2 * parity], clock[N_CHANGED + 2 * parity + 1] = 0, 0
    for i in range(tiles_tp1.shape[0]):
        fresh[tiles_tp1[i]] += 1
    clock[NORM_BEFORE], clock[MOST_BEFORE] = clock[NORM], clock[MOST]
    clock[NORM], clock[MOST] = 0, 0
    for i in range(tiles_tp1.shape[0]):
        f = tiles_tp1[i]
        if fresh[f] != phi[f]:
            change(f, history)
        clock[NORM] += fresh[f]  # once for each time that f is there: its square in all
        clock[MOST] = max(clock[MOST], fresh[f])
    for i in range(tiles_t.shape[0]):
        if fresh[tiles_t[i]] != phi[tiles_t[i]]:
            change(tiles_t[i], history)
    for i in range(tiles_tp1.shape[0]):
        fresh[tiles_tp1[i]] = 0
    clock[NOW] += 1
    history.overlap[clock[NOW] - clock[ORIGIN]] = clock[NORM]


@kernel
def overlaps_with(history: History, tiles: Integers, out: Integers) -> None:
    """Write the overlaps of all times OLDEST..NOW with the feature vector at `tiles`, as `History.overlap`."""
    clock = history.clock
    oldest, end = clock[OLDEST] - clock[ORIGIN], clock[NOW] + 1 - clock[ORIGIN]
    out[:] = 0
    for j in range(tiles.shape[0]):
        row, phi = history.rows[tiles[j]], history.features[PHI, tiles[j]]
        since = min(max(history.features[SINCE, tiles[j]] - clock[ORIGIN], oldest), end)
        for i in range(oldest, since):
            out[i] += row[i]
        for i in range(since, end):
            out[i] += phi


@kernel
def forget(history: History) -> None:
    """Let go of everything before OLDEST."""
    clock, log, overlap = history.clock, history.log, history.overlap
    shift = clock[OLDEST] - clock[ORIGIN]
    for i in range(clock[NOW] + 1 - clock[OLDEST]):
        overlap[i] = overlap[i + shift]
    for f in range(history.rows.shape[0]):
        row = history.rows[f]
        for i in range(history.features[SINCE, f] - clock[OLDEST]):
            row[i] = row[i + shift]
    n_kept = 0
    for k in range(clock[N_LOG]):
        if log[k, END] > shift:
            log[n_kept] = log[k]
            log[n_kept, START] = max(log[k, START] - shift, 0)
            log[n_kept, END] -= shift
            n_kept += 1
    clock[N_LOG], clock[ORIGIN] = n_kept, clock[OLDEST]
