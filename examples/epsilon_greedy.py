"""A behaviour that uses predictions: the same five demons keep the robot clear of the walls, or drive it up to one.

Five demons predict how near the nearest wall will be over the next second, one for each action if
it were repeated. They learn off-policy while the robot drives at random. Then the behaviour takes
the action with the smallest prediction, and after that the action with the largest; with
probability epsilon it takes any action. b is the true probability of each draw, so the demons
continue to learn.

Run it (half a minute): python examples/epsilon_greedy.py [steps]
"""

import sys

import gymnasium as gym
import numpy as np

from horde_agent import (
    GVF,
    ConstantAction,
    EpsilonGreedy,
    Follow,
    Horde,
    Interface,
    Life,
    StickyRandom,
)

STEPS = 20_000
if len(sys.argv) > 1:
    STEPS = int(sys.argv[1])
EPSILON = 0.3

env = gym.make("horde_env:CritterbotPen-v0")
interface = Interface.of(env)
n_actions = len(interface.actions)
around = [interface.index(f"ir_distance_{i}") for i in range(7)]


def nearest(observation, tiles):
    """Return the strongest reflection of all sides, a share of full scale: high is near."""
    return observation[around].max()


questions = [
    GVF(
        f"{name}/g0.9/nearest",
        ConstantAction(action, n_actions),
        nearest,
        continuation=0.9,
        tested=False,
    )
    for action, name in enumerate(interface.actions)
]
horde = Horde(questions, n_features=interface.coder.n_features, n_active=interface.coder.n_active)


def live(behaviour, seed, steps):
    """Run for `steps` steps and return the mean of `nearest`."""
    distances = []
    with Life(env, horde, behaviour, np.random.default_rng(seed), interface=interface) as life:
        life.observers.append(lambda event: distances.append(nearest(event.row.observation, None)))
        life.run(steps)
    return np.mean(distances)


def least(observation, tiles):
    """Return a value for each action, shape (n_actions,): high if its demon predicts that walls are far."""
    return -horde.predict(tiles)


def most(observation, tiles):
    """Return a value for each action, shape (n_actions,): high if its demon predicts that a wall is near."""
    return horde.predict(tiles)


print(
    f"mean nearness at random:                         {live(StickyRandom(n_actions, 0.9), 0, STEPS // 2):.2f}"
)
for values in (least, most):
    nearness = live(Follow(EpsilonGreedy(values, n_actions, EPSILON)), 1, STEPS // 4)
    print(f"mean nearness with the {values.__name__:>5s} predicted nearness: {nearness:.2f}")
env.close()
