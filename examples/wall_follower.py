"""A behaviour that reads sensors: the robot keeps a wall on its left while a Horde learns about other policies.

A policy returns probabilities for an observation; `Follow` draws actions from them, so b is known.
Each action keeps a
probability of .05: a Horde cannot learn about actions that are never taken. Test excursions then
    measure the NMSRE of
each question: 0 is a perfect prediction, 1 no better than the mean of the returns.

Run it (half a minute): python examples/wall_follower.py [steps]
"""

import sys

import gymnasium as gym
import numpy as np

from horde_agent import GVF, Channel, ConstantAction, Follow, Horde, Interface, Life, Uniform
from horde_agent.life.excursions import ExcursionConfig
from horde_agent.record import Phase

STEPS = 60_000
if len(sys.argv) > 1:
    STEPS = int(sys.argv[1])
# After each test excursion the robot drives to the centre of the pen
SELDOM = ExcursionConfig(probability=1 / 200)
FORWARD, REVERSE, CLOCKWISE, COUNTERCLOCKWISE, STOP = range(5)

env = gym.make("horde_env:CritterbotPen-v0")
interface = Interface.of(env)
ahead, ahead_left, left, behind_left = (
    interface.index(f"ir_distance_{i}") for i in range(4)
)  # at 0, 45, 90, 135 degrees


class WallFollower:
    """Turn from a wall ahead, drive along a wall, turn towards a wall that falls behind."""

    n_actions = 5

    def probabilities(self, observation, tiles):
        """Return .05 for each action, and the remaining .75 by the four reflections on the left and ahead."""
        probabilities = np.full(5, 0.05)
        if max(observation[ahead], observation[ahead_left]) > 0.5:
            probabilities[CLOCKWISE] += 0.75
        elif observation[left] < 0.4 and observation[behind_left] > 0.1:
            probabilities[[FORWARD, COUNTERCLOCKWISE]] += 0.2, 0.55
        else:
            probabilities[FORWARD] += 0.75
        return probabilities


follower = WallFollower()
policies = {
    "followed the wall": follower,  # on-policy: rho is 1 on each step
    "drove straight on": ConstantAction(FORWARD, 5),
    "turned on the spot": ConstantAction(CLOCKWISE, 5),
    "did anything": Uniform(5),
}
questions = [
    GVF(f"if it {what}", policy, Channel(left), continuation=0.8)
    for what, policy in policies.items()
]
horde = Horde(questions, n_features=interface.coder.n_features, n_active=interface.coder.n_active)

has_wall = []


def look(moment):
    """Record whether a wall is on the left, outside the test excursions."""
    if moment.row.phase == Phase.BEHAVE:
        has_wall.append(moment.row.observation[left] > 0.2)


rng = np.random.default_rng(0)
with Life(
    env, horde, Follow(follower), rng, interface=interface, excursions=SELDOM, observers=[look]
) as life:
    life.run(STEPS)

print(f"a wall was on the left in {np.mean(has_wall):.0%} of the steps")
tests = life.student.errors
for name, n_tests, score in zip(horde.names, tests.n_tests, tests.nmsre(), strict=True):
    print(f"nearness on the left, {name:25s} {n_tests:3d} test excursions, NMSRE {score:.2f}")
env.close()
