"""Time to the wall: how long until something is near ahead, if the robot drove on? A cumulant of .1 counts seconds."""

from pathlib import Path

import gymnasium as gym
import matplotlib.pyplot as plt
import numpy as np

from horde_agent import GVF, ConstantAction, Horde, Interface, Life, StickyRandom
from horde_agent.life.excursions import ExcursionConfig

env = gym.make("horde_env:CritterbotPen-v0", physics="planar")
interface = Interface.of(env)
nose = interface.index("ir_distance_0")
period_s = env.metadata["period_s"]


def until_near(observation, tiles) -> float:
    # The question ends there, and elsewhere after some 2 s
    if observation[nose] > 0.4:
        return 0.0
    return 0.95


question = GVF(
    "time to the wall",
    ConstantAction(0, 5),
    lambda observation, tiles: period_s,
    until_near,
    lam=0.9,
)
horde = Horde([question], n_features=interface.coder.n_features, n_active=interface.coder.n_active)
often = ExcursionConfig(probability=0.02, horizon=80)  # the robot tries it out now and then
with Life(
    env,
    horde,
    StickyRandom(5, 0.8),
    np.random.default_rng(0),
    interface=interface,
    excursions=often,
) as life:
    life.run(60_000)
(tried,) = life.student.errors.table.outcomes()
half = len(tried.returns) // 2  # of the second half of its life
figure, axes = plt.subplots(figsize=(9, 3.4), layout="constrained")
axes.plot(
    tried.returns[half:, 0],
    tried.predictions[half:, 0],
    "o",
    ms=4,
    alpha=0.6,
    label="one test excursion",
)
axes.axline((0, 0), slope=1, color="0.4", lw=0.8, ls="--", label="as predicted")
axes.set(
    xlabel="time that it then took (s, discounted)",
    ylabel="predicted (s)",
    xlim=(0, 2.1),
    ylim=(0, 2.1),
)
axes.legend(frameon=False)
figure.savefig(Path(__file__).with_suffix(".png"), dpi=110)
env.close()
