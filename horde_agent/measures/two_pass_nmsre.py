"""Two-pass NMSRE from the table of excursions, read in chunks: a month has 200,000 excursions.

The two-pass NMSRE needs the variance of all returns before its first value. The first pass computes
the variances and the last error traces (`policy_scores`); a second one the values for tables and
pictures: all of them in order (`nmsre_along`), a thinned curve (`curves`), or some predictions and
returns (`dots`).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import NamedTuple

import numpy as np

from horde_agent.measures.excursion_table import ExcursionTable, of_policy
from horde_agent.measures.nmsre import error_trace, normalise
from horde_agent.measures.returns import PolicyUnderTest
from horde_agent.types import Bools, Floats, Integers

MOST_POINTS = 1200
"""Points of a curve in a picture, one per pixel."""
_MOST_NUMBERS = 4_000_000  # of all curves together: 32 MB
MOST_DOTS = 2000


class PolicyScores:
    """Scores of one policy's excursions, which are added batch by batch.

    Attributes:
        number: Of the policy, among all.
        policy: The policy with its n demons.
        n_tests: Excursions that tested each demon, shape (n,).
        trace: The last error trace, shape (n,); NaN if there is none.

    Source: Chan, Golub & LeVeque (1979), for sums of squares of one batch after the other.
    """

    def __init__(self, number: int, policy: PolicyUnderTest) -> None:
        self.number = number
        self.policy = policy
        self._steps = list[Integers]()
        n = len(policy.demons)
        self.n_tests = np.zeros(n, np.int64)
        self._mean = np.zeros(n)
        self._squares = np.zeros(n)
        self.trace = np.full(n, np.nan)

    def add(self, step: Integers, predictions: Floats, returns: Floats) -> None:
        """Add excursions of the policy, shape (n_excursions,) and (n_excursions, n)."""
        self._steps.append(step)
        error_trace((predictions - returns) ** 2, self.trace)
        is_known = ~np.isnan(returns)
        n = is_known.sum(axis=0)
        sums = np.where(is_known, returns, 0.0).sum(axis=0)
        mean = np.divide(sums, n, out=np.zeros(len(n)), where=n > 0)
        squares = np.where(is_known, (returns - mean) ** 2, 0.0).sum(axis=0)
        n_after = self.n_tests + n
        share = np.divide(n, n_after, out=np.zeros(len(n)), where=n_after > 0)
        away = mean - self._mean
        self._squares += squares + away**2 * self.n_tests * share
        self._mean = np.where(self.n_tests == 0, mean, self._mean + away * share)
        self.n_tests = n_after

    @property
    def step(self) -> Integers:
        """Step at which each excursion began, shape (n_excursions,)."""
        return np.concatenate([np.zeros(0, np.int64), *self._steps])

    @property
    def variance(self) -> Floats:
        """Variance of each question's returns, shape (n,); NaN if there are none."""
        variance: Floats = np.full(len(self.trace), np.nan)
        return np.divide(self._squares, self.n_tests, out=variance, where=self.n_tests > 0)

    def last_nmsre(self) -> Floats:
        """Return the last two-pass NMSRE, shape (n,); NaN where tested fewer than two times."""
        return np.where(self.n_tests >= 2, normalise(self.trace, self.variance), np.nan)


def policy_scores(table: ExcursionTable) -> list[PolicyScores]:
    """Return the scores of each policy that has excursions. One pass."""
    scores = [PolicyScores(k, policy) for k, policy in enumerate(table.policies)]
    for rows in table:
        for k in np.unique(rows["policy"]).tolist():
            is_of, predictions, returns = of_policy(rows, k, table.policies[k])
            scores[k].add(rows["step"][is_of], predictions, returns)
    return [one for one in scores if len(one.step)]


def nmsre_along(
    table: ExcursionTable, some: Sequence[PolicyScores]
) -> Iterator[tuple[int, PolicyScores, Floats, float]]:
    """Yield each excursion in order: its first step, its policy's scores, the NMSRE after it, and the online mean.

    The two-pass NMSRE has the shape (n,), for the policy's n demons; the online mean is over all
    demons.
    """
    by_number = {scores.number: scores for scores in some}
    traces = {k: np.full(len(scores.policy.demons), np.nan) for k, scores in by_number.items()}
    for rows in table:
        values = {}
        for k in np.unique(rows["policy"]).tolist():
            _, predictions, returns = of_policy(rows, k, table.policies[k])
            trace = error_trace((predictions - returns) ** 2, traces[k])
            values[k] = iter(normalise(trace, by_number[k].variance))
        for k, step, online in rows[["policy", "step", "online"]].tolist():
            yield step, by_number[k], next(values[k]), online


class Curve(NamedTuple):
    """The NMSRE of one policy's questions over its excursions."""

    policy: PolicyUnderTest  # the policy with its n demons
    at: Integers  # after how many of its excursions, shape (n_points,)
    nmsre: Floats  # shape (n_points, n)


def curves(table: ExcursionTable, some: Sequence[PolicyScores]) -> list[Curve]:
    """Return each policy's curve, thinned to at most `MOST_POINTS` points. One pass.

    All curves have points at the same numbers of excursions, and each at its own last one.
    """
    longest = max((len(scores.step) for scores in some), default=0)
    n_points = min(MOST_POINTS, max(_MOST_NUMBERS // max(table.n_demons, 1), 50))
    grid = np.unique(np.linspace(1, longest, min(n_points, longest)).round().astype(np.int64))
    at = {
        scores.number: np.union1d(grid[grid < len(scores.step)], len(scores.step))
        for scores in some
    }
    kept: dict[int, list[Floats]] = {k: [] for k in at}
    n_tests = dict.fromkeys(at, 0)
    for _, scores, nmsre, _ in nmsre_along(table, some):
        k = scores.number
        n_tests[k] += 1
        if at[k][len(kept[k])] == n_tests[k]:
            kept[k].append(nmsre)
    return [
        Curve(scores.policy, at[scores.number], np.array(kept[scores.number])) for scores in some
    ]


def dots(
    table: ExcursionTable, some: Sequence[PolicyScores], columns: Mapping[int, Integers]
) -> dict[int, tuple[Floats, Floats]]:
    """Return predictions and returns of the second half of each policy's excursions, at most `MOST_DOTS` of them.

    `columns` are places among a policy's demons, (m,), by its number; both results have the shape
    (n_shown, m). One pass.
    """
    shown = {scores.number: _shown(len(scores.step)) for scores in some if scores.number in columns}
    kept: dict[int, list[tuple[Floats, Floats]]] = {k: [] for k in shown}
    n_tests = dict.fromkeys(shown, 0)
    for rows in table:
        for k in np.unique(rows["policy"]).tolist():
            if k in shown:
                _, predictions, returns = of_policy(rows, k, table.policies[k])
                is_shown: Bools = np.isin(n_tests[k] + np.arange(len(returns)), shown[k])
                kept[k].append(
                    (predictions[is_shown][:, columns[k]], returns[is_shown][:, columns[k]])
                )
                n_tests[k] += len(returns)
    return {
        k: (np.concatenate([p for p, _ in some]), np.concatenate([r for _, r in some]))
        for k, some in kept.items()
    }


def _shown(n: int) -> Integers:
    """Return the indices of the excursions shown as dots: the second half of `n`, evenly thinned."""
    first = n // 2
    return np.unique(np.linspace(first, n - 1, min(n - first, MOST_DOTS)).round().astype(np.int64))
