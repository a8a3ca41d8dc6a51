"""GTD(lambda) without stored traces and without dense passes: one step of one vector of lanes.

With e_t = rho_t (phi_t + g_t e_{t-1}), g_t = gamma_t lambda_t, a demon keeps four numbers of each step,

    c_k = rho_k g_{k+1},   d_k = rho_k delta_k,   h_k = gamma_{k+1} (1 - lambda_{k+1}) e_k.w_k,   q_k = w_k.phi_k

and its weights as last written, theta_0 and w_0. With the overlaps G(k, j) = phi_k.phi_j, shared by all demons, one
scan over the steps since then gives all terms of a step to time j = t + 1 (`scan`):

    u_k = G(k, j) + v_{k-1} = e_k.phi_j / rho_k,    v_k = c_k u_k = g_{k+1} e_k.phi_j
    theta_t.phi_j = theta_0.phi_j + alpha   (sum_k d_k u_k - sum_k h_k G(k+1, j))
    w_t.phi_j     = w_0.phi_j     + alpha_w (sum_k d_k u_k - sum_k q_k G(k, j))

theta_0.phi_j is updated by the rows of the features that switched on and off (`writing.py`). The remaining terms are
inner products of the trace, which have recursions of their own (`learn`):

    e_t.w_t       = rho_t (q_t + g_t e_{t-1}.w_t)
    e_t.w_{t+1}   = e_t.w_t + alpha_w (delta_t |e_t|^2 - q_t e_t.phi_t)
    |e_t|^2       = rho_t^2 (|phi_t|^2 + 2 g_t e_{t-1}.phi_t + g_t^2 |e_{t-1}|^2)
    e_t.phi_{t+1} = rho_t (G(t, t+1) + g_t e_{t-1}.phi_{t+1})

Some rules have a second trace y_t = a_t y_{t-1} + b_t phi_t, which the same scan includes:

    e_t.y_t       = rho_t (y_t.phi_t + g_t (b_t e_{t-1}.phi_t + a_t e_{t-1}.y_{t-1}))

"has_difference": a_t = g_t and b_t = 1. phi_k - gamma_{k+1} phi_{k+1} replaces the phi_k of w and the phi_{k+1} of
    theta, with q_k = y_k.w_k and h_k = q_k - e_k.w_k.
"has_dutch": a_{t+1} = c_t. x is a trace like e with a factor of phi_k. With p_k = `extra`, theta moves by
    (d_k + p_k) x_k / rho_k - p_k phi_k and w by d_k y_k in the place of d_k e_k / rho_k.

Source: the updates are those of White, Modayil & Sutton (2012), GTD(lambda), as in `learning/plain`, reordered.
"""

from __future__ import annotations

from typing import Any

from horde_agent.kernels._jit import inner_kernel
from horde_agent.kernels.rules import on_lanes
from horde_agent.kernels.span.arrays import ABTD, CLIPPED, DECAYS, IDLE, LEARNS, OLDEST, TREE_BACKUP, SpanArrays
from horde_agent.kernels.vectors import absolute, any_true, choose, lanes_of, load, multiply_add, store
from horde_agent.types import Reals


@inner_kernel
def enter(span: SpanArrays, at: int, common: Any, v: Any, y: Any, x: Any, zero: Any) -> tuple[Any, Any, Any]:
    """Return e.phi / rho, y.phi and x.phi / rho at a step with phi_k.phi = `common`; `at` is its place in the rings."""
    u = multiply_add(load(span.factor, at, zero), common, v) if span.has_source else v + common
    if span.has_difference:
        y = y + common
    if span.has_dutch:
        y = multiply_add(load(span.second, at, zero), common, y)
        x = multiply_add(load(span.factor, at, zero), common, x)
    return u, y, x


@inner_kernel
def leave(span: SpanArrays, at: int, u: Any, y: Any, x: Any, zero: Any) -> tuple[Any, Any, Any]:
    """Return the results of `enter`, decayed to the next step."""
    c = load(span.c, at, zero)
    if span.has_difference:
        y = load(span.second, at, zero) * y
    if span.has_dutch:
        y, x = c * y, c * x
    return c * u, y, x


@inner_kernel
def scan(
    span: SpanArrays, b: int, lane: int, now: int, overlap: Reals, zero: Any
) -> tuple[Any, Any, Any, Any, Any, Any]:
    """Sum the steps before `now` against a feature vector, given its overlaps from `clock[OLDEST]` on, shape (T,).

    Returns:
        g e.phi, the same of y and x, sum d u, sum h G, sum q G for the lanes from `lane` on in block b. For a rule that
        shrinks w the last is the sum of d u - q G, each times the factors of w after it; with "has_dutch" it is the sum
        of q G - d y.phi.
    """
    g, mask, oldest = span.flush_group[b], span.bits.shape[0] - 1, span.clock[OLDEST]
    start, n_lanes = span.start[b], span.policy.shape[0]
    width, c_places, places = span.start[b + 1] - start, span.c.shape[0] // n_lanes, span.d.shape[0] // n_lanes
    in_c, in_rest, since = c_places * start + lane - start, places * start + lane - start, span.flushed_at[g]
    v, y, x, d_sum, h_sum, q_sum = zero, zero, zero, zero, zero, zero
    for k in range(span.tail_from[g], since):
        in_ring = in_c + (k & (c_places - 1)) * width
        u, y, x = enter(span, in_ring, overlap[k - oldest], v, y, x, zero)
        v, y, x = leave(span, in_ring, u, y, x, zero)
    for k in range(since, now):
        kind = span.kind[g, k & mask]
        if kind == IDLE:
            v, y, x = zero, zero, zero
            continue
        at, common = in_rest + (k - since) * width, overlap[k - oldest]
        in_ring = in_c + (k & (c_places - 1)) * width
        if span.shrinks_w:
            q_sum = multiply_add(load(span.factor, in_ring, zero), q_sum, zero - load(span.q, at, zero) * common)
        elif span.has_difference:
            difference = common - load(span.extra, at, zero) * overlap[k + 1 - oldest]
            q_sum = multiply_add(load(span.q, at, zero), difference, q_sum)
            h_sum = multiply_add(load(span.h, at, zero), difference, h_sum)
        elif span.has_w + span.adds_phi:
            q_sum = multiply_add(load(span.q, at, zero), common, q_sum)
        if kind == DECAYS:
            v, y, x = zero, zero, zero
            continue
        u, y, x = enter(span, in_ring, common, v, y, x, zero)
        d = load(span.d, at, zero)
        if span.has_dutch:
            p = load(span.extra, at, zero)
            d_sum = multiply_add(d + p, x, d_sum) - p * common
            q_sum = q_sum - d * y
        else:
            d_sum = multiply_add(d, u, d_sum)
        if span.shrinks_w:
            q_sum = multiply_add(d, u, q_sum)
        if span.has_w and not span.has_difference:
            h_sum = multiply_add(load(span.h, at, zero), overlap[k + 1 - oldest], h_sum)
        v, y, x = leave(span, in_ring, u, y, x, zero)
    return v, y, x, d_sum, h_sum, q_sum


@inner_kernel
def theta_sum(span: SpanArrays, d_sum: Any, h_sum: Any, q_sum: Any) -> Any:
    """Return the change of theta.phi over alpha from the sums of `scan`, or from those of one step."""
    if span.follows_w:
        return q_sum - h_sum
    return d_sum - q_sum if span.adds_phi else d_sum - h_sum


@inner_kernel
def next_lambda(span: SpanArrays, now: int, lam: Any, rho: Any, zero: Any) -> Any:
    """Return lambda_{t+1}, t = `now`, by the trace rule."""
    b = span.signal_b[(now + 1) % span.signal_b.shape[0]]
    if span.trace_rule == CLIPPED:
        scaled = rho * span.trace_bound
        return lam / choose(scaled > 1.0, scaled, zero + 1.0)
    if span.trace_rule == TREE_BACKUP:
        return lam * b
    if span.trace_rule == ABTD:
        lam = 1.0 / choose(rho > 1.0, rho, zero + 1.0)
        return choose(lam < span.trace_bound * b, lam, zero + span.trace_bound * b)
    return lam


@inner_kernel
def load_signals(span: SpanArrays, first: int, last: int, slot: int) -> None:
    """Copy this step's rho, cumulants, gamma, lambda and outcomes into lanes [first, last)."""
    rho, c = span.signal_rho[slot], span.signal_c[slot]
    for i in range(first, last):  # one array at a time: numba vectorises only such loops
        span.rho[i] = rho[span.policy[i]]
    for i in range(first, last):
        span.c_tp1[i] = c[span.cumulant[i]]
    if span.signal_changes[slot, 0]:
        gamma, lam = span.signal_gamma[slot], span.signal_lam[slot]
        for i in range(first, last):
            span.gamma_tp1[i], span.lam_tp1[i] = gamma[span.trace_group[i]], lam[span.trace_group[i]]
        if span.has_interest:
            interest = span.signal_interest[slot]
            for i in range(first, last):
                span.interest[i] = interest[span.outcome[i]]
    if span.signal_changes[slot, 1]:
        z = span.signal_z[slot]
        for i in range(first, last):
            span.c_tp1[i] += (1 - span.gamma_tp1[i]) * z[span.outcome[i]]


@inner_kernel
def predict_lanes(span: SpanArrays, b: int, lane: int, now: int, overlap: Reals, zero: Any) -> None:
    """Update the prediction and the pending sums to `now`, given overlaps, (T,); the base is up to date."""
    _, _, _, d_sum, h_sum, q_sum = scan(span, b, lane, now, overlap, zero)
    store(span.d_sum, lane, d_sum)
    store(span.h_sum, lane, h_sum)
    store(span.q_sum, lane, q_sum)
    alpha, base = load(span.alpha, lane, zero), load(span.base, lane, zero)
    store(span.prediction, lane, multiply_add(alpha, theta_sum(span, d_sum, h_sum, q_sum), base))


@inner_kernel
def end_trace(span: SpanArrays, lane: int, zero: Any) -> None:
    """Set the trace's inner products, and the rule's numbers that belong to a trace, to 0."""
    store(span.e_phi, lane, zero)
    store(span.e_w, lane, zero)
    store(span.e_e, lane, zero)
    store(span.e_sum, lane, zero)
    if span.has_second:
        store(span.y_phi, lane, zero)
        store(span.y_w, lane, zero)
        store(span.e_y, lane, zero)
        store(span.x_phi, lane, zero)
    for k in range(span.n_numbers, span.numbers.shape[0] // span.policy.shape[0]):
        store(span.numbers, k * span.policy.shape[0] + lane, zero)


@inner_kernel
def skip_step(span: SpanArrays, lane: int, zero: Any) -> None:
    """Skip a step with rho = 0: clear traces, decay the MSPBE estimate.

    gamma_t and lam_t stay: until the next step that learns they multiply the trace, which is 0.
    """
    end_trace(span, lane, zero)
    estimate = load(span.mspbe, lane, zero)
    store(span.mspbe, lane, estimate - span.one_over_tau * estimate)


@inner_kernel
def learn(span: SpanArrays, b: int, lane: int, now: int, overlap: Reals, zero: Any) -> None:
    """Learn from the transition from phi_t, t = `now`, to phi_{t+1}, given the latter's overlaps, shape (T,).

    base and base_w are theta_0.phi_{t+1} and w_0.phi_t. A lane with a non-finite signal skips the step: its trace is
    cleared, its weights do not change, and its TD error is 0.
    """
    g, oldest, norm = span.flush_group[b], span.clock[OLDEST], float(span.n_active)
    ring, at = ring_at(span, b, lane, now), pending_at(span, b, lane, now)
    kind, common = span.kind[g, now & (span.bits.shape[0] - 1)], overlap[now - oldest]
    rho, gamma, lam = load(span.rho, lane, zero), load(span.gamma_tp1, lane, zero), load(span.lam_tp1, lane, zero)
    c_tp1, alpha, alpha_w = load(span.c_tp1, lane, zero), load(span.alpha, lane, zero), load(span.alpha_w, lane, zero)
    q = load(span.d_sum, lane, zero) - load(span.q_sum, lane, zero)
    if span.shrinks_w:
        q = load(span.q_sum, lane, zero)
    if span.has_dutch:
        q = zero - load(span.q_sum, lane, zero)
    if span.has_w:
        w_left = load(span.w_left, lane, zero) if span.shrinks_w else zero + 1.0
        q = multiply_add(alpha_w, q, load(span.base_w, lane, zero) * w_left)
    else:
        q = zero
    g_e_phi, y, x, d_sum, h_sum, q_sum = scan(span, b, lane, now, overlap, zero)
    v = multiply_add(alpha, theta_sum(span, d_sum, h_sum, q_sum), load(span.base, lane, zero))

    is_finite = absolute(rho + gamma + lam + c_tp1) <= span.max_finite
    if span.has_interest:
        is_finite = absolute(rho + gamma + lam + c_tp1 + load(span.interest, lane, zero)) <= span.max_finite
    rho, gamma, lam = choose(is_finite, rho, zero), choose(is_finite, gamma, zero), choose(is_finite, lam, zero)
    q = choose(is_finite, q, zero)
    delta = choose(is_finite, c_tp1 + gamma * v - load(span.prediction, lane, zero), zero)
    factor, at_phi, change, y_decay, y_factor = zero + 1.0, zero, zero, zero, zero
    if kind == LEARNS:
        g_t = load(span.gamma_t, lane, zero) * load(span.lam_t, lane, zero)
        e_sum = rho * (1.0 + g_t * load(span.e_sum, lane, zero))
        is_small = absolute(delta * e_sum) < span.largest_step
        lam = next_lambda(span, now, lam, rho, zero)
        store(span.td_error, lane, delta)
        delta = choose(is_small, delta, zero)
        if span.has_lanes:
            delta, factor, at_phi, y_decay, y_factor = on_lanes(span.rule, span, lane, rho, delta, is_finite, zero)
        source = factor if span.has_source else zero + 1.0
        if span.has_source:
            e_sum = rho * (absolute(source) + g_t * load(span.e_sum, lane, zero))
        if span.has_dutch:
            source_of_both = choose(absolute(factor) > 1.0, absolute(factor), zero + 1.0)
            e_sum = rho * (source_of_both + g_t * load(span.e_sum, lane, zero))
        e_phi = load(span.e_phi, lane, zero)
        e_w = zero
        if span.has_w:
            e_w = choose(rho > 0.0, rho * (q + g_t * load(span.e_w, lane, zero)), zero)  # 0 even if w diverged
        e_e = rho * rho * (source * source * norm + g_t * (source * e_phi * 2.0 + g_t * load(span.e_e, lane, zero)))
        e_phi_t, e_phi_tp1 = rho * (source * norm + g_t * e_phi), rho * (source * common + g_e_phi)
        h = gamma * (1.0 - lam) * e_w
        if not span.every_step:
            q = q * rho
        if span.adds_phi:
            q = at_phi
        of_w, at_e, y_phi_t, y_phi_tp1, e_y = delta * e_e, e_phi_t, zero, zero, zero
        if span.has_second:
            y_phi_t, y_phi_tp1 = y_factor * norm + y_decay * load(span.y_phi, lane, zero), y_factor * common + y
            e_y = rho * (y_phi_t + g_t * (y_factor * e_phi + y_decay * load(span.e_y, lane, zero)))
            store(span.y_phi, lane, y_phi_tp1)
            store(span.e_y, lane, e_y)
        if span.has_difference:
            q, at_e = choose(is_finite, q + y_decay * load(span.y_w, lane, zero), zero), e_phi_t - gamma * e_phi_tp1
            h = q - e_w
            store(span.y_w, lane, q + alpha_w * (delta * e_y - q * (y_phi_t - gamma * y_phi_tp1)))
        if span.has_dutch:
            of_w = rho * delta * e_y
        estimate = load(span.mspbe, lane, zero)
        if span.has_w:
            estimate = estimate + span.one_over_tau * (delta * e_w - estimate)
            if span.shrinks_w:
                e_w = factor * e_w
            e_w = e_w + alpha_w * (of_w - q * at_e)
        change, h_change = delta * e_phi_tp1, h * norm
        if span.has_difference:
            h_change = h * (common - gamma * norm)
        if span.has_dutch:
            change = (rho * delta + at_phi) * (factor * common + x) - at_phi * common
            q_sum = q_sum - rho * delta * y_phi_tp1
            store(span.x_phi, lane, rho * (factor * common + x))
        d_sum, h_sum = d_sum + change, h_sum + h_change
        moved = alpha * theta_sum(span, change, h_change, q * common)
        v = v + moved
        if span.adds_phi + span.has_dutch:
            store(span.numbers, span.n_numbers * span.policy.shape[0] + lane, moved)
        store(span.e_phi, lane, e_phi_tp1)
        store(span.e_w, lane, e_w)
        store(span.e_e, lane, e_e)
        store(span.e_sum, lane, e_sum)
        largest = load(span.max_trace, lane, zero)
        store(span.max_trace, lane, choose(e_sum > largest, e_sum, largest))
        store(span.mspbe, lane, estimate)
        flag(span, lane, is_small, zero)
        flag(span, lane, absolute(v + estimate + e_w) <= span.max_finite, zero)
        store(span.c, ring, rho * (gamma * lam))
        store(span.d, at, rho * delta)
        if span.has_w:
            store(span.h, at, h)
        if span.has_w + span.adds_phi:
            store(span.q, at, q)
        if span.has_second:
            store(span.second, ring, gamma * lam if span.has_difference else y_factor)
            store(span.extra, at, gamma if span.has_difference else at_phi)
    else:
        skip_step(span, lane, zero)
        store(span.td_error, lane, choose(absolute(delta) <= span.max_finite, delta, zero))
        if kind == IDLE:
            q = zero
        else:
            store(span.q, at, q)
            if span.follows_w:
                v = v + alpha * (q * common)
            if span.shrinks_w:
                _, factor, _, _, _ = on_lanes(span.rule, span, lane, zero, zero, is_finite, zero)
        flag(span, lane, absolute(v + q) <= span.max_finite, zero)
    store(span.prediction, lane, v)
    store(span.d_sum, lane, d_sum)
    store(span.h_sum, lane, h_sum)
    if span.shrinks_w:
        store(span.q_sum, lane, factor * q_sum + (change - q * common))
        store(span.w_left, lane, factor * load(span.w_left, lane, zero))
    elif span.has_difference:
        store(span.q_sum, lane, q_sum + q * (common - gamma * norm))
    else:
        store(span.q_sum, lane, multiply_add(q, common, q_sum))
    if span.has_source + span.shrinks_w + span.has_dutch:
        store(span.factor, ring, factor)
    store(span.gamma_t, lane, gamma)
    store(span.lam_t, lane, lam)


@inner_kernel
def flag(span: SpanArrays, lane: int, is_sound: Any, zero: Any) -> None:
    """Flag the lanes that are not sound."""
    store(span.is_flagged, lane, choose(is_sound, load(span.is_flagged, lane, zero), zero + 1.0))


@inner_kernel
def ring_at(span: SpanArrays, b: int, lane: int, time: int) -> int:
    """Return the index of a lane's number of a time in `c`, `factor` and `second`."""
    start, places = span.start[b], span.c.shape[0] // span.policy.shape[0]
    return int(places * start + lane - start + (time & (places - 1)) * (span.start[b + 1] - start))


@inner_kernel
def pending_at(span: SpanArrays, b: int, lane: int, time: int) -> int:
    """Return the index of a lane's number of a pending step in `d`, `h`, `q` and `extra`."""
    start, places, since = span.start[b], span.d.shape[0] // span.policy.shape[0], span.flushed_at[span.flush_group[b]]
    return int(places * start + lane - start + (time - since) * (span.start[b + 1] - start))


@inner_kernel
def tail_needed(span: SpanArrays, b: int, lane: int, now: int, top: Reals, zero: Any) -> int:
    """Return the number of steps before `now` that still affect the lanes' traces; `top`, any shape, is scratch.

    Compared with an active feature's 1, the steps before k weigh at most (product of c from k on) top_{k-1}, with
    top_k = c_k (1 + top_{k-1}) the sum of the factors. Under "clipped", c <= gamma lambda: the weight can only shrink,
    so that a dropped tail stays below `drop_below`. Under "plain" it may grow again, and only a tail of exactly 0 is
    dropped.
    """
    longest = tail_of(span, b, lane, now, (span.c, top), span.drop_below, zero)
    if span.has_difference:
        longest = max(longest, tail_of(span, b, lane, now, (span.second, top), span.drop_second_below, zero))
    return int(longest)


@inner_kernel
def tail_of(
    span: SpanArrays, b: int, lane: int, now: int, how: tuple[Reals, Reals], drop_below: float, zero: Any
) -> int:
    """Return the same of one trace; `how`: the ring of its decays, of the shape of c, and `top`, any shape."""
    decays, top = how
    g, mask, n = span.flush_group[b], span.bits.shape[0] - 1, lanes_of(zero)
    start, c_places = span.start[b], span.c.shape[0] // span.policy.shape[0]
    width, first, since = span.start[b + 1] - start, now, span.flushed_at[g]
    while first > span.tail_from[g] and (first <= since or span.kind[g, (first - 1) & mask] == LEARNS):
        first -= 1
    in_c, reach = c_places * start + lane - start, zero
    for k in range(first, now):
        in_ring = in_c + (k & (c_places - 1)) * width
        source = absolute(load(span.factor, in_ring, zero)) if span.has_source else zero + 1.0
        if span.has_dutch:
            source = source + absolute(load(span.factor, in_ring, zero)) + absolute(load(span.second, in_ring, zero))
        reach = load(decays, in_ring, zero) * (source + reach)
        store(top, (k - first) * n, reach)
    reach, k = zero + 1.0, now - 1
    while k >= first and any_true(reach * load(top, (k - first) * n, zero) > drop_below):
        reach = reach * load(decays, in_c + (k & (c_places - 1)) * width, zero)
        k -= 1
    return int(now - 1 - k)
