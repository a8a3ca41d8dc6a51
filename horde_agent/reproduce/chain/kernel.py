"""GTD(lambda) with features that are real numbers, one demon, for MDPs of a few states: a whole run in one call.

The robot's engines (`gtd`, `span`) support only tiles. Here a state is a row of Phi, and the last row, all zero, is the
state past the end of an episode. Step t leads from phi_t to phi_{t+1} with gamma_{t+1} and pays c_{t+1}.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from horde_agent.kernels._jit import inner_kernel, kernel
from horde_agent.types import Floats, Integers


class Stream(NamedTuple):
    """T transitions of whole episodes."""

    state_t: Integers  # (T,): rows of Phi
    state_tp1: Integers  # (T,)
    rho_t: Floats  # (T,): pi(a_t) / b(a_t)
    c_tp1: Floats  # (T,)
    gamma_tp1: Floats  # (T,): 0 where the episode ends
    end: Integers  # (E,): each episode's last step, plus 1


class Rates(NamedTuple):
    """Step sizes, the trace decay, and the traces of the estimates."""

    alpha: float
    alpha_w: float
    lam: float
    one_over_tau: Floats  # (K,): one for each pair of estimates


class Memory(NamedTuple):
    """Weights and estimates over n features."""

    theta: Floats  # (n,)
    w: Floats  # (n,)
    m: Floats  # (K, n): traces of delta e, vector estimates
    s: Floats  # (K,): traces of delta (e.w), scalar estimates
    mean_phi_phi: Floats  # (n, n): running mean of phi phi'
    n_steps: Integers  # (1,): how many it is the mean of


class Curves(NamedTuple):
    """Weights and estimates after each of E episodes."""

    theta: Floats  # (E, n)
    w: Floats  # (E, n)
    m: Floats  # (E, K, n)
    s: Floats  # (E, K)
    mean_phi_phi: Floats  # (E, n, n)


def new_memory(n: int, n_taus: int) -> Memory:
    """Return a memory of zeros, K = n_taus."""
    return Memory(
        np.zeros(n), np.zeros(n), np.zeros((n_taus, n)), np.zeros(n_taus), np.zeros((n, n)), np.zeros(1, np.int64)
    )


def new_curves(n_episodes: int, n: int, n_taus: int) -> Curves:
    """Return curves of zeros, E = n_episodes and K = n_taus."""
    shapes = ((n,), (n,), (n_taus, n), (n_taus,), (n, n))
    return Curves(*(np.zeros((n_episodes, *shape)) for shape in shapes))


@inner_kernel
def estimate(delta: float, phi: Floats, e: Floats, rates: Rates, memory: Memory) -> None:
    """Take delta_t e_t into the estimates; w_t is the one before this step's update.

    phi, the features of the state left, and e, its trace, are of shape (n,).

    Source: White, Modayil & Sutton (2012), eq. 9; rho is in e and nowhere else.
    """
    memory.n_steps[0] += 1
    e_w = 0.0
    for i in range(e.shape[0]):
        e_w += e[i] * memory.w[i]
        for j in range(e.shape[0]):
            memory.mean_phi_phi[i, j] += (phi[i] * phi[j] - memory.mean_phi_phi[i, j]) / memory.n_steps[0]
    for k in range(rates.one_over_tau.shape[0]):
        for i in range(e.shape[0]):
            memory.m[k, i] += rates.one_over_tau[k] * (delta * e[i] - memory.m[k, i])
        memory.s[k] += rates.one_over_tau[k] * (delta * e_w - memory.s[k])


@inner_kernel
def update(
    delta: float, gamma_tp1: float, phi: Floats, phi_tp1: Floats, e: Floats, rates: Rates, memory: Memory
) -> None:
    """Change theta and w in place.

    phi and phi_tp1, the features of the state left and of the one reached, and the trace e are of shape (n,).

    Source: White, Modayil & Sutton (2012), pseudo-code of GTD(lambda).
    """
    e_w, phi_w = 0.0, 0.0
    for i in range(e.shape[0]):
        e_w += e[i] * memory.w[i]
        phi_w += phi[i] * memory.w[i]
    for i in range(e.shape[0]):
        memory.theta[i] += rates.alpha * (delta * e[i] - gamma_tp1 * (1.0 - rates.lam) * e_w * phi_tp1[i])
        memory.w[i] += rates.alpha_w * (delta * e[i] - phi_w * phi[i])


@kernel
def learn_episodes(stream: Stream, phi: Floats, rates: Rates, memory: Memory, e: Floats, curves: Curves) -> None:
    """Learn from all episodes in turn; `phi` is Phi with a last row of zeros, (n_states + 1, n); `e` is scratch, (n,).

    Each episode begins with e = 0.
    """
    t = 0
    for episode in range(stream.end.shape[0]):
        e[:] = 0.0
        gamma_t = 0.0
        while t < stream.end[episode]:
            phi_t, phi_tp1 = phi[stream.state_t[t]], phi[stream.state_tp1[t]]
            gamma_tp1, delta = stream.gamma_tp1[t], stream.c_tp1[t]
            for i in range(e.shape[0]):
                e[i] = stream.rho_t[t] * (phi_t[i] + gamma_t * rates.lam * e[i])
                delta += memory.theta[i] * (gamma_tp1 * phi_tp1[i] - phi_t[i])
            estimate(delta, phi_t, e, rates, memory)
            update(delta, gamma_tp1, phi_t, phi_tp1, e, rates, memory)
            gamma_t = gamma_tp1
            t += 1
        curves.theta[episode], curves.w[episode] = memory.theta, memory.w
        curves.m[episode], curves.s[episode] = memory.m, memory.s
        curves.mean_phi_phi[episode] = memory.mean_phi_phi
