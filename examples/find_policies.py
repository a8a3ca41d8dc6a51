"""Two demons each find a policy while the robot does something else: one seeks the lamp, one turns towards the dock.

A control question has no given target policy: its demon finds the one with the largest return of a
    cumulant, here
the light or the dock's infrared beacon ahead. They learn off-policy by Greedy-GQ(lambda) while the
robot acts at random. Then test excursions follow each policy found, a random one and one written by
hand; each starts at the centre of the pen, lasts 5 s, and its return is measured.

Run it (a few minutes for each seed): python examples/find_policies.py [steps] [seeds]
"""

import sys

import gymnasium as gym
import numpy as np

from horde_agent import GVF, Channel, Greedy, Horde, Interface, Life, StickyRandom, Uniform
from horde_agent.life.excursions import ExcursionConfig

STEPS = 60_000
if len(sys.argv) > 1:
    STEPS = int(sys.argv[1])
SEEDS = 1
if len(sys.argv) > 2:
    SEEDS = int(sys.argv[2])
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
        self.sensors = sensors
        self.drives = drives

    def probabilities(self, observation, tiles):
        """Return 1 for one action."""
        brightest = int(np.argmax(observation[self.sensors]))
        action = CLOCKWISE
        if brightest <= len(self.sensors) // 2:
            action = COUNTERCLOCKWISE
        if brightest == 0:
            action = STOP
            if self.drives and observation[ahead] < 0.5:
                action = FORWARD
        return np.eye(5)[action]


goals = {
    "lamp": (light[0], 0.95, Towards(light, drives=True)),
    "dock": (beacon[0], 0.9, Towards(beacon, drives=False)),
}
questions = []
for goal, (channel, gamma, by_hand) in goals.items():
    questions.append(GVF(f"{goal}: found", Greedy(5), Channel(channel), gamma))
    questions.append(GVF(f"{goal}: by hand", by_hand, Channel(channel), gamma))
    questions.append(GVF(f"{goal}: random", Uniform(5), Channel(channel), gamma))
size = {"n_features": interface.coder.n_features, "n_active": interface.coder.n_active}


def live(horde, steps, seed, probability):
    """Run for `steps` steps and return the life."""
    tests = ExcursionConfig(probability)
    life = Life(
        env,
        horde,
        StickyRandom(5),
        np.random.default_rng(seed),
        interface=interface,
        excursions=tests,
    )
    with life:
        life.run(steps)
    return life


def interval(values):
    """Return half the width of the 95 % interval of a mean, by Student's t for up to 5 values."""
    t = {2: 12.71, 3: 4.30, 4: 3.18, 5: 2.78}.get(len(values), 1.96)
    if len(values) > 1:
        return t * np.std(values, ddof=1) / np.sqrt(len(values))
    return np.inf


means = {question.name: [] for question in questions}
for seed in range(SEEDS):
    horde = Horde(questions, **size)
    live(horde, STEPS, 2 * seed, 0.0)
    tests = live(horde, STEPS // 2, 2 * seed + 1, 0.5)
    print(f"mean return of each policy in the excursions of seed {seed}, with its 95 % interval:")
    for outcome in tests.student.errors.table.outcomes():
        for demon, returns in zip(outcome.policy.demons, outcome.returns.T, strict=True):
            means[horde.names[demon]].append(returns.mean())
            print(
                f"{horde.names[demon]:14s} {returns.mean():6.3f} +- {interval(returns):.3f} ({len(returns)} excursions)"
            )
for name, of_seeds in means.items():
    if not of_seeds:
        continue  # a short life without a test of this policy
    print(f"{name:14s} {np.mean(of_seeds):6.3f} +- {interval(of_seeds):.3f} over {SEEDS} seeds")
env.close()
