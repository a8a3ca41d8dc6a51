"""GTD(lambda) without stored traces and without dense passes: the arithmetic of one step, in the span of the past.

A trace is a sum of recent feature vectors, e_t = sum_k a_k phi_k, and so is what theta and w have changed by since they
were last written. All demons share the phi_k; a demon's own are a few numbers per step: with rho, the decay
g = gamma lambda, h = gamma (1 - lambda) e.w and q = phi.w,

    c_k = rho_k g_{k+1},   d_k = rho_k delta_k,   h_k,   q_k

With the overlaps G(k, j) = phi_k.phi_j (whole numbers, `history.py`) one pass over them gives everything that a step
asks for, and no weight is written: for u_k = e_k.phi_j / rho_k and v_k = g_{k+1} e_k.phi_j,

    u_k = G(k, j) + v_{k-1},   v_k = c_k u_k
    theta_t.phi_j = theta_0.phi_j + alpha   (sum d_k u_k - sum h_k G(k+1, j))
    w_t.phi_j     = w_0.phi_j     + alpha_w (sum d_k u_k - sum q_k G(k, j))

theta_0.phi_j, by the weights as written, moves with the rows of the features that went on and off. e.w, e.e, e.phi obey
recursions of their own (`learn_lanes`). Every K steps what is owed is written (`owed.py`): a backward pass gives the
coefficient of each phi_k, and a feature's row changes by the sum of the coefficients over its runs. It is exact: the
same algebra as `gtd.py`, in another order.

A trace reaches back beyond the last writing: the tile keeps c of those steps (its *tail*) until nothing of them is
left. Where that takes too long, the tile is made to *carry*: the trace at the last writing is kept in rows of its own.

What a step needs to know lies in slots (`Queue`, `History`), so that a tile may take many steps in one go, its rows in
a core's own cache (*deferred*), or each step when it comes (*eager*): the same kernels, the loops the other way round.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from horde_agent.kernels import history as past
from horde_agent.kernels._jit import entry_kernel, inlined, inner_kernel, kernel
from horde_agent.kernels.arrays import (
    CARRIES,
    IS_CARRYING,
    LIMIT,
    N_SICK,
    N_SPENT,
    WANTS_CARRY,
    Floats,
    Integers,
    Reals,
    Rules,
    Span,
    SpanParts,
    Switched,
    oldest_of,
)
from horde_agent.kernels.batch import list_switched
from horde_agent.kernels.entry import share_out
from horde_agent.kernels.held import look_into
from horde_agent.kernels.history import History
from horde_agent.kernels.lanes import ALPHA, BASE, BOUND, SICK, SUM, TURNED, V
from horde_agent.kernels.one_tile import end_trace, learn_tile
from horde_agent.kernels.owed import settle, sum_afresh, write_owed
from horde_agent.kernels.policies import GibbsParts, fixed_ratios, follow_logits, hand_out
from horde_agent.kernels.sums import foresee, look_ahead, scan
from horde_agent.kernels.turns import begin_turns, finish, take_next, wait_for_all

# What a step returns, added up, beside the findings of `checks.py`.
SOMEBODY_IS_SICK, SOMEBODY_WANTS_CARRY = 32, 64
TOO_OFTEN = 128  # a feature is on so often that the policies' logits are no whole numbers any more
NO_ROOM = 256  # for one more time: nothing was done


@inlined
def live(b: int, hand: int, n_steps: int, n_switched: int, span: Span, rules: Rules) -> None:
    """Let one tile take the last `n_steps` steps, and write what it owes where that is due."""
    now = span.history.clock[past.NOW]
    if n_steps > 1:
        foresee(b, hand, n_steps, n_switched, span)
    for k in range(n_steps):
        learn_tile(b, hand, now - n_steps + 1 + k, k if n_steps > 1 else -1, span, rules, k == n_steps - 1)
    n_spent = span.past.book[b, N_SPENT]
    waits_long = n_spent > 0 and now - span.past.times[b, 1, 0] >= rules.longest_wait
    if n_spent >= span.past.book[b, LIMIT] or waits_long:
        settle(b, hand, span, rules)
    give_out(b, span)


@inner_kernel
def give_out(b: int, span: Span) -> None:
    """Give out a tile's predictions, and count who is sick."""
    start, stop, n_sick = span.tiles.start[b], span.tiles.start[b + 1], 0
    demon, v, sick = span.tiles.demon[start:stop], span.lanes[V, start:stop], span.lanes[SICK, start:stop]
    predictions = span.work.predictions
    for i in range(stop - start):
        if demon[i] >= 0:
            predictions[demon[i]] = v[i]
    for i in range(stop - start):
        n_sick += sick[i] > 0
    span.past.book[b, N_SICK] = n_sick


@inner_kernel
def gather_up(span: Span, predictions: Floats) -> int:
    """Copy the predictions, find how far back anybody still looks, and return SOMEBODY_... as it applies."""
    past_, clock, n_sick, n_long = span.past, span.history.clock, 0, 0
    for i in range(predictions.shape[0]):
        predictions[i] = span.work.predictions[i]
    oldest = clock[past.NOW]
    for b in range(past_.book.shape[0]):
        oldest = min(oldest, oldest_of(b, past_, clock[past.NOW]))
        n_long += past_.book[b, WANTS_CARRY]
        n_sick += past_.book[b, N_SICK]
    clock[past.OLDEST] = oldest
    return SOMEBODY_IS_SICK * (n_sick > 0) + SOMEBODY_WANTS_CARRY * (n_long > 0)


@inlined
def prepare(n_steps: int, is_received: int, span: Span, gibbs: GibbsParts) -> None:
    """Make the ratios of Gibbs policies for the steps that are due, a block a job, and observe what is received, if so.

    The ratios for a step are those at the feature vector before it, so that these jobs do not wait for each other.
    """
    turns, history, n_blocks = span.work.turns, span.history, gibbs.parameters.start.shape[0]
    n_jobs, due = n_blocks + is_received, history.clock[past.DUE]
    job = take_next(turns)
    while job < n_jobs:
        if job < n_blocks:
            make_ratios(job, due - n_steps, n_steps, span, gibbs)
        else:
            past.observe(history)
        finish(turns)
        job = take_next(turns)
    wait_for_all(turns, n_jobs)


@inner_kernel
def make_ratios(b: int, since: int, n_steps: int, span: Span, gibbs: GibbsParts) -> None:
    """Make a block's ratios for the `n_steps` steps after time `since`."""
    history, queue = span.history, span.queue
    for time in range(since, since + n_steps):
        follow_logits(b, time, gibbs.parameters, gibbs.state, history)
        slot = past.slot_of(history, time + 1)
        fixed_ratios(b, queue.taken[slot, 0], queue.taken[slot, 1], gibbs.parameters, gibbs.state)
        hand_out(b, gibbs.parameters, gibbs.state, queue.rho[slot])


@entry_kernel
def take_turns(held: SpanParts, hand: int, n_steps: int, n_switched: int, n_hands: int) -> None:
    """Let a hand's tiles take the last `n_steps` steps, once all have their ratios; tiles are dealt in turn.

    No sum crosses a lane, so the result is the same, bit for bit, for any number of hands. `n_switched` is how many
    features switch in a batch; for a single step, whether its feature vector is yet to be observed.
    """
    parts = look_into(held)
    span, rules = parts.span, parts.rules
    if n_steps > 0:
        prepare(n_steps, n_switched if n_steps == 1 else 0, span, parts.gibbs)
    for b in range(hand, span.tiles.start.shape[0] - 1, n_hands):
        live(b, hand, n_steps, n_switched, span, rules)


@inner_kernel
def switches_of(history: History, switched: Switched, n_steps: int) -> int:
    """List what switches in a batch of several steps, and return how many features do; else see `take_turns`."""
    if n_steps <= 1:
        return int(history.clock[past.IS_RECEIVED])
    return int(list_switched(history, history.clock[past.NOW] - n_steps, switched))


@kernel
def learn(held: SpanParts, entry: int, n_steps: int, n_hands: int, predictions: Floats) -> int:
    """Let all demons take the last `n_steps` steps, and return SOMEBODY_... as it applies.

    Without a step, tiles whose LIMIT is passed write what they owe. `entry` is where `take_turns` begins.
    """
    span = look_into(held).span
    clock = span.history.clock
    clock[past.DUE] = clock[past.NOW] + clock[past.IS_RECEIVED]
    begin_turns(span.work.turns)
    share_out(entry, held, n_steps, switches_of(span.history, span.switched, n_steps), n_hands)
    return int(gather_up(span, predictions))


@kernel
def set_bounds(held: SpanParts, bound: Floats) -> None:
    """Write each demon's bound to its lane."""
    span = look_into(held).span
    for i in range(span.lanes.shape[1]):
        if span.tiles.demon[i] >= 0:
            span.lanes[BOUND, i] = bound[span.tiles.demon[i]]


@kernel
def begin(held: SpanParts, tiles_now: Integers, predictions: Floats) -> None:
    """Go on at another feature vector with every trace at zero, and write the predictions there.

    What is owed stays owed: the trace's next decay will be 0, and so are all numbers of a lane that it multiplies. No
    trace may be carried.
    """
    span = look_into(held).span
    past.receive(span.history, tiles_now)
    past.observe(span.history)
    lanes, time, hand, is_foreseen = span.lanes, span.history.clock[past.NOW], np.int64(0), np.bool_(False)
    for b in range(span.past.book.shape[0]):
        look_ahead(b, hand, time, span, is_foreseen)
        for i in range(span.tiles.start[b], span.tiles.start[b + 1]):
            lanes[V, i] = lanes[BASE, i] + lanes[ALPHA, i] * (lanes[SUM, i] - lanes[TURNED, i])
        end_trace(b, span)
        give_out(b, span)
    gather_up(span, predictions)


@kernel
def read_tile(
    b: int, held: SpanParts, into: tuple[Any, ...], is_alive: NDArray[np.uint8], bound: Reals, sick: Reals
) -> None:
    """Add what a tile owes to flat copies of its rows of theta, w, m and e, so that reading changes nothing."""
    write_owed(b, np.int64(0), look_into(held).span, np.int64(0), into, is_alive, bound, sick)


@kernel
def predict(
    held: SpanParts, overlap: NDArray[np.int32], active: Integers, first_tile: int, last_tile: int, sums: Reals
) -> None:
    """Write theta.phi at any feature vector into sums[4], for some tiles; `overlap` are its overlaps with the past."""
    span = look_into(held).span
    n, lanes = span.memory.is_alive.shape[1], span.lanes
    for b in range(first_tile, last_tile):
        start, stop, book = span.tiles.start[b], span.tiles.start[b + 1], span.past.book[b]
        x, total, spent = sums[0, start:stop], sums[1, start:stop], sums[2, start:stop]
        turned, v = sums[3, start:stop], sums[4, start:stop]
        x[:] = 0
        if book[IS_CARRYING]:
            sum_afresh(span.memory.carried[book[CARRIES]], np.int64(0), stop - start, active, x)
        scan(b, np.int64(0), span, overlap, (x, total, spent, turned))
        sum_afresh(span.memory.theta, n * start, stop - start, active, v)
        for i in range(stop - start):
            v[i] += lanes[ALPHA, start + i] * (total[i] - turned[i])
