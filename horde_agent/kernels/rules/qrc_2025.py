"""QRC(lambda) of 2025: a trace u of w.phi replaces the product e.w.

    kappa_t = 1 if a_t is greedy, else 0
    u_t     = w_t.phi_t + gamma_t lambda_t kappa_t u_{t-1};   e_t = phi_t + gamma_t lambda_t kappa_t e_{t-1}
    theta_{t+1} = theta_t + alpha   (delta_t e_t - (w_t.phi_t) phi_t + u_t (phi_t - gamma_{t+1} pb_{t+1}))
    w_{t+1}     = w_t     + alpha_w (delta_t e_t - (w_t.phi_t) phi_t - beta w_t)

delta_t and pb as in `greedy_gq`. kappa multiplies the old trace here; the authors clear the traces after the step.

Weakness: as `greedy_gq`. The online MSPBE estimate uses u for e.w.
Identities: the expected direction of `qrc` while w stands still; lambda = 0 is `qrc`.

Source: Elelimy, Daley, Patterson, Machado, White & White (2025), arXiv:2507.09087, equations 26 to 28 by their code.
"""

from __future__ import annotations

from typing import NamedTuple

from horde_agent.kernels import control, plain
from horde_agent.kernels._jit import inner_kernel
from horde_agent.kernels.plain import Demons, Step

WEIGHTS = ("w",)
TRACE_NUMBERS = ("u",)
RANGES = {"beta": "[0, 10]"}
SECONDARY_RATIO = 1.0
TRACE_RULE = "plain"
CAN_WEIGHT = False
FINDS_POLICY = True


class QRC2025(NamedTuple):
    """Regularisation of w."""

    beta: float = 1.0


@inner_kernel
def learn(parameters: QRC2025, i: int, demons: Demons, step: Step) -> None:
    """Update demon `i` in place."""
    theta = demons.theta[i]
    w = demons.vectors[0, i]
    e = demons.vectors[1, i]
    delta = control.td_error(i, demons, step)
    alpha = demons.alpha[i]
    kappa = 0.0
    if step.rho[i] > 0.0:
        kappa = 1.0
    decay = plain.decay_of(i, demons) * kappa
    control.update_trace(i, demons, e, step, kappa)
    q = control.move_w(i, demons, step, w, e, delta, parameters.beta)
    demons.numbers[0, i] = u = q + decay * demons.numbers[0, i]
    control.add_greedy(theta, demons.n_actions, -alpha * step.gamma[i] * u, step.phi_tp1)
    plain.add_vector(theta, alpha * delta, e)
    plain.add(control.block(theta, demons.n_actions, step.action), alpha * (u - q), step.phi_t)
    plain.flag_w(i, demons, q)
    plain.update_estimates(i, demons, step, delta, e, u)
