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

from collections import namedtuple

from horde_agent.kernels import plain
from horde_agent.kernels._jit import inlined_kernel, inner_kernel
from horde_agent.kernels.lanes import Changes, Coefficients, Later, Pending, Sums
from horde_agent.kernels.plain import Demons, Step
from horde_agent.kernels.rules import gtd

WEIGHTS = ("w",)
SECONDARY_RATIO = 0.1
WARNS = {"secondary_ratio": ("[.01, inf)", "is off-policy TD in disguise: raise it")}
CAN_CAP = True
SPAN = gtd.SPAN
GTD2 = namedtuple("GTD2", ())  # no parameters


# ---- plain engine -------------------------------------------------------------------------------


@inner_kernel
def learn(_: GTD2, i: int, demons: Demons, step: Step) -> None:
    """Update demon `i` in place; right-hand sides use the weights from before the step."""
    theta = demons.theta[i]
    w = demons.vectors[0, i]
    e = demons.vectors[1, i]
    alpha = demons.alpha[i]
    alpha_w = demons.alpha_w[i]
    weight = plain.weight_of_decay(i, demons, step)

    delta = plain.td_error(i, demons, step)
    w_phi = plain.dot(w, step.phi_t)
    e_w = 0.0
    if plain.update_trace(i, demons, e, step, 1.0):  # the trace is not 0
        e_w = plain.inner(e, w)
        plain.add_vector(w, alpha_w * delta, e)
    plain.add(theta, alpha * (w_phi * weight), step.phi_t)
    plain.add(theta, -alpha * step.gamma[i] * (1.0 - step.lam[i]) * e_w, step.phi_tp1)
    plain.add(w, -alpha_w * w_phi * weight, step.phi_t)
    plain.flag_w(i, demons, w_phi)
    plain.update_estimates(i, demons, step, delta, e, e_w)


# ---- span engine: a step stores d, h and q of `gtd` ---------------------------------------------
#
#     theta_t.phi_j = theta_0.phi_j + alpha   (sum_k q_k G(k, j) - sum_k h_k G(k+1, j))
#     w_t.phi_j     = w_0.phi_j     + alpha_w (sum_k d_k u_k     - sum_k q_k G(k, j))

scan_decay = gtd.scan_decay
scan_term = gtd.scan_term
lane_step = gtd.lane_step


@inlined_kernel
def changes(_: GTD2, sums: Sums) -> Changes:
    """Return what the sums mean for theta.phi and w.phi."""
    return Changes(theta=sums.q - sums.h, w=sums.d - sums.q)


@inlined_kernel
def flush_coefficients(_: GTD2, pending: Pending, later: Later) -> Coefficients:
    """Return the factors of phi_k in theta and w, q_k and S_k - q_k, and of phi_{k+1} in theta, -h_k."""
    return Coefficients(theta=pending.q, theta_next=-1.0 * pending.h, w=later.s - pending.q)
