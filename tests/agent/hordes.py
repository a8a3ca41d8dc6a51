"""Small Hordes, questions about a random stream, and signals that break: shared by the tests of the Horde."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from horde_agent import (
    GVF,
    Behaviour,
    Channel,
    Gibbs,
    Horde,
    LearnerConfig,
    PolicyFunction,
    StickyRandom,
    Uniform,
)
from horde_agent.kernels import rules
from horde_agent.learning.rules import parse_algorithm

N = 25
N_ACTIVE = 4
N_ACTIONS = 3
# Engines and modes
ENGINES = [("span", "eager"), ("span", "deferred"), ("plain", "eager")]
IN_ALL = pytest.mark.parametrize(("engine", "mode"), ENGINES)
BOTH = pytest.mark.parametrize("engine", ["span", "plain"])
BEHAVIOUR = Behaviour()


def make(
    asked: list[GVF],
    engine: Any = "span",
    mode: Any = "eager",
    n_features: int = N,
    **settings: Any,
) -> Horde:
    """Return a Horde with estimates that move within a few steps, in float64 unless set otherwise.

    Step sizes that the update rule does not use are left out.
    """
    options: Any = {
        "dtype": "float64",
        "secondary_ratio": 0.1,
        "mspbe_tau": 30.0,
        "engine": engine,
        **settings,
    }
    name, _ = parse_algorithm(options.get("algorithm", "gtd"))
    rule = rules.rule(name)
    if "w" not in rule.vectors:
        del options["secondary_ratio"]
    if rule.IGNORES_STEP_SIZE:
        options.pop("step_size", None)
    config = LearnerConfig.paper(**options)
    return Horde(asked, n_features=n_features, n_active=N_ACTIVE, config=config, mode=mode)


def ask(
    name: str, policy: Any = None, cumulant: Any = None, continuation: Any = 0.8, **more: Any
) -> GVF:
    return GVF(name, policy or Uniform(N_ACTIONS), cumulant or Channel(0), continuation, **more)


def siblings(n: int = 9) -> list[GVF]:
    """Return questions of one trace group, and one about a Gibbs policy."""
    gibbs = Gibbs.random(np.random.default_rng(1), N_ACTIONS, N, 20)
    return [ask(f"sibling {i}", cumulant=Channel(i % 3)) for i in range(n)] + [ask("gibbs", gibbs)]


class RandomLife:
    """One random stream for several Hordes. The last of the four channels counts the steps.

    Args:
        hordes: The Hordes; others may take their places.
        p_break: Probability of a gap or a termination after a step, after which another stream
            begins.

    Attributes:
        state: The latest observation and tiles.
        action, b: The latest action and its probability.
    """

    def __init__(self, *hordes: Any, p_break: float = 0.0) -> None:
        self.rng = np.random.default_rng(5)
        self.behaviour = StickyRandom(N_ACTIONS)
        self.hordes = hordes
        self.t = 0
        self.state = self._state()
        self.p_break = p_break
        for horde in hordes:
            horde.begin(*self.state)

    def _state(self) -> tuple[np.ndarray, np.ndarray]:
        return np.append(self.rng.random(3), self.t), self.rng.choice(N, N_ACTIVE, replace=False)

    def run(self, n_steps: int, begin: Horde | None = None, at: tuple[int, ...] = ()) -> None:
        """Learn; at the steps `at` the Horde `begin` begins a stream instead."""
        for _ in range(n_steps):
            self.t += 1
            self.action, self.b = self.behaviour.draw(self.rng)
            self.state = self._state()
            is_break = self.p_break > 0.0 and self.rng.random() < self.p_break
            is_last = is_break and self.rng.random() < 0.5
            for horde in self.hordes:
                is_begun = horde is begin and self.t in at
                if not is_begun:
                    horde.learn(self.action, self.b, *self.state, terminated=is_last)
                if is_begun or is_break:
                    horde.begin(*self.state)


def after(n_steps: int, horde: Horde) -> Horde:
    """Return a Horde after some steps of a random life."""
    RandomLife(horde).run(n_steps)
    return horde


class WithReading:
    """Passes a Horde the states of a life with another reading of channel 1 at the steps `at`."""

    def __init__(self, horde: Any, at: tuple[int, ...], reading: float) -> None:
        self.horde = horde
        self._at = at
        self._reading = reading

    def _changed(self, observation: np.ndarray) -> np.ndarray:
        changed = observation.copy()
        if int(observation[3]) in self._at:
            changed[1] = self._reading
        return changed

    def begin(self, observation: np.ndarray, tiles: np.ndarray) -> None:
        self.horde.begin(self._changed(observation), tiles)

    def learn(self, action: int, b: float, observation: Any, tiles: Any, **more: Any) -> None:
        self.horde.learn(action, b, self._changed(observation), tiles, **more)


def breaking(at: tuple[int, ...], bad: float, good: Any = 0.5) -> Callable[..., Any]:
    """Return a function of the state that returns `bad` at the steps `at`."""
    return lambda observation, _: bad if int(observation[3]) in at else good


def constant(observation: np.ndarray, tiles: np.ndarray) -> float:
    return 0.5


def leaning(observation: np.ndarray, tiles: np.ndarray) -> list[float]:
    return [0.5, 0.25, 0.25]


def nan_policy(at: tuple[int, ...]) -> PolicyFunction:
    """Return a policy with NaN ratios at the steps `at`."""
    bad = [np.nan] * N_ACTIONS
    return PolicyFunction(
        lambda o, tiles: bad if int(o[3]) + 1 in at else leaning(o, tiles), N_ACTIONS
    )


def engine_of(horde: Horde) -> Any:
    """Return the engine of a Horde with one update rule."""
    (engine,) = horde.engines.values()
    return engine


def assert_finite(horde: Horde) -> None:
    values = [
        *horde.weights(),
        horde.predictions,
        horde.td_error,
        horde.mspbe_scalar,
        horde.rho,
        horde.ratio_totals(),
    ]
    values += [horde.mspbe_vector()] if horde.config.vector_mspbe else []
    for value in values:
        assert np.isfinite(value).all()


def assert_same_weights(
    one: Horde, other: Horde, first: int = 0, its_first: int | None = None
) -> None:
    """Assert that theta and w of two Hordes are the same to the bit, from some demon on."""
    for mine, its in zip(one.weights(), other.weights(), strict=True):
        np.testing.assert_array_equal(
            mine[first:], its[first if its_first is None else its_first :]
        )
