"""Learning with step sizes by rarity on random tabular Markov decision processes: none may diverge.

    python -m tests.bench.random_mdps [--n N] [--first SEED] [--steps N] [--algorithms NAME ...] [--no-rarity]

Each problem has 2 to 30 states, one feature each, and 2 to 10 actions. In half of them one state
takes .9 to .99 of the time, as a robot's charger does; in others some states keep the agent for long. Ratios
are at most 10. Each has four questions, with the continuations .0, .5, .9 and .98 and lambda .9, and
learns without offsets and averages. Prints, for each continuation, the number of
diverged demons and quartiles of the error over the values' standard deviation.
"""

from __future__ import annotations

import argparse
import logging
from typing import NamedTuple

import numpy as np

from horde_agent import GVF, Behaviour, Horde, LearnerConfig, PolicyFunction, Reward
from horde_agent.problems.markov import SmallMDP
from horde_agent.types import Floats

CONTINUATIONS = (0.0, 0.5, 0.9, 0.98)
LARGEST_RATIO = 10.0
SMALLEST_DEVIATION = 1e-2
REWARD_NOISE = 0.1


class RandomMDP(NamedTuple):
    """A problem of off-policy prediction with one feature per state."""

    mdp: SmallMDP
    behaviour: Floats  # (S, N)
    target: Floats  # (S, N)


class Result(NamedTuple):
    """What was learned of a problem, for each continuation."""

    is_diverged: list[bool]
    errors: list[float]  # root mean squared error over the values' standard deviation


def random_mdp(seed: int) -> RandomMDP:
    """Return the problem of a seed."""
    rng = np.random.default_rng(seed)
    n_actions = int(rng.integers(2, 11))
    has_common_state = rng.random() < 0.5
    if has_common_state:
        n = int(rng.integers(2, 12))
        rare = rng.uniform(0.01, 0.1)
        common = np.append(1.0 - rare, rare * rng.dirichlet(np.full(n - 1, 10.0)))
        stay = np.zeros(n)
    else:
        n = int(rng.integers(2, 31))
        common = rng.dirichlet(np.full(n, 10.0 ** rng.uniform(-1.5, 1.0))) + 1e-3
        common /= common.sum()
        stay = rng.random(n) * rng.choice([0.0, 0.5, 0.95, 0.99])
    largest_share = rng.choice([0.0, 0.3, 1.0]) * (not has_common_state)
    transition = np.zeros((n_actions, n, n))
    for a in range(n_actions):
        for s in range(n):
            share = rng.random() * largest_share
            row = (1.0 - share) * common + share * rng.dirichlet(np.full(n, 0.3))
            transition[a, s] = (1.0 - stay[s]) * row
            transition[a, s, s] += stay[s]
    reward = rng.normal(size=(n_actions, n))
    behaviour = np.maximum(rng.dirichlet(np.ones(n_actions), size=n), 1.0 / LARGEST_RATIO)
    behaviour /= behaviour.sum(axis=1, keepdims=True)
    kind = rng.integers(3)
    target = np.zeros((n, n_actions))
    if kind == 0:  # one action in all states
        target[:, 0] = 1.0
    elif kind == 1:  # one action in each state
        target[np.arange(n), rng.integers(n_actions, size=n)] = 1.0
    else:
        target = rng.dirichlet(np.ones(n_actions), size=n)
    largest = float((target / behaviour).max())
    if largest > LARGEST_RATIO:
        share = (LARGEST_RATIO - 1.0) / (largest - 1.0)
        target = share * target + (1.0 - share) * behaviour
    return RandomMDP(SmallMDP(transition, reward, np.eye(n)[0]), behaviour, target)


def common_state() -> RandomMDP:
    """Return the problem in which state 0 follows with probability .95, else one of five; the target takes action 0."""
    n = 6
    n_actions = 5
    transition = np.full((n_actions, n, n), 0.01)
    transition[..., 0] = 0.95
    reward = np.random.default_rng(0).random((n_actions, n))
    target = np.zeros((n, n_actions))
    target[:, 0] = 1.0
    behaviour = np.full((n, n_actions), 1.0 / n_actions)
    return RandomMDP(SmallMDP(transition, reward, np.eye(n)[0]), behaviour, target)


def learn(problem: RandomMDP, n_steps: int, seed: int, config: LearnerConfig) -> Result:
    """Return what a Horde of four questions has learned of a problem after a number of steps."""
    mdp, behaviour, target = problem
    n_actions, n = mdp.reward.shape
    policy = PolicyFunction(lambda _, tiles: target[tiles[0]], n_actions)
    if np.array_equal(behaviour, target):
        policy = Behaviour()
    questions = [GVF(f"gamma {g:g}", policy, Reward(), g) for g in CONTINUATIONS]
    horde = Horde(questions, n_features=n, n_active=1, config=config, mode="deferred")
    rng = np.random.default_rng(seed)
    state = 0
    nothing = np.zeros(0)
    tiles = np.arange(n)[:, None]
    likelihood = behaviour.cumsum(axis=1)
    arrival = mdp.transition.cumsum(axis=2)
    draws = rng.random((n_steps, 2))
    noise = REWARD_NOISE * rng.normal(size=n_steps)
    horde.begin(nothing, tiles[state])
    for t in range(n_steps):
        action = min(int(np.searchsorted(likelihood[state], draws[t, 0])), n_actions - 1)
        reward = mdp.reward[action, state] + noise[t]
        b = float(behaviour[state, action])
        state = min(int(np.searchsorted(arrival[action, state], draws[t, 1])), n - 1)
        horde.learn(action, b, nothing, tiles[state], reward=reward)
    diverged = horde.diverged
    theta = horde.weights()[0]
    visits = mdp.state_distribution(behaviour)
    errors = []
    for demon, gamma in enumerate(CONTINUATIONS):
        values = mdp.values(target, gamma)
        deviation = np.sqrt(visits @ (values - visits @ values) ** 2)
        error = np.sqrt(visits @ (theta[demon] - values) ** 2)
        errors.append(float(error / max(deviation, SMALLEST_DEVIATION)))
    return Result([name in diverged for name in horde.names], errors)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--n", type=int, default=1_000)
    parser.add_argument("--first", type=int, default=0)
    parser.add_argument("--steps", type=int, default=20_000)
    parser.add_argument("--algorithms", nargs="*", default=["gtd"])
    parser.add_argument("--no-rarity", action="store_true")
    parser.add_argument("--common", action="store_true", help="one problem: see `common_state`")
    arguments = parser.parse_args()
    logging.disable(logging.WARNING)
    for algorithm in arguments.algorithms:
        config = LearnerConfig.paper(algorithm=algorithm, rarity=not arguments.no_rarity)
        seeds = range(arguments.first, arguments.first + arguments.n)
        results = []
        for seed in seeds:
            problem = common_state() if arguments.common else random_mdp(seed)
            results.append(learn(problem, arguments.steps, seed, config))
        errors = np.array([result.errors for result in results])
        diverged = np.array([result.is_diverged for result in results])
        for k, gamma in enumerate(CONTINUATIONS):
            quartiles = np.quantile(errors[:, k], [0.25, 0.5, 0.75])
            print(
                f"{algorithm}, gamma {gamma:g}: {diverged[:, k].sum()} of {len(results)} diverged; "
                f"error {', '.join(f'{q:.3g}' for q in quartiles)}",
                np.flatnonzero(diverged[:, k])[:10],
                flush=True,
            )


if __name__ == "__main__":
    main()
