"""Baird's star of seven states, on which semi-gradient TD diverges.

Source: Baird (1995); Sutton & Barto (2018), section 11.2, with one feature more of state 7.
"""

from __future__ import annotations

import numpy as np

from horde_agent.problems.markov import SmallMDP
from horde_agent.problems.problem import Problem, one_question

N_STATES = 7


def baird() -> Problem:
    """Return the star: "dashed" goes to one of the first six states, "solid" to the last; reward 0, gamma .99, no end.

    The behaviour is dashed 6/7 of the time, the target always solid. Feature 0 is 1 in the first six states and 2 in
    the last; each state has another feature, which is 2, or 1 for the last.
    """
    dashed, solid = np.zeros((2, N_STATES, N_STATES))
    dashed[:, :-1], solid[:, -1] = 1.0 / (N_STATES - 1), 1.0
    mdp = SmallMDP(np.stack([dashed, solid]), np.zeros((2, N_STATES)), np.eye(N_STATES)[-1])
    features = np.column_stack([np.ones(N_STATES), 2.0 * np.eye(N_STATES)])
    features[-1, 0], features[-1, -1] = 2.0, 1.0
    behaviour = np.tile([6.0 / 7.0, 1.0 / 7.0], (N_STATES, 1))
    target = np.tile([0.0, 1.0], (N_STATES, 1))
    weights = np.array([1.0] * N_STATES + [10.0])
    return Problem(mdp, ("dashed", "solid"), behaviour, features, one_question(mdp, target, 0.99), weights)
