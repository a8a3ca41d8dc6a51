"""Two demons find a policy each while the robot does something else: to the lamp, to the dock.

A control question has no given target policy: its demon finds the one with the largest return of a
cumulant, here the light or the dock's infrared beacon ahead. They learn off-policy by
Greedy-GQ(lambda) while the robot acts at random. Then test excursions of 5 s follow the policy
found, one written by hand and a random one, each from the centre of the pen. It prints their mean
returns with standard errors.

Run it (a few minutes): python examples/find_policies.py [steps] [seed]
"""

import sys

import gymnasium as gym
import numpy as np

from horde_agent import GVF, Channel, Greedy, Horde, Interface, Life, StickyRandom, Uniform
from horde_agent.life.excursions import ExcursionConfig

STEPS = 60_000
SEED = 0
if len(sys.argv) > 1:
    STEPS = int(sys.argv[1])
if len(sys.argv) > 2:
    SEED = int(sys.argv[2])
FORWARD, REVERSE, CLOCKWISE, COUNTERCLOCKWISE, STOP = range(5)

env = gym.make("horde_env:CritterbotPen-v0")
interface = Interface.of(env)
light = [interface.index(f"light_{i}") for i in range(4)]  # ahead, and every 90 degrees
beacon = [interface.index(f"ir_light_{i}") for i in range(8)]  # ahead, and every 45 degrees
ahead = interface.index("ir_distance_0")


class Towards:
    """Turn to the brightest side; then do `arrived`, or stop if something is near."""

    n_actions = 5

    def __init__(self, sensors, arrived):
        self.sensors = sensors
        self.arrived = arrived

    def probabilities(self, observation, tiles):
        brightest = int(np.argmax(observation[self.sensors]))
        if brightest > len(self.sensors) // 2:
            action = CLOCKWISE
        elif brightest > 0:
            action = COUNTERCLOCKWISE
        elif observation[ahead] >= 0.5:
            action = STOP
        else:
            action = self.arrived
        return np.eye(self.n_actions)[action]


def questions_about(goal, channel, gamma, by_hand):
    return [
        GVF(f"{goal}: found", Greedy(5), Channel(channel), gamma),
        GVF(f"{goal}: by hand", by_hand, Channel(channel), gamma),
        GVF(f"{goal}: random", Uniform(5), Channel(channel), gamma),
    ]


questions = questions_about("lamp", light[0], 0.95, Towards(light, FORWARD))
questions += questions_about("dock", beacon[0], 0.9, Towards(beacon, STOP))
coder = interface.coder
horde = Horde(questions, n_features=coder.n_features, n_active=coder.n_active)


def run(steps, seed, probability):
    """Run for some steps, with excursions of this probability, and return the measured returns."""
    tests = ExcursionConfig(probability)
    with Life(env, horde, StickyRandom(5), np.random.default_rng(seed), excursions=tests) as life:
        life.run(steps)
        return life.student.errors.table.outcomes()


run(STEPS, seed=2 * SEED, probability=0.0)
for outcome in run(STEPS // 2, seed=2 * SEED + 1, probability=0.5):
    for demon, returns in zip(outcome.policy.demons, outcome.returns.T, strict=True):
        name = horde.names[demon]
        n = len(returns)
        error = returns.std() / np.sqrt(n)
        print(f"{name:14s} mean return {returns.mean():.2f} +- {error:.2f} of {n} excursions")
env.close()
