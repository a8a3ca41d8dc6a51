"""Autostep for TD(lambda), also called AutoTIDBD: a step size per weight with a normalised meta-gradient.

    e_t as in `gtd`;  d = phi - gamma_{t+1} phi_{t+1};  m_i = rho delta d_i h_i
    v_i <- max(|m_i|, v_i + alpha_i d_i e_i (|m_i| - v_i) / tau);   alpha_i <- alpha_i exp(meta m_i / v_i) where v_i > 0
    alpha <- alpha / max(1, sum_i alpha_i d_i e_i)
    theta_i += alpha_i delta e_i;   h_i <- h_i max(0, 1 - alpha_i d_i e_i) + alpha_i delta e_i

alpha_i starts at alpha. Plain engine only: the factor of a weight depends on the weight and the step.

Parameters: meta = .01 in [0, 1], warned about above .1; tau = 10,000, at least 1.
Weakness: the bound divides every step size, also of features that are off: one large rho shrinks all, for good.
Published on policy; rho is placed here as derived. Two public implementations disagree on the bound; this is the sum.
Identities: `td` if meta = 0 and the bound does not act.

Source: Mahmood et al. (2012); Kearney et al. (2019), https://arxiv.org/abs/1903.03252, carry it to TD.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from horde_agent.kernels import plain
from horde_agent.kernels._jit import inner_kernel
from horde_agent.kernels.plain import Demons, Step

WEIGHTS = ("beta", "h", "v")
TRACES = ("e", "d")
RANGES = {"meta": "[0, 1]", "tau": "[1, inf)"}
WARNS = {"meta": ("[0, .1]", "lets step sizes grow without bound: lower it")}


class Autostep(NamedTuple):
    """The meta step size and the time constant of v."""

    meta: float = 0.01
    tau: float = 10_000.0


@inner_kernel
def learn(rule: Autostep, i: int, demons: Demons, step: Step) -> None:
    """Update demon `i` in place."""
    theta = demons.theta[i]
    beta = demons.vectors[0, i]
    h = demons.vectors[1, i]
    v = demons.vectors[2, i]
    e = demons.vectors[3, i]
    d = demons.vectors[4, i]
    alpha = demons.alpha[i]
    rho = step.rho[i]
    total = 0.0
    delta = plain.td_error(i, demons, step)
    plain.update_trace(i, demons, e, step, 1.0)
    d[:] = 0
    plain.add(d, 1.0, step.phi_t)
    plain.add(d, -step.gamma[i], step.phi_tp1)
    for k in range(d.shape[0]):
        m = rho * delta * d[k] * h[k]
        v[k] = max(
            abs(m), v[k] + alpha * np.exp(beta[k]) * d[k] * e[k] * (abs(m) - v[k]) / rule.tau
        )
        if v[k] > 0.0:
            beta[k] += rule.meta * m / v[k]
        total += alpha * np.exp(beta[k]) * d[k] * e[k]
    shrink = np.log(max(1.0, total))
    for k in range(d.shape[0]):
        beta[k] -= shrink
        rate = alpha * np.exp(beta[k])
        theta[k] += rate * delta * e[k]
        h[k] = h[k] * max(0.0, 1.0 - rate * d[k] * e[k]) + rate * delta * e[k]
    plain.update_estimates(i, demons, step, delta, e, 0.0)
