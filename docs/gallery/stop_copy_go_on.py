"""Stop, copy, continue: a Horde is copied during a life, and the copy then learns the same, bit for bit."""

import copy
from pathlib import Path

import gymnasium as gym
import matplotlib.pyplot as plt
import numpy as np

from horde_agent import Horde, Interface, StickyRandom, questions
from horde_agent.life.learner import encoder

env = gym.make("horde_env:CritterbotPen-v0", physics="planar")
interface = Interface.of(env)
behaviour = StickyRandom(5)
rng = np.random.default_rng(0)
tiles_of = encoder(interface)
horde = Horde(
    questions.nexting(interface),
    n_features=interface.coder.n_features,
    n_active=interface.coder.n_active,
)
observation, _ = env.reset(seed=0)
horde.begin(observation, tiles_of(observation))
ahead = horde.names.index(next(name for name in horde.names if "light_0" in name))
predictions: list[tuple[float, float]] = []
twin = None
for t in range(4_000):
    if t == 2_000:
        twin = copy.deepcopy(horde)  # weights, traces and current state
    action, b = behaviour.draw(rng, observation, tiles_of(observation))
    observation, *_ = env.step(action)
    prediction = horde.learn(action, b, observation, tiles_of(observation))[ahead]
    if twin:
        twin_prediction = twin.learn(action, b, observation, tiles_of(observation))[ahead]
    else:
        twin_prediction = np.nan
    predictions.append((prediction, twin_prediction))
assert twin is not None
assert twin.weights_sha256() == horde.weights_sha256()
figure, axes = plt.subplots(figsize=(9, 3.4), layout="constrained")
axes.plot(np.array(predictions)[1_500:2_500], label="")
axes.lines[0].set(label="the Horde", lw=3, alpha=0.4)
axes.lines[1].set(label=f"its copy (both end with the weights {horde.weights_sha256()[:12]})", lw=1)
axes.set(xlabel="step since 1,500", ylabel="predicted light ahead")
axes.legend(frameon=False)
figure.savefig(Path(__file__).with_suffix(".png"), dpi=110)
