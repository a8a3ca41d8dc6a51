"""Old life, new questions: a recorded life is learned from again, with questions chosen later."""

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
    relearn,
)
from horde_agent.record import Recorder

CONFIG = LearnerConfig.paper()

env = gym.make("horde_env:CritterbotPen-v0", physics="planar")
interface = Interface.of(env)
coder = interface.coder


def horde_about(*channels: str) -> Horde:
    """Return a Horde that asks what each channel would be if the robot drove forward."""
    questions = []
    for name in channels:
        channel = Channel(interface.index(name))
        questions.append(GVF(name, ConstantAction(0, n_actions=5), channel, continuation=0.8))
    return Horde(questions, n_features=coder.n_features, n_active=coder.n_active, config=CONFIG)


recorder = Recorder(len(interface.channels))
behaviour = StickyRandom(n_actions=5)
first = horde_about("light_0")
with Life(env, first, behaviour, np.random.default_rng(seed=0), recorder=recorder) as life:
    life.run(30_000)
env.close()

second = horde_about("thermal_0", "magnetic_x", "motor_current_100")
curve: list[np.ndarray] = []


def record(student, step) -> None:
    if step % 100 == 0:
        curve.append(student.errors.online())


relearn(recorder.stream(), second, interface, observer=record)

minutes = np.arange(len(curve)) / 6
figure, axes = plt.subplots(figsize=(7, 3.2), layout="constrained")
axes.semilogy(minutes, curve, label=second.names)
axes.axhline(1.0, color="0.4", lw=0.8, ls="--", label="predicting the mean return")
axes.set(xlabel="minutes of the recorded life", ylabel="NMSRE so far")
axes.legend(frameon=False, ncols=2)
figure.savefig(Path(__file__).with_suffix(".png"), dpi=140)
