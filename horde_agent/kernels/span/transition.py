"""A step of all demons: queue the signals, update the shared history, then process blocks on all threads.

Only shared work is serial: recording the feature vector, its overlaps with the past, and the runs
of groups that are flushed. No sum crosses a lane, so that results are bit-identical for any number
of threads.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from horde_agent.kernels._jit import inner_kernel, kernel
from horde_agent.kernels.checks import DEMON_DIVERGED, TAIL_TOO_LONG, Signals
from horde_agent.kernels.rules import changes
from horde_agent.kernels.span.arrays import (
    BATCH,
    CHUNK,
    DECAYS,
    FLUSHED,
    IDLE,
    IS_KNOWN,
    LEARNS,
    NOW,
    OLDEST,
    SpanArrays,
    over_block,
)
from horde_agent.kernels.span.overlaps import (
    list_history,
    list_runs,
    observe,
    write_norm,
    write_overlaps,
)
from horde_agent.kernels.span.step import (
    end_trace,
    learn,
    load_signals,
    predict_lanes,
    scan,
    skip_step,
)
from horde_agent.kernels.span.writing import (
    average_all_lanes,
    flush_all_lanes,
    move_base,
    precompute_bases,
    sum_base,
    sum_base_average,
    sum_bases_again,
    sum_trace,
    tabulate_coefficients,
    write_lanes,
    write_predictions,
)
from horde_agent.kernels.vectors import lanes_of, load, multiply_add, on_threads, store
from horde_agent.types import Floats, Integers, Reals

BEGIN = np.int64(1 << 30)  # a thread's task: begin a stream
BASES = np.int64(1 << 31)  # and the number of a flush group: recompute the bases of its blocks


# ---- signals ------------------------------------------------------------------------------------


@inner_kernel
def enqueue_signals(
    span: SpanArrays, signals: Signals, tiles_tp1: Integers, m_step: float, is_last: bool
) -> None:
    """Record the state reached, (n_active,), and queue the transition's signals; gamma is 0 at the end of a stream."""
    observe(span, tiles_tp1)
    time = span.clock[NOW]
    slot = time % span.signal_rho.shape[0]
    span.m_step[(time - 1) & (span.bits.shape[0] - 1)] = m_step
    copy(signals.rho_t, span.signal_rho[slot])
    copy(signals.c_tp1, span.signal_c[slot])
    span.signal_b[slot] = signals.b_t[0]
    span.signal_changes[slot, 0] = 0
    span.signal_changes[slot, 1] = 0
    if not (signals.is_fixed and span.clock[IS_KNOWN] and not is_last):
        enqueue_states(span, signals, slot, is_last)


@inner_kernel
def enqueue_states(span: SpanArrays, signals: Signals, slot: int, is_last: bool) -> None:
    """Queue gamma, lambda, skips and outcomes; record whether one of the former changed, or an outcome is not 0."""
    gamma = span.signal_gamma[slot]
    lam = span.signal_lam[slot]
    z = span.signal_z[slot]
    latest = span.signal_gamma.shape[0] - 1
    n_changed = 0
    n_outcomes = 0
    continues = np.float64(not is_last)
    gamma_before = span.signal_gamma[latest]
    lam_before = span.signal_lam[latest]
    skips = span.signal_skips[slot]
    skips_before = span.signal_skips[latest]
    for g in range(signals.gamma_tp1.shape[0]):
        gamma[g] = continues * signals.gamma_tp1[g]
        lam[g] = signals.lam_tp1[g]
        n_changed += not (gamma[g] == gamma_before[g] and lam[g] == lam_before[g])
        gamma_before[g] = gamma[g]
        lam_before[g] = lam[g]
        skips[g] = not signals.has_rho[min(g, signals.has_rho.shape[0] - 1)]
        n_changed += skips[g] != skips_before[g]
        skips_before[g] = skips[g]
    for i in range(signals.z_tp1.shape[0]):
        z[i] = signals.z_tp1[i]
        n_outcomes += signals.z_tp1[i] != 0
    if span.has_interest:
        interest = span.signal_interest[slot]
        latest_interest = span.signal_interest[latest]
        for i in range(signals.z_tp1.shape[0]):
            interest[i] = signals.interest_t[min(i, signals.interest_t.shape[0] - 1)]
            n_changed += interest[i] != latest_interest[i]
            latest_interest[i] = interest[i]
    span.signal_changes[slot, 0] = n_changed > 0
    span.signal_changes[slot, 1] = n_outcomes > 0
    span.clock[IS_KNOWN] = n_outcomes == 0 and not is_last


@inner_kernel
def copy(numbers: Floats, out: Reals) -> None:
    """Copy numbers, shape (n,), into a longer row of another dtype."""
    for i in range(numbers.shape[0]):
        out[i] = numbers[i]


# ---- shared history -----------------------------------------------------------------------------


@inner_kernel
def is_due(span: SpanArrays, g: int, now: int, n_steps: int) -> bool:
    """Return whether a flush group's pending updates must be written before its next steps."""
    is_full = span.n_pending[g] + n_steps > span.limit[g]
    waits_long = now + n_steps - span.flushed_at[g] > span.longest_wait
    return bool(span.n_pending[g] > 0 and (is_full or waits_long))


@inner_kernel
def set_kinds(span: SpanArrays, g: int, now: int, n_steps: int) -> None:
    """Set the kind of a flush group's next steps."""
    mask = span.bits.shape[0] - 1
    drop_idle_tail(span, g, now)
    for k in range(n_steps):
        policy = span.only_policy[g]
        kind = LEARNS
        is_zero = (
            policy >= 0
            and not span.signal_rho[(now + 1 + k) % span.signal_rho.shape[0], policy] > 0
        )
        if is_zero and span.rests:
            kind = IDLE
            if span.every_step and span.has_w:
                kind = DECAYS
        span.kind[g, (now + k) & mask] = kind


@inner_kernel
def drop_idle_tail(span: SpanArrays, g: int, now: int) -> None:
    """Drop the tail of a flush group that has skipped every step since its last flush: its traces are zero."""
    if span.n_pending[g] == 0 and now > span.flushed_at[g]:
        span.flushed_at[g] = now
        span.tail_from[g] = now


@inner_kernel
def find_oldest(span: SpanArrays, now: int) -> None:
    """Set the oldest time that a flush group still needs."""
    oldest = now
    for g in range(span.tail_from.shape[0]):
        oldest = min(oldest, span.tail_from[g])
    span.clock[OLDEST] = oldest


@inner_kernel
def flush_group(span: SpanArrays, entry: Any, g: int, now: int) -> int:
    """Write a flush group's pending updates from before `now`, and shorten its tail to the steps still needed.

    Returns:
        The length of the tail in steps.
    """
    list_history(span, g, now)
    tail = 0
    span.clock[FLUSHED] = now
    for thread in range(span.tail_needed.shape[0]):
        span.tail_needed[thread] = 0
    on_threads(entry, span, span.n_threads, -1 - g)
    on_threads(entry, span, span.n_threads, BASES + g)
    for thread in range(span.tail_needed.shape[0]):
        tail = max(tail, span.tail_needed[thread])
    span.flushed_at[g] = now
    span.tail_from[g] = now - tail
    span.n_pending[g] = 0
    span.limit[g] = span.period
    return int(tail)


@inner_kernel
def flush_due_groups(span: SpanArrays, entry: Any, now: int, n_steps: int) -> int:
    """Write the pending updates that must be written before the next steps, and return the longest tail in steps."""
    longest = np.int64(0)
    for g in range(span.flushed_at.shape[0]):
        if is_due(span, g, now, n_steps):
            longest = max(longest, flush_group(span, entry, g, now))
    return int(longest)


@inner_kernel
def count_pending(span: SpanArrays, now: int, n_steps: int) -> None:
    """Count the steps that were not idle."""
    mask = span.bits.shape[0] - 1
    for g in range(span.n_pending.shape[0]):
        for k in range(n_steps):
            span.n_pending[g] += span.kind[g, (now + k) & mask] != IDLE


# ---- work of each thread ------------------------------------------------------------------------


@inner_kernel
def advance_lanes(span: SpanArrays, b: int, lane: int, how: tuple[int, int], zero: Any) -> None:
    """Process the last steps of some lanes of a block; `how`: the number of steps, and the thread.

    Idle steps inside a batch compute no predictions.
    """
    n_steps, thread = how
    mask = span.bits.shape[0] - 1
    n = lanes_of(zero)
    first_time = span.clock[NOW] - n_steps
    g = span.flush_group[b]
    of_theta = span.precomputed[thread, 0]
    of_w = span.precomputed[thread, 1]
    is_behind = False
    if n_steps > 1:
        store(of_theta, 0, load(span.base, lane, zero))
        precompute_bases(span, span.theta, b, lane, n_steps, of_theta, zero)
        if span.has_w:
            store(of_w, 0, load(span.base_w, lane, zero))
            precompute_bases(span, span.w, b, lane, n_steps, of_w, zero)
    for k in range(n_steps):
        load_signals(span, lane, lane + n, (first_time + k + 1) % span.signal_rho.shape[0])
        if span.kind[g, (first_time + k) & mask] == IDLE and k + 1 < n_steps:
            skip_step(span, lane, zero)
            is_behind = True
            continue
        if n_steps > 1:
            store(span.base, lane, load(of_theta, k * n, zero))
            store(span.base_w, lane, load(of_w, k * n, zero))
            if is_behind:
                predict_lanes(span, b, lane, first_time + k, span.overlap[k], zero)
                is_behind = False
            store(span.base, lane, load(of_theta, (k + 1) * n, zero))
        learn(span, b, lane, first_time + k, span.overlap[k + 1], zero)
    if n_steps > 1:
        store(span.base_w, lane, load(of_w, n_steps * n, zero))


advance_all_lanes = over_block(advance_lanes)


@inner_kernel
def move_bases(span: SpanArrays, b: int, n_steps: int) -> None:
    """Update base and base_w of a block to what its next `n_steps` steps begin with.

    For one step base is that of the state reached, and base_w, if the step needs it, that of the
    state left.
    """
    first_time = span.clock[NOW] - n_steps
    active = span.active[first_time % span.active.shape[0]]
    kind = span.kind[span.flush_group[b], first_time & (span.bits.shape[0] - 1)]
    if span.has_w and span.w_at[b] != first_time and (n_steps > 1 or kind != IDLE):
        if n_steps == 1 and span.w_at[b] == first_time - 1:
            move_base(span, b, (span.w, first_time, span.base_w))
        else:
            sum_base(span, b, (span.w, active, span.base_w))
        span.w_at[b] = first_time
    if n_steps == 1:
        move_base(span, b, (span.theta, first_time + 1, span.base))


@inner_kernel
def move_base_average(span: SpanArrays, b: int, n_steps: int) -> None:
    """Update a block's average.phi to the current time, `n_steps` after that of the sums."""
    time = span.clock[NOW]
    if span.average.shape[0] == 0:
        return
    if n_steps == 1:
        move_base(span, b, (span.average, time, span.base_average))
    else:
        sum_base_average(span, b, time)


@inner_kernel
def begin_lanes(span: SpanArrays, b: int, lane: int, now: int, zero: Any) -> None:
    """Predict at the current time and clear the traces of some lanes."""
    predict_lanes(span, b, lane, now, span.overlap[1], zero)
    end_trace(span, lane, zero)


begin_all_lanes = over_block(begin_lanes)


@inner_kernel
def begin_block(span: SpanArrays, b: int) -> None:
    """Predict at the current time and clear the traces of a block."""
    time = span.clock[NOW]
    move_base(span, b, (span.theta, time, span.base))
    move_base_average(span, b, 1)
    begin_all_lanes(span, b, time)
    write_predictions(span, span.start[b], span.start[b + 1])


def do_task(span: SpanArrays, thread: int, task: int) -> int:
    """Begin a stream or process `task` steps for every n_threads-th block, or flush lanes of group -1 - task.

    A flush is followed by a task of its own, since the bases are sums over wider vectors than are
    written at a time.
    """
    if task >= BASES:
        g = int(task - BASES)
        for b in range(span.first_block[g] + thread, span.first_block[g + 1], span.n_threads):
            sum_bases_again(span, b, span.clock[FLUSHED])
    elif task == BEGIN:
        for b in range(thread, span.flush_group.shape[0], span.n_threads):
            begin_block(span, b)
    elif task > 0:
        for b in range(thread, span.flush_group.shape[0], span.n_threads):
            move_bases(span, b, task)
            advance_all_lanes(span, b, (task, thread))
            if task > 1:
                span.w_at[b] = span.clock[NOW]
            move_base_average(span, b, task)
            write_predictions(span, span.start[b], span.start[b + 1])
    else:
        g = -1 - task
        for b in range(span.first_block[g], span.first_block[g + 1]):
            flush_all_lanes(span, b, (span.clock[FLUSHED], thread))
    return 0


def sum_trace_task(span: SpanArrays, thread: int, task: int) -> int:
    """Sum e.w, e.S.phi and e.S.e of a thread's lanes of flush group `task`."""
    for b in range(span.first_block[task], span.first_block[task + 1]):
        sum_trace(span, b, thread)
    return 0


def average_task(span: SpanArrays, thread: int, task: int) -> int:
    """Move the averaged weights of a thread's lanes of flush group `task` toward theta by the `rates`."""
    for b in range(span.first_block[task], span.first_block[task + 1]):
        average_all_lanes(span, b, thread)
    return 0


# ---- called from Python -------------------------------------------------------------------------


@inner_kernel
def findings(span: SpanArrays, longest_tail: int) -> int:
    """Return flags: a demon is flagged, a tail is too long."""
    n = 0
    for i in range(span.is_flagged.shape[0]):
        n += span.is_flagged[i] > 0
    return DEMON_DIVERGED * (n > 0) + TAIL_TOO_LONG * (longest_tail > span.largest_tail)


@inner_kernel
def take_steps(span: SpanArrays, entry: Any, n_steps: int) -> int:
    """Process the last `n_steps` queued steps for all demons, and return flags."""
    first_time = span.clock[NOW] - n_steps
    longest = flush_due_groups(span, entry, first_time, n_steps)
    for g in range(span.flushed_at.shape[0]):
        set_kinds(span, g, first_time, n_steps)
    prepare(span, first_time, n_steps)
    on_threads(entry, span, span.n_threads, n_steps)
    count_pending(span, first_time, n_steps)
    return int(findings(span, longest))


@inner_kernel
def prepare(span: SpanArrays, now: int, n_steps: int) -> None:
    """Compute the overlaps of the next feature vectors with the past and, for a batch, the runs."""
    mask = span.bits.shape[0] - 1
    find_oldest(span, now)
    for k in range(1 if n_steps == 1 else 0, n_steps + 1):
        write_overlaps(span, now + k, span.bits[(now + k) & mask], span.overlap[k])
    if span.has_scales:
        for k in range(n_steps + 1):
            write_norm(span, now + k)
    if n_steps > 1:
        for k in range(n_steps + 1):
            span.run_time[BATCH, k] = now + k
        list_runs(span, BATCH, n_steps + 1)


@kernel
def step(
    span: SpanArrays,
    entry: Any,
    signals: Signals,
    tiles_tp1: Integers,
    m_step: float,
    is_last: bool,
    n_steps: int,
) -> int:
    """Queue the step to `tiles_tp1`, (n_active,); process the last `n_steps`, if any, and return flags."""
    enqueue_signals(span, signals, tiles_tp1, m_step, is_last)
    if n_steps > 0:
        return int(take_steps(span, entry, n_steps))
    return 0


@kernel
def take(span: SpanArrays, entry: Any, n_steps: int) -> int:
    """Call `take_steps` from Python."""
    return int(take_steps(span, entry, n_steps))


@kernel
def flush_ahead(span: SpanArrays, entry: Any) -> int:
    """Write the pending updates that the next step would write first, and return flags."""
    return int(findings(span, flush_due_groups(span, entry, span.clock[NOW], 1)))


@kernel
def flush(span: SpanArrays, entry: Any, wait: int) -> int:
    """Write the pending updates of groups that have waited for `wait` steps or longer, and return flags.

    Those of one policy take turns from here on.
    """
    longest = np.int64(0)
    for g in range(span.flushed_at.shape[0]):
        drop_idle_tail(span, g, span.clock[NOW])
        if span.n_pending[g] > 0 and span.clock[NOW] - span.flushed_at[g] >= wait:
            longest = max(longest, flush_group(span, entry, g, span.clock[NOW]))
            span.limit[g] = span.limit_of_turn[g]
    return int(findings(span, longest))


@kernel
def begin(span: SpanArrays, entry: Any, tiles: Integers) -> None:
    """Begin a stream at `tiles`, shape (n_active,): clear every trace and predict."""
    for g in range(span.flushed_at.shape[0]):
        if span.n_pending[g] == 0:
            span.flushed_at[g] = max(span.clock[NOW], 0)
            span.tail_from[g] = max(span.clock[NOW], 0)
    observe(span, tiles)
    time = span.clock[NOW]
    mask = span.bits.shape[0] - 1
    for g in range(span.kind.shape[0]):
        span.kind[g, (time - 1) & mask] = IDLE
    find_oldest(span, time)
    write_overlaps(span, time, span.bits[time & mask], span.overlap[1])
    on_threads(entry, span, span.n_threads, BEGIN)


@kernel
def each_group(span: SpanArrays, entry: Any, groups: Integers) -> None:
    """List the history of each of these flush groups, (n,), and call `sum_trace_task` or `average_task` with it."""
    for g in groups:
        list_history(span, g, span.clock[NOW])
        on_threads(entry, span, span.n_threads, g)


@kernel
def sum_bases(span: SpanArrays, active: Integers) -> None:
    """Write theta.phi and w.phi at the current rows, (n_active,), from the weights as written."""
    for b in range(span.flush_group.shape[0]):
        sum_base(span, b, (span.theta, active, span.base))
        if span.has_w:
            sum_base(span, b, (span.w, active, span.base_w))
        sum_base_average(span, b, span.clock[NOW])
        span.w_at[b] = span.clock[NOW]


# ---- reading without a change -------------------------------------------------------------------


@inner_kernel
def add_pending(span: SpanArrays, b: int, lane: int, how: tuple[Reals, Reals], zero: Any) -> None:
    """Add pending updates to predictions from the weights as written; `how`: overlaps (T,), predictions (L,)."""
    overlap, out = how
    _, sums = scan(span, b, lane, span.clock[NOW], overlap, zero)
    change = changes(span.rule, sums).theta
    store(out, lane, multiply_add(load(span.alpha, lane, zero), change, load(out, lane, zero)))


add_all_pending = over_block(add_pending)


@kernel
def predict(
    span: SpanArrays,
    tiles: Integers,
    blocks: Integers,
    bits: Any,
    rows: Integers,
    overlap: Reals,
    out: Reals,
) -> None:
    """Write theta.phi at tiles, (n_active,), for the lanes of blocks[0]..blocks[1] - 1, into out, shape (L,).

    bits (n / 64,), rows (n_active,) and overlap (T,) are scratch and must be zero.
    """
    n = 0
    time = span.clock[NOW]
    for i in range(tiles.shape[0]):
        row = span.row_of[tiles[i]]
        if row >= 0:
            bits[row >> 6] |= np.uint64(1) << np.uint64(row & 63)
            rows[n] = row
            n += 1
    find_oldest(span, time)
    write_overlaps(span, time, bits, overlap)
    for b in range(blocks[0], blocks[1]):
        sum_base(span, b, (span.theta, rows[:n], out))
        add_all_pending(span, b, (overlap, out))


@kernel
def sum_averages(
    span: SpanArrays, tiles: Integers, blocks: Integers, rows: Integers, out: Reals
) -> None:
    """Write average.phi at tiles, (n_active,), for the lanes of blocks[0]..blocks[1] - 1, into out, shape (L,).

    rows, (n_active,), is scratch.
    """
    n = 0
    for i in range(tiles.shape[0]):
        row = span.row_of[tiles[i]]
        if row >= 0:
            rows[n] = row
            n += 1
    for b in range(blocks[0], blocks[1]):
        sum_base(span, b, (span.average, rows[:n], out))


@kernel
def list_group(span: SpanArrays, g: int) -> None:
    """List the runs that `read_block` needs of a flush group."""
    list_history(span, g, span.clock[NOW])


@inner_kernel
def read_lanes(
    span: SpanArrays, b: int, lane: int, weights: tuple[Reals, Reals, Reals], zero: Any
) -> None:
    """Add lanes' pending updates to copies of their block's rows, each of shape (rows in use times lanes,)."""
    start = span.start[b]
    table = span.table[0]
    tabulate_coefficients(span, b, lane, span.clock[NOW], table, zero)
    write_lanes(
        span, b, lane, table, weights, lane - start, CHUNK * (span.start[b + 1] - start), zero
    )


read_all_lanes = over_block(read_lanes)


@kernel
def read_block(span: SpanArrays, b: int, theta: Reals, w: Reals, m: Reals) -> None:
    """Add a block's pending updates to copies of its rows, shape (rows in use times lanes,); see `list_group`."""
    read_all_lanes(span, b, (theta, w, m))
