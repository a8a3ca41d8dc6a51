"""What if: the reflectance ahead, if the robot went forward or backward, both from one stream."""

from pathlib import Path

import gymnasium as gym
import matplotlib.pyplot as plt
import numpy as np

from horde_agent import (
    GVF,
    Channel,
    ConstantAction,
    Horde,
    Interface,
    LearnerConfig,
    Life,
    StickyRandom,
)
from horde_agent.life.excursions import ExcursionConfig

CONFIG = LearnerConfig.paper()

env = gym.make("horde_env:CritterbotPen-v0", physics="planar")
interface = Interface.of(env)
coder = interface.coder
nose = interface.index("ir_distance_0")
forward = ConstantAction(interface.actions.index("forward"), n_actions=5)
reverse = ConstantAction(interface.actions.index("reverse"), n_actions=5)
questions = [
    GVF("if it went forward", forward, Channel(nose), continuation=0.8),
    GVF("if it went backward", reverse, Channel(nose), continuation=0.8),
]
horde = Horde(questions, n_features=coder.n_features, n_active=coder.n_active, config=CONFIG)

readings: list[float] = []
predictions: list[np.ndarray] = []


def record(event) -> None:
    readings.append(event.row.observation[nose])
    predictions.append(0.2 * horde.predictions)  # times 1 - gamma: a mean over half a second


behaviour = StickyRandom(n_actions=5, repeat=0.8)
rng = np.random.default_rng(seed=1)
no_tests = ExcursionConfig(probability=0.0)  # the robot never follows these policies
with Life(env, horde, behaviour, rng, excursions=no_tests, observers=[record]) as life:
    life.run(20_000)
env.close()

last_minute = slice(-600, None)
time_s = 0.1 * np.arange(600)
figure, axes = plt.subplots(figsize=(7, 3.2), layout="constrained")
axes.plot(time_s, readings[last_minute], color="0.75", label="seen ahead now")
axes.plot(time_s, predictions[last_minute], label=horde.names)
axes.set(xlabel="robot time (s)", ylabel="reflectance over the next 0.5 s")
axes.legend(frameon=False, ncols=3, loc="lower left", bbox_to_anchor=(0, 1))
figure.savefig(Path(__file__).with_suffix(".png"), dpi=140)
