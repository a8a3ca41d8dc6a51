"""True-online GTD(lambda).

    e_t, dv_t as in `true_online_td`;   f_t = rho_t (phi_t + gamma_t lambda_t f_{t-1})
    h_t = rho_{t-1} gamma_t lambda_t h_{t-1} + (1 - alpha_w rho_{t-1} gamma_t lambda_t (h_{t-1}.phi_t)) phi_t
    theta_{t+1} = theta_t + alpha ((delta_t + dv_t) e_t - rho_t dv_t phi_t
                                   - gamma_{t+1} (1 - lambda_{t+1}) (f_t.w_t) phi_{t+1})
    w_{t+1}     = w_t + alpha_w (rho_t delta_t h_t - (w_t.phi_t) phi_t)

h decays with rho_{t-1} and rho_t multiplies delta, which is not the same as rho_t inside h.

Weakness: three traces; that of `gtd` where alpha_w / alpha is small.
Identities: `gtd` at lambda = 0, in theta and w; `true_online_td` if alpha_w = 0.

Source: van Hasselt, Mahmood & Sutton (2014).
"""

from __future__ import annotations

from collections import namedtuple

from horde_agent.kernels import plain
from horde_agent.kernels._jit import inner_kernel
from horde_agent.kernels.plain import Demons, Step
from horde_agent.kernels.rules import true_online_td

WEIGHTS = ("w",)
TRACES = ("f", "e", "h")
TRACE_NUMBERS = ("dv", "rho")
SECONDARY_RATIO = 0.1
WARNS = {"secondary_ratio": ("[.01, inf)", "is off-policy TD in disguise: raise it")}
TrueOnlineGTD = namedtuple("TrueOnlineGTD", ())  # no parameters


@inner_kernel
def learn(_: TrueOnlineGTD, i: int, demons: Demons, step: Step) -> None:
    """Update demon `i` in place."""
    theta = demons.theta[i]
    w = demons.vectors[0, i]
    f = demons.vectors[1, i]
    e = demons.vectors[2, i]
    h = demons.vectors[3, i]
    alpha_w = demons.alpha_w[i]
    rho = step.rho[i]
    is_alive = demons.alive[i]
    delta = plain.td_error(i, demons, step)
    q = plain.dot(w, step.phi_t)
    f_w = 0.0
    previous_value = plain.dot(theta, step.phi_tp1)
    decay = demons.numbers[1, i] * plain.decay_of(i, demons)
    kappa = 1.0 - alpha_w * decay * plain.dot(h, step.phi_t)
    plain.scale(h, decay)
    plain.add(h, kappa, step.phi_t)
    if plain.update_trace(i, demons, f, step, 1.0):
        f_w = plain.inner(f, w)
    demons.alive[i] = is_alive  # e and f are 0 at the same steps
    true_online_td.move(i, demons, step, e, delta, demons.numbers[0, i])
    plain.add(theta, -demons.alpha[i] * step.gamma[i] * (1.0 - step.lam[i]) * f_w, step.phi_tp1)
    plain.add_vector(w, alpha_w * rho * delta, h)
    plain.add(w, -alpha_w * q * (1.0 if demons.every_step else rho), step.phi_t)
    demons.numbers[0, i] = plain.dot(theta, step.phi_tp1) - previous_value
    demons.numbers[1, i] = rho
    plain.flag_w(i, demons, q)
    plain.update_estimates(i, demons, step, delta, f, f_w)
