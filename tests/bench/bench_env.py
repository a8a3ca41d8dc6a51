"""Environment steps per second through gym.make, rendering off, on one core; and the memory that it takes."""

from __future__ import annotations

import time
from statistics import median
from typing import Any

import gymnasium as gym
import numpy as np
import psutil


def main(n_rounds: int = 7, n_steps: int = 2_000) -> dict[str, Any]:
    """Return steps per second (median and best of rounds) under the paper's sticky random behaviour, and RSS in MB."""
    env = gym.make("horde_env:CritterbotPen-v0")
    env.reset(seed=0)
    rng, action, rates = np.random.default_rng(0), 4, []
    for _ in range(n_rounds):
        began = time.perf_counter()
        for _ in range(n_steps):
            if rng.random() < 0.5:
                action = int(rng.integers(5))
            env.step(action)
        rates.append(n_steps / (time.perf_counter() - began))
    rss = psutil.Process().memory_info().rss / 1e6
    env.close()
    return {"env_steps_per_s": median(rates), "env_steps_per_s_best": max(rates), "env_rss_mb": rss}


if __name__ == "__main__":
    print(main())
