"""Write the tables and the summary of a run, of a replayed log or of a run that was learned again."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from horde_agent.life.observers import Sample, sample, sound_demons
from horde_agent.life.student import Student
from horde_agent.measures.nmsre import NO_VARIANCE, nmsre_text, quantisation_steps
from horde_agent.measures.passes import final_nmsre, policy_scores
from horde_agent.record import A_DAY, read
from horde_agent.runs import curves as traces
from horde_agent.runs import holdout, results
from horde_agent.runs.run import Run
from horde_agent.runs.run_folder import SUMMARY_KEYS, RunFolder, write_csv, write_json


def write_life(
    run: Run,
    student: Student,
    samples: Sequence[Sample],
    facts: dict[str, Any],
    counts: dict[str, Any],
    *,
    has_tests: bool,
) -> dict[str, Any]:
    """Write the tables of a run and return its summary.

    Args:
        run: The run.
        student: Its learner.
        samples: Of the MSPBE; the final one is added.
        facts: The summary's values of time and robot faults.
        counts: Further facts for details.json.
        has_tests: Whether the environment supports test excursions.
    """
    student.catch_up()
    run.folder.seal(tables=False)
    horde, interface, folder, errors = run.horde, run.interface, run.folder, student.errors
    sound, tested = sound_demons(horde), policy_scores(errors.table)
    nmsre, variance = final_nmsre(tested, horde.n_demons), results.variances(tested, horde.n_demons)
    steps = quantisation_steps(errors.policies, horde.n_demons, interface.steps)
    lines = results.question_lines(horde, nmsre, variance, errors.n_tests, run.watch, steps)
    write_csv(folder.questions, results.QUESTION_COLUMNS, lines)
    curve = results.curve_lines(errors, tested, sound, interface.actions, interface.period_s)
    write_csv(folder.learning_curve, results.CURVE_COLUMNS, curve)
    last = sample(facts["steps"], student.learning_steps, horde)
    write_csv(folder.mspbe_curve, Sample._fields, [*samples, last])
    followed = [course for course in tested if not course.policy.is_behaviour]
    n_on_policy = sum(len(course.step) for course in tested if course.policy.is_behaviour)
    if followed:
        shown = traces.excursion_traces(read(folder.life, newest=A_DAY), horde, interface, followed, student.horizon)
        write_csv(folder.traces, traces.COLUMNS, shown)
    scored = {
        "n_discarded": errors.n_discarded,
        "n_on_policy_tests": n_on_policy,
        "n_tested_less_than_twice": int((errors.n_tests < 2).sum()),
        "not_scored": results.not_scored(horde.questions, nmsre, has_excursions=has_tests),
    }
    write_json(folder.details, run.details(**scored, **counts))
    summed = {**facts, **run.learned(student), **results.nmsre_summary(nmsre, sound)}
    summed["n_nearly_constant"] = results.n_nearly_constant(nmsre, variance, steps, sound)
    return _write_summary(folder, summed | {"n_excursions": errors.n_excursions - n_on_policy if has_tests else None})


def write_reading(
    run: Run, student: Student, score: holdout.Holdout, passes: float, facts: dict[str, Any]
) -> dict[str, Any]:
    """Write the tables of a replayed log and return the summary.

    Args:
        run: The run.
        student: Its learner.
        score: On the held-out part.
        passes: Number of passes over the rest.
        facts: The summary's time and gaps.
    """
    horde, folder, sound = run.horde, run.folder, sound_demons(run.horde)
    folder.seal(tables=False)
    n_held_out = score.n_scored
    of_mean = results.nmsre_summary(score.nmsre_of_mean, sound)
    n_tests = np.full(horde.n_demons, n_held_out)
    steps = run.interface.steps[score.channel]
    lines = results.question_lines(horde, score.nmsre, score.variance, n_tests, run.watch, steps)
    lines = [[*line, float(of_mean)] for line, of_mean in zip(lines, score.nmsre_of_mean, strict=True)]
    write_csv(folder.questions, [*results.QUESTION_COLUMNS, "nmsre_of_mean_predictor"], lines)
    names = [channel.name for channel in run.interface.channels]
    write_csv(folder.traces, traces.COLUMNS, traces.holdout_traces(score, horde, names, run.interface.period_s))
    better = float((score.nmsre < score.nmsre_of_mean)[sound].mean()) if sound.any() else None
    notes = [_how_a_log_is_scored(passes, score, of_mean, better), *run.notes]
    details = {"notes": notes, "passes": passes, "n_held_out": n_held_out, "mean_predictor": of_mean}
    write_json(folder.details, run.details(**details, share_better_than_mean_predictor=better))
    summed = {**facts, **run.learned(student), **results.nmsre_summary(score.nmsre, sound)}
    summed["n_nearly_constant"] = results.n_nearly_constant(score.nmsre, score.variance, steps, sound)
    return _write_summary(folder, summed | {"n_excursions": None})


def _how_a_log_is_scored(
    passes: float, score: holdout.Holdout, of_mean: dict[str, float | None], better: float | None
) -> str:
    share = "-" if better is None else f"{better:.0%}"
    n_constant = int((score.variance < NO_VARIANCE).sum())
    mean, median = (nmsre_text(of_mean[key]) for key in ("mean_nmsre", "median_nmsre"))
    return (
        f"Learned in {passes:.3g} passes over the first {holdout.LEARNED_SHARE:.0%} of the log; scored on the "
        f"last {score.n_scored} steps against the log's own returns, truncated where the log ends. NMSRE here is "
        "the mean squared error over the variance of the held-out returns; always predicting the mean return of the "
        f"learned part scores {median} in the median and {mean} in the mean; {share} of the questions do better than "
        f"that. {n_constant} of {len(score.variance)} questions have returns that do not vary there: "
        "their NMSRE is 1."
    )


def _write_summary(folder: RunFolder, facts: dict[str, Any]) -> dict[str, Any]:
    """Write summary.json with its fixed keys in their order, and return it."""
    assert set(facts) == set(SUMMARY_KEYS), set(facts) ^ set(SUMMARY_KEYS)
    summary = {key: facts[key] for key in SUMMARY_KEYS}
    write_json(folder.summary, summary)
    folder.seal()
    return summary
