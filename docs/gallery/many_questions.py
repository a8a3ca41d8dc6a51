"""100,000 questions at 10 Hz: how long does a step take, where 100 ms are allowed? As measured for this page."""

import time
from pathlib import Path

import matplotlib.pyplot as plt
import numpy as np

from horde_agent import GVF, Channel, ConstantAction, Horde, LearnerConfig

N, N_ACTIVE, N_CHANNELS = 800, 40, 50
rng = np.random.default_rng(0)
gammas = 1 - 1 / np.linspace(1.1, 20, 400)
asked = [
    GVF(f"{a}/{c}/{g:.4f}", ConstantAction(a, 5), Channel(c), float(g))
    for a in range(5) for c in range(N_CHANNELS) for g in gammas
]  # fmt: skip
config = LearnerConfig(vector_mspbe=False)
horde = Horde(asked, n_features=N, n_active=N_ACTIVE, config=config)


def state() -> tuple[np.ndarray, np.ndarray]:
    return rng.random(N_CHANNELS), np.sort(rng.permutation(N)[:N_ACTIVE])


horde.begin(*state())
took_ms = []
for _ in range(150):
    action, (observation, tiles) = int(rng.integers(5)), state()
    began = time.perf_counter()
    horde.learn(action, 0.2, observation, tiles)
    took_ms.append(1e3 * (time.perf_counter() - began))
figure, axes = plt.subplots(figsize=(9, 3.4), layout="constrained")
axes.hist(took_ms[20:], bins=40, label=f"{horde.n_demons:,} questions, {N} features")
axes.axvline(100, color="0.4", lw=0.8, ls="--", label="the period of the robot")
axes.set(xlabel="one step of learning (ms)", ylabel="steps")
axes.legend(frameon=False)
figure.savefig(Path(__file__).with_suffix(".png"), dpi=110)
