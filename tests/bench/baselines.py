"""Compare PPO on each task with a random and a hand-written policy: three seeds, a table and a picture.

python -m tests.bench.baselines [--steps 30000] [--out FOLDER]. Reward per step is the mean over ten
episodes of 50 s that no training saw, each begun at the same poses for all; PPO draws its actions
there as it does when it learns.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import gymnasium as gym
import numpy as np

from horde_env.robot import critterbot

SPEC = critterbot()
FORWARD, REVERSE, CLOCKWISE, COUNTER, STOP = range(5)
TASKS = ("light", "beacon", "centre", "spin")
SEEDS = (0, 1, 2)
EPISODE_STEPS = 500
N_ENVS = 4
EPISODES = range(1000, 1010)  # seeds

Policy = Callable[[np.ndarray], int]


def make(task: str) -> gym.Env[Any, Any]:
    return gym.make(
        "horde_env:CritterbotPen-v0", physics="planar", task=task, max_episode_steps=EPISODE_STEPS
    )


def towards(group: str) -> Policy:
    """Return a policy that turns towards a group's strongest reading, then drives until an obstacle is near."""
    at = SPEC.group(group)
    nose = SPEC.group("ir_distance").start
    ways = np.exp(1j * SPEC.angles(group))

    def act(seen: np.ndarray) -> int:
        bearing = float(np.angle(((seen[at] - seen[at].min()) * ways).sum()))
        if abs(bearing) > 0.3:
            if bearing > 0:
                return COUNTER
            return CLOCKWISE
        if seen[nose] > 0.5:
            return STOP
        return FORWARD

    return act


def clear(seen: np.ndarray) -> int:
    """Stop if no obstacle is near; else turn the back to it and drive off, or reverse if it is ahead."""
    readings = seen[SPEC.group("ir_distance")]
    angles = np.angle(np.exp(1j * SPEC.angles("ir_distance")))
    k = int(readings.argmax())
    if readings[k] < 0.03:
        return STOP
    if abs(angles[k]) < 0.8:
        return REVERSE
    if abs(angles[k]) > 2.3:
        return FORWARD
    return CLOCKWISE if angles[k] > 0 else COUNTER


HAND: dict[str, Policy] = {
    "light": towards("light"),
    "beacon": towards("ir_light"),
    "centre": clear,
    "spin": lambda _seen: COUNTER,
}


def judged(task: str, policy: Policy) -> float:
    """Return the mean reward per step over the test episodes."""
    env = make(task)
    rewards = []
    for seed in EPISODES:
        observation, _ = env.reset(seed=seed)
        for _ in range(EPISODE_STEPS):
            observation, reward, *_ = env.step(policy(observation))
            rewards.append(float(reward))
    env.close()
    return float(np.mean(rewards))


def train(task: str, seed: int, steps: int) -> tuple[list[tuple[int, float]], Policy]:
    """Return PPO's learning curve (steps, mean reward per step of the rollout) and the learned policy."""
    from stable_baselines3 import PPO
    from stable_baselines3.common.callbacks import BaseCallback
    from stable_baselines3.common.vec_env import DummyVecEnv

    class Curve(BaseCallback):
        """The environments' own rewards: PPO's buffer adds a bootstrap value to truncated episodes."""

        points: list[tuple[int, float]]
        paid: list[float]

        def _on_step(self) -> bool:
            self.paid.append(float(self.locals["rewards"].mean()))
            return True

        def _on_rollout_end(self) -> None:
            self.points.append((self.num_timesteps, float(np.mean(self.paid))))
            self.paid.clear()

    envs = DummyVecEnv([lambda: make(task)] * N_ENVS)
    model = PPO(
        "MlpPolicy",
        envs,
        n_steps=256,
        batch_size=128,
        n_epochs=6,
        gamma=0.97,
        seed=seed,
        device="cpu",
    )
    curve = Curve()
    curve.points = []
    curve.paid = []
    model.learn(steps, callback=curve)
    envs.close()
    return curve.points, lambda seen: int(model.predict(seen, deterministic=False)[0])


def draw(found: dict[str, Any], path: Path) -> None:
    """Draw a panel for each task: PPO's three curves, random and by hand."""
    import matplotlib.pyplot as plt

    figure, panels = plt.subplots(1, len(TASKS), figsize=(12, 3.2), layout="constrained")
    for task, axes in zip(TASKS, panels, strict=True):
        for k, curve in enumerate(found[task]["curves"]):
            axes.plot(
                *np.transpose(curve),
                color="C0",
                lw=1,
                alpha=0.8,
                label="PPO, three seeds" if k == 0 else None,
            )
        axes.axhline(found[task]["random"], color="0.5", ls=":", label="random")
        axes.axhline(found[task]["hand"], color="C1", ls="--", label="by hand")
        axes.set(title=f'task="{task}"', xlabel="steps")
    panels[0].set_ylabel("reward per step")
    panels[0].legend(frameon=False, fontsize=8)
    figure.savefig(path, dpi=110)


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--steps", type=int, default=30_000)
    parser.add_argument("--out", type=Path, default=Path("runs/baselines"))
    arguments = parser.parse_args()
    arguments.out.mkdir(parents=True, exist_ok=True)
    results: dict[str, Any] = {}
    for task in TASKS:
        began = time.perf_counter()
        rng = np.random.default_rng(0)
        trained = [train(task, seed, arguments.steps) for seed in SEEDS]
        results[task] = {
            "random": judged(task, lambda _seen: int(rng.integers(5))),  # noqa: B023  asked within the loop
            "hand": judged(task, HAND[task]),
            "curves": [curve for curve, _ in trained],
        }
        rewards = " ".join(f"{judged(task, policy):.3f}" for _, policy in trained)
        simple = f"{results[task]['random']:.3f} | {results[task]['hand']:.3f}"
        print(f"| {task} | {simple} | {rewards} | {time.perf_counter() - began:.0f} s", flush=True)
    draw(results, arguments.out / "baselines.png")


if __name__ == "__main__":
    main()
