"""SwiftTD(lambda): true-online TD with a step size per weight, a bound on the rate of learning, and step-size decay.

Elementwise, with k = rho_t gamma_t lambda_t, dtheta the last step's change, dv = dtheta.phi_t and phi = phi_t:

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
from horde_agent.types import Reals

WEIGHTS = ("beta", "h", "h_old")
TRACES = ("e", "p", "zb", "dtheta", "a", "u")
RANGES = {"eta": "(0, inf]", "decay": "(0, 1]", "meta": "[0, 1]"}
WARNS = {"meta": ("[0, .1]", "lets step sizes grow without bound: lower it")}
STEP_SIZE = 0.01
_SMALLEST = 1e-10
_NEGLIGIBLE = 1e-30  # trace entries below it are 0: numbers near float32's smallest never decay to 0, and are slow


class SwiftTD(NamedTuple):
    """Bound on the rate of learning, decay of step sizes above it, and the meta step size."""

    eta: float = 0.1
    decay: float = 0.999
    meta: float = 0.001


@inner_kernel
def decay(trace: Reals, factor: float) -> None:
    """Multiply a trace, shape (n,)."""
    factor, least = trace.dtype.type(factor), trace.dtype.type(_NEGLIGIBLE)
    for k in range(trace.shape[0]):
        x = factor * trace[k]
        trace[k] = x if abs(x) >= least else trace.dtype.type(0.0)


@inner_kernel
def learn(rule: SwiftTD, i: int, demons: Demons, step: Step) -> None:
    """Update demon `i` in place."""
    theta, alpha, rho, phi = demons.theta[i], demons.alpha[i], step.rho[i], step.phi_t
    beta, h, h_old, e = demons.vectors[0, i], demons.vectors[1, i], demons.vectors[2, i], demons.vectors[3, i]
    p, zb, dtheta = demons.vectors[4, i], demons.vectors[5, i], demons.vectors[6, i]
    a, u = demons.vectors[7, i], demons.vectors[8, i]
    delta, dv, rate = plain.sound_delta(i, demons, step), plain.dot(dtheta, phi), 0.0
    for trace in (e, p, zb):
        decay(trace, rho * plain.decay_of(i, demons))
    for k in range(phi.feature.shape[0]):
        rate += rho * alpha * np.exp(beta[phi.feature[k]]) * phi.value[k] ** 2
    share, left = rho * (min(1.0, rule.eta / rate) if rate > 0.0 else 1.0), 1.0 - plain.dot(e, phi)
    for k in range(phi.feature.shape[0]):
        f, x = phi.feature[k], phi.value[k]
        a[f] = share * alpha * np.exp(beta[f]) * x
        if rate > rule.eta and x != 0.0:
            h[f], h_old[f], zb[f] = 0.0, 0.0, 0.0
            beta[f] += x * x * np.log(rule.decay)
        e[f] += a[f] * left
        p[f] += rho * h_old[f] * x
        zb[f] += a[f] * (left - zb[f] * x)
        u[f] = -h_old[f] * x * (e[f] - a[f]) - h[f] * a[f] * x
    total, highest, lowest = delta + dv, np.log(rule.eta / alpha), np.log(_SMALLEST / alpha)
    for k in range(theta.shape[0]):
        is_idle = e[k] == 0.0 and p[k] == 0.0 and zb[k] == 0.0 and a[k] == 0.0 and h[k] == h_old[k]
        if is_idle and lowest <= beta[k] <= highest:
            dtheta[k] = 0.0  # nothing else changes
            continue
        dtheta[k] = total * e[k] - a[k] * dv
        theta[k] += dtheta[k]
        raised = beta[k] + rule.meta / (alpha * np.exp(beta[k])) * delta * p[k]
        beta[k] = max(min(raised, highest), lowest)
        h_old[k] = h[k]
        h[k] += u[k] + total * zb[k] - a[k] * dv
        a[k], u[k] = 0.0, 0.0
    demons.alive[i] = True
    plain.finish(i, demons, step, delta, e, 0.0)
