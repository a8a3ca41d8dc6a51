"""The random walk of five states, with three kinds of features.

Source: Sutton et al. (2009) for the features; Ghiassian et al. (2020), figure 1, for the policies and rewards.
"""

from __future__ import annotations

import numpy as np

from horde_agent.problems.markov import SmallMDP
from horde_agent.problems.problem import Problem, one_question
from horde_agent.types import Floats

N_STATES = 5
FEATURES = ("tabular", "inverted", "dependent")


def features(kind: str) -> Floats:
    """Return Phi, (5, 5) or (5, 3), rows of length 1: the unit matrix; 1/2 but 0 at the own state; or three features.

    Raises:
        ValueError: If `kind` is none of `FEATURES`.
    """
    if kind == "tabular":
        return np.eye(N_STATES)
    if kind == "inverted":
        return 0.5 * (1.0 - np.eye(N_STATES))
    if kind == "dependent":
        rows = np.array([[1.0, 0, 0], [1, 1, 0], [1, 1, 1], [0, 1, 1], [0, 0, 1]])
        return np.asarray(rows / np.linalg.norm(rows, axis=1, keepdims=True))
    raise ValueError(f"kind of features must be one of {', '.join(FEATURES)}, not {kind!r}")


def random_walk(kind: str = "tabular") -> Problem:
    """Return the walk: left or right from the middle, -1 at the left exit, +1 at the right one, undiscounted.

    The behaviour goes left half of the time, the target .4 of the time.

    Args:
        kind: One of `FEATURES`.
    """
    reward = np.zeros((2, N_STATES))
    reward[0, 0], reward[1, -1] = -1.0, 1.0
    steps = np.stack([np.eye(N_STATES, k=-1), np.eye(N_STATES, k=1)])
    mdp = SmallMDP(steps, reward, np.eye(N_STATES)[N_STATES // 2])
    target = np.tile([0.4, 0.6], (N_STATES, 1))
    return Problem(mdp, ("left", "right"), np.full((N_STATES, 2), 0.5), features(kind), one_question(mdp, target, 1.0))
