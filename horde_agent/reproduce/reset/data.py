"""What the second experiment gathered: three measures over training time, and how they move together."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from horde_agent.gvf import GVF
from horde_agent.interface import Interface
from horde_agent.types import Bools, Floats, Integers

WINDOW = 5_000 / 40_000
"""What is compared before a change, as a share of the learning steps before it."""
LONGEST_LAG = 20_000 / 40_000
"""Lags looked at, likewise."""


class Run(NamedTuple):
    """One life's measures.

    Attributes:
        at: Learning steps at which they were looked at, from 0 on, shape (n_looks,).
        nmsre: Of each question, its latest test, nan before its first one, shape (n_looks, n_questions).
        scalar, vector: MSPBE estimates, signed, shape (n_looks, n_questions).
        later: Part of vector - scalar that is due to what w did later than in the block of a step, at the end of each
            block (see `reset_gap`), from 0 on, shape (n_blocks + 1, n_questions).
        sound: Which questions were not set aside, shape (n_questions,).
        n_updates, n_steps: Learning steps, and all steps of the life.
        seconds: Wall-clock time of learning.
    """

    at: Integers
    nmsre: Floats
    scalar: Floats
    vector: Floats
    later: Floats
    sound: Bools
    n_updates: int
    n_steps: int
    seconds: float

    def means(self, which: Bools | None = None) -> dict[str, Floats]:
        """Return the mean of each measure over the sound questions (of `which`), each of shape (n_looks,).

        The NMSRE is nan until every one of them was tested.
        """
        mine = self.sound if which is None else self.sound & which
        return {
            "NMSRE": self.nmsre[:, mine].mean(axis=1),
            "vector": self.vector[:, mine].mean(axis=1),
            "scalar": self.scalar[:, mine].mean(axis=1),
        }

    def share_later(self, block: int) -> float:
        """Return which share of the area between the two estimates is due to what w did later than in a step's block.

        Args:
            block: Learning steps of a block, at whose ends the sound questions' means are compared.
        """
        means = self.means()
        between = (means["vector"] - means["scalar"])[self.at % block == 0]
        return float(self.later[:, self.sound].mean(axis=1).sum() / between.sum())

    def medians(self, which: Bools | None = None) -> Floats:
        """Return the median NMSRE over the sound questions (of `which`), shape (n_looks,)."""
        mine = self.sound if which is None else self.sound & which
        return np.asarray(np.median(self.nmsre[:, mine], axis=1))


@dataclass
class Data:
    """Everything that was measured.

    Attributes:
        interface, questions: Of the body; what was asked.
        change_at: Learning step of the change.
        every: Learning steps between two looks.
        block: Learning steps between two looks at all weights.
        reset: Runs in which theta := 0 at the change, by seed.
        moved: Runs in which the lamp moves at the change, by seed; empty where the body's lamp cannot be moved.
        lit_group: Sensor group that the lamp concerns.
    """

    interface: Interface
    questions: Sequence[GVF]
    change_at: int
    every: int
    block: int
    reset: dict[int, Run]
    moved: dict[int, Run]
    lit_group: str

    @property
    def is_lit(self) -> Bools:
        """Which questions are about light, shape (n_questions,)."""
        lit = {channel.name for channel in self.interface.channels if channel.group == self.lit_group}
        return np.array([question.name.rsplit("/", 1)[-1] in lit for question in self.questions])

    def reaction(self, at: Integers, curve: Floats) -> Reaction:
        """Return how a curve reacts to the change.

        Args:
            at: Learning steps at each look, shape (n_looks,).
            curve: What was measured there, shape (n_looks,).
        """
        window, reach = round(WINDOW * self.change_at), round(LONGEST_LAG * self.change_at)
        before = curve[(at > self.change_at - window) & (at <= self.change_at)].mean()
        after = (at > self.change_at) & (at <= self.change_at + reach)
        peak = int(np.argmax(curve[after]))
        rest = curve[after][peak:]
        half = before + 0.5 * (rest[0] - before)
        fallen = np.flatnonzero(rest <= half)
        halved = float(at[after][peak + fallen[0]] - self.change_at) if fallen.size else float("nan")
        return Reaction(float(before), float(rest[0]), float(at[after][peak] - self.change_at), halved)

    def agreement(self, at: Integers, nmsre: Floats, estimate: Floats) -> list[Agreement]:
        """Return how an estimate agrees with the NMSRE before the change, and after it.

        Args:
            at: Learning steps at each look, shape (n_looks,).
            nmsre: Mean NMSRE there, shape (n_looks,).
            estimate: Mean estimate there, shape (n_looks,).
        """
        parts = [(at > 0) & (at <= self.change_at), at > self.change_at]
        reach = round(LONGEST_LAG * self.change_at / self.every)
        return [agreement(nmsre[part], estimate[part], self.every, reach) for part in parts]


class Reaction(NamedTuple):
    """How a measure reacts to the change.

    Attributes:
        before: Its mean before the change.
        peak: Its largest value after it.
        peak_after: Learning steps from the change to that peak.
        halved_after: Learning steps from the change until half of the rise is gone; nan where it stays.
    """

    before: float
    peak: float
    peak_after: float
    halved_after: float

    @property
    def rise(self) -> float:
        """Rise to the peak over the size of the level before, which an estimate may have below 0."""
        return (self.peak - self.before) / abs(self.before) if self.before else float("inf")


class Agreement(NamedTuple):
    """How an estimate follows the NMSRE.

    Attributes:
        correlation: Pearson's, without a lag; nan where one of them does not vary.
        lag: Learning steps by which the estimate trails where they agree best.
        best: The correlation at that lag.
    """

    correlation: float
    lag: float
    best: float


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
