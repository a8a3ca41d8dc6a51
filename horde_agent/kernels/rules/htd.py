"""HTD(lambda), hybrid TD: TD(lambda) where the behaviour is the target, gradient TD elsewhere.

    delta_t, e_t as in `gtd`;   zb_t = phi_t + gamma_t lambda_t zb_{t-1};   d_t = phi_t - gamma_{t+1} phi_{t+1}
    theta_{t+1} = theta_t + alpha   (delta_t e_t + ((e_t - zb_t).w_t) d_t)
    w_{t+1}     = w_t     + alpha_w (delta_t e_t - (zb_t.w_t) d_t)

Weakness: zb has no rho, so that it does not end and theta moves where rho = 0: no demon rests. Unstable on Baird's star
up to alpha_w / alpha = 5. Its w has no importance-weighted form.
Identities: on policy e = zb and theta is that of `td` exactly, whatever w; the fixed point of `td`.

Source: Hackman (2012); White & White (2016).
"""

from __future__ import annotations

from collections import namedtuple

from horde_agent.kernels import plain
from horde_agent.kernels._jit import inner_kernel
from horde_agent.kernels.plain import Demons, Step

WEIGHTS = ("w",)
TRACES = ("e", "zb")
SECONDARY_RATIO = 0.1
WARNS = {"secondary_ratio": ("[.01, inf)", "is off-policy TD in disguise: raise it")}
CAN_WEIGHT = False
HTD = namedtuple("HTD", ())  # no parameters


@inner_kernel
def learn(_: HTD, i: int, demons: Demons, step: Step) -> None:
    """Update demon `i` in place."""
    theta = demons.theta[i]
    w = demons.vectors[0, i]
    e = demons.vectors[1, i]
    zb = demons.vectors[2, i]
    alpha = demons.alpha[i]
    alpha_w = demons.alpha_w[i]
    gamma = step.gamma[i]
    delta = plain.td_error(i, demons, step)
    e_w = 0.0
    plain.scale(zb, plain.decay_of(i, demons))
    plain.add(zb, 1.0, step.phi_t)
    zb_w = plain.inner(zb, w)
    if plain.update_trace(i, demons, e, step, 1.0):
        e_w = plain.inner(e, w)
        plain.add_vector(theta, alpha * delta, e)
        plain.add_vector(w, alpha_w * delta, e)
    plain.add(theta, alpha * (e_w - zb_w), step.phi_t)
    plain.add(theta, -alpha * (e_w - zb_w) * gamma, step.phi_tp1)
    plain.add(w, -alpha_w * zb_w, step.phi_t)
    plain.add(w, alpha_w * zb_w * gamma, step.phi_tp1)
    plain.flag_w(i, demons, zb_w)
    plain.update_estimates(i, demons, step, delta, e, e_w)
