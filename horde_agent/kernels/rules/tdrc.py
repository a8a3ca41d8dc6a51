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
from horde_agent.kernels._jit import inner_kernel
from horde_agent.kernels.plain import Demons, Step
from horde_agent.kernels.vectors import choose, load

WEIGHTS = ("w",)
SECONDARY_RATIO = 1.0
RANGES = {"beta": "[0, 10]"}
CAN_CAP = True
SPAN = ("has_w", "shrinks_w", "has_lanes")


class TDRC(NamedTuple):
    """The strength of the regularisation."""

    beta: float = 1.0


@inner_kernel
def learn(rule: TDRC, i: int, demons: Demons, step: Step) -> None:
    """Update demon `i` in place."""
    theta, w, e = demons.theta[i], demons.vectors[0, i], demons.vectors[1, i]
    alpha, alpha_w, rho = demons.alpha[i], demons.alpha_w[i], step.rho[i]
    delta, q, e_w = plain.sound_delta(i, demons, step), plain.dot(w, step.phi_t), 0.0
    weight = alpha_w * (1.0 if demons.every_step else rho)
    moves = plain.move_trace(i, demons, e, step, 1.0)
    if moves:
        e_w = plain.inner(e, w)
        plain.add_vector(theta, alpha * delta, e)
    plain.scale(w, 1.0 - weight * rule.beta)
    if moves:
        plain.add_vector(w, alpha_w * delta, e)
    plain.add(theta, -alpha * step.gamma[i] * (1.0 - step.lam[i]) * e_w, step.phi_tp1)
    plain.add(w, -weight * q, step.phi_t)
    plain.flag_w(i, demons, q)
    plain.finish(i, demons, step, delta, e, e_w)


@inner_kernel
def on_lanes(rule: TDRC, span: Any, lane: int, rho: Any, delta: Any, is_finite: Any, zero: Any) -> Any:
    """Return delta and 1 - alpha_w beta, the latter with beta times rho under "importance-weighted"."""
    weight = zero + 1.0 if span.every_step else rho
    factor = choose(is_finite, 1.0 - rule.beta * load(span.alpha_w, lane, zero) * weight, zero + 1.0)
    return delta, factor, zero, zero, zero
