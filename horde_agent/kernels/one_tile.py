"""One step of one tile of lanes: it is told, looks ahead, learns, and enters the step into its books."""

from __future__ import annotations

from horde_agent.kernels import history as past
from horde_agent.kernels._jit import inlined, inner_kernel
from horde_agent.kernels.arrays import (
    CARRIES,
    IS_CARRYING,
    IS_STALE,
    N_KEPT,
    N_OWED,
    N_SPENT,
    NUMBERS,
    OUTCOME,
    STATE,
    W_AT,
    WAS_BUSY,
    Rules,
    Span,
)
from horde_agent.kernels.lanes import (
    C_TP1,
    CLIPS,
    DECAYS,
    EVERY_STEP,
    GAMMA_TP1,
    LAM_TP1,
    LARGEST_STEP,
    MOST,
    NORM,
    NORM_TP1,
    ON,
    ONE_OVER_TAU,
    RHO_T,
    S,
)
from horde_agent.kernels.sums import find_q, look_ahead, read_bases, refresh
from horde_agent.kernels.vectors import take_busy_step, take_idle_step


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
    number[LARGEST_STEP] = rules.largest_step
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
    """Let a tile pass a step in which every rho is 0, nobody asks and w stands still.

    What its lanes still hold of the trace that ended is multiplied by 0; the last step of a batch, about which somebody
    always asks, leaves zeros for those that move to other tiles.
    """
    lanes, book = span.lanes, span.past.book[b]
    for i in range(span.tiles.start[b], span.tiles.start[b + 1]):
        lanes[S, i] -= rules.one_over_tau * lanes[S, i]
    book[IS_STALE] = 1
    end_trace(b, span)
