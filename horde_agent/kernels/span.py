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
    AFTER,
    AT,
    CARRIES,
    IS_CARRYING,
    IS_STALE,
    LIMIT,
    N_KEPT,
    N_OWED,
    N_SICK,
    N_SPENT,
    NUMBERS,
    OUTCOME,
    SOON,
    SPENT_AT,
    STATE,
    W_AT,
    WANTS_CARRY,
    WAS_BUSY,
    Reals,
    Rules,
    Span,
    SpanParts,
    Switched,
    oldest_of,
)
from horde_agent.kernels.batch import list_switched, sum_rows
from horde_agent.kernels.entry import share_out
from horde_agent.kernels.held import look_into
from horde_agent.kernels.history import History
from horde_agent.kernels.lanes import (
    ALPHA,
    ALPHA_W,
    BASE,
    BASE_E,
    BASE_W,
    BOUND,
    C_TP1,
    CLIPS,
    DECAYED,
    DECAYS,
    EVERY_STEP,
    GAMMA_T,
    GAMMA_TP1,
    LAM_T,
    LAM_TP1,
    MOST,
    NORM,
    NORM_TP1,
    ON,
    ONE_OVER_TAU,
    RHO_T,
    SICK,
    SPENT,
    SUM,
    TOP,
    TURNED,
    Q,
    S,
    V,
    X,
    Y,
    Z,
)
from horde_agent.kernels.owed import settle, sum_afresh, write_owed
from horde_agent.kernels.policies import GibbsParts, fixed_ratios, follow_logits, hand_out
from horde_agent.kernels.turns import begin_turns, finish, take_next, wait_for_all
from horde_agent.kernels.vectors import follow, move_rows, take_busy_step, take_idle_step, weigh

Floats = NDArray[np.float64]
Integers = NDArray[np.int64]

# What a step returns, added up, beside the findings of `checks.py`.
SOMEBODY_IS_SICK, SOMEBODY_WANTS_CARRY = 32, 64
TOO_OFTEN = 128  # a feature is on so often that the policies' logits are no whole numbers any more
NO_ROOM = 256  # for one more time: nothing was done


# ---- sums over rows and over the past -----------------------------------------------------------------------------


@inner_kernel
def move_base(rows: Reals, origin: int, width: int, history: History, time: int, soon: int, out: Reals) -> None:
    """Move `out` from the rows at `time` - 1 to those at `time`; from scratch where that is less."""
    slot = past.slot_of(history, time)
    n_gained, n_lost = history.counts[slot, past.N_GAINED], history.counts[slot, past.N_LOST]
    if n_gained + n_lost < history.counts[slot, past.N_TILES]:
        gained, lost = history.changed[slot, past.GAINED], history.changed[slot, past.LOST]
        move_rows(rows, origin, width, gained, n_gained, lost, n_lost, soon, out)
    else:
        sum_afresh(rows, origin, width, tiles_at(history, time), out)


@inlined
def tiles_at(history: History, time: int) -> Integers:
    """Return the active features of one of the latest times."""
    slot = past.slot_of(history, time)
    return history.tiles[slot, : history.counts[slot, past.N_TILES]]


@inner_kernel
def scan(b: int, hand: int, span: Span, overlap: NDArray[np.int32], sums: tuple[Reals, ...]) -> None:
    """Add up the past against one feature vector, whose overlaps are given.

    `sums` are four rows over the tile's lanes: v (begun by the caller), sum d u, sum q G, sum h G.
    """
    past_, work, start, stop = span.past, span.work, span.tiles.start[b], span.tiles.start[b + 1]
    book, origin = past_.book[b], span.history.clock[past.ORIGIN]
    n_kept, n_owed = book[N_KEPT], book[N_OWED]
    at, after, spent_at = work.scratch[hand, AT], work.scratch[hand, AFTER], work.scratch[hand, SPENT_AT]
    for k in range(n_kept):
        at[k] = overlap[past_.times[b, 0, k] - origin]
    for k in range(n_owed):
        after[k] = overlap[past_.times[b, 0, n_kept - n_owed + k] + 1 - origin]
    for k in range(book[N_SPENT]):
        spent_at[k] = overlap[past_.times[b, 1, k] - origin]
    n_places, period, width = past_.times.shape[2], past_.m_steps.shape[1], stop - start
    owed = 2 * period * start
    follow(past_.trace, n_places * start, past_.owed, owed, at, n_kept, n_owed, sums[0], sums[1])
    weigh(past_.spent, period * start, width, spent_at, book[N_SPENT], sums[2])
    weigh(past_.owed, owed + width, 2 * width, after, n_owed, sums[3])


# ---- one step of one tile -----------------------------------------------------------------------------------------


@inner_kernel
def tell(b: int, slot: int, span: Span) -> bool:
    """Spread the signals over a tile's lanes, and say whether rho > 0 for any."""
    start, stop, lanes, queue, tiles = span.tiles.start[b], span.tiles.start[b + 1], span.lanes, span.queue, span.tiles
    policy, cumulant = tiles.policy[start:stop], tiles.cumulant[start:stop]  # -1: the last column, zero
    rho, c, width, n_positive = queue.rho[slot], queue.c[slot], stop - start, 0
    rho_t, c_tp1 = lanes[RHO_T, start:stop], lanes[C_TP1, start:stop]
    for i in range(width):  # one thing at a time: numba makes vectors of such loops alone
        rho_t[i] = rho[policy[i]]
    for i in range(width):
        c_tp1[i] = c[cumulant[i]]
    for i in range(width):
        n_positive += rho_t[i] > 0
    if queue.varies[slot, STATE]:
        gamma, lam, group = queue.gamma[slot], queue.lam[slot], tiles.group[start:stop]
        for i in range(width):
            lanes[GAMMA_TP1, start + i], lanes[LAM_TP1, start + i] = gamma[group[i]], lam[group[i]]
    if queue.varies[slot, OUTCOME]:
        z, outcome = queue.z[slot], tiles.outcome[start:stop]
        for i in range(width):
            c_tp1[i] += (1 - lanes[GAMMA_TP1, start + i]) * z[outcome[i]]
    return bool(n_positive > 0)


@inner_kernel
def find_q(b: int, time: int, span: Span) -> None:
    """Write w_t.phi_t for t = `time` - 1: the rows as written, and what is owed to them."""
    lanes, start, stop, n = span.lanes, span.tiles.start[b], span.tiles.start[b + 1], span.memory.is_alive.shape[1]
    book, base = span.past.book[b], lanes[BASE_W, start:stop]
    if book[W_AT] == time - 2:
        move_base(span.memory.w, n * start, stop - start, span.history, time - 1, book[SOON], base)
    elif book[W_AT] != time - 1:
        sum_afresh(span.memory.w, n * start, stop - start, tiles_at(span.history, time - 1), base)
    book[W_AT] = time - 1
    for i in range(start, stop):
        lanes[Q, i] = lanes[BASE_W, i] + lanes[ALPHA_W, i] * (lanes[SUM, i] - lanes[SPENT, i])


@inner_kernel
def look_ahead(b: int, hand: int, time: int, span: Span, is_foreseen: bool) -> None:
    """Move a tile's sums on to phi at `time`, t + 1: BASE, SUM, SPENT, TURNED, DECAYED = g_t e_{t-1}.phi_{t+1}."""
    lanes, history, memory, book = span.lanes, span.history, span.memory, span.past.book[b]
    start, stop, n = span.tiles.start[b], span.tiles.start[b + 1], memory.is_alive.shape[1]
    width = stop - start
    if not is_foreseen:
        move_base(memory.theta, n * start, width, history, time, book[SOON], lanes[BASE, start:stop])
    if book[IS_CARRYING]:
        none = np.int64(0)
        move_base(memory.carried[book[CARRIES]], none, width, history, time, none, lanes[BASE_E, start:stop])
    add_up(b, hand, time, span)


@inner_kernel
def add_up(b: int, hand: int, time: int, span: Span) -> None:
    """Write a tile's sums over the past against phi at `time`."""
    lanes, history, start, stop = span.lanes, span.history, span.tiles.start[b], span.tiles.start[b + 1]
    is_carrying = span.past.book[b, IS_CARRYING]
    for i in range(start, stop):
        lanes[DECAYED, i] = lanes[BASE_E, i] if is_carrying else 0
    sums = (lanes[DECAYED, start:stop], lanes[SUM, start:stop], lanes[SPENT, start:stop], lanes[TURNED, start:stop])
    scan(b, hand, span, history.overlap[past.slot_of(history, time)], sums)


@inner_kernel
def foresee(b: int, hand: int, n_steps: int, n_switched: int, span: Span) -> None:
    """Write theta.phi and w.phi, by a tile's weights as written, at each of the coming steps into `bases`."""
    lanes, memory, book, bases = span.lanes, span.memory, span.past.book[b], span.work.bases[hand]
    start, stop, n = span.tiles.start[b], span.tiles.start[b + 1], span.memory.is_alive.shape[1]
    since, width = span.history.clock[past.NOW] - n_steps, stop - start
    if book[W_AT] != since:
        sum_afresh(memory.w, n * start, width, tiles_at(span.history, since), lanes[BASE_W, start:stop])
    sum_rows(memory.theta, n * start, width, span.switched, n_switched, n_steps, lanes[BASE, start:stop], bases[0])
    sum_rows(memory.w, n * start, width, span.switched, n_switched, n_steps, lanes[BASE_W, start:stop], bases[1])
    book[W_AT] = since


@inner_kernel
def read_bases(b: int, hand: int, step: int, span: Span) -> None:
    """Set a tile's BASE to the time before a step of the batch, its BASE_W to the same time, from `bases`."""
    start, lanes, bases = span.tiles.start[b], span.lanes, span.work.bases[hand]
    width = span.tiles.start[b + 1] - start
    if step > 0:
        for i in range(width):
            lanes[BASE, start + i] = bases[0, (step - 1) * width + i]
            lanes[BASE_W, start + i] = bases[1, (step - 1) * width + i]


@inner_kernel
def refresh(b: int, hand: int, time: int, span: Span) -> None:
    """Write a tile's sums and V at `time` anew, after steps that left them behind; BASE is there already."""
    lanes, memory, book = span.lanes, span.memory, span.past.book[b]
    start, stop = span.tiles.start[b], span.tiles.start[b + 1]
    if book[IS_CARRYING]:
        tiles = tiles_at(span.history, time)
        sum_afresh(memory.carried[book[CARRIES]], np.int64(0), stop - start, tiles, lanes[BASE_E, start:stop])
    add_up(b, hand, time, span)
    for i in range(start, stop):
        lanes[V, i] = lanes[BASE, i] + lanes[ALPHA, i] * (lanes[SUM, i] - lanes[TURNED, i])
    book[IS_STALE] = 0


@inner_kernel
def learn_lanes(b: int, hand: int, time: int, span: Span, rules: Rules, is_busy: bool) -> None:
    """Let a tile's lanes take their step (`lanes.py`), and keep what it owes."""
    history, past_, lanes, number = span.history, span.past, span.lanes, span.work.scratch[hand, NUMBERS]
    start, book = span.tiles.start[b], past_.book[b]
    width, n_places, period = span.tiles.start[b + 1] - start, past_.times.shape[2], past_.m_steps.shape[1]
    now, before = past.slot_of(history, time), past.slot_of(history, time - 1)
    number[NORM], number[NORM_TP1] = history.counts[before, past.NORM], history.counts[now, past.NORM]
    number[MOST], number[ON] = (
        history.counts[before, past.MOST],
        history.overlap[now, time - 1 - history.clock[past.ORIGIN]],
    )
    number[DECAYS], number[ONE_OVER_TAU] = book[WAS_BUSY], rules.one_over_tau
    number[EVERY_STEP], number[CLIPS] = rules.every_step, rules.clip_lambda
    to_spent = period * start + min(book[N_SPENT], period - 1) * width
    if is_busy:
        to_trace, to_owed = n_places * start + book[N_KEPT] * width, 2 * (period * start + book[N_OWED] * width)
        trace, owed, spent, ratios = past_.trace, past_.owed, past_.spent, past_.ratios
        take_busy_step(lanes, start, width, number, trace, to_trace, owed, to_owed, spent, to_spent, ratios)
    else:
        take_idle_step(lanes, start, width, number, past_.spent, to_spent)


@inner_kernel
def note(b: int, time: int, span: Span, rules: Rules, is_busy: bool) -> None:
    """Enter the step to `time` into a tile's books."""
    past_, book = span.past, span.past.book[b]
    if is_busy:
        book[WAS_BUSY] = 1
    else:
        end_trace(b, span)
    if is_busy or rules.every_step:
        past_.times[b, 1, book[N_SPENT]] = time - 1
        book[N_SPENT] += 1
    if is_busy:
        past_.times[b, 0, book[N_KEPT]] = time - 1
        past_.m_steps[b, book[N_OWED]] = span.queue.m_step[past.slot_of(span.history, time)]
        book[N_KEPT] += 1
        book[N_OWED] += 1


@inner_kernel
def end_trace(b: int, span: Span) -> None:
    """Let nothing of a tile's trace reach the steps to come: c of the last step kept becomes 0."""
    book, memory, start, stop = span.past.book[b], span.memory, span.tiles.start[b], span.tiles.start[b + 1]
    if book[N_OWED] > 0 and book[WAS_BUSY]:
        last = span.past.times.shape[2] * start + (book[N_KEPT] - 1) * (stop - start)
        span.past.trace[last : last + stop - start] = 0
    elif book[N_OWED] == 0:  # nothing leans on its past
        book[N_KEPT] = 0
        if book[IS_CARRYING]:
            memory.carried[book[CARRIES]] = 0
            memory.is_alive[book[CARRIES]] = 0
            book[IS_CARRYING] = 0
    book[WAS_BUSY] = 0


@inlined
def learn_tile(b: int, hand: int, time: int, step: int, span: Span, rules: Rules, is_asked: bool) -> None:
    """Let one tile learn from the transition to `time`: `step` of a batch whose bases are foreseen, or -1.

    Nothing is learned about theta where every rho is 0, so that theta_t.phi_t and delta are not needed there: unless
    somebody asks, predictions that teach nothing are not made.
    """
    book, is_busy = span.past.book[b], tell(b, past.slot_of(span.history, time), span)
    if not (is_busy or is_asked or rules.every_step):
        rest(b, span, rules)
        return
    if step >= 0:
        read_bases(b, hand, step, span)
        book[W_AT] = time - 1
        if book[IS_STALE] and (is_busy or is_asked):
            refresh(b, hand, time - 1, span)
    if is_busy or rules.every_step:
        find_q(b, time, span)
    if step >= 0:
        read_bases(b, hand, step + 1, span)
        book[W_AT] = time
    book[IS_STALE] = not (is_busy or is_asked)
    look_ahead(b, hand, time, span, step >= 0)
    learn_lanes(b, hand, time, span, rules, is_busy)
    note(b, time, span, rules, is_busy)


@inner_kernel
def rest(b: int, span: Span, rules: Rules) -> None:
    """Let a tile pass a step in which every rho is 0, nobody asks and w stands still."""
    lanes, book = span.lanes, span.past.book[b]
    for i in range(span.tiles.start[b], span.tiles.start[b + 1]):
        if not np.isfinite(lanes[C_TP1, i]):
            lanes[SICK, i] = 1
        lanes[S, i] -= rules.one_over_tau * lanes[S, i]
        lanes[X, i], lanes[Y, i], lanes[Z, i], lanes[TOP, i] = 0, 0, 0, 0
        lanes[GAMMA_T, i], lanes[LAM_T, i] = lanes[GAMMA_TP1, i], lanes[LAM_TP1, i]
    book[IS_STALE] = 1
    end_trace(b, span)


# ---- all of them --------------------------------------------------------------------------------------------------


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

    What is owed stays owed: the trace's next decay will be 0. No trace may be carried.
    """
    span = look_into(held).span
    past.receive(span.history, tiles_now)
    past.observe(span.history)
    lanes, time, hand, is_foreseen = span.lanes, span.history.clock[past.NOW], np.int64(0), np.bool_(False)
    for b in range(span.past.book.shape[0]):
        look_ahead(b, hand, time, span, is_foreseen)
        for i in range(span.tiles.start[b], span.tiles.start[b + 1]):
            lanes[V, i] = lanes[BASE, i] + lanes[ALPHA, i] * (lanes[SUM, i] - lanes[TURNED, i])
            lanes[X, i], lanes[Y, i], lanes[Z, i], lanes[TOP, i] = 0, 0, 0, 0
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
