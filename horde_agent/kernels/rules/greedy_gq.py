"""Greedy-GQ(lambda): find the policy that maximises the return, off-policy, by action values theta.phi(s, a).

    delta_t = c_{t+1} + (1 - gamma_{t+1}) z_{t+1} + gamma_{t+1} theta_t.pb_{t+1} - theta_t.phi_t
    e_t     = phi_t + gamma_t lambda_t min(rho_t, rho_max) e_{t-1}
    theta_{t+1} = theta_t + alpha   (delta_t e_t - gamma_{t+1} (1 - lambda_{t+1}) (e_t.w_t) pb_{t+1})
    w_{t+1}     = w_t     + alpha_w (delta_t e_t - (w_t.phi_t) phi_t)

phi_t = phi(s_t, a_t), pb_{t+1} = sum_a pi_t(a|s_{t+1}) phi(s_{t+1}, a), rho_t = pi_t(a_t|s_t) / b(a_t|s_t); pi_t is
greedy in theta_t, and equal values share it. rho_t multiplies the old trace only. rho_max = 1 is Watkins' cut, which
bounds the trace; the correction does not include the cut. rho_max = inf is the published rule.

Weakness: the objective is not convex and pi jumps, so that it may oscillate; policies must not be averaged.
Identities: `qrc` with beta = 0.

Source: Maei & Sutton (2010) for GQ(lambda); Maei, Szepesvari, Bhatnagar & Sutton (2010) for the greedy policy.
"""

from __future__ import annotations

from typing import NamedTuple

from horde_agent.kernels import control, plain
from horde_agent.kernels._jit import inner_kernel
from horde_agent.kernels.plain import Demons, Step

WEIGHTS = ("w",)
RANGES = {"rho_max": "(0, inf]"}
SECONDARY_RATIO = 0.1
TRACE_RULE = "plain"
CAN_WEIGHT = False
FINDS_POLICY = True


class GreedyGQ(NamedTuple):
    """Largest factor of the old trace."""

    rho_max: float = 1.0


@inner_kernel
def learn(parameters: GreedyGQ, i: int, demons: Demons, step: Step) -> None:
    """Update demon `i` in place; every right-hand side uses the weights from before the step."""
    move(i, demons, step, parameters.rho_max, 0.0)


@inner_kernel
def move(i: int, demons: Demons, step: Step, rho_max: float, beta: float) -> None:
    """Update demon `i` in place, with the regularisation beta of `qrc`."""
    theta = demons.theta[i]
    w = demons.vectors[0, i]
    e = demons.vectors[1, i]
    delta = control.td_error(i, demons, step)
    alpha = demons.alpha[i]
    control.update_trace(i, demons, e, step, min(step.rho[i], rho_max))
    e_w = plain.inner(e, w)
    correction = alpha * step.gamma[i] * (1.0 - step.lam[i]) * e_w
    control.add_greedy(theta, demons.n_actions, -correction, step.phi_tp1)
    plain.add_vector(theta, alpha * delta, e)
    plain.flag_w(i, demons, control.move_w(i, demons, step, w, e, delta, beta))
    plain.update_estimates(i, demons, step, delta, e, e_w)
