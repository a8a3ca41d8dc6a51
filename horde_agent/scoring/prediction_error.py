"""The error of predictions about a policy, from recorded steps of another one.

With S_k, the discounted sum of the first k cumulants from a state on, the error of a predictor v after k
steps, which fills in the rest itself (`scoring.returns`), is

    e_k = v_t - S_k - gamma^k v_{t+k},    e_0 = 0.

Its square telescopes, e_K^2 = sum_k (e_k^2 - e_{k-1}^2), and term k depends on the actions up to step k
only. So it is weighted by the product w_k of the ratios up to there, and divided by the mean of w_k over
the states: per decision, weighted. A constant added to the cumulants changes no e_k, and of predictions
that fulfil their Bellman equation along the way each is 0. The variance of the return is the mean square
of the errors of a constant, minus the square of their mean, by the same sums.

Source: Precup, Sutton & Singh (2000) and Thomas (2015) for the weighting; Modayil, White & Sutton
    (2014) for the error over the variance of the returns.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from horde_agent.scoring.importance import effective_size
from horde_agent.scoring.intervals import Estimate, Ratios
from horde_agent.scoring.nmsre import ROUNDING
from horde_agent.types import Floats, Integers


class Stretches(NamedTuple):
    """Stretches of K recorded steps, each from a state for which a prediction is known.

    A stretch that ended in a terminal state keeps its last weight and error.

    Attributes:
        weight: Products of the ratios up to and with each step, shape (n_stretches, K).
        group: Number of the group of consecutive stretches that are drawn together, from 0, shape
            (n_stretches,).
    """

    weight: Floats
    group: Integers


def error_paths(predictions: Floats, cumulants: Floats, gamma: float) -> Floats:
    """Return the errors of a predictor after each step of each stretch, shape (n_stretches, K).

    Args:
        predictions: v at the first state and after each step, 0 in a terminal state and after it,
            shape (n_stretches, K + 1).
        cumulants: Of each step, 0 after a terminal state, shape (n_stretches, K).
        gamma: The continuation.
    """
    discount = gamma ** np.arange(cumulants.shape[1])
    sums = np.cumsum(discount * cumulants, axis=1)
    return np.asarray(predictions[:, :1] - sums - gamma * discount * predictions[:, 1:])


class PredictionError(Estimate):
    """The mean squared error of predictions over the variance of the returns, from groups of stretches.

    Args:
        errors: Of the predictor, after each step: `error_paths`, shape (n_stretches, K).
        deviations: Of a constant, the same for all predictors, shape (n_stretches, K).
        stretches: Their weights and groups.
    """

    def __init__(self, errors: Floats, deviations: Floats, stretches: Stretches) -> None:
        self._squared = _ratios(errors**2, stretches)
        self._second = _ratios(deviations**2, stretches)
        self._mean = _ratios(deviations, stretches)
        super().__init__(self._mean.n_episodes)

    @property
    def squared(self) -> float:
        """Mean squared error of the predictions under the policy."""
        return self._squared.value

    @property
    def deviation(self) -> float:
        """Mean deviation of the constant from the return under the policy."""
        return self._mean.value

    @property
    def variance(self) -> float:
        """Variance of the returns under the policy; an estimate, which may be negative."""
        return self._second.value - self.deviation**2

    @property
    def is_constant(self) -> bool:
        """Whether the returns do not vary beyond rounding."""
        return abs(self.variance) <= ROUNDING * self._second.value

    def values(self, counts: Floats) -> Floats:
        """Return error over variance in each draw of groups, shape (n_draws,), NaN without a variance."""
        mean = self._mean.values(counts)
        variance = self._second.values(counts) - mean**2
        is_known = variance > 0.0
        quotient = self._squared.values(counts) / np.where(is_known, variance, 1.0)
        return np.where(is_known, quotient, np.nan)

    def influence(self) -> Floats:
        """Return the influence of each group, shape (n_groups,)."""
        variance = self.variance
        change = self._second.influence() - 2.0 * self._mean.value * self._mean.influence()
        return np.asarray((self._squared.influence() - self.value * change) / variance)


def _ratios(path: Floats, stretches: Stretches) -> Ratios:
    """Return the weighted mean of the last values of paths from 0, (n, K), as the sum of those of their steps."""
    terms = np.diff(path, axis=1, prepend=0.0)
    n_groups = int(stretches.group.max()) + 1
    numerator = np.zeros((n_groups, terms.shape[1]))
    weight = np.zeros_like(numerator)
    np.add.at(numerator, stretches.group, stretches.weight * terms)
    np.add.at(weight, stretches.group, stretches.weight)
    return Ratios(numerator, weight, np.ones(numerator.shape[1]))


def size_at(stretches: Stretches, step: int) -> float:
    """Return the effective sample size, in stretches, of the weights at a step from 0."""
    return effective_size(stretches.weight[:, min(step, stretches.weight.shape[1] - 1)])
