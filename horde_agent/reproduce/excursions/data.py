"""What the first experiment gathered, and the few numbers that tables, claims and pictures share."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from horde_agent.gvf import GVF
from horde_agent.interface import Interface
from horde_agent.reproduce.excursions.offline import Offline
from horde_agent.reproduce.result import mean_ci
from horde_agent.reproduce.variants import Lesson, Variant
from horde_agent.types import Floats, Integers

N_PARTS = 5
"""A learning curve is looked at in fifths: a single test in a rare state lifts it for some ten tests."""


class Time(NamedTuple):
    """What a life's time was spent on.

    Attributes:
        n_steps, n_updates, n_tests: Periods lived, updates, complete test excursions.
        in_excursions, in_drives: Shares of the steps.
        updates_by_action: Number of updates after each action.
    """

    n_steps: int
    n_updates: int
    n_tests: int
    in_excursions: float
    in_drives: float
    updates_by_action: Integers


@dataclass
class Data:
    """Everything that was measured.

    Attributes:
        interface, questions: Of the body; what was asked.
        lessons: By variant, then seed.
        times: By seed.
        offline: The best off-line predictors of the first seed's life.
        paper: The variant with the paper's parameters and this program's default rules.
        rules: Its six pairs of rules.
        larger_steps, smaller_ratios: Variants with a larger alpha, or a smaller alpha_w.
    """

    interface: Interface
    questions: Sequence[GVF]
    lessons: dict[Variant, dict[int, Lesson]]
    times: dict[int, Time]
    offline: Offline
    paper: Variant
    rules: Sequence[Variant]
    larger_steps: Sequence[Variant]
    smaller_ratios: Sequence[Variant]

    @property
    def main(self) -> dict[int, Lesson]:
        """The lessons under the paper's parameters, by seed."""
        return self.lessons[self.paper]

    @property
    def sensor(self) -> list[str]:
        """Name of the sensor that each question is about."""
        channels = self.interface.channels
        return [channels[i].name for i in next(iter(self.main.values())).channel]

    @property
    def group(self) -> list[str]:
        """Sensor group of each question."""
        channels = self.interface.channels
        return [channels[i].group for i in next(iter(self.main.values())).channel]


class Summary(NamedTuple):
    """What one lesson came to.

    Attributes:
        mean, median, below_1: Of the final NMSRE, over the questions that were not set aside.
        n_aside: Questions set aside.
        worst: Names of the three worst.
    """

    mean: float
    median: float
    below_1: float
    n_aside: int
    worst: tuple[str, ...]


def summary(lesson: Lesson, questions: Sequence[GVF]) -> Summary:
    """Return what a lesson came to."""
    nmsre = lesson.nmsre
    order = np.argsort(-np.nan_to_num(nmsre, nan=-1.0))[:3]
    return Summary(
        average(nmsre),
        middle(nmsre),
        float((nmsre[~np.isnan(nmsre)] < 1.0).mean()),
        int((~lesson.sound).sum()),
        tuple(questions[i].name for i in order),
    )


def over_lives(values: Sequence[float]) -> str:
    """Return a mean over lives with its confidence interval, where there is more than one; a dash where one is nan."""
    return str(mean_ci(values))


def middle(values: Floats) -> float:
    """Return the median of the values that are no NaN, of any shape; NaN where there is none."""
    known = values[~np.isnan(values)]
    return float(np.median(known)) if known.size else float("nan")


def average(values: Floats) -> float:
    """Return the mean of the values that are no NaN, of any shape; NaN where there is none."""
    known = values[~np.isnan(values)]
    return float(known.mean()) if known.size else float("nan")


def fifths(curve: Floats) -> Floats:
    """Return the median of each fifth of a learning curve, shape (5,)."""
    return np.array([np.median(part) for part in np.array_split(curve, N_PARTS)])


class Carried(NamedTuple):
    """How much of a mean one sensor's questions carry.

    Attributes:
        sensor: The sensor that carries most.
        share: Its share of the sum over all questions.
        variance: Median variance of the returns of its questions.
        mean_without: Mean over all other questions.
    """

    sensor: str
    share: float
    variance: float
    mean_without: float


def carried(lesson: Lesson, sensor: Sequence[str]) -> Carried:
    """Return which sensor carries most of the mean final NMSRE, and what it would be without."""
    nmsre, names = lesson.nmsre, np.array(sensor)
    sums = {name: float(np.nansum(nmsre[names == name])) for name in dict.fromkeys(sensor)}
    most = max(sums, key=sums.__getitem__)
    mine = names == most
    variance = float(np.median(lesson.variance[mine]))
    return Carried(most, sums[most] / float(np.nansum(nmsre)), variance, average(nmsre[~mine]))


def not_monotonic(lesson: Lesson) -> float:
    """Return the share of the questions whose curve, in medians of fifths, ends above 1.2 times its lowest fifth."""
    parts = np.array([fifths(curve) for curve in lesson.curves().T])
    return float((parts[:, -1] > 1.2 * parts[:, :-1].min(axis=1)).mean())
