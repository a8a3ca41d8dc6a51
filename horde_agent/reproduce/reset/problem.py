"""The measures of lives in which theta is lost or the lamp moves, and how they react."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from horde_agent.gvf import GVF
from horde_agent.interface import Interface
from horde_agent.learning.rules import LearnerConfig
from horde_agent.life.bodies import LampMove
from horde_agent.life.observers import sound_demons
from horde_agent.questions import excursions
from horde_agent.record import Stream, read
from horde_agent.reproduce.excursions.problem import lives
from horde_agent.reproduce.experiment import ExperimentContext, cached
from horde_agent.reproduce.lives import (
    LifeSpec,
    compiled_horde,
    interface_of,
    simulate_life,
    simulate_lives,
)
from horde_agent.reproduce.runner import Job
from horde_agent.reproduce.stats import correlation
from horde_agent.reproduce.training_data import TrainingData, latest_nmsre, learn
from horde_agent.types import Bools, Floats, Integers

TITLE = "Three measures of learning: the weights are lost, the lamp is moved"
GAMMA = 0.8
STEPS = {"paper": 216_000, "quick": 6_000}
"""Six hours at 10 Hz: the first part of the first experiment's life."""
LAMP_STEPS = {"paper": 156_000, "quick": 6_000}
"""The lives with a moved lamp end some 25,000 learning steps after it: nothing later is looked at."""
CHANGE_AT = {"paper": 40_000, "quick": 1_100}
"""Learning step of the change; in a short life as early in proportion."""
EVERY = {"paper": 200, "quick": 20}
"""Learning steps between two looks at the measures."""
WINDOW = 5_000 / 40_000
"""Window compared before a change, as a share of the learning steps before it."""
LONGEST_LAG = 20_000 / 40_000
"""Lags looked at, likewise."""
LAMP = "lamp"
NEW_PLACE = (-0.8, -0.8, 0.45)
"""From the north-east corner of the pen to the south-west one."""
LIT = "light"
"""The sensor group that a lamp concerns."""

# ---- learning -------------------------------------------------------------------------------------------------------


class Run(NamedTuple):
    """One life's measures; those without a shape here are (n_looks, n_questions)."""

    at: Integers  # learning steps at which they were looked at, from 0 on, shape (n_looks,)
    nmsre: Floats  # of each question, its latest test, NaN before its first one
    scalar: Floats  # MSPBE estimate, signed
    vector: Floats  # the same
    sound: Bools  # which questions were not set aside, shape (n_questions,)
    n_updates: int  # learning steps
    n_steps: int  # all steps of the life
    seconds: float  # wall-clock time of learning

    def _sound(self, which: Bools | None) -> Bools:
        if which is None:
            return self.sound
        return self.sound & which

    def means(self, which: Bools | None = None) -> dict[str, Floats]:
        """Return the mean of each measure over the sound questions (of `which`), each of shape (n_looks,).

        The NMSRE is nan until every one of them was tested.
        """
        curves = {"NMSRE": self.nmsre, "vector": self.vector, "scalar": self.scalar}
        return {name: curve[:, self._sound(which)].mean(axis=1) for name, curve in curves.items()}

    def medians(self, which: Bools | None = None) -> Floats:
        """Return the median NMSRE over the sound questions (of `which`), shape (n_looks,)."""
        return np.asarray(np.median(self.nmsre[:, self._sound(which)], axis=1))


def asked(interface: Interface) -> list[GVF]:
    """Return the questions at gamma .8: 265 for the Critterbot."""
    return excursions(interface, gammas=(GAMMA,))


def first_steps(stream: Stream, steps: int) -> Stream:
    """Return the first part of a life."""
    return stream[: int(np.searchsorted(stream.rows["step"], steps, side="right"))]


def lamp_move(stream: Stream, change_at: int) -> LampMove:
    """Return the move of the lamp that the packet after learning step `change_at` is the first to see.

    Raises:
        ValueError: If the life has fewer learning steps.
    """
    n_learned = TrainingData(stream).n_learned
    if n_learned[-1] <= change_at:
        raise ValueError(
            f"the life has {n_learned[-1]} learning steps, and the change is due after {change_at}: live longer"
        )
    row = int(np.searchsorted(n_learned, change_at))
    between = 0.5 * float(stream.rows["t"][row] + stream.rows["t"][row + 1])
    return between, LAMP, NEW_PLACE


def _learn_moved(context: ExperimentContext, seed: int, life: Path) -> Run:
    """Live the life again with the lamp moved, and learn from that; `life` is the one in which it stays."""
    steps = LAMP_STEPS[context.scale]
    move = lamp_move(first_steps(read(life), steps), CHANGE_AT[context.scale])
    path = simulate_life(context, LifeSpec(seed, steps, lamp_moves=(move,)))
    return _learn(context, path, CHANGE_AT[context.scale], resets=False)


@cached(Run)
def _learn(context: ExperimentContext, life: Path, change_at: int, resets: bool) -> Run:
    """Learn from a life and return its measures over training time; if it `resets`, theta := 0 at the change."""
    lessons = TrainingData(first_steps(read(life), STEPS[context.scale]))
    interface = interface_of(context)
    questions = asked(interface)
    interval = EVERY[context.scale]
    horde = compiled_horde(interface, questions, mode="deferred")
    looked: list[tuple[int, Any, Any]] = [(0, horde.mspbe_scalar, horde.mspbe_vector())]

    def look(n: int) -> None:
        if n == change_at and resets:
            horde.reset_weights()
        if n % interval == 0:
            looked.append((n, horde.mspbe_scalar.copy(), horde.mspbe_vector()))

    learned = learn(lessons, horde, interface, after=look)
    at, scalar, vector = (np.array(column) for column in zip(*looked, strict=True))
    nmsre = latest_nmsre(lessons, questions, learned.predictions, at)
    sound = sound_demons(horde)
    n_steps = lessons.stream.n_steps
    return Run(at, nmsre, scalar, vector, sound, learned.n_updates, n_steps, learned.seconds)


@dataclass(frozen=True)
class Data:
    """Everything that was measured."""

    interface: Interface  # of the robot
    questions: Sequence[GVF]  # those learned
    change_at: int  # learning step of the change
    every: int  # learning steps between two looks
    reset: dict[int, Run]  # runs in which theta := 0 at the change, by seed
    moved: dict[
        int, Run
    ]  # runs in which the lamp moves then, by seed; empty if the robot has no movable lamp

    @property
    def reach(self) -> int:
        """Learning steps after the change within which a reaction is looked for."""
        return round(LONGEST_LAG * self.change_at)

    @property
    def is_lit(self) -> Bools:
        """Which questions are about light, shape (n_questions,)."""
        lit = {channel.name for channel in self.interface.channels if channel.group == LIT}
        return np.array([question.name.rsplit("/", 1)[-1] in lit for question in self.questions])

    def reaction(self, at: Integers, curve: Floats) -> Reaction:
        """Return how a curve reacts to the change; `at` are the learning steps of the looks, both (n_looks,)."""
        window = round(WINDOW * self.change_at)
        mean_before = curve[(at > self.change_at - window) & (at <= self.change_at)].mean()
        is_after = (at > self.change_at) & (at <= self.change_at + self.reach)
        peak = int(np.argmax(curve[is_after]))
        after_peak = curve[is_after][peak:]
        half = mean_before + 0.5 * (after_peak[0] - mean_before)
        fallen = np.flatnonzero(after_peak <= half)
        if fallen.size:
            halved = float(at[is_after][peak + fallen[0]] - self.change_at)
        else:
            halved = float("nan")
        return Reaction(
            float(mean_before),
            float(after_peak[0]),
            float(at[is_after][peak] - self.change_at),
            halved,
        )

    def agreement(self, at: Integers, nmsre: Floats, estimate: Floats) -> list[Agreement]:
        """Return how an estimate agrees with the NMSRE before and after the change; shapes as in `reaction`."""
        parts = [(at > 0) & (at <= self.change_at), at > self.change_at]
        reach = round(LONGEST_LAG * self.change_at / self.every)
        return [agreement(nmsre[part], estimate[part], self.every, reach) for part in parts]


class Reaction(NamedTuple):
    """How a measure reacts to the change."""

    before: float  # its mean before the change
    peak: float  # its largest value after it
    peak_after: float  # learning steps from the change to that peak
    # Learning steps from the change until half of the rise is gone; NaN if it stays
    halved_after: float

    @property
    def rise(self) -> float:
        """Rise to the peak over the size of the level before, which an estimate may have below 0."""
        if self.before:
            return (self.peak - self.before) / abs(self.before)
        return float("inf")


class Agreement(NamedTuple):
    """How an estimate follows the NMSRE."""

    correlation: float  # Pearson's, without a lag; nan where one of them does not vary
    lag: float  # delay of the estimate with the best agreement, in learning steps
    best: float  # the correlation at that lag


def agreement(nmsre: Floats, estimate: Floats, every: int, longest: int) -> Agreement:
    """Return the correlation of two curves, both (n,), without a lag and at the best one, at most `longest` looks.

    Looks at which the NMSRE is NaN are left out; there are `every` learning steps between two
    looks.
    """
    is_finite = np.isfinite(nmsre)
    nmsre = nmsre[is_finite]
    estimate = estimate[is_finite]
    lags = range(min(longest, len(nmsre) // 2) + 1)
    correlations = np.array([correlation(nmsre[: len(nmsre) - k], estimate[k:]) for k in lags])
    if not np.isfinite(correlations).any():
        return Agreement(float("nan"), float("nan"), float("nan"))
    best = int(np.nanargmax(correlations))
    return Agreement(float(correlations[0]), float(best * every), float(correlations[best]))


def gather(context: ExperimentContext) -> tuple[Data, dict[str, object]]:
    """Live with and without a moved lamp, and learn from both."""
    change_at = CHANGE_AT[context.scale]
    recordings = simulate_lives(context, lives(context))
    jobs = {
        ("reset", seed): Job(f"theta := 0 in life {seed}", _learn, (context, path, change_at, True))
        for seed, path in recordings.items()
    }
    if context.backend == "simulator":
        jobs |= {
            ("moved", seed): Job(
                f"the lamp moves in life {seed}", _learn_moved, (context, seed, path), 3.0
            )
            for seed, path in recordings.items()
        }
    runs = context.in_parallel(jobs)
    reset, moved = (
        {s: run for (k, s), run in runs.items() if k == kind} for kind in ("reset", "moved")
    )
    interface = interface_of(context)
    config = LearnerConfig()
    questions = asked(interface)
    return Data(interface, questions, change_at, EVERY[context.scale], reset, moved), {
        "steps of each life": STEPS[context.scale],
        "steps of each life with a moved lamp": LAMP_STEPS[context.scale] if moved else None,
        "questions": len(questions),
        "gamma": GAMMA,
        "change at learning step": change_at,
        "tau of the MSPBE estimates, learning steps": config.mspbe_tau,
        "1 / (alpha_w active features), learning steps": 1.0
        / (config.step_size * config.secondary_ratio),
        "the lamp goes to (x, y, z in m)": NEW_PLACE if moved else None,
    }
