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

import numpy as np

from horde_agent.kernels import bounds
from horde_agent.kernels._jit import entry_kernel, inlined, inner_kernel, kernel
from horde_agent.kernels.entry import share_out
from horde_agent.kernels.gtd_arrays import (
    ALPHA,
    ALPHA_W,
    BOUND,
    C_TP1,
    DECAY,
    DELTA,
    GAMMA_T,
    GAMMA_TP1,
    LAM_T,
    LAM_TP1,
    MAX_E,
    RHO_T,
    SICK,
    SPENT,
    TO_M,
    TO_THETA,
    TO_W,
    V_TP1,
    Z_TP1,
    Floats,
    Integers,
    Memory,
    Places,
    Q,
    Reals,
    Rules,
    S,
    Signals,
    Step,
    V,
    Work,
    Y,
)
from horde_agent.kernels.held import look_into
from horde_agent.kernels.rows import LANES_AT_ONCE, move_m, move_theta, move_w, subtract_from_rows, sum_rows
from horde_agent.kernels.traces import clear_trace, drop_small, enlist, renew_packed_trace, renew_shared_trace
from horde_agent.kernels.vectors import move_bounds

# ---- before the weights move --------------------------------------------------------------------------------------


@inner_kernel
def tell(places: Places, signals: Signals, lanes: Reals, work: Work) -> None:
    """Spread the signals over the lanes; empty lanes, and demons set aside, are told that nothing happens.

    A demon set aside keeps its rho in a shared block, where the trace is its siblings' too. Who is told something that
    is not finite is told nothing instead: rho = gamma = 0 clears its trace. In a shared block that must go for all.
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
    for i in range(lanes.shape[1]):
        told = lanes[RHO_T, i] + lanes[GAMMA_TP1, i] + lanes[LAM_TP1, i] + lanes[C_TP1, i] + lanes[Z_TP1, i]
        work.is_skipping[i] = not np.isfinite(told)
        if work.is_skipping[i]:
            lanes[RHO_T, i], lanes[GAMMA_TP1, i], lanes[LAM_TP1, i] = 0, 0, 0


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
    """Write delta_t, 0 in a gap; one that is not finite is flagged and taken as 0, lest it reach a weight."""
    for i in range(start, stop):
        gamma = lanes[GAMMA_TP1, i]
        delta = lanes[C_TP1, i] + (1 - gamma) * lanes[Z_TP1, i] + gamma * lanes[V_TP1, i] - lanes[V, i]
        if work.is_skipping[i]:
            delta = 0.0
        elif not np.isfinite(delta):
            work.flags[i] |= SICK
            delta = 0.0
        lanes[DELTA, i] = delta


@inner_kernel
def prepare(lanes: Reals, work: Work, rules: Rules, start: int, stop: int) -> None:
    """Write the coefficients of the trace's and the weights' changes; lambda_{t+1} is clipped by rho_t here."""
    for i in range(start, stop):
        if work.is_skipping[i]:
            lanes[Q, i] = 0
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
            is_still = work.is_busy[b] or work.is_skipping[i]
            lanes[SPENT, i] = 0 if is_still else lanes[ALPHA_W, i] * lanes[Q, i]
    subtract_from_rows(w, tiles_t, start, stop, lanes[SPENT])


@inner_kernel
def look_for_unbounded(memory: Memory, lanes: Reals, work: Work, rules: Rules, start: int, stop: int) -> None:
    """Flag lanes whose theta passes its bound, or whose w or m is not finite, in this step's share of the rows."""
    bound = lanes[BOUND, start:stop]
    for f in range(rules.first_row, rules.last_row):
        row, w = memory.theta[f, start:stop], memory.w[f, start:stop]
        for i in range(row.shape[0]):
            if not (abs(row[i]) <= bound[i] and abs(w[i]) <= rules.most):  # written so that NaN is caught
                work.flags[start + i] |= SICK
        if memory.m.shape[0] > 0:
            m = memory.m[f, start:stop]
            for i in range(m.shape[0]):
                if not abs(m[i]) <= rules.most:
                    work.flags[start + i] |= SICK


# ---- what the trace moves -----------------------------------------------------------------------------------------


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
    look_for_unbounded(memory, lanes, work, rules, start, stop)
    for first in range(start, stop, LANES_AT_ONCE):
        last = min(stop, first + LANES_AT_ONCE)
        sum_rows(memory.theta, step.tiles_tp1, first, last, lanes[V_TP1])
        if rules.every_step:
            sum_rows(memory.w, step.tiles_t, first, last, lanes[Q])
            if work.n_busy[0] < work.is_busy.shape[0]:
                decay_idle_secondary(places, memory.w, lanes, work, step.tiles_t, first, last)
    td_errors(lanes, work, start, stop)
    prepare(lanes, work, rules, start, stop)
    for i in range(start, stop):
        lanes[V, i] = lanes[V_TP1, i]  # stands where theta does not move


@inner_kernel
def epilogue(step: Step, predictions: Floats) -> None:
    """Renew the scalar MSPBE trace, hold gamma and lambda for the next step, give out the predictions.

    Whose numbers are not finite any more, or will soon not be, is flagged.
    """
    memory, lanes, rules, work, lane = step.memory, step.lanes, step.rules, step.work, step.places.lane
    for k in range(step.tiles_t.shape[0]):
        memory.phi_t[step.tiles_t[k]] = 0
    for k in range(step.tiles_tp1.shape[0]):
        memory.phi_tp1[step.tiles_tp1[k]] = 0
    for i in range(lanes.shape[1]):
        lanes[S, i] += rules.one_over_tau * (lanes[DELTA, i] * lanes[Y, i] - lanes[S, i])
        lanes[GAMMA_T, i], lanes[LAM_T, i] = lanes[GAMMA_TP1, i], lanes[LAM_TP1, i]
        is_small = lanes[RHO_T, i] == 0 or abs(lanes[DELTA, i]) * lanes[MAX_E, i] < rules.largest_step
        if not (is_small and np.isfinite(lanes[V, i] + lanes[S, i] + lanes[Q, i])):
            work.flags[i] |= SICK
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
