"""Experiment `efficiency`: how much of the robot's time each lever saves.

The levers are offsets, offsets that follow the reading, averaged weights, step sizes by the rarity of
features, the robot's chosen layout, and LSTD on the readings. Each seed's life is simulated once and
learned from with each of them alone, all but one and all, and compared with `baselines` and the best
off-line linear predictor on the paper's tiles.

The paper leaves better accuracy, by richer features and others, to future work (section 7). The
settings were chosen on lives of the seeds 201 to 203; seed k of the experiment is life 300 + k.
"""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from examples.reproduce.baselines import (
    N_ROLLOUTS,
    floor,
    kernel_lstd,
    lstd,
    offline_kernel_lstd,
    persistence,
)
from examples.reproduce.checks import Measured, Number, at_least, at_most, check
from examples.reproduce.excursions import NMSRESummary
from examples.reproduce.experiment import ExperimentContext, Table, cached
from examples.reproduce.figures import COLOURS, Picture, new_canvas, style_axes
from examples.reproduce.lives import (
    LifeSpec,
    compiled_horde,
    interface_of,
    simulate_life,
    simulate_lives,
)
from examples.reproduce.offline import OfflineScores, offline
from examples.reproduce.runner import Job
from examples.reproduce.scores import final_nmsre, scores_of
from examples.reproduce.stats import mean_ci
from examples.reproduce.training_data import TrainingData, learn, outcomes
from horde_agent.gvf import GVF, AutomaticOffset
from horde_agent.horde import LearnerConfig
from horde_agent.interface import Interface
from horde_agent.life.observers import sound_demons
from horde_agent.questions import excursions
from horde_agent.record import read
from horde_agent.scoring.intervals import student_t
from horde_agent.scoring.nmsre import Outcomes
from horde_agent.scoring.returns import policies_under_test
from horde_agent.types import Bools, Floats, Integers

TITLE = "Error against robot time"
STEPS = {"paper": 261_681, "quick": 6_000}
SEEDS_FROM = 300
N_SEEDS = 5
AVERAGE = 10_000.0
N_RANDOM = 192
SHARES = (0.1, 0.2, 1 / 3, 0.5, 0.7, 1.0)
"""Lengths of lives, as shares of the paper's."""
FIFTH = 0.2
LENGTHS = (0.1, FIFTH, 1.0)
"""Lengths at which the default is compared with `RIVALS`."""
PERIOD_S = 0.1
HOUR_S = 3_600.0


class Levers(NamedTuple):
    """What is added to the paper's learner."""

    offsets: bool = False
    readings: bool = False  # offsets that follow the reading
    averages: bool = False
    rarity: bool = False
    chosen: bool = False  # the chosen layout, which has pairs of channels
    lstd: bool = False  # LSTD on the readings, mixed with the weights' predictions

    @property
    def name(self) -> str:
        """The levers in words."""
        return " + ".join(field for field, is_on in self._asdict().items() if is_on) or "paper"

    def config(self) -> LearnerConfig:
        """Return the learner's options, with the step size that goes with them by default."""
        offset: float | AutomaticOffset = 0.0
        if self.readings:
            offset = "reading"
        elif self.offsets:
            offset = "mean"
        average = 0.0
        if self.averages:
            average = AVERAGE
        n_random = 0
        if self.lstd:
            n_random = N_RANDOM
        return LearnerConfig.paper(
            offset=offset,
            average=average,
            rarity=self.rarity,
            lstd=n_random,
            vector_mspbe=False,
        )

    def without(self, lever: str) -> Levers:
        """Return the others; what follows the reading is an offset."""
        levers = self._replace(**{lever: False})
        if not levers.offsets:
            levers = levers._replace(readings=False)
        return levers

    def interface(self, interface: Interface) -> Interface:
        """Return the robot's interface with the features that are learned from."""
        if self.chosen:
            return interface.with_chosen_layout()
        return interface


DEFAULTS = ("offsets", "readings", "averages", "rarity", "chosen", "lstd")
"""The levers that are on by default."""
PAPER = Levers()
OFFSETS = Levers(offsets=True)
READINGS = Levers(offsets=True, readings=True)
AVERAGES = Levers(offsets=True, readings=True, averages=True)
PAPERS_TILES = Levers(offsets=True, readings=True, averages=True, rarity=True)
"""All levers without other features."""
ALL = PAPERS_TILES._replace(chosen=True, lstd=True)
"""What `horde learn` does by default."""
TILES = ALL.without("lstd")
VARIANTS = (
    PAPER,
    OFFSETS,
    READINGS,
    Levers(averages=True),
    Levers(rarity=True),
    Levers(chosen=True),
    Levers(lstd=True),
    AVERAGES,
    PAPERS_TILES,
    *(ALL.without(lever) for lever in DEFAULTS),
    ALL,
)
PERSISTENCE = "persistence"
LINEAR = "LSTD(0) on readings"
KERNEL = "LSTD(0) on kernels"
OFFLINE_KERNEL = "LSTD(0) on kernels, off-line"
FLOOR = "floor: the same state, other noise"
RIVALS = (PAPER, PERSISTENCE, LINEAR, KERNEL)
BASELINES = (PERSISTENCE, LINEAR, KERNEL, OFFLINE_KERNEL, FLOOR)

# ---- learning -------------------------------------------------------------------------------------------------------


class VariantArrays(NamedTuple):
    """What one variant learned from one life."""

    # Predictions before each test, as they were made then, see `training_data.predict_at_tests`
    predictions: Floats
    sound: Bools  # which demons did not diverge, shape (n_demons,)
    ms_per_update: float  # duration of an update in milliseconds, with tiles and tests


@cached(VariantArrays)
def learn_variant(context: ExperimentContext, life: Path, levers: Levers) -> VariantArrays:
    """Learn from a life with some of the levers."""
    interface = levers.interface(interface_of(context))
    training_data = TrainingData(read(life))
    horde = compiled_horde(
        interface, excursions(interface), config=levers.config(), mode="deferred"
    )
    learned = learn(training_data, horde, interface)
    ms = 1e3 * learned.seconds / learned.n_updates
    return VariantArrays(learned.predictions, sound_demons(horde), ms)


@cached(OfflineScores)
def learn_offline(context: ExperimentContext, life: Path, seed: int) -> OfflineScores:
    """Solve for the best off-line linear predictors of a life."""
    interface = interface_of(context)
    rng = np.random.default_rng([seed, 2])
    return offline(TrainingData(read(life)), excursions(interface), interface, rng)


def life_of(seed: int, n_steps: int) -> LifeSpec:
    """Return the settings of a life."""
    return LifeSpec(seed, n_steps, physics="planar")


@cached(VariantArrays)
def solve(context: ExperimentContext, life: Path, seed: int, name: str) -> VariantArrays:
    """Return what one of the baselines LINEAR, KERNEL and OFFLINE_KERNEL predicts in a life."""
    interface = interface_of(context)
    questions = excursions(interface)
    training_data = TrainingData(read(life))
    rng = np.random.default_rng([seed, 3])
    if name == OFFLINE_KERNEL:
        predictions = offline_kernel_lstd(training_data, questions, interface, rng)
        return _of_baseline(predictions, questions)
    began = time.perf_counter()
    if name == KERNEL:
        predictions = kernel_lstd(training_data, questions, interface, rng)
    else:
        predictions = lstd(training_data, questions, interface)
    ms = 1e3 * (time.perf_counter() - began) / training_data.n_learned[-1]
    return _of_baseline(predictions, questions, float(ms))


@cached(VariantArrays)
def predict_by_rollouts(context: ExperimentContext, seed: int, n_steps: int) -> VariantArrays:
    """Follow the policies of a life's excursions again, with other noise."""
    questions = excursions(interface_of(context))
    spec = life_of(seed, n_steps)
    training_data = TrainingData(read(simulate_life(context, spec)))
    predictions = floor(context, spec, training_data, questions)
    return _of_baseline(predictions, questions)


def _of_baseline(
    predictions: Floats, questions: Sequence[GVF], ms_per_update: float = np.nan
) -> VariantArrays:
    """Return predictions that no demon made, so that none diverged."""
    sound = np.ones(len(questions), dtype=np.bool_)
    return VariantArrays(predictions, sound, ms_per_update)


class Errors(NamedTuple):
    """Errors of one variant or baseline on one life.

    Attributes:
        median, mean, below_1: Of the questions' final NMSRE in the life's first steps, for each of
            `SHARES`, shape (n_shares,) each.
        n_diverged: Number of diverged demons.
        ms_per_update: Duration of an update in milliseconds, with tiles and tests; NaN for what is
            not learned on-line.
        second_half: Mean squared error of each question in the second half of the life's first steps,
            over the variance of all returns, for each of `SHARES`, shape (n_shares, n_questions);
            NaN if its demon diverged.
    """

    median: Floats
    mean: Floats
    below_1: Floats
    n_diverged: int
    ms_per_update: float
    second_half: Floats


def errors_of(
    arrays: VariantArrays, life: TrainingData, questions: Sequence[GVF], n_steps: Integers
) -> Errors:
    """Return the final NMSRE that lives of some numbers of steps, (n_shares,), would have had.

    A prediction depends on nothing after it, so a shorter life is the beginning of a longer one.
    """
    tests = outcomes(life, questions, arrays.predictions)
    summaries = []
    for last_step in n_steps.tolist():
        shorter = []
        for test in tests:
            is_before = test.step < last_step
            if not is_before.any():
                continue
            shorter.append(
                Outcomes(
                    test.policy,
                    test.step[is_before],
                    test.predictions[is_before],
                    test.returns[is_before],
                )
            )
        nmsre = np.where(arrays.sound, final_nmsre(shorter, len(questions)), np.nan)
        summaries.append(NMSRESummary.of(nmsre))
    return Errors(
        median=np.array([summary.median for summary in summaries]),
        mean=np.array([summary.mean for summary in summaries]),
        below_1=np.array([summary.below_1 for summary in summaries]),
        n_diverged=int((~arrays.sound).sum()),
        ms_per_update=arrays.ms_per_update,
        second_half=np.array(
            [_second_half(tests, arrays.sound, last_step) for last_step in n_steps.tolist()]
        ),
    )


def _second_half(tests: Sequence[Outcomes], sound: Bools, last_step: int) -> Floats:
    """Return the errors in the second half of the steps before `last_step`: a row of `Errors.second_half`."""
    nmsre = np.full(sound.size, np.nan)
    for test in tests:
        is_late = (test.step >= last_step / 2) & (test.step < last_step)
        if is_late.any():
            error = (test.errors[is_late] ** 2).mean(axis=0)
            nmsre[test.policy.demons] = scores_of(test).moments.normalise(error)
    nmsre[~sound] = np.nan
    return nmsre


@dataclass(frozen=True)
class EfficiencyResults:
    """Everything that was measured.

    Attributes:
        n_steps: Lengths of lives, shape (n_shares,).
        errors: By variant or name of a baseline, then by seed.
        best_linear: Median and mean NMSRE of the best off-line linear predictors, held out, of the
            first seed's life.
        family: Family of each question's sensor, strings, shape (n_questions,).
        gamma: Continuation of each question, shape (n_questions,).
    """

    n_steps: Integers
    errors: Mapping[Levers | str, Mapping[int, Errors]]
    best_linear: NMSRESummary
    family: NDArray[np.str_]
    gamma: Floats

    def curves(self, predictor: Levers | str, which: str) -> Floats:
        """Return the median or mean NMSRE of a variant or baseline, shape (n_seeds, n_shares)."""
        return np.array([getattr(errors, which) for errors in self.errors[predictor].values()])

    def second_half(self, predictor: Levers | str) -> Floats:
        """Return `Errors.second_half` of each seed, shape (n_seeds, n_shares, n_questions)."""
        return np.array([errors.second_half for errors in self.errors[predictor].values()])

    def ratio(self, which: str, share: float, levers: Levers, reference: Levers) -> Floats:
        """Return a variant's error after a share of the life over a reference's at its end, of each seed."""
        place = SHARES.index(share)
        return np.asarray(
            self.curves(levers, which)[:, place] / self.curves(reference, which)[:, -1]
        )


def run(context: ExperimentContext) -> tuple[EfficiencyResults, dict[str, object]]:
    """Simulate the lives and learn with the levers; cached results are reused."""
    n_steps = STEPS[context.scale]
    seeds = [SEEDS_FROM + seed for seed in context.at_least(N_SEEDS)]
    if context.is_quick:
        seeds = [SEEDS_FROM + seed for seed in context.seeds]
    lives = [life_of(seed, n_steps) for seed in seeds]
    recordings = simulate_lives(context, lives)
    jobs: dict[Any, Job] = {
        OfflineScores: Job(
            "off-line solutions", learn_offline, (context, recordings[seeds[0]], seeds[0]), 3.0
        ),
    }
    for seed in seeds:
        for name, cost in ((LINEAR, 1.0), (KERNEL, 1.0), (OFFLINE_KERNEL, 5.0)):
            jobs[name, seed] = Job(
                f"{name}, life {seed}", solve, (context, recordings[seed], seed, name), cost
            )
        jobs[FLOOR, seed] = Job(
            f"rollouts in life {seed}", predict_by_rollouts, (context, seed, n_steps), 3.0
        )
    for levers in VARIANTS:
        for seed in seeds:
            jobs[levers, seed] = Job(
                f"{levers.name} on life {seed}",
                learn_variant,
                (context, recordings[seed], levers),
            )
    results = context.in_parallel(jobs)
    questions = excursions(interface_of(context))
    lengths = np.rint(np.array(SHARES) * n_steps).astype(np.int64)
    training_data = {seed: TrainingData(read(recordings[seed])) for seed in seeds}
    for seed, life in training_data.items():
        results[PERSISTENCE, seed] = _of_baseline(persistence(life, questions), questions)
    errors: dict[Levers | str, dict[int, Errors]] = {}
    predictors: tuple[Levers | str, ...] = (*VARIANTS, *BASELINES)
    for predictor in predictors:
        errors[predictor] = {
            seed: errors_of(results[predictor, seed], life, questions, lengths)
            for seed, life in training_data.items()
        }
    scores = results[OfflineScores]
    best = np.fmin(scores.ridge, scores.lstd)
    interface = interface_of(context)
    family_of = np.array([channel.group for channel in interface.channels])
    channel = np.zeros(len(questions), dtype=np.int64)
    gamma = np.zeros(len(questions))
    for policy in policies_under_test(questions):
        channel[policy.demons] = policy.channel
        gamma[policy.demons] = policy.gamma
    data = EfficiencyResults(
        n_steps=lengths,
        errors=errors,
        best_linear=NMSRESummary.of(best),
        family=family_of[channel],
        gamma=gamma,
    )
    return data, {
        "steps of each life": n_steps,
        "lives": ", ".join(map(str, seeds)),
        "questions": len(questions),
        "reach of the averages": f"{AVERAGE:g} learning steps",
    }


# ---- comparisons by question -----------------------------------------------------------------------------------------


def is_lower(errors: Floats, reference: Floats) -> Bools:
    """Return where errors, (n_seeds, n), are below a reference's by more than their 95 % interval, shape (n,).

    The differences of the lives are compared, so that what a life is like does not matter. With one
    life there is no interval, and all are False.
    """
    n_seeds = len(errors)
    if n_seeds < 2:
        return np.zeros(errors.shape[1:], dtype=bool)
    difference = reference - errors
    half_width = student_t(n_seeds - 1) * difference.std(axis=0, ddof=1) / np.sqrt(n_seeds)
    return np.asarray(difference.mean(axis=0) > half_width)


class Family(NamedTuple):
    """The questions about a family of sensors with one continuation."""

    name: str
    gamma: float
    median: Floats  # of the errors that the default has, shape (n_seeds,)
    rival: Floats  # of the rival's, shape (n_seeds,)

    @property
    def is_better(self) -> bool:
        """True if the rival's error is lower by more than its interval."""
        return bool(is_lower(self.rival[:, None], self.median[:, None])[0])

    def __str__(self) -> str:
        """Return the family with both errors, the default's first."""
        return f"{self.name} at {self.gamma:g}: {self.median.mean():.3g}, {self.rival.mean():.3g}"


def medians(errors: Floats) -> Floats:
    """Return the median of each life's errors, (n_seeds, n), without those that are NaN, shape (n_seeds,)."""
    return np.array([NMSRESummary.of(of_seed).median for of_seed in errors])


class Comparison(NamedTuple):
    """The default and a rival in the second half of lives of one length."""

    n_better: int  # questions that the rival answers better by more than the interval
    n_worse: int
    families: Sequence[Family]  # those that the rival answers better


def compare(data: EfficiencyResults, rival: Levers | str, share: float) -> Comparison:
    """Compare the default with a rival in lives that are a share of the whole ones."""
    place = SHARES.index(share)
    default_errors = data.second_half(ALL)[:, place]
    rival_errors = data.second_half(rival)[:, place]
    families = []
    for name in np.unique(data.family).tolist():
        for gamma in np.unique(data.gamma).tolist():
            members = (data.family == name) & (data.gamma == gamma)
            family = Family(
                name,
                gamma,
                medians(default_errors[:, members]),
                medians(rival_errors[:, members]),
            )
            if family.is_better:
                families.append(family)
    return Comparison(
        n_better=int(is_lower(rival_errors, default_errors).sum()),
        n_worse=int(is_lower(default_errors, rival_errors).sum()),
        families=families,
    )


# ---- checks ---------------------------------------------------------------------------------------------------------

FUTURE_WORK = "section 7, future work"


@check(
    claim="A fifth of the robot's time gives the error of the whole life with the paper's learner.",
    paper="-",
    source=FUTURE_WORK,
    terms="Error after a fifth of the steps, without other features, over the paper's learner after all of them:",
    limit=at_most(1.0),
)
def _a_fifth_is_enough(data: EfficiencyResults) -> Measured:
    with_all = {
        which: mean_ci(data.ratio(which, FIFTH, ALL, PAPER)) for which in ("median", "mean")
    }
    words = ", ".join(f"{which} {value}" for which, value in with_all.items())
    return Measured(
        {which: data.ratio(which, FIFTH, PAPERS_TILES, PAPER) for which in ("median", "mean")},
        f"With the chosen layout: {words}.",
        "see the table: error against robot time",
    )


@check(
    claim="At the end, errors are lower by a fifth (median) and three tenths (mean) without other features.",
    paper="-",
    source=FUTURE_WORK,
    terms="All levers but the chosen layout over the paper's learner, at the end:",
)
def _errors_are_lower(data: EfficiencyResults) -> list[Number]:
    return [
        Number("median", data.ratio("median", 1.0, PAPERS_TILES, PAPER), at_most(0.8)),
        Number("mean", data.ratio("mean", 1.0, PAPERS_TILES, PAPER), at_most(0.7)),
    ]


@check(
    claim="Nearly every question is answered better than by its mean, and none diverges.",
    paper="-",
    source=FUTURE_WORK,
    terms="With all levers but the chosen layout:",
)
def _few_are_worse_than_the_mean(data: EfficiencyResults) -> list[Number]:
    below_1 = data.curves(PAPERS_TILES, "below_1")[:, -1]
    n_diverged = [
        errors.n_diverged for of_seed in data.errors.values() for errors in of_seed.values()
    ]
    return [
        Number("share below 1", below_1, at_least(0.92)),
        Number("diverged, all variants", max(n_diverged), at_most(0), ".0f"),
    ]


@check(
    claim="Each lever pays on top of the others.",
    paper="-",
    source=FUTURE_WORK,
    terms="Mean error of all levers over all but one, at the end, without",
    limit=at_most(1.0),
)
def _each_lever_pays(data: EfficiencyResults) -> dict[str, Floats]:
    ratios = {}
    for lever in DEFAULTS:
        ratios[lever] = data.ratio("mean", 1.0, ALL, ALL.without(lever))
    return ratios


@check(
    claim="No question, and no family of sensors at a gamma, is answered better by the paper's learner.",
    paper="-",
    source=FUTURE_WORK,
    terms="By more than its interval over the lives, in the second half of their steps so far:",
)
def _nothing_is_answered_better(data: EfficiencyResults) -> Measured | None:
    if len(data.errors[ALL]) < 2:
        return None
    numbers = []
    for share in LENGTHS:
        comparison = compare(data, PAPER, share)
        at = f"{share:.0%}"
        numbers += [
            Number(f"questions, {at}", comparison.n_better, at_most(0), ".0f"),
            Number(f"families, {at}", len(comparison.families), at_most(0), ".0f"),
        ]
    return Measured(numbers)


REMARKS = (
    "A life does not depend on what is learned from it, so all variants learn from the same lives; the error after "
    "a part of a life is that of its tests so far.",
    "Each variant has the default step size that goes with it: 0.1, with offsets or rarity 0.05.",
    "The best off-line linear predictor is the better of ridge regression and LSTD for each question, on held-out "
    "excursions of the first life, from the paper's tiles.",
    "LSTD(0) on readings, the last action and their products is solved anew when a sixteenth of the transitions is "
    "new; each prediction is by the latest solution of its time.",
    "LSTD(0) on kernels is solved in the same way, with 500 centres from its first 1,000 transitions; off-line for all "
    "transitions of the life, with 1,000 centres, and width and ridge chosen for each question and fifth of the tests "
    "by the errors in the others.",
    f"The floor is the mean return of {N_ROLLOUTS} further excursions from the state in which a test began; the "
    f"expected return itself would have an error {100 / (N_ROLLOUTS + 1):.0f} % lower.",
)

# ---- figure and tables ----------------------------------------------------------------------------------------------

BEST_LINEAR = "best linear predictor of the paper's tiles, off-line"
SHOWN = (PAPER, READINGS, AVERAGES, TILES, ALL)
NOTE_ON_RIVALS = (
    "Better than the default, by more than the 95 % interval of the difference over the lives, in the second half of "
    "the steps so far. Of families of sensors at a gamma the medians, the default's first. By chance 2.5 % would be."
)


def label(predictor: Levers | str) -> str:
    """Return what tables and figures call a variant or a baseline."""
    if isinstance(predictor, Levers):
        return predictor.name
    return predictor


def pictures(data: EfficiencyResults) -> dict[str, Picture]:
    """Draw the errors against robot time, lever by lever."""
    hours = data.n_steps * PERIOD_S / HOUR_S
    canvas, panels = new_canvas(8.0, 5.0, n=2, sharex=True)
    for axes, which in zip(panels, ("median", "mean"), strict=True):
        for levers, colour in zip(SHOWN, COLOURS, strict=False):
            curves = data.curves(levers, which)
            axes.plot(hours, curves.mean(axis=0), "o-", color=colour, label=levers.name, ms=3)
            axes.fill_between(
                hours, curves.min(axis=0), curves.max(axis=0), color=colour, alpha=0.15, lw=0
            )
        for name, style in ((LINEAR, "s:"), (KERNEL, "s--")):
            curve = data.curves(name, which).mean(axis=0)
            axes.plot(hours, curve, style, color="black", label=name, ms=3)
        bounds = {
            BEST_LINEAR: (getattr(data.best_linear, which), ":"),
            OFFLINE_KERNEL: (data.curves(OFFLINE_KERNEL, which)[:, -1].mean(), "-."),
            FLOOR: (data.curves(FLOOR, which)[:, -1].mean(), "-"),
        }
        for name, (bound, style) in bounds.items():
            axes.axhline(bound, color="0.4", ls=style, lw=1, label=name)
        style_axes(axes, f"{which} error of the questions", xlabel="robot time in hours")
        axes.set_yscale("log")
    panels[0].set_ylabel("error / variance of the answers")
    handles, labels = panels[0].get_legend_handles_labels()
    canvas.legend(handles, labels, frameon=False, fontsize=8, loc="outside lower center", ncols=2)
    caption = (
        "Error of 795 predictions against robot time; bands are the range over the lives. Black: LSTD without a Horde. "
        "Grey: off-line predictors at the end, of the paper's tiles and of the readings, and the floor, further "
        "excursions from the same state with other noise."
    )
    return {"efficiency": Picture(canvas, caption)}


def tables(data: EfficiencyResults) -> list[Table]:
    """Return the errors of variants and baselines, after shares of the life and by gamma, and comparisons."""
    over_time = []
    at_the_end = []
    in_second_half = []
    by_gamma = {"all": np.ones(data.gamma.size, dtype=bool)}
    for gamma in np.unique(data.gamma).tolist():
        by_gamma[f"gamma {gamma:g}"] = data.gamma == gamma
    for predictor, of_seed in data.errors.items():
        row: dict[str, object] = {"levers": label(predictor)}
        for which in ("median", "mean"):
            for share, values in zip(SHARES, data.curves(predictor, which).T, strict=True):
                row[f"{which}, {share:.0%}"] = mean_ci(values)
        over_time.append(row)
        of_seeds = list(of_seed.values())
        at_the_end.append(
            {
                "levers": label(predictor),
                "median": mean_ci([errors.median[-1] for errors in of_seeds]),
                "mean": mean_ci([errors.mean[-1] for errors in of_seeds]),
                "below 1": mean_ci([errors.below_1[-1] for errors in of_seeds]),
                "diverged": sum(errors.n_diverged for errors in of_seeds),
                "ms per update": mean_ci([errors.ms_per_update for errors in of_seeds]),
            }
        )
        at_last = data.second_half(predictor)[:, -1]
        row = {"levers": label(predictor)}
        for which in ("median", "mean"):
            for name, members in by_gamma.items():
                summaries = [NMSRESummary.of(errors[members]) for errors in at_last]
                values = [getattr(summary, which) for summary in summaries]
                row[f"{which}, {name}"] = mean_ci(values)
        in_second_half.append(row)
    comparisons = []
    for share, n_steps in zip(SHARES, data.n_steps.tolist(), strict=True):
        if share not in LENGTHS:
            continue
        for rival in RIVALS:
            comparison = compare(data, rival, share)
            comparisons.append(
                {
                    "steps": n_steps,
                    "against": label(rival),
                    "questions better": comparison.n_better,
                    "questions worse": comparison.n_worse,
                    "families better": "; ".join(map(str, comparison.families)) or "none",
                }
            )
    best = data.best_linear
    note = f"Best off-line linear predictor: median {best.median:.3g}, mean {best.mean:.3g}."
    return [
        Table.of("Error after a share of the life", over_time, note),
        Table.of("Levers at the end", at_the_end),
        Table.of("Error in the second half of the life, by gamma", in_second_half),
        Table.of("Who answers better", comparisons, NOTE_ON_RIVALS),
    ]
