"""Two demons each find a policy while the robot does something else: one seeks the lamp, one turns towards the dock.

A control question has no given target policy: its demon finds the one with the largest return of a cumulant, here
the light or the dock's infrared beacon ahead. They learn off-policy by Greedy-GQ(lambda) while the robot acts at
random. Then test excursions follow each policy found, a random one and one written by hand; each starts at the centre
of the pen, lasts 5 s, and its return is measured.

Run it (a few minutes): python examples/find_policies.py [steps]
"""

import sys

import gymnasium as gym
import numpy as np

from horde_agent import GVF, Channel, Greedy, Horde, Interface, Life, StickyRandom, Uniform
from horde_agent.life.excursions import ExcursionConfig

STEPS = int(sys.argv[1]) if len(sys.argv) > 1 else 60_000
FORWARD, REVERSE, CLOCKWISE, COUNTERCLOCKWISE, STOP = range(5)

env = gym.make("horde_env:CritterbotPen-v0")
interface = Interface.of(env)
light = [interface.index(f"light_{i}") for i in range(4)]  # at 0, 90, 180 and 270 degrees
beacon = [interface.index(f"ir_light_{i}") for i in range(8)]  # every 45 degrees
ahead = interface.index("ir_distance_0")


class Towards:
    """Turn until the sensor ahead is the brightest of some; then drive, as long as nothing is near, or stop."""

    n_actions = 5

    def __init__(self, sensors, *, drives):
        self.sensors, self.drives = sensors, drives

    def probabilities(self, observation, tiles):
        """Return 1 for one action."""
        brightest = int(np.argmax(observation[self.sensors]))
        action = COUNTERCLOCKWISE if brightest <= len(self.sensors) // 2 else CLOCKWISE
        if brightest == 0:
            action = FORWARD if self.drives and observation[ahead] < 0.5 else STOP
        return np.eye(5)[action]


goals = {"lamp": (light[0], 0.95, Towards(light, drives=True)), "dock": (beacon[0], 0.9, Towards(beacon, drives=False))}
questions = []
for goal, (channel, gamma, by_hand) in goals.items():
    questions.append(GVF(f"{goal}: found", Greedy(5), Channel(channel), gamma))
    questions.append(GVF(f"{goal}: by hand", by_hand, Channel(channel), gamma))
    questions.append(GVF(f"{goal}: random", Uniform(5), Channel(channel), gamma))
horde = Horde(questions, n_features=interface.coder.n_features, n_active=interface.coder.n_active)


def live(steps, seed, probability):
    """Run for `steps` steps and return the life."""
    tests = ExcursionConfig(probability)
    life = Life(env, horde, StickyRandom(5), np.random.default_rng(seed), interface=interface, excursions=tests)
    with life:
        life.run(steps)
    return life


live(STEPS, 0, 0.0)
tests = live(STEPS // 2, 1, 0.5)
print("mean return of each policy, with its 95 % interval:")
for outcome in tests.student.errors.table.outcomes():
    for demon, returns in zip(outcome.policy.demons, outcome.returns.T, strict=True):
        half = 1.96 * returns.std() / np.sqrt(max(len(returns) - 1, 1))
        print(f"{horde.names[demon]:14s} {returns.mean():6.3f} +- {half:.3f} ({len(returns)} excursions)")
env.close()
