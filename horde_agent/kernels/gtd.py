"""GTD(lambda) for many demons at once: the arithmetic of one step, on arrays alone.

A *lane* is the place of one demon. Weights are stored feature-major, so that an active feature is one contiguous row
over all lanes: reading 457 long rows runs at the speed of memory, reading 457 x 15 short ones at its latency. A *block*
is a run of lanes that is swept together. The lanes of a *shared* block are demons of one (policy, gamma, lambda): they
have one trace, a number per feature. The lanes of a *packed* block belong to small groups: each lane has its own trace.
Shared blocks come first.

    delta_t = c_{t+1} + (1 - gamma_{t+1}) z_{t+1} + gamma_{t+1} theta_t.phi_{t+1} - theta_t.phi_t
    e_t     = rho_t (phi_t + gamma_t lambda_t e_{t-1})
    theta  += alpha   (delta_t e_t - gamma_{t+1} (1 - lambda_{t+1}) (e_t.w_t) phi_{t+1})
    w      += alpha_w (delta_t e_t - (phi_t.w_t) phi_t)                 times rho_t inside the brackets on request

Every right-hand side uses the weights from before the update. Sources: Maei (2011), GTD(lambda); White, Modayil &
Sutton (2012), pseudo-code. Only features whose trace is not zero are visited: `live` lists them, block by block.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from horde_agent.kernels import bounds, dropped
from horde_agent.kernels._jit import entry_kernel, inlined, inner_kernel, kernel, prefetch
from horde_agent.kernels.entry import share_out
from horde_agent.kernels.held import look_into
from horde_agent.kernels.vectors import move_bounds

Reals = NDArray[Any]  # float32 or float64, the learner's dtype
Floats = NDArray[np.float64]
Integers = NDArray[np.int64]

UNBOUNDED = np.uint8(1)  # |theta| passed its bound
NOT_FINITE = np.uint8(2)  # a TD error or a prediction is infinite or not a number

# One number per lane: rows of the array `lanes`, shape (N_ROWS, L). One array instead of twenty, since each costs every
# kernel that it passes through half a second of compilation.
V = 0  # theta_t.phi_t, the prediction
V_TP1 = 1  # theta_t.phi_{t+1}
DELTA = 2
S = 3  # scalar MSPBE trace
Q = 4  # w_t.phi_t
Y = 5  # e_t.w_t
C_TP1 = 6
Z_TP1 = 7
RHO_T = 8
GAMMA_T = 9
GAMMA_TP1 = 10
LAM_T = 11
LAM_TP1 = 12
ALPHA = 13
ALPHA_W = 14
DECAY = 15  # gamma_t lambda_t
TO_THETA = 16  # alpha delta
TO_W = 17  # alpha_w delta
TO_M = 18  # delta / (tau scale)
SPENT = 19  # what is subtracted from rows
MAX_E = 20  # running max |e|
BOUND = 21  # |theta| that no answer can need
N_ROWS = 22


class Places(NamedTuple):
    """Who sits where: n_demons demons on L lanes in B blocks, S of them shared."""

    lane: Integers  # (n_demons,): lane of each demon
    group: Integers  # (L,): group of each lane, -1 where it is empty
    start: Integers  # (B + 1,): block b is lanes start[b]..start[b + 1]
    n_shared: int


class Signals(NamedTuple):
    """What the demons are told about one transition.

    Attributes:
        rho_t: pi(a_t)/b(a_t), shape (n_groups,); for the span engine that of each policy, shape (n_policies,).
        gamma_tp1: Continuation at the state reached, shape (n_groups,).
        lam_tp1: Trace decay at the state reached, before any clipping by rho, shape (n_groups,).
        c_tp1: Cumulant, shape (n_demons,).
        z_tp1: Outcome, shape (n_demons,).
    """

    rho_t: Floats
    gamma_tp1: Floats
    lam_tp1: Floats
    c_tp1: Floats
    z_tp1: Floats


class Memory(NamedTuple):
    """What is learned, over n features."""

    theta: Reals  # (n, L)
    w: Reals  # (n, L)
    m: Reals  # (n, L): the vector MSPBE trace over its common scale, or (0, L) where it is not kept
    e_shared: Reals  # (S, n, 1)
    e_packed: Reals  # (n, lanes of the packed blocks)
    live: NDArray[np.int32]  # (B, n): the features in a block's trace, the first n_live[b] of a row
    n_live: Integers  # (B,)
    is_live: NDArray[np.uint8]  # (B, n)
    phi_t: Reals  # (n,): in full
    phi_tp1: Reals  # (n,)


class Work(NamedTuple):
    """Who has work in this step, and who is not well."""

    order: Integers  # (B,): the blocks with rho > 0, the first n_busy[0] of them
    is_busy: NDArray[np.uint8]  # (B,)
    n_busy: Integers  # (1,)
    is_aside: NDArray[np.uint8]  # (L,): set aside: told that nothing happens
    flags: NDArray[np.uint8]  # (L,): UNBOUNDED, NOT_FINITE
    dropped: Floats  # (N_BOUNDS, L): what dropping small entries of traces may have changed, see `dropped.py`
    largest: Integers  # (2,): the largest entry of a feature vector so far, and the most active tiles


class Rules(NamedTuple):
    """What distinguishes one learner from another, and the step's own numbers."""

    every_step: bool  # w decays where rho = 0 too
    clip_lambda: bool  # lambda_{t+1} = lambda min(1, 1/rho_t)
    cap: Reals  # (1,): the largest entry of phi + gamma lambda e; inf for none
    drop_below: Reals  # (1,): an entry of e below this leaves the trace
    one_over_tau: float
    m_step: float  # 1 / (tau scale)
    first_row: int  # rows [first_row, last_row) of theta are looked through for weights past their bound
    last_row: int


class Step(NamedTuple):
    """What is held for the kernels that take one step."""

    places: Places
    memory: Memory
    lanes: Reals  # (N_ROWS, L)
    rules: Rules
    work: Work
    tiles_t: Integers
    tiles_tp1: Integers


# A short row far from the last one costs 200 ns of waiting, or 50 ns where it was asked for this many rows before.
AHEAD = 8
LANES_AT_ONCE = 256  # 457 rows of so many float32 stay in a core's own cache from their sum to their decay
# A cache line of float32. Of float64 every other line is asked for; the processor fetches its neighbour by itself.
LANES_PER_LINE = 16


# ---- rows of weights ----------------------------------------------------------------------------------------------


@inner_kernel
def fetch_row(rows: Reals, f: int, start: int, stop: int) -> None:
    """Ask for a row that will be read soon."""
    row = rows[f, start:stop]
    for i in range(0, row.shape[0], LANES_PER_LINE):
        prefetch(row, i)


@inner_kernel
def sum_rows(rows: Reals, tiles: Integers, start: int, stop: int, sums: Reals) -> None:
    """Write theta.phi (or w.phi) of the lanes start..stop: the sum of the rows of the active tiles."""
    out = sums[start:stop]
    n_by_four = tiles.shape[0] // 4 * 4
    for i in range(out.shape[0]):
        out[i] = 0
    for k in range(0, n_by_four, 4):  # four rows at a time: a quarter of the traffic to `out`
        for ahead in range(k + AHEAD, min(k + AHEAD + 4, tiles.shape[0])):
            fetch_row(rows, tiles[ahead], start, stop)
        r0, r1 = rows[tiles[k], start:stop], rows[tiles[k + 1], start:stop]
        r2, r3 = rows[tiles[k + 2], start:stop], rows[tiles[k + 3], start:stop]
        for i in range(out.shape[0]):
            out[i] += (r0[i] + r1[i]) + (r2[i] + r3[i])
    for k in range(n_by_four, tiles.shape[0]):
        row = rows[tiles[k], start:stop]
        for i in range(out.shape[0]):
            out[i] += row[i]


@inner_kernel
def subtract_from_rows(rows: Reals, tiles: Integers, start: int, stop: int, amounts: Reals) -> None:
    """Subtract `amounts` (one per lane) from the rows of the active tiles, on the lanes start..stop."""
    amount = amounts[start:stop]
    for k in range(tiles.shape[0]):
        if k + AHEAD < tiles.shape[0]:
            fetch_row(rows, tiles[k + AHEAD], start, stop)
        row = rows[tiles[k], start:stop]
        for i in range(amount.shape[0]):
            row[i] -= amount[i]


# ---- before the weights move --------------------------------------------------------------------------------------


@inner_kernel
def tell(places: Places, signals: Signals, lanes: Reals, work: Work) -> None:
    """Spread the signals over the lanes; empty lanes, and demons set aside, are told that nothing happens.

    A demon set aside keeps its rho in a shared block, where the trace is its siblings' too.
    """
    first_packed = places.start[places.n_shared]
    for i in range(places.group.shape[0]):
        g = places.group[i]
        if g < 0 or (work.is_aside[i] and i >= first_packed):
            lanes[RHO_T, i], lanes[GAMMA_TP1, i], lanes[LAM_TP1, i] = 0, 0, 0
        else:
            lanes[RHO_T, i], lanes[GAMMA_TP1, i] = signals.rho_t[g], signals.gamma_tp1[g]
            lanes[LAM_TP1, i] = signals.lam_tp1[g]
    for demon in range(places.lane.shape[0]):
        i = places.lane[demon]
        lanes[C_TP1, i] = 0 if work.is_aside[i] else signals.c_tp1[demon]
        lanes[Z_TP1, i] = 0 if work.is_aside[i] else signals.z_tp1[demon]


@inner_kernel
def find_busy(places: Places, lanes: Reals, work: Work) -> None:
    """Note the blocks in which a demon learns: rho > 0, and not set aside."""
    work.n_busy[0] = 0
    for b in range(work.is_busy.shape[0]):
        is_busy = False
        for i in range(places.start[b], places.start[b + 1]):
            is_busy |= lanes[RHO_T, i] > 0 and work.is_aside[i] == 0
        work.is_busy[b] = is_busy
        if is_busy:
            work.order[work.n_busy[0]] = b
            work.n_busy[0] += 1


@inner_kernel
def td_errors(lanes: Reals, work: Work, start: int, stop: int) -> None:
    """Write delta_t; one that is not finite is flagged and taken as 0, so that it never reaches a weight."""
    for i in range(start, stop):
        gamma = lanes[GAMMA_TP1, i]
        delta = lanes[C_TP1, i] + (1 - gamma) * lanes[Z_TP1, i] + gamma * lanes[V_TP1, i] - lanes[V, i]
        if not np.isfinite(delta):
            work.flags[i] |= NOT_FINITE
            delta = 0.0
        lanes[DELTA, i] = delta


@inner_kernel
def prepare(lanes: Reals, rules: Rules, start: int, stop: int) -> None:
    """Write the coefficients of the trace's and the weights' changes; lambda_{t+1} is clipped by rho_t here."""
    for i in range(start, stop):
        delta, rho = lanes[DELTA, i], lanes[RHO_T, i]
        lanes[DECAY, i] = lanes[GAMMA_T, i] * lanes[LAM_T, i]
        lanes[TO_THETA, i] = lanes[ALPHA, i] * delta
        lanes[TO_W, i] = lanes[ALPHA_W, i] * delta
        lanes[TO_M, i] = rules.m_step * delta
        lanes[Y, i] = 0
        if rules.clip_lambda and rho > 1:
            lanes[LAM_TP1, i] /= rho


@inner_kernel
def decay_idle_secondary(
    places: Places, w: Reals, lanes: Reals, work: Work, tiles_t: Integers, start: int, stop: int
) -> None:
    """Apply w -= alpha_w (phi_t.w_t) phi_t on the lanes of blocks that do nothing else in this step (rho = 0)."""
    for b in range(work.is_busy.shape[0]):
        for i in range(max(start, places.start[b]), min(stop, places.start[b + 1])):
            lanes[SPENT, i] = 0 if work.is_busy[b] else lanes[ALPHA_W, i] * lanes[Q, i]
    subtract_from_rows(w, tiles_t, start, stop, lanes[SPENT])


@inner_kernel
def look_for_unbounded(theta: Reals, lanes: Reals, work: Work, rules: Rules, start: int, stop: int) -> None:
    """Flag lanes whose theta passes its bound in the rows that are this step's share."""
    bound = lanes[BOUND, start:stop]
    for f in range(rules.first_row, rules.last_row):
        row = theta[f, start:stop]
        for i in range(row.shape[0]):
            if not abs(row[i]) <= bound[i]:  # written so that NaN is caught
                work.flags[start + i] |= UNBOUNDED


# ---- the trace, and what it moves ---------------------------------------------------------------------------------


@inner_kernel
def enlist(b: int, memory: Memory, tiles: Integers) -> None:
    """Add the active features to the block's list of live ones."""
    n = memory.n_live[b]
    for k in range(tiles.shape[0]):
        f = tiles[k]
        if memory.is_live[b, f] == 0:
            memory.is_live[b, f] = 1
            memory.live[b, n] = f
            n += 1
    memory.n_live[b] = n


@inner_kernel
def renew_shared_trace(b: int, start: int, stop: int, memory: Memory, lanes: Reals, rules: Rules) -> None:
    """Write a shared block's e_t = rho_t (phi_t + gamma_t lambda_t e_{t-1}), a number per live feature."""
    e, live, rho, decay = memory.e_shared[b, :, 0], memory.live[b], lanes[RHO_T, start], lanes[DECAY, start]
    cap, max_e = rules.cap[0], lanes[MAX_E, start]
    for k in range(memory.n_live[b]):
        x = rho * min(memory.phi_t[live[k]] + decay * e[live[k]], cap)
        e[live[k]] = x
        max_e = max(max_e, x)
    for i in range(start, stop):
        lanes[MAX_E, i] = max_e


@inner_kernel
def renew_packed_trace(b: int, start: int, stop: int, first: int, memory: Memory, lanes: Reals, rules: Rules) -> None:
    """Write a packed block's e_t, a number per live feature and lane."""
    rho, decay, max_e = lanes[RHO_T, start:stop], lanes[DECAY, start:stop], lanes[MAX_E, start:stop]
    cap = rules.cap[0]
    for k in range(memory.n_live[b]):
        e, phi = memory.e_packed[memory.live[b, k], start - first : stop - first], memory.phi_t[memory.live[b, k]]
        for i in range(e.shape[0]):
            e[i] = rho[i] * min(phi + decay[i] * e[i], cap)
            max_e[i] = max(max_e[i], e[i])


@inner_kernel
def move_w(
    w: Reals,
    live: NDArray[np.int32],
    e: Reals,
    phi: Reals,
    start: int,
    stop: int,
    amounts: Reals,
    spent: Reals,
    y: Reals,
) -> None:
    """Collect y = e.w, and add e amount - phi spent to the rows of w as soon as they were read.

    `e` is (n, 1) where the lanes share a trace, else (n, stop - start).
    """
    amount, less, dot = amounts[start:stop], spent[start:stop], y[start:stop]
    for k in range(live.shape[0]):
        if k + AHEAD < live.shape[0]:
            fetch_row(w, live[k + AHEAD], start, stop)
        row, x, on = w[live[k], start:stop], e[live[k]], phi[live[k]]
        if x.shape[0] == 1:
            for i in range(row.shape[0]):
                dot[i] += x[0] * row[i]
                row[i] += x[0] * amount[i] - on * less[i]
        else:
            for i in range(row.shape[0]):
                dot[i] += x[i] * row[i]
                row[i] += x[i] * amount[i] - on * less[i]


@inner_kernel
def move_theta(
    theta: Reals, live: NDArray[np.int32], e: Reals, phi: Reals, start: int, stop: int, amounts: Reals, spent: Reals
) -> None:
    """Add e amount - phi spent to the live rows; `e` as in `move_w`."""
    amount, less = amounts[start:stop], spent[start:stop]
    for k in range(live.shape[0]):
        if k + AHEAD < live.shape[0]:
            fetch_row(theta, live[k + AHEAD], start, stop)
        row, x, on = theta[live[k], start:stop], e[live[k]], phi[live[k]]
        if x.shape[0] == 1:
            for i in range(row.shape[0]):
                row[i] += x[0] * amount[i] - on * less[i]
        else:
            for i in range(row.shape[0]):
                row[i] += x[i] * amount[i] - on * less[i]


@inner_kernel
def move_m(m: Reals, live: NDArray[np.int32], e: Reals, start: int, stop: int, amounts: Reals) -> None:
    """Add e amount to the live rows; `e` as in `move_w`."""
    amount = amounts[start:stop]
    for k in range(live.shape[0]):
        if k + AHEAD < live.shape[0]:
            fetch_row(m, live[k + AHEAD], start, stop)
        row, x = m[live[k], start:stop], e[live[k]]
        if x.shape[0] == 1:
            for i in range(row.shape[0]):
                row[i] += x[0] * amount[i]
        else:
            for i in range(row.shape[0]):
                row[i] += x[i] * amount[i]


@inner_kernel
def correct_the_rest(b: int, memory: Memory, tiles: Integers, start: int, stop: int, spent: Reals) -> None:
    """Subtract `spent` from the rows of theta at those active tiles that are not live: `move_theta` saw the others."""
    less = spent[start:stop]
    for k in range(tiles.shape[0]):
        if memory.is_live[b, tiles[k]] == 0:
            row = memory.theta[tiles[k], start:stop]
            for i in range(row.shape[0]):
                row[i] -= less[i]


@inner_kernel
def drop_small(b: int, e: Reals, places: Places, memory: Memory, drop_below: float, work: Work) -> None:
    """Let the features whose trace fell below `drop_below` in every lane leave the block's list; `e` as in `move_w`."""
    live, n_kept, start, stop = memory.live[b], 0, places.start[b], places.start[b + 1]
    lost = work.dropped[:, start:stop]
    lost[dropped.SCRATCH], lost[dropped.SQUARE] = 0, 0
    for k in range(memory.n_live[b]):
        f, i = live[k], 0
        while i < e.shape[1] and e[f, i] < drop_below:
            i += 1
        if i == e.shape[1]:
            memory.is_live[b, f] = 0
            lose(e[f], memory.w[f, start:stop], lost)
            forget(b, f, places, memory)
        else:
            live[n_kept] = f
            n_kept += 1
    memory.n_live[b] = n_kept
    norm = work.largest[0] * work.largest[1]
    for i in range(stop - start):
        lost[bounds.LOST, i] += max(lost[dropped.SCRATCH, i], np.sqrt(lost[dropped.SQUARE, i] / max(norm, 1)))


@inner_kernel
def lose(e: Reals, w: Reals, lost: Floats) -> None:
    """Note that an entry of the trace is dropped, of each lane of a block."""
    for i in range(w.shape[0]):
        entry = np.float64(e[min(i, e.shape[0] - 1)])
        lost[dropped.SCRATCH, i] = max(lost[dropped.SCRATCH, i], entry)
        lost[dropped.SQUARE, i] += entry * entry
        lost[bounds.LEAK, i] += entry * abs(np.float64(w[i]))


@inner_kernel
def account(start: int, stop: int, lanes: Reals, rules: Rules, work: Work) -> None:
    """Move the bounds of a block's lanes on by this step, by the w from before it."""
    if not rules.every_step:
        for i in range(start, stop):
            lanes[Q, i] *= lanes[RHO_T, i]
    for i in range(start, stop):
        lanes[SPENT, i] = lanes[RHO_T, i] * lanes[DELTA, i]
    move_bounds(
        work.dropped,
        start,
        lanes[RHO_T, start:stop],
        lanes[DECAY, start:stop],
        lanes[SPENT, start:stop],
        lanes[Q, start:stop],
        lanes[ALPHA, start:stop],
        lanes[ALPHA_W, start:stop],
        work.largest[0],
        work.largest[0] * work.largest[1],
    )


@inner_kernel
def forget(b: int, f: int, places: Places, memory: Memory) -> None:
    """Set one feature's trace to zero in a block."""
    first = places.start[places.n_shared]
    if b < places.n_shared:
        memory.e_shared[b, f, 0] = 0
    else:
        for i in range(places.start[b] - first, places.start[b + 1] - first):
            memory.e_packed[f, i] = 0


@inner_kernel
def clear_trace(b: int, places: Places, memory: Memory) -> None:
    """Set a block's trace to zero."""
    for k in range(memory.n_live[b]):
        memory.is_live[b, memory.live[b, k]] = 0
        forget(b, memory.live[b, k], places, memory)
    memory.n_live[b] = 0


@inner_kernel
def sweep(b: int, e: Reals, step: Step) -> None:
    """Carry delta e and the two corrections into w, theta and m; `e` as in `move_w`.

    One array at a time, w first, for y = e_t.w_t: all in one pass take twice as long, since a compiler that cannot
    tell many arrays apart trusts none of them.
    """
    places, memory, lanes, rules, work = step.places, step.memory, step.lanes, step.rules, step.work
    start, stop, live = places.start[b], places.start[b + 1], memory.live[b, : memory.n_live[b]]
    for i in range(start, stop):
        lanes[SPENT, i] = lanes[ALPHA_W, i] * lanes[Q, i] * (1 if rules.every_step else lanes[RHO_T, i])
    move_w(memory.w, live, e, memory.phi_t, start, stop, lanes[TO_W], lanes[SPENT], lanes[Y])
    for i in range(start, stop):
        lanes[SPENT, i] = lanes[ALPHA, i] * lanes[GAMMA_TP1, i] * (1 - lanes[LAM_TP1, i]) * lanes[Y, i]
    move_theta(memory.theta, live, e, memory.phi_tp1, start, stop, lanes[TO_THETA], lanes[SPENT])
    if memory.m.shape[0] > 0:
        move_m(memory.m, live, e, start, stop, lanes[TO_M])
    correct_the_rest(b, memory, step.tiles_tp1, start, stop, lanes[SPENT])
    account(start, stop, lanes, rules, work)
    drop_small(b, e, places, memory, rules.drop_below[0], work)


@inner_kernel
def learn_block(b: int, step: Step) -> None:
    """Let one block learn in which a demon has rho > 0."""
    places, memory, lanes, rules = step.places, step.memory, step.lanes, step.rules
    start, stop, first = places.start[b], places.start[b + 1], places.start[places.n_shared]
    if not rules.every_step:
        sum_rows(memory.w, step.tiles_t, start, stop, lanes[Q])
    enlist(b, memory, step.tiles_t)
    if b < places.n_shared:
        renew_shared_trace(b, start, stop, memory, lanes, rules)
        sweep(b, memory.e_shared[b, :, 0:1], step)
    else:
        renew_packed_trace(b, start, stop, first, memory, lanes, rules)
        sweep(b, memory.e_packed[:, start - first : stop - first], step)
    sum_rows(memory.theta, step.tiles_tp1, start, stop, lanes[V])


# ---- one step -----------------------------------------------------------------------------------------------------


@inner_kernel
def share(hand: np.int64, n_hands: int, n_lanes: int) -> tuple[int, int]:
    """Return a hand's equal share of the lanes, cut at multiples of 16, so that no two hands share a cache line."""
    start, stop = hand * n_lanes // n_hands // 16 * 16, (hand + 1) * n_lanes // n_hands // 16 * 16
    return int(start), n_lanes if hand == n_hands - 1 else int(stop)


@inner_kernel
def prologue(step: Step, signals: Signals) -> None:
    """Spread the signals, lay out phi in full, find the blocks with work to do and clear the traces of the others."""
    places, memory, lanes, work = step.places, step.memory, step.lanes, step.work
    tiles_t, tiles_tp1 = step.tiles_t, step.tiles_tp1
    tell(places, signals, lanes, work)
    find_busy(places, lanes, work)
    for b in range(work.is_busy.shape[0]):
        if work.is_busy[b] == 0:
            clear_trace(b, places, memory)
            work.dropped[: bounds.TOP + 1, places.start[b] : places.start[b + 1]] = 0
    for k in range(tiles_t.shape[0]):
        memory.phi_t[tiles_t[k]] += 1
        work.largest[0] = max(work.largest[0], np.int64(memory.phi_t[tiles_t[k]]))
    work.largest[1] = max(work.largest[1], tiles_t.shape[0], tiles_tp1.shape[0])
    for k in range(tiles_tp1.shape[0]):
        memory.phi_tp1[tiles_tp1[k]] += 1
        work.largest[0] = max(work.largest[0], np.int64(memory.phi_tp1[tiles_tp1[k]]))


@inlined
def read_rows(hand: int, step: Step, n_hands: int) -> None:
    """Do what runs along whole rows, on a hand's share of the lanes: predictions, TD errors, the decay of idle w."""
    places, memory, lanes, rules, work = step.places, step.memory, step.lanes, step.rules, step.work
    start, stop = share(hand, n_hands, lanes.shape[1])
    look_for_unbounded(memory.theta, lanes, work, rules, start, stop)
    for first in range(start, stop, LANES_AT_ONCE):
        last = min(stop, first + LANES_AT_ONCE)
        sum_rows(memory.theta, step.tiles_tp1, first, last, lanes[V_TP1])
        if rules.every_step:
            sum_rows(memory.w, step.tiles_t, first, last, lanes[Q])
            if work.n_busy[0] < work.is_busy.shape[0]:
                decay_idle_secondary(places, memory.w, lanes, work, step.tiles_t, first, last)
    td_errors(lanes, work, start, stop)
    prepare(lanes, rules, start, stop)
    for i in range(start, stop):
        lanes[V, i] = lanes[V_TP1, i]  # stands where theta does not move


@inner_kernel
def epilogue(step: Step, predictions: Floats) -> None:
    """Renew the scalar MSPBE trace, hold gamma and lambda for the next step, give out the predictions."""
    memory, lanes, rules, work, lane = step.memory, step.lanes, step.rules, step.work, step.places.lane
    for k in range(step.tiles_t.shape[0]):
        memory.phi_t[step.tiles_t[k]] = 0
    for k in range(step.tiles_tp1.shape[0]):
        memory.phi_tp1[step.tiles_tp1[k]] = 0
    for i in range(lanes.shape[1]):
        lanes[S, i] += rules.one_over_tau * (lanes[DELTA, i] * lanes[Y, i] - lanes[S, i])
        lanes[GAMMA_T, i], lanes[LAM_T, i] = lanes[GAMMA_TP1, i], lanes[LAM_TP1, i]
        if not np.isfinite(lanes[V, i]):
            work.flags[i] |= NOT_FINITE
    for demon in range(predictions.shape[0]):
        predictions[demon] = lanes[V, lane[demon]]


@entry_kernel
def take_turns(held: Step, hand: int, half: int, _: int, n_hands: int) -> None:
    """Do a hand's part of a step: first along the rows, then the blocks with rho > 0, dealt in turn.

    No sum crosses a lane, so the result is the same, bit for bit, for any number of hands.
    """
    step = look_into(held)
    if half == 0:
        read_rows(hand, step, n_hands)
    else:
        for k in range(hand, step.work.n_busy[0], n_hands):
            learn_block(step.work.order[k], step)


@kernel
def learn(held: Step, entry: int, signals: Signals, n_hands: int, predictions: Floats) -> None:
    """Learn from one transition and write the new predictions. `entry` is where `take_turns` begins."""
    step = look_into(held)
    prologue(step, signals)
    for half in range(2):
        share_out(entry, held, half, half, n_hands)
    epilogue(step, predictions)


@kernel
def predict(theta: Reals, tiles: Integers, v: Reals) -> None:
    """Write theta.phi of every lane into `v`, shape (L,)."""
    for first in range(0, v.shape[0], LANES_AT_ONCE):
        sum_rows(theta, tiles, first, min(v.shape[0], first + LANES_AT_ONCE), v)


@kernel
def clear_all(places: Places, memory: Memory) -> None:
    """Set every trace to zero: the start of a stream, and after every gap."""
    for b in range(memory.n_live.shape[0]):
        clear_trace(b, places, memory)
