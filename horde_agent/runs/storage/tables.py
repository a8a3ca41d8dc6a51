"""Write the tables and the summary of a run."""

from __future__ import annotations

import logging
import math
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from horde_agent.features import features_of
from horde_agent.gvf import GVF, Prediction
from horde_agent.interface import Interface
from horde_agent.learner import Learner
from horde_agent.life.counts import Durations
from horde_agent.life.learner import StreamLearner, predict_along
from horde_agent.life.observers import MspbeWatch, Sample, mean_estimate, sample, sound_demons
from horde_agent.policies import Behaviour
from horde_agent.processes import own_version
from horde_agent.questions import question_columns, variance_questions
from horde_agent.record import A_DAY, Phase, Stream, read
from horde_agent.runs import log_nexting
from horde_agent.runs.exit_reason import ExitReason
from horde_agent.runs.storage import frozen
from horde_agent.runs.storage.files import write_csv, write_json
from horde_agent.runs.storage.folder import RunFolder
from horde_agent.runs.storage.question_table import write_questions
from horde_agent.runs.storage.run import Run
from horde_agent.scoring.nmsre import (
    are_nearly_constant,
    deviation_of,
    nmsre_text,
    quantisation_steps,
)
from horde_agent.scoring.return_errors import ReturnErrors
from horde_agent.scoring.returns import (
    NEGLIGIBLE_SHARE,
    NO_CHANNEL,
    horizon_needed,
    n_terms_needed,
    returns_along,
)
from horde_agent.scoring.surprise import SurpriseEvent, surprise_table
from horde_agent.scoring.two_pass_nmsre import PolicyScores, final_nmsre, nmsre_along, policy_scores
from horde_agent.types import Bools, Floats, Integers

TRACE_COLUMNS = ("question", "channel", "panel", "t_s", "prediction", "actual", "deviation")
CURVE_COLUMNS = (
    "excursion",
    "step",
    "robot_time_s",
    "policy",
    "mean_nmsre",
    "mean_nmsre_online",
    "median_nmsre",
)

_BESIDE_ALARM = 50  # steps that are shown before and after an alarm's rows
_MOST_BEFORE_ALARM = 400

NOT_RECORDED: dict[str, Any] = dict.fromkeys(
    ("deadlines_missed", "crc_errors", "link_losses", "s_without_link")
)
"""Values of the summary that a recording does not contain."""

_log = logging.getLogger(__name__)


class SessionOutcome(NamedTuple):
    """Facts of a session that has ended, for the tables, besides its student."""

    steps: int  # the last step
    end: ExitReason  # what ended the stream
    robot: Mapping[str, Any]  # the summary's gaps and faults of the robot
    details: Mapping[str, Any] = {}  # further facts for details.json
    # The exception to raise after the tables were written; None without one
    fault: BaseException | None = None
    samples: Sequence[Sample] = ()  # of the MSPBE
    cycle_s: Durations = Durations()  # durations of the robot's cycles
    lived_before_s: float = 0.0  # duration of the run in earlier processes, in seconds
    has_tests: bool = False  # whether the environment supports test excursions
    score: log_nexting.Holdout | None = None  # on held-out rows without actions; None for others
    passes: float = 0.0  # number of passes over the other part
    # Step up to which the rows before them were learned from, counted on from pass to pass
    learned_up_to: int | None = None


def write_tables(
    run: Run,
    student: StreamLearner,
    outcome: SessionOutcome,
    wall_s: float | None,
    only: Collection[Path] | None = None,
) -> dict[str, Any]:
    """Write the tables of a run and return its summary.

    Args:
        run: The run.
        student: Where it learned.
        outcome: What else there is to say.
        wall_s: Duration in seconds; None leaves all durations out.
        only: The tables to write; all when None.
    """
    student.catch_up()
    folder = run.folder
    folder.seal(tables=False)
    if outcome.score is None:
        results = _tests(run, student, outcome)
    else:
        results = _held_out(run, outcome.score, outcome.passes)
    last_step = outcome.steps
    if outcome.learned_up_to is not None:
        last_step = outcome.learned_up_to
    samples = [*outcome.samples, sample(last_step, student.learning_steps, run.horde)]
    details = _details(run, outcome.end) | results.details | dict(outcome.details)
    details["notes"] = [*results.details.get("notes", []), *outcome.details.get("notes", [])]
    summary = _summary(run, student, outcome, results, wall_s)
    tables: dict[Path, Callable[[Path], None]] = {
        **results.tables,
        folder.mspbe_curve: lambda path: write_csv(path, Sample._fields, samples),
        folder.details: lambda path: write_json(path, details),
        **_surprise_table(run, student),
        folder.summary: lambda path: write_json(path, summary),
    }
    for path, write in tables.items():
        if only is None or path in only:
            write(path)
    folder.seal()
    return summary


def _surprise_table(run: Run, student: StreamLearner) -> dict[Path, Callable[[Path], None]]:
    """Return what writes the evidence over time and the alarms; nothing if no surprise is watched for."""
    surprise = student.surprise
    if surprise is None:
        return {}
    table = surprise_table(surprise)
    alarms = [event for event in surprise.events if event.name == "surprise"]
    if alarms:
        table["at_the_last_alarm"] = _traces_of_alarm(run, alarms[-1])
    return {run.folder.surprise: lambda path: write_json(path, table)}


def _traces_of_alarm(run: Run, alarm: SurpriseEvent) -> list[dict[str, Any]]:
    """Return the readings and final predictions around an alarm, of its questions; none if its rows are gone."""
    stream = _newest_rows(run.folder)
    if stream is None:
        return []
    steps = stream.rows["step"]
    first = max(alarm.began_first, alarm.step - _MOST_BEFORE_ALARM) - _BESIDE_ALARM
    span = slice(*np.searchsorted(steps, [first, alarm.step + _BESIDE_ALARM + 1]).tolist())
    shown = stream[span]
    if not len(shown):
        return []
    predictions = predict_along(shown, run.horde, run.interface)
    names = run.interface.names
    columns = question_columns(run.horde.questions, run.interface)
    demons = {question.name: demon for demon, question in enumerate(run.horde.questions)}
    traces = []
    for question in alarm.questions:
        demon = demons.get(question)
        if demon is None or columns[demon].channel not in names or not columns[demon].gamma < 1.0:
            continue
        # Of the mean reading to come: in the reading's own unit
        share = 1.0 - columns[demon].gamma
        readings = shown.rows["observation"][:, names.index(columns[demon].channel)]
        traces.append(
            {
                "question": question,
                "share": share,
                "step": shown.rows["step"].tolist(),
                "reading": _or_none(readings.astype(np.float64)),
                "prediction": _or_none(share * predictions[:, demon]),
            }
        )
    return traces


def _or_none(numbers: Floats) -> list[float | None]:
    """Return numbers, shape (n,), with six digits, and None for those that are not finite."""
    rounded: list[float | None] = []
    for number in numbers.tolist():
        if math.isfinite(number):
            rounded.append(float(f"{number:.6g}"))
        else:
            rounded.append(None)
    return rounded


class QuestionScores(NamedTuple):
    """Scores of the questions, arrays of shape (n_demons,)."""

    nmsre: Floats
    nmsre_of_persistence: Floats
    variance: Floats
    n_tests: Integers


class ExcursionFacts(NamedTuple):
    """How the questions of a life were tested; arrays of shape (n_demons,) but for `interrupted`."""

    n_tests: Integers  # complete tests
    share: Floats  # mean share of the returns beyond the horizon, NaN without a test
    horizon: int  # terms of a test
    interrupted: Integers  # as in `ReturnErrors`
    has_excursions: bool  # whether the environment supports test excursions
    n_repeated: Integers  # tests left out because of stale frames


class _Results(NamedTuple):
    """Scores of a life or a log, and what else differs between them in the tables."""

    scores: QuestionScores
    steps: Floats  # quantisation steps of the questions' channels, shape (n_demons,)
    details: dict[str, Any]
    n_excursions: int | None
    tables: dict[Path, Callable[[Path], None]]  # what writes each table; durations are in others


def _tests(run: Run, student: StreamLearner, outcome: SessionOutcome) -> _Results:
    horde = run.horde
    interface = run.interface
    folder = run.folder
    errors = student.errors
    tested = policy_scores(errors.table)
    nmsre = final_nmsre(tested, horde.n_demons)
    persistence = np.full(horde.n_demons, np.nan)
    variance = np.full(horde.n_demons, np.nan)
    share = np.full(horde.n_demons, np.nan)
    for course in tested:
        demons = course.policy.demons
        persistence[demons] = course.last_persistence_nmsre()
        variance[demons] = course.variance
        share[demons] = np.where(course.n_tests > 0, course.moments.share, np.nan)
    tests = ExcursionFacts(
        n_tests=errors.n_tests,
        share=share,
        horizon=student.horizon,
        interrupted=errors.interrupted,
        has_excursions=outcome.has_tests,
        n_repeated=errors.n_repeated,
    )
    steps = quantisation_steps(errors.policies, horde.n_demons, interface.steps)
    scores = QuestionScores(nmsre, persistence, variance, errors.n_tests)
    lines = question_lines(horde, scores, run.watch, steps)
    curve = curve_lines(errors, tested, sound_demons(horde), interface.actions, interface.period_s)
    tables: dict[Path, Callable[[Path], None]] = {
        folder.questions: lambda path: write_questions(path, horde.questions, interface, lines),
        folder.learning_curve: lambda path: write_csv(path, CURVE_COLUMNS, curve),
    }
    pairs = frozen.scores_of_tests(run, errors.table, student.horizon)
    if pairs is not None:
        frozen_lines = frozen.lines_of(pairs, horde.questions, interface)
        tables[folder.frozen_scores] = lambda path: frozen.write_frozen(path, frozen_lines)
    followed = [course for course in tested if not course.policy.is_behaviour]
    stream = None
    if followed:
        stream = _newest_rows(folder)
    if stream is not None:
        shown = excursion_traces(stream, horde, interface, followed, student.horizon)
        tables[folder.traces] = lambda path: write_csv(path, TRACE_COLUMNS, shown)
    n_on_policy = sum(course.n_excursions for course in tested if course.policy.is_behaviour)
    details = {
        "n_discarded": errors.n_discarded,
        "discarded_by": errors.discarded_by(),
        "n_tests_of_questions": int(errors.n_tests.sum()),
        "n_repeated": int(errors.n_repeated.sum()),
        "n_on_policy_tests": n_on_policy,
        "n_tested_less_than_twice": int((errors.n_tests < 2).sum()),
        "not_scored": not_scored(horde.questions, nmsre, tests),
    }
    n_excursions = None
    if outcome.has_tests:
        n_excursions = errors.n_excursions - n_on_policy
    return _Results(scores, steps, details, n_excursions, tables)


def _newest_rows(folder: RunFolder) -> Stream | None:
    """Return the last day of a recording; None if the first line of a file is damaged."""
    try:
        return read(folder.life, newest=A_DAY)
    except ValueError as error:
        _log.warning("%s is not written: %s", folder.traces.name, error)
        return None


def _held_out(run: Run, score: log_nexting.Holdout, passes: float) -> _Results:
    """Return the results of a log, scored on its held-out part."""
    horde = run.horde
    sound = sound_demons(run.horde)
    of_mean = nmsre_summary(score.nmsre_of_mean, sound)
    steps = np.where(score.channel == NO_CHANNEL, np.nan, run.interface.steps[score.channel])
    scores = QuestionScores(score.nmsre, score.nmsre_of_persistence, score.variance, score.n_scored)
    lines = question_lines(horde, scores, run.watch, steps)
    names = run.interface.names
    period_s = run.interface.period_s
    shown = holdout_traces(score.shown, score.channel, horde, names, period_s)
    tables: dict[Path, Callable[[Path], None]] = {
        run.folder.questions: lambda path: write_questions(
            path,
            horde.questions,
            run.interface,
            lines,
            nmsre_of_mean=score.nmsre_of_mean.tolist(),
        ),
        run.folder.learning_curve: lambda path: write_csv(path, CURVE_COLUMNS, []),
        run.folder.traces: lambda path: write_csv(path, TRACE_COLUMNS, shown),
    }
    if score.by_history is not None:
        pairs = frozen.held_out_scores(score, score.by_history)
        frozen_lines = frozen.lines_of(pairs, horde.questions, run.interface)
        tables[run.folder.frozen_scores] = lambda path: frozen.write_frozen(path, frozen_lines)
    better = share_better(score.nmsre, score.nmsre_of_mean, sound)
    details = {
        "notes": [_how_a_log_is_scored(passes, score, of_mean, better), *run.notes],
        "passes": passes,
        "n_held_out": int(score.n_scored.max(initial=0)),
        "mean_predictor": of_mean,
        "share_better_than_mean_predictor": better,
        "not_scored": grouped_reasons(horde.questions, score.nmsre, score.why_not),
    }
    if score.bands is not None:
        details["bands"] = {
            "half_width": _or_none(score.bands.half_width),
            "n_tested": score.bands.n_tested.tolist(),
            "n_inside": score.bands.n_inside.tolist(),
        }
    return _Results(scores, steps, details, None, tables)


def _how_a_log_is_scored(
    passes: float,
    score: log_nexting.Holdout,
    of_mean: dict[str, float | None],
    better: float | None,
) -> str:
    share = "-"
    if better is not None:
        share = f"{better:.0%}"
    pass_or_passes = "passes"
    if passes == 1.0:
        pass_or_passes = "pass"
    n_constant = int(score.is_constant.sum())
    mean, median = (nmsre_text(of_mean[key]) for key in ("mean_nmsre", "median_nmsre"))
    return (
        f"Learned in {passes:.3g} {pass_or_passes} over the first {log_nexting.LEARNED_SHARE:.0%} of the log; scored "
        f"on the last {score.n_scored.max(initial=0)} steps against the log's own returns, up to its end or a gap, in "
        "rows with at most 5 % of the return beyond. NMSRE here is "
        "the mean squared error over the variance of the held-out returns; always predicting the mean return of the "
        f"learned part scores {median} in the median and {mean} in the mean; {share} of the questions do better than "
        f"that. {n_constant} of {len(score.variance)} questions have returns that do not vary there: "
        "their NMSRE is 0 if they are predicted, else 1."
    )


def _summary(
    run: Run,
    student: StreamLearner,
    outcome: SessionOutcome,
    results: _Results,
    wall_s: float | None,
) -> dict[str, Any]:
    """Return the contents of summary.json, whose keys and order are fixed; units are in the names."""
    horde = run.horde
    coder = run.interface.coder
    n = student.learning_steps
    robot = outcome.robot
    sound = sound_demons(horde)
    vector = np.asarray(horde.mspbe_vector())
    return {
        "steps": outcome.steps,
        "robot_time_s": outcome.steps * run.interface.period_s,
        "wall_s": wall_s,
        "steps_per_s": outcome.steps / wall_s if wall_s else None,
        "learning_steps": n,
        "n_questions": horde.n_demons,
        "n_features": coder.n_features,
        "n_active": coder.n_active,
        "n_excursions": results.n_excursions,
        "n_updated_per_step": student.n_updated / n if n else None,
        **nmsre_summary(results.scores.nmsre, sound),
        "diverged": list(horde.diverged),
        "mspbe_vector_mean": mean_estimate(vector[sound]),
        "mspbe_scalar_mean": mean_estimate(horde.mspbe_scalar[sound]),
        "max_trace": float(horde.max_trace),
        "learn_ms": student.learn_s.summary_ms() if wall_s is not None else None,
        "cycle_ms": outcome.cycle_s.summary_ms(),
        **{name: robot[name] for name in ("deadlines_missed", "gaps", "crc_errors")},
        "backend": run.config.backend,
        "seed": run.config.seed,
        "weights_sha256": horde.weights_sha256(),
        "version": own_version(),
        "stopped_early": outcome.end.is_early,
        **{name: robot[name] for name in ("link_losses", "s_without_link")},
        "n_nearly_constant": n_nearly_constant(
            results.scores.nmsre, results.scores.variance, results.steps, sound
        ),
        "share_better_than_persistence": share_better(
            results.scores.nmsre, results.scores.nmsre_of_persistence, sound
        ),
    }


def _details(run: Run, end: ExitReason) -> dict[str, Any]:
    return {
        "channels": [channel.name for channel in run.interface.channels],
        "actions": list(run.interface.actions),
        "features": features_of(run.config.features).sentence(run.interface),
        "n_random_features": run.horde.config.lstd,
        "diverged_because": run.horde.divergence_reason,
        "skipped_because": run.horde.skipped_because,
        "stopped_early": end.is_early,
        "stopped_by": end.why,
        "ended_by": end.cause.code,
        "mspbe": run.watch.facts(),
        "shards": [shard._asdict() for shard in run.horde.shards],
    }


def nmsre_summary(nmsre: Floats, sound: Bools) -> dict[str, float | None]:
    """Return mean, median and share below 1 over the sound demons with an NMSRE, both of shape (n_demons,)."""
    scored = nmsre[sound & ~np.isnan(nmsre)]
    if not len(scored):
        return {"mean_nmsre": None, "median_nmsre": None, "share_nmsre_below_1": None}
    return {
        "mean_nmsre": float(scored.mean()),
        "median_nmsre": float(np.median(scored)),
        "share_nmsre_below_1": float((scored < 1.0).mean()),
    }


def share_better(nmsre: Floats, other: Floats, sound: Bools) -> float | None:
    """Return the share of the scored, sound demons with a lower NMSRE than `other`; None without one.

    All arguments are of shape (n_demons,).
    """
    is_scored = sound & ~np.isnan(nmsre)
    if is_scored.any():
        return float((nmsre < other)[is_scored].mean())
    return None


def n_nearly_constant(nmsre: Floats, variance: Floats, steps: Floats, sound: Bools) -> int | None:
    """Return how many of the scored, sound demons have nearly constant returns; None if no step is known.

    All arguments are of shape (n_demons,); `steps` are the quantisation steps of their channels,
    NaN if unknown.
    """
    is_judged = sound & ~np.isnan(nmsre) & ~np.isnan(steps)
    if is_judged.any():
        return int(are_nearly_constant(variance[is_judged], steps[is_judged]).sum())
    return None


def not_scored(
    questions: Sequence[GVF], nmsre: Floats, tests: ExcursionFacts
) -> list[dict[str, Any]]:
    """Return why questions have no NMSRE, shape (n_demons,): `reason`, `n` and `first` (a name) for each reason."""
    reasons = [_why_not_scored(question, i, tests) for i, question in enumerate(questions)]
    return grouped_reasons(questions, nmsre, reasons)


def grouped_reasons(
    questions: Sequence[GVF], nmsre: Floats, reasons: Sequence[str]
) -> list[dict[str, Any]]:
    """Return `reason`, `n` and `first` (a name) for each reason of the questions without NMSRE, (n_demons,)."""
    names: dict[str, list[str]] = {}
    for question, value, reason in zip(questions, nmsre.tolist(), reasons, strict=True):
        if math.isnan(value):
            names.setdefault(reason, []).append(question.name)
    return [
        {"reason": reason, "n": len(unscored), "first": unscored[0]}
        for reason, unscored in names.items()
    ]


def _why_not_scored(question: GVF, i: int, tests: ExcursionFacts) -> str:
    is_on_policy = isinstance(question.target_policy, Behaviour)
    if not question.tested:
        return "tested = false"
    if is_on_policy and isinstance(question.cumulant, Prediction):
        return "the cumulant is another question's prediction"
    if not is_on_policy and not tests.has_excursions:
        return "about another policy than the behaviour, and this environment offers no test excursions"
    horizon = tests.horizon
    share = float(tests.share[i])
    if math.isnan(share) and not callable(question.continuation):
        share = float(question.continuation) ** horizon
    needed = 1.0
    if share > NEGLIGIBLE_SHARE:
        needed = horizon_needed(share, horizon)
    elif not callable(question.continuation):
        needed = n_terms_needed(float(question.continuation))
    interrupted = tests.interrupted[int(not is_on_policy)]
    # One of them may be that at the end of the life
    if interrupted.sum() >= 2 and interrupted.sum() > tests.n_tests[i]:
        return _interrupted(interrupted, int(tests.n_tests[i]), needed)
    if share > NEGLIGIBLE_SHARE:
        return _too_short(question, share, horizon)
    if tests.n_repeated[i] > tests.n_tests[i]:
        n_all = tests.n_repeated[i] + tests.n_tests[i]
        return (
            f"{tests.n_repeated[i]:,} of {n_all:,} tests left out, because stale frames had too much of the return's "
            "weight: a longer period leaves more"
        )
    return "fewer than 2 complete tests with finite returns: more steps are needed"


def _interrupted(interrupted: Integers, n_tests: int, needed: float) -> str:
    """Return that tests were interrupted, by their terms, and the horizon that half of them reach, if it suffices."""
    n_interrupted = int(interrupted.sum())
    usual = max(int(np.searchsorted(np.cumsum(interrupted), n_interrupted / 2)), 1)
    broken = (
        f"{n_tests} complete tests of {len(interrupted) - 1} steps: {n_interrupted:,} were interrupted by gaps or ends "
        f"of episodes, half of them within {usual} steps"
    )
    if usual >= needed:
        return f"{broken}; use --horizon {usual}"
    if math.isinf(needed):
        return f"{broken}, but its return has no end"
    return f"{broken}, but its return needs {needed:.0f}"


def _too_short(question: GVF, share: float, horizon: int) -> str:
    """Return that too much of a question's return lies beyond the horizon, and how many steps it needs."""
    needed = horizon_needed(share, horizon)
    about = "its return"
    if not callable(question.continuation):
        about = f"its return at gamma {question.continuation:g}"
    if math.isinf(needed):
        return f"{about} has no end: no horizon is long enough"
    return f"{about} has {share:.0%} beyond {horizon} steps: use --horizon {needed:.0f}"


def question_lines(
    horde: Learner, scores: QuestionScores, watch: MspbeWatch, steps: Floats
) -> list[list[object]]:
    """Return the values of `SCORE_COLUMNS` for each question; `steps` are the quantisation steps of their channels.

    Arrays are of shape (n_demons,).
    """
    is_known = ~np.isnan(scores.variance) & ~np.isnan(steps)
    is_flat = are_nearly_constant(scores.variance, steps)
    flat = [int(one) if known else None for one, known in zip(is_flat, is_known, strict=True)]
    numbers = (*scores, np.asarray(horde.mspbe_scalar), np.asarray(horde.mspbe_vector()))
    facts = (~sound_demons(horde), watch.n_updates, watch.is_valid)
    columns = [*(of.tolist() for of in numbers), *(of.astype(int).tolist() for of in facts)]
    return [list(line) for line in zip(horde.names, *columns, flat, strict=True)]


def curve_lines(
    errors: ReturnErrors,
    tested: Sequence[PolicyScores],
    sound: Bools,
    actions: Sequence[str],
    period_s: float,
) -> Iterator[list[object]]:
    """Yield the lines of learning_curve.csv: per excursion mean and median NMSRE over the questions tested by then.

    A long life has lines for all newest excursions and some of the older ones (`Past`). `mean_nmsre`
    and `median_nmsre` use the variance over the whole life (two passes), `mean_nmsre_online` that
    of the excursions so far. `tested` are the scores of the excursions, `sound` has the shape
    (n_demons,).
    """
    counted = sound & ~np.isnan(final_nmsre(tested, errors.n_demons))
    for point in nmsre_along(errors.table, tested):
        finite = point.nmsre[counted & ~np.isnan(point.nmsre)]
        mean, median = (
            (float(finite.mean()), float(np.median(finite))) if len(finite) else (np.nan, np.nan)
        )
        time_s = point.step * period_s
        policy = point.scores.policy.label(actions)
        yield [point.number + 1, point.step, time_s, policy, mean, point.online, median]


def excursion_traces(
    stream: Stream,
    horde: Learner,
    interface: Interface,
    tested: Sequence[PolicyScores],
    horizon: int,
) -> list[list[object]]:
    """Return the final predictions and the returns along each policy's last complete excursion.

    Nothing is learned in an excursion, so these observations are new to the Horde. The longest time
    scale is shown. An excursion that is not fully recorded, for example because the disk was full,
    is skipped. The deviation is that of the question about the variance, "" without one.
    """
    lines: list[list[object]] = []
    variances = variance_questions(horde.questions)
    channels = [channel.name for channel in interface.channels]
    for course in tested:
        policy = course.policy
        first = _last_whole(stream, course, horizon)
        if first is None:
            continue
        observations = stream.rows["observation"][first : first + horizon + 1]
        predictions = predict_along(stream[first : first + horizon + 1], horde, interface)
        for k in log_nexting.shown_demons(channels, policy.channel, policy.gamma):
            demon = int(policy.demons[k])
            channel = int(policy.channel[k])
            gamma = float(policy.gamma[k])
            readings = observations[:, channel].astype(np.float64)
            actual = returns_along(readings, gamma, last=predictions[-1, demon])[:-1]
            n_terms = min(n_terms_needed(gamma), len(actual) + 1)
            n_shown = len(actual) - int(n_terms) + 1
            deviation: list[object] = [""] * len(actual)
            if demon in variances:
                deviation = deviation_of(predictions[:-1, variances[demon]]).tolist()
            names = [horde.names[demon], channels[channel], policy.label(interface.actions)]
            for t in range(n_shown):
                facts = (t * interface.period_s, float(predictions[t, demon]), float(actual[t]))
                lines.append([*names, *facts, deviation[t]])
    return lines


def _last_whole(stream: Stream, course: PolicyScores, horizon: int) -> int | None:
    """Return the first row of a policy's last fully recorded excursion; None if there is none."""
    steps = stream.rows["step"]
    n_first = max(len(stream) - horizon, 0)
    is_begun = np.isin(steps, course.step) & (stream.rows["phase"] == Phase.EXCURSION)
    is_whole = is_begun[:n_first] & (steps[len(stream) - n_first :] == steps[:n_first] + horizon)
    whole = np.flatnonzero(is_whole)
    return int(whole[-1]) if whole.size else None


def holdout_traces(
    shown: Mapping[int, Floats],
    channel: Integers,
    horde: Learner,
    channels: Sequence[str],
    period_s: float,
) -> list[list[object]]:
    """Return the predictions and the returns of `Holdout.shown`; `channel` is of each demon, shape (n_demons,).

    There are no deviations: a log has no questions about variances.
    """
    return [
        [
            horde.names[demon],
            channels[channel[demon]],
            "held-out part of the log",
            t * period_s,
            prediction,
            actual,
            "",
        ]
        for demon, rows in shown.items()
        for t, prediction, actual in rows.tolist()
    ]
