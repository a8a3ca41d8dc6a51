"""The two engines by turns: environment steps per second through gym.make, and the physics alone, for 0.1 s."""

from __future__ import annotations

import time
from statistics import median
from typing import Any

import gymnasium as gym
import numpy as np
import psutil

from horde_env.sim.physics import PHYSICS


def main(n_rounds: int = 9, n_steps: int = 1_000) -> dict[str, Any]:
    """Return steps per second, microseconds of `Body.run` per step, the planar engine's factors, and memory in MB."""
    envs = {name: gym.make("horde_env:CritterbotPen-v0", physics=name) for name in PHYSICS}
    rates: dict[str, list[float]] = {name: [] for name in PHYSICS}
    bare: dict[str, list[float]] = {name: [] for name in PHYSICS}
    for env in envs.values():
        env.reset(seed=0)
    rng = np.random.default_rng(0)
    actions = [4]
    for _ in range(n_steps - 1):
        actions.append(int(rng.integers(5)) if rng.random() < 0.5 else actions[-1])
    noise = rng.standard_normal((10, 3))
    for _ in range(n_rounds):
        for name, env in envs.items():
            began = time.perf_counter()
            for action in actions:
                env.step(action)
            rates[name].append(n_steps / (time.perf_counter() - began))
            machine: Any = env.unwrapped.backend.machine  # type: ignore[attr-defined]
            began = time.perf_counter()
            for _ in range(n_steps // 4):
                machine.body.run(machine._drive, (165, False, 16.5, -1), noise)
            bare[name].append((time.perf_counter() - began) / (n_steps // 4))
    for env in envs.values():
        env.close()
    return {
        "rss_mb": round(psutil.Process().memory_info().rss / 1e6),
        "env_steps_per_s": {name: round(median(rates[name])) for name in PHYSICS},
        "env_times_faster": round(median(np.divide(rates["planar"], rates["bullet"])), 2),
        "physics_us": {name: round(1e6 * median(bare[name]), 1) for name in PHYSICS},
        "physics_times_faster": round(median(np.divide(bare["bullet"], bare["planar"])), 1),
    }
