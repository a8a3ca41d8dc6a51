"""A behaviour that looks: the robot keeps a wall on its left while a Horde learns, off-policy, what else it could do.

A policy gives probabilities for what it sees; `Follow` draws from them, so that b is the true one. Every action keeps
some probability: what is never done cannot be learned about. Run it: python examples/wall_follower.py [steps]
"""

import sys

import gymnasium as gym
import numpy as np

from horde_agent import GVF, Channel, ConstantAction, Follow, Horde, Interface, Life, Uniform
from horde_agent.life.excursions import ExcursionConfig

STEPS = int(sys.argv[1]) if len(sys.argv) > 1 else 6_000
SELDOM = ExcursionConfig(probability=1 / 200)  # each test excursion ends in the middle of the pen, far from any wall
FORWARD, REVERSE, CLOCKWISE, COUNTERCLOCKWISE, STOP = range(5)

env = gym.make("horde_env:CritterbotPen-v0")
face = Interface.of(env)
ahead, ahead_left, left = (face.index(f"ir_distance_{i}") for i in range(3))  # reflections at 0, 45 and 90 degrees


class WallFollower:
    """Turn away from what is ahead; drive on beside a wall; where it is lost, drive and turn towards it by turns."""

    n_actions = 5

    def probabilities(self, observation, tiles):
        """Return .05 for each action, and the rest for what the wall asks for."""
        probabilities = np.full(5, 0.05)
        if max(observation[ahead], observation[ahead_left]) > 0.4:
            probabilities[CLOCKWISE] += 0.75
        elif observation[left] < 0.2:
            probabilities[[FORWARD, COUNTERCLOCKWISE]] += 0.45, 0.3
        else:
            probabilities[FORWARD] += 0.75
        return probabilities


follower = WallFollower()
policies = {
    "followed the wall": follower,  # what it does anyway: rho is 1 on each step
    "drove straight on": ConstantAction(FORWARD, 5),
    "turned on the spot": ConstantAction(CLOCKWISE, 5),
    "did anything": Uniform(5),
}
questions = [GVF(f"if it {what}", policy, Channel(left), continuation=0.8) for what, policy in policies.items()]
horde = Horde(questions, n_features=face.coder.n_features, n_active=face.coder.n_active)

near = []
rng = np.random.default_rng(0)
with Life(env, horde, Follow(follower), rng, interface=face, excursions=SELDOM) as life:
    life.observers.append(lambda moment: near.append(moment.row.observation[left] > 0.2))
    life.run(STEPS)

print(f"a wall was on the left for {np.mean(near):.0%} of the life")
tests = life.student.errors
for name, n_tests, score in zip(horde.names, tests.n_tests, tests.nmsre(), strict=True):
    print(f"nearness on the left, {name:25s} {n_tests:3d} test excursions, NMSRE {score:.2f}")
env.close()
