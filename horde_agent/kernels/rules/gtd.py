"""GTD(lambda), also called TDC(lambda): gradient temporal-difference learning with off-policy corrections.

    delta_t = c_{t+1} + (1 - gamma_{t+1}) z_{t+1} + gamma_{t+1} theta_t.phi_{t+1} - theta_t.phi_t
    e_t     = rho_t (phi_t + gamma_t lambda_t e_{t-1})
    theta_{t+1} = theta_t + alpha   (delta_t e_t - gamma_{t+1} (1 - lambda_{t+1}) (e_t.w_t) phi_{t+1})
    w_{t+1}     = w_t     + alpha_w (delta_t e_t - (w_t.phi_t) phi_t)

Trace rules: those of `__init__`; "capped": entries of phi_t + gamma_t lambda_t e_{t-1} are at most 1. Rules for w:
"every-step": as above; "importance-weighted": the term (w.phi) phi is multiplied by rho_t.

Weakness: a small alpha_w / alpha is off-policy TD(lambda) in disguise and may diverge with it; slow where the features
are ill-conditioned. Identities: alpha_w = 0 is `td`; lambda = 0 is TDC; under "clipped" it is gradient V-trace.

Source: Maei (2011), chapter 7; Sutton et al. (2009) for lambda = 0; White, Modayil & Sutton (2012), pseudo-code.
"""

from __future__ import annotations

from collections import namedtuple

from horde_agent.kernels import plain
from horde_agent.kernels._jit import inner_kernel
from horde_agent.kernels.plain import Demons, Step

WEIGHTS = ("w",)
WARNS = {"secondary_ratio": ("[.001, inf)", "is off-policy TD in disguise: raise it")}
CAN_CAP = True
SPAN = ("has_w",)
GTD = namedtuple("GTD", ())  # no parameters


@inner_kernel
def learn(_: GTD, i: int, demons: Demons, step: Step) -> None:
    """Update demon `i` in place."""
    move(i, demons, step, False, 0.0)


@inner_kernel
def move(i: int, demons: Demons, step: Step, follows_w: bool, beta: float) -> None:
    """Update demon `i` in place; every right-hand side uses the weights from before the step.

    If `follows_w`, theta moves by the term (w.phi) phi in the place of delta e, as in `gtd2`; beta is that of `tdrc`.
    """
    theta, w, e = demons.theta[i], demons.vectors[0, i], demons.vectors[1, i]
    alpha, alpha_w, weight = demons.alpha[i], demons.alpha_w[i], 1.0 if demons.every_step else step.rho[i]
    delta, q, e_w = plain.sound_delta(i, demons, step), plain.dot(w, step.phi_t), 0.0
    moves = plain.move_trace(i, demons, e, step, 1.0)  # else e is 0
    if moves:
        e_w = plain.inner(e, w)
    if moves and not follows_w:
        plain.add_vector(theta, alpha * delta, e)
    if beta != 0.0:
        plain.scale(w, 1.0 - alpha_w * weight * beta)
    if moves:
        plain.add_vector(w, alpha_w * delta, e)
    if follows_w:
        plain.add(theta, alpha * (q * weight), step.phi_t)
    plain.add(theta, -alpha * step.gamma[i] * (1.0 - step.lam[i]) * e_w, step.phi_tp1)
    plain.add(w, -alpha_w * q * weight, step.phi_t)
    plain.flag_w(i, demons, q)
    plain.finish(i, demons, step, delta, e, e_w)
