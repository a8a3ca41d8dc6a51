"""A behaviour of your own: the robot keeps a wall on its left while a Horde learns.

`Follow` draws from the policy's probabilities, so b is known. Each action keeps a probability of
.05: a Horde cannot learn about actions that are never taken. Test excursions measure the NMSRE of
each question: 0 is a perfect prediction, 1 no better than the mean of the returns.

Run it (half a minute): python examples/wall_follower.py [steps]
"""

import sys

import gymnasium as gym
import numpy as np

from horde_agent import GVF, Channel, ConstantAction, Follow, Horde, Interface, Life, Uniform
from horde_agent.life.excursions import ExcursionConfig

STEPS = 60_000
if len(sys.argv) > 1:
    STEPS = int(sys.argv[1])
FORWARD = 0
CLOCKWISE = 2
COUNTERCLOCKWISE = 3

env = gym.make("horde_env:CritterbotPen-v0")
interface = Interface.of(env)
ahead = interface.index("ir_distance_0")
ahead_left = interface.index("ir_distance_1")  # every 45 degrees
left_side = interface.index("ir_distance_2")
behind_left = interface.index("ir_distance_3")


class WallFollower:
    """Turn from a wall ahead, drive along a wall, turn towards a wall that falls behind."""

    n_actions = 5

    def probabilities(self, observation, tiles):
        """Return .05 for each action, and .75 more for what the four reflections call for."""
        probabilities = np.full(5, 0.05)
        if max(observation[ahead], observation[ahead_left]) > 0.5:
            probabilities[CLOCKWISE] += 0.75
        elif observation[left_side] < 0.4 and observation[behind_left] > 0.1:
            probabilities[FORWARD] += 0.2
            probabilities[COUNTERCLOCKWISE] += 0.55
        else:
            probabilities[FORWARD] += 0.75
        return probabilities


follower = WallFollower()
questions = [
    GVF("if it followed the wall", follower, Channel(left_side), 0.8),  # on-policy: rho is 1
    GVF("if it drove straight on", ConstantAction(FORWARD, 5), Channel(left_side), 0.8),
    GVF("if it turned on the spot", ConstantAction(CLOCKWISE, 5), Channel(left_side), 0.8),
    GVF("if it did anything", Uniform(5), Channel(left_side), 0.8),
]
coder = interface.coder
horde = Horde(questions, n_features=coder.n_features, n_active=coder.n_active)
seldom = ExcursionConfig(probability=1 / 200)  # after each, the robot drives to the centre
rng = np.random.default_rng(seed=0)
with Life(env, horde, Follow(follower), rng, excursions=seldom) as life:
    life.run(STEPS)

errors = life.student.errors
for name, n_tests, score in zip(horde.names, errors.n_tests, errors.nmsre(), strict=True):
    print(f"nearness on the left, {name:25s} {n_tests:3d} test excursions, NMSRE {score:.2f}")
env.close()
