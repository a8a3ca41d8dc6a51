"""Experiment `excursions`: lives, rules and step sizes to learn them with, and their scores."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from horde_agent.gvf import GVF
from horde_agent.horde import Horde, LearnerConfig
from horde_agent.interface import Interface
from horde_agent.learning.rules import TRACE_RULES, W_RULES
from horde_agent.life.observers import sound_demons
from horde_agent.measures.nmsre import Outcomes, final_nmsre, nmsre_at_rest
from horde_agent.measures.returns import policies_under_test
from horde_agent.questions import excursions
from horde_agent.record import Phase, read
from horde_agent.reproduce.excursions.offline import Offline, offline
from horde_agent.reproduce.lessons import OnProgress, TrainingData, learn, outcomes, predict_at_tests
from horde_agent.reproduce.lives import interface_of, quiet, record_lives
from horde_agent.reproduce.result import mean_ci
from horde_agent.reproduce.study import Job, Study
from horde_agent.runs.jobs.warm import warm_up
from horde_agent.types import Bools, Floats, Integers


class Variant(NamedTuple):
    """One way to learn; the defaults are the paper's parameters and this program's default rules.

    Attributes:
        trace_rule, w_rule, step_size, secondary_ratio: As in `LearnerConfig`.
    """

    trace_rule: str = "clipped"
    w_rule: str = "every-step"
    step_size: float = 0.1
    secondary_ratio: float = 0.001

    @property
    def name(self) -> str:
        """What its files are called."""
        return f"{self.trace_rule}-{self.w_rule}-{self.step_size:g}-{self.secondary_ratio:g}"

    def config(self) -> LearnerConfig:
        """Return the learner's settings."""
        return LearnerConfig(**self._asdict(), vector_mspbe=False)


class VariantResult(NamedTuple):
    """Result of one variant on one life.

    Attributes:
        outcomes: Each policy's excursions, with the predictions made before them.
        last_outcomes: The same with what the weights at the end of the life predict there.
        test_number: Of each excursion, among all of the life, by policy as in `outcomes`.
        sound: Which demons did not diverge, shape (n_demons,).
        max_trace: Largest |e|.
        seconds, n_updates: What learning took, and how many updates it was.
        channel, gamma, action: Of each question, shape (n_demons,).
    """

    outcomes: list[Outcomes]
    last_outcomes: list[Outcomes]
    test_number: list[Integers]
    sound: Bools
    max_trace: float
    seconds: float
    n_updates: int
    channel: Integers
    gamma: Floats
    action: Integers

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

    def curves(self, *, share: Sequence[bool] | None = None) -> Floats:
        """Return the NMSRE after each test of a question, shape (n_tests, n_questions).

        Only the sound questions, in no order, and as many tests as every policy had.

        Args:
            share: Which of all demons to take; all that are sound when None.
        """
        wanted = self.sound if share is None else self.sound & np.asarray(share)
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
            if not mine.any():
                continue
            found[test.policy.demons] = nmsre_at_rest(test.predictions[mine], test.returns[mine], test.variance())
        return np.where(self.sound, found, np.nan)


def learn_variant(on_progress: OnProgress, study: Study, seed: int, life: Path, variant: Variant) -> str:
    """Learn from a life under a variant and return the path of the result."""

    def make(path: Path) -> None:
        interface = interface_of(study)
        coder = interface.coder
        asked = excursions(interface)
        horde = Horde(
            asked, n_features=coder.n_features, n_active=coder.n_active, config=variant.config(), mode="deferred"
        )
        warm_up(horde, interface)
        lessons = TrainingData(read(life))
        learned = learn(lessons, horde, interface, on_progress=on_progress)
        last = predict_at_tests(lessons, horde, interface)
        facts = {
            "sound": sound_demons(horde),
            "max_trace": horde.max_trace,
            "seconds": learned.seconds,
            "n_updates": learned.n_updates,
            "test_action": lessons.tests.action,
        }
        _write(path, learned.outcomes, outcomes(lessons, asked, last), facts)

    return str(study.cached(f"lesson-{variant.name}-{seed}.npz", make, seed=seed, life=life.name, **variant._asdict()))


class Task(NamedTuple):
    """One life and the variant to learn it with."""

    seed: int
    life: Path
    variant: Variant


def learn_all(study: Study, tasks: Sequence[Task]) -> list[str]:
    """Learn from lives under variants in worker processes; return the paths of the results in order."""
    found: list[str] = study.in_parallel([_job(study, task) for task in tasks])
    return found


def _job(study: Study, task: Task) -> Job:
    """Return a task as a job; "capped", which learns on the plain engine, takes the longest."""
    rule = (task.variant.trace_rule, task.variant.w_rule)
    cost = {("capped", "every-step"): 10.0, ("capped", "importance-weighted"): 4.0}.get(rule, 1.0)
    return Job(f"{task.variant.name} on life {task.seed}", learn_variant, (quiet(study), *task), cost)


def _write(path: Path, made: list[Outcomes], last: list[Outcomes], facts: dict[str, Any]) -> None:
    """Write a lesson's arrays; `path` is kept as it is, without an ending added."""
    arrays: dict[str, Any] = dict(facts)
    for before, after in zip(made, last, strict=True):
        key = f"action{before.policy.action}"
        arrays[f"{key}_step"], arrays[f"{key}_returns"] = before.step, before.returns
        arrays[f"{key}_predictions"], arrays[f"{key}_last"] = before.predictions, after.predictions
    with path.open("wb") as file:
        np.savez(file, **arrays)


def read_variant_result(path: str | Path, questions: Sequence[GVF]) -> VariantResult:
    """Read what `learn_variant` wrote.

    Args:
        path: The file.
        questions: The questions learned.
    """
    with np.load(path) as file:
        arrays = dict(file)
    made, last, numbers = [], [], []
    channel, gamma, action = np.zeros(len(questions), np.int64), np.zeros(len(questions)), np.zeros(len(questions), int)
    for policy in policies_under_test(questions):
        channel[policy.demons], gamma[policy.demons] = policy.channel, policy.gamma
        action[policy.demons] = policy.action
        key = f"action{policy.action}"
        if f"{key}_step" in arrays:
            step, returns = arrays[f"{key}_step"], arrays[f"{key}_returns"]
            made.append(Outcomes(policy, step, arrays[f"{key}_predictions"], returns))
            last.append(Outcomes(policy, step, arrays[f"{key}_last"], returns))
            numbers.append(np.flatnonzero(arrays["test_action"] == policy.action))
    return VariantResult(
        made,
        last,
        numbers,
        arrays["sound"],
        float(arrays["max_trace"]),
        float(arrays["seconds"]),
        int(arrays["n_updates"]),
        channel,
        gamma,
        action,
    )


N_PARTS = 5
"""A learning curve is looked at in fifths: a single test in a rare state lifts it for some ten tests."""


class Time(NamedTuple):
    """How a life's time was spent.

    Attributes:
        n_steps, n_updates, n_tests: Steps of the life, updates, complete test excursions.
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
        interface, questions: Interface of the robot; the questions learned.
        lessons: By variant, then seed.
        times: By seed.
        offline: The best off-line predictors of the first seed's life.
        paper: The variant with the paper's parameters and this program's default rules.
        rules: Its six pairs of rules.
        larger_steps, smaller_ratios: Variants with a larger alpha, or a smaller alpha_w.
    """

    interface: Interface
    questions: Sequence[GVF]
    lessons: dict[Variant, dict[int, VariantResult]]
    times: dict[int, Time]
    offline: Offline
    paper: Variant
    rules: Sequence[Variant]
    larger_steps: Sequence[Variant]
    smaller_ratios: Sequence[Variant]

    @property
    def main(self) -> dict[int, VariantResult]:
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
    """Summary of one result.

    Attributes:
        mean, median, below_1: Of the final NMSRE, over the questions that were not set aside.
        n_diverged: Questions set aside.
        worst: Names of the three worst.
    """

    mean: float
    median: float
    below_1: float
    n_diverged: int
    worst: tuple[str, ...]


def summary(lesson: VariantResult, questions: Sequence[GVF]) -> Summary:
    """Return the summary of a result."""
    nmsre = lesson.nmsre
    order = np.argsort(-np.nan_to_num(nmsre, nan=-1.0))[:3]
    return Summary(
        nan_mean(nmsre),
        nan_median(nmsre),
        float((nmsre[~np.isnan(nmsre)] < 1.0).mean()),
        int((~lesson.sound).sum()),
        tuple(questions[i].name for i in order),
    )


def over_lives(values: Sequence[float]) -> str:
    """Return a mean over lives, with its interval if there are several; a dash if one is NaN."""
    return str(mean_ci(values))


def nan_median(values: Floats) -> float:
    """Return the median of the non-NaN values, of any shape; NaN if there are none."""
    known = values[~np.isnan(values)]
    return float(np.median(known)) if known.size else float("nan")


def nan_mean(values: Floats) -> float:
    """Return the mean of the non-NaN values, of any shape; NaN if there are none."""
    known = values[~np.isnan(values)]
    return float(known.mean()) if known.size else float("nan")


def fifth_medians(curve: Floats) -> Floats:
    """Return the median of each fifth of a learning curve, shape (5,)."""
    return np.array([np.median(part) for part in np.array_split(curve, N_PARTS)])


class Contribution(NamedTuple):
    """Share of a mean that one sensor's questions contribute.

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


def largest_contributor(lesson: VariantResult, sensor: Sequence[str]) -> Contribution:
    """Return the sensor with the largest share of the mean final NMSRE, and the mean without it."""
    nmsre, names = lesson.nmsre, np.array(sensor)
    sums = {name: float(np.nansum(nmsre[names == name])) for name in dict.fromkeys(sensor)}
    most = max(sums, key=sums.__getitem__)
    mine = names == most
    variance = float(np.median(lesson.variance[mine]))
    return Contribution(most, sums[most] / float(np.nansum(nmsre)), variance, nan_mean(nmsre[~mine]))


def not_monotonic(lesson: VariantResult) -> float:
    """Return the share of questions with a curve that, in medians of fifths, ends above 1.2 x its lowest fifth."""
    parts = np.array([fifth_medians(curve) for curve in lesson.curves().T])
    return float((parts[:, -1] > 1.2 * parts[:, :-1].min(axis=1)).mean())


STEPS = {"paper": 261_681, "quick": 6_000}


PAPER = Variant()


RULES = [Variant(trace_rule, w_rule) for trace_rule in TRACE_RULES for w_rule in W_RULES]


LARGER_STEPS = [Variant(step_size=size) for size in (0.2, 0.5, 1.0)]


SMALLER_RATIOS = [Variant(secondary_ratio=ratio) for ratio in (1e-4, 0.0)]


def gather(study: Study) -> Data:
    """Simulate the lives and learn under every variant; cached results are reused."""
    seeds, first = study.seeds, study.seeds[0]
    lived = record_lives(study, seeds, STEPS[study.scale])
    pairs = [(variant, seed) for variant in RULES for seed in seeds]
    pairs += [(v, first) for v in LARGER_STEPS + SMALLER_RATIOS]
    paths = learn_all(study, [Task(seed, lived[seed], variant) for variant, seed in pairs])
    [scores] = study.in_parallel([Job("off-line solutions", _offline, (quiet(study), first, lived[first]))])

    interface = interface_of(study)
    questions = excursions(interface)
    data = Data(interface, questions, {}, {}, read_offline(scores), PAPER, RULES, LARGER_STEPS, SMALLER_RATIOS)
    for (variant, seed), path in zip(pairs, paths, strict=True):
        data.lessons.setdefault(variant, {})[seed] = read_variant_result(path, questions)
    for seed, life in lived.items():
        data.times[seed] = time_of(life)
    return data


def time_of(path: Path) -> Time:
    """Return how a life's time was spent."""
    stream = read(path)
    lessons, phase = TrainingData(stream), stream.rows["phase"]
    learned = lessons.before[lessons.does == 2]
    return Time(
        n_steps=stream.n_steps,
        n_updates=int(lessons.n_learned[-1]),
        n_tests=len(lessons.tests.row),
        in_excursions=float((phase == Phase.EXCURSION).sum() / stream.n_steps),
        in_drives=float((phase == Phase.CENTRE).sum() / stream.n_steps),
        updates_by_action=np.bincount(stream.rows["action"][learned]),
    )


def _offline(on_progress: OnProgress, study: Study, seed: int, life: Path) -> str:
    """Find the best off-line predictors of one life and return the path of their scores."""

    def make(path: Path) -> None:
        interface = interface_of(study)
        rng = np.random.default_rng([seed, 2])
        found = offline(TrainingData(read(life)), excursions(interface), interface, rng, on_progress)
        with path.open("wb") as file:
            np.savez(file, **found._asdict())

    return str(study.cached(f"offline-{seed}.npz", make, seed=seed, life=life.name))


def read_offline(path: str) -> Offline:
    """Read the cached scores of the off-line predictors."""
    with np.load(path) as file:
        return Offline(**{name: file[name] for name in Offline._fields})
