"""GTD(lambda), also called TDC(lambda): gradient temporal-difference learning with off-policy corrections.

    delta_t = c_{t+1} + (1 - gamma_{t+1}) z_{t+1} + gamma_{t+1} theta_t.phi_{t+1} - theta_t.phi_t
    e_t     = rho_t (phi_t + gamma_t lambda_t e_{t-1})
    theta_{t+1} = theta_t + alpha   (delta_t e_t - gamma_{t+1} (1 - lambda_{t+1}) (e_t.w_t) phi_{t+1})
    w_{t+1}     = w_t     + alpha_w (delta_t e_t - (w_t.phi_t) phi_t)

Trace rules: `trace_rules.py`; "capped": entries of phi_t + gamma_t lambda_t e_{t-1} are at most 1. Rules for w:
"every-step": as above; "importance-weighted": the term (w.phi) phi is multiplied by rho_t.

Weakness: a small alpha_w / alpha is off-policy TD(lambda) in disguise and may diverge with it; slow where the features
are ill-conditioned. Identities: alpha_w = 0 is `td`; lambda = 0 is TDC; under "clipped" it is gradient V-trace.

In one file, with plain loops: examples/gtd_in_one_file.py.

Source: Maei (2011), chapter 7; Sutton et al. (2009) for lambda = 0; White, Modayil & Sutton (2012), pseudo-code.
"""

from __future__ import annotations

from collections import namedtuple
from typing import Any

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
from horde_agent.kernels.vectors import load, multiply_add

WEIGHTS = ("w",)
WARNS = {"secondary_ratio": ("[.001, inf)", "is off-policy TD in disguise: raise it")}
CAN_CAP = True
SPAN = ("h", "q")
GTD = namedtuple("GTD", ())  # no parameters


# ---- plain engine: full vectors -----------------------------------------------------------------


@inner_kernel
def learn(_: GTD, i: int, demons: Demons, step: Step) -> None:
    """Update demon `i` in place; right-hand sides use the weights from before the step."""
    theta = demons.theta[i]
    w = demons.vectors[0, i]
    e = demons.vectors[1, i]
    alpha = demons.alpha[i]
    alpha_w = demons.alpha_w[i]
    gamma = step.gamma[i]
    lam = step.lam[i]

    delta = plain.td_error(i, demons, step)
    w_phi = plain.dot(w, step.phi_t)
    e_w = 0.0
    if plain.update_trace(i, demons, e, step, 1.0):  # the trace is not 0
        e_w = plain.inner(e, w)
        plain.add_vector(theta, alpha * delta, e)
        plain.add_vector(w, alpha_w * delta, e)
    plain.add(theta, -alpha * gamma * (1.0 - lam) * e_w, step.phi_tp1)
    plain.add(w, -alpha_w * w_phi * plain.weight_of_decay(i, demons, step), step.phi_t)
    plain.flag_w(i, demons, w_phi)
    plain.update_estimates(i, demons, step, delta, e, e_w)


# ---- span engine: the same as sums over the steps since the weights were written ----------------
#
#     theta_t.phi_j = theta_0.phi_j + alpha   (sum_k d_k u_k - sum_k h_k G(k+1, j))     d_k = rho_k delta_k
#     w_t.phi_j     = w_0.phi_j     + alpha_w (sum_k d_k u_k - sum_k q_k G(k, j))       q_k = w_k.phi_k
#     u_k = e_k.phi_j / rho_k,   G(k, j) = phi_k.phi_j,   h_k = gamma_{k+1} (1 - lambda_{k+1}) e_k.w_k
#     e_t.w_{t+1}   = e_t.w_t + alpha_w (delta_t |e_t|^2 - q_t e_t.phi_t)


@inlined_kernel
def scan_decay(_: GTD, sums: Sums, q: Lanes, _w_factor: Lanes, overlap: float) -> Sums:
    """Add a past step's q G(k, j)."""
    return Sums(d=sums.d, h=sums.h, q=multiply_add(q, overlap, sums.q))


@inlined_kernel
def scan_term(_: GTD, sums: Sums, pending: Pending, u: Lanes, next_overlap: float) -> Sums:
    """Add a past step's d u and h G(k+1, j)."""
    return Sums(
        d=multiply_add(pending.d, u, sums.d),
        h=multiply_add(pending.h, next_overlap, sums.h),
        q=sums.q,
    )


@inlined_kernel
def changes(_: GTD, sums: Sums) -> Changes:
    """Return what the sums mean for theta.phi and w.phi."""
    return Changes(theta=sums.d - sums.h, w=sums.d - sums.q)


@inlined_kernel
def lane_step(_: GTD, span: Any, lane: int, step: LaneStep, trace: Trace, zero: Lanes) -> Update:
    """Return this step's delta, h and q, and e_t.w_{t+1}."""
    delta = step.fraction * step.delta
    q = step.fraction * by_w_rule(span, step.rho, step.w_phi)
    return Update(
        delta=delta,
        h=step.fraction * (step.gamma * (1.0 - step.lam) * trace.w),
        q=q,
        w_factor=zero + 1.0,
        e_w=trace.w + load(span.alpha_w, lane, zero) * (delta * trace.squared - q * trace.phi_t),
    )


@inlined_kernel
def flush_coefficients(_: GTD, pending: Pending, later: Later) -> Coefficients:
    """Return the factors of phi_k in theta and w, S_k and S_k - q_k, and of phi_{k+1} in theta, -h_k."""
    return Coefficients(theta=later.s, theta_next=-1.0 * pending.h, w=later.s - pending.q)
