"""Slow twin of `scoring.e_detector`: ranks by counting, evidence as a sum over all beginnings."""

from __future__ import annotations

import math

import numpy as np

from horde_agent.scoring.e_detector import BURN_IN, HOLD, WINDOW


def e_of(p: float) -> float:
    """Return the mean of what seven bets pay: 2^j if p is at most 2^-j."""
    payments = [2**j for j in range(7) if p <= 2**-j]
    return sum(payments) / 7


def e_values(values: list[float], n: int, uniform: float) -> tuple[float, float]:
    """Return the e-values of "it rises" and "it falls" of the n-th of a series' values, from 0."""
    earlier = values[max(0, n - HOLD - WINDOW) : n - HOLD]
    higher = len([x for x in earlier if x > values[n]])
    lower = len([x for x in earlier if x < values[n]])
    equal = len(earlier) - higher - lower
    share = uniform * (1 + equal)
    n_compared = len(earlier) + 1
    rises = (higher + share) / n_compared
    falls = (lower + 1 + equal - share) / n_compared
    return e_of(rises), e_of(falls)


def evidence(series: np.ndarray, seed: int) -> np.ndarray:
    """Return R of each test and series after values of shape (n, 4, n_series): sums of products."""
    n_times, _, n_series = series.shape
    factors = np.ones((n_times, 8, n_series))
    for n in range(HOLD + BURN_IN, n_times):
        uniform = np.random.default_rng([seed, n]).random((4, n_series))
        for k in range(n_series):
            for value in range(4):
                rises, falls = e_values(series[:, value, k].tolist(), n, uniform[value, k])
                factors[n, value, k] = rises
                factors[n, 4 + value, k] = falls
    total = np.zeros((8, n_series))
    for test in range(8):
        for k in range(n_series):
            for begin in range(HOLD + BURN_IN, n_times):
                total[test, k] += math.prod(factors[begin:, test, k].tolist())
    return total
