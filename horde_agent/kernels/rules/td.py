"""Off-policy TD(lambda), per decision: the semi-gradient, kept as the baseline.

    delta_t, e_t as in `gtd`;   theta_{t+1} = theta_t + alpha delta_t e_t

Weakness: it may diverge off-policy with function approximation (Baird's star, w -> 2w).
Identities: under the trace rule "clipped" it is `vtrace`, under "tree-backup" `tree_backup`, under "abtd" `abtd`; on
policy it equals `htd`; lambda = 1 or alpha_w = 0 makes `gtd`'s theta equal to it.

Source: Precup, Sutton & Dasgupta (2001), with state-dependent gamma and lambda.
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
)
from horde_agent.kernels.plain import Demons, Step
from horde_agent.kernels.vectors import load, multiply_add

CAN_CAP = True
SPAN = ()
TD = namedtuple("TD", ())  # no parameters


# ---- plain engine: full vectors -----------------------------------------------------------------


@inner_kernel
def move(i: int, demons: Demons, step: Step, cut: float) -> None:
    """Update demon `i` in place; the change of theta is multiplied by `cut`."""
    e = demons.vectors[0, i]
    delta = plain.td_error(i, demons, step)
    if plain.update_trace(i, demons, e, step, 1.0):
        plain.add_vector(demons.theta[i], demons.alpha[i] * delta * cut, e)
    plain.update_estimates(i, demons, step, delta, e, 0.0)


@inner_kernel
def learn(_: TD, i: int, demons: Demons, step: Step) -> None:
    """Update demon `i` in place."""
    move(i, demons, step, 1.0)


@inner_kernel
def plain_gain(_: TD, i: int, demons: Demons, step: Step) -> float:
    """Return e_t.S.phi_t before e_t is written, as `gain` does."""
    e = demons.vectors[demons.n_weights, i]
    past = plain.decay_of(i, demons) * plain.dot(e, step.phi_t)
    return float(step.rho[i] * (plain.squared(step.phi_t) + past))


# ---- span engine: the same as sums over the steps since the weights were written; the default of
#
#     theta_t.phi_j = theta_0.phi_j + alpha sum_k d_k u_k        d_k = rho_k delta_k,   u_k = e_k.phi_j / rho_k


@inlined_kernel
def scan_decay(_: TD, sums: Sums, _q: Lanes, _w_factor: Lanes, _overlap: float) -> Sums:
    """Return the sums: there is no w that decays."""
    return sums


@inlined_kernel
def scan_term(_: TD, sums: Sums, pending: Pending, u: Lanes, _next_overlap: float) -> Sums:
    """Add a past step's d u."""
    return Sums(d=multiply_add(pending.d, u, sums.d), h=sums.h, q=sums.q)


@inlined_kernel
def changes(_: TD, sums: Sums) -> Changes:
    """Return what the sums mean for theta.phi; there is no w."""
    return Changes(theta=sums.d, w=sums.q)


@inlined_kernel
def trace_source(_: TD, _span: Any, _lane: int, _step: LaneStep, zero: Lanes) -> Lanes:
    """Return 1: phi_t enters the trace as it is."""
    return zero + 1.0


@inlined_kernel
def gain(_: TD, span: Any, lane: int, step: LaneStep, zero: Lanes) -> Lanes:
    """Return e_t.S.phi_t; alpha times it is the share of delta_t by which the step changes theta.phi_t."""
    return step.rho * (step.norm + step.decay * load(span.e_phi, lane, zero))


@inlined_kernel
def decay_factor(_: TD, _span: Any, _lane: int, _step: LaneStep, zero: Lanes) -> Lanes:
    """Return 1: no step shrinks w."""
    return zero + 1.0


@inlined_kernel
def lane_step(_: TD, _span: Any, _lane: int, step: LaneStep, _trace: Trace, zero: Lanes) -> Update:
    """Return delta; h and q are not stored."""
    delta = step.fraction * step.delta
    return Update(delta=delta, h=zero, q=zero, w_factor=zero + 1.0, e_w=zero)


@inlined_kernel
def add_step(_: TD, sums: Sums, update: Update, added: Sums, overlap: float) -> Sums:
    """Return the sums with this step: `added` has delta e_t.phi, h |phi|^2 and q phi_t.phi."""
    q = multiply_add(update.q, overlap, sums.q)
    return Sums(d=sums.d + added.d, h=sums.h + added.h, q=q)


@inlined_kernel
def flush_coefficients(_: TD, pending: Pending, later: Later) -> Coefficients:
    """Return the factor of phi_k in theta, S_k, times that with which it entered the trace."""
    return Coefficients(theta=later.s * pending.source, theta_next=pending.h, w=pending.q)
