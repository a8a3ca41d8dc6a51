"""The Horde on any Gymnasium environment with a flat Box observation and discrete actions: here CartPole.

CartPole says nothing of its channels, so they are called obs_0.., its actions action_0.., and a default layout of tiles
is built from its space; the unbounded velocities pass through 0.5 + atan(x / s) / pi.

Run it: python examples/any_env.py [steps]
"""

import sys

import gymnasium as gym
import numpy as np

from horde_agent import GVF, Channel, ConstantAction, Horde, Interface, Life, StickyRandom, Uniform

STEPS = int(sys.argv[1]) if len(sys.argv) > 1 else 20_000

env = gym.make("CartPole-v1")
interface = Interface.of(env)


def one(observation, tiles):
    """Pay 1 on every step: the return is then a time, in steps."""
    return 1.0


questions = [
    # "How many steps will the pole stand?" The environment's own end terminates the question.
    GVF("steps standing, at random", Uniform(2), one, continuation=0.95),
    GVF("steps standing, always pushing left", ConstantAction(0, 2), one, continuation=0.95),
    GVF("steps standing, always pushing right", ConstantAction(1, 2), one, continuation=0.95),
    GVF("pole angle next, pushing right", ConstantAction(1, 2), Channel(2), continuation=0.0),
]
horde = Horde(questions, n_features=interface.coder.n_features, n_active=interface.coder.n_active)
life = Life(env, horde, StickyRandom(2, repeat=0.0), np.random.default_rng(0), interface=interface)
life.run(STEPS)

observation, _ = env.reset(seed=1)
scaled = interface.scaler(observation)
for name, prediction in zip(horde.names, horde.predict(interface.coder.encode(scaled)), strict=True):
    print(f"{name:40s} {prediction:7.3f}")
env.close()
