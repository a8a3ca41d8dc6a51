"""Surprise: the robot turns on the spot, the lamp is moved, and the UDE of the light demons rises."""

from pathlib import Path

import gymnasium as gym
import matplotlib.pyplot as plt
import numpy as np

from horde_agent import (
    Behaviour,
    ConstantAction,
    Follow,
    Horde,
    Interface,
    LearnerConfig,
    Life,
    questions,
)
from horde_agent.learning.rupee import UDE

CONFIG = LearnerConfig.paper()

MOVED_S = 900.0
SOUTH_WEST = (-0.8, -0.8, 0.45)  # metres; before, the lamp is in the north-east corner
GROUPS = ("ir_distance", "magnetic", "light")

lamp_moves = [(MOVED_S, "lamp", SOUTH_WEST)]
env = gym.make("horde_env:CritterbotPen-v0", physics="planar", lamp_moves=lamp_moves)
interface = Interface.of(env)
coder = interface.coder
channels = [i for i, channel in enumerate(interface.channels) if channel.group in GROUPS]
gvfs = questions.family(interface, {"behaviour": Behaviour()}, [0.8], channels)
horde = Horde(gvfs, n_features=coder.n_features, n_active=coder.n_active, config=CONFIG)
surprise = UDE(len(gvfs), beta0=0.01)
history: list[np.ndarray] = []


def record(event) -> None:
    surprise.update(horde.td_error, np.ones(len(gvfs)))
    history.append(surprise.value())


turning = Follow(ConstantAction(3, n_actions=5))
with Life(env, horde, turning, np.random.default_rng(seed=0), observers=[record]) as life:
    life.run(18_000)
env.close()

figure, axes = plt.subplots(figsize=(7, 3.2), layout="constrained")
learned = slice(1_800, None)  # the first minutes of learning are surprising, too
minutes = np.arange(len(history))[learned] / 600
for group in GROUPS:
    demons = [k for k, i in enumerate(channels) if interface.channels[i].group == group]
    means = np.array(history)[learned, demons].mean(axis=1)
    axes.plot(minutes, means, lw=1.1, label=group.replace("_", " "))
axes.axvline(MOVED_S / 60, color="0.4", lw=0.8, ls="--", label="the lamp is moved")
axes.set(xlabel="robot time (min)", ylabel="surprise (UDE, mean of the group)", ylim=(0, None))
axes.legend(frameon=False)
figure.savefig(Path(__file__).with_suffix(".png"), dpi=140)
