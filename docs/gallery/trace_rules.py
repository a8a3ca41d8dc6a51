"""When it diverges: where b is small, the pseudo-code's trace has infinite variance. Three rules."""

from pathlib import Path

import gymnasium as gym
import matplotlib.pyplot as plt
import numpy as np

from horde_agent import GVF, Channel, ConstantAction, Horde, Interface, LearnerConfig, StickyRandom

STEPS = 4_000
CONFIGS = [
    LearnerConfig.paper(trace_rule="plain"),
    LearnerConfig.paper(trace_rule="capped"),
    LearnerConfig.paper(trace_rule="clipped"),
]

env = gym.make("horde_env:CritterbotPen-v0", physics="planar")
interface = Interface.of(env)
coder = interface.coder
light = Channel(interface.index("light_0"))
questions = []
for number, name in enumerate(interface.actions):
    questions.append(GVF(name, ConstantAction(number, n_actions=5), light, 0.8, lam=0.9))
hordes = []
for config in CONFIGS:
    horde = Horde(questions, n_features=coder.n_features, n_active=coder.n_active, config=config)
    hordes.append(horde)
behaviour = StickyRandom(n_actions=5)
rng = np.random.default_rng(seed=0)

observation, info = env.reset(seed=0)
for horde in hordes:
    horde.begin(observation, interface.encode(observation))
largest = np.zeros((STEPS, len(CONFIGS)))
for step in range(STEPS):
    action, b = behaviour.draw(rng)
    observation, *_ = env.step(action)
    tiles = interface.encode(observation)
    for k, horde in enumerate(hordes):
        horde.learn(action, b, observation, tiles)
        largest[step, k] = horde.max_trace
env.close()

figure, axes = plt.subplots(figsize=(7, 3.2), layout="constrained")
for k, config in enumerate(CONFIGS):
    label = f"{config.trace_rule}: {largest[-1, k]:.3g}"
    axes.semilogy(0.1 * np.arange(STEPS), largest[:, k], label=label)
axes.set(xlabel="robot time (s)", ylabel="largest trace so far")
axes.legend(frameon=False)
figure.savefig(Path(__file__).with_suffix(".png"), dpi=140)
