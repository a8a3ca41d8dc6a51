"""True-online TD(lambda): equal, at every step, to its online forward view.

    kappa_t = 1 - alpha rho_t gamma_t lambda_t (e_{t-1}.phi_t);   e_t = rho_t (kappa_t phi_t + gamma_t lambda_t e_{t-1})
    theta_{t+1} = theta_t + alpha ((delta_t + dv_t) e_t - rho_t dv_t phi_t),   dv_t = (theta_t - theta_{t-1}).phi_t

gamma and lambda may depend on the state and the transition. dv is 0 at the start of a stream.

Weakness: the semi-gradient may diverge off-policy; alpha |phi|^2 rho above 1 overshoots.
Identities: `td` at lambda = 0; `swift_td` without its adaptation of step sizes.

Source: van Seijen & Sutton (2014) for rho = 1; van Hasselt, Mahmood & Sutton (2014) for rho.
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
    load_number,
    store_number,
)
from horde_agent.kernels.plain import Demons, Step
from horde_agent.kernels.vectors import load, multiply_add
from horde_agent.types import Reals

TRACE_NUMBERS = ("dv",)
DV = 0
SPAN = ("source", "q")
TrueOnlineTD = namedtuple("TrueOnlineTD", ())  # no parameters


# ---- plain engine -------------------------------------------------------------------------------


@inner_kernel
def move(i: int, demons: Demons, step: Step, e: Reals, delta: float, dv: float) -> None:
    """Update the trace e, shape (n,), and theta of demon `i` in place."""
    theta = demons.theta[i]
    fraction = plain.step_fraction(i, demons)
    alpha = demons.alpha[i] / fraction  # the trace holds the fraction with which a state entered
    rho = step.rho[i]
    kappa = 1.0 - alpha * rho * plain.decay_of(i, demons) * plain.dot(e, step.phi_t)
    if plain.update_trace(i, demons, e, step, fraction * kappa):
        plain.add_vector(theta, alpha * (delta + dv), e)
        plain.add(theta, -alpha * fraction * rho * dv, step.phi_t)


@inner_kernel
def plain_gain(_: TrueOnlineTD, i: int, _demons: Demons, step: Step) -> float:
    """Return rho_t phi_t.S.phi_t, as `gain` does."""
    return float(step.rho[i] * plain.squared(step.phi_t))


@inner_kernel
def learn(_: TrueOnlineTD, i: int, demons: Demons, step: Step) -> None:
    """Update demon `i` in place."""
    e = demons.vectors[0, i]
    delta = plain.td_error(i, demons, step)
    previous = plain.dot(demons.theta[i], step.phi_tp1)
    move(i, demons, step, e, delta, demons.numbers[DV, i])
    demons.numbers[DV, i] = plain.dot(demons.theta[i], step.phi_tp1) - previous
    plain.update_estimates(i, demons, step, delta, e, 0.0)


# ---- span engine: `td` with kappa_k in the trace, d_k = rho_k (delta_k + dv_k), and q_k = rho_k d
#
#     theta_t.phi_j = theta_0.phi_j + alpha (sum_k d_k u_k - sum_k q_k G(k, j))


@inlined_kernel
def gain(_: TrueOnlineTD, _span: Any, _lane: int, step: LaneStep, zero: Lanes) -> Lanes:
    """Return rho_t phi_t.S.phi_t: kappa bounds what the trace adds to it."""
    return zero + step.rho * step.norm


@inlined_kernel
def trace_source(_: TrueOnlineTD, span: Any, lane: int, step: LaneStep, zero: Lanes) -> Lanes:
    """Return kappa_t, times alpha_t / alpha: the trace holds the step size with which a state entered."""
    decayed = step.rho * step.decay * load(span.e_phi, lane, zero)
    return step.fraction * (1.0 - load(span.alpha, lane, zero) * decayed)


@inlined_kernel
def scan_decay(_: TrueOnlineTD, sums: Sums, q: Lanes, _w_factor: Lanes, overlap: float) -> Sums:
    """Add a past step's q G(k, j)."""
    return Sums(d=sums.d, h=sums.h, q=multiply_add(q, overlap, sums.q))


@inlined_kernel
def changes(_: TrueOnlineTD, sums: Sums) -> Changes:
    """Return what the sums mean for theta.phi; there is no w."""
    return Changes(theta=sums.d - sums.q, w=sums.h)


@inlined_kernel
def lane_step(
    _: TrueOnlineTD, span: Any, lane: int, step: LaneStep, trace: Trace, zero: Lanes
) -> Update:
    """Return delta_t + dv_t and q, and store dv_{t+1}, the change of theta.phi_{t+1}."""
    dv = load_number(span, DV, lane, zero)
    delta = step.delta + dv
    q = step.fraction * step.rho * dv
    change = delta * trace.phi_tp1 - q * step.overlap
    store_number(span, DV, lane, load(span.alpha, lane, zero) * change)
    return Update(delta=delta, h=zero, q=q, w_factor=zero + 1.0, e_w=zero)


@inlined_kernel
def flush_coefficients(_: TrueOnlineTD, pending: Pending, later: Later) -> Coefficients:
    """Return the factor of phi_k in theta, kappa_k S_k - q_k."""
    return Coefficients(
        theta=later.s * pending.source - pending.q, theta_next=pending.h, w=pending.h
    )
