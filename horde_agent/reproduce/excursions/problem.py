"""The lives, what each variant learned from them, and its NMSRE."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal, NamedTuple

import numpy as np

from horde_agent.gvf import GVF
from horde_agent.horde import LearnerConfig
from horde_agent.interface import ChannelInfo, Interface
from horde_agent.learning.rules import W_RULES
from horde_agent.life.observers import sound_demons
from horde_agent.measures.nmsre import final_nmsre, nmsre_at_rest
from horde_agent.questions import excursions
from horde_agent.record import Phase, read
from horde_agent.reproduce.experiment import ExperimentContext, cached
from horde_agent.reproduce.lives import LifeSpec, compiled_horde, interface_of, simulate_lives
from horde_agent.reproduce.offline import Offline, offline
from horde_agent.reproduce.runner import Job
from horde_agent.reproduce.training_data import (
    LEARN,
    TrainingData,
    learn,
    outcomes,
    predict_at_tests,
)
from horde_agent.types import Bools, Floats, Integers

TITLE = "795 predictions about five policies, tested by excursions"


class Variant(NamedTuple):
    """Settings of `LearnerConfig`; the defaults are the paper's parameters and this program's default rules."""

    trace_rule: str = "clipped"
    w_rule: str = "every-step"
    step_size: float = 0.1
    secondary_ratio: float = 0.001
    offset: float | Literal["mean"] = 0.0

    def config(self) -> LearnerConfig:
        """Return the learner's settings."""
        settings: dict[str, Any] = self._asdict()
        return LearnerConfig(**settings, vector_mspbe=False)


STEPS = {"paper": 261_681, "quick": 6_000}
PAPER = Variant()
# The paper's pseudo-code is "plain"; the two others bound its trace.
RULES = [
    Variant(trace_rule, w_rule)
    for trace_rule in ("clipped", "capped", "plain")
    for w_rule in W_RULES
]
LARGER_STEPS = [Variant(step_size=size) for size in (0.2, 0.5, 1.0)]
WITH_OFFSETS = Variant(step_size=0.05, offset="mean")  # the defaults of `horde learn`
SMALLER_RATIOS = [Variant(secondary_ratio=ratio) for ratio in (1e-4, 0.0)]

# ---- learning -------------------------------------------------------------------------------------------------------


class Lesson(NamedTuple):
    """What one variant learned from one life."""

    # Predictions before each test, as they were made then, see `lessons.predict_at_tests`
    made: Floats
    last: Floats  # the same of the weights at the end of the life
    sound: Bools  # which demons did not diverge, shape (n_demons,)
    max_trace: float  # largest |e|
    ms_per_update: float  # duration of an update in milliseconds, with tiles and tests


@cached(Lesson)
def learn_variant(context: ExperimentContext, life: Path, variant: Variant) -> Lesson:
    """Learn from a life under a variant."""
    interface = interface_of(context)
    lessons = TrainingData(read(life))
    horde = compiled_horde(
        interface, excursions(interface), config=variant.config(), mode="deferred"
    )
    learned = learn(lessons, horde, interface)
    last = predict_at_tests(lessons, horde, interface)
    ms = 1e3 * learned.seconds / learned.n_updates
    return Lesson(learned.predictions, last, sound_demons(horde), horde.max_trace, ms)


@cached(Offline)
def _learn_offline(context: ExperimentContext, seed: int, life: Path) -> Offline:
    interface = interface_of(context)
    rng = np.random.default_rng([seed, 2])
    return offline(TrainingData(read(life)), excursions(interface), interface, rng)


class VariantResult:
    """Result of one variant on one life.

    Attributes:
        outcomes: Each policy's excursions, with the predictions made before them.
        sound, max_trace, ms_per_update: As in `Lesson`.
    """

    def __init__(self, lesson: Lesson, life: TrainingData, questions: Sequence[GVF]) -> None:
        self.outcomes, self._last = (
            outcomes(life, questions, predictions) for predictions in lesson[:2]
        )
        # Of each excursion among all of the life, by policy.
        self._number = [
            np.flatnonzero(life.test_action == test.policy.action) for test in self.outcomes
        ]
        self.sound, self.max_trace, self.ms_per_update = lesson[2:]

    @property
    def nmsre(self) -> Floats:
        """Final NMSRE of each question, shape (n_demons,); nan where set aside or tested fewer than two times."""
        return np.where(self.sound, final_nmsre(self.outcomes, len(self.sound)), np.nan)

    @property
    def variance(self) -> Floats:
        """Variance of each question's returns, shape (n_demons,); NaN without a test."""
        variance = np.full(len(self.sound), np.nan)
        for test in self.outcomes:
            variance[test.policy.demons] = test.returns.var(axis=0)
        return variance

    @property
    def n_diverged(self) -> int:
        """Number of questions set aside."""
        return int((~self.sound).sum())

    def curves(self) -> Floats:
        """Return the NMSRE after each test of a question, shape (n_tests, n_questions).

        Only of the sound questions, in no order, and as many tests as every policy had.
        """
        curves = [test.nmsre()[:, self.sound[test.policy.demons]] for test in self.outcomes]
        n = min(len(curve) for curve in curves)
        return np.concatenate([curve[:n] for curve in curves], axis=1)

    def score(self, which: Bools, *, last: bool = True) -> Floats:
        """Return mean squared error over variance on the tests `which`, (n_tests,); nan without a test, (n_demons,).

        The predictions are those of the final weights, or those made at the time.
        """
        nmsre = np.full(len(self.sound), np.nan)
        for test, number in zip(self._last if last else self.outcomes, self._number, strict=True):
            chosen = which[number]
            if chosen.any():
                nmsre[test.policy.demons] = nmsre_at_rest(
                    test.predictions[chosen], test.returns[chosen], test.variance()
                )
        return np.where(self.sound, nmsre, np.nan)


class LifeSummary(NamedTuple):
    """How a life's time was spent."""

    n_steps: int  # steps of the life
    n_updates: int  # updates
    n_tests: int  # complete test excursions
    in_excursions: float  # share of the steps in excursions
    in_drives: float  # share of the steps in drives
    updates_by_action: Integers  # number of updates after each action

    @classmethod
    def of(cls, life: TrainingData) -> LifeSummary:
        """Return the summary of a recorded life."""
        phase = life.stream.rows["phase"]
        n_steps = life.stream.n_steps
        return cls(
            n_steps,
            int(life.n_learned[-1]),
            len(life.test_row),
            float((phase == Phase.EXCURSION).sum() / n_steps),
            float((phase == Phase.CENTRE).sum() / n_steps),
            np.bincount(life.stream.rows["action"][life.before[life.does == LEARN]]),
        )


@dataclass(frozen=True)
class Data:
    """Everything that was measured."""

    interface: Interface  # of the robot
    questions: Sequence[GVF]  # those learned
    lessons: dict[Variant, dict[int, VariantResult]]  # by variant, then seed
    lives: dict[int, LifeSummary]  # by seed
    offline: Offline  # the best off-line predictors of the first seed's life

    @property
    def main(self) -> dict[int, VariantResult]:
        """The lessons under the paper's parameters, by seed."""
        return self.lessons[PAPER]

    def first(self, variant: Variant = PAPER) -> VariantResult:
        """Return the lesson of the first seed."""
        return next(iter(self.lessons[variant].values()))

    @property
    def gamma(self) -> Floats:
        """Continuation of each question, shape (n_questions,)."""
        return np.array([question.continuation for question in self.questions], np.float64)

    @property
    def action(self) -> Integers:
        """Action of each question's policy, shape (n_questions,)."""
        return np.array([question.target_policy.action for question in self.questions])  # type: ignore[attr-defined]

    @property
    def channels(self) -> list[ChannelInfo]:
        """The sensor that each question is about."""
        indices = [question.cumulant.index for question in self.questions]  # type: ignore[union-attr]
        return [self.interface.channels[int(i)] for i in indices]


def lives(context: ExperimentContext) -> list[LifeSpec]:
    """Return the lives, with which `reset` begins too."""
    return [LifeSpec(seed, STEPS[context.scale]) for seed in context.seeds]


class Summary(NamedTuple):
    """Mean and median of numbers such as the final NMSRE, and the share below 1; of those that are not NaN."""

    mean: float
    median: float
    below_1: float

    @classmethod
    def of(cls, values: Floats) -> Summary:
        """Return the summary of values of any shape; NaN if there is none."""
        finite = values[~np.isnan(values)]
        if not finite.size:
            return cls(np.nan, np.nan, np.nan)
        return cls(float(finite.mean()), float(np.median(finite)), float((finite < 1.0).mean()))


N_PARTS = 5
"""A learning curve is looked at in fifths: a single test in a rare state lifts it for some ten tests."""


def fifth_medians(curve: Floats) -> Floats:
    """Return the median of each fifth of a learning curve, shape (5,)."""
    return np.array([np.median(part) for part in np.array_split(curve, N_PARTS)])


def not_monotonic(lesson: VariantResult) -> float:
    """Return the share of questions with a curve that, in medians of fifths, ends above 1.2 x its lowest fifth."""
    parts = np.array([fifth_medians(curve) for curve in lesson.curves().T])
    return float((parts[:, -1] > 1.2 * parts[:, :-1].min(axis=1)).mean())


class Contribution(NamedTuple):
    """Share of a mean that one sensor's questions contribute."""

    sensor: str  # the sensor that carries most
    share: float  # its share of the sum over all questions
    variance: float  # median variance of the returns of its questions
    mean_without: float  # mean over all other questions


def largest_contributor(lesson: VariantResult, channels: Sequence[ChannelInfo]) -> Contribution:
    """Return the sensor with the largest share of the mean final NMSRE, and the mean without it.

    The channels are those that each question is about.
    """
    nmsre = lesson.nmsre
    names = np.array([channel.name for channel in channels])
    sums = {name: float(np.nansum(nmsre[names == name])) for name in dict.fromkeys(names.tolist())}
    most = max(sums, key=sums.__getitem__)
    in_channel = names == most
    variance = float(np.median(lesson.variance[in_channel]))
    return Contribution(
        most, sums[most] / float(np.nansum(nmsre)), variance, Summary.of(nmsre[~in_channel]).mean
    )


def gather(context: ExperimentContext) -> tuple[Data, dict[str, object]]:
    """Simulate the lives and learn under every variant; cached results are reused."""
    first = context.seeds[0]
    recordings = simulate_lives(context, lives(context))
    pairs = [(variant, seed) for variant in [*RULES, WITH_OFFSETS] for seed in context.seeds]
    pairs += [(variant, first) for variant in LARGER_STEPS + SMALLER_RATIOS]
    # "capped", which learns on the plain engine, takes the longest.
    costs = {("capped", "every-step"): 10.0, ("capped", "importance-weighted"): 4.0}
    jobs: dict[Any, Job] = {
        (v, s): Job(
            f"{'-'.join(map(str, v))} on life {s}",
            learn_variant,
            (context, recordings[s], v),
            costs.get(v[:2], 1.0),
        )
        for v, s in pairs
    }
    jobs[Offline] = Job(
        "off-line solutions", _learn_offline, (context, first, recordings[first]), 3.0
    )
    job_results = context.in_parallel(jobs)

    interface = interface_of(context)
    questions = excursions(interface)
    recorded = {seed: TrainingData(read(path)) for seed, path in recordings.items()}
    results: dict[Variant, dict[int, VariantResult]] = {}
    for variant, seed in pairs:
        results.setdefault(variant, {})[seed] = VariantResult(
            job_results[variant, seed], recorded[seed], questions
        )
    summaries = {seed: LifeSummary.of(life) for seed, life in recorded.items()}
    return Data(interface, questions, results, summaries, job_results[Offline]), {
        "steps of each life": STEPS[context.scale],
        "questions": len(questions),
        "alpha": f"{PAPER.step_size:g} / {interface.coder.n_active}",
        "alpha_w": f"{PAPER.secondary_ratio:g} alpha",
        "lambda": 0.9,
        "trace rule, w rule": (PAPER.trace_rule, PAPER.w_rule),
        "excursions tested, by seed": [life.n_tests for life in summaries.values()],
    }
