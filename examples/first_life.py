"""A first life: 795 demons learn about five policies that the robot does not follow.

Now and then the robot follows one of these policies, to measure how wrong the predictions are.
Run it: python examples/first_life.py [steps]
"""

import sys

import gymnasium as gym
import numpy as np

from horde_agent import Horde, Interface, Life, StickyRandom, questions

STEPS = 3_000
if len(sys.argv) > 1:
    STEPS = int(sys.argv[1])

env = gym.make("horde_env:CritterbotPen-v0")
interface = Interface.of(env)
coder = interface.coder
gvfs = questions.excursions(interface)
horde = Horde(gvfs, n_features=coder.n_features, n_active=coder.n_active)
with Life(env, horde, StickyRandom(n_actions=5), np.random.default_rng(seed=0)) as life:
    life.run(STEPS)

errors = life.student.errors
print(f"{horde.n_demons} demons, {errors.n_excursions} test excursions")
print(f"median NMSRE so far: {errors.online_median():.2f} (1: no better than the mean return)")
env.close()
