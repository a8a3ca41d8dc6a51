"""Write your own questions: off-policy, with time scales that depend on the state.

Run it: python examples/own_questions.py [steps]
"""

import sys

import gymnasium as gym
import numpy as np

from horde_agent import (
    GVF,
    Channel,
    ConstantAction,
    Horde,
    Interface,
    Life,
    PolicyFunction,
    StickyRandom,
)

STEPS = 3_000
if len(sys.argv) > 1:
    STEPS = int(sys.argv[1])

env = gym.make("horde_env:CritterbotPen-v0")
interface = Interface.of(env)
coder = interface.coder
ahead = interface.index("ir_distance_0")  # reflectance: high is near


def a_step(observation, tiles):
    return 1.0


def nothing(observation, tiles):
    return 0.0


def nearness(observation, tiles):
    return float(observation[ahead])


def until_contact(observation, tiles):
    """Return the continuation: 0 on contact, which ends the question and not the life."""
    if nearness(observation, tiles) > 0.6:
        return 0.0
    return 0.9


def carefully(observation, tiles):
    """Return the probability of each action: mostly forward, but mostly left if a wall is near."""
    if nearness(observation, tiles) > 0.3:
        return [0.1, 0.0, 0.0, 0.9, 0.0]
    return [0.9, 0.0, 0.0, 0.1, 0.0]


straight = ConstantAction(0, n_actions=5)
careful = PolicyFunction(carefully, n_actions=5)
light = Channel(interface.index("light_0"))
questions = [
    GVF("light in half a second, straight on", straight, light, continuation=0.8),
    GVF("light in half a second, careful", careful, light, continuation=0.8),
    # The sum of ones is a time: the number of steps until the question ends.
    GVF("steps to contact, straight on", straight, a_step, until_contact),
    # An outcome is collected once, when the question ends.
    GVF("nearness at its end, straight on", straight, nothing, until_contact, outcome=nearness),
]
horde = Horde(questions, n_features=coder.n_features, n_active=coder.n_active)
with Life(env, horde, StickyRandom(n_actions=5), np.random.default_rng(seed=0)) as life:
    life.run(STEPS)
for name, score in zip(horde.names, life.student.errors.nmsre(), strict=True):
    print(f"{name:36s} NMSRE {score:.2f}")
env.close()
