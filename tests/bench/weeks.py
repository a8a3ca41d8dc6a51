"""Count alarms of `--surprise 1/week` in weeks without a fault: `python -m tests.bench.weeks SEED ...`.

A planar robot lives a simulated week for each seed with 840 questions, excursions, docking, heat and battery
cycles. Its light comes and goes with a day of six hours (odd seeds) or 24, and three channels are added: noise, a
random walk, and noise that grows with motion. With `--stride 9` the questions are every ninth of the family, one or
two about each channel, which takes half the time. Alarms are printed.
"""

from __future__ import annotations

import argparse
import math
from typing import Any

import gymnasium
import numpy as np

from examples.reproduce.surprise import SurpriseSize, watched_robot
from horde_agent.horde import Mode
from horde_agent.life.bodies import make_body
from horde_agent.life.life import LifeHooks, StepEvent
from horde_agent.scoring.surprise import Surprise

WEEK_STEPS = 6_048_000
WEEK = SurpriseSize(before=WEEK_STEPS, after=0, stride=1, excursions=0.02)
NIGHT = 0.4
"""Share of the light that is left at night."""
ADDED = ("noise", "walk", "noise_of_motion")
WALK_STEP = 0.002
NOISE = 0.1
HOUR_S = 3_600.0


class DayRobot(gymnasium.Wrapper[Any, Any, Any, Any]):
    """A robot in light that changes with the time of the day, with three further channels."""

    def __init__(self, env: gymnasium.Env[Any, Any], day_s: float, seed: int) -> None:
        super().__init__(env)
        metadata = dict(env.unwrapped.metadata)
        names = [channel["name"] for channel in metadata["channels"]]
        groups = [channel["group"] for channel in metadata["channels"]]
        added = [
            {
                "name": name,
                "group": name,
                "unit": "1",
                "sensor": True,
                "range": [0.0, 1.0],
                "step": None,
            }
            for name in ADDED
        ]
        metadata["channels"] = [*metadata["channels"], *added]
        self.metadata = metadata
        self.observation_space = gymnasium.spaces.Box(
            0.0, 1.0, (len(names) + len(ADDED),), np.float32
        )
        self._is_light = np.array([group == "light" for group in groups])
        self._velocity = [k for k, group in enumerate(groups) if group == "motor_velocity"]
        self._day_s = day_s
        self._rng = np.random.default_rng(seed)
        self._walk = 0.5

    def reset(self, **options: Any) -> tuple[Any, dict[str, Any]]:
        observation, info = self.env.reset(**options)
        return self._observed(observation, info), info

    def step(self, action: Any) -> tuple[Any, Any, bool, bool, dict[str, Any]]:
        observation, reward, terminated, truncated, info = self.env.step(action)
        return self._observed(observation, info), reward, terminated, truncated, info

    def _observed(self, observation: Any, info: dict[str, Any]) -> Any:
        """Return an observation, shape (n_channels + 3,)."""
        phase = 2.0 * math.pi * float(info.get("t", 0.0)) / self._day_s
        daylight = NIGHT + (1.0 - NIGHT) * (0.5 + 0.5 * math.cos(phase))
        changed = np.where(self._is_light, observation * daylight, observation)
        noise = self._rng.standard_normal(3)
        self._walk = min(max(self._walk + WALK_STEP * noise[0], 0.0), 1.0)
        speed = np.abs(observation[self._velocity] - 0.5).max()
        added = [0.5 + NOISE * noise[1], self._walk, 0.5 + 2.0 * NOISE * speed * noise[2]]
        return np.concatenate([changed, np.clip(added, 0.0, 1.0)]).astype(np.float32)


class Progress(LifeHooks):
    """Prints the steps so far, and the alarms."""

    def __init__(self, surprise: Surprise) -> None:
        self._next = 0
        surprise.on_event = lambda event: print(event.sentence, flush=True)

    def after_step(self, event: StepEvent) -> None:
        if event.life.steps >= self._next:
            self._next = event.life.steps + 200_000
            dockings = event.life.dockings.n_done
            print(f"{event.life.steps:>10,} steps, {dockings} dockings", flush=True)


def live_a_week(seed: int, size: SurpriseSize, mode: Mode) -> int:
    """Live, print the alarms, and return their number."""
    day_s = 24.0 * HOUR_S
    if seed % 2:
        day_s = 6.0 * HOUR_S
    env = DayRobot(make_body("simulator", robot="critterbot", physics="planar"), day_s, seed)
    life, surprise = watched_robot(env, seed, size, mode)
    life.observers.append(Progress(surprise))
    with life:
        life.run(size.before)
    alarms = [event for event in surprise.events if event.name == "surprise"]
    print(
        f"seed {seed}: {life.steps:,} steps, {life.student.horde.n_demons} questions, {life.dockings.n_done} "
        f"dockings, {len(alarms)} alarms"
    )
    return len(alarms)


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("seeds", type=int, nargs="+")
    parser.add_argument("--steps", type=int, default=WEEK_STEPS)
    parser.add_argument("--stride", type=int, default=1, help="of the questions that are asked")
    parser.add_argument("--mode", choices=("eager", "deferred"), default="eager")
    options = parser.parse_args()
    size = WEEK._replace(before=options.steps, stride=options.stride)
    n_alarms = [live_a_week(seed, size, options.mode) for seed in options.seeds]
    print(f"{sum(n_alarms)} alarms in {len(n_alarms)} weeks")


if __name__ == "__main__":
    main()
