"""What if: the reflectance ahead, if the robot went forward or backward, both from the same stream."""

from pathlib import Path

import gymnasium as gym
import matplotlib.pyplot as plt
import numpy as np

from horde_agent import GVF, Channel, ConstantAction, Horde, Interface, Life, StickyRandom

env = gym.make("horde_env:CritterbotPen-v0", physics="planar")
interface = Interface.of(env)
nose = interface.index("ir_distance_0")
questions = [
    GVF(name, ConstantAction(interface.actions.index(name), 5), Channel(nose), 0.8)
    for name in ("forward", "reverse")
]
horde = Horde(questions, n_features=interface.coder.n_features, n_active=interface.coder.n_active)
rows: list[list[float]] = []


def look(event) -> None:
    if event.life.steps > 19_400:
        rows.append([*(0.2 * horde.predictions), event.row.observation[nose]])


with Life(
    env,
    horde,
    StickyRandom(5, 0.8),
    np.random.default_rng(1),
    interface=interface,
    observers=[look],
) as life:
    life.run(20_000)
curves = np.array(rows)
t = 0.1 * np.arange(len(curves))
figure, axes = plt.subplots(figsize=(9, 3.4), layout="constrained")
axes.plot(t, curves[:, 2], color="0.75", label="seen ahead now")
axes.plot(t, curves[:, 0], label="if it went forward")
axes.plot(t, curves[:, 1], label="if it went backward")
axes.set(xlabel="robot time (s)", ylabel="reflectance over the next 0.5 s")
axes.legend(frameon=False, ncols=3, fontsize=8)
figure.savefig(Path(__file__).with_suffix(".png"), dpi=110)
env.close()
