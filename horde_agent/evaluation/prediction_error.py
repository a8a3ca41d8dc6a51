"""The error of predictions about a policy, from recorded steps of another one.

With S_k, the discounted sum of the first k cumulants from a state on, the squared error of its
prediction v telescopes,

    (v - G)^2 = v^2 + sum_k ((v - S_{k+1})^2 - (v - S_k)^2),

and term k depends on the actions up to step k only. So it is weighted by the product w_k of the ratios
up to there, and divided by the mean of w_k over the states: per decision, weighted. The variance of
the return is that of v = 0, minus the square of its mean, by the same sums.

Source: Precup, Sutton & Singh (2000) and Thomas (2015) for the weighting; Modayil, White & Sutton
    (2014) for the error over the variance of the returns.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from horde_agent.evaluation.importance import effective_size
from horde_agent.evaluation.intervals import Estimate, Ratios
from horde_agent.types import Floats, Integers


class Stretches(NamedTuple):
    """Stretches of K recorded steps, each from a state for which a prediction is known.

    A stretch that ended in a terminal state keeps its last weight, with cumulants of 0.

    Attributes:
        weight: Products of the ratios up to and with each step, shape (n_stretches, K).
        group: Number of the group of consecutive stretches that are drawn together, from 0, shape
            (n_stretches,).
    """

    weight: Floats
    group: Integers


class PredictionError(Estimate):
    """The mean squared error of predictions over the variance of the returns, from groups of stretches.

    Args:
        prediction: v of each stretch, shape (n_stretches,).
        cumulant: Of each step, shape (n_stretches, K).
        gamma: The continuation.
        stretches: Their weights and groups.
    """

    def __init__(
        self, prediction: Floats, cumulant: Floats, gamma: float, stretches: Stretches
    ) -> None:
        n_steps = cumulant.shape[1]
        discount = gamma ** np.arange(n_steps)
        sums = np.cumsum(discount * cumulant, axis=1)
        previous_sums = np.concatenate([np.zeros((len(sums), 1)), sums[:, :-1]], axis=1)
        error = (prediction[:, None] - sums) ** 2 - (prediction[:, None] - previous_sums) ** 2
        self._squared = _ratios(prediction**2, error, stretches)
        self._second = _ratios(np.zeros(len(sums)), sums**2 - previous_sums**2, stretches)
        self._mean = _ratios(np.zeros(len(sums)), discount * cumulant, stretches)

    @property
    def n_episodes(self) -> int:
        """Number of groups."""
        return self._mean.n_episodes

    @property
    def variance(self) -> float:
        """Variance of the returns under the policy."""
        return self._second.value - self._mean.value**2

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


def _ratios(first: Floats, terms: Floats, stretches: Stretches) -> Ratios:
    """Return the mean of `first`, (n,), plus the sum over the steps of the weighted means of `terms`, (n, K)."""
    n_groups = int(stretches.group.max()) + 1
    numerator = np.zeros((n_groups, terms.shape[1] + 1))
    weight = np.zeros_like(numerator)
    np.add.at(numerator[:, 0], stretches.group, first)
    np.add.at(weight[:, 0], stretches.group, 1.0)
    np.add.at(numerator[:, 1:], stretches.group, stretches.weight * terms)
    np.add.at(weight[:, 1:], stretches.group, stretches.weight)
    return Ratios(numerator, weight, np.ones(numerator.shape[1]))


def size_at(stretches: Stretches, step: int) -> float:
    """Return the effective sample size, in stretches, of the weights at a step from 0."""
    return effective_size(stretches.weight[:, min(step, stretches.weight.shape[1] - 1)])
