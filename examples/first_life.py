"""A first life: 795 demons learn about five policies that the robot does not follow, and are now and then tested.

Run it: python examples/first_life.py [steps]
"""

import sys

import gymnasium as gym
import numpy as np

from horde_agent import Horde, Interface, Life, StickyRandom, questions

steps = 3_000
if len(sys.argv) > 1:
    steps = int(sys.argv[1])
env = gym.make("horde_env:CritterbotPen-v0")
interface = Interface.of(env)
horde = Horde(
    questions.excursions(interface),
    n_features=interface.coder.n_features,
    n_active=interface.coder.n_active,
)
with Life(
    env, horde, StickyRandom(n_actions=5), np.random.default_rng(seed=0), interface=interface
) as life:
    life.run(steps)
tests = life.student.errors
print(
    f"{horde.n_demons} demons, {tests.n_excursions} test excursions, median NMSRE so far {tests.online_median():.2f}"
)
env.close()
