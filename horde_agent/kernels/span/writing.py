"""Write pending updates to the weights when a flush group is due.

A backward pass from the current time, with S = 0, gives the coefficient of each phi_k: S_k = d_k + c_k S_{k+1},

    theta += alpha   sum_k (S_k - h_{k-1}) phi_k          (a rule may have others: `tabulate`)
    w     += alpha_w sum_k (S_k - q_k) phi_k
    m     += sum_k M_k phi_k,   M_k = m_step_k d_k + c_k M_{k+1}

A row changes by the sum of the coefficients over the runs of times during which its feature was active
(`overlaps.py`), by differences of a table of prefix sums. Between flushes, theta.phi and w.phi from the weights as
written are updated by the rows of the features that switched on and off; a batch computes them for all its steps at
once and reads each row once.
"""

from __future__ import annotations

from typing import Any

from horde_agent.kernels._jit import inner_kernel
from horde_agent.kernels.span.arrays import (
    BATCH,
    CHUNK,
    FLUSH,
    IDLE,
    LEARNS,
    N_PLACES,
    N_ROWS,
    NOW,
    SpanArrays,
    over_block,
    row_at,
)
from horde_agent.kernels.span.step import flag, tail_needed
from horde_agent.kernels.vectors import (
    absolute,
    any_true,
    choose,
    lanes_of,
    load,
    multiply_add,
    prefetch,
    row_zeros,
    store,
)
from horde_agent.types import Integers, Reals

_AHEAD = 20  # rows to prefetch

# ---- sums of rows ---------------------------------------------------------------------------------------------------


@inner_kernel
def stride_of(span: SpanArrays) -> int:
    """Return the distance between chunks of rows."""
    return int(CHUNK * span.policy.shape[0])


@inner_kernel
def add_rows(
    span: SpanArrays, rows: Reals, b: int, lane: int, chosen: Integers, n: int, sign: float, total: Any
) -> Any:
    """Return `total` with the first n of `chosen`, (n_active,), rows added, times `sign`."""
    start, stride = span.start[b], stride_of(span)
    first, width = CHUNK * start + lane - start, span.start[b + 1] - start
    for k in range(n):
        total = multiply_add(load(rows, row_at(chosen[k], first, width, stride), total), sign, total)
    return total


@inner_kernel
def move_lanes(span: SpanArrays, b: int, lane: int, how: tuple[Reals, int, Reals], zero: Any) -> None:
    """Update sums over lanes' active rows from time - 1 to time, or sum again if that reads fewer rows.

    `how`: the rows, the time, and the sums, shape (L,).
    """
    rows, time, out = how
    slot, now = time & 1, time % span.active.shape[0]
    n_gained, n_lost = span.n_changed[slot, 0], span.n_changed[slot, 1]
    if n_gained + n_lost < span.n_active:
        total = add_rows(span, rows, b, lane, span.changed[slot, 0], n_gained, 1.0, load(out, lane, zero))
        total = add_rows(span, rows, b, lane, span.changed[slot, 1], n_lost, -1.0, total)
    else:
        total = add_rows(span, rows, b, lane, span.active[now], span.n_active, 1.0, zero)
    store(out, lane, total)


@inner_kernel
def sum_lanes(span: SpanArrays, b: int, lane: int, how: tuple[Reals, Integers, Reals], zero: Any) -> None:
    """Write sums over some rows of lanes; `how`: all rows, the indices to add, and the sums, shape (L,)."""
    rows, active, out = how
    store(out, lane, add_rows(span, rows, b, lane, active, active.shape[0], 1.0, zero))


move_base, sum_base = over_block(move_lanes, row_zeros), over_block(sum_lanes, row_zeros)


@inner_kernel
def foresee(span: SpanArrays, rows: Reals, b: int, lane: int, n_steps: int, sums: Reals, zero: Any) -> None:
    """Write sums over lanes' active rows at each of the next steps, shape (n_steps + 1, lanes), given the first.

    Each row is read once, in memory order, added at the steps at which its feature switches on and subtracted at those
    at which it switches off. A prefix sum over these differences, which fit into a core's L1 cache, gives the result.
    """
    start, n = span.start[b], lanes_of(zero)
    width, first, ends = span.start[b + 1] - start, CHUNK * start + lane - start, span.run_ends[BATCH]
    listed, n_listed, stride = span.run_row[BATCH], span.n_runs[BATCH], stride_of(span)
    for k in range(1, n_steps + 1):
        store(sums, k * n, zero)
    for j in range(n_listed):
        since, until = span.run_first[BATCH, j], span.run_last[BATCH, j]
        if until - since == 2 and ends[since] == 0 and ends[since + 1] > n_steps:
            continue  # active throughout
        prefetch(rows, row_at(listed[min(j + _AHEAD, n_listed - 1)], first, width, stride), zero)
        row = load(rows, row_at(listed[j], first, width, stride), zero)
        for i in range(since, until, 2):
            on, off = ends[i] * n, ends[i + 1] * n
            if on > 0:
                store(sums, on, load(sums, on, zero) + row)
            if off <= n_steps * n:
                store(sums, off, load(sums, off, zero) - row)
    total = load(sums, 0, zero)
    for k in range(1, n_steps + 1):
        total = total + load(sums, k * n, zero)
        store(sums, k * n, total)


# ---- pending updates ------------------------------------------------------------------------------------------------


@inner_kernel
def tabulate(span: SpanArrays, b: int, lane: int, now: int, table: Reals, zero: Any) -> None:
    """Write prefix sums of some lanes, shape (kinds, places, lanes): coefficients of theta, then w, then m."""
    g, n, n_kinds = span.flush_group[b], lanes_of(zero), 1 + span.has_w + (span.m.shape[0] > 0)
    first, since, mask = span.tail_from[g], span.flushed_at[g], span.bits.shape[0] - 1
    place, start, n_lanes = span.run_place, span.start[b], span.policy.shape[0]
    width, c_places, places = span.start[b + 1] - start, span.c.shape[0] // n_lanes, span.d.shape[0] // n_lanes
    in_c, in_rest = c_places * start + lane - start, places * start + lane - start
    alpha, alpha_w, s, s_m = load(span.alpha, lane, zero), load(span.alpha_w, lane, zero), zero, zero
    s_w, later = zero, zero + 1.0  # of w, if a step shrinks it: S, and the product of the factors of later steps
    n_places = span.clock[N_PLACES]
    of_w, of_m = (n_places + 1) * n, 2 * (n_places + 1) * n
    for k in range((n_places + 1) * n_kinds):
        store(table, k * n, zero)
    for time in range(now - 1, first - 1, -1):
        kind = LEARNS if time < since else span.kind[g, time & mask]
        row, at = (place[time - first] + 1) * n, in_rest + (time - since) * width
        in_ring, q = in_c + (time & (c_places - 1)) * width, zero
        if kind == LEARNS:
            c = load(span.c, in_ring, zero)
            s, s_m, s_w = c * s, c * s_m, c * s_w
        else:
            s, s_m, s_w = zero, zero, zero
        if time >= since and kind == LEARNS:
            d = load(span.d, at, zero)
            s, s_m = s + d, multiply_add(d, span.m_step[time & mask], s_m)
            s_w = multiply_add(d, later, s_w)
            after = (place[time + 1 - first] + 1) * n
            if span.has_dutch:
                s = s + load(span.extra, at, zero)
            if span.has_difference:
                gamma, h = load(span.extra, at, zero), load(span.h, at, zero)
                in_after = alpha_w * (gamma * load(span.q, at, zero))
                store(table, after, load(table, after, zero) + alpha * (gamma * h))
                store(table, of_w + after, load(table, of_w + after, zero) + in_after)
            elif span.has_w:
                store(table, after, load(table, after, zero) - alpha * load(span.h, at, zero))
        if time >= since and kind != IDLE and span.has_w + span.adds_phi:
            q = load(span.q, at, zero)
        in_theta, in_w = s, s - q
        if span.has_source + span.has_dutch:
            in_theta = s * load(span.factor, in_ring, zero)
        if span.has_dutch:
            in_w = s_w * load(span.second, in_ring, zero) - q
        if time >= since and kind == LEARNS:
            if span.has_dutch:
                in_theta = in_theta - load(span.extra, at, zero)
            if span.has_difference:
                in_theta = s - load(span.h, at, zero)
        if span.adds_phi:
            in_theta = in_theta - q
        if span.follows_w:
            in_theta = q
        if span.shrinks_w:
            in_w = s_w - q * later
            if time >= since and kind != IDLE:
                later = later * load(span.factor, in_ring, zero)
        if place[time + 1 - first] > place[time - first]:
            store(table, row, load(table, row, zero) + alpha * in_theta)
            if span.has_w:
                store(table, of_w + row, alpha_w * in_w)
            if n_kinds > 2:
                store(table, of_m + row, s_m)
    for kind in range(n_kinds):
        total = zero
        for k in range(kind * (n_places + 1), (kind + 1) * (n_places + 1)):
            total = total + load(table, k * n, zero)
            store(table, k * n, total)


@inner_kernel
def write_runs(
    span: SpanArrays, b: int, lane: int, table: Reals, rows: Reals, first: int, stride: int, zero: Any
) -> Any:
    """Add differences of a table, shape (places, lanes), over runs to lanes' rows; return 0 in lanes above their bound.

    The lanes' rows start at `first`; chunks are `stride` apart. Lanes within their bound return 1.
    """
    listed, begin, end, ends = span.run_row[FLUSH], span.run_first[FLUSH], span.run_last[FLUSH], span.run_ends[FLUSH]
    n, width, n_listed = lanes_of(zero), span.start[b + 1] - span.start[b], span.n_runs[FLUSH]
    bound, is_sound = load(span.bound, lane, zero), zero + 1.0
    for j in range(n_listed):
        prefetch(rows, row_at(listed[min(j + _AHEAD, n_listed - 1)], first, width, stride), zero)
        gained = zero
        for i in range(begin[j], end[j], 2):
            gained = gained + (load(table, ends[i + 1] * n, zero) - load(table, ends[i] * n, zero))
        at = row_at(listed[j], first, width, stride)
        weight = gained + load(rows, at, zero)
        is_sound = choose(absolute(weight) <= bound, is_sound, zero)
        store(rows, at, weight)
    return is_sound


@inner_kernel
def shrink_rows(span: SpanArrays, b: int, lane: int, rows: Reals, first: int, stride: int, zero: Any) -> None:
    """Multiply lanes' rows, shape (rows in use times lanes,), by the factors of pending steps; see `write_runs`."""
    left, width = load(span.w_left, lane, zero), span.start[b + 1] - span.start[b]
    if any_true(left < 1.0):
        for r in range(span.clock[N_ROWS]):
            at = row_at(r, first, width, stride)
            store(rows, at, left * load(rows, at, zero))


@inner_kernel
def write_lanes(
    span: SpanArrays,
    b: int,
    lane: int,
    table: Reals,
    weights: tuple[Reals, Reals, Reals],
    first: int,
    stride: int,
    zero: Any,
) -> None:
    """Add a table, shape (kinds, places, lanes), to rows of theta, w and m in turn, because one kind fits a cache.

    theta above its bound flags a lane. m has size 0 without the vector MSPBE estimate.
    """
    (theta, w, m), size = weights, (span.clock[N_PLACES] + 1) * lanes_of(zero)
    flag(span, lane, write_runs(span, b, lane, table, theta, first, stride, zero) > 0.5, zero)
    if span.shrinks_w:
        shrink_rows(span, b, lane, w, first, stride, zero)
    if span.has_w:
        write_runs(span, b, lane, table[size:], w, first, stride, zero)
    if m.shape[0] > 0:
        write_runs(span, b, lane, table[2 * size :], m, first, stride, zero)


@inner_kernel
def sum_trace_lanes(span: SpanArrays, b: int, lane: int, thread: int, zero: Any) -> None:
    """Compute e.w, and y.w of a second trace without rho, of some lanes from their tail; no update is pending."""
    g_t = load(span.gamma_t, lane, zero) * load(span.lam_t, lane, zero)
    store(span.e_w, lane, product_of_trace(span, b, lane, span.c, thread, zero) / choose(g_t > 0.0, g_t, zero + 1.0))
    if span.has_difference:
        y_w = product_of_trace(span, b, lane, span.second, thread, zero)
        store(span.y_w, lane, y_w / choose(g_t > 0.0, g_t, zero + 1.0))


@inner_kernel
def product_of_trace(span: SpanArrays, b: int, lane: int, decays: Reals, thread: int, zero: Any) -> Any:
    """Return g_t e_{t-1}.w_t of some lanes, given the ring of the trace's decays, of the shape of c.

    g_t e_{t-1} = sum_k c_k ... c_{t-1} phi_k, times the factors of phi_k: its rows follow from runs as in `write_runs`.
    """
    g, n, table, place = span.flush_group[b], lanes_of(zero), span.table[thread], span.run_place
    start, c_places = span.start[b], span.c.shape[0] // span.policy.shape[0]
    first, width, v = span.tail_from[g], span.start[b + 1] - start, zero + 1.0
    for k in range(span.clock[N_PLACES] + 1):
        store(table, k * n, zero)
    for time in range(span.clock[NOW] - 1, first - 1, -1):
        in_ring = c_places * start + lane - start + (time & (c_places - 1)) * width
        v = load(decays, in_ring, zero) * v
        source = load(span.factor, in_ring, zero) if span.has_source else zero + 1.0
        store(table, (place[time - first] + 1) * n, v * source)
    total, e_w = zero, zero
    for k in range(span.clock[N_PLACES] + 1):
        total = total + load(table, k * n, zero)
        store(table, k * n, total)
    ends, in_w = span.run_ends[FLUSH], (CHUNK - 1) * start + lane
    for j in range(span.n_runs[FLUSH]):
        e = zero
        for i in range(span.run_first[FLUSH, j], span.run_last[FLUSH, j], 2):
            e = e + (load(table, ends[i + 1] * n, zero) - load(table, ends[i] * n, zero))
        row = load(span.w, row_at(span.run_row[FLUSH, j], in_w, width, stride_of(span)), zero)
        e_w = multiply_add(e, row, e_w)
    return e_w


sum_trace = over_block(sum_trace_lanes)


@inner_kernel
def flush_lanes(span: SpanArrays, b: int, lane: int, how: tuple[int, int], zero: Any) -> None:
    """Write pending updates of some lanes and reset their sums; `how`: the time, and the thread."""
    now, thread = how
    table, weights = span.table[thread], (span.theta, span.w, span.m)
    tabulate(span, b, lane, now, table, zero)
    write_lanes(span, b, lane, table, weights, (CHUNK - 1) * span.start[b] + lane, stride_of(span), zero)
    store(span.d_sum, lane, zero)
    store(span.h_sum, lane, zero)
    store(span.q_sum, lane, zero)
    store(span.w_left, lane, zero + 1.0)
    span.tail_needed[b] = max(span.tail_needed[b], tail_needed(span, b, lane, now, table, zero))


flush_all_lanes = over_block(flush_lanes)


@inner_kernel
def flush_block(span: SpanArrays, b: int, now: int, thread: int) -> None:
    """Write a block's pending updates up to `now`, and recompute its base, so that rounding does not accumulate."""
    span.tail_needed[b] = 0
    flush_all_lanes(span, b, (now, thread))
    active = span.active[now % span.active.shape[0]]
    sum_base(span, b, (span.theta, active, span.base))
    if span.has_w:
        sum_base(span, b, (span.w, active, span.base_w))
    span.w_at[b] = now
