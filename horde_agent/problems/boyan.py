"""Boyan's chain of twelve states. Source: Boyan (2002); actions as in the code of Ghiassian et al. (2020)."""

from __future__ import annotations

import numpy as np

from horde_agent.problems.markov import SmallMDP
from horde_agent.problems.problem import Problem, one_question

N_STATES = 12


def boyan_chain() -> Problem:
    """Return the chain: one or two steps right with reward -3, the step into the end -2; on-policy, undiscounted.

    States 10 and 11 go one step, whatever the action. The four features interpolate between states 0, 4, 8 and 12.
    """
    step, skip = np.eye(N_STATES, k=1), np.eye(N_STATES, k=2)
    skip[-2:] = step[-2:]
    reward = np.full((2, N_STATES), -3.0)
    reward[:, -1] = -2.0
    mdp = SmallMDP(np.stack([step, skip]), reward, np.eye(N_STATES)[0])
    policy = np.full((N_STATES, 2), 0.5)
    policy[-2:] = 1.0, 0.0
    distance = np.abs(np.arange(N_STATES)[:, None] - 4.0 * np.arange(4)) / 4.0
    return Problem(mdp, ("step", "skip"), policy, np.maximum(0.0, 1.0 - distance), one_question(mdp, policy, 1.0))
