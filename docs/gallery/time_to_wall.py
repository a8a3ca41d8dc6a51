"""Time to the wall: a cumulant of .1 counts seconds until something is near ahead."""

from pathlib import Path

import gymnasium as gym
import matplotlib.pyplot as plt
import numpy as np

from horde_agent import GVF, ConstantAction, Horde, Interface, LearnerConfig, Life, StickyRandom
from horde_agent.life.excursions import ExcursionConfig

env = gym.make("horde_env:CritterbotPen-v0", physics="planar")
interface = Interface.of(env)
coder = interface.coder
nose = interface.index("ir_distance_0")


def seconds(observation, tiles) -> float:
    return interface.period_s


def until_near(observation, tiles) -> float:
    if observation[nose] > 0.4:
        return 0.0  # the question ends at the wall,
    return 0.95  # and elsewhere after some 2 s


forward = ConstantAction(0, n_actions=5)
question = GVF("time to the wall", forward, seconds, until_near, lam=0.9)
config = LearnerConfig(offset=0.0)
horde = Horde([question], n_features=coder.n_features, n_active=coder.n_active, config=config)

behaviour = StickyRandom(n_actions=5, repeat=0.8)
rng = np.random.default_rng(seed=0)
often = ExcursionConfig(probability=0.02, horizon=80)  # now and then the robot tries it out
with Life(env, horde, behaviour, rng, excursions=often) as life:
    life.run(60_000)
env.close()

tests = life.student.errors.table.outcomes()[0]
second_half = slice(len(tests.returns) // 2, None)
measured = tests.returns[second_half, 0]
predicted = tests.predictions[second_half, 0]
figure, axes = plt.subplots(figsize=(7, 3.2), layout="constrained")
axes.plot(measured, predicted, "o", ms=4, alpha=0.6, label="one test excursion")
axes.axline((0, 0), slope=1, color="0.4", lw=0.8, ls="--", label="predicted = measured")
axes.set(xlabel="time that it then took (s, discounted)", ylabel="predicted (s)")
axes.set(xlim=(0, 2.1), ylim=(0, 2.1))
axes.legend(frameon=False)
figure.savefig(Path(__file__).with_suffix(".png"), dpi=140)
