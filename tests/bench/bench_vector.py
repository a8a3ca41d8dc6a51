"""Steps per second of many robots, by turns: one call of a kernel, one environment, processes, and MuJoCo's Ant.

Beside it the processor time of a step, all threads and processes together, which other programs
hardly change.

    python -m tests.bench.bench_vector [--ant] [--ppo]

--ant needs `pip install "gymnasium[mujoco]"`, --ppo stable-baselines3.
"""

from __future__ import annotations

import json
import os
import sys
import time
from collections.abc import Callable
from statistics import median
from typing import Any

import gymnasium as gym
import numpy as np
import psutil

PEN = "horde_env:CritterbotPen-v0"
N_WORKERS = (2, 4, 8)


def vector(n: int, **arguments: Any) -> Any:
    return gym.make_vec(PEN, n, "vector_entry_point", physics="planar", **arguments)


def cpu_s() -> float:
    """Return the processor time of this process and its children so far."""
    process = psutil.Process()
    return sum(sum(each.cpu_times()[:2]) for each in (process, *process.children(recursive=True)))


def turn_of(env: Any, n: int, min_s: float) -> Callable[[], tuple[float, float]]:
    """Return a function that steps for `min_s` and returns steps/s, and microseconds of processor time per step."""
    rng = np.random.default_rng(0)
    env.reset(seed=0)
    discrete = isinstance(env.action_space, gym.spaces.Discrete | gym.spaces.MultiDiscrete)
    single = getattr(env, "single_action_space", env.action_space)
    is_many = hasattr(env, "num_envs")
    if discrete:
        actions = rng.integers(5, size=n)
    else:
        actions = np.zeros((n, *single.shape), np.float32)

    def turn() -> tuple[float, float]:
        nonlocal actions
        n_steps = 0
        used = cpu_s()
        began = time.perf_counter()
        while (spent := time.perf_counter() - began) < min_s:
            if discrete:
                actions = np.where(rng.random(n) < 0.1, rng.integers(5, size=n), actions)
            else:
                actions = rng.uniform(-1.0, 1.0, actions.shape).astype(np.float32)
            env.step(actions if is_many else actions[0])
            n_steps += n
        return n_steps / spent, 1e6 * (cpu_s() - used) / n_steps

    return turn


def rates(
    n_rounds: int = 7, min_s: float = 1.0, *, with_ant: bool = False
) -> dict[str, dict[str, float]]:
    """Return medians of each environment, and of its ratio to 256 robots in the same round."""
    envs: dict[str, tuple[Any, int]] = {"one, gymnasium.make": (gym.make(PEN, physics="planar"), 1)}
    envs |= {f"vector, {n}": (vector(n), n) for n in (1, 16, 64, 256, 1024)}
    envs |= {f"async, {n}": (gym.make_vec(PEN, n, "async", physics="planar"), n) for n in N_WORKERS}
    if with_ant:
        envs |= {f"Ant-v5, async, {n}": (gym.make_vec("Ant-v5", n, "async"), n) for n in N_WORKERS}
    turns = {name: turn_of(env, n, min_s) for name, (env, n) in envs.items()}
    found: dict[str, list[tuple[float, float]]] = {name: [] for name in envs}
    for _ in range(n_rounds):
        for name, turn in turns.items():
            found[name].append(turn())
    for env, _ in envs.values():
        env.close()
    rate, cpu_us = ({name: np.array(turns)[:, k] for name, turns in found.items()} for k in (0, 1))
    return {
        "steps_per_s": {name: round(median(rates)) for name, rates in rate.items()},
        "cpu_us_per_step": {name: round(median(times), 2) for name, times in cpu_us.items()},
        "vector_256_is_times_faster": {
            n: round(median(rate["vector, 256"] / r), 2) for n, r in rate.items()
        },
        "vector_256_uses_times_less_cpu": {
            n: round(median(t / cpu_us["vector, 256"]), 2) for n, t in cpu_us.items()
        },
    }


class Timed:
    """Adds up the time spent in an environment's steps."""

    def __init__(self, env: Any) -> None:
        self.spent_s = 0.0
        self._step = env.step
        env.step = self

    def __call__(self, actions: Any) -> Any:
        began = time.perf_counter()
        try:
            return self._step(actions)
        finally:
            self.spent_s += time.perf_counter() - began


def ppo(n_robots: int, n_rollouts: int = 3) -> dict[str, float]:
    """Return steps per second of PPO's training, and the environment's share of its time; 0 robots: one environment."""
    from stable_baselines3 import PPO

    from horde_agent.sb3 import BatchVecEnv

    arguments = {"task": "light", "max_episode_steps": 500}
    if n_robots:
        inner = vector(n_robots, autoreset_mode="SameStep", **arguments)
        env: Any = BatchVecEnv(inner)
    else:
        env = inner = gym.make(PEN, physics="planar", **arguments)
    n_steps = max(2_048 // max(n_robots, 1), 1)
    model = PPO(
        "MlpPolicy", env, n_steps=n_steps, batch_size=256 if n_robots else 64, seed=0, device="cpu"
    )
    model.learn(n_steps * max(n_robots, 1))  # compiles, and starts threads
    timed = Timed(inner)
    steps = n_rollouts * n_steps * max(n_robots, 1)
    began = time.perf_counter()
    model.learn(steps)
    wall_s = time.perf_counter() - began
    env.close()
    return {
        "steps_per_s": round(steps / wall_s),
        "share_of_environment": round(timed.spent_s / wall_s, 3),
    }


def main(arguments: list[str]) -> dict[str, Any]:
    """Return all figures, and the load of the machine at the beginning."""
    figures: dict[str, Any] = {"load": os.getloadavg(), **rates(with_ant="--ant" in arguments)}
    if "--ppo" in arguments:
        figures["ppo"] = {f"{n} robots": ppo(n) for n in (0, 16, 256)}
    return figures


if __name__ == "__main__":
    print(json.dumps(main(sys.argv[1:]), indent=1))
