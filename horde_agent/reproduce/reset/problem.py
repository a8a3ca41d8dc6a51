"""Experiment `reset`: lives, changes and three measures of learning over training time."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from horde_agent.gvf import GVF
from horde_agent.horde import Horde
from horde_agent.interface import Interface
from horde_agent.life.bodies import LampMove
from horde_agent.life.observers import sound_demons
from horde_agent.questions import excursions
from horde_agent.record import Stream, read
from horde_agent.reproduce.excursions import problem as first_experiment
from horde_agent.reproduce.lessons import TrainingData, latest_nmsre, learn
from horde_agent.reproduce.lives import LifeSpec, interface_of, record_lives, simulate_life
from horde_agent.reproduce.parallel import Job, OnProgress
from horde_agent.reproduce.study import Study
from horde_agent.runs.jobs.warm import warm_up
from horde_agent.types import Bools, Floats, Integers

GAMMA = 0.8
STEPS = {"paper": 216_000, "quick": 6_000}
"""Six hours at 10 Hz: the first part of the first experiment's life."""
LAMP_STEPS = {"paper": 156_000, "quick": 6_000}
"""The lives with a moved lamp end some 25,000 learning steps after it: nothing later is looked at."""
CHANGE_AT = {"paper": 40_000, "quick": 1_100}
"""Learning step of the change; in a short life as early in proportion."""
EVERY = {"paper": 200, "quick": 20}
"""Learning steps between two looks at the measures."""
SAMPLES_PER_BLOCK = 5
"""Looks between two at m and w in full: 1,000 learning steps at the paper's scale, a tenth of tau."""
WINDOW = 5_000 / 40_000
"""Window compared before a change, as a share of the learning steps before it."""
LONGEST_LAG = 20_000 / 40_000
"""Lags looked at, likewise."""
LAMP, NEW_PLACE = "lamp", (-0.8, -0.8, 0.45)
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
    later: Floats  # at the end of each block, from 0 on, see `LaterPart`, shape (n_blocks + 1, n_questions)
    sound: Bools  # which questions were not set aside, shape (n_questions,)
    n_updates: int  # learning steps
    n_steps: int  # all steps of the life
    seconds: float  # wall-clock time of learning

    def _sound(self, which: Bools | None) -> Bools:
        return self.sound if which is None else self.sound & which

    def means(self, which: Bools | None = None) -> dict[str, Floats]:
        """Return the mean of each measure over the sound questions (of `which`), each of shape (n_looks,).

        The NMSRE is nan until every one of them was tested.
        """
        curves = {"NMSRE": self.nmsre, "vector": self.vector, "scalar": self.scalar}
        return {name: curve[:, self._sound(which)].mean(axis=1) for name, curve in curves.items()}

    def medians(self, which: Bools | None = None) -> Floats:
        """Return the median NMSRE over the sound questions (of `which`), shape (n_looks,)."""
        return np.asarray(np.median(self.nmsre[:, self._sound(which)], axis=1))

    def share_later(self, block: int) -> float:
        """Return which share of the area between the two estimates is due to what w did later than in a step's block.

        Args:
            block: Learning steps of a block; the sound questions' means are compared at its ends.
        """
        means = self.means()
        between = (means["vector"] - means["scalar"])[self.at % block == 0]
        return float(self.later[:, self.sound].mean(axis=1).sum() / between.sum())


class LaterPart:
    """The part of vector - scalar that is due to what w did after the block of a step; end each by `end_block`.

    Args:
        horde: Which has learned nothing, and keeps the vector estimate.
        block: In learning steps.

    Attributes:
        value: That part of each demon, shape (n_demons,).
    """

    def __init__(self, horde: Horde, block: int) -> None:
        self._decay = (1.0 - 1.0 / horde.config.mspbe_tau) ** block
        self._m, self._w = horde.mspbe_trace(), horde.weights()[1]
        self.value: Floats = np.zeros(horde.n_demons)

    def end_block(self, horde: Horde) -> None:
        """Add the change of w in the block that ends now."""
        w = horde.weights()[1]
        moved = np.einsum("ij,ij->i", self._m, w - self._w, dtype=np.float64)
        self.value = self._decay * (self.value + moved)
        self._m, self._w = horde.mspbe_trace(), w


def gather(study: Study) -> Data:
    """Live with and without a moved lamp, and learn from both."""
    seeds, scale = study.seeds, study.scale
    lived = record_lives(study, seeds, first_experiment.STEPS[scale])
    moved = [Job(f"the lamp moves in life {s}", _learn_moved, (study, s, lived[s]), 3.0) for s in seeds]
    moved = moved if study.backend == "simulator" else []
    reset = [Job(f"theta := 0 in life {s}", _learn, (study, s, lived[s], True)) for s in seeds]
    runs = study.in_parallel([*moved, *reset])
    interface = interface_of(study)
    return Data(
        interface,
        asked(interface),
        CHANGE_AT[scale],
        EVERY[scale],
        SAMPLES_PER_BLOCK * EVERY[scale],
        dict(zip(seeds, runs[len(moved) :], strict=True)),
        dict(zip(seeds, runs[: len(moved)], strict=False)),
    )


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


def _learn_moved(on_progress: OnProgress, study: Study, seed: int, life: Path) -> Run:
    """Live the life again with the lamp moved, and learn from that; `life` is the one in which it stays."""
    steps = LAMP_STEPS[study.scale]
    move = lamp_move(first_steps(read(life), steps), CHANGE_AT[study.scale])
    path = simulate_life(lambda share: on_progress(0.8 * share), study, LifeSpec(seed, steps, lamp_moves=(move,)))
    return _learn(lambda share: on_progress(0.8 + 0.2 * share), study, seed, path, resets=False)


def _learn(on_progress: OnProgress, study: Study, seed: int, life: Path, resets: bool) -> Run:

    def make() -> Run:
        lessons = TrainingData(first_steps(read(life), STEPS[study.scale]))
        return learn_and_sample(lessons, interface_of(study), study.scale, resets, on_progress)

    name = f"reset-{'theta' if resets else 'lamp'}-{seed}"
    looks = {"every": EVERY[study.scale], "looks_of_a_block": SAMPLES_PER_BLOCK}
    change_at = CHANGE_AT[study.scale]
    return study.cached_arrays(Run, name, make, seed=seed, life=life.name, change_at=change_at, **looks)


def learn_and_sample(
    lessons: TrainingData, interface: Interface, scale: str, resets: bool, on_progress: OnProgress | None = None
) -> Run:
    """Learn from a life and return its measures over training time; if it `resets`, theta := 0 at the change."""
    coder, questions = interface.coder, asked(interface)
    horde = Horde(questions, n_features=coder.n_features, n_active=coder.n_active, mode="deferred")
    warm_up(horde, interface)
    looked: list[tuple[int, Any, Any]] = [(0, horde.mspbe_scalar, horde.mspbe_vector())]
    block = SAMPLES_PER_BLOCK * EVERY[scale]
    part, later = LaterPart(horde, block), [np.zeros(horde.n_demons)]

    def look(n: int) -> None:
        if n == CHANGE_AT[scale] and resets:
            horde.reset_weights()
        if n % EVERY[scale] == 0:
            looked.append((n, horde.mspbe_scalar.copy(), horde.mspbe_vector()))
        if n % block == 0:
            part.end_block(horde)
            later.append(part.value)

    learned = learn(lessons, horde, interface, after=look, on_progress=on_progress)
    at, scalar, vector = (np.array(column) for column in zip(*looked, strict=True))
    nmsre = latest_nmsre(lessons, questions, learned.predictions, at)
    sound, n_steps = sound_demons(horde), lessons.stream.n_steps
    return Run(at, nmsre, scalar, vector, np.array(later), sound, learned.n_updates, n_steps, learned.seconds)


# ---- results --------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Data:
    """Everything that was measured."""

    interface: Interface  # of the robot
    questions: Sequence[GVF]  # those learned
    change_at: int  # learning step of the change
    every: int  # learning steps between two looks
    block: int  # learning steps between two looks at all weights
    reset: dict[int, Run]  # runs in which theta := 0 at the change, by seed
    moved: dict[int, Run]  # runs in which the lamp moves then, by seed; empty if the robot has no movable lamp

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
        """Return how a curve reacts to the change.

        Args:
            at: Learning steps at each look, shape (n_looks,).
            curve: The measure there, shape (n_looks,).
        """
        window = round(WINDOW * self.change_at)
        before = curve[(at > self.change_at - window) & (at <= self.change_at)].mean()
        after = (at > self.change_at) & (at <= self.change_at + self.reach)
        peak = int(np.argmax(curve[after]))
        rest = curve[after][peak:]
        half = before + 0.5 * (rest[0] - before)
        fallen = np.flatnonzero(rest <= half)
        halved = float(at[after][peak + fallen[0]] - self.change_at) if fallen.size else float("nan")
        return Reaction(float(before), float(rest[0]), float(at[after][peak] - self.change_at), halved)

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
    halved_after: float  # learning steps from the change until half of the rise is gone; NaN if it stays

    @property
    def rise(self) -> float:
        """Rise to the peak over the size of the level before, which an estimate may have below 0."""
        return (self.peak - self.before) / abs(self.before) if self.before else float("inf")


class Agreement(NamedTuple):
    """How an estimate follows the NMSRE."""

    correlation: float  # Pearson's, without a lag; nan where one of them does not vary
    lag: float  # delay of the estimate with the best agreement, in learning steps
    best: float  # the correlation at that lag


def agreement(nmsre: Floats, estimate: Floats, every: int, longest: int) -> Agreement:
    """Return the correlation of two curves, without a lag and at the best one.

    Args:
        nmsre: Shape (n,); looks at which it is nan are left out.
        estimate: Shape (n,).
        every: Learning steps between two looks.
        longest: Largest lag, in looks; at most half of the curve.
    """
    known = np.isfinite(nmsre)
    nmsre, estimate = nmsre[known], estimate[known]
    lags = range(min(longest, len(nmsre) // 2) + 1)
    found = np.array([correlation(nmsre[: len(nmsre) - k], estimate[k:]) for k in lags])
    if not np.isfinite(found).any():
        return Agreement(float("nan"), float("nan"), float("nan"))
    best = int(np.nanargmax(found))
    return Agreement(float(found[0]), float(best * every), float(found[best]))


def correlation(x: Floats, y: Floats) -> float:
    """Return Pearson's correlation of two series of shape (n,); nan where one of the two does not vary."""
    if len(x) < 3 or x.std() == 0.0 or y.std() == 0.0:
        return float("nan")
    return float(np.corrcoef(x, y)[0, 1])
