"""Intentional TD(lambda): the step size removes a fraction eta of the error.

    z_t = phi_t + gamma_t lambda_t e_{t-1};   e_t = rho_t z_t;   g = gamma_t lambda_t
    sigma <- g sigma + (1 - g) |phi_t|^2,   delta2 <- clip_decay delta2 + (1 - clip_decay) delta_t^2   (bias-corrected)
    alpha_t = eta / sqrt(sigma |z_t|^2);    theta_{t+1} = theta_t + alpha_t clip(delta_t) e_t

|delta| is clipped at clip sqrt(delta2). The norm is that of z, before rho_t is known: the norm of e would cancel rho.

Parameters: eta = .05 in (0, 1], so that eta rho <= 1 for rho up to 20; clip = 20; clip_decay = .9998 in [0, 1);
realised = 1 takes the norm of e, which is harmless for deterministic targets only. step_size is not used.
Weakness: a semi-gradient, which clipping biases; published on policy, rho is placed here as derived.
Identities: lambda = 0 on policy is NLMS with alpha_t = eta / |phi|^2; realised makes no difference on policy.

Source: Sharifnassab, Elsayed, De Asis, Mahmood & Sutton (2026), https://arxiv.org/abs/2604.19033, and its code.
"""

from __future__ import annotations

from typing import Any, NamedTuple

from horde_agent.kernels import plain
from horde_agent.kernels._jit import inlined_kernel, inner_kernel
from horde_agent.kernels.lanes import Lanes, LaneStep, Trace, Update, follow_lanes
from horde_agent.kernels.plain import Demons, Step
from horde_agent.kernels.vectors import choose, load, square_root

RANGES = {"eta": "(0, 1]", "clip": "(0, inf)", "clip_decay": "[0, 1)", "realised": "[0, 1]"}
WARNS = {
    "realised": (
        "[0, 0]",
        "cancels rho if the target policy is stochastic, and learns another value: omit it",
    )
}
TIMES_RHO = "eta"
NUMBERS = ("sigma", "n_sigma", "delta2", "n_delta2")
SIGMA = 0
DELTA2 = 2
SPAN = ()
RESTS = False
IGNORES_STEP_SIZE = True


class IntentionalTD(NamedTuple):
    """Fraction of the error to remove, clipping, and the choice of the norm."""

    eta: float = 0.05
    clip: float = 20.0
    clip_decay: float = 0.9998
    realised: float = 0.0


@inner_kernel
def change_of(
    rule: IntentionalTD, i: int, demons: Demons, delta: float, squared: float, norm: float
) -> float:
    """Return alpha_t clip(delta), given |phi_t|^2 and the squared norm of the trace."""
    sigma: float = plain.follow(demons.numbers[0:2], i, plain.decay_of(i, demons), squared)
    limit = rule.clip * plain.follow(demons.numbers[2:4], i, rule.clip_decay, delta * delta) ** 0.5
    return float(rule.eta / max((sigma * norm) ** 0.5, 1e-8) * min(max(delta, -limit), limit))


@inner_kernel
def learn(rule: IntentionalTD, i: int, demons: Demons, step: Step) -> None:
    """Update demon `i` in place."""
    e = demons.vectors[0, i]
    rho = step.rho[i]
    squared = plain.squared(step.phi_t)
    delta = plain.td_error(i, demons, step)
    decay = plain.decay_of(i, demons)
    norm = decay * (2.0 * plain.dot(e, step.phi_t) + decay * plain.inner(e, e)) + squared
    change = change_of(
        rule, i, demons, delta, squared, norm * (rho * rho if rule.realised > 0.5 else 1.0)
    )
    if plain.update_trace(i, demons, e, step, 1.0):
        plain.add_vector(demons.theta[i], change, e)
    plain.update_estimates(i, demons, step, delta, e, 0.0)


@inner_kernel
def plain_gain(_: IntentionalTD, _i: int, _demons: Demons, _step: Step) -> float:
    """Return 0, as `gain` does."""
    return 0.0


@inlined_kernel
def gain(_: IntentionalTD, _span: Any, _lane: int, _step: LaneStep, zero: Lanes) -> Lanes:
    """Return 0: alpha_t is relative to the norms already."""
    return zero


@inlined_kernel
def lane_step(
    rule: IntentionalTD, span: Any, lane: int, step: LaneStep, _trace: Trace, zero: Lanes
) -> Update:
    """Return alpha_t clip(delta) as delta; the step size of the lanes is 1."""
    decay = step.decay
    squared = zero + step.norm
    of_past = 2.0 * load(span.e_phi, lane, zero) + decay * load(span.e_e, lane, zero)
    norm = decay * of_past + squared
    if rule.realised > 0.5:
        norm = norm * step.rho * step.rho
    sigma = follow_lanes(span, SIGMA, lane, decay, squared, step.is_finite)
    squared_delta = step.delta * step.delta
    mean_square = follow_lanes(
        span, DELTA2, lane, zero + rule.clip_decay, squared_delta, step.is_finite
    )
    limit = rule.clip * square_root(mean_square)
    delta = choose(step.delta > limit, limit, step.delta)
    delta = choose(delta < 0.0 - limit, 0.0 - limit, delta)
    size = square_root(sigma * norm)
    delta = rule.eta * delta / choose(size > 1e-8, size, zero + 1e-8)
    return Update(delta=delta, h=zero, q=zero, w_factor=zero + 1.0, e_w=zero)
