"""Act on predictions: a robot that keeps clear of walls, or seeks them, by the same five demons.

Each demon predicts how near the nearest wall will be over the next second if one of the five
actions were repeated. They learn off-policy, at first while the robot drives at random. Then it
takes the action with the smallest prediction, and after that the one with the largest; with
probability .3 it takes any action. b is the true probability of each draw, so the demons continue to
learn.

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

env = gym.make("horde_env:CritterbotPen-v0")
interface = Interface.of(env)
around = [interface.index(f"ir_distance_{i}") for i in range(7)]


def nearness(observation, tiles):
    """Return the strongest reflection of all sides, a share of full scale: high is near."""
    return observation[around].max()


questions = []
for number, action in enumerate(interface.actions):
    policy = ConstantAction(number, n_actions=5)
    questions.append(GVF(f"nearness, {action}", policy, nearness, 0.9, tested=False))
coder = interface.coder
horde = Horde(questions, n_features=coder.n_features, n_active=coder.n_active)


def smallest(observation, tiles):
    return -horde.predict(tiles)


def largest(observation, tiles):
    return horde.predict(tiles)


def mean_nearness(behaviour, seed, steps):
    """Run for some steps and return the mean of the nearness."""
    history = []
    with Life(env, horde, behaviour, np.random.default_rng(seed)) as life:
        life.observers.append(lambda event: history.append(nearness(event.row.observation, None)))
        life.run(steps)
    return np.mean(history)


at_random = mean_nearness(StickyRandom(5, repeat=0.9), seed=0, steps=STEPS // 2)
print(f"mean nearness at random:                    {at_random:.2f}")
for values in (smallest, largest):
    behaviour = Follow(EpsilonGreedy(values, n_actions=5, epsilon=0.3))
    nearness_then = mean_nearness(behaviour, seed=1, steps=STEPS // 4)
    print(f"mean nearness, {values.__name__:>8s} predicted nearness: {nearness_then:.2f}")
env.close()
