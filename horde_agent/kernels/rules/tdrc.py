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

from horde_agent.kernels._jit import inner_kernel
from horde_agent.kernels.plain import Demons, Step
from horde_agent.kernels.rules import gtd
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
    gtd.move(i, demons, step, False, rule.beta)


@inner_kernel
def on_lanes(rule: TDRC, span: Any, lane: int, rho: Any, delta: Any, is_finite: Any, zero: Any) -> Any:
    """Return delta and 1 - alpha_w beta, the latter with beta times rho under "importance-weighted"."""
    weight = zero + 1.0 if span.every_step else rho
    factor = choose(is_finite, 1.0 - rule.beta * load(span.alpha_w, lane, zero) * weight, zero + 1.0)
    return delta, factor, zero, zero, zero
