"""SwiftTD(lambda): true-online TD with a step size per weight, a bound on the rate of learning, and step-size decay.

Elementwise, with k = rho_t gamma_t lambda_t, phi = phi_t, and dv = dtheta.phi_t of the last step's dtheta:

    e, p, zb <- k e, k p, k zb;   E = rho sum alpha_i phi_i^2;   b = e.phi;   a_i = rho min(1, eta / E) alpha_i phi_i
    if E > eta, for active i:  h_i, h_old_i, zb_i <- 0,  beta_i += phi_i^2 ln(decay)
    e += a (1 - b);   p += rho h_old phi;   zb += a (1 - b - zb phi);   u = h - h_old phi (e - a) - h a phi
    D = delta_t + dv;   dtheta = D e - a dv;   theta += dtheta
    beta_i <- min(beta_i + (meta / alpha_i) (D - dv) p_i, ln eta);   h_old <- h;   h <- u + D zb - a dv

alpha_i = exp(beta_i) starts at alpha and stays above 1e-10. Plain engine only, as `tidbd`.
Parameters: eta = .1 in (0, inf]; decay = .999 in (0, 1]; meta = .001 in [0, 1], warned about above .1; step_size .01.
Weakness: published on policy; off-policy E holds rho (derived here), so that states of large rho are learned less.
Identities: `true_online_td` if meta = 0 and eta is infinite.
Source: Javed, Sharifnassab & Sutton (2024), in the order of the authors' sparse code.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from horde_agent.kernels import plain
from horde_agent.kernels._jit import inner_kernel
from horde_agent.kernels.plain import Demons, Step

WEIGHTS = ("beta", "h", "h_old")
TRACES = ("e", "p", "zb", "a", "u")  # a and u of the active features, in their order
TRACE_NUMBERS = ("dv",)
RANGES = {"eta": "(0, inf]", "decay": "(0, 1]", "meta": "[0, 1]"}
WARNS = {"meta": ("[0, .1]", "lets step sizes grow without bound: lower it")}
STEP_SIZE = 0.01


class SwiftTD(NamedTuple):
    """Bound on the rate of learning, decay of step sizes above it, and the meta step size."""

    eta: float = 0.1
    decay: float = 0.999
    meta: float = 0.001


@inner_kernel
def learn(rule: SwiftTD, i: int, demons: Demons, step: Step) -> None:
    """Update demon `i` in place."""
    theta = demons.theta[i]
    alpha = demons.alpha[i]
    rho = step.rho[i]
    phi = step.phi_t
    beta = demons.vectors[0, i]
    h = demons.vectors[1, i]
    h_old = demons.vectors[2, i]
    e = demons.vectors[3, i]
    p = demons.vectors[4, i]
    zb = demons.vectors[5, i]
    a = demons.vectors[6, i]
    u = demons.vectors[7, i]
    delta = plain.td_error(i, demons, step)
    dv = demons.numbers[0, i]
    previous_value = plain.dot(theta, step.phi_tp1)
    n = theta.shape[0]
    n_active = phi.feature.shape[0]
    total = delta + dv
    rate = 0.0
    for trace in (e, p, zb):
        plain.scale(trace, rho * plain.decay_of(i, demons))
    for k in range(n_active):
        a[k] = rho * alpha * np.exp(beta[phi.feature[k]]) * phi.value[k]
        rate += a[k] * phi.value[k]
    share = 1.0
    if rate > 0.0:
        share = min(1.0, rule.eta / rate)
    unexplained = 1.0 - plain.dot(e, phi)
    for k in range(n_active):
        f = phi.feature[k]
        x = phi.value[k]
        if rate > rule.eta and x != 0.0:
            h[f] = 0.0
            h_old[f] = 0.0
            zb[f] = 0.0
            beta[f] += x * x * np.log(rule.decay)
        a[k] *= share
        e[f] += a[k] * unexplained
        p[f] += rho * h_old[f] * x
        zb[f] += a[k] * (unexplained - zb[f] * x)
        u[k] = -h_old[f] * x * (e[f] - a[k]) - h[f] * a[k] * x
    for k in range(n):
        h_old[k] = h[k]
    plain.add_vector(h, total, zb)
    plain.add_vector(theta, total, e)
    for k in range(n_active):
        theta[phi.feature[k]] -= a[k] * dv
        h[phi.feature[k]] += u[k] - a[k] * dv
    highest = np.log(rule.eta / alpha)
    lowest = np.log(1e-10 / alpha)
    for k in range(n):
        raised = 0.0
        if p[k] != 0.0:
            raised = rule.meta / (alpha * np.exp(beta[k])) * delta * p[k]
        beta[k] = max(min(beta[k] + raised, highest), lowest)
    demons.numbers[0, i] = plain.dot(theta, step.phi_tp1) - previous_value
    demons.alive[i] = True
    plain.update_estimates(i, demons, step, delta, e, 0.0)
