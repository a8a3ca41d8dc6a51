"""A hundred thousand questions: the time of a step, of the 100 ms that a robot at 10 Hz allows.

The picture shows the times in many_questions.csv; `python docs/gallery/many_questions.py --measure`
updates them.
"""

import sys
import time
from pathlib import Path

import matplotlib.pyplot as plt
import numpy as np

from horde_agent import GVF, Channel, ConstantAction, Horde, LearnerConfig

N = 800
N_ACTIVE = 40
N_CHANNELS = 50
TIMES = Path(__file__).with_suffix(".csv")


def measure() -> np.ndarray:
    """Return the times of 150 steps in ms."""
    rng = np.random.default_rng(0)
    gammas = 1 - 1 / np.linspace(1.1, 20, 400)
    questions = [
        GVF(f"{a}/{c}/{g:.4f}", ConstantAction(a, 5), Channel(c), float(g))
        for a in range(5) for c in range(N_CHANNELS) for g in gammas
    ]  # fmt: skip
    horde = Horde(
        questions, n_features=N, n_active=N_ACTIVE, config=LearnerConfig(vector_mspbe=False)
    )

    def state() -> tuple[np.ndarray, np.ndarray]:
        return rng.random(N_CHANNELS), np.sort(rng.permutation(N)[:N_ACTIVE])

    horde.begin(*state())
    times_ms = []
    for _ in range(150):
        action = int(rng.integers(5))
        (observation, tiles) = state()
        start = time.perf_counter()
        horde.learn(action, 0.2, observation, tiles)
        times_ms.append(1e3 * (time.perf_counter() - start))
    return np.array(times_ms)


if "--measure" in sys.argv:
    np.savetxt(
        TIMES, measure(), fmt="%.3f", header="time of a step in ms; 100,000 questions, 800 features"
    )
times_ms = np.loadtxt(TIMES)
figure, axes = plt.subplots(figsize=(9, 3.4), layout="constrained")
axes.hist(times_ms[20:], bins=40, label=f"100,000 questions, {N} features")
axes.axvline(100, color="0.4", lw=0.8, ls="--", label="the period of the robot")
axes.set(xlabel="one step of learning (ms)", ylabel="steps")
axes.legend(frameon=False)
figure.savefig(Path(__file__).with_suffix(".png"), dpi=110)
