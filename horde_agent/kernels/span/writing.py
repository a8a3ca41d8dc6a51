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
from horde_agent.kernels.span.arrays import BATCH, CHUNK, DECAYS, FLUSH, LEARNS, SpanArrays, row_at
from horde_agent.kernels.span.step import flag, tail_needed
from horde_agent.kernels.vectors import (
    absolute,
    choose,
    lanes_of,
    load,
    multiply_add,
    narrow_zeros,
    prefetch,
    prefetch_far,
    row_zeros,
    store,
    wide_zeros,
)
from horde_agent.types import Integers, Reals

_AHEAD = 6  # rows that are asked for before they are written to

# ---- sums of rows ---------------------------------------------------------------------------------------------------


@inner_kernel
def stride_of(span: SpanArrays) -> int:
    """Return how far chunks of rows lie apart."""
    return int(CHUNK * span.policy.shape[0])


@inner_kernel
def add_rows(
    span: SpanArrays, rows: Reals, b: int, lane: int, chosen: Integers, n: int, sign: float, total: Any
) -> Any:
    """Return `total` with the first n `chosen` rows added, times `sign`; ask for those of the thread's next block."""
    start, stride, soon = span.start[b], stride_of(span), span.next_block[b]
    first, width = CHUNK * start + lane - start, span.start[b + 1] - start
    for k in range(n):
        at = row_at(chosen[k], first, width, stride)
        prefetch_far(rows, at + soon, total)
        total = multiply_add(load(rows, at, total), sign, total)
    return total


@inner_kernel
def move_lanes(span: SpanArrays, rows: Reals, b: int, lane: int, time: int, out: Reals, zero: Any) -> None:
    """Move the sum over a block's active rows from those at `time` - 1 to those at `time`, or sum afresh if shorter."""
    slot, now = time & 1, time % span.active.shape[0]
    n_gained, n_lost = span.n_changed[slot, 0], span.n_changed[slot, 1]
    if n_gained + n_lost < span.n_active:
        total = add_rows(span, rows, b, lane, span.changed[slot, 0], n_gained, 1.0, load(out, lane, zero))
        total = add_rows(span, rows, b, lane, span.changed[slot, 1], n_lost, -1.0, total)
    else:
        total = add_rows(span, rows, b, lane, span.active[now], span.n_active, 1.0, zero)
    store(out, lane, total)


@inner_kernel
def sum_lanes(span: SpanArrays, rows: Reals, b: int, lane: int, active: Integers, out: Reals, zero: Any) -> None:
    """Write the sum over some rows of a block."""
    store(out, lane, add_rows(span, rows, b, lane, active, active.shape[0], 1.0, zero))


@inner_kernel
def move_base(span: SpanArrays, rows: Reals, b: int, time: int, out: Reals) -> None:
    """Do `move_lanes` for a whole block."""
    longest, wide, narrow = row_zeros(rows), wide_zeros(rows), narrow_zeros(rows)
    lane, end = span.start[b], span.start[b + 1]
    while lane + lanes_of(longest) <= end:
        move_lanes(span, rows, b, lane, time, out, longest)
        lane += lanes_of(longest)
    while lane + lanes_of(wide) <= end:
        move_lanes(span, rows, b, lane, time, out, wide)
        lane += lanes_of(wide)
    while lane < end:
        move_lanes(span, rows, b, lane, time, out, narrow)
        lane += lanes_of(narrow)


@inner_kernel
def sum_base(span: SpanArrays, rows: Reals, b: int, active: Integers, out: Reals) -> None:
    """Do `sum_lanes` for a whole block."""
    longest, wide, narrow = row_zeros(rows), wide_zeros(rows), narrow_zeros(rows)
    lane, end = span.start[b], span.start[b + 1]
    while lane + lanes_of(longest) <= end:
        sum_lanes(span, rows, b, lane, active, out, longest)
        lane += lanes_of(longest)
    while lane + lanes_of(wide) <= end:
        sum_lanes(span, rows, b, lane, active, out, wide)
        lane += lanes_of(wide)
    while lane < end:
        sum_lanes(span, rows, b, lane, active, out, narrow)
        lane += lanes_of(narrow)


@inner_kernel
def foresee(span: SpanArrays, b: int, lane: int, n_steps: int, of_theta: Reals, of_w: Reals, zero: Any) -> None:
    """Write theta.phi and w.phi, as written, at the present and each of the coming steps: `n_steps` + 1 rows of lanes.

    A row is read once, in the order in which it lies in memory, and added where its feature goes on, taken where it
    goes off; the sums of these gains are what is asked for.
    """
    start, n = span.start[b], lanes_of(zero)
    width, first, ends = span.start[b + 1] - start, CHUNK * start + lane - start, span.run_ends[BATCH]
    store(of_theta, 0, load(span.base, lane, zero))
    store(of_w, 0, load(span.base_w, lane, zero))
    for k in range(1, n_steps + 1):
        store(of_theta, k * n, zero)
        store(of_w, k * n, zero)
    for j in range(span.n_runs[BATCH]):
        since, until = span.run_first[BATCH, j], span.run_last[BATCH, j]
        if until - since == 2 and ends[since] == 0 and ends[since + 1] > n_steps:
            continue  # on throughout
        at = row_at(span.run_row[BATCH, j], first, width, stride_of(span))
        theta, w = load(span.theta, at, zero), load(span.w, at, zero)
        for i in range(since, until, 2):
            on, off = ends[i] * n, ends[i + 1] * n
            if on > 0:
                store(of_theta, on, load(of_theta, on, zero) + theta)
                store(of_w, on, load(of_w, on, zero) + w)
            if off <= n_steps * n:
                store(of_theta, off, load(of_theta, off, zero) - theta)
                store(of_w, off, load(of_w, off, zero) - w)
    theta, w = zero, zero
    for k in range(n_steps + 1):
        theta, w = theta + load(of_theta, k * n, zero), w + load(of_w, k * n, zero)
        store(of_theta, k * n, theta)
        store(of_w, k * n, w)


# ---- what is pending ------------------------------------------------------------------------------------------------


@inner_kernel
def tabulate(span: SpanArrays, b: int, lane: int, now: int, table: Reals, zero: Any) -> None:
    """Write the table of prefix sums of some lanes: a row per place and kind of weight, theta, w and m."""
    g, n, n_kinds = span.flush_group[b], lanes_of(zero), 2 + (span.m.shape[0] > 0)
    first, since, mask = span.tail_from[g], span.flushed_at[g], span.bits.shape[0] - 1
    place, start, n_lanes = span.run_place, span.start[b], span.policy.shape[0]
    width, c_places, places = span.start[b + 1] - start, span.c.shape[0] // n_lanes, span.d.shape[0] // n_lanes
    in_c, in_rest = c_places * start + lane - start, places * start + lane - start
    alpha, alpha_w, s, s_m = load(span.alpha, lane, zero), load(span.alpha_w, lane, zero), zero, zero
    n_places = place[now + 1 - first]
    for k in range((n_places + 1) * n_kinds):
        store(table, k * n, zero)
    for time in range(now - 1, first - 1, -1):
        kind = LEARNS if time < since else span.kind[g, time & mask]
        row, at = (place[time - first] + 1) * n_kinds * n, in_rest + (time - since) * width
        if kind == LEARNS:
            c = load(span.c, in_c + (time & (c_places - 1)) * width, zero)
            s, s_m = c * s, c * s_m
        else:
            s, s_m = zero, zero
        in_w = s
        if time >= since and kind == LEARNS:
            d = load(span.d, at, zero)
            s, s_m = s + d, multiply_add(d, span.m_step[time & mask], s_m)
            after = (place[time + 1 - first] + 1) * n_kinds * n
            store(table, after, load(table, after, zero) - alpha * load(span.h, at, zero))
            in_w = s - load(span.q, at, zero)
        elif kind == DECAYS:
            in_w = zero - load(span.q, at, zero)
        if place[time + 1 - first] > place[time - first]:
            store(table, row, load(table, row, zero) + alpha * s)
            store(table, row + n, alpha_w * in_w)
            if n_kinds > 2:
                store(table, row + 2 * n, s_m)
    for k in range(n_kinds, (n_places + 1) * n_kinds):
        store(table, k * n, load(table, k * n, zero) + load(table, (k - n_kinds) * n, zero))


@inner_kernel
def write_runs(
    span: SpanArrays,
    b: int,
    lane: int,
    table: Reals,
    rows: tuple[Reals, Reals, Reals],
    origin: int,
    stride: int,
    zero: Any,
) -> None:
    """Add to each row of theta, w and m what the table gained over its runs; theta past its bound flags a lane.

    The block's rows begin at `origin`, chunks of them `stride` apart. m is of size 0 where it is not kept.
    """
    n, (theta, w, m) = lanes_of(zero), rows
    listed, begin, end, ends = span.run_row[FLUSH], span.run_first[FLUSH], span.run_last[FLUSH], span.run_ends[FLUSH]
    start, n_listed, n_kinds = span.start[b], span.n_runs[FLUSH], 2 + (m.shape[0] > 0)
    width, first = span.start[b + 1] - start, origin + lane - start
    bound, is_sound = load(span.bound, lane, zero), zero + 1.0
    for j in range(n_listed):
        soon = row_at(listed[min(j + _AHEAD, n_listed - 1)], first, width, stride)
        prefetch(theta, soon, zero)
        prefetch(w, soon, zero)
        to_theta, to_w, to_m = zero, zero, zero
        for i in range(begin[j], end[j], 2):
            on, off = ends[i] * n_kinds * n, ends[i + 1] * n_kinds * n
            to_theta = to_theta + (load(table, off, zero) - load(table, on, zero))
            to_w = to_w + (load(table, off + n, zero) - load(table, on + n, zero))
            if n_kinds > 2:
                to_m = to_m + (load(table, off + 2 * n, zero) - load(table, on + 2 * n, zero))
        at = row_at(listed[j], first, width, stride)
        to_theta = to_theta + load(theta, at, zero)
        is_sound = choose(absolute(to_theta) <= bound, is_sound, zero)
        store(theta, at, to_theta)
        store(w, at, to_w + load(w, at, zero))
        if n_kinds > 2:
            store(m, at, to_m + load(m, at, zero))
    flag(span, lane, is_sound > 0.5, zero)


@inner_kernel
def flush_lanes(span: SpanArrays, b: int, lane: int, now: int, thread: int, zero: Any) -> None:
    """Write what is pending of some lanes, and add up anew from here on."""
    table = span.table[thread]
    tabulate(span, b, lane, now, table, zero)
    write_runs(span, b, lane, table, (span.theta, span.w, span.m), CHUNK * span.start[b], stride_of(span), zero)
    store(span.d_sum, lane, zero)
    store(span.h_sum, lane, zero)
    store(span.q_sum, lane, zero)
    span.tail_needed[b] = max(span.tail_needed[b], tail_needed(span, b, lane, now, table, zero))


@inner_kernel
def flush_block(span: SpanArrays, b: int, now: int, thread: int) -> None:
    """Write what is pending of a block up to `now`, and sum its base there afresh, so that no rounding adds up."""
    span.tail_needed[b] = 0
    wide, narrow = wide_zeros(span.theta), narrow_zeros(span.theta)
    lane, end = span.start[b], span.start[b + 1]
    while lane + lanes_of(wide) <= end:
        flush_lanes(span, b, lane, now, thread, wide)
        lane += lanes_of(wide)
    while lane < end:
        flush_lanes(span, b, lane, now, thread, narrow)
        lane += lanes_of(narrow)
    active = span.active[now % span.active.shape[0]]
    sum_base(span, span.theta, b, active, span.base)
    sum_base(span, span.w, b, active, span.base_w)
    span.w_at[b] = now
