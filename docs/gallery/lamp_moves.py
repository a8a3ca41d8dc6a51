"""Surprise: a robot turns on the spot, the lamp is moved, and the UDE of the demons that predict light rises."""

from pathlib import Path

import gymnasium as gym
import matplotlib.pyplot as plt
import numpy as np

from horde_agent import Behaviour, ConstantAction, Follow, Horde, Interface, Life, questions
from horde_agent.measures.online import UDE

moved_s = 900.0
groups = ("ir_distance", "magnetic", "light")
lamp_moves = [(moved_s, "lamp", (-0.8, -0.8, 0.45))]  # from the north-east corner to the south-west
env = gym.make("horde_env:CritterbotPen-v0", physics="planar", lamp_moves=lamp_moves)
interface = Interface.of(env)
channels = [i for i, channel in enumerate(interface.channels) if channel.group in groups]
gvfs = questions.family(interface, {"behaviour": Behaviour()}, [0.8], channels)
horde = Horde(gvfs, n_features=interface.coder.n_features, n_active=interface.coder.n_active)
surprise = UDE(len(gvfs), beta0=0.01)
history = []


def look(event) -> None:
    surprise.update(horde.td_error, np.ones(len(gvfs)))
    history.append(surprise.value())


turning = Follow(ConstantAction(3, 5))
with Life(
    env, horde, turning, np.random.default_rng(0), interface=interface, observers=[look]
) as life:
    life.run(18_000)
figure, axes = plt.subplots(figsize=(9, 3.4), layout="constrained")
minutes = np.arange(len(history)) / 600
surprises = np.array(history)
for group in groups:
    members = [k for k, i in enumerate(channels) if interface.channels[i].group == group]
    axes.plot(
        minutes[1800:],
        surprises[1800:, members].mean(axis=1),
        lw=1.1,
        label=group.replace("_", " "),
    )
axes.axvline(moved_s / 60, color="0.4", lw=0.8, ls="--", label="the lamp is moved")
axes.set(xlabel="robot time (min)", ylabel="surprise (UDE, mean of the group)", ylim=(0, None))
axes.legend(frameon=False)
figure.savefig(Path(__file__).with_suffix(".png"), dpi=110)
env.close()
