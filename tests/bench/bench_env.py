"""Environment steps per second through gym.make, rendering off, on one core; and the memory that it takes.

In the same rounds, the minimum that PyBullet needs for a step: ten times set the forces, step and read, for a body in
the free middle of the pen. This package cannot reduce that share.
"""

from __future__ import annotations

import json
import time
from statistics import median
from typing import Any

import gymnasium as gym
import numpy as np
import psutil

from horde_env.robot import asset
from horde_env.robots.critterbot.place import load_pen
from horde_env.sim.bullet import PlanarBody

TICKS = 10


def main(n_rounds: int = 9, n_steps: int = 1_000) -> dict[str, Any]:
    """Return steps per second (median and best of rounds) under sticky random behaviour, the share of it, RSS in MB."""
    env, bare = (
        gym.make("horde_env:CritterbotPen-v0"),
        PlanarBody(asset("robot/critterbot.urdf"), load_pen().boxes(), tick_s=0.01),
    )
    env.reset(seed=0)
    rss = psutil.Process().memory_info().rss / 1e6
    rng, action, rates, shares = np.random.default_rng(0), 4, [], []
    for _ in range(n_rounds):
        began = time.perf_counter()
        for _ in range(n_steps):
            if rng.random() < 0.5:
                action = int(rng.integers(5))
            env.step(action)
        spent = time.perf_counter() - began
        began = time.perf_counter()
        for _ in range(n_steps * TICKS // 4):
            bare.step((0.0, 0.0, 0.0))
        rates.append(n_steps / spent)
        shares.append(4.0 * (time.perf_counter() - began) / spent)
    env.close()
    bare.close()
    return {
        "env_steps_per_s": round(median(rates)),
        "env_steps_per_s_best": round(max(rates)),
        "share_of_bare_pybullet": round(median(shares), 2),
        "env_rss_mb": round(rss),
    }


if __name__ == "__main__":
    print(json.dumps(main()))
