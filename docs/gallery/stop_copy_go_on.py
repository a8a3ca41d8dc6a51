"""Stop, copy, continue: a Horde is copied during a life, and the copy learns the same, bit for bit."""

import copy
from pathlib import Path

import gymnasium as gym
import matplotlib.pyplot as plt
import numpy as np

from horde_agent import Horde, Interface, LearnerConfig, StickyRandom, questions

CONFIG = LearnerConfig.paper()

STEPS = 4_000
COPIED = 2_000

env = gym.make("horde_env:CritterbotPen-v0", physics="planar")
interface = Interface.of(env)
coder = interface.coder
gvfs = questions.nexting(interface)
original = Horde(gvfs, n_features=coder.n_features, n_active=coder.n_active, config=CONFIG)
light = next(k for k, name in enumerate(original.names) if "light_0" in name)
behaviour = StickyRandom(n_actions=5)
rng = np.random.default_rng(seed=0)

observation, info = env.reset(seed=0)
original.begin(observation, interface.encode(observation))
hordes = [original]
predictions = np.full((STEPS, 2), np.nan)
for step in range(STEPS):
    if step == COPIED:
        hordes.append(copy.deepcopy(original))  # weights, traces and current state
    action, b = behaviour.draw(rng)
    observation, *_ = env.step(action)
    tiles = interface.encode(observation)
    for k, horde in enumerate(hordes):
        predictions[step, k] = horde.learn(action, b, observation, tiles)[light]
env.close()

digest = original.weights_sha256()
assert digest == hordes[1].weights_sha256()
figure, axes = plt.subplots(figsize=(7, 3.2), layout="constrained")
steps = np.arange(1_500, 2_500)
axes.plot(steps, predictions[steps, 0], lw=3, alpha=0.4, label="the Horde")
axes.plot(steps, predictions[steps, 1], lw=1, label=f"its copy (both end with {digest[:12]})")
axes.set(xlabel="step", ylabel="predicted light ahead")
axes.legend(frameon=False)
figure.savefig(Path(__file__).with_suffix(".png"), dpi=140)
