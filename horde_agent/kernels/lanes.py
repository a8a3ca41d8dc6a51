"""Records passed between the generic span step and the update rules; every field is a vector of lanes.

A rule of the span engine has these kernels in its file, found by the type of its parameters
(`kernels/rules`):

    scan_decay(rule, sums, q, w_factor, overlap)             what w's decay in a past step adds to the sums
    scan_term(rule, sums, pending, u, next_overlap)          what learning in a past step adds to them
    changes(rule, sums)                                      the changes of theta.phi and w.phi that the sums mean
    trace_source(rule, span, lane, step, zero)               the factor with which phi_t enters the trace
    gain(rule, span, lane, step, zero)                       e_t.S.phi_t, by which the step size is bounded
    decay_factor(rule, span, lane, step, zero)               the factor by which this step shrinks w
    lane_step(rule, span, lane, step, trace, zero)           what this step stores
    add_step(rule, sums, update, added, overlap)             what this step adds to the sums
    flush_coefficients(rule, pending, later)                 the factors of phi_k and phi_{k+1} in the weights

TD(lambda) has the default of each (`rules/td.py`). `rule` is the NamedTuple of the rule's
parameters, `zero` a vector of zeros, `overlap` phi_k.phi_j as a number.
"""

from __future__ import annotations

from typing import Any, NamedTuple

from horde_agent.kernels._jit import inlined_kernel
from horde_agent.kernels.vectors import absolute, choose, load, store

# A vector of lanes, or a mask of lanes: numba's own types, which Python cannot name.
Lanes = Any
Mask = Any


class Sums(NamedTuple):
    """Sums over the pending steps k against a feature vector phi_j, with u_k = e_k.phi_j / rho_k."""

    d: Lanes  # sum of d_k u_k
    h: Lanes  # sum of h_k phi_{k+1}.phi_j
    q: Lanes  # sum of q_k phi_k.phi_j


class Changes(NamedTuple):
    """Changes of inner products with a feature vector since the weights were written."""

    theta: Lanes  # of theta.phi, over alpha
    w: Lanes  # of w.phi, over alpha_w


class Pending(NamedTuple):
    """The stored numbers of one step."""

    d: Lanes  # d_k = rho_k delta_k, after the rule
    h: Lanes  # h_k: the multiple of -phi_{k+1} for theta
    q: Lanes  # q_k: the rule's multiple of phi_k
    source: Lanes  # factor of phi_k in the trace
    w_factor: Lanes  # factor of w in the step


class LaneStep(NamedTuple):
    """A transition as one vector of lanes sees it. All numbers are 0 in a lane that skips the step."""

    rho: Lanes
    gamma: Lanes  # gamma_{t+1}
    lam: Lanes  # lambda_{t+1}, after the trace rule
    decay: Lanes  # gamma_t lambda_t
    delta: Lanes  # delta_t
    w_phi: Lanes  # w_t.phi_t
    is_finite: Mask  # the policy has a ratio, and the signals are finite
    fraction: Lanes  # alpha_t / alpha, by which the rule multiplies both step sizes
    past_trace: Lanes  # gamma_t lambda_t e_{t-1}.phi_{t+1}
    norm: float  # |phi_t|^2
    overlap: float  # phi_t.phi_{t+1}


class Trace(NamedTuple):
    """Inner products of e_t = rho_t (source phi_t + gamma_t lambda_t e_{t-1})."""

    source: Lanes
    phi_t: Lanes  # e_t.phi_t
    phi_tp1: Lanes  # e_t.phi_{t+1}
    w: Lanes  # e_t.w_t; 0 without w
    squared: Lanes  # |e_t|^2
    total: Lanes  # sum of the factors: no entry of e_t is larger


class Update(NamedTuple):
    """What a rule makes of a step."""

    delta: Lanes  # the multiple of e_t for theta
    h: Lanes
    q: Lanes
    w_factor: Lanes
    e_w: Lanes  # e_t.w_{t+1}


class Later(NamedTuple):
    """Sums over the steps from k on, in the backward pass that writes the weights."""

    s: Lanes  # S_k = d_k + c_k S_{k+1}
    s_w: Lanes  # the same with d_k times the factors of w in the steps after k
    w_left: Lanes  # product of the factors of w in the steps after k


class Coefficients(NamedTuple):
    """The factors of feature vectors in the pending change of the weights."""

    theta: Lanes  # of phi_k in theta, over alpha
    theta_next: Lanes  # of phi_{k+1} in theta, over alpha
    w: Lanes  # of phi_k in w, over alpha_w


# ---- for the rules ------------------------------------------------------------------------------


@inlined_kernel
def by_w_rule(span: Any, rho: Lanes, value: Lanes) -> Lanes:
    """Return a value, times rho under the w rule "importance-weighted"."""
    if not span.every_step:
        value = value * rho
    return value


@inlined_kernel
def load_number(span: Any, number: int, lane: int, zero: Lanes) -> Lanes:
    """Return one of the rule's numbers (NUMBERS, then TRACE_NUMBERS) of lanes."""
    return load(span.numbers, number * span.policy.shape[0] + lane, zero)


@inlined_kernel
def store_number(span: Any, number: int, lane: int, value: Lanes) -> None:
    """Write one of the rule's numbers of lanes."""
    store(span.numbers, number * span.policy.shape[0] + lane, value)


@inlined_kernel
def follow_lanes(
    span: Any, number: int, lane: int, decay: Lanes, value: Lanes, is_finite: Mask
) -> Lanes:
    """Move running means, a number and the next one, as `plain.follow`; lanes that skip the step keep theirs."""
    zero = decay - decay
    total = load_number(span, number, lane, zero)
    weight = load_number(span, number + 1, lane, zero)
    total = choose(is_finite, decay * total + (1.0 - decay) * value, total)
    weight = choose(is_finite, decay * weight + (1.0 - decay), weight)
    store_number(span, number, lane, total)
    store_number(span, number + 1, lane, weight)
    return choose(weight > 0.0, total / choose(weight > 0.0, weight, zero + 1.0), zero)


# ---- for the generic step -----------------------------------------------------------------------


@inlined_kernel
def trace_products(span: Any, lane: int, step: LaneStep, source: Lanes, zero: Lanes) -> Trace:
    """Return the inner products of e_t, from those of e_{t-1}."""
    rho = step.rho
    decay = step.decay
    e_phi = load(span.e_phi, lane, zero)
    e_w = zero
    if span.has_w:
        e_w = rho * (step.w_phi + decay * load(span.e_w, lane, zero))
        e_w = choose(rho > 0.0, e_w, zero)  # 0 even if w diverged
    of_past = source * e_phi * 2.0 + decay * load(span.e_e, lane, zero)
    return Trace(
        source=source,
        phi_t=rho * (source * step.norm + decay * e_phi),
        phi_tp1=rho * (source * step.overlap + step.past_trace),
        w=e_w,
        squared=rho * rho * (source * source * step.norm + decay * of_past),
        total=rho * (absolute(source) + decay * load(span.e_sum, lane, zero)),
    )
