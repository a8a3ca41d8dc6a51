"""Writing what is owed: from each demon's few numbers per step to its weights, once every K steps.

A backward pass gives the coefficient of each phi_k in the change of theta, w (and m). A feature's row changes by the
sum of the coefficients over the times at which it was on: over its *runs*, by differences of a table of prefix sums.
Runs are read off the feature's row of bits (`history.py`); tiles of one family share their list.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from horde_agent.kernels import history as past
from horde_agent.kernels._jit import inner_kernel
from horde_agent.kernels.arrays import (
    CARRIES,
    FAMILY,
    FEATURES,
    FIRST,
    FIRST_RUN,
    IS_CARRYING,
    LANES_AT_ONCE,
    LEFT,
    LIMIT,
    N_FEATURES,
    N_KEPT,
    N_OWED,
    N_SPENT,
    N_TIMES,
    PLACE,
    REACH,
    REACH_M,
    TO_M,
    TO_THETA,
    TO_W,
    W_AT,
    WANTS_CARRY,
    WAS_BUSY,
    WHEN,
    Past,
    Reals,
    Rules,
    Span,
    Work,
    oldest_of,
    pairs_of,
    rows_of,
)
from horde_agent.kernels.dropped import account, lose_rows, lose_tail, stand_at_present
from horde_agent.kernels.lanes import ALPHA, ALPHA_W, BASE, BASE_E, BASE_W, GAMMA_T, LAM_T, SPENT, SUM, TURNED, V
from horde_agent.kernels.vectors import lowest_bit, move_rows, write_runs

Integers = NDArray[np.int64]


@inner_kernel
def sum_afresh(rows: Reals, origin: int, width: int, tiles: Integers, out: Reals) -> None:
    """Write the sum of the rows at `tiles`, of a tile whose rows begin at `origin`."""
    out[:] = 0
    move_rows(rows, origin, width, tiles, tiles.shape[0], tiles, 0, 0, out)


# ---- the runs of the features -------------------------------------------------------------------------------------


@inner_kernel
def number_times(
    first_tile: int, last_tile: int, hand: int, past_: Past, work: Work, history: past.History
) -> tuple[int, int]:
    """Number the times at which some tiles have a coefficient: place[t - first] is the number of those before t.

    A tile that writes may be ahead of others of its family, which have yet to take the steps in the slots. These may
    give each of the slots' times a coefficient.

    Returns:
        The first time, and how many there are.
    """
    now, place, total = history.clock[past.NOW], work.paper[hand, PLACE], 0
    in_slots = max(history.clock[past.ORIGIN], now + 1 - history.counts.shape[0])
    first = in_slots
    for b in range(first_tile, last_tile):
        first = min(first, oldest_of(b, past_, now))
    for i in range(now - first + 2):
        place[i] = in_slots - first <= i <= now - first
    for b in range(first_tile, last_tile):
        book = past_.book[b]
        for k in range(book[N_KEPT]):
            place[past_.times[b, 0, k] - first] = 1
            if k >= book[N_KEPT] - book[N_OWED]:
                place[past_.times[b, 0, k] + 1 - first] = 1
        for k in range(book[N_SPENT]):
            place[past_.times[b, 1, k] - first] = 1
    for i in range(now - first + 2):
        here = place[i]
        place[i] = total
        total += here
    return first, total


@inner_kernel
def add_run(runs: NDArray[np.int32], n_runs: int, since: int, until: int, count: int) -> int:
    """Note a run between two places, as often as the feature was on; one without a coefficient is none."""
    if since < until:
        for _ in range(count):
            runs[2 * n_runs], runs[2 * n_runs + 1] = since, until
            n_runs += 1
    return n_runs


@inner_kernel
def runs_of_row(
    row: NDArray[np.uint32],
    start: int,
    end: int,
    place: Integers,
    runs: NDArray[np.int32],
    n_runs: int,
    count: int,
) -> int:
    """List the runs in a row of bits, from bit `start` to bit `end`, and return how many there are in all."""
    opened, before = -1, np.uint32(0)
    for word in range(start // 32, end // 32 + 1):
        here = row[word]
        if word == start // 32:
            here &= np.uint32(np.uint32(0xFFFFFFFF) << np.uint32(start % 32))
        turns = np.uint32(here ^ np.uint32(np.uint32(here << np.uint32(1)) | before))
        before = np.uint32(here >> np.uint32(31))
        while turns != 0:
            at = 32 * word + lowest_bit(turns)
            turns &= np.uint32(turns - np.uint32(1))
            if opened < 0:
                opened = at
            else:
                n_runs = add_run(runs, n_runs, place[opened - start], place[at - start], count)
                opened = -1
    if opened >= 0:
        n_runs = add_run(runs, n_runs, place[opened - start], place[end + 1 - start], count)
    return n_runs


@inner_kernel
def list_runs(hand: int, first: int, is_alive: NDArray[np.uint8], work: Work, history: past.History) -> int:
    """List the features that were on since `first`, with their runs as places in the table; return how many.

    A feature in the carried trace is listed too.
    """
    features, first_run = work.paper[hand, FEATURES], work.paper[hand, FIRST_RUN]
    place, runs, clock = work.paper[hand, PLACE], work.runs[hand], history.clock
    start, end = first - clock[past.ORIGIN], clock[past.NOW] - clock[past.ORIGIN]
    n_listed, n_runs = 0, 0
    for f in range(history.bits.shape[1]):
        first_run[n_listed] = n_runs
        for p in range(clock[past.PLANES]):
            n_runs = runs_of_row(history.bits[p, f], start, end, place, runs, n_runs, 1 << p)
        if n_runs > first_run[n_listed] or (is_alive.shape[0] > 0 and is_alive[f]):
            features[n_listed] = f
            n_listed += 1
    first_run[n_listed] = n_runs
    return n_listed


@inner_kernel
def list_of(b: int, hand: int, span: Span, is_alive: NDArray[np.uint8]) -> tuple[int, int, int]:
    """List the runs that a tile's writing needs, for its whole family at once, if this hand has not done so before.

    Returns:
        The first time, how many times have a coefficient, how many features are listed.
    """
    listed, now, family = span.work.listed[hand], span.history.clock[past.NOW], span.tiles.family[b]
    if is_alive.shape[0] > 0:
        first, n_times = number_times(b, b + 1, hand, span.past, span.work, span.history)
        listed[FAMILY] = -1
        return first, n_times, list_runs(hand, first, is_alive, span.work, span.history)
    if listed[FAMILY] != family or listed[WHEN] != now:
        of_family = span.tiles.first
        first, n_times = number_times(
            of_family[family], of_family[family + 1], hand, span.past, span.work, span.history
        )
        listed[FAMILY], listed[WHEN], listed[FIRST], listed[N_TIMES] = family, now, first, n_times
        listed[N_FEATURES] = list_runs(hand, first, is_alive, span.work, span.history)
    return listed[FIRST], listed[N_TIMES], listed[N_FEATURES]


# ---- the coefficients ---------------------------------------------------------------------------------------------


@inner_kernel
def tabulate(b: int, hand: int, first: int, lane: int, table: Reals, has_m: bool, has_e: bool, span: Span) -> None:
    """Write the table of some lanes: entry k is the sum of the coefficients of the vectors before the k-th.

    The coefficient of phi_k in theta is alpha (s_k - h_{k-1}), with s_k = rho_k (delta_k + g_{k+1} s_{k+1}) from the
    end; in w it is alpha_w (s_k - q_k), in m s_k with delta_k times its step, in e the product of what follows.
    What arrives before the first step kept is for the carried trace: rows REACH, REACH_M and LEFT of `scratch`.
    """
    past_, work, lanes, start, stop = span.past, span.work, span.lanes, span.tiles.start[b], span.tiles.start[b + 1]
    book, place, o, width = past_.book[b], work.paper[hand, PLACE], lane - start, table.shape[2]
    trace = pairs_of(past_.trace, start, stop, past_.times.shape[2])
    owed = pairs_of(past_.owed, start, stop, past_.m_steps.shape[1])
    alpha, alpha_w = lanes[ALPHA, lane : lane + width], lanes[ALPHA_W, lane : lane + width]
    reach, reach_m = work.scratch[hand, REACH, :width], work.scratch[hand, REACH_M, :width]
    left = work.scratch[hand, LEFT, :width]
    table[:], reach[:], reach_m[:], left[:] = 0, 0, 0, book[WAS_BUSY]
    last = table.shape[1] - 1
    for k in range(book[N_KEPT] - 1, -1, -1):
        row, at = table[1 + place[past_.times[b, 0, k] - first]], k - book[N_KEPT] + book[N_OWED]
        rho, decay = trace[k, 0, o : o + width], trace[k, 1, o : o + width]
        if at >= 0:
            after, m_step = table[1 + place[past_.times[b, 0, k] + 1 - first], TO_THETA], past_.m_steps[b, at]
            delta, h = owed[at, 0, o : o + width], owed[at, 1, o : o + width]
            for i in range(width):
                reach[i] += delta[i]
                reach_m[i] += delta[i] * m_step
                after[i] -= alpha[i] * h[i]
        for i in range(width):
            s = rho[i] * reach[i]
            row[TO_THETA, i] += alpha[i] * s
            row[TO_W, i] += alpha_w[i] * s
            reach[i] = decay[i] * s
        if has_m:
            for i in range(width):
                s = rho[i] * reach_m[i]
                row[TO_M, i] += s
                reach_m[i] = decay[i] * s
        if has_e:
            for i in range(width):
                s = rho[i] * left[i]
                row[last, i] += s
                left[i] = decay[i] * s
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
            row[TO_W, i] -= alpha_w[i] * q[i]


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
            theta[row + at + i] += lanes[ALPHA, lane + i] * reach[i] * old
            w[row + at + i] += lanes[ALPHA_W, lane + i] * reach[i] * old
            e[row + o + i] = left[i] * old
            if m.shape[0] > 0:
                m[row + at + i] += reach_m[i] * old


@inner_kernel
def write_owed(b: int, hand: int, span: Span, origin: int, into: tuple[Reals, ...], is_alive: NDArray[np.uint8]) -> int:
    """Add what a tile owes to rows of theta, w, m and e given, and return the features listed.

    The rows are flat, from `origin` on (e's from 0). Without m, or e, where these are empty.
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
        tabulate(b, hand, first, lane, table, has_m, has_e, span)
        if has_e:
            spread(hand, n_listed, lane, o, stride, width, at, span, into)
            write_runs((e,), o, stride, flat, n_kinds - 1, n_kinds, width, features, first_run, n_listed, runs)
        if has_m:
            write_runs((theta, w, m), at, stride, flat, 0, n_kinds, width, features, first_run, n_listed, runs)
        else:
            write_runs((theta, w), at, stride, flat, 0, n_kinds, width, features, first_run, n_listed, runs)
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

    Beside the 1 of an active feature, what lies before step k weighs at most g_{t+1} (prod of rho g after k) top_k,
    with top_k = rho_k (1 + g_k top_{k-1}) the sum of its coefficients. Under "clipped", g_{t+1} rho_t <= gamma lambda:
    this can only shrink as time goes on, so what is dropped once is below `drop_below` for good. Under "plain" it may
    grow, and only what is exactly 0 is dropped.
    """
    past_, lanes, work, start, stop = span.past, span.lanes, span.work, span.tiles.start[b], span.tiles.start[b + 1]
    book, trace, n_tail = past_.book[b], pairs_of(past_.trace, start, stop, past_.times.shape[2]), 0
    n = book[N_KEPT]
    if book[WAS_BUSY] == 0:
        return 0
    for lane in range(start, stop, LANES_AT_ONCE):
        width, o = min(LANES_AT_ONCE, stop - lane), lane - start
        top = work.table[hand, : (n + 1) * width].reshape(n + 1, width)
        top[0] = 0
        for k in range(n):
            for i in range(width):
                top[k + 1, i] = trace[k, 0, o + i] * (1 + trace[k, 1, o + i] * top[k, i])
        reach = work.scratch[hand, REACH, :width]
        for i in range(width):
            reach[i] = lanes[GAMMA_T, lane + i] * lanes[LAM_T, lane + i]
        k, is_needed = n - 1, True
        while k >= 0 and is_needed:
            is_needed = False
            for i in range(width):
                is_needed |= reach[i] * top[k + 1, i] > drop_below
                reach[i] *= trace[k, 0, o + i] * trace[k, 1, o + i]
            k -= is_needed
        n_tail = max(n_tail, int(n - 1 - k))
    return n_tail


@inner_kernel
def keep_tail(b: int, n_tail: int, span: Span) -> None:
    """Keep a tile's last steps as its tail; nothing is owed any more."""
    past_, book, start, stop = span.past, span.past.book[b], span.tiles.start[b], span.tiles.start[b + 1]
    trace, n_before = pairs_of(past_.trace, start, stop, past_.times.shape[2]), book[N_KEPT] - n_tail
    if n_before > 0:
        for k in range(n_tail):
            for i in range(stop - start):
                trace[k, 0, i], trace[k, 1, i] = trace[n_before + k, 0, i], trace[n_before + k, 1, i]
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
    account(b, span, span.past.dropped)
    if book[CARRIES] >= 0:
        e, is_alive = carried[book[CARRIES]], span.memory.is_alive[book[CARRIES]]
        n_listed = write_owed(b, hand, span, n * start, (theta, w, m, e), is_alive)
        rows = e[: n * (stop - start)].reshape(n, stop - start)
        book[IS_CARRYING] = renew_carried(b, hand, n_listed, rows, is_alive, rules.drop_carried, span)
        sum_afresh(e, np.int64(0), stop - start, tiles_now, lanes[BASE_E, start:stop])
        keep_tail(b, np.int64(0), span)
    else:
        write_owed(b, hand, span, n * start, (theta, w, m, theta[:0]), span.work.is_aside[:0])
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
