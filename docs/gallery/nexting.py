"""Nexting: the light ahead, predicted over four time scales (Modayil, White & Sutton, 2014)."""

from pathlib import Path

import gymnasium as gym
import matplotlib.pyplot as plt
import numpy as np

from horde_agent import GVF, Behaviour, Channel, Horde, Interface, LearnerConfig, Life, StickyRandom

CONFIG = LearnerConfig.paper()

env = gym.make("horde_env:CritterbotPen-v0", physics="planar")
interface = Interface.of(env)
coder = interface.coder
light = interface.index("light_0")
scales_s = np.array([0.1, 0.5, 2.0, 8.0])
gammas = 1.0 - interface.period_s / scales_s
questions = []
for scale_s, gamma in zip(scales_s, gammas, strict=True):
    questions.append(GVF(f"over {scale_s:g} s", Behaviour(), Channel(light), float(gamma)))
horde = Horde(questions, n_features=coder.n_features, n_active=coder.n_active, config=CONFIG)

readings: list[float] = []
predictions: list[np.ndarray] = []


def record(event) -> None:
    readings.append(event.row.observation[light])
    predictions.append(horde.predictions * (1.0 - gammas))  # a sum times 1 - gamma is a mean


behaviour = StickyRandom(n_actions=5, repeat=0.9)
with Life(env, horde, behaviour, np.random.default_rng(seed=0), observers=[record]) as life:
    life.run(8_000)
env.close()

last_minute = slice(-600, None)
time_s = 0.1 * np.arange(600)
figure, axes = plt.subplots(figsize=(7, 3.2), layout="constrained")
axes.plot(time_s, readings[last_minute], color="0.75", label="light ahead")
axes.plot(time_s, predictions[last_minute], lw=1.2, label=horde.names)
axes.set(xlabel="robot time (s)", ylabel="share of full scale")
axes.legend(frameon=False, ncols=5, fontsize=9, loc="lower left", bbox_to_anchor=(0, 1))
figure.savefig(Path(__file__).with_suffix(".png"), dpi=140)
