"""Rows and values of the tables in a run's folder."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np

from horde_agent.cluster import AnyHorde
from horde_agent.gvf import GVF, Prediction
from horde_agent.life.observers import MspbeWatch, sound_demons
from horde_agent.life.timing import Durations
from horde_agent.measures.nmsre import are_nearly_constant
from horde_agent.measures.passes import PolicyScores, final_nmsre, nmsre_along
from horde_agent.measures.return_errors import ReturnErrors
from horde_agent.policies import Behaviour
from horde_agent.runs.run_folder import own_version
from horde_agent.types import Bools, Floats, Integers

QUESTION_COLUMNS = (
    "name",
    "nmsre",
    "variance",
    "n_tests",
    "mspbe_scalar",
    "mspbe_vector",
    "diverged",
    "n_updates",
    "mspbe_valid",
    "nearly_constant",
)
"""Of questions.csv. mspbe_valid: 0 while w has had too few updates with rho > 0. nearly_constant: see `measures.nmsre`,
empty if unknown."""

CURVE_COLUMNS = ("excursion", "step", "robot_time_s", "policy", "mean_nmsre", "mean_nmsre_online", "median_nmsre")


def nmsre_summary(nmsre: Floats, sound: Bools) -> dict[str, float | None]:
    """Return mean, median and share below 1 over the demons that are sound and were scored (not nan).

    Both arguments are of shape (n_demons,).
    """
    scored = nmsre[sound & ~np.isnan(nmsre)]
    if not len(scored):
        return {"mean_nmsre": None, "median_nmsre": None, "share_nmsre_below_1": None}
    return {
        "mean_nmsre": float(scored.mean()),
        "median_nmsre": float(np.median(scored)),
        "share_nmsre_below_1": float((scored < 1.0).mean()),
    }


def n_nearly_constant(nmsre: Floats, variance: Floats, steps: Floats, sound: Bools) -> int | None:
    """Return how many of the scored, sound demons have nearly constant returns; None if no step is known.

    Args:
        nmsre: Final NMSRE of each demon, NaN if not scored, shape (n_demons,).
        variance: Of their returns, shape (n_demons,).
        steps: Quantisation steps of their channels, NaN if unknown, shape (n_demons,).
        sound: Which demons have not diverged, shape (n_demons,).
    """
    known = sound & ~np.isnan(nmsre) & ~np.isnan(steps)
    return int(are_nearly_constant(variance[known], steps[known]).sum()) if known.any() else None


def not_scored(questions: Sequence[GVF], nmsre: Floats, *, has_excursions: bool) -> list[dict[str, Any]]:
    """Return why questions have no NMSRE: a table with `reason`, `n` and `first` (a name) for each reason.

    Args:
        questions: Of the Horde, in its order.
        nmsre: Final NMSRE of each, NaN if not scored, shape (n_demons,).
        has_excursions: Whether the environment offers test excursions.
    """
    names: dict[str, list[str]] = {}
    for question, value in zip(questions, nmsre.tolist(), strict=True):
        if math.isnan(value):
            names.setdefault(_why_not_scored(question, has_excursions=has_excursions), []).append(question.name)
    return [{"reason": reason, "n": len(found), "first": found[0]} for reason, found in names.items()]


def _why_not_scored(question: GVF, *, has_excursions: bool) -> str:
    is_on_policy = isinstance(question.target_policy, Behaviour)
    if not question.tested:
        return "tested = false"
    if is_on_policy and isinstance(question.cumulant, Prediction):
        return "the cumulant is another question's prediction"
    if not is_on_policy and not has_excursions:
        return "about another policy than the behaviour, and this environment offers no test excursions"
    return "fewer than 2 complete tests with finite returns: more steps are needed"


def horde_summary(horde: AnyHorde, n_features: int, n_active: int) -> dict[str, Any]:
    """Return the summary's values of the Horde."""
    sound = sound_demons(horde)
    vector = np.asarray(horde.mspbe_vector())
    return {
        "n_questions": horde.n_demons,
        "n_features": n_features,
        "n_active": n_active,
        "diverged": list(horde.diverged),
        "mspbe_vector_mean": float(vector[sound].mean()) if sound.any() else None,
        "mspbe_scalar_mean": float(horde.mspbe_scalar[sound].mean()) if sound.any() else None,
        "max_trace": float(horde.max_trace),
        "weights_sha256": horde.weights_sha256(),
        "version": own_version(),
    }


def time_summary(steps: int, period_s: float, wall_s: float, learn: Durations, cycle: Durations) -> dict[str, Any]:
    """Return the summary's values of time."""
    return {
        "steps": steps,
        "robot_time_s": steps * period_s,
        "wall_s": wall_s,
        "steps_per_s": steps / wall_s if wall_s > 0 else None,
        "learn_ms": learn.summary_ms(),
        "cycle_ms": cycle.summary_ms(),
    }


def question_lines(
    horde: AnyHorde, nmsre: Floats, variance: Floats, n_tests: Integers, watch: MspbeWatch, steps: Floats
) -> list[list[object]]:
    """Return the lines of questions.csv, in the order of the questions.

    Args:
        horde: The demons.
        nmsre: Final NMSRE of each, NaN if unknown, shape (n_demons,).
        variance: Of their returns, in the square of the cumulants' units, shape (n_demons,).
        n_tests: Complete excursions of each, shape (n_demons,).
        watch: For the validity of the estimates.
        steps: Quantisation steps of their channels, NaN if unknown, shape (n_demons,).
    """
    is_flat, is_known = are_nearly_constant(variance, steps), ~np.isnan(variance) & ~np.isnan(steps)
    n_updates, is_valid = watch.n_updates, watch.is_valid
    vector, scalar, diverged = np.asarray(horde.mspbe_vector()), horde.mspbe_scalar, set(horde.diverged)
    return [
        [
            name,
            float(nmsre[i]),
            float(variance[i]),
            int(n_tests[i]),
            float(scalar[i]),
            float(vector[i]),
            int(name in diverged),
            int(n_updates[i]),
            int(is_valid[i]),
            int(is_flat[i]) if is_known[i] else None,
        ]
        for i, name in enumerate(horde.names)
    ]


def variances(tested: Sequence[PolicyScores], n_demons: int) -> Floats:
    """Return the variance of each question's returns, shape (n_demons,); NaN without tests."""
    variance = np.full(n_demons, np.nan)
    for course in tested:
        variance[course.policy.demons] = course.variance
    return variance


def curve_lines(
    errors: ReturnErrors, tested: Sequence[PolicyScores], sound: Bools, actions: Sequence[str], period_s: float
) -> Iterator[list[object]]:
    """Yield the lines of learning_curve.csv: per excursion mean and median NMSRE over the questions tested by then.

    `mean_nmsre` and `median_nmsre` use the variance over the whole life (two passes), `mean_nmsre_online` that of the
    excursions so far.

    Args:
        errors: The excursions.
        tested: Their scores.
        sound: Demons that have not diverged, shape (n_demons,).
        actions: Names of the actions.
        period_s: Duration of a step, in seconds.
    """
    latest = np.full(errors.n_demons, np.nan)
    counted = sound & ~np.isnan(final_nmsre(tested, errors.n_demons))
    for k, (step, course, nmsre, online) in enumerate(nmsre_along(errors.table, tested), 1):
        latest[course.policy.demons] = nmsre
        known = latest[counted & ~np.isnan(latest)]
        mean, median = (float(known.mean()), float(np.median(known))) if len(known) else (np.nan, np.nan)
        yield [k, step, step * period_s, course.policy.label(actions), mean, online, median]
