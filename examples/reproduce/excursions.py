"""The paper's first experiment: 795 questions about five policies, learned off-policy and tested by excursions.

Each seed's life is simulated once and learned from under every rule. Compared with the paper's
parameters: two rules for w, three for the trace, larger alpha and smaller alpha_w, and the best
off-line linear predictors.

Source: White, Modayil & Sutton (2012), section 4.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import ArrayLike

from examples.reproduce.checks import (
    Measured,
    Number,
    above,
    at_least,
    at_most,
    below,
    check,
    within,
)
from examples.reproduce.experiment import ExperimentContext, Table, cached
from examples.reproduce.figures import Picture
from examples.reproduce.lives import LifeSpec, compiled_horde, interface_of, simulate_lives
from examples.reproduce.offline import OfflineScores, offline
from examples.reproduce.runner import Job
from examples.reproduce.scores import final_nmsre, nmsre_after_each, nmsre_at_rest, scores_of
from examples.reproduce.stats import join, mean_ci
from examples.reproduce.training_data import (
    LEARN,
    TrainingData,
    learn,
    outcomes,
    predict_at_tests,
)
from horde_agent.gvf import GVF, AutomaticOffset
from horde_agent.horde import LearnerConfig
from horde_agent.interface import ChannelInfo, Interface
from horde_agent.learning.rules import W_RULES
from horde_agent.life.observers import sound_demons
from horde_agent.questions import excursions
from horde_agent.record import Phase, read
from horde_agent.runs.reporting.pictures import nmsre_picture
from horde_agent.scoring.two_pass_nmsre import Curve
from horde_agent.types import Bools, Floats, Integers

TITLE = "795 predictions about five policies, tested by excursions"


class LearnerVariant(NamedTuple):
    """Settings of `LearnerConfig`; the defaults are the paper's parameters and this program's default rules."""

    trace_rule: str = "clipped"
    w_rule: str = "every-step"
    step_size: float = 0.1
    secondary_ratio: float = 0.001
    offset: float | AutomaticOffset = 0.0
    average: float = 0.0
    rarity: bool = False

    def config(self) -> LearnerConfig:
        """Return the learner's settings."""
        settings: dict[str, Any] = self._asdict()
        return LearnerConfig.paper(**settings, vector_mspbe=False)


STEPS = {"paper": 261_681, "quick": 6_000}
PAPER = LearnerVariant()
# The paper's pseudo-code is "plain"; the two others bound its trace.
RULES = [
    LearnerVariant(trace_rule, w_rule)
    for trace_rule in ("clipped", "capped", "plain")
    for w_rule in W_RULES
]
LARGER_STEPS = [LearnerVariant(step_size=size) for size in (0.2, 0.5, 1.0)]
# Those of `horde learn`
DEFAULTS = LearnerVariant(step_size=0.05, offset="reading", average=10_000.0, rarity=True)
SMALLER_RATIOS = [LearnerVariant(secondary_ratio=ratio) for ratio in (1e-4, 0.0)]

# ---- learning -------------------------------------------------------------------------------------------------------


class VariantArrays(NamedTuple):
    """What one variant learned from one life."""

    # Predictions before each test, as they were made then, see `training_data.predict_at_tests`
    made: Floats
    last: Floats  # the same of the weights at the end of the life
    sound: Bools  # which demons did not diverge, shape (n_demons,)
    max_trace: float  # largest |e|
    ms_per_update: float  # duration of an update in milliseconds, with tiles and tests


@cached(VariantArrays)
def learn_variant(context: ExperimentContext, life: Path, variant: LearnerVariant) -> VariantArrays:
    """Learn from a life under a variant."""
    interface = interface_of(context)
    training_data = TrainingData(read(life))
    horde = compiled_horde(
        interface, excursions(interface), config=variant.config(), mode="deferred"
    )
    learned = learn(training_data, horde, interface)
    last = predict_at_tests(training_data, horde, interface)
    ms = 1e3 * learned.seconds / learned.n_updates
    return VariantArrays(learned.predictions, last, sound_demons(horde), horde.max_trace, ms)


@cached(OfflineScores)
def _learn_offline(context: ExperimentContext, seed: int, life: Path) -> OfflineScores:
    interface = interface_of(context)
    rng = np.random.default_rng([seed, 2])
    return offline(TrainingData(read(life)), excursions(interface), interface, rng)


class VariantResult:
    """Result of one variant on one life.

    Attributes:
        outcomes: Each policy's excursions, with the predictions made before them.
        sound, max_trace, ms_per_update: As in `Lesson`.
    """

    def __init__(self, arrays: VariantArrays, life: TrainingData, questions: Sequence[GVF]) -> None:
        self.outcomes, self._last = (
            outcomes(life, questions, predictions) for predictions in arrays[:2]
        )
        # Of each excursion among all of the life, by policy.
        self._number = [
            np.flatnonzero(life.test_action == test.policy.action) for test in self.outcomes
        ]
        self.sound, self.max_trace, self.ms_per_update = arrays[2:]

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
        curves = [
            nmsre_after_each(test)[:, self.sound[test.policy.demons]] for test in self.outcomes
        ]
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
                    test.predictions[chosen], test.returns[chosen], scores_of(test).variance
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
class ExcursionsResults:
    """Everything that was measured."""

    interface: Interface  # of the robot
    questions: Sequence[GVF]  # those learned
    results: dict[LearnerVariant, dict[int, VariantResult]]  # by variant, then seed
    lives: dict[int, LifeSummary]  # by seed
    offline: OfflineScores  # the best off-line predictors of the first seed's life

    @property
    def main(self) -> dict[int, VariantResult]:
        """The results under the paper's parameters, by seed."""
        return self.results[PAPER]

    def first(self, variant: LearnerVariant = PAPER) -> VariantResult:
        """Return the result of the first seed."""
        return next(iter(self.results[variant].values()))

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


class NMSRESummary(NamedTuple):
    """Mean and median of numbers such as the final NMSRE, and the share below 1; of those that are not NaN."""

    mean: float
    median: float
    below_1: float

    @classmethod
    def of(cls, values: Floats) -> NMSRESummary:
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


def not_monotonic(result: VariantResult) -> float:
    """Return the share of questions with a curve that, in medians of fifths, ends above 1.2 x its lowest fifth."""
    parts = np.array([fifth_medians(curve) for curve in result.curves().T])
    return float((parts[:, -1] > 1.2 * parts[:, :-1].min(axis=1)).mean())


class Contribution(NamedTuple):
    """Share of a mean that one sensor's questions contribute."""

    sensor: str  # the sensor that carries most
    share: float  # its share of the sum over all questions
    variance: float  # median variance of the returns of its questions
    mean_without: float  # mean over all other questions


def largest_contributor(result: VariantResult, channels: Sequence[ChannelInfo]) -> Contribution:
    """Return the sensor with the largest share of the mean final NMSRE, and the mean without it.

    The channels are those that each question is about.
    """
    nmsre = result.nmsre
    names = np.array([channel.name for channel in channels])
    sums = {name: float(np.nansum(nmsre[names == name])) for name in dict.fromkeys(names.tolist())}
    most = max(sums, key=sums.__getitem__)
    in_channel = names == most
    variance = float(np.median(result.variance[in_channel]))
    return Contribution(
        most,
        sums[most] / float(np.nansum(nmsre)),
        variance,
        NMSRESummary.of(nmsre[~in_channel]).mean,
    )


def run(context: ExperimentContext) -> tuple[ExcursionsResults, dict[str, object]]:
    """Simulate the lives and learn under every variant; cached results are reused."""
    first = context.seeds[0]
    recordings = simulate_lives(context, lives(context))
    pairs = [(variant, seed) for variant in [*RULES, DEFAULTS] for seed in context.seeds]
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
    jobs[OfflineScores] = Job(
        "off-line solutions", _learn_offline, (context, first, recordings[first]), 3.0
    )
    job_results = context.in_parallel(jobs)

    interface = interface_of(context)
    questions = excursions(interface)
    recorded = {seed: TrainingData(read(path)) for seed, path in recordings.items()}
    results: dict[LearnerVariant, dict[int, VariantResult]] = {}
    for variant, seed in pairs:
        results.setdefault(variant, {})[seed] = VariantResult(
            job_results[variant, seed], recorded[seed], questions
        )
    summaries = {seed: LifeSummary.of(life) for seed, life in recorded.items()}
    return ExcursionsResults(
        interface, questions, results, summaries, job_results[OfflineScores]
    ), {
        "steps of each life": STEPS[context.scale],
        "questions": len(questions),
        "alpha": f"{PAPER.step_size:g} / {interface.coder.n_active}",
        "alpha_w": f"{PAPER.secondary_ratio:g} alpha",
        "lambda": 0.9,
        "trace rule, w rule": (PAPER.trace_rule, PAPER.w_rule),
        "excursions tested, by seed": [life.n_tests for life in summaries.values()],
    }


# ---- checks ---------------------------------------------------------------------------------------------------------


@check(
    claim=(
        "Each time step updates exactly the learners whose policy matches the action: a fifth "
        "of them"
    ),
    paper="exactly 159 of 795 learners",
    source="section 4",
)
def _fifth_is_updated_per_step(data: ExcursionsResults) -> Measured:
    per_action = np.bincount(data.action, minlength=len(data.interface.actions))
    expected = float(per_action.mean())
    counts = [life.updates_by_action for life in data.lives.values()]
    means = [float(n @ per_action / n.sum()) for n in counts]
    numbers = [
        Number(
            "most questions about an action", per_action.max(), within(expected, expected), ".4g"
        ),
        Number(
            "mean number of questions with rho > 0",
            means,
            within(expected - 1e-9, expected + 1e-9).in_each(),
            ".4g",
        ),
    ]
    cause = "another body has other numbers of sensors and actions"
    if expected == 159:
        cause = ""
    return Measured(numbers, cause=cause)


@check(
    claim="Half of the time goes to test excursions",
    paper="261,681 samples, half of the time spent on test excursions",
    source="section 4",
    limit=within(0.4, 0.6),
)
def _half_of_the_time_is_excursions(data: ExcursionsResults) -> Measured:
    lives = list(data.lives.values())
    excursions_alone = [life.in_excursions for life in lives]
    with_drives = [life.in_excursions + life.in_drives for life in lives]
    return Measured(
        {
            "share of excursions": excursions_alone,
            "share of excursions and of drives to the centre": with_drives,
        },
        f"Samples {join([life.n_steps for life in lives], ',')}; learning steps "
        f"{join([life.n_updates for life in lives], ',')}.",
        "five seconds of behaviour, five of excursion and two of driving would give 42 % and 58 %",
    )


@check(
    claim="Hundreds of off-policy predictions are learned within the robot's cycle of 100 ms",
    paper="45 ms per cycle on a dual-core laptop",
    source="section 4",
    limit=below(100.0).in_each(),
    form=".2f",
)
def _updates_are_in_real_time(data: ExcursionsResults) -> Mapping[str, ArrayLike]:
    ms = [result.ms_per_update for result in data.main.values()]
    return {"ms per update, with tiles and tests": ms}


def _aside(results: Sequence[VariantResult]) -> list[int]:
    return [result.n_diverged for result in results]


NONE = at_most(0).in_each()
SOME = above(0).in_each()


def _largest_traces(results: Sequence[VariantResult]) -> str:
    return f"Largest trace entries {join([result.max_trace for result in results], '.3g')}."


@check(
    claim="No question diverges with one set of parameters for all",
    paper="no divergence was observed for any question",
    source="section 4, figure 3",
    terms="Set aside is a question with a weight beyond 1000 r_max / (1 - gamma):",
    limit=NONE,
    form=",.0f",
)
def _no_question_diverges(data: ExcursionsResults) -> Measured:
    results = list(data.main.values())
    return Measured({"questions set aside": _aside(results)}, _largest_traces(results))


@check(
    claim="The average NMSRE over all questions finishes below 1",
    paper="the average of the NMSRE for all the questions finished below 1.0",
    source="section 4, figure 3",
    limit=below(1.0).in_each(),
)
def _mean_ends_below_one(data: ExcursionsResults) -> Measured:
    summaries = [NMSRESummary.of(result.nmsre) for result in data.main.values()]
    most = [
        (seed, largest_contributor(result, data.channels)) for seed, result in data.main.items()
    ]
    cause = "; ".join(
        f"seed {seed}: {c.sensor} carries {c.share:.0%} of the mean (its returns' variance is {c.variance:.1e}); "
        f"without it the mean is {c.mean_without:.2f}"
        for seed, c in most
    )
    return Measured(
        {"mean of the final NMSRE": [s.mean for s in summaries]},
        f"{join([s.below_1 for s in summaries], '.1%')} of the questions end below 1.",
        cause,
    )


@check(
    claim="A substantial portion of the variance in the returns is explained",
    paper=(
        "a substantial portion of the variance in the returns is being explained by the predictions"
    ),
    source="section 4",
    limit=below(0.5).in_each(),
)
def _variance_is_explained(data: ExcursionsResults) -> Mapping[str, ArrayLike]:
    medians = [NMSRESummary.of(result.nmsre).median for result in data.main.values()]
    return {"median of the final NMSRE": medians}


@check(
    claim="The mean NMSRE falls like a learning curve",
    paper="the return error has the typical exponential learning profile",
    source="figure 3",
    terms="Medians of the mean curve in fifths of the tests:",
)
def _mean_falls_like_a_learning_curve(data: ExcursionsResults) -> Measured:
    fifths = [fifth_medians(result.curves().mean(axis=1)) for result in data.main.values()]
    curves = "; ".join(
        f"seed {seed}: {join(each, '.2g')}" for seed, each in zip(data.main, fifths, strict=True)
    )
    rise = np.diff(np.mean(fifths, axis=0)).max()
    return Measured(
        [
            Number(
                "last fifth over the first",
                [each[-1] / each[0] for each in fifths],
                below(0.5).in_each(),
            ),
            Number("largest rise from a fifth to the next, mean of the lives", rise, at_most(0.0)),
        ],
        f"Fifths: {curves}.",
        "a single excursion from a rare state lifts the mean for some ten more",
    )


@check(
    claim="Several individual curves are not monotonic",
    paper="several individual curves exhibit non-monotonic shape",
    source="figure 3",
    limit=at_least(0.01).in_each(),
)
def _some_curves_are_not_monotonic(data: ExcursionsResults) -> Mapping[str, ArrayLike]:
    shares = [not_monotonic(result) for result in data.main.values()]
    return {"share of questions that end above 1.2 times their lowest fifth": shares}


def _averages(data: ExcursionsResults, variants: Sequence[LearnerVariant]) -> str:
    """Return each variant's median and mean in the first life; "none" if every question was set aside."""
    summaries = [NMSRESummary.of(data.first(variant).nmsre) for variant in variants]
    medians, means = (
        join(f"{value:.3g}" if np.isfinite(value) else "none" for value in values)
        for values in ([s.median for s in summaries], [s.mean for s in summaries])
    )
    return f"medians {medians}, means {means}"


def _diverging(
    data: ExcursionsResults,
    setting: str,
    values: Sequence[float],
    variants: Sequence[LearnerVariant],
) -> Measured:
    aside = _aside([data.first(variant) for variant in variants])
    return Measured(
        {f"questions set aside at {setting} {join(values, 'g')}": aside},
        f"In the first life {_averages(data, variants)}.",
    )


@check(
    claim="Larger alpha makes questions diverge",
    paper="divergence was observed on earlier runs with larger values of alpha",
    source="section 4",
    limit=SOME,
    form=",.0f",
)
def _larger_alpha_diverges(data: ExcursionsResults) -> Measured:
    sizes = [variant.step_size for variant in LARGER_STEPS]
    return _diverging(data, "alpha x active features", sizes, LARGER_STEPS)


@check(
    claim="Smaller alpha_w makes questions diverge",
    paper="divergence was observed on earlier runs with smaller values of alpha_w",
    source="section 4",
    limit=SOME,
    form=",.0f",
)
def _smaller_alpha_w_diverges(data: ExcursionsResults) -> Measured:
    cause = (
        f"under the trace rule {PAPER.trace_rule!r} traces stay small (largest entry "
        f"{data.first().max_trace:.3g}), and w matters little: at the paper's alpha_w the same life ends at "
        f"{_averages(data, [PAPER])}"
    )
    ratios = [variant.secondary_ratio for variant in SMALLER_RATIOS]
    return _diverging(data, "alpha_w / alpha", ratios, SMALLER_RATIOS)._replace(cause=cause)


@check(
    claim="The pseudo-code's own trace does not diverge either",
    paper="no divergence was observed; the pseudo-code does not bound its trace",
    source="section 4, pseudo-code",
    terms="Under the trace rule plain:",
    limit=NONE,
    form=",.0f",
)
def _plain_trace_does_not_diverge(data: ExcursionsResults) -> Measured:
    results = list(data.results[PAPER._replace(trace_rule="plain")].values())
    gammas = sorted({float(gamma) for result in results for gamma in data.gamma[~result.sound]})
    note = _largest_traces(results)
    if gammas:
        note = f"At gamma {join(gammas)}. {note}"
    return Measured(
        {"questions set aside": _aside(results)},
        note,
        "rho is 10 where an action begins and 1.67 where it is repeated, so at gamma .8 the second moment of the "
        "trace is multiplied by .864 per step, and its third and fourth by 1.04 and 1.24: they are infinite",
    )


REMARKS = [
    'The paper has no offsets and no averages, except in the row with offset "reading", the defaults of `horde learn`.',
    "A life does not depend on what is learned from it, so every rule learns from the same lives.",
    "NMSRE is the trace of squared errors (10 excursions) over the variance of all returns of the question; "
    "questions set aside, because their weights passed every bound that an answer can need, are left out of means "
    "and medians and counted apart.",
    "A return has 50 terms, all under the target policy; the paper's sum has 51, its excursions have 50 steps.",
]


# ---- figure and tables ----------------------------------------------------------------------------------------------

N_WORST = 10


def pictures(data: ExcursionsResults) -> dict[str, Picture]:
    """Draw the NMSRE of each question."""
    seed, result = next(iter(data.main.items()))
    curves = [
        Curve(tests.policy, np.arange(1, len(tests.step) + 1), nmsre_after_each(tests))
        for tests in result.outcomes
    ]
    nmsre = nmsre_picture(curves, result.sound)
    caption = (
        f"The paper's figure 3: the NMSRE of each of {len(data.questions)} questions over the tests of its policy, in "
        f"the life of seed {seed}; bold: their mean; dashed: their median. The axis is logarithmic."
    )
    return {"nmsre": Picture(nmsre, caption)}


def tables(data: ExcursionsResults) -> list[Table]:
    """Return the experiment's tables, in the order in which they are read."""
    gammas = [f"{gamma:g}" for gamma in data.gamma]
    return [
        _by_seed(data),
        _by(data, "sensor group", [channel.group for channel in data.channels]),
        _by(data, "policy", [data.interface.actions[a] for a in data.action]),
        _worst(data),
        _variants(data),
        _offline(data, "gamma", gammas),
        _offline(data, "sensor group", [channel.group for channel in data.channels]),
    ]


def _by_seed(data: ExcursionsResults) -> Table:
    rows = []
    for seed, result in data.main.items():
        summary = NMSRESummary.of(result.nmsre)
        most = largest_contributor(result, data.channels)
        rows.append(
            {
                "life": f"seed {seed}",
                "median": summary.median,
                "mean": summary.mean,
                "below 1": f"{summary.below_1:.1%}",
                "set aside": result.n_diverged,
                "carried most by": f"{most.sensor}: {most.share:.0%}",
                "mean without it": most.mean_without,
                "medians of fifths": join(fifth_medians(result.curves().mean(axis=1)), ".2g"),
            }
        )
    note = "The last column: the mean curve's median in each fifth of the tests."
    return Table.of("Final NMSRE of each life", rows, note)


def _by(data: ExcursionsResults, what: str, label: Sequence[str]) -> Table:
    """Return the final NMSRE by a label and gamma: median and mean over the questions, means over the seeds."""
    rows = []
    for name in dict.fromkeys(label):
        row: dict[str, object] = {what: name, "questions": label.count(name)}
        for gamma in np.unique(data.gamma):
            in_group = (np.array(label) == name) & (data.gamma == gamma)
            summaries = [NMSRESummary.of(result.nmsre[in_group]) for result in data.main.values()]
            row[f"median, gamma {gamma:g}"] = mean_ci([s.median for s in summaries])
            row[f"mean, gamma {gamma:g}"] = np.mean([s.mean for s in summaries])
        rows.append(row)
    return Table.of(f"Final NMSRE by {what} and gamma", rows)


def _worst(data: ExcursionsResults) -> Table:
    nmsre = np.array([result.nmsre for result in data.main.values()])
    variance = np.array([result.variance for result in data.main.values()]).mean(axis=0)
    worst = np.argsort(-np.nan_to_num(nmsre.mean(axis=0), nan=-1.0))[:N_WORST]
    rows = [
        {
            "question": data.questions[i].name,
            **{f"seed {seed}": value for seed, value in zip(data.main, nmsre[:, i], strict=True)},
            "variance of its returns": variance[i],
        }
        for i in worst
    ]
    return Table.of("The worst questions: final NMSRE", rows)


def _variants(data: ExcursionsResults) -> Table:
    rows = []
    for variant, by_seed in data.results.items():
        results = list(by_seed.values())
        summaries = [NMSRESummary.of(result.nmsre) for result in results]
        below_1 = np.mean([s.below_1 for s in summaries])
        rows.append(
            {
                **variant._asdict(),
                "lives": len(results),
                "median": mean_ci([s.median for s in summaries]),
                "mean": mean_ci([s.mean for s in summaries]),
                "below 1": f"{below_1:.1%}" if np.isfinite(below_1) else "-",
                "set aside (by gamma)": [_aside_by_gamma(data, result) for result in results],
                "max trace": max(result.max_trace for result in results),
                "ms per update": np.mean([result.ms_per_update for result in results]),
            }
        )
    note = (
        f"Lives in the order of the seeds {join(data.main)}; mean and median are of the questions that were not set "
        "aside. Times belong to the machine and its neighbours."
    )
    return Table.of("Trace rules and w rules, defaults, larger alpha, smaller alpha_w", rows, note)


def _aside_by_gamma(data: ExcursionsResults, result: VariantResult) -> str:
    """Return how many questions were set aside in a life, and at which gammas."""
    gammas = data.gamma[~result.sound]
    by_gamma = "; ".join(f"{gamma:g}: {(gammas == gamma).sum()}" for gamma in np.unique(gammas))
    if len(gammas):
        return f"{len(gammas)} ({by_gamma})"
    return "0"


def _offline(data: ExcursionsResults, what: str, label: Sequence[str]) -> Table:
    """Compare the demons with the best off-line predictors on the same held-out excursions."""
    is_held_out = data.offline.is_held_out
    first = data.first()
    late = is_held_out & (np.arange(len(is_held_out)) >= len(is_held_out) // 2)
    scores = {
        "demons, as lived": first.score(late, last=False),
        "demons, last weights": first.score(is_held_out),
        "LSTD(lambda)": data.offline.lstd,
        "ridge regression": data.offline.ridge,
        "mean return": data.offline.mean,
    }
    rows = []
    for name in [*dict.fromkeys(label), "all"]:
        in_group = np.array([name in (own, "all") for own in label])
        summaries = {who: NMSRESummary.of(each[in_group]) for who, each in scores.items()}
        rows.append(
            {what: name, **{who: f"{s.median:.3g} / {s.mean:.3g}" for who, s in summaries.items()}}
        )
    note = (
        "Median / mean over the questions of mean squared error over variance, on the "
        f"{int(is_held_out.sum())} held-out excursions of the first life (30 %). "
        f"As lived: the predictions made then, on the {int(late.sum())} of them in the second half. Last "
        "weights: what the weights at the end of the life predict; no excursion is learned from. LSTD: the demons' own "
        "equations, solved on the whole learning stream. Ridge regression is shown the returns of the other excursions."
    )
    return Table.of(f"How far from the best linear predictor, by {what}", rows, note)
