"""Trips: the files and functions of the packages that one steady step enters.

    python -m tests.bench.bench_trips [NAME ...]      # with the functions by their names

A step is steady after `N_STEPS` steps: kernels and arrays exist, and offsets stand still. Each
function counts once, and comprehensions and lambdas are functions; kernels that are bound to their
arguments (`kernels.vectors.bind`) do not count, as Python does not enter them. Settings are those of
`horde learn`: offset, averages, rarity. In `life_step_test` a test of the behaviour ends and the next
one begins.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from types import CodeType, FrameType
from typing import Any, NamedTuple

import gymnasium
import numpy as np
from gymnasium import spaces

import horde_agent
import horde_env
from horde_agent import GVF, Behaviour, Channel, Horde, LearnerConfig
from horde_agent.interface import Interface
from horde_agent.life.excursions import ExcursionConfig
from horde_agent.life.life import Life, LifeHooks, StepEvent
from horde_agent.policies import StickyRandom

N_STEPS = 620
DEFAULTS = LearnerConfig()
PACKAGES = tuple(str(Path(str(p.__file__)).parent) for p in (horde_agent, horde_env))


class Trip(NamedTuple):
    """What a step enters: numbers of files and of functions, and the functions in each file."""

    files: int
    functions: int
    functions_by_file: dict[str, list[str]]


class _Profile:
    """Collects the functions that are entered between `start` and `stop`."""

    def __init__(self) -> None:
        self._entered: set[CodeType] = set()

    def start(self) -> None:
        """Begin; enter no function of the packages oneself."""
        sys.setprofile(self._enter)

    def stop(self) -> None:
        """End."""
        sys.setprofile(None)

    def _enter(self, frame: FrameType, event: str, _argument: object) -> None:
        if event == "call":
            self._entered.add(frame.f_code)

    def trip(self) -> Trip:
        """Return what was entered in the packages."""
        by_file: dict[str, list[str]] = {}
        for code in self._entered:
            for package in PACKAGES:
                if code.co_filename.startswith(package):
                    name = str(Path(code.co_filename).relative_to(Path(package).parent))
                    by_file.setdefault(name, []).append(code.co_qualname)
        for names in by_file.values():
            names.sort()
        n_functions = sum(len(names) for names in by_file.values())
        return Trip(len(by_file), n_functions, dict(sorted(by_file.items())))


def trip_of(step: Callable[[], object]) -> Trip:
    """Return the trip of one call of `step`."""
    profile = _Profile()
    profile.start()
    try:
        step()
    finally:
        profile.stop()
    return profile.trip()


class ConstantEnv(gymnasium.Env[Any, Any]):
    """Two channels that never change, and two actions that change nothing."""

    def __init__(self) -> None:
        self.observation_space = spaces.Box(0.0, 1.0, (2,), np.float32)
        self.action_space = spaces.Discrete(2)
        self.observation = np.full(2, 0.5, np.float32)

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> Any:
        super().reset(seed=seed)
        return self.observation, {}

    def step(self, action: int) -> Any:
        return self.observation, 0.0, False, False, {}


def two_demons(interface: Interface) -> Horde:
    """Return a Horde that predicts both channels of the constant environment."""
    questions = [GVF(name, Behaviour(), Channel(i), 0.9) for i, name in enumerate(("a", "b"))]
    return Horde(
        questions,
        n_features=interface.coder.n_features,
        n_active=interface.coder.n_active,
        config=DEFAULTS,
    )


class _OneStep(LifeHooks):
    """Profiles the step of a life after `n_steps` of them."""

    def __init__(self, n_steps: int) -> None:
        self.n_steps = n_steps
        self.profile = _Profile()

    def after_step(self, event: StepEvent) -> None:
        """Do nothing, in this file."""

    def before_step(self, life: Life) -> None:
        """Begin before the step that is counted, and end before the next one."""
        self.profile.stop()
        if life.steps == self.n_steps:
            self.profile.start()


def life_trip(n_steps: int = N_STEPS) -> Trip:
    """Return the trip of a step of a `Life`, after `n_steps`: choice, learning, the environment's step, the row."""
    env = ConstantEnv()
    horde = two_demons(Interface.of(env))
    hooks = _OneStep(n_steps)
    rng = np.random.default_rng(0)
    with Life(env, horde, StickyRandom(2), rng, observers=[hooks]) as life:
        life.run(n_steps + 2)
    return hooks.profile.trip()


def life_test_trip() -> Trip:
    """Return the trip of a step of a `Life` in which a test of the behaviour is complete."""
    return life_trip(12 * ExcursionConfig().horizon)


def learn_trip() -> Trip:
    """Return the trip of `Horde.learn`."""
    env = ConstantEnv()
    interface = Interface.of(env)
    horde = two_demons(interface)
    observation = env.observation.astype(np.float64)
    tiles = interface.encode(env.observation)
    horde.begin(observation, tiles)

    def learn() -> object:
        return horde.learn(0, 0.5, observation, tiles)

    for _ in range(N_STEPS):
        learn()
    return trip_of(learn)


@contextmanager
def _begun(env: gymnasium.Env[Any, Any]) -> Iterator[Callable[[], object]]:
    """Yield the step of an environment after `N_STEPS` of them."""
    try:
        env.reset(seed=0)
        for _ in range(N_STEPS):
            env.step(0)
        yield lambda: env.step(0)
    finally:
        env.close()


def emulated_trip() -> Trip:
    """Return the trip of `env.step` of the driver that is connected to an emulated robot by a line."""
    with _begun(horde_env.make_emulated_env(link="serial")) as step:
        return trip_of(step)


def planar_trip() -> Trip:
    """Return the trip of `env.step` of the planar robot."""
    with _begun(gymnasium.make("horde_env:CritterbotPen-v0", physics="planar")) as step:
        return trip_of(step)


TRIPS = {
    "life_step": life_trip,
    "life_step_test": life_test_trip,
    "emulated_step": emulated_trip,
    "planar_step": planar_trip,
    "learn": learn_trip,
}


def main() -> dict[str, Any]:
    """Return files and functions of each trip."""
    figures = {}
    for name, trip in TRIPS.items():
        counts = trip()
        figures[name] = {"files": counts.files, "functions": counts.functions}
    return figures


if __name__ == "__main__":  # the functions of these trips, all by default
    for selected in sys.argv[1:] or TRIPS:
        counted = TRIPS[selected]()
        print(f"{selected}: {counted.files} files, {counted.functions} functions")
        for file, functions in counted.functions_by_file.items():
            print(f"  {file}: {', '.join(functions)}")
