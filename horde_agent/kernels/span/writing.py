"""From a demon's few numbers per step to its weights: what is pending is written when a flush group is due.

A backward pass gives the coefficient of each phi_k: with S_k = d_k + c_k S_{k+1} from the present, S = 0, back,

    theta += alpha   sum_k (S_k - h_{k-1}) phi_k
    w     += alpha_w sum_k (S_k - q_k) phi_k
    m     += sum_k M_k phi_k,   M_k = m_step_k d_k + c_k M_{k+1}

A row changes by the sum of the coefficients over the runs of times during which its feature was on (`overlaps.py`), by
differences of a table of prefix sums. In between, theta.phi and w.phi by the weights as written move on with the rows
of the features that went on and off; in a batch they are found for all its steps at once, each row being read once.
"""

from __future__ import annotations

from typing import Any

from horde_agent.kernels._jit import inner_kernel
from horde_agent.kernels.span.arrays import (
    BATCH,
    CHUNK,
    DECAYS,
    FLUSH,
    LEARNS,
    N_PLACES,
    SpanArrays,
    over_block,
    row_at,
)
from horde_agent.kernels.span.step import flag, tail_needed
from horde_agent.kernels.vectors import absolute, choose, lanes_of, load, multiply_add, prefetch, row_zeros, store
from horde_agent.types import Integers, Reals

_AHEAD = 20  # rows that are asked for before they are written to

# ---- sums of rows ---------------------------------------------------------------------------------------------------


@inner_kernel
def stride_of(span: SpanArrays) -> int:
    """Return how far chunks of rows lie apart."""
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
    """Move sums over lanes' active rows from those at time - 1 to those at time, or sum afresh if shorter.

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
    """Write sums over some rows of lanes; `how`: all rows, those to be added, and the sums, shape (L,)."""
    rows, active, out = how
    store(out, lane, add_rows(span, rows, b, lane, active, active.shape[0], 1.0, zero))


move_base, sum_base = over_block(move_lanes, row_zeros), over_block(sum_lanes, row_zeros)


@inner_kernel
def foresee(span: SpanArrays, rows: Reals, b: int, lane: int, n_steps: int, sums: Reals, zero: Any) -> None:
    """Write sums over lanes' active rows at each of the coming steps, shape (n_steps + 1, lanes); the first is there.

    A row is read once, in the order in which it lies in memory, and added where its feature goes on, taken where it
    goes off; the sums of these gains, which a core's first cache holds, are what is asked for.
    """
    start, n = span.start[b], lanes_of(zero)
    width, first, ends = span.start[b + 1] - start, CHUNK * start + lane - start, span.run_ends[BATCH]
    listed, n_listed, stride = span.run_row[BATCH], span.n_runs[BATCH], stride_of(span)
    for k in range(1, n_steps + 1):
        store(sums, k * n, zero)
    for j in range(n_listed):
        since, until = span.run_first[BATCH, j], span.run_last[BATCH, j]
        if until - since == 2 and ends[since] == 0 and ends[since + 1] > n_steps:
            continue  # on throughout
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


# ---- what is pending ------------------------------------------------------------------------------------------------


@inner_kernel
def tabulate(span: SpanArrays, b: int, lane: int, now: int, table: Reals, zero: Any) -> None:
    """Write prefix sums of some lanes, shape (kinds, places, lanes): theta's coefficients, then w's, then m's."""
    g, n, n_kinds = span.flush_group[b], lanes_of(zero), 2 + (span.m.shape[0] > 0)
    first, since, mask = span.tail_from[g], span.flushed_at[g], span.bits.shape[0] - 1
    place, start, n_lanes = span.run_place, span.start[b], span.policy.shape[0]
    width, c_places, places = span.start[b + 1] - start, span.c.shape[0] // n_lanes, span.d.shape[0] // n_lanes
    in_c, in_rest = c_places * start + lane - start, places * start + lane - start
    alpha, alpha_w, s, s_m = load(span.alpha, lane, zero), load(span.alpha_w, lane, zero), zero, zero
    n_places = span.clock[N_PLACES]
    of_w, of_m = (n_places + 1) * n, 2 * (n_places + 1) * n
    for k in range((n_places + 1) * n_kinds):
        store(table, k * n, zero)
    for time in range(now - 1, first - 1, -1):
        kind = LEARNS if time < since else span.kind[g, time & mask]
        row, at = (place[time - first] + 1) * n, in_rest + (time - since) * width
        if kind == LEARNS:
            c = load(span.c, in_c + (time & (c_places - 1)) * width, zero)
            s, s_m = c * s, c * s_m
        else:
            s, s_m = zero, zero
        in_w = s
        if time >= since and kind == LEARNS:
            d = load(span.d, at, zero)
            s, s_m = s + d, multiply_add(d, span.m_step[time & mask], s_m)
            after = (place[time + 1 - first] + 1) * n
            store(table, after, load(table, after, zero) - alpha * load(span.h, at, zero))
            in_w = s - load(span.q, at, zero)
        elif kind == DECAYS:
            in_w = zero - load(span.q, at, zero)
        if place[time + 1 - first] > place[time - first]:
            store(table, row, load(table, row, zero) + alpha * s)
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
    """Add to lanes' rows what a table, shape (places, lanes), gained over their runs; return 1, or 0: past a bound.

    The lanes' rows begin at `first`, chunks of them `stride` apart.
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
    """Add a table, shape (kinds, places, lanes), to rows of theta, w and m in turn: one kind fits into a cache.

    theta past its bound flags a lane. m is of size 0 where it is not kept.
    """
    (theta, w, m), size = weights, (span.clock[N_PLACES] + 1) * lanes_of(zero)
    flag(span, lane, write_runs(span, b, lane, table, theta, first, stride, zero) > 0.5, zero)
    write_runs(span, b, lane, table[size:], w, first, stride, zero)
    if m.shape[0] > 0:
        write_runs(span, b, lane, table[2 * size :], m, first, stride, zero)


@inner_kernel
def flush_lanes(span: SpanArrays, b: int, lane: int, how: tuple[int, int], zero: Any) -> None:
    """Write what is pending of some lanes, and add up anew from here on; `how`: the time, and whose scratch paper."""
    now, thread = how
    table, weights = span.table[thread], (span.theta, span.w, span.m)
    tabulate(span, b, lane, now, table, zero)
    write_lanes(span, b, lane, table, weights, (CHUNK - 1) * span.start[b] + lane, stride_of(span), zero)
    store(span.d_sum, lane, zero)
    store(span.h_sum, lane, zero)
    store(span.q_sum, lane, zero)
    span.tail_needed[b] = max(span.tail_needed[b], tail_needed(span, b, lane, now, table, zero))


flush_all_lanes = over_block(flush_lanes)


@inner_kernel
def flush_block(span: SpanArrays, b: int, now: int, thread: int) -> None:
    """Write what is pending of a block up to `now`, and sum its base there afresh, so that no rounding adds up."""
    span.tail_needed[b] = 0
    flush_all_lanes(span, b, (now, thread))
    active = span.active[now % span.active.shape[0]]
    sum_base(span, b, (span.theta, active, span.base))
    sum_base(span, b, (span.w, active, span.base_w))
    span.w_at[b] = now
