"""When it diverges: the pseudo-code's trace has infinite variance where b is small. Three rules, one stream."""

from pathlib import Path

import gymnasium as gym
import matplotlib.pyplot as plt
import numpy as np

from horde_agent import GVF, Channel, ConstantAction, Horde, Interface, LearnerConfig, StickyRandom
from horde_agent.life.learner import encoder

env = gym.make("horde_env:CritterbotPen-v0", physics="planar")
interface = Interface.of(env)
behaviour = StickyRandom(5)
rng = np.random.default_rng(0)
tiles_of = encoder(interface)
coder = interface.coder
light = interface.index("light_0")
questions = [
    GVF(name, ConstantAction(a, 5), Channel(light), 0.8, lam=0.9)
    for a, name in enumerate(interface.actions)
]
rules = ("plain", "capped", "clipped")
hordes = [
    Horde(
        questions,
        n_features=coder.n_features,
        n_active=coder.n_active,
        config=LearnerConfig(trace_rule=rule),
    )
    for rule in rules
]
observation, _ = env.reset(seed=0)
for horde in hordes:
    horde.begin(observation, tiles_of(observation))
largest = np.zeros((4_000, len(rules)))
for t in range(len(largest)):
    action, b = behaviour.draw(rng, observation, tiles_of(observation))
    observation, *_ = env.step(action)
    for k, horde in enumerate(hordes):
        horde.learn(action, b, observation, tiles_of(observation))
        largest[t, k] = horde.max_trace
figure, axes = plt.subplots(figsize=(9, 3.4), layout="constrained")
for k, rule in enumerate(rules):
    axes.semilogy(
        0.1 * np.arange(len(largest)), largest[:, k], label=f"{rule}: {largest[-1, k]:.3g}"
    )
axes.set(xlabel="robot time (s)", ylabel="largest trace so far")
axes.legend(frameon=False)
figure.savefig(Path(__file__).with_suffix(".png"), dpi=110)
env.close()
