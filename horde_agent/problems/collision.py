"""The Collision problem: forward to the wall, or turn. Source: Ghiassian & Sutton (2021), arXiv 2106.00922."""

from __future__ import annotations

import numpy as np

from horde_agent.problems.markov import SmallMDP
from horde_agent.problems.problem import Problem, one_question

N_STATES, N_BITS, N_ONES = 8, 6, 3


def collision(rng: np.random.Generator) -> Problem:
    """Return the problem: eight states in a row, start in one of the first four, reward 1 for forward from the last.

    The behaviour goes forward in the first four states and turns half of the time in the others; turning there ends the
    episode with 0. The target is always forward; gamma .9.

    Args:
        rng: Draws the features: three ones in six bits for each state.
    """
    forward, turn = np.eye(N_STATES, k=1), np.eye(N_STATES, k=1)
    turn[4:] = 0.0
    reward = np.zeros((2, N_STATES))
    reward[0, -1] = 1.0
    mdp = SmallMDP(np.stack([forward, turn]), reward, np.repeat([0.25, 0.0], 4))
    behaviour = np.repeat([[1.0, 0.0], [0.5, 0.5]], 4, axis=0)
    target = np.tile([1.0, 0.0], (N_STATES, 1))
    bits = np.zeros((N_STATES, N_BITS))
    for row in bits:
        row[rng.choice(N_BITS, N_ONES, replace=False)] = 1.0
    return Problem(mdp, ("forward", "turn"), behaviour, bits, one_question(mdp, target, 0.9))
