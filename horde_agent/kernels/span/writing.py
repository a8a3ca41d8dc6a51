"""Write pending updates to the weights when a flush group is due.

A backward pass from the current time, with S = 0, gives the coefficient of each phi_k: S_k = d_k +
c_k S_{k+1}. A rule that stores h and q has, for example,

    theta += alpha   sum_k (S_k - h_{k-1}) phi_k          (of any rule: `flush_coefficients` in its file)
    w     += alpha_w sum_k (S_k - q_k) phi_k
    m     += sum_k M_k phi_k,   M_k = m_step_k d_k + c_k M_{k+1}

A row changes by the sum of the coefficients over the runs of times during which its feature was
active (`overlaps.py`), by differences of a table of prefix sums. Between flushes, theta.phi and
w.phi from the weights as written are updated by the rows of the features that switched on and off;
a batch computes them for all its steps at once and reads each row once.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from horde_agent.kernels._jit import inlined_kernel, inner_kernel
from horde_agent.kernels.lanes import Later, Pending
from horde_agent.kernels.rules import flush_coefficients
from horde_agent.kernels.span.arrays import (
    BATCH,
    CHUNK,
    FLUSH,
    IDLE,
    LANES_OF_A_TURN,
    LEARNS,
    N_PLACES,
    N_ROWS,
    NOW,
    SpanArrays,
    over_block,
    row_at,
)
from horde_agent.kernels.span.step import (
    flag,
    in_pending,
    in_ring,
    load_factor,
    load_pending,
    load_q,
    places_of,
    tail_needed,
)
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

# ---- sums of rows -------------------------------------------------------------------------------


@inner_kernel
def stride_of(span: SpanArrays) -> int:
    """Return the distance between chunks of rows."""
    return int(CHUNK * span.policy.shape[0])


@inner_kernel
def add_rows(
    span: SpanArrays,
    rows: Reals,
    b: int,
    lane: int,
    chosen: Integers,
    n: int,
    sign: float,
    total: Any,
) -> Any:
    """Return `total` with the first n of `chosen`, (n_active,), rows added, times `sign`."""
    start = span.start[b]
    stride = stride_of(span)
    first = CHUNK * start + lane - start
    width = span.start[b + 1] - start
    for k in range(n):
        total = multiply_add(
            load(rows, row_at(chosen[k], first, width, stride), total), sign, total
        )
    return total


@inner_kernel
def move_lanes(
    span: SpanArrays, b: int, lane: int, how: tuple[Reals, int, Reals], zero: Any
) -> None:
    """Update sums over lanes' active rows from time - 1 to time, or sum again if that reads fewer rows.

    `how`: the rows, the time, and the sums, shape (L,).
    """
    rows, time, out = how
    slot = time & 1
    place = time % span.active.shape[0]
    n_gained = span.n_changed[slot, 0]
    n_lost = span.n_changed[slot, 1]
    if n_gained + n_lost < span.n_active:
        total = add_rows(
            span, rows, b, lane, span.changed[slot, 0], n_gained, 1.0, load(out, lane, zero)
        )
        total = add_rows(span, rows, b, lane, span.changed[slot, 1], n_lost, -1.0, total)
    else:
        total = add_rows(span, rows, b, lane, span.active[place], span.n_active, 1.0, zero)
    store(out, lane, total)


@inner_kernel
def sum_lanes(
    span: SpanArrays, b: int, lane: int, how: tuple[Reals, Integers, Reals], zero: Any
) -> None:
    """Write sums over some rows of lanes; `how`: all rows, the indices to add, and the sums, shape (L,)."""
    rows, active, out = how
    store(out, lane, add_rows(span, rows, b, lane, active, active.shape[0], 1.0, zero))


move_base = over_block(move_lanes, row_zeros)
sum_base = over_block(sum_lanes, row_zeros)


@inner_kernel
def sum_base_average(span: SpanArrays, b: int, time: int) -> None:
    """Write a block's average.phi at a time, unless there are no averages."""
    if span.average.shape[0] > 0:
        active = span.active[time % span.active.shape[0]]
        sum_base(span, b, (span.average, active, span.base_average))


@inner_kernel
def precompute_bases(
    span: SpanArrays, rows: Reals, b: int, lane: int, n_steps: int, sums: Reals, zero: Any
) -> None:
    """Write sums over lanes' active rows at each of the next steps, shape (n_steps + 1, lanes), given the first.

    Each row is read once, in memory order, added at the steps at which its feature switches on and
    subtracted at those at which it switches off. A prefix sum over these differences, which fit
    into a core's L1 cache, gives the result.
    """
    start = span.start[b]
    n = lanes_of(zero)
    width = span.start[b + 1] - start
    first = CHUNK * start + lane - start
    ends = span.run_ends[BATCH]
    listed = span.run_row[BATCH]
    n_listed = span.n_runs[BATCH]
    stride = stride_of(span)
    for k in range(1, n_steps + 1):
        store(sums, k * n, zero)
    for j in range(n_listed):
        first_end = span.run_first[BATCH, j]
        last_end = span.run_last[BATCH, j]
        if last_end - first_end == 2 and ends[first_end] == 0 and ends[first_end + 1] > n_steps:
            continue  # active throughout
        prefetch(rows, row_at(listed[min(j + _AHEAD, n_listed - 1)], first, width, stride), zero)
        row = load(rows, row_at(listed[j], first, width, stride), zero)
        for i in range(first_end, last_end, 2):
            on = ends[i] * n
            off = ends[i + 1] * n
            if on > 0:
                store(sums, on, load(sums, on, zero) + row)
            if off <= n_steps * n:
                store(sums, off, load(sums, off, zero) - row)
    total = load(sums, 0, zero)
    for k in range(1, n_steps + 1):
        total = total + load(sums, k * n, zero)
        store(sums, k * n, total)


# ---- pending updates ----------------------------------------------------------------------------


@inner_kernel
def tabulate_coefficients(
    span: SpanArrays, b: int, lane: int, now: int, table: Reals, zero: Any
) -> None:
    """Write prefix sums of some lanes, shape (kinds, places, lanes): coefficients of theta, then w, then m."""
    g = span.flush_group[b]
    n = lanes_of(zero)
    first = span.tail_from[g]
    mask = span.bits.shape[0] - 1
    place = span.run_place
    places = places_of(span, b, lane)
    alpha = load(span.alpha, lane, zero)
    alpha_w = load(span.alpha_w, lane, zero)
    later = Later(s=zero, s_w=zero, w_left=zero + 1.0)
    s_m = zero
    n_kinds = 1 + span.has_w + (span.m.shape[0] > 0)
    size = (span.clock[N_PLACES] + 1) * n
    for k in range(0, n_kinds * size, n):
        store(table, k, zero)
    for time in range(now - 1, first - 1, -1):
        is_pending = time >= places.flushed_at
        kind = LEARNS
        if is_pending:
            kind = span.kind[g, time & mask]
        ring = in_ring(places, time)
        at = in_pending(places, time)
        pending = Pending(d=zero, h=zero, q=zero, source=zero + 1.0, w_factor=zero + 1.0)
        if kind == LEARNS:
            pending = written(span, ring, zero)
            c = load(span.c, ring, zero)
            later = Later(s=c * later.s, s_w=c * later.s_w, w_left=later.w_left)
            s_m = c * s_m
        else:
            later = Later(s=zero, s_w=zero, w_left=later.w_left)
            s_m = zero
        if is_pending and kind != IDLE:
            pending = pending_decay(span, at, ring, zero)
        if is_pending and kind == LEARNS:
            pending = load_pending(span, at, ring, zero)
            s_w = multiply_add(pending.d, later.w_left, later.s_w)
            later = Later(s=later.s + pending.d, s_w=s_w, w_left=later.w_left)
            d = pending.d
            if span.cut.shape[0] > 0:
                d = d * load(span.cut, at, zero)
            s_m = multiply_add(d, span.m_step[time & mask], s_m)
        coefficients = flush_coefficients(span.rule, pending, later)
        later = Later(s=later.s, s_w=later.s_w, w_left=later.w_left * pending.w_factor)
        if is_pending and kind == LEARNS and span.has_h:
            next_row = (place[time + 1 - first] + 1) * n
            store(table, next_row, load(table, next_row, zero) + alpha * coefficients.theta_next)
        if place[time + 1 - first] > place[time - first]:
            row = (place[time - first] + 1) * n
            store(table, row, load(table, row, zero) + alpha * coefficients.theta)
            if span.has_w:
                store(table, size + row, alpha_w * coefficients.w)
            if n_kinds > 2:
                store(table, 2 * size + row, s_m)
    for kind_of_row in range(n_kinds):
        total = zero
        for k in range(kind_of_row * size, (kind_of_row + 1) * size, n):
            total = total + load(table, k, zero)
            store(table, k, total)


@inlined_kernel
def written(span: SpanArrays, ring: int, zero: Any) -> Pending:
    """Return what is left of a step whose changes are written: its place in the trace."""
    source = load_factor(span, span.has_source, ring, zero)
    return Pending(d=zero, h=zero, q=zero, source=source, w_factor=zero + 1.0)


@inlined_kernel
def pending_decay(span: SpanArrays, at: int, ring: int, zero: Any) -> Pending:
    """Return what was stored of a pending step in which w decayed."""
    factor = load_factor(span, span.has_w_factor, ring, zero)
    return Pending(d=zero, h=zero, q=load_q(span, at, zero), source=zero + 1.0, w_factor=factor)


@inner_kernel
def write_runs(
    span: SpanArrays,
    b: int,
    lane: int,
    table: Reals,
    rows: Reals,
    first: int,
    stride: int,
    scale: Reals,
    zero: Any,
) -> Any:
    """Add differences of a table, shape (places, lanes), over runs to lanes' rows; return 0 in lanes above their bound.

    The lanes' rows start at `first`; chunks are `stride` apart. A row's change is multiplied by its `scale`, (n,), or
    by 1 if that is empty. Lanes within their bound return 1.
    """
    listed = span.run_row[FLUSH]
    begin = span.run_first[FLUSH]
    end = span.run_last[FLUSH]
    ends = span.run_ends[FLUSH]
    n = lanes_of(zero)
    width = span.start[b + 1] - span.start[b]
    n_listed = span.n_runs[FLUSH]
    bound = load(span.bound, lane, zero)
    is_sound = zero + 1.0
    for j in range(n_listed):
        prefetch(rows, row_at(listed[min(j + _AHEAD, n_listed - 1)], first, width, stride), zero)
        gained = zero
        for i in range(begin[j], end[j], 2):
            gained = gained + (load(table, ends[i + 1] * n, zero) - load(table, ends[i] * n, zero))
        at = row_at(listed[j], first, width, stride)
        if span.has_scales and scale.shape[0] > 0:
            gained = gained * scale[listed[j]]
        weight = gained + load(rows, at, zero)
        is_sound = choose(absolute(weight) <= bound, is_sound, zero)
        store(rows, at, weight)
    return is_sound


@inner_kernel
def shrink_rows(
    span: SpanArrays, b: int, lane: int, rows: Reals, first: int, stride: int, zero: Any
) -> None:
    """Multiply lanes' rows, shape (rows in use times lanes,), by the factors of pending steps; see `write_runs`."""
    factor = load(span.w_left, lane, zero)
    width = span.start[b + 1] - span.start[b]
    if any_true(factor < 1.0):
        for r in range(span.clock[N_ROWS]):
            at = row_at(r, first, width, stride)
            store(rows, at, factor * load(rows, at, zero))


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
    (theta, w, m) = weights
    size = (span.clock[N_PLACES] + 1) * lanes_of(zero)
    is_sound = write_runs(span, b, lane, table, theta, first, stride, span.scale, zero)
    flag(span, lane, is_sound > 0.5, zero)
    if span.has_w:
        if span.has_w_factor:
            shrink_rows(span, b, lane, w, first, stride, zero)
        write_runs(span, b, lane, table[size:], w, first, stride, span.scale, zero)
    if m.shape[0] > 0:
        write_runs(span, b, lane, table[2 * size :], m, first, stride, span.scale[:0], zero)


@inlined_kernel
def is_of_thread(span: SpanArrays, lane: int, thread: int) -> bool:
    """Return whether the lanes from `lane` on are a thread's, where threads share a block."""
    return bool((lane // LANES_OF_A_TURN) % span.n_threads == thread)


@inner_kernel
def write_predictions(span: SpanArrays, first: int, last: int) -> None:
    """Copy predictions of lanes [first, last) to `predictions`, and those of averaged weights to `averaged`."""
    for i in range(first, last):
        if span.demon[i] >= 0:
            span.predictions[span.demon[i]] = span.prediction[i]
            span.averaged[span.demon[i]] = span.base_average[i]


@inner_kernel
def average_lanes(span: SpanArrays, b: int, lane: int, thread: int, zero: Any) -> None:
    """Move a thread's averaged weights toward theta, pending updates included, by their `rates`.

    average += rate (theta - average); see `learning/averages.py`. Runs are listed by `list_history`.
    """
    if not is_of_thread(span, lane, thread):
        return
    start = span.start[b]
    stride = stride_of(span)
    first = CHUNK * start + lane - start
    width = span.start[b + 1] - start
    rate = load(span.rates, lane, zero)
    for r in range(span.clock[N_ROWS]):
        at = row_at(r, first, width, stride)
        mean = load(span.average, at, zero)
        store(span.average, at, multiply_add(rate, load(span.theta, at, zero) - mean, mean))
    table = span.table[thread]
    tabulate_coefficients(span, b, lane, span.clock[NOW], table, zero)
    n = lanes_of(zero)
    for k in range(0, (span.clock[N_PLACES] + 1) * n, n):
        store(table, k, rate * load(table, k, zero))
    write_runs(span, b, lane, table, span.average, first, stride, span.scale, zero)
    active = span.active[span.clock[NOW] % span.active.shape[0]]
    sum_lanes(span, b, lane, (span.average, active, span.base_average), zero)
    write_predictions(span, lane, lane + n)


average_all_lanes = over_block(average_lanes)


@inner_kernel
def sum_trace_lanes(span: SpanArrays, b: int, lane: int, thread: int, zero: Any) -> None:
    """Compute e.w of a thread's lanes from their tail, and e.S.phi and e.S.e unless S is 1; no update is pending.

    g_t e_{t-1} = sum_k c_k ... c_{t-1} phi_k, times the factors of phi_k: its rows follow from runs
    as in `write_runs`.
    """
    if not is_of_thread(span, lane, thread):
        return
    g = span.flush_group[b]
    n = lanes_of(zero)
    table = span.table[thread]
    place = span.run_place
    places = places_of(span, b, lane)
    first = span.tail_from[g]
    size = (span.clock[N_PLACES] + 1) * n
    for k in range(0, size, n):
        store(table, k, zero)
    v = zero + 1.0
    for time in range(span.clock[NOW] - 1, first - 1, -1):
        ring = in_ring(places, time)
        v = load(span.c, ring, zero) * v
        store(
            table, (place[time - first] + 1) * n, v * load_factor(span, span.has_source, ring, zero)
        )
    total = zero
    for k in range(0, size, n):
        total = total + load(table, k, zero)
        store(table, k, total)
    e_w = zero
    e_phi = zero
    e_e = zero
    bits = span.bits[span.clock[NOW] & (span.bits.shape[0] - 1)]
    ends = span.run_ends[FLUSH]
    first_of_w = (CHUNK - 1) * span.start[b] + lane
    for j in range(span.n_runs[FLUSH]):
        e = zero
        for i in range(span.run_first[FLUSH, j], span.run_last[FLUSH, j], 2):
            e = e + (load(table, ends[i + 1] * n, zero) - load(table, ends[i] * n, zero))
        row = span.run_row[FLUSH, j]
        if span.has_w:
            at = row_at(row, first_of_w, places.width, stride_of(span))
            e_w = multiply_add(e, load(span.w, at, zero), e_w)
        if span.has_scales:
            e_e = e_e + span.scale[row] * e * e
            if (bits[row >> 6] >> np.uint64(row & 63)) & np.uint64(1):
                e_phi = e_phi + span.scale[row] * e
    decay = load(span.gamma_t, lane, zero) * load(span.lam_t, lane, zero)
    decay = choose(decay > 0.0, decay, zero + 1.0)
    store(span.e_w, lane, e_w / decay)
    if span.has_scales:
        store(span.e_phi, lane, e_phi / decay)
        store(span.e_e, lane, e_e / (decay * decay))


sum_trace = over_block(sum_trace_lanes)


@inner_kernel
def flush_lanes(span: SpanArrays, b: int, lane: int, how: tuple[int, int], zero: Any) -> None:
    """Write pending updates of a thread's lanes and reset their sums; `how`: the time, and the thread."""
    time, thread = how
    if not is_of_thread(span, lane, thread):
        return
    table = span.table[thread]
    weights = (span.theta, span.w, span.m)
    tabulate_coefficients(span, b, lane, time, table, zero)
    write_lanes(
        span, b, lane, table, weights, (CHUNK - 1) * span.start[b] + lane, stride_of(span), zero
    )
    store(span.d_sum, lane, zero)
    store(span.h_sum, lane, zero)
    store(span.q_sum, lane, zero)
    store(span.w_left, lane, zero + 1.0)
    tail = tail_needed(span, b, lane, time, table, zero)
    span.tail_needed[thread] = max(span.tail_needed[thread], tail)


flush_all_lanes = over_block(flush_lanes)


@inner_kernel
def sum_bases_again(span: SpanArrays, b: int, now: int) -> None:
    """Recompute the bases of a block that was written up to `now`, so that rounding does not accumulate."""
    active = span.active[now % span.active.shape[0]]
    sum_base(span, b, (span.theta, active, span.base))
    if span.has_w:
        sum_base(span, b, (span.w, active, span.base_w))
    sum_base_average(span, b, now)
    span.w_at[b] = now
