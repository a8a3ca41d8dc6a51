"""GTD2(lambda): theta follows w instead of delta.

    delta_t, e_t and w as in `gtd`
    theta_{t+1} = theta_t + alpha ((w_t.phi_t) phi_t - gamma_{t+1} (1 - lambda_{t+1}) (e_t.w_t) phi_{t+1})

Under the w rule "importance-weighted" the term (w.phi) phi is multiplied by rho_t in both lines: the same expected
update, because E[rho] = 1 in every state.

Weakness: slow; with "every-step" theta moves even where rho = 0, so that no demon rests.
Identities: the fixed point of `td` and `gtd`; stable in expectation at every alpha_w / alpha that was tried.

Source: Sutton et al. (2009) for lambda = 0; Maei (2011).
"""

from __future__ import annotations

from typing import NamedTuple

from horde_agent.kernels import plain
from horde_agent.kernels._jit import inner_kernel
from horde_agent.kernels.plain import Demons, Step

WEIGHTS = ("w",)
SECONDARY_RATIO = 0.1
WARNS = {"secondary_ratio": ("[.01, inf)", "is off-policy TD in disguise: raise it")}
CAN_CAP = True
SPAN = ("has_w", "follows_w")


class GTD2(NamedTuple):
    """It has no parameters."""


@inner_kernel
def learn(_: GTD2, i: int, demons: Demons, step: Step) -> None:
    """Update demon `i` in place."""
    theta, w, e = demons.theta[i], demons.vectors[0, i], demons.vectors[1, i]
    alpha, alpha_w, rho = demons.alpha[i], demons.alpha_w[i], step.rho[i]
    delta, q, e_w = plain.sound_delta(i, demons, step), plain.dot(w, step.phi_t), 0.0
    weighted = q * (1.0 if demons.every_step else rho)
    if plain.move_trace(i, demons, e, step, 1.0):
        e_w = plain.inner(e, w)
        plain.add_vector(w, alpha_w * delta, e)
    plain.add(theta, alpha * weighted, step.phi_t)
    plain.add(theta, -alpha * step.gamma[i] * (1.0 - step.lam[i]) * e_w, step.phi_tp1)
    plain.add(w, -alpha_w * weighted, step.phi_t)
    plain.flag_w(i, demons, q)
    plain.finish(i, demons, step, delta, e, e_w)
