"""A step of one vector of lanes without stored traces and without dense passes, for any update rule.

With e_t = rho_t (phi_t + g_t e_{t-1}), g_t = gamma_t lambda_t, the changes of the weights since
they were written as theta_0 and w_0 are sums over the steps k since then. A step stores

    c_k = rho_k g_{k+1},   d_k = rho_k delta_k,   h_k and q_k: the rule's multiples of phi_{k+1} and phi_k

With the overlaps G(k, j) = phi_k.phi_j, shared by all demons, one scan over these steps gives all
that a step to time j = t + 1 needs (`scan`): the sums of d_k u_k, h_k G(k+1, j) and q_k G(k, j), with

    u_k = G(k, j) + v_{k-1} = e_k.phi_j / rho_k,    v_k = c_k u_k = g_{k+1} e_k.phi_j

theta_0.phi_j is updated by the rows of the features that switched on and off (`writing.py`). The
remaining terms are inner products of the trace, which have recursions of their own
(`lanes.trace_products`):

    e_t.w_t       = rho_t (w_t.phi_t + g_t e_{t-1}.w_t)
    |e_t|^2       = rho_t^2 (|phi_t|^2 + 2 g_t e_{t-1}.phi_t + g_t^2 |e_{t-1}|^2)
    e_t.phi_{t+1} = rho_t (G(t, t+1) + g_t e_{t-1}.phi_{t+1})

What d, h and q are, and how the sums move the weights, is the rule's: its file has the kernels
listed in `lanes.py`.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from horde_agent.kernels._jit import inlined_kernel, inner_kernel
from horde_agent.kernels.lanes import (
    Lanes,
    LaneStep,
    Mask,
    Pending,
    Sums,
    Trace,
    Update,
    trace_products,
)
from horde_agent.kernels.rules import (
    add_step,
    changes,
    decay_factor,
    gain,
    lane_step,
    scan_decay,
    scan_term,
    trace_source,
)
from horde_agent.kernels.span.arrays import (
    DECAYS,
    IDLE,
    LEARNS,
    OLDEST,
    SpanArrays,
)
from horde_agent.kernels.trace_rules import next_lambda_of_lanes
from horde_agent.kernels.vectors import (
    absolute,
    any_true,
    choose,
    lanes_of,
    load,
    multiply_add,
    store,
)
from horde_agent.types import Reals


class Places(NamedTuple):
    """Positions of the lanes' numbers of past steps in the arrays of a block."""

    first_of_c: int  # in `c` and `factor`
    mask_of_c: int
    first_of_d: int  # in `d`, `h` and `q`
    flushed_at: int
    width: int  # lanes of the block


@inlined_kernel
def places_of(span: SpanArrays, b: int, lane: int) -> Places:
    """Return where the lanes from `lane` on, in block b, have their numbers of past steps."""
    start = span.start[b]
    n_lanes = span.policy.shape[0]
    places_of_c = span.c.shape[0] // n_lanes
    places_of_d = span.d.shape[0] // n_lanes
    return Places(
        first_of_c=places_of_c * start + lane - start,
        mask_of_c=places_of_c - 1,
        first_of_d=places_of_d * start + lane - start,
        flushed_at=span.flushed_at[span.flush_group[b]],
        width=span.start[b + 1] - start,
    )


@inlined_kernel
def in_ring(places: Places, time: int) -> int:
    """Return the index of a time in `c` and `factor`."""
    return places.first_of_c + (time & places.mask_of_c) * places.width


@inlined_kernel
def in_pending(places: Places, time: int) -> int:
    """Return the index of a pending step in `d`, `h` and `q`."""
    return places.first_of_d + (time - places.flushed_at) * places.width


@inlined_kernel
def load_factor(span: SpanArrays, has_factor: int, ring: int, zero: Lanes) -> Lanes:
    """Return the stored factor of phi or of w, 1 if the rule has none."""
    if has_factor:
        return load(span.factor, ring, zero)
    return zero + 1.0


@inlined_kernel
def load_q(span: SpanArrays, at: int, zero: Lanes) -> Lanes:
    """Return q of a pending step, 0 if the rule stores none."""
    if span.has_q:
        return load(span.q, at, zero)
    return zero


@inlined_kernel
def load_pending(span: SpanArrays, at: int, ring: int, zero: Lanes) -> Pending:
    """Return the stored numbers of a step in which the demons learned; `at` and `ring` are its indices."""
    h = zero
    if span.has_h:
        h = load(span.h, at, zero)
    return Pending(
        d=load(span.d, at, zero),
        h=h,
        q=load_q(span, at, zero),
        source=load_factor(span, span.has_source, ring, zero),
        w_factor=load_factor(span, span.has_w_factor, ring, zero),
    )


@inlined_kernel
def enter_trace(span: SpanArrays, ring: int, common: float, trace: Lanes, zero: Lanes) -> Lanes:
    """Return u_k = e_k.phi / rho_k of a step with phi_k.phi = `common`, given g_k e_{k-1}.phi."""
    if span.has_source:
        return multiply_add(load(span.factor, ring, zero), common, trace)
    return trace + common


@inner_kernel
def scan(
    span: SpanArrays, b: int, lane: int, now: int, overlap: Reals, zero: Lanes
) -> tuple[Lanes, Sums]:
    """Sum the steps before `now` against a feature vector phi, given its overlaps from `clock[OLDEST]` on, shape (T,).

    Returns:
        g e.phi of the trace, decayed to `now`, and the sums, for the lanes from `lane` on in block
        b.
    """
    g = span.flush_group[b]
    mask = span.bits.shape[0] - 1
    oldest = span.clock[OLDEST]
    places = places_of(span, b, lane)
    trace = zero
    sums = Sums(d=zero, h=zero, q=zero)
    for k in range(span.tail_from[g], places.flushed_at):
        ring = in_ring(places, k)
        u = enter_trace(span, ring, overlap[k - oldest], trace, zero)
        trace = load(span.c, ring, zero) * u
    for k in range(places.flushed_at, now):
        kind = span.kind[g, k & mask]
        if kind == IDLE:
            trace = zero
            continue
        at = in_pending(places, k)
        ring = in_ring(places, k)
        common = overlap[k - oldest]
        shrinks = load_factor(span, span.has_w_factor, ring, zero)
        sums = scan_decay(span.rule, sums, load_q(span, at, zero), shrinks, common)
        if kind == DECAYS:
            trace = zero
            continue
        u = enter_trace(span, ring, common, trace, zero)
        sums = scan_term(
            span.rule, sums, load_pending(span, at, ring, zero), u, overlap[k + 1 - oldest]
        )
        trace = load(span.c, ring, zero) * u
    return trace, sums


@inlined_kernel
def norm_at(span: SpanArrays, time: int) -> float:
    """Return phi.S.phi of the feature vector of a time."""
    if span.has_scales:
        norm: float = span.norm[time % span.norm.shape[0]]
        return norm
    return float(span.n_active)


@inlined_kernel
def value_of(span: SpanArrays, lane: int, sums: Sums, zero: Lanes) -> Lanes:
    """Return theta.phi from that of the weights as written, `base`, and the sums."""
    change = changes(span.rule, sums).theta
    return multiply_add(load(span.alpha, lane, zero), change, load(span.base, lane, zero))


@inlined_kernel
def w_value_of(span: SpanArrays, lane: int, sums: Sums, zero: Lanes) -> Lanes:
    """Return w.phi from that of the weights as written, `base_w`, and the sums; 0 without w."""
    if span.has_w:
        change = changes(span.rule, sums).w
        written = load(span.base_w, lane, zero) * load(span.w_left, lane, zero)
        return multiply_add(load(span.alpha_w, lane, zero), change, written)
    return zero


@inlined_kernel
def load_sums(span: SpanArrays, lane: int, zero: Lanes) -> Sums:
    """Return the sums against phi_t."""
    return Sums(
        d=load(span.d_sum, lane, zero),
        h=load(span.h_sum, lane, zero),
        q=load(span.q_sum, lane, zero),
    )


@inlined_kernel
def store_sums(span: SpanArrays, lane: int, sums: Sums) -> None:
    """Write the sums against phi_t."""
    store(span.d_sum, lane, sums.d)
    store(span.h_sum, lane, sums.h)
    store(span.q_sum, lane, sums.q)


@inner_kernel
def load_signals(span: SpanArrays, first: int, last: int, slot: int) -> None:
    """Copy this step's rho, cumulants, gamma, lambda, skips and outcomes into lanes [first, last)."""
    rho = span.signal_rho[slot]
    c = span.signal_c[slot]
    for i in range(first, last):  # one array at a time: numba vectorises only such loops
        span.rho[i] = rho[span.policy[i]]
    for i in range(first, last):
        span.c_tp1[i] = c[span.cumulant[i]]
    if span.signal_changes[slot, 0]:
        gamma = span.signal_gamma[slot]
        lam = span.signal_lam[slot]
        for i in range(first, last):
            span.gamma_tp1[i] = gamma[span.trace_group[i]]
            span.lam_tp1[i] = lam[span.trace_group[i]]
        skips = span.signal_skips[slot]
        for i in range(first, last):
            span.skips[i] = skips[span.trace_group[i]]
        if span.has_interest:
            interest = span.signal_interest[slot]
            for i in range(first, last):
                span.interest[i] = interest[span.outcome[i]]
    if span.signal_changes[slot, 1]:
        z = span.signal_z[slot]
        for i in range(first, last):
            span.c_tp1[i] += (1 - span.gamma_tp1[i]) * z[span.outcome[i]]


@inner_kernel
def predict_lanes(
    span: SpanArrays, b: int, lane: int, now: int, overlap: Reals, zero: Lanes
) -> None:
    """Update the prediction and the pending sums to `now`, given overlaps, (T,); the base is up to date."""
    _, sums = scan(span, b, lane, now, overlap, zero)
    store_sums(span, lane, sums)
    store(span.prediction, lane, value_of(span, lane, sums, zero))


@inner_kernel
def end_trace(span: SpanArrays, lane: int, zero: Lanes) -> None:
    """Set the trace's inner products, and the rule's numbers that belong to a trace, to 0."""
    store(span.e_phi, lane, zero)
    store(span.e_w, lane, zero)
    store(span.e_e, lane, zero)
    store(span.e_sum, lane, zero)
    n_lanes = span.policy.shape[0]
    for number in range(span.n_numbers, span.numbers.shape[0] // n_lanes):
        store(span.numbers, number * n_lanes + lane, zero)


@inner_kernel
def skip_step(span: SpanArrays, lane: int, zero: Lanes) -> None:
    """Skip a step with rho = 0: clear traces, decay the MSPBE estimate.

    gamma_t and lam_t stay: until the next step that learns they multiply the trace, which is 0.
    """
    end_trace(span, lane, zero)
    estimate = load(span.mspbe, lane, zero)
    store(span.mspbe, lane, estimate - span.one_over_tau * estimate)


# ---- a step -------------------------------------------------------------------------------------


@inner_kernel
def learn(span: SpanArrays, b: int, lane: int, now: int, overlap: Reals, zero: Lanes) -> None:
    """Learn from the transition from phi_t, t = `now`, to phi_{t+1}, given the latter's overlaps, shape (T,).

    base and base_w are theta_0.phi_{t+1} and w_0.phi_t. A lane without a ratio, or with a
    non-finite signal, skips the step: its trace is cleared, its weights do not change, and its TD
    error is 0.
    """
    w_phi = w_value_of(span, lane, load_sums(span, lane, zero), zero)
    past_trace, sums = scan(span, b, lane, now, overlap, zero)
    value = value_of(span, lane, sums, zero)
    common = overlap[now - span.clock[OLDEST]]
    step = signals_of(span, lane, value, w_phi, past_trace, common, norm_at(span, now), zero)
    kind = span.kind[span.flush_group[b], now & (span.bits.shape[0] - 1)]
    if kind == LEARNS:
        step, is_small = step_within_range(span, lane, now, step, zero)
        step = bounded_step(span, lane, step, zero)
        trace = trace_products(
            span, lane, step, trace_source(span.rule, span, lane, step, zero), zero
        )
        update = lane_step(span.rule, span, lane, step, trace, zero)

        added = Sums(
            d=update.delta * trace.phi_tp1,
            h=update.h * norm_at(span, now + 1),
            q=update.q * step.overlap,
        )
        value = value + load(span.alpha, lane, zero) * changes(span.rule, added).theta
        store(span.prediction, lane, value)
        store_sums(span, lane, add_step(span.rule, sums, update, added, step.overlap))
        fill_rings(span, places_of(span, b, lane), lane, now, step, trace, update, zero)
        update_estimates(span, lane, value, step, trace, update.e_w, zero)
        flag(span, lane, is_small, zero)
    else:
        rest_lanes(span, b, lane, now, kind, step, sums, value, zero)


@inlined_kernel
def signals_of(
    span: SpanArrays,
    lane: int,
    value: Lanes,
    w_phi: Lanes,
    past_trace: Lanes,
    overlap: float,
    norm: float,
    zero: Lanes,
) -> LaneStep:
    """Return a step's signals and its TD error, given theta_t.phi_{t+1} and w_t.phi_t; lambda is the question's."""
    rho = load(span.rho, lane, zero)
    gamma = load(span.gamma_tp1, lane, zero)
    lam = load(span.lam_tp1, lane, zero)
    c_tp1 = load(span.c_tp1, lane, zero)
    total = gamma + lam + c_tp1
    if span.has_interest:
        total = total + load(span.interest, lane, zero)
    has_rho = load(span.skips, lane, zero) < 1.0
    is_finite = absolute(choose(has_rho, total, zero + np.inf)) <= span.max_finite
    gamma = choose(is_finite, gamma, zero)
    delta = c_tp1 + gamma * value - load(span.prediction, lane, zero)
    return LaneStep(
        rho=choose(is_finite, rho, zero),
        gamma=gamma,
        lam=choose(is_finite, lam, zero),
        decay=load(span.gamma_t, lane, zero) * load(span.lam_t, lane, zero),
        delta=choose(is_finite, delta, zero),
        w_phi=choose(is_finite, w_phi, zero),
        is_finite=is_finite,
        fraction=step_fraction(span, lane, zero),
        past_trace=past_trace,
        norm=norm,
        overlap=overlap,
    )


@inlined_kernel
def step_fraction(span: SpanArrays, lane: int, zero: Lanes) -> Lanes:
    """Return alpha_t / alpha, which keeps alpha_t e_k.S.phi_k at or below 1 for all steps k since the classification.

    1 where S is 1. A larger step would take theta_t.phi_t beyond its target: above 2 such steps diverge. The factor
    is that of all states, and falls to its value within a few steps: a factor that depends on rho_t in each step
    would evaluate another policy.
    """
    if span.has_scales:
        return 1.0 / excess(span, lane, zero)
    return zero + 1.0


@inlined_kernel
def excess(span: SpanArrays, lane: int, zero: Lanes) -> Lanes:
    """Return alpha / alpha_t: the largest gain since the classification, at least 1."""
    largest = load(span.largest_gain, lane, zero)
    return choose(largest > 1.0, largest, zero + 1.0)


@inlined_kernel
def bounded_step(span: SpanArrays, lane: int, step: LaneStep, zero: Lanes) -> LaneStep:
    """Return a step with its `fraction`, after its own gain was recorded."""
    if span.has_scales:
        new = load(span.alpha, lane, zero) * gain(span.rule, span, lane, step, zero)
        largest = load(span.largest_gain, lane, zero)
        store(span.largest_gain, lane, choose(new > largest, new, largest))
    return LaneStep(
        rho=step.rho,
        gamma=step.gamma,
        lam=step.lam,
        decay=step.decay,
        delta=step.delta,
        w_phi=step.w_phi,
        is_finite=step.is_finite,
        fraction=step_fraction(span, lane, zero),
        past_trace=step.past_trace,
        norm=step.norm,
        overlap=step.overlap,
    )


@inlined_kernel
def fill_rings(
    span: SpanArrays,
    places: Places,
    lane: int,
    now: int,
    step: LaneStep,
    trace: Trace,
    update: Update,
    zero: Lanes,
) -> None:
    """Store what a step in which the demons learned adds to the history, and its inner products of the trace."""
    ring = in_ring(places, now)
    at = in_pending(places, now)
    store(span.c, ring, step.rho * (step.gamma * step.lam))
    if span.has_source:
        store(span.factor, ring, trace.source)
    store(span.d, at, step.rho * update.delta)
    if span.cut.shape[0] > 0:
        store(span.cut, at, excess(span, lane, zero))
    if span.has_h:
        store(span.h, at, update.h)
    store_decay(span, lane, ring, at, update, zero)
    store(span.e_phi, lane, trace.phi_tp1)
    store(span.e_w, lane, update.e_w)
    store(span.e_e, lane, trace.squared)
    store(span.e_sum, lane, trace.total)
    store(span.gamma_t, lane, step.gamma)
    store(span.lam_t, lane, step.lam)


@inlined_kernel
def update_estimates(
    span: SpanArrays,
    lane: int,
    value: Lanes,
    step: LaneStep,
    trace: Trace,
    e_w: Lanes,
    zero: Lanes,
) -> None:
    """Update the largest trace and the scalar MSPBE estimate, and flag numbers that are not finite.

    `e_w` is e_t.w_{t+1}.
    """
    largest = load(span.max_trace, lane, zero)
    store(span.max_trace, lane, choose(trace.total > largest, trace.total, largest))
    estimate = load(span.mspbe, lane, zero)
    if span.has_w:
        estimate = estimate + span.one_over_tau * (step.delta * trace.w - estimate)
    store(span.mspbe, lane, estimate)
    flag(span, lane, absolute(value + estimate + e_w) <= span.max_finite, zero)


@inlined_kernel
def step_within_range(
    span: SpanArrays, lane: int, now: int, signals: LaneStep, zero: Lanes
) -> tuple[LaneStep, Mask]:
    """Return a step with lambda_{t+1} of the trace rule, and with delta 0 where it is too large; and where it is not.

    The TD error is stored as it was.
    """
    largest_entry = signals.rho * (1.0 + signals.decay * load(span.e_sum, lane, zero))
    is_small = absolute(signals.delta * largest_entry) < span.largest_step
    store(span.td_error, lane, signals.delta)
    add_error(span, lane, signals.rho * signals.delta, signals.delta, zero)
    b = span.signal_b[(now + 1) % span.signal_b.shape[0]]
    step = LaneStep(
        rho=signals.rho,
        gamma=signals.gamma,
        lam=next_lambda_of_lanes(
            span.trace_rule, span.trace_bound, signals.lam, signals.rho, b, zero
        ),
        decay=signals.decay,
        delta=choose(is_small, signals.delta, zero),
        w_phi=signals.w_phi,
        is_finite=signals.is_finite,
        fraction=signals.fraction,
        past_trace=signals.past_trace,
        norm=signals.norm,
        overlap=signals.overlap,
    )
    return step, is_small


@inlined_kernel
def add_error(span: SpanArrays, lane: int, weighted: Lanes, delta: Lanes, zero: Lanes) -> None:
    """Add rho delta, which is `weighted`, and rho delta^2 to the sums of TD errors; nothing where rho = 0."""
    store(span.error_sum, lane, load(span.error_sum, lane, zero) + weighted)
    squares = load(span.error_square, lane, zero)
    store(span.error_square, lane, squares + weighted * delta)


@inlined_kernel
def store_decay(
    span: SpanArrays, lane: int, ring: int, at: int, update: Update, zero: Lanes
) -> None:
    """Store the numbers that a step of w alone has, too: q, and the factor of w."""
    if span.has_q:
        store(span.q, at, update.q)
    if span.has_w_factor:
        store(span.factor, ring, update.w_factor)
        store(span.w_left, lane, update.w_factor * load(span.w_left, lane, zero))


@inlined_kernel
def rest_lanes(
    span: SpanArrays,
    b: int,
    lane: int,
    now: int,
    kind: int,
    step: LaneStep,
    sums: Sums,
    value: Lanes,
    zero: Lanes,
) -> None:
    """Take a step in which every ratio is 0: the trace ends; w decays under the w rule "every-step"."""
    skip_step(span, lane, zero)
    store(span.td_error, lane, choose(absolute(step.delta) <= span.max_finite, step.delta, zero))
    q = zero
    if kind == DECAYS:
        factor = decay_factor(span.rule, span, lane, step, zero)
        q = step.fraction * step.w_phi
        update = Update(delta=zero, h=zero, q=q, w_factor=factor, e_w=zero)
        added = Sums(d=zero, h=zero, q=q * step.overlap)
        value = value + load(span.alpha, lane, zero) * changes(span.rule, added).theta
        sums = add_step(span.rule, sums, update, added, step.overlap)
        places = places_of(span, b, lane)
        store_decay(span, lane, in_ring(places, now), in_pending(places, now), update, zero)
    flag(span, lane, absolute(value + q) <= span.max_finite, zero)
    store(span.prediction, lane, value)
    store_sums(span, lane, sums)
    store(span.gamma_t, lane, step.gamma)
    store(span.lam_t, lane, step.lam)


@inlined_kernel
def flag(span: SpanArrays, lane: int, is_sound: Mask, zero: Lanes) -> None:
    """Flag the lanes that are not sound."""
    store(span.is_flagged, lane, choose(is_sound, load(span.is_flagged, lane, zero), zero + 1.0))


@inner_kernel
def tail_needed(span: SpanArrays, b: int, lane: int, now: int, top: Reals, zero: Lanes) -> int:
    """Return the number of steps before `now` that still affect the lanes' traces; `top`, any shape, is scratch.

    Compared with an active feature's 1, the steps before k weigh at most (product of c from k on)
    top_{k-1}, with top_k = c_k (1 + top_{k-1}) the sum of the factors. Under "clipped", c <= gamma
    lambda: the weight can only shrink, so that a dropped tail stays below `drop_below`. Under
    "plain" it may grow again, and only a tail of exactly 0 is dropped.
    """
    g = span.flush_group[b]
    mask = span.bits.shape[0] - 1
    n = lanes_of(zero)
    places = places_of(span, b, lane)
    first = now
    flushed_at = places.flushed_at
    while first > span.tail_from[g] and (
        first <= flushed_at or span.kind[g, (first - 1) & mask] == LEARNS
    ):
        first -= 1
    reach = zero
    for k in range(first, now):
        ring = in_ring(places, k)
        entering = absolute(load_factor(span, span.has_source, ring, zero))
        reach = load(span.c, ring, zero) * (entering + reach)
        store(top, (k - first) * n, reach)
    reach = zero + 1.0
    k = now - 1
    while k >= first and any_true(reach * load(top, (k - first) * n, zero) > span.drop_below):
        reach = reach * load(span.c, in_ring(places, k), zero)
        k -= 1
    return int(now - 1 - k)
