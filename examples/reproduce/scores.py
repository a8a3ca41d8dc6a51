"""Scores of experiments: errors over a variance, and the NMSRE of excursions that are all in memory."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from horde_agent.scoring import two_pass_nmsre
from horde_agent.scoring.nmsre import Outcomes, error_trace
from horde_agent.scoring.two_pass_nmsre import PolicyScores
from horde_agent.types import Floats

NO_VARIANCE = 1e-12


def normalise(error: Floats, variance: Floats) -> Floats:
    """Return error (..., n) / variance (n,), exactly 1 where the variance is below 1e-12; NaN stays NaN."""
    varies = ~np.broadcast_to(variance < NO_VARIANCE, error.shape)
    out: Floats = np.where(np.isnan(error), np.nan, 1.0)
    np.divide(error, variance, out=out, where=varies)
    return out


def nmsre_at_rest(predictions: Floats, returns: Floats, variance: Floats) -> Floats:
    """Return the NMSRE of predictions made with fixed weights: mean squared error over variance, shape (n,).

    Predictions and returns are of shape (n_returns, n); the variance, (n,), is of these or more
    returns.
    """
    return normalise(((predictions - returns) ** 2).mean(axis=0), variance)


def scores_of(excursions: Outcomes) -> PolicyScores:
    """Return the scores of all excursions of a policy."""
    scores = PolicyScores(0, excursions.policy)
    scores.add(excursions)
    scores.add_errors(excursions)
    return scores


def nmsre_after_each(excursions: Outcomes) -> Floats:
    """Return the two-pass NMSRE after each excursion of a policy, shape (n_excursions, n)."""
    return scores_of(excursions).moments.normalise(error_trace(excursions.errors**2))


def final_nmsre(outcomes: Sequence[Outcomes], n_demons: int) -> Floats:
    """Return the last two-pass NMSRE of each demon, shape (n_demons,), from each policy's excursions."""
    return two_pass_nmsre.final_nmsre([scores_of(one) for one in outcomes], n_demons)
