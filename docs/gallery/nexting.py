"""Nexting: how much light will the front sensor see, over four time scales (Modayil, White & Sutton, 2014)."""

from pathlib import Path

import gymnasium as gym
import matplotlib.pyplot as plt
import numpy as np

from horde_agent import GVF, Behaviour, Channel, Horde, Interface, Life, StickyRandom

env = gym.make("horde_env:CritterbotPen-v0", physics="planar")
interface = Interface.of(env)
scales = (0.1, 0.5, 2.0, 8.0)  # seconds
questions = [
    GVF(
        f"{s} s", Behaviour(), Channel(interface.index("light_0")), 1 - env.metadata["period_s"] / s
    )
    for s in scales
]
horde = Horde(questions, n_features=interface.coder.n_features, n_active=interface.coder.n_active)
rows: list[np.ndarray] = []


def look(event) -> None:
    if event.life.steps > 7_400:  # predictions in units of the signal: the return times 1 - gamma
        means = horde.predictions * [1 - q.continuation for q in questions]
        rows.append(np.append(means, event.row.observation[interface.index("light_0")]))


with Life(
    env,
    horde,
    StickyRandom(5, 0.9),
    np.random.default_rng(0),
    interface=interface,
    observers=[look],
) as life:
    life.run(8_000)
curves = np.array(rows)
figure, axes = plt.subplots(figsize=(9, 3.4), layout="constrained")
axes.plot(0.1 * np.arange(len(curves)), curves[:, -1], color="0.75", label="light ahead")
for k, scale in enumerate(scales):
    axes.plot(0.1 * np.arange(len(curves)), curves[:, k], lw=1.2, label=f"over {scale:g} s")
axes.set(xlabel="robot time (s)", ylabel="share of full scale")
axes.legend(frameon=False, ncols=5, fontsize=8)
figure.savefig(Path(__file__).with_suffix(".png"), dpi=110)
env.close()
