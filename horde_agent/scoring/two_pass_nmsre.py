"""Two-pass NMSRE from the table of excursions, read in chunks: a month has 200,000 excursions.

The two-pass NMSRE needs the variance of all returns before its first value. The first pass computes
the moments of the returns, the second the last error traces (`policy_scores`); a further one the
values for tables and pictures: all of them in order (`nmsre_along`), a thinned curve (`curves`), or
some predictions and returns (`dots`).
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import NamedTuple

import numpy as np

from horde_agent.scoring.excursion_table import ExcursionTable
from horde_agent.scoring.nmsre import Outcomes, ReturnMoments, error_trace
from horde_agent.scoring.returns import PolicyUnderTest
from horde_agent.types import Bools, Floats, Integers

MOST_POINTS = 1200
"""Points of a curve in a picture, one per pixel."""
_MOST_NUMBERS = 4_000_000  # of all curves together: 32 MB
MOST_DOTS = 2000


class PolicyScores:
    """Scores of one policy's excursions, which are added batch by batch, in two passes.

    Attributes:
        number: Of the policy, among all.
        policy: The policy with its n demons.
        moments: Of the returns.
        trace: The last error trace, shape (n,); NaN if there is none.
        persistence_trace: The same of "the present reading lasts", or of the mean return.
    """

    def __init__(self, number: int, policy: PolicyUnderTest) -> None:
        self.number = number
        self.policy = policy
        self._steps = list[Integers]()
        n = len(policy.demons)
        self.moments = ReturnMoments(n)
        self.trace = np.full(n, np.nan)
        self.persistence_trace = np.full(n, np.nan)

    def add(self, excursions: Outcomes) -> None:
        """Add excursions of the policy: the first pass."""
        self._steps.append(excursions.step)
        share = np.broadcast_to(excursions.share, excursions.returns.shape)
        self.moments.add(excursions.returns, share)

    def add_errors(self, excursions: Outcomes) -> None:
        """Add their errors: the second pass, when the mean return is known."""
        error_trace(excursions.errors**2, self.trace)
        of_persistence = excursions.persistence_errors(self.moments.spread().mean)
        error_trace(of_persistence**2, self.persistence_trace)

    @property
    def n_tests(self) -> Integers:
        """Excursions that tested each demon, shape (n,)."""
        return self.moments.n

    @property
    def step(self) -> Integers:
        """Step at which each excursion began, shape (n_excursions,)."""
        return np.concatenate([np.zeros(0, np.int64), *self._steps])

    @property
    def variance(self) -> Floats:
        """Variance of each question's returns, (n,); NaN without two of them, or if the horizon is too short."""
        return self.moments.spread().variance

    def last_nmsre(self) -> Floats:
        """Return the last two-pass NMSRE, shape (n,); NaN where tested fewer than two times."""
        return self.moments.normalise(self.trace)

    def last_persistence_nmsre(self) -> Floats:
        """Return that of "the present reading lasts", shape (n,)."""
        return self.moments.normalise(self.persistence_trace)


def policy_scores(table: ExcursionTable) -> list[PolicyScores]:
    """Return the scores of each policy that has excursions. Two passes."""
    scores = [PolicyScores(k, policy) for k, policy in enumerate(table.policies)]
    for rows in table:
        for k, excursions in table.by_policy(rows):
            scores[k].add(excursions)
    for rows in table:
        for k, excursions in table.by_policy(rows):
            scores[k].add_errors(excursions)
    return [one for one in scores if len(one.step)]


def final_nmsre(tested: Iterable[PolicyScores], n_demons: int) -> Floats:
    """Return the last two-pass NMSRE of each demon, shape (n_demons,); NaN where tested fewer than two times."""
    final = np.full(n_demons, np.nan)
    for one in tested:
        final[one.policy.demons] = one.last_nmsre()
    return final


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
        for k, excursions in table.by_policy(rows):
            trace = error_trace(excursions.errors**2, traces[k])
            values[k] = iter(by_number[k].moments.normalise(trace))
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
    """Return predictions and sums of the terms measured in the second half of each policy's excursions.

    At most `MOST_DOTS` of them.

    `columns` are places among a policy's demons, (m,), by its number; both results have the shape
    (n_shown, m). One pass.
    """
    shown = {scores.number: _shown(len(scores.step)) for scores in some if scores.number in columns}
    kept: dict[int, list[tuple[Floats, Floats]]] = {k: [] for k in shown}
    n_tests = dict.fromkeys(shown, 0)
    for rows in table:
        for k, excursions in table.by_policy(rows):
            if k in shown:
                n = len(excursions.step)
                is_shown: Bools = np.isin(n_tests[k] + np.arange(n), shown[k])
                returns = excursions.returns[is_shown][:, columns[k]]
                predicted = returns + excursions.errors[is_shown][:, columns[k]]
                kept[k].append((predicted, returns))
                n_tests[k] += n
    return {
        k: (np.concatenate([p for p, _ in some]), np.concatenate([r for _, r in some]))
        for k, some in kept.items()
    }


def _shown(n: int) -> Integers:
    """Return the indices of the excursions shown as dots: the second half of `n`, evenly thinned."""
    first = n // 2
    return np.unique(np.linspace(first, n - 1, min(n - first, MOST_DOTS)).round().astype(np.int64))
