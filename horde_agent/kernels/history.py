"""What all demons share of the past: when each feature was on, and how past feature vectors overlap the present one.

Time is counted in feature vectors: phi_0, phi_1, ... A *run* is a stretch of times [start, end) during which the value
of a feature (how often it is among the active tiles: 0 or 1, rarely more) did not change. A feature that changes adds
its run to the log; runs of one feature are chained from the newest to the oldest. From the runs come the overlaps

    G(k, j) = phi_k . phi_j

for all past k and the present j, as whole numbers: when j moves on by one step only some 270 of 6,065 features change,
and each adds (or takes) its runs. Nothing here knows of demons.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from horde_agent.kernels._jit import inner_kernel, kernel

Integers = NDArray[np.int64]
Reals = NDArray[Any]

# Places in `clock`
NOW = 0  # time of the present feature vector, -1 before the first
ORIGIN = 1  # time of overlap[0]
OLDEST = 2  # overlaps and runs before this time are needed by nobody
N_LOG = 3  # runs in the log
NORM = 4  # |phi_now|^2
NORM_BEFORE = 5  # |phi_{now - 1}|^2
MOST_BEFORE = 6  # largest entry of phi_{now - 1}
MOST = 7
N_CLOCK = 8

# Columns of `log`
START, END, COUNT, PREVIOUS = 0, 1, 2, 3


class History(NamedTuple):
    """The runs of n features, and the overlaps of the present with each past time since `clock[ORIGIN]`."""

    phi: Integers  # (n,): phi_now
    since: Integers  # (n,): start of the run that is still open
    fresh: Integers  # (n,): zero between calls
    last: Integers  # (n,): place in the log of the feature's newest closed run, -1 for none
    last_end: Integers  # (n,): its end
    log: Integers  # (capacity, 4): START, END, COUNT, PREVIOUS (the feature's run before, -1)
    overlap: Integers  # (n_times,): G(ORIGIN + i, NOW)
    steps: Integers  # (n_times + 1,): zero between calls; differences of what is added to `overlap`
    gained: Integers  # (2, most active): features that went on at time NOW (row NOW % 2) and one step before
    lost: Integers  # (2, most active): features that went off; one that changed by two is there twice
    n_gained: Integers  # (2,)
    n_lost: Integers  # (2,)
    clock: Integers  # (N_CLOCK,)


@inner_kernel
def add_runs(f: int, weight: int, history: History) -> None:
    """Add `weight` times the past values of feature `f` to the overlaps, as differences."""
    clock, steps = history.clock, history.steps
    origin, oldest = clock[ORIGIN], clock[OLDEST]
    if history.phi[f] != 0:
        steps[max(history.since[f], oldest) - origin] += weight * history.phi[f]
    k = history.last[f]
    while k >= 0 and history.log[k, END] > oldest:
        amount = weight * history.log[k, COUNT]
        steps[max(history.log[k, START], oldest) - origin] += amount
        steps[history.log[k, END] - origin] -= amount
        k = history.log[k, PREVIOUS]


@inner_kernel
def change(f: int, history: History) -> None:
    """Give feature `f` its fresh value from time NOW + 1 on: close its run, and correct the overlaps."""
    clock, phi = history.clock, history.phi
    add_runs(f, history.fresh[f] - phi[f], history)
    if phi[f] != 0:
        k = clock[N_LOG]
        log = history.log[k]
        log[START], log[END], log[COUNT], log[PREVIOUS] = history.since[f], clock[NOW] + 1, phi[f], history.last[f]
        history.last[f], history.last_end[f] = k, clock[NOW] + 1
        clock[N_LOG] = k + 1
    row = (clock[NOW] + 1) % 2
    for _ in range(history.fresh[f] - phi[f]):
        history.gained[row, history.n_gained[row]] = f
        history.n_gained[row] += 1
    for _ in range(phi[f] - history.fresh[f]):
        history.lost[row, history.n_lost[row]] = f
        history.n_lost[row] += 1
    phi[f], history.since[f] = history.fresh[f], clock[NOW] + 1


@kernel
def observe(history: History, tiles_t: Integers, tiles_tp1: Integers) -> None:
    """Move the present from the feature vector at `tiles_t` to the one at `tiles_tp1`."""
    clock, fresh = history.clock, history.fresh
    row = (clock[NOW] + 1) % 2
    history.n_gained[row], history.n_lost[row] = 0, 0
    for i in range(tiles_tp1.shape[0]):
        fresh[tiles_tp1[i]] += 1
    clock[NORM_BEFORE], clock[MOST_BEFORE] = clock[NORM], clock[MOST]
    clock[NORM] = clock[MOST] = 0
    for i in range(tiles_tp1.shape[0]):
        f = tiles_tp1[i]
        if fresh[f] != history.phi[f]:
            change(f, history)
        clock[NORM] += fresh[f]  # once for each time that f is there: its square in all
        clock[MOST] = max(clock[MOST], fresh[f])
    for i in range(tiles_t.shape[0]):
        if fresh[tiles_t[i]] != history.phi[tiles_t[i]]:
            change(tiles_t[i], history)
    for i in range(tiles_tp1.shape[0]):
        fresh[tiles_tp1[i]] = 0
    collect_steps(history, history.overlap)
    clock[NOW] += 1
    history.overlap[clock[NOW] - clock[ORIGIN]] = clock[NORM]


@inner_kernel
def collect_steps(history: History, out: Integers) -> None:
    """Sum the differences up into `out` at the times OLDEST..NOW, and clear them."""
    clock, steps, total = history.clock, history.steps, 0
    for i in range(clock[OLDEST] - clock[ORIGIN], clock[NOW] + 1 - clock[ORIGIN]):
        total += steps[i]
        steps[i] = 0
        out[i] += total
    steps[clock[NOW] + 1 - clock[ORIGIN]] = 0


@kernel
def overlaps_with(history: History, tiles: Integers, out: Integers) -> None:
    """Write the overlaps of all times OLDEST..NOW with the feature vector at `tiles`, as `History.overlap`."""
    out[:] = 0
    for i in range(tiles.shape[0]):
        add_runs(tiles[i], 1, history)
    collect_steps(history, out)


@kernel
def forget(history: History, moved: Integers) -> None:
    """Let go of everything before OLDEST. `moved`, shape (capacity,), is overwritten."""
    clock, log, overlap = history.clock, history.log, history.overlap
    shift = clock[OLDEST] - clock[ORIGIN]
    for i in range(clock[NOW] + 1 - clock[OLDEST]):
        overlap[i] = overlap[i + shift]
    clock[ORIGIN] = clock[OLDEST]
    n_kept = 0
    for k in range(clock[N_LOG]):
        moved[k] = -1
        if log[k, END] > clock[OLDEST]:
            moved[k] = n_kept
            before = log[k, PREVIOUS]
            log[n_kept] = log[k]
            log[n_kept, PREVIOUS] = moved[before] if before >= 0 else -1
            n_kept += 1
    clock[N_LOG] = n_kept
    for f in range(history.last.shape[0]):
        if history.last[f] >= 0:
            history.last[f] = moved[history.last[f]]
