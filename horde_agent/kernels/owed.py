"""Writing what is owed: from each demon's few numbers per step to its weights, once every K steps.

A backward pass gives the coefficient of each phi_k in the change of theta, w (and m). A feature's row changes by the
sum of the coefficients over the times at which it was on: over its *runs* (`runs.py`), by differences of a table of
prefix sums.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from horde_agent.kernels import history as past
from horde_agent.kernels._jit import inner_kernel, multiply_add
from horde_agent.kernels.arrays import (
    CARRIES,
    FEATURES,
    FIRST_RUN,
    IS_CARRYING,
    LANES_AT_ONCE,
    LEFT,
    LIMIT,
    N_KEPT,
    N_OWED,
    N_SPENT,
    PLACE,
    REACH,
    REACH_M,
    TO_M,
    TO_THETA,
    TO_W,
    W_AT,
    WANTS_CARRY,
    WAS_BUSY,
    Reals,
    Rules,
    Span,
    pairs_of,
    rows_of,
)
from horde_agent.kernels.dropped import account, lose_rows, lose_tail, stand_at_present
from horde_agent.kernels.lanes import ALPHA, ALPHA_W, BASE, BASE_E, BASE_W, BOUND, SICK, SPENT, SUM, TURNED, V
from horde_agent.kernels.runs import list_of
from horde_agent.kernels.vectors import move_rows, write_runs

Integers = NDArray[np.int64]


@inner_kernel
def sum_afresh(rows: Reals, origin: int, width: int, tiles: Integers, out: Reals) -> None:
    """Write the sum of the rows at `tiles`, of a tile whose rows begin at `origin`."""
    out[:] = 0
    move_rows(rows, origin, width, tiles, tiles.shape[0], tiles, 0, 0, out)


# ---- the coefficients ---------------------------------------------------------------------------------------------


@inner_kernel
def tabulate(b: int, hand: int, first: int, lane: int, table: Reals, has_m: bool, has_e: bool, span: Span) -> None:
    """Write the table of some lanes: entry k is the sum of the coefficients of the vectors before the k-th.

    The coefficient of phi_k in theta is alpha (s_k - h_{k-1}), with s_k = d_k + c_k s_{k+1} from the end; in w it is
    alpha_w (s_k - q_k), in m s_k with d_k times its step, in the decayed trace c_k and the product of what follows.
    What arrives before the first step kept is for the carried trace: rows REACH, REACH_M and LEFT of `scratch`.
    """
    past_, work, lanes, start, stop = span.past, span.work, span.lanes, span.tiles.start[b], span.tiles.start[b + 1]
    book, place, o, width = past_.book[b], work.paper[hand, PLACE], lane - start, table.shape[2]
    trace = rows_of(past_.trace, start, stop, past_.times.shape[2])
    owed = pairs_of(past_.owed, start, stop, past_.m_steps.shape[1])
    alpha, alpha_w = lanes[ALPHA, lane : lane + width], lanes[ALPHA_W, lane : lane + width]
    reach, reach_m = work.scratch[hand, REACH, :width], work.scratch[hand, REACH_M, :width]
    left = work.scratch[hand, LEFT, :width]
    table[:], reach[:], reach_m[:], left[:] = 0, 0, 0, 1
    last = table.shape[1] - 1
    for k in range(book[N_KEPT] - 1, -1, -1):
        row, at = table[1 + place[past_.times[b, 0, k] - first]], k - book[N_KEPT] + book[N_OWED]
        c = trace[k, o : o + width]
        if has_m:
            for i in range(width):
                reach_m[i] *= c[i]
        if at >= 0:
            after, m_step = table[1 + place[past_.times[b, 0, k] + 1 - first], TO_THETA], past_.m_steps[b, at]
            d, h = owed[at, 0, o : o + width], owed[at, 1, o : o + width]
            for i in range(width):
                reach[i] = multiply_add(reach[i], c[i], d[i])
                after[i] = multiply_add(-alpha[i], h[i], after[i])
            if has_m:
                for i in range(width):
                    reach_m[i] = multiply_add(d[i], m_step, reach_m[i])
        else:
            for i in range(width):
                reach[i] *= c[i]
        for i in range(width):
            row[TO_THETA, i] = multiply_add(alpha[i], reach[i], row[TO_THETA, i])
            row[TO_W, i] = multiply_add(alpha_w[i], reach[i], row[TO_W, i])
        if has_m:
            for i in range(width):
                row[TO_M, i] += reach_m[i]
        if has_e:
            for i in range(width):
                left[i] *= c[i]
                row[last, i] += left[i]
    spend(b, hand, first, lane, table, span)
    for k in range(1, table.shape[0]):
        for kind in range(table.shape[1]):
            for i in range(width):
                table[k, kind, i] += table[k - 1, kind, i]


@inner_kernel
def spend(b: int, hand: int, first: int, lane: int, table: Reals, span: Span) -> None:
    """Enter what the steps took from w, alpha_w q_k phi_k, into the table of some lanes."""
    past_, start, stop, width = span.past, span.tiles.start[b], span.tiles.start[b + 1], table.shape[2]
    place, alpha_w = span.work.paper[hand, PLACE], span.lanes[ALPHA_W, lane : lane + width]
    spent = rows_of(past_.spent, start, stop, past_.m_steps.shape[1])
    for k in range(past_.book[b, N_SPENT]):
        row, q = table[1 + place[past_.times[b, 1, k] - first]], spent[k, lane - start : lane - start + width]
        for i in range(width):
            row[TO_W, i] = multiply_add(-alpha_w[i], q[i], row[TO_W, i])


@inner_kernel
def spread(
    hand: int, n_listed: int, lane: int, o: int, stride: int, width: int, at: int, span: Span, into: tuple[Reals, ...]
) -> None:
    """Give the rows of some lanes their share of the carried trace, and let it decay to what is left of it."""
    work, lanes = span.work, span.lanes
    theta, w, m, e = into
    reach, reach_m, left = work.scratch[hand, REACH], work.scratch[hand, REACH_M], work.scratch[hand, LEFT]
    for j in range(n_listed):
        row = work.paper[hand, FEATURES, j] * stride
        for i in range(width):
            old = e[row + o + i]
            theta[row + at + i] = multiply_add(lanes[ALPHA, lane + i] * reach[i], old, theta[row + at + i])
            w[row + at + i] = multiply_add(lanes[ALPHA_W, lane + i] * reach[i], old, w[row + at + i])
            e[row + o + i] = left[i] * old
            if m.shape[0] > 0:
                m[row + at + i] = multiply_add(reach_m[i], old, m[row + at + i])


@inner_kernel
def write_owed(
    b: int,
    hand: int,
    span: Span,
    origin: int,
    into: tuple[Reals, ...],
    is_alive: NDArray[np.uint8],
    bound: Reals,
    sick: Reals,
) -> int:
    """Add what a tile owes to rows of theta, w, m and e given, and return the features listed.

    The rows are flat, from `origin` on (e's from 0). Without m, or e, where these are empty. Lanes whose theta is then
    past its bound are flagged in `sick`.
    """
    theta, w, m, e = into
    work, start, stop = span.work, span.tiles.start[b], span.tiles.start[b + 1]
    first, n_times, n_listed = list_of(b, hand, span, is_alive)
    features, first_run, runs = work.paper[hand, FEATURES], work.paper[hand, FIRST_RUN], work.runs[hand]
    has_m, has_e, stride = m.shape[0] > 0, e.shape[0] > 0, stop - start
    n_kinds = 2 + has_m + has_e
    for lane in range(start, stop, LANES_AT_ONCE):
        width, o = min(LANES_AT_ONCE, stop - lane), lane - start
        flat = work.table[hand, : (n_times + 1) * n_kinds * width]
        table, at = flat.reshape(n_times + 1, n_kinds, width), origin + o
        most, ill = bound[o : o + width], sick[o : o + width]
        tabulate(b, hand, first, lane, table, has_m, has_e, span)
        if has_e:
            spread(hand, n_listed, lane, o, stride, width, at, span, into)
            last = n_kinds - 1
            write_runs((e,), o, stride, flat, last, n_kinds, width, features, first_run, n_listed, runs, most, ill)
        if has_m:
            kinds = (theta, w, m)
            write_runs(kinds, at, stride, flat, 0, n_kinds, width, features, first_run, n_listed, runs, most, ill)
        else:
            pair = (theta, w)
            write_runs(pair, at, stride, flat, 0, n_kinds, width, features, first_run, n_listed, runs, most, ill)
    return int(n_listed)


# ---- beginning anew -----------------------------------------------------------------------------------------------


@inner_kernel
def renew_carried(
    b: int, hand: int, n_listed: int, e: Reals, is_alive: NDArray[np.uint8], drop_below: float, span: Span
) -> bool:
    """Let the features leave a carried trace that are too small in every lane; say whether any is left."""
    is_left, work = False, span.work
    lose_rows(b, work.paper[hand, FEATURES, :n_listed], e, drop_below, span)
    for j in range(n_listed):
        row, largest = e[work.paper[hand, FEATURES, j]], 0.0
        for i in range(row.shape[0]):
            largest = max(largest, row[i])
        is_alive[work.paper[hand, FEATURES, j]] = largest > drop_below
        if largest > drop_below:
            is_left = True
        else:
            row[:] = 0
    return is_left


@inner_kernel
def tail_of(b: int, span: Span, hand: int, drop_below: float) -> int:
    """Return how many steps of a tile's trace still matter.

    Beside the 1 of an active feature, what lies before step k weighs at most (product of c after k) top_k, with
    top_k = c_k (1 + top_{k-1}) the sum of its coefficients. Under "clipped", c <= gamma lambda: this can only shrink as
    time goes on, so what is dropped once is below `drop_below` for good. Under "plain" it may grow, and only what is
    exactly 0 is dropped.
    """
    past_, work, start, stop = span.past, span.work, span.tiles.start[b], span.tiles.start[b + 1]
    book, trace, n_tail = past_.book[b], rows_of(past_.trace, start, stop, past_.times.shape[2]), 0
    n = book[N_KEPT]
    if book[WAS_BUSY] == 0:
        return 0
    for lane in range(start, stop, LANES_AT_ONCE):
        width, o = min(LANES_AT_ONCE, stop - lane), lane - start
        top = work.table[hand, : (n + 1) * width].reshape(n + 1, width)
        top[0] = 0
        for k in range(n):
            for i in range(width):
                top[k + 1, i] = trace[k, o + i] * (1 + top[k, i])
        reach = work.scratch[hand, REACH, :width]
        reach[:] = 1
        k, is_needed = n - 1, True
        while k >= 0 and is_needed:
            is_needed = False
            for i in range(width):
                is_needed |= reach[i] * top[k + 1, i] > drop_below
                reach[i] *= trace[k, o + i]
            k -= is_needed
        n_tail = max(n_tail, int(n - 1 - k))
    return n_tail


@inner_kernel
def keep_tail(b: int, n_tail: int, span: Span) -> None:
    """Keep a tile's last steps as its tail; nothing is owed any more."""
    past_, book, start, stop = span.past, span.past.book[b], span.tiles.start[b], span.tiles.start[b + 1]
    trace, n_before = rows_of(past_.trace, start, stop, past_.times.shape[2]), book[N_KEPT] - n_tail
    if n_before > 0:
        for k in range(n_tail):
            for i in range(stop - start):
                trace[k, i] = trace[n_before + k, i]
            past_.times[b, 0, k] = past_.times[b, 0, n_before + k]
    book[N_KEPT], book[N_OWED], book[N_SPENT] = n_tail, 0, 0


@inner_kernel
def settle(b: int, hand: int, span: Span, rules: Rules) -> None:
    """Write what a tile owes into its weights, and begin anew from the weights as written, at the present."""
    start, stop, n, book = (
        span.tiles.start[b],
        span.tiles.start[b + 1],
        span.memory.is_alive.shape[1],
        span.past.book[b],
    )
    theta, w, m, carried = span.memory.theta, span.memory.w, span.memory.m, span.memory.carried
    history, lanes, now = span.history, span.lanes, span.history.clock[past.NOW]
    slot = past.slot_of(history, now)
    tiles_now = history.tiles[slot, : history.counts[slot, past.N_TILES]]
    bound, sick = lanes[BOUND, start:stop], lanes[SICK, start:stop]
    account(b, span, span.past.dropped)
    if book[CARRIES] >= 0:
        e, is_alive = carried[book[CARRIES]], span.memory.is_alive[book[CARRIES]]
        n_listed = write_owed(b, hand, span, n * start, (theta, w, m, e), is_alive, bound, sick)
        rows = e[: n * (stop - start)].reshape(n, stop - start)
        book[IS_CARRYING] = renew_carried(b, hand, n_listed, rows, is_alive, rules.drop_carried, span)
        sum_afresh(e, np.int64(0), stop - start, tiles_now, lanes[BASE_E, start:stop])
        keep_tail(b, np.int64(0), span)
    else:
        write_owed(b, hand, span, n * start, (theta, w, m, theta[:0]), span.work.is_aside[:0], bound, sick)
        n_tail = tail_of(b, span, hand, rules.drop_below)
        book[WANTS_CARRY] = n_tail > rules.keep_at_most
        lose_tail(b, n_tail, span)
        keep_tail(b, n_tail, span)
    sum_afresh(theta, n * start, stop - start, tiles_now, lanes[BASE, start:stop])
    sum_afresh(w, n * start, stop - start, tiles_now, lanes[BASE_W, start:stop])
    stand_at_present(b, span)
    book[W_AT], book[LIMIT] = now, rules.limit
    for i in range(start, stop):
        lanes[SUM, i], lanes[SPENT, i], lanes[TURNED, i], lanes[V, i] = 0, 0, 0, lanes[BASE, i]
