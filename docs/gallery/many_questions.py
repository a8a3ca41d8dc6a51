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

N_FEATURES = 800
N_ACTIVE = 40
N_CHANNELS = 50
TIMES = Path(__file__).with_suffix(".csv")


def many_questions() -> list[GVF]:
    """Return a question for each of 5 actions, 50 channels and 400 time scales."""
    questions = []
    for action in range(5):
        for channel in range(N_CHANNELS):
            for horizon in np.linspace(1.1, 20.0, 400):  # in steps
                name = f"{action}/{channel}/{horizon:.4f}"
                gamma = 1 - 1 / float(horizon)
                questions.append(GVF(name, ConstantAction(action, 5), Channel(channel), gamma))
    return questions


def measure() -> list[float]:
    """Return the times of 150 steps in ms, with random observations and features."""
    rng = np.random.default_rng(seed=0)
    config = LearnerConfig.paper(vector_mspbe=False)
    horde = Horde(many_questions(), n_features=N_FEATURES, n_active=N_ACTIVE, config=config)
    times_ms = []
    for step in range(151):
        action = int(rng.integers(5))
        observation = rng.random(N_CHANNELS)
        tiles = np.sort(rng.permutation(N_FEATURES)[:N_ACTIVE])
        if step == 0:
            horde.begin(observation, tiles)
            continue
        start = time.perf_counter()
        horde.learn(action, 0.2, observation, tiles)
        times_ms.append(1e3 * (time.perf_counter() - start))
    return times_ms


if "--measure" in sys.argv:
    header = f"time of a step in ms; 100,000 questions, {N_FEATURES} features"
    np.savetxt(TIMES, measure(), fmt="%.3f", header=header)
times_ms = np.loadtxt(TIMES)
figure, axes = plt.subplots(figsize=(7, 3.2), layout="constrained")
axes.hist(times_ms[20:], bins=40, label=f"100,000 questions, {N_FEATURES} features")
axes.axvline(100, color="0.4", lw=0.8, ls="--", label="the period of the robot")
axes.set(xlabel="one step of learning (ms)", ylabel="steps")
axes.legend(frameon=False)
figure.savefig(Path(__file__).with_suffix(".png"), dpi=140)
