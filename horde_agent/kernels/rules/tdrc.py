"""TDRC(lambda): `gtd` with regularised secondary weights.

    delta_t, e_t and theta as in `gtd`
    w_{t+1} = w_t + alpha_w (delta_t e_t - (w_t.phi_t) phi_t - beta w_t)

Under the w rule "importance-weighted", beta w is multiplied by rho_t too, so that w rests where rho = 0.

Parameter: beta = 1, in [0, 10]; alpha_w = alpha. beta = 0 is `gtd`; beta -> infinity is `td`.
Weakness: not always stable. For one feature with A = E[e (phi - gamma' phi')] it is stable only if A (A + beta) > 0: on
w -> 2w beta must be below .2, and the default diverges; on Baird's star .05 <= beta <= .21 is unstable.
Identities: theta is that of `td` at lambda = 1.

Source: Ghiassian et al. (2020), whose guarantee holds under the hypotheses of its theorem 3.1.
"""

from __future__ import annotations

from typing import Any, NamedTuple

from horde_agent.kernels import plain
from horde_agent.kernels._jit import inlined_kernel, inner_kernel
from horde_agent.kernels.lanes import (
    Changes,
    Coefficients,
    Lanes,
    LaneStep,
    Later,
    Pending,
    Sums,
    Trace,
    Update,
    by_w_rule,
)
from horde_agent.kernels.plain import Demons, Step
from horde_agent.kernels.vectors import choose, load, multiply_add

WEIGHTS = ("w",)
SECONDARY_RATIO = 1.0
RANGES = {"beta": "[0, 10]"}
CAN_CAP = True
SPAN = ("h", "q", "w_factor")


class TDRC(NamedTuple):
    """The strength of the regularisation."""

    beta: float = 1.0


# ---- plain engine -------------------------------------------------------------------------------


@inner_kernel
def learn(rule: TDRC, i: int, demons: Demons, step: Step) -> None:
    """Update demon `i` in place; right-hand sides use the weights from before the step."""
    theta = demons.theta[i]
    w = demons.vectors[0, i]
    e = demons.vectors[1, i]
    alpha = demons.alpha[i]
    alpha_w = demons.alpha_w[i]
    weight = plain.weight_of_decay(i, demons, step)

    delta = plain.td_error(i, demons, step)
    w_phi = plain.dot(w, step.phi_t)
    e_w = 0.0
    is_alive = plain.update_trace(i, demons, e, step, 1.0)
    if is_alive:
        e_w = plain.inner(e, w)
        plain.add_vector(theta, alpha * delta, e)
    if rule.beta != 0.0:
        plain.scale(w, 1.0 - alpha_w * weight * rule.beta)
    if is_alive:
        plain.add_vector(w, alpha_w * delta, e)
    plain.add(theta, -alpha * step.gamma[i] * (1.0 - step.lam[i]) * e_w, step.phi_tp1)
    plain.add(w, -alpha_w * w_phi * weight, step.phi_t)
    plain.flag_w(i, demons, w_phi)
    plain.update_estimates(i, demons, step, delta, e, e_w)


# ---- span engine: theta as in `gtd`; a step shrinks w by f_k = 1 - alpha_w beta -----------------
#
#     w_t.phi_j = f_0 ... f_{t-1} w_0.phi_j + alpha_w sum_k f_{k+1} ... f_{t-1} (d_k u_k - q_k G(k, j))


@inlined_kernel
def decay_factor(rule: TDRC, span: Any, lane: int, step: LaneStep, zero: Lanes) -> Lanes:
    """Return f = 1 - alpha_w beta, with beta times rho under "importance-weighted"."""
    weight = step.rho
    if span.every_step:
        weight = zero + 1.0
    weight = step.fraction * weight
    factor = 1.0 - rule.beta * load(span.alpha_w, lane, zero) * weight
    return choose(step.is_finite, factor, zero + 1.0)


@inlined_kernel
def scan_decay(_: TDRC, sums: Sums, q: Lanes, w_factor: Lanes, overlap: float) -> Sums:
    """Shrink the sum of w by a past step's f, and subtract its q G(k, j)."""
    zero = q - q
    return Sums(d=sums.d, h=sums.h, q=multiply_add(w_factor, sums.q, zero - q * overlap))


@inlined_kernel
def scan_term(_: TDRC, sums: Sums, pending: Pending, u: Lanes, next_overlap: float) -> Sums:
    """Add a past step's d u to both sums, and h G(k+1, j)."""
    return Sums(
        d=multiply_add(pending.d, u, sums.d),
        h=multiply_add(pending.h, next_overlap, sums.h),
        q=multiply_add(pending.d, u, sums.q),
    )


@inlined_kernel
def changes(_: TDRC, sums: Sums) -> Changes:
    """Return what the sums mean for theta.phi and w.phi."""
    return Changes(theta=sums.d - sums.h, w=sums.q)


@inlined_kernel
def lane_step(
    rule: TDRC, span: Any, lane: int, step: LaneStep, trace: Trace, zero: Lanes
) -> Update:
    """Return this step's delta, h, q and f, and e_t.w_{t+1}."""
    delta = step.fraction * step.delta
    q = step.fraction * by_w_rule(span, step.rho, step.w_phi)
    factor = decay_factor(rule, span, lane, step, zero)
    alpha_w = load(span.alpha_w, lane, zero)
    return Update(
        delta=delta,
        h=step.fraction * (step.gamma * (1.0 - step.lam) * trace.w),
        q=q,
        w_factor=factor,
        e_w=factor * trace.w + alpha_w * (delta * trace.squared - q * trace.phi_t),
    )


@inlined_kernel
def add_step(_: TDRC, sums: Sums, update: Update, added: Sums, _overlap: float) -> Sums:
    """Return the sums with this step: `added` has delta e_t.phi, h |phi|^2 and q phi_t.phi."""
    return Sums(
        d=sums.d + added.d,
        h=sums.h + added.h,
        q=update.w_factor * sums.q + (added.d - added.q),
    )


@inlined_kernel
def flush_coefficients(_: TDRC, pending: Pending, later: Later) -> Coefficients:
    """Return those of `gtd`, with the factors of later steps for w."""
    w = later.s_w - pending.q * later.w_left
    return Coefficients(theta=later.s, theta_next=-1.0 * pending.h, w=w)
