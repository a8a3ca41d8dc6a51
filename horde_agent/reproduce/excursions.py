"""The paper's first experiment: 795 questions about five policies, learned off-policy and tested by excursions.

Each seed's life is simulated once and learned from under every rule. Compared with the paper's parameters: two
rules for w, three for the trace, larger alpha and smaller alpha_w, and the best off-line linear predictors.
Source: White, Modayil & Sutton (2012), section 4.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from matplotlib.axes import Axes

from horde_agent.gvf import GVF
from horde_agent.horde import LearnerConfig
from horde_agent.interface import ChannelInfo, Interface
from horde_agent.learning.rules import W_RULES
from horde_agent.life.observers import sound_demons
from horde_agent.measures.nmsre import Outcomes, final_nmsre, nmsre_at_rest
from horde_agent.measures.passes import Curve
from horde_agent.questions import excursions
from horde_agent.record import Phase, read
from horde_agent.reproduce.experiment import Cell, Claims, Experiment, Figure, Finding, Table, join, mean_ci
from horde_agent.reproduce.figure import new_canvas, save, style_axes
from horde_agent.reproduce.lessons import LEARN, TrainingData, learn, outcomes, predict_at_tests
from horde_agent.reproduce.lives import LifeSpec, interface_of, new_horde, simulate_lives
from horde_agent.reproduce.offline import Offline, offline
from horde_agent.reproduce.study import Job, OnProgress, Study, cached
from horde_agent.runs.jobs.warm import warm_up
from horde_agent.runs.showing.pictures import COLOURS, nmsre_picture
from horde_agent.types import Bools, Floats, Integers


class Variant(NamedTuple):
    """Settings of `LearnerConfig`; the defaults are the paper's parameters and this program's default rules."""

    trace_rule: str = "clipped"
    w_rule: str = "every-step"
    step_size: float = 0.1
    secondary_ratio: float = 0.001

    def config(self) -> LearnerConfig:
        """Return the learner's settings."""
        return LearnerConfig(**self._asdict(), vector_mspbe=False)


STEPS = {"paper": 261_681, "quick": 6_000}
PAPER = Variant()
# The paper's pseudo-code is "plain"; the two others bound its trace.
RULES = [Variant(trace_rule, w_rule) for trace_rule in ("clipped", "capped", "plain") for w_rule in W_RULES]
LARGER_STEPS = [Variant(step_size=size) for size in (0.2, 0.5, 1.0)]
SMALLER_RATIOS = [Variant(secondary_ratio=ratio) for ratio in (1e-4, 0.0)]

# ---- learning -------------------------------------------------------------------------------------------------------


class Lesson(NamedTuple):
    """What one variant learned from one life."""

    made: Floats  # predictions before each test, as they were made then, see `lessons.predict_at_tests`
    last: Floats  # the same of the weights at the end of the life
    sound: Bools  # which demons did not diverge, shape (n_demons,)
    max_trace: float  # largest |e|
    seconds: float  # duration of learning
    n_updates: int  # number of updates


@cached(Lesson)
def learn_variant(on_progress: OnProgress, study: Study, life: Path, variant: Variant) -> Lesson:
    """Learn from a life under a variant; a job for a worker process."""
    interface, lessons = interface_of(study), TrainingData(read(life))
    horde = new_horde(interface, excursions(interface), config=variant.config(), mode="deferred")
    warm_up(horde, interface)
    learned = learn(lessons, horde, interface, on_progress=on_progress)
    last = predict_at_tests(lessons, horde, interface)
    return Lesson(learned.predictions, last, sound_demons(horde), horde.max_trace, learned.seconds, learned.n_updates)


@cached(Offline)
def _learn_offline(on_progress: OnProgress, study: Study, seed: int, life: Path) -> Offline:
    interface, rng = interface_of(study), np.random.default_rng([seed, 2])
    return offline(TrainingData(read(life)), excursions(interface), interface, rng, on_progress)


# ---- results --------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class VariantResult:
    """Result of one variant on one life."""

    outcomes: list[Outcomes]  # each policy's excursions, with the predictions made before them
    last_outcomes: list[Outcomes]  # the same with what the weights at the end of the life predict there
    test_number: list[Integers]  # of each excursion, among all of the life, by policy as in `outcomes`
    sound: Bools  # this and the rest as in `Lesson`
    max_trace: float
    seconds: float
    n_updates: int

    @classmethod
    def of(cls, lesson: Lesson, life: LifeSummary) -> VariantResult:
        """Return the result of a lesson, with the tests of its life."""
        numbers = [np.flatnonzero(life.test_action == test.policy.action) for test in life.tests]
        made, last = (
            [test._replace(predictions=each[mine]) for test, mine in zip(life.tests, numbers, strict=True)]
            for each in lesson[:2]
        )
        return cls(made, last, numbers, *lesson[2:])

    @property
    def nmsre(self) -> Floats:
        """Final NMSRE of each question, shape (n_demons,); nan where set aside or tested fewer than two times."""
        return np.where(self.sound, final_nmsre(self.outcomes, len(self.sound)), np.nan)

    @property
    def variance(self) -> Floats:
        """Variance of each question's returns, shape (n_demons,); NaN without a test."""
        found = np.full(len(self.sound), np.nan)
        for test in self.outcomes:
            found[test.policy.demons] = test.returns.var(axis=0)
        return found

    @property
    def n_diverged(self) -> int:
        """Number of questions set aside."""
        return int((~self.sound).sum())

    @property
    def ms_per_update(self) -> float:
        """Duration of an update in milliseconds, with tiles and tests."""
        return 1e3 * self.seconds / self.n_updates

    def curves(self, which: Bools | None = None) -> Floats:
        """Return the NMSRE after each test of a question, shape (n_tests, n_questions).

        Only the sound questions (of `which`), in no order, and as many tests as every policy had.
        """
        wanted = self.sound if which is None else self.sound & which
        curves = [test.nmsre()[:, wanted[test.policy.demons]] for test in self.outcomes]
        n = min(len(curve) for curve in curves)
        return np.concatenate([curve[:n] for curve in curves], axis=1)

    def score(self, which: Bools, *, last: bool = True) -> Floats:
        """Return mean squared error over variance on some of the life's tests, shape (n_demons,); nan without a test.

        Args:
            which: Which tests, shape (n_tests,).
            last: Score the predictions of the final weights instead of those made at the time.
        """
        found = np.full(len(self.sound), np.nan)
        for test, number in zip(self.last_outcomes if last else self.outcomes, self.test_number, strict=True):
            mine = which[number]
            if mine.any():
                found[test.policy.demons] = nmsre_at_rest(test.predictions[mine], test.returns[mine], test.variance())
        return np.where(self.sound, found, np.nan)


class LifeSummary(NamedTuple):
    """How a life's time was spent, and its tests."""

    n_steps: int  # steps of the life
    n_updates: int  # updates
    n_tests: int  # complete test excursions
    in_excursions: float  # share of the steps in excursions
    in_drives: float  # share of the steps in drives
    updates_by_action: Integers  # number of updates after each action
    test_action: Integers  # action followed in each test, shape (n_tests,)
    tests: list[Outcomes]  # each policy's excursions, with predictions of 0

    @classmethod
    def of(cls, path: Path, questions: Sequence[GVF]) -> LifeSummary:
        """Return the summary of a recorded life."""
        stream = read(path)
        lessons, phase = TrainingData(stream), stream.rows["phase"]
        return cls(
            n_steps=stream.n_steps,
            n_updates=int(lessons.n_learned[-1]),
            n_tests=len(lessons.test_row),
            in_excursions=float((phase == Phase.EXCURSION).sum() / stream.n_steps),
            in_drives=float((phase == Phase.CENTRE).sum() / stream.n_steps),
            updates_by_action=np.bincount(stream.rows["action"][lessons.before[lessons.does == LEARN]]),
            test_action=lessons.test_action,
            tests=outcomes(lessons, questions, np.zeros((len(lessons.test_row), 0))),
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

    @property
    def rules(self) -> list[Variant]:
        """The variants with the paper's step sizes."""
        return [variant for variant in self.lessons if variant[2:] == PAPER[2:]]

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


def lives_of(study: Study) -> list[LifeSpec]:
    """Return the lives, with which `reset` begins too."""
    return [LifeSpec(seed, STEPS[study.scale]) for seed in study.seeds]


def gather(study: Study) -> Data:
    """Simulate the lives and learn under every variant; cached results are reused."""
    seeds, first = study.seeds, study.seeds[0]
    lived = dict(zip(seeds, simulate_lives(study, lives_of(study)), strict=True))
    pairs = [(variant, seed) for variant in RULES for seed in seeds]
    pairs += [(variant, first) for variant in LARGER_STEPS + SMALLER_RATIOS]
    # "capped", which learns on the plain engine, takes the longest.
    costs = {("capped", "every-step"): 10.0, ("capped", "importance-weighted"): 4.0}
    jobs = [
        Job(f"{'-'.join(map(str, v))} on life {seed}", learn_variant, (study, lived[seed], v), costs.get(v[:2], 1.0))
        for v, seed in pairs
    ]
    found = study.in_parallel(jobs)
    [offline] = study.in_parallel([Job("off-line solutions", _learn_offline, (study, first, lived[first]))])

    interface = interface_of(study)
    questions = excursions(interface)
    lives = {seed: LifeSummary.of(path, questions) for seed, path in lived.items()}
    results: dict[Variant, dict[int, VariantResult]] = {}
    for (variant, seed), lesson in zip(pairs, found, strict=True):
        results.setdefault(variant, {})[seed] = VariantResult.of(lesson, lives[seed])
    return Data(interface, questions, results, lives, offline)


# ---- numbers --------------------------------------------------------------------------------------------------------


class Summary(NamedTuple):
    """Mean and median of the final NMSRE, and the share below 1, over the questions that were not set aside."""

    mean: float
    median: float
    below_1: float


def summary(lesson: VariantResult) -> Summary:
    """Return the summary of a result."""
    nmsre = lesson.nmsre
    return Summary(nan_mean(nmsre), nan_median(nmsre), float((nmsre[~np.isnan(nmsre)] < 1.0).mean()))


def nan_median(values: Floats) -> float:
    """Return the median of the non-NaN values, of any shape; NaN if there are none."""
    known = values[~np.isnan(values)]
    return float(np.median(known)) if known.size else float("nan")


def nan_mean(values: Floats) -> float:
    """Return the mean of the non-NaN values, of any shape; NaN if there are none."""
    known = values[~np.isnan(values)]
    return float(known.mean()) if known.size else float("nan")


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
    nmsre, names = lesson.nmsre, np.array([channel.name for channel in channels])
    sums = {name: float(np.nansum(nmsre[names == name])) for name in dict.fromkeys(names.tolist())}
    most = max(sums, key=sums.__getitem__)
    mine = names == most
    variance = float(np.median(lesson.variance[mine]))
    return Contribution(most, sums[most] / float(np.nansum(nmsre)), variance, nan_mean(nmsre[~mine]))


# ---- claims ----------------------------------------------------------------------------------------------------------


HALF, NEAR_HALF = 0.5, 0.1
SEVERAL = 0.01
CYCLE_MS = 100.0
MOST_EXPLAINED = 0.5
N_WORST = 10


def _together(values: Sequence[float]) -> str:
    return f" ({mean_ci(values)} over lives)" if len(values) > 1 else ""


CLAIMS = Claims("section 4")


@CLAIMS.add(
    "Each time step updates exactly the learners whose policy matches the action: a fifth of them",
    "exactly 159 of 795 learners",
    "on every learning step questions / actions learners have rho > 0",
)
def _per_step(data: Data) -> Finding:
    lives, n_actions = data.lives.values(), len(data.interface.actions)
    per_action = np.bincount(data.action, minlength=n_actions)
    means = [float(life.updates_by_action @ per_action / life.updates_by_action.sum()) for life in lives]
    expected = len(data.questions) / n_actions
    return Finding(
        f"{join(means, '.4g')} of {len(data.questions)} on average have rho > 0",
        [bool((per_action == expected).all()), *(abs(mean - expected) < 1e-9 for mean in means)],
        "" if expected == 159 else "another body has other numbers of sensors and actions",
    )


@CLAIMS.add(
    "Half of the time goes to test excursions",
    "261,681 samples, half of the time spent on test excursions",
    "the share of the excursions, and that of excursions and drives, lie within .4 to .6",
)
def _half_of_the_time(data: Data) -> Finding:
    lives = list(data.lives.values())
    tests = [life.in_excursions for life in lives]
    both = [life.in_excursions + life.in_drives for life in lives]
    return Finding(
        f"{join([life.n_steps for life in lives], ',')} samples; excursions {join(tests, '.1%')}, with the drives to "
        f"the centre {join(both, '.1%')}; {join([life.n_updates for life in lives], ',')} learning steps",
        [abs(float(np.mean(shares)) - HALF) <= NEAR_HALF for shares in (tests, both)],
        "five seconds of behaviour, five of excursion and two of driving would give 42 % and 58 %",
    )


@CLAIMS.add(
    "Hundreds of off-policy predictions are learned within the robot's cycle of 100 ms",
    "45 ms per cycle on a dual-core laptop",
    "an update takes less than 100 ms in every life",
)
def _in_real_time(data: Data) -> Finding:
    ms = [lesson.ms_per_update for lesson in data.main.values()]
    return Finding(
        f"{join(ms, '.2f')} ms per update of {len(data.questions)} questions, with tiles and tests",
        [value < CYCLE_MS for value in ms],
    )


@CLAIMS.add(
    "No question diverges with one set of parameters for all",
    "no divergence was observed for any question",
    "in every life no question is set aside: no weight passes 1000 r_max / (1 - gamma)",
    source="section 4, figure 3",
)
def _nothing_diverges(data: Data) -> Finding:
    aside = [lesson.n_diverged for lesson in data.main.values()]
    traces = join([lesson.max_trace for lesson in data.main.values()], ".3g")
    return Finding(
        f"{join(aside)} of {len(data.questions)} set aside; largest trace entries {traces}", [n == 0 for n in aside]
    )


@CLAIMS.add(
    "The average NMSRE over all questions finishes below 1",
    "the average of the NMSRE for all the questions finished below 1.0",
    "the mean of the final NMSRE is below 1 in every life",
    source="section 4, figure 3",
)
def _below_one(data: Data) -> Finding:
    found = [summary(lesson) for lesson in data.main.values()]
    means, holds = [s.mean for s in found], [s.mean < 1.0 for s in found]
    most = [(seed, largest_contributor(lesson, data.channels)) for seed, lesson in data.main.items()]
    cause = "; ".join(
        f"seed {seed}: {c.sensor} carries {c.share:.0%} of the mean (its returns' variance is {c.variance:.1e}); "
        f"without it the mean is {c.mean_without:.2f}"
        for seed, c in most
    )
    return Finding(
        f"means {join(means, '.2f')}{_together(means)}; {join([s.below_1 for s in found], '.1%')} of the questions end "
        "below 1",
        holds,
        "" if all(holds) else cause,
    )


@CLAIMS.add(
    "A substantial portion of the variance in the returns is explained",
    "a substantial portion of the variance in the returns is being explained by the predictions",
    "the median question leaves less than half of the variance unexplained in every life",
)
def _substantial(data: Data) -> Finding:
    medians = [summary(lesson).median for lesson in data.main.values()]
    return Finding(
        f"median NMSRE {join(medians, '.3f')}{_together(medians)}", [value < MOST_EXPLAINED for value in medians]
    )


@CLAIMS.add(
    "The mean NMSRE falls like a learning curve",
    "the return error has the typical exponential learning profile",
    "in every life the last fifth's median is below half of the first's, and the mean over lives falls from each "
    "fifth to the next",
    source="figure 3",
)
def _learning_curve(data: Data) -> Finding:
    parts = {seed: fifth_medians(lesson.curves().mean(axis=1)) for seed, lesson in data.main.items()}
    halves = [bool(part[-1] < 0.5 * part[0]) for part in parts.values()]
    falls = bool((np.diff(np.mean(list(parts.values()), axis=0)) <= 0).all())
    curves = "; ".join(f"seed {seed}: {join(part, '.2g')}" for seed, part in parts.items())
    return Finding(
        f"medians of the mean curve over fifths of the tests: {curves}",
        [*halves, falls],
        "" if all(halves) and falls else "a single excursion from a rare state lifts the mean for some ten more",
    )


@CLAIMS.add(
    "Several individual curves are not monotonic",
    "several individual curves exhibit non-monotonic shape",
    "at least 1 % of the questions in every life",
    source="figure 3",
)
def _not_monotonic(data: Data) -> Finding:
    shares = [not_monotonic(lesson) for lesson in data.main.values()]
    return Finding(
        f"{join(shares, '.1%')} of the questions end above 1.2 times their own lowest fifth",
        [share >= SEVERAL for share in shares],
    )


def _averages(data: Data, variants: Sequence[Variant]) -> str:
    """Return each variant's median and mean in the first life; "none" if every question was set aside."""
    found = [summary(data.first(v)) for v in variants]
    medians, means = ([s.median for s in found], [s.mean for s in found])
    return f"medians {_or_none(medians)}, means {_or_none(means)}"


def _or_none(values: Sequence[float]) -> str:
    return join(f"{value:.3g}" if np.isfinite(value) else "none" for value in values)


@CLAIMS.add(
    "Larger alpha makes questions diverge",
    "divergence was observed on earlier runs with larger values of alpha",
    "questions are set aside at each of the larger step sizes (all: reproduced; some of them: partly)",
)
def _larger_alpha(data: Data) -> Finding:
    aside = [data.first(v).n_diverged for v in LARGER_STEPS]
    return Finding(
        f"alpha x active features {join([v.step_size for v in LARGER_STEPS], 'g')}: {join(aside)} questions set aside; "
        f"{_averages(data, LARGER_STEPS)}",
        [n > 0 for n in aside],
    )


@CLAIMS.add(
    "Smaller alpha_w makes questions diverge",
    "divergence was observed on earlier runs with smaller values of alpha_w",
    "questions are set aside at each of the smaller ratios (all: reproduced; some of them: partly)",
)
def _smaller_alpha_w(data: Data) -> Finding:
    aside = [data.first(v).n_diverged for v in SMALLER_RATIOS]
    cause = (
        f"under the trace rule {PAPER.trace_rule!r} traces stay small (largest entry {data.first().max_trace:.3g}), "
        f"and w matters little: at the paper's alpha_w the same life ends at {_averages(data, [PAPER])}"
    )
    return Finding(
        f"alpha_w / alpha {join([v.secondary_ratio for v in SMALLER_RATIOS], 'g')}: {join(aside)} questions set aside; "
        f"{_averages(data, SMALLER_RATIOS)}",
        [n > 0 for n in aside],
        "" if all(aside) else cause,
    )


@CLAIMS.add(
    "The pseudo-code's own trace does not diverge either",
    "no divergence was observed; the pseudo-code does not bound its trace",
    "in every life no question is set aside under the trace rule plain",
    source="section 4, pseudo-code",
)
def _plain_trace(data: Data) -> Finding:
    lessons = list(data.lessons[PAPER._replace(trace_rule="plain")].values())
    aside = [lesson.n_diverged for lesson in lessons]
    gammas = sorted({float(gamma) for lesson in lessons for gamma in data.gamma[~lesson.sound]})
    return Finding(
        f"trace rule plain: {join(aside)} of {len(data.questions)} set aside"
        f"{' at gamma ' if gammas else ''}{join(gammas, 'g')}; largest trace entries "
        f"{join([lesson.max_trace for lesson in lessons], '.3g')}",
        [n == 0 for n in aside],
        ""
        if not any(aside)
        else "rho is 10 where an action begins and 1.67 where it is repeated, so at gamma .8 the second moment of the "
        "trace is multiplied by .864 per step, and its third and fourth by 1.04 and 1.24: they are infinite",
    )


# ---- figures --------------------------------------------------------------------------------------------------------


_CEILING = 1e3  # upper limit of logarithmic axes
_AT_1: Any = {"color": "0.35", "linewidth": 0.9, "linestyle": ":"}


def pictures(data: Data, folder: Path) -> list[Figure]:
    """Draw all pictures into a folder and return their entries."""
    return [
        _questions(data, folder / "nmsre.png"),
        _draw_rules(data, folder / "rules.png"),
        _draw_steps(data, folder / "steps.png"),
        _draw_offline(data, folder / "offline.png"),
    ]


def _questions(data: Data, path: Path) -> Figure:
    seed, lesson = next(iter(data.main.items()))
    nmsre_picture([Curve.of(outcomes) for outcomes in lesson.outcomes], lesson.sound, path)
    return Figure(
        path.name,
        f"The paper's figure 3: the NMSRE of each of {len(data.questions)} questions over the tests of its policy, in "
        f"the life of seed {seed}; bold: their mean; dashed: their median. The axis is logarithmic.",
    )


def _draw_rules(data: Data, path: Path) -> Figure:
    gammas = np.unique(data.gamma)
    canvas, panels = new_canvas(11.0, 3.9, len(gammas), sharey=True)
    for axes, gamma in zip(panels, gammas, strict=True):
        mine = data.gamma == gamma
        for colour, variant in zip(COLOURS, [v for v in data.rules if v.w_rule == PAPER.w_rule], strict=False):
            lesson = data.first(variant)
            curves, n_diverged = lesson.curves(mine), int((~lesson.sound & mine).sum())
            label = f"{variant.trace_rule}, {n_diverged} set aside" if n_diverged else variant.trace_rule
            x = np.arange(1, len(curves) + 1)
            axes.plot(x, curves.mean(axis=1), color=colour, linewidth=1.5, label=label)
            axes.plot(x, np.median(curves, axis=1), color=colour, linewidth=1.1, linestyle="--")
        axes.axhline(1.0, **_AT_1)
        legend = {"loc": "upper right"}
        style_axes(axes, f"gamma {gamma:g}", legend=legend, yscale="log", xlabel="test excursions of the question")
    low, high = panels[0].get_ylim()
    panels[0].set(ylim=(max(low, 1e-3), min(high, _CEILING)), ylabel="NMSRE")
    return save(
        canvas,
        path,
        f"The three trace rules on the first life, w rule {PAPER.w_rule}: mean (solid) and median (dashed) over the "
        f"questions of each gamma that were not set aside. The axis ends at {_CEILING:g}.",
    )


def _draw_steps(data: Data, path: Path) -> Figure:
    canvas, (left, right) = new_canvas(8.4, 3.5, 2, sharey=True)
    steps, ratios = [PAPER, *LARGER_STEPS], [PAPER, *SMALLER_RATIOS]
    _sweep(left, data, steps, [f"{v.step_size:g}" for v in steps])
    style_axes(left, xlabel="alpha x active features", ylabel="final NMSRE")
    _sweep(right, data, ratios, [f"{v.secondary_ratio:g}" for v in ratios])
    style_axes(right, xlabel="alpha_w / alpha", legend=True)
    return save(
        canvas,
        path,
        "Larger alpha (left) and smaller alpha_w (right) on the first life, from the paper's values on; above each "
        "point the number of questions set aside. Means and medians are of the others.",
    )


def _sweep(axes: Axes, data: Data, variants: Sequence[Variant], names: Sequence[str]) -> None:
    found = [summary(data.first(v)) for v in variants]
    x = np.arange(len(found))
    axes.plot(x, [s.mean for s in found], color=COLOURS[0], marker="o", label="mean")
    axes.plot(x, [s.median for s in found], color=COLOURS[1], marker="o", linestyle="--", label="median")
    for k, (s, variant) in enumerate(zip(found, variants, strict=True)):
        n, at = f"{data.first(variant).n_diverged}", (k, s.mean)
        axes.annotate(n, at, textcoords="offset points", xytext=(0, 7), ha="center", fontsize=8)
    axes.axhline(1.0, **_AT_1)
    axes.set_yscale("log")
    axes.set_xticks(x, names)
    axes.margins(x=0.12, y=0.18)


def _draw_offline(data: Data, path: Path) -> Figure:
    demons = data.first().score(data.offline.is_held_out)
    canvas, panels = new_canvas(9.0, 4.4, 2, sharey=True)
    predictors = (("LSTD(lambda)", data.offline.lstd), ("ridge regression", data.offline.ridge))
    for axes, (name, scores) in zip(panels, predictors, strict=True):
        _scatter(axes, data, scores, demons)
        axes.set_xlabel(f"{name}, off-line")
    panels[0].set_ylabel("demon, last weights")
    panels[1].legend(frameon=False, fontsize=8, loc="lower right")
    canvas.suptitle("mean squared error over variance, held-out excursions", fontsize=10)
    return save(
        canvas,
        path,
        "Each question's demon against the best off-line linear predictors with the same features, on the same "
        "held-out excursions of the first life. Above the diagonal the off-line predictor is better; dotted: the mean "
        "return.",
    )


def _scatter(axes: Axes, data: Data, x: Floats, y: Floats) -> None:
    shown = np.isfinite(x) & np.isfinite(y) & (x > 0) & (y > 0)
    low, high = float(min(x[shown].min(), y[shown].min())), float(max(x[shown].max(), y[shown].max()))
    for colour, gamma in zip(COLOURS, np.unique(data.gamma), strict=False):
        mine = shown & (data.gamma == gamma)
        axes.scatter(x[mine], y[mine], s=8, color=colour, alpha=0.55, linewidths=0, label=f"gamma {gamma:g}")
    limits = (low / 1.3, min(high * 1.3, _CEILING))
    axes.plot(limits, limits, color="0.4", linewidth=0.9)
    axes.axhline(1.0, **_AT_1)
    axes.axvline(1.0, **_AT_1)
    style_axes(axes, xscale="log", yscale="log", xlim=limits, ylim=limits, aspect="equal")


# ---- tables ---------------------------------------------------------------------------------------------------------


def tables(data: Data) -> list[Table]:
    """Return the experiment's tables, in the order in which they are read."""
    gammas = [f"{gamma:g}" for gamma in data.gamma]
    return [
        _by_seed(data),
        _by(data, "sensor group", [channel.group for channel in data.channels]),
        _by(data, "policy", [data.interface.actions[a] for a in data.action]),
        _worst(data),
        _rules(data),
        _steps(data),
        _offline(data, "gamma", gammas),
        _offline(data, "sensor group", [channel.group for channel in data.channels]),
    ]


def _by_seed(data: Data) -> Table:
    rows: list[dict[str, Cell]] = []
    for seed, lesson in data.main.items():
        found, most = summary(lesson), largest_contributor(lesson, data.channels)
        rows.append(
            {
                "life": f"seed {seed}",
                "median": found.median,
                "mean": found.mean,
                "below 1": f"{found.below_1:.1%}",
                "set aside": lesson.n_diverged,
                "carried most by": f"{most.sensor}: {most.share:.0%}",
                "mean without it": most.mean_without,
                "medians of fifths": join(fifth_medians(lesson.curves().mean(axis=1)), ".2g"),
            }
        )
    note = "The last column: the mean curve's median in each fifth of the tests."
    return Table.of("Final NMSRE of each life", rows, note)


def _by(data: Data, what: str, label: Sequence[str]) -> Table:
    """Return the final NMSRE by a label and gamma: median and mean over the questions, means over the seeds."""
    rows: list[dict[str, Cell]] = []
    for name in dict.fromkeys(label):
        row: dict[str, Cell] = {what: name, "questions": label.count(name)}
        for gamma in np.unique(data.gamma):
            mine = (np.array(label) == name) & (data.gamma == gamma)
            nmsre = [lesson.nmsre[mine] for lesson in data.main.values()]
            row[f"median, gamma {gamma:g}"] = str(mean_ci([nan_median(values) for values in nmsre]))
            row[f"mean, gamma {gamma:g}"] = float(np.mean([nan_mean(values) for values in nmsre]))
        rows.append(row)
    return Table.of(f"Final NMSRE by {what} and gamma", rows)


def _worst(data: Data) -> Table:
    nmsre = np.array([lesson.nmsre for lesson in data.main.values()])
    variance = np.array([lesson.variance for lesson in data.main.values()]).mean(axis=0)
    worst = np.argsort(-np.nan_to_num(nmsre.mean(axis=0), nan=-1.0))[:N_WORST]
    rows: list[dict[str, Cell]] = [
        {
            "question": data.questions[i].name,
            **{f"seed {seed}": float(value) for seed, value in zip(data.main, nmsre[:, i], strict=True)},
            "variance of its returns": float(variance[i]),
        }
        for i in worst
    ]
    return Table.of("The worst questions: final NMSRE", rows)


def _rules(data: Data) -> Table:
    rows = [{"trace rule": v.trace_rule, "w rule": v.w_rule, **_compared(data, v)} for v in data.rules]
    return Table.of("Trace rules and w rules", rows, _aside_note(data))


def _steps(data: Data) -> Table:
    rows = [
        {"alpha x active": f"{v.step_size:g}", "alpha_w / alpha": f"{v.secondary_ratio:g}", **_compared(data, v)}
        for v in (PAPER, *LARGER_STEPS, *SMALLER_RATIOS)
    ]
    note = "All under the trace rule and the w rule of the default. " + _aside_note(data)
    return Table.of("Larger alpha, smaller alpha_w", rows, note)


def _compared(data: Data, variant: Variant) -> dict[str, Cell]:
    lessons = list(data.lessons[variant].values())
    found = [summary(lesson) for lesson in lessons]
    below_1 = float(np.mean([s.below_1 for s in found]))
    return {
        "lives": len(lessons),
        "median": str(mean_ci([s.median for s in found])),
        "mean": str(mean_ci([s.mean for s in found])),
        "below 1": f"{below_1:.1%}" if np.isfinite(below_1) else "-",
        "set aside (by gamma)": join(_aside(data, lesson) for lesson in lessons),
        "max trace": max(lesson.max_trace for lesson in lessons),
        "ms per update": float(np.mean([lesson.ms_per_update for lesson in lessons])),
    }


def _aside(data: Data, lesson: VariantResult) -> str:
    """Return how many questions were set aside in a life, and at which gammas."""
    gammas = data.gamma[~lesson.sound]
    by_gamma = "; ".join(f"{gamma:g}: {(gammas == gamma).sum()}" for gamma in np.unique(gammas))
    return f"{len(gammas)} ({by_gamma})" if len(gammas) else "0"


def _aside_note(data: Data) -> str:
    return (
        f"Lives in the order of the seeds {join(data.main)}; mean and median are of the questions that were not set "
        "aside. Times belong to the machine and its neighbours."
    )


def _offline(data: Data, what: str, label: Sequence[str]) -> Table:
    """Compare the demons with the best off-line predictors on the same held-out excursions."""
    held, first = data.offline.is_held_out, data.first()
    late = held & (np.arange(len(held)) >= len(held) // 2)
    scores = {
        "demons, as lived": first.score(late, last=False),
        "demons, last weights": first.score(held),
        "LSTD(lambda)": data.offline.lstd,
        "ridge regression": data.offline.ridge,
        "mean return": data.offline.mean,
    }
    rows: list[dict[str, Cell]] = []
    for name in [*dict.fromkeys(label), "all"]:
        mine = np.array([name in (own, "all") for own in label])
        averages = {who: f"{nan_median(s[mine]):.3g} / {nan_mean(s[mine]):.3g}" for who, s in scores.items()}
        rows.append({what: name, **averages})
    note = (
        "Median / mean over the questions of mean squared error over variance, on the "
        f"{int(held.sum())} held-out excursions of the first life (30 %). "
        f"As lived: the predictions made then, on the {int(late.sum())} of them in the second half. Last "
        "weights: what the weights at the end of the life predict; no excursion is learned from. LSTD: the demons' own "
        "equations, solved on the whole learning stream. Ridge regression is shown the returns of the other excursions."
    )
    return Table.of(f"How far from the best linear predictor, by {what}", rows, note)


def settings(study: Study, data: Data) -> dict[str, Cell]:
    """Return everything needed to repeat the experiment."""
    return {
        "steps of each life": STEPS[study.scale],
        "questions": len(data.questions),
        "alpha": f"{PAPER.step_size:g} / {data.interface.coder.n_active}",
        "alpha_w": f"{PAPER.secondary_ratio:g} alpha",
        "lambda": 0.9,
        "trace rule, w rule": f"{PAPER.trace_rule}, {PAPER.w_rule}",
        "seeds": study.seed_list,
        "excursions tested, by seed": join(life.n_tests for life in data.lives.values()),
    }


REMARKS = [
    "A life does not depend on what is learned from it, so every rule learns from the same lives.",
    "NMSRE is the trace of squared errors (10 excursions) over the variance of all returns of the question; "
    "questions set aside, because their weights passed every bound that an answer can need, are left out of means "
    "and medians and counted apart.",
    "A return has 50 terms, all under the target policy; the paper's sum has 51, its excursions have 50 steps.",
]
TITLE = "795 predictions about five policies, tested by excursions"
EXPERIMENT = Experiment("excursions", TITLE, gather, CLAIMS, pictures, tables, settings, REMARKS, lives_of)
