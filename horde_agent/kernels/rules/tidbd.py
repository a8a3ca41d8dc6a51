"""TIDBD(lambda): a step size per weight, adapted by meta-gradient descent.

    e_t as in `gtd`, then, in this order,  beta_i += meta rho delta phi_i h_i;   alpha_i = exp(beta_i)
    theta_i += alpha_i delta e_i;           h_i <- h_i max(0, 1 - alpha_i phi_i e_i) + alpha_i delta e_i

exp(beta) starts at alpha. Plain engine only: the factor of a weight depends on the weight and the step.

Parameter: meta = .01 in [0, 1], warned about above .1.
Weakness: very sensitive to meta and to the scale of the cumulant; with heavy traces step sizes diverge. Published on
policy; rho is placed here as derived: inside the trace, and once in the meta-gradient.
Identities: `td` if meta = 0.

Source: Kearney et al. (2018), https://arxiv.org/abs/1804.03334, algorithm 1 (semi-gradient, accumulating traces).
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from horde_agent.kernels import plain
from horde_agent.kernels._jit import inner_kernel
from horde_agent.kernels.plain import Demons, Step

WEIGHTS = ("beta", "h")
RANGES = {"meta": "[0, 1]"}
WARNS = {"meta": ("[0, .1]", "lets step sizes grow without bound: lower it")}


class TIDBD(NamedTuple):
    """The meta step size."""

    meta: float = 0.01


@inner_kernel
def learn(rule: TIDBD, i: int, demons: Demons, step: Step) -> None:
    """Update demon `i` in place."""
    theta = demons.theta[i]
    beta = demons.vectors[0, i]
    h = demons.vectors[1, i]
    e = demons.vectors[2, i]
    phi = step.phi_t
    alpha = demons.alpha[i]
    rho = step.rho[i]
    delta = plain.td_error(i, demons, step)
    is_alive = plain.update_trace(i, demons, e, step, 1.0)
    for k in range(phi.feature.shape[0]):
        f = phi.feature[k]
        x = phi.value[k]
        beta[f] += rule.meta * rho * delta * x * h[f]
        h[f] *= max(0.0, 1.0 - alpha * np.exp(beta[f]) * x * e[f])
    if is_alive:
        for k in range(theta.shape[0]):
            change = alpha * np.exp(beta[k]) * delta * e[k]
            theta[k] += change
            h[k] += change
    plain.update_estimates(i, demons, step, delta, e, 0.0)
