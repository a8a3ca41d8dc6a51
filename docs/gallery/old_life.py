"""Old life, new questions: a recorded life is learned from again, with questions chosen after it was recorded."""

from pathlib import Path

import gymnasium as gym
import matplotlib.pyplot as plt
import numpy as np

from horde_agent import GVF, Channel, ConstantAction, Horde, Interface, Life, StickyRandom, relearn
from horde_agent.record import Recorder

env = gym.make("horde_env:CritterbotPen-v0", physics="planar")
interface = Interface.of(env)
record = Recorder(57)


def asking(*names: str) -> Horde:
    gvfs = [GVF(name, ConstantAction(0, 5), Channel(interface.index(name)), 0.8) for name in names]
    return Horde(gvfs, n_features=interface.coder.n_features, n_active=interface.coder.n_active)


with Life(
    env,
    asking("light_0"),
    StickyRandom(5),
    np.random.default_rng(0),
    interface=interface,
    recorder=record,
) as life:
    life.run(30_000)
env.close()
horde = asking("thermal_0", "magnetic_x", "motor_current_100")
curve = list[np.ndarray]()
student = relearn(
    record.stream(),
    horde,
    interface,
    observer=lambda student, step: (
        curve.append(student.errors.online()) if step % 100 == 0 else None
    ),
)
figure, axes = plt.subplots(figsize=(9, 3.4), layout="constrained")
for name, line in zip(horde.names, np.array(curve).T, strict=True):
    axes.semilogy(np.arange(len(line)) / 6, line, label=name)
axes.axhline(1.0, color="0.4", lw=0.8, ls="--", label="predicting the mean return")
axes.set(xlabel="minutes of the recorded life", ylabel="NMSRE so far")
axes.legend(frameon=False, ncols=2)
figure.savefig(Path(__file__).with_suffix(".png"), dpi=110)
