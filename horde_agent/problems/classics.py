"""Problems of few states: the random walk, Boyan's chain, Baird's star, Collision."""

from __future__ import annotations

import numpy as np

from horde_agent.problems.markov import Problem, SmallMDP, one_question
from horde_agent.types import Floats, RNGLike, generator

WALK_STATES = 5
FEATURES = ("tabular", "inverted", "dependent")


def features(kind: str) -> Floats:
    """Return Phi, (5, 5) or (5, 3), rows of length 1: the unit matrix; 1/2 but 0 at the own state; or three features.

    Raises:
        ValueError: If `kind` is none of `FEATURES`.
    """
    if kind == "tabular":
        return np.eye(WALK_STATES)
    if kind == "inverted":
        return 0.5 * (1.0 - np.eye(WALK_STATES))
    if kind == "dependent":
        rows = np.array([[1.0, 0, 0], [1, 1, 0], [1, 1, 1], [0, 1, 1], [0, 0, 1]])
        return np.asarray(rows / np.linalg.norm(rows, axis=1, keepdims=True))
    raise ValueError(f"kind of features must be one of {', '.join(FEATURES)}, not {kind!r}")


def random_walk(kind: str = "tabular") -> Problem:
    """Return the walk: left or right from the middle, -1 at the left exit, +1 at the right one, undiscounted.

    The behaviour goes left half of the time, the target .4 of the time.

    Args:
        kind: One of `FEATURES`.

    Source: Sutton et al. (2009) for the features; Ghiassian et al. (2020), figure 1, for the
        policies and rewards.
    """
    reward = np.zeros((2, WALK_STATES))
    reward[0, 0] = -1.0
    reward[1, -1] = 1.0
    steps = np.stack([np.eye(WALK_STATES, k=-1), np.eye(WALK_STATES, k=1)])
    mdp = SmallMDP(steps, reward, np.eye(WALK_STATES)[WALK_STATES // 2])
    target = np.tile([0.4, 0.6], (WALK_STATES, 1))
    return Problem(
        mdp,
        ("left", "right"),
        np.full((WALK_STATES, 2), 0.5),
        features(kind),
        one_question(mdp, target, 1.0),
    )


BOYAN_STATES = 12


def boyan_chain() -> Problem:
    """Return the chain: one or two steps right with reward -3, the step into the end -2; on-policy, undiscounted.

    States 10 and 11 go one step, whatever the action. The four features interpolate between states
    0, 4, 8 and 12.

    Source: Boyan (2002); actions as in the code of Ghiassian et al. (2020).
    """
    step = np.eye(BOYAN_STATES, k=1)
    skip = np.eye(BOYAN_STATES, k=2)
    skip[-2:] = step[-2:]
    reward = np.full((2, BOYAN_STATES), -3.0)
    reward[:, -1] = -2.0
    mdp = SmallMDP(np.stack([step, skip]), reward, np.eye(BOYAN_STATES)[0])
    policy = np.full((BOYAN_STATES, 2), 0.5)
    policy[-2:] = 1.0, 0.0
    distance = np.abs(np.arange(BOYAN_STATES)[:, None] - 4.0 * np.arange(4)) / 4.0
    return Problem(
        mdp,
        ("step", "skip"),
        policy,
        np.maximum(0.0, 1.0 - distance),
        one_question(mdp, policy, 1.0),
    )


STAR_STATES = 7


def baird() -> Problem:
    """Return the star: "dashed" goes to one of the first six states, "solid" to the last; reward 0, gamma .99, no end.

    The behaviour is dashed 6/7 of the time, the target always solid. Feature 0 is 1 in the first
    six states and 2 in the last; each state has another feature, which is 2, or 1 for the last.
    Semi-gradient TD diverges on it.

    Source: Baird (1995); Sutton & Barto (2018), section 11.2, with one feature more of state 7.
    """
    dashed, solid = np.zeros((2, STAR_STATES, STAR_STATES))
    dashed[:, :-1] = 1.0 / (STAR_STATES - 1)
    solid[:, -1] = 1.0
    mdp = SmallMDP(np.stack([dashed, solid]), np.zeros((2, STAR_STATES)), np.eye(STAR_STATES)[-1])
    features = np.column_stack([np.ones(STAR_STATES), 2.0 * np.eye(STAR_STATES)])
    features[-1, 0] = 2.0
    features[-1, -1] = 1.0
    behaviour = np.tile([6.0 / 7.0, 1.0 / 7.0], (STAR_STATES, 1))
    target = np.tile([0.0, 1.0], (STAR_STATES, 1))
    weights = np.array([1.0] * STAR_STATES + [10.0])
    return Problem(
        mdp, ("dashed", "solid"), behaviour, features, one_question(mdp, target, 0.99), weights
    )


COLLISION_STATES = 8
N_BITS = 6
N_ONES = 3


def collision(rng: RNGLike) -> Problem:
    """Return the problem: eight states in a row, start in one of the first four, reward 1 for forward from the last.

    The behaviour goes forward in the first four states and turns half of the time in the others;
    turning there ends the episode with 0. The target is always forward; gamma .9.

    Args:
        rng: Draws the features: three ones in six bits for each state. A Generator, or what
            `numpy.random.default_rng` takes.

    Source: Ghiassian & Sutton (2021), arXiv 2106.00922.
    """
    forward = np.eye(COLLISION_STATES, k=1)
    turn = np.eye(COLLISION_STATES, k=1)
    turn[4:] = 0.0
    reward = np.zeros((2, COLLISION_STATES))
    reward[0, -1] = 1.0
    mdp = SmallMDP(np.stack([forward, turn]), reward, np.repeat([0.25, 0.0], 4))
    behaviour = np.repeat([[1.0, 0.0], [0.5, 0.5]], 4, axis=0)
    target = np.tile([1.0, 0.0], (COLLISION_STATES, 1))
    rng = generator(rng)
    bits = np.zeros((COLLISION_STATES, N_BITS))
    for row in bits:
        row[rng.choice(N_BITS, N_ONES, replace=False)] = 1.0
    return Problem(mdp, ("forward", "turn"), behaviour, bits, one_question(mdp, target, 0.9))
