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
    overlap: NDArray[np.int32]  # (n_times,): G(ORIGIN + i, NOW)
    changed: Integers  # (2, 2, most active): features that went on and off at time NOW (row NOW % 2), and before
    turned: Integers  # (2 most active,): scratch
    clock: Integers  # (N_CLOCK,)


@inner_kernel
def list_changes(history: History, tiles_t: Integers, tiles_tp1: Integers) -> int:
    """List the features whose fresh value is another than before, and return how many they are."""
    phi, fresh, turned, n = history.features[PHI], history.features[FRESH], history.turned, 0
    for i in range(tiles_tp1.shape[0]):
        if fresh[tiles_tp1[i]] != phi[tiles_tp1[i]]:
            turned[n] = tiles_tp1[i]
            n += 1
    for i in range(tiles_t.shape[0]):
        if fresh[tiles_t[i]] == 0:
            turned[n] = tiles_t[i]
            n += 1
    return n


@kernel
def observe(history: History, tiles_t: Integers, tiles_tp1: Integers) -> None:
    """Move the present from the feature vector at `tiles_t` to the one at `tiles_tp1`."""
    clock, phi, fresh = history.clock, history.features[PHI], history.features[FRESH]
    for i in range(tiles_tp1.shape[0]):
        fresh[tiles_tp1[i]] += 1
    turn(history, list_changes(history, tiles_t, tiles_tp1))
    clock[NORM_BEFORE], clock[MOST_BEFORE] = clock[NORM], clock[MOST]
    norm, most = 0, 0
    for i in range(tiles_tp1.shape[0]):
        norm += phi[tiles_tp1[i]]  # once for each time that the feature is there: its square in all
        most = max(most, phi[tiles_tp1[i]])
    for i in range(tiles_tp1.shape[0]):
        fresh[tiles_tp1[i]] = 0
    clock[NORM], clock[MOST] = norm, most
    clock[NOW] += 1
    history.overlap[clock[NOW] - clock[ORIGIN]] = norm


@inner_kernel
def turn(history: History, n: int) -> None:
    """Give the features listed their fresh values from time NOW + 1 on: complete rows, log runs, correct overlaps.

    One long loop on purpose: handing the arrays on to a function costs more than the work.
    """
    rows, log, overlap, changed, clock = history.rows, history.log, history.overlap, history.changed, history.clock
    phi, since, fresh, turned = history.features[PHI], history.features[SINCE], history.features[FRESH], history.turned
    now, origin, k, parity = clock[NOW] + 1, clock[ORIGIN], clock[N_LOG], (clock[NOW] + 1) % 2
    oldest, end, n_gained, n_lost = clock[OLDEST] - origin, now - origin, 0, 0
    sums = overlap[oldest:end]
    for j in range(n):
        f = turned[j]
        before, more = phi[f], fresh[f] - phi[f]
        if more == 0:  # listed twice
            continue
        start = max(since[f] - origin, oldest)
        row = rows[f, oldest:end]  # loops from 0 on, since numba makes slow ones where an index might be negative
        fresh_part = row[start - oldest :]
        for i in range(fresh_part.shape[0]):
            fresh_part[i] = before
        if more == 1:
            for i in range(row.shape[0]):
                sums[i] += np.int32(row[i])
        elif more == -1:
            for i in range(row.shape[0]):
                sums[i] -= np.int32(row[i])
        else:
            for i in range(row.shape[0]):
                sums[i] += np.int32(more * row[i])
        if before > 0:
            log[k, FEATURE], log[k, START], log[k, END], log[k, COUNT] = f, start, end, before
            k += 1
        for _ in range(more):  # one that changed by two is there twice
            changed[parity, GAINED, n_gained] = f
            n_gained += 1
        for _ in range(-more):
            changed[parity, LOST, n_lost] = f
            n_lost += 1
        phi[f], since[f] = fresh[f], now
    clock[N_LOG], clock[N_CHANGED + 2 * parity], clock[N_CHANGED + 2 * parity + 1] = k, n_gained, n_lost


@kernel
def overlaps_with(history: History, tiles: Integers, out: NDArray[np.int32]) -> None:
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
