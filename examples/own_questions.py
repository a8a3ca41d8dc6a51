"""Write your own questions: off-policy, with time scales that depend on the state.

Run it: python examples/own_questions.py [steps]
"""

import sys

import gymnasium as gym
import numpy as np

from horde_agent import GVF, Channel, ConstantAction, Horde, Interface, Life, StickyRandom

STEPS = 3_000
if len(sys.argv) > 1:
    STEPS = int(sys.argv[1])

env = gym.make("horde_env:CritterbotPen-v0")
interface = Interface.of(env)
ahead = interface.index("ir_distance_0")
light = interface.index("light_0")
n_actions = len(interface.actions)


class Cautious:
    """Drive forward, but turn left where something is near: a policy is anything that gives probabilities."""

    n_actions = n_actions

    def probabilities(self, observation, tiles):
        forward = 0.9
        if observation[ahead] > 0.3:
            forward = 0.1
        return np.array([forward, 0.0, 0.0, 1.0 - forward, 0.0])


def until_contact(observation, tiles):
    """Return the continuation: .9, and 0 on contact (a pseudo-termination: the run continues)."""
    if observation[ahead] > 0.6:
        return 0.0
    return 0.9


questions = [
    GVF(
        "light in half a second, if I drove on",
        ConstantAction(0, n_actions),
        Channel(light),
        continuation=0.8,
    ),
    GVF("light in half a second, if I were careful", Cautious(), Channel(light), continuation=0.8),
    # A cumulant of 1 on every step makes the return a time, in steps: how long until I touch
    # something?
    GVF(
        "steps to contact, straight on",
        ConstantAction(0, n_actions),
        lambda observation, tiles: 1.0,
        until_contact,
    ),
    # An outcome pays at termination: how near will it be when the question ends?
    GVF(
        "nearness when it ends, straight on",
        ConstantAction(0, n_actions),
        cumulant=lambda observation, tiles: 0.0,
        continuation=until_contact,
        outcome=lambda observation, tiles: float(observation[ahead]),
        lam=0.5,
    ),
]

horde = Horde(questions, n_features=interface.coder.n_features, n_active=interface.coder.n_active)
life = Life(env, horde, StickyRandom(n_actions), np.random.default_rng(0), interface=interface)
life.run(STEPS)
tests = life.student.errors  # test excursions follow each policy and measure its prediction errors
scores = zip(horde.names, horde.predictions, tests.n_tests, tests.nmsre(), strict=True)
for name, prediction, n_tests, score in scores:
    print(f"{name:45s} {prediction:7.3f}   {n_tests:3d} tests, NMSRE {score:.2f}")
env.close()
