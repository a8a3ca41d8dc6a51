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
from horde_agent.kernels._jit import inner_kernel
from horde_agent.kernels.plain import Demons, Step
from horde_agent.kernels.vectors import load
from horde_agent.types import Reals

TRACE_NUMBERS = ("dv",)
SPAN = ("has_source", "adds_phi", "has_lanes")
TrueOnlineTD = namedtuple("TrueOnlineTD", ())  # no parameters


@inner_kernel
def move(i: int, demons: Demons, step: Step, e: Reals, delta: float, dv: float) -> None:
    """Update the trace e, shape (n,), and theta of demon `i` in place."""
    theta, alpha, rho = demons.theta[i], demons.alpha[i], step.rho[i]
    kappa = 1.0 - alpha * rho * plain.decay_of(i, demons) * plain.dot(e, step.phi_t)
    if plain.move_trace(i, demons, e, step, kappa):
        plain.add_vector(theta, alpha * (delta + dv), e)
        plain.add(theta, -alpha * rho * dv, step.phi_t)


@inner_kernel
def learn(_: TrueOnlineTD, i: int, demons: Demons, step: Step) -> None:
    """Update demon `i` in place."""
    e, delta = demons.vectors[0, i], plain.sound_delta(i, demons, step)
    before = plain.dot(demons.theta[i], step.phi_tp1)
    move(i, demons, step, e, delta, demons.numbers[0, i])
    demons.numbers[0, i] = plain.dot(demons.theta[i], step.phi_tp1) - before
    plain.finish(i, demons, step, delta, e, 0.0)


@inner_kernel
def on_lanes(_: TrueOnlineTD, span: Any, lane: int, rho: Any, delta: Any, is_finite: Any, zero: Any) -> Any:  # noqa: ARG001
    """Return delta + dv, kappa, and rho dv."""
    dv, decay = load(span.numbers, lane, zero), load(span.gamma_t, lane, zero) * load(span.lam_t, lane, zero)
    kappa = 1.0 - load(span.alpha, lane, zero) * rho * decay * load(span.e_phi, lane, zero)
    return delta + dv, kappa, rho * dv, zero, zero
