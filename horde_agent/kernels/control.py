"""Building blocks of control rules: weights over (state, action), in one block of features for each action.

Feature k of a state, paired with action a, has the index k + n a; n is the number of features of a state. pi is greedy
in theta: the actions of the highest value share it equally. pb_t = sum_a pi(a|s_t) phi(s_t, a).
"""

from __future__ import annotations

from numba import prange

from horde_agent.kernels._jit import inlined, inner_kernel, kernel, outer_kernel
from horde_agent.kernels.plain import (
    Demons,
    Phi,
    Step,
    add,
    add_vector,
    checked_delta,
    decay_of,
    dot,
    scale,
)
from horde_agent.types import Floats, Reals


@inlined
def block(weights: Reals, n_actions: int, action: int) -> Reals:
    """Return a view of one action's weights, shape (n,), of weights of shape (n_actions n,)."""
    n = weights.shape[0] // n_actions
    return weights[n * action : n * (action + 1)]


@inner_kernel
def best(theta: Reals, n_actions: int, phi: Phi) -> tuple[float, int]:
    """Return the highest action value, theta.pb, and the number of actions that have it.

    theta has the shape (n_weights,).
    """
    highest = -1.0
    n_best = 0
    for a in range(n_actions):
        value = dot(block(theta, n_actions, a), phi)
        if n_best == 0 or value > highest:
            highest = value
            n_best = 1
        elif value == highest:
            n_best += 1
    return highest, n_best


@inner_kernel
def add_greedy(theta: Reals, n_actions: int, factor: float, phi: Phi) -> None:
    """Add a multiple of pb to theta, (n_weights,), in which pi is greedy; each block is read before it changes."""
    highest, n_best = best(theta, n_actions, phi)
    for a in range(n_actions):
        of_action = block(theta, n_actions, a)
        if dot(of_action, phi) == highest:
            add(of_action, factor / n_best, phi)


@inner_kernel
def td_error(i: int, demons: Demons, step: Step) -> float:
    """Store and return delta_t = c_{t+1} + (1 - gamma_{t+1}) z_{t+1} + gamma_{t+1} theta.pb_{t+1} - theta.phi_t."""
    theta = demons.theta[i]
    n_actions = demons.n_actions
    gamma = step.gamma[i]
    ahead, _ = best(theta, n_actions, step.phi_tp1)
    delta = step.c[i] + (1.0 - gamma) * step.z[i] + gamma * ahead
    delta -= dot(block(theta, n_actions, step.action), step.phi_t)
    return float(checked_delta(i, demons, delta, 1.0))


@inner_kernel
def update_trace(i: int, demons: Demons, e: Reals, step: Step, cut: float) -> None:
    """Write e_t = phi_t + gamma_t lambda_t cut e_{t-1}, shape (n_actions n,); `max_trace` is the largest entry."""
    scale(e, decay_of(i, demons) * cut if demons.alive[i] else 0.0)
    add(block(e, demons.n_actions, step.action), 1.0, step.phi_t)
    for k in range(e.shape[0]):
        demons.max_trace[i] = max(demons.max_trace[i], e[k])
    demons.alive[i] = True


@inner_kernel
def move_w(
    i: int, demons: Demons, step: Step, w: Reals, e: Reals, delta: float, beta: float
) -> float:
    """Update w by alpha_w (delta e - (w.phi) phi - beta w), shape (n_actions n,), and return w.phi from before."""
    of_action = block(w, demons.n_actions, step.action)
    alpha_w = demons.alpha_w[i]
    q = float(dot(of_action, step.phi_t))
    if beta != 0.0:
        scale(w, 1.0 - alpha_w * beta)
    add_vector(w, alpha_w * delta, e)
    add(of_action, -alpha_w * q, step.phi_t)
    return q


@outer_kernel
def predict(theta: Reals, n_actions: int, phi: Phi, out: Floats) -> None:
    """Write the highest action value of every demon, (n_demons,); n_actions is 1 for a prediction."""
    for i in prange(theta.shape[0]):
        out[i] = best(theta[i], n_actions, phi)[0]


@kernel
def action_values(theta: Reals, phi: Phi, out: Floats) -> None:
    """Write theta.phi(s, a) of one demon for every action, (n_actions,)."""
    for a in range(out.shape[0]):
        out[a] = dot(block(theta, out.shape[0], a), phi)
