"""Ratios of the NMSRE of two runs, with intervals from their test excursions.

The final NMSRE of a question is a weighted mean of squared errors, w_i = (1 - 1/tau)^(n - i) / tau
with an effective number of some 19 excursions, over the variance of the returns. A draw takes each
excursion with replacement, with all questions that it tested and its weight, so the interval has the
correlation of questions that were tested together. Two runs are paired if they made the same
excursions with the same returns, as lives of one seed do if the behaviour does not depend on what is
learned: an excursion is then drawn from both. Otherwise both are drawn independently.

The interval is over excursions: another seed makes another life, which can differ by more.

Source: Efron & Tibshirani (1993), "An introduction to the bootstrap", chapters 8 and 13.
"""

from __future__ import annotations

import math
import warnings
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from typing import NamedTuple

import numpy as np

from horde_agent.scoring.excursion_table import ExcursionTable
from horde_agent.scoring.intervals import Resampler, student_t
from horde_agent.scoring.nmsre import TAU
from horde_agent.scoring.two_pass_nmsre import policy_scores
from horde_agent.types import Bools, Floats, Integers

NEWEST = 300
"""Excursions of each policy that are drawn: earlier ones have 2e-14 of the weight."""
FEWEST = 10
"""Excursions of a policy without which a run has no intervals."""
LEVEL = 0.95
N_RESAMPLES = 2_000
_FEWEST_RESAMPLES = 200
_MOST_PRODUCTS = 4e9  # of counts and excursions, in all draws together
# Of freedom: half of those of the effective number of excursions, because squared errors have heavy
# tails. With 18, 11 to 20 % of 300 comparisons of equal paired runs named a question, with 9 3 %.
_DEGREES = 9
_SPREAD = math.sqrt((_DEGREES + 1) / _DEGREES)  # of a mean, over that of its draws


class NewestTests(NamedTuple):
    """The newest excursions of a policy in a run; its n questions are the same in the other run.

    Attributes:
        names: Of the questions.
        step: At which each began, shape (n_excursions,).
        squares: Squared errors, shape (n_excursions, n); NaN where a question was not tested.
        returns: In the same shape.
        variance: Of all returns of the run, shape (n,).
        is_constant: Whether these do not vary, shape (n,).
        is_whole: Whether there are no earlier excursions.
    """

    names: list[str]
    step: Integers
    squares: Floats
    returns: Floats
    variance: Floats
    is_constant: Bools
    is_whole: bool

    def is_same(self, other: NewestTests) -> bool:
        """Return whether these are the same excursions, with the same returns."""
        return np.array_equal(self.step, other.step) and np.array_equal(
            self.returns, other.returns, equal_nan=True
        )

    def in_order(self, names: Sequence[str]) -> NewestTests:
        """Return these tests with their questions in another order."""
        columns = [self.names.index(name) for name in names]
        return self._replace(
            names=list(names),
            squares=self.squares[:, columns],
            returns=self.returns[:, columns],
            variance=self.variance[columns],
            is_constant=self.is_constant[columns],
        )


class QuestionRatio(NamedTuple):
    """A question's NMSRE in the second run over that in the first, with its interval.

    Attributes:
        low, high: Ends of its 95 % interval.
        is_clear: Whether 1 is outside an interval of the level 1 - .05 / n, for n questions: with
            runs that do not differ, 5 % of comparisons have any such question.
    """

    low: float
    high: float
    is_clear: bool


class Ratios(NamedTuple):
    """How the NMSRE of two runs compare.

    Attributes:
        low, high: Ends of the 95 % interval of the median ratio over the questions.
        is_paired: Whether both runs made the same excursions.
        questions: By question.
    """

    low: float
    high: float
    is_paired: bool
    questions: dict[str, QuestionRatio]


def newest_tests(
    table: ExcursionTable, names: Sequence[str], shared: Sequence[str]
) -> dict[str, NewestTests]:
    """Return the newest excursions of each policy, by its name, with those of its questions that are shared.

    A policy that has none among the newest `BLOCK` excursions is left out. `names` are those of all
    demons of the table, in their order. Two passes.
    """
    scores = {one.number: one for one in policy_scores(table)}
    is_shared = np.isin(names, shared)
    columns = {k: np.flatnonzero(is_shared[one.policy.demons]) for k, one in scores.items()}
    newest: dict[int, deque[tuple[int, Floats, Floats]]] = {
        number: deque(maxlen=NEWEST) for number in scores
    }
    first = min((one.past.n for one in scores.values()), default=0)
    for chunk in table.chunks(first):
        for k, excursions in table.by_policy(chunk.records):
            steps = excursions.step.tolist()
            errors = excursions.errors[:, columns[k]]
            returns = excursions.returns[:, columns[k]]
            newest[k].extend(zip(steps, errors, returns, strict=True))
    tests = {}
    for k, one in scores.items():
        if not len(columns[k]) or not newest[k]:
            continue
        steps, errors, returns = (np.array(column) for column in zip(*newest[k], strict=True))
        tests[one.policy.name] = NewestTests(
            names=[names[demon] for demon in one.policy.demons[columns[k]]],
            step=steps,
            squares=errors**2,
            returns=returns,
            variance=one.variance[columns[k]],
            is_constant=one.moments.spread().is_constant[columns[k]],
            is_whole=len(steps) == one.n_excursions,
        )
    return tests


class _Sums:
    """Sums over excursions, of which each draw gives an NMSRE of the n questions of a policy."""

    def __init__(self, tests: NewestTests) -> None:
        is_known = ~np.isnan(tests.returns)
        self._is_known = is_known.astype(np.float64)
        self._weight = trace_weights(is_known, is_whole=tests.is_whole)
        self._squares = np.where(is_known, self._weight * tests.squares, 0.0)
        n = np.maximum(is_known.sum(axis=0), 1)
        filled = np.where(is_known, tests.returns, 0.0)
        self._returns = np.where(is_known, tests.returns - filled.sum(axis=0) / n, 0.0)
        self._is_constant = tests.is_constant
        newest = (self._returns**2).sum(axis=0) / n
        # Of all returns over that of the newest
        self._share = np.divide(tests.variance, newest, out=np.ones(len(n)), where=newest > 0.0)

    def log_nmsre(self, counts: Floats) -> Floats:
        """Return the logarithm of the NMSRE if excursion i was drawn counts[k, i] times, shape (n_draws, n)."""
        with np.errstate(divide="ignore", invalid="ignore"):
            errors = (counts @ self._squares) / (counts @ self._weight)
            n = counts @ self._is_known
            variance = (counts @ self._returns**2) / n - ((counts @ self._returns) / n) ** 2
            nmsre = errors / (np.maximum(variance, 0.0) * self._share)
            return np.where(self._is_constant, 0.0, np.log(nmsre))


def trace_weights(is_known: Bools, *, is_whole: bool) -> Floats:
    """Return the weight of each squared error in the last value of its `error_trace`, shape (n_excursions, n).

    `is_known` is whether an excursion tested a question, in the same shape; `is_whole` whether its
    first row is the first excursion, with which the trace began.

    Examples:
        >>> trace_weights(np.ones((3, 1), dtype=bool), is_whole=True).ravel().round(3).tolist()
        [0.81, 0.09, 0.1]
    """
    n_later = np.cumsum(is_known[::-1], axis=0)[::-1] - 1
    weights = np.where(is_known, (1.0 - 1.0 / TAU) ** n_later / TAU, 0.0)
    if is_whole:
        is_first = is_known & (np.cumsum(is_known, axis=0) == 1)
        weights[is_first] *= TAU
    return weights


def nmsre_ratios(
    first: Mapping[str, NewestTests], second: Mapping[str, NewestTests]
) -> Ratios | None:
    """Return how the second run's NMSRE compare with the first's; None without enough excursions.

    Both are from `newest_tests` with the same shared questions.
    """
    pairs = []
    for name, tests in first.items():
        tests_of_second = second.get(name)
        if tests_of_second is None or set(tests_of_second.names) != set(tests.names):
            continue
        pairs.append((tests, tests_of_second.in_order(tests.names)))
    n_least = min((len(tests.step) for pair in pairs for tests in pair), default=0)
    if n_least < FEWEST:
        return None
    is_paired = all(tests.is_same(other) for tests, other in pairs)
    draws = _Draws(pairs, is_paired=is_paired)
    medians = draws.medians[np.isfinite(draws.medians)]
    if not len(medians):
        return None
    ends = np.quantile(medians, [(1.0 - LEVEL) / 2.0, (1.0 + LEVEL) / 2.0])
    deviations = _SPREAD * draws.deviations
    reach = student_t(_DEGREES, LEVEL) * deviations
    names = [name for tests, _ in pairs for name in tests.names]
    level_of_all = 1.0 - (1.0 - LEVEL) / len(names)
    is_clear = np.abs(draws.observed) > student_t(_DEGREES, level_of_all) * deviations
    columns = (np.exp(draws.observed - reach), np.exp(draws.observed + reach), is_clear)
    questions = {
        name: QuestionRatio(*values)
        for name, *values in zip(names, *(column.tolist() for column in columns), strict=True)
    }
    return Ratios(math.exp(ends[0]), math.exp(ends[1]), is_paired, questions)


class _Draws:
    """Log ratios of the NMSRE of n questions, observed and in draws of the excursions.

    Attributes:
        observed: Shape (n,).
        medians: Median over the questions in each draw, shape (n_draws,).
        deviations: Standard deviation over the draws, shape (n,).
    """

    def __init__(
        self, pairs: Sequence[tuple[NewestTests, NewestTests]], *, is_paired: bool
    ) -> None:
        sums = [(_Sums(one), _Sums(other)) for one, other in pairs]
        places = []  # of the excursions of both runs in a draw
        n = 0
        for one, other in pairs:
            of_first = slice(n, n + len(one.step))
            n = of_first.stop
            of_second = of_first
            if not is_paired:
                of_second = slice(n, n + len(other.step))
                n = of_second.stop
            places.append((of_first, of_second))

        def log_ratios(counts: Floats) -> Floats:
            ratios = []
            for (one, other), (of_first, of_second) in zip(sums, places, strict=True):
                first = one.log_nmsre(counts[:, of_first])
                second = other.log_nmsre(counts[:, of_second])
                # Both are infinite if no return of the draw varies
                with np.errstate(invalid="ignore"):
                    ratios.append(second - first)
            return np.concatenate(ratios, axis=1)

        n_products = 8 * sum(tests.squares.size for pair in pairs for tests in pair)
        n_draws = int(np.clip(_MOST_PRODUCTS / n_products, _FEWEST_RESAMPLES, N_RESAMPLES))
        self.observed = log_ratios(np.ones((1, n)))[0]
        self.medians, self.deviations = _over_draws(log_ratios, Resampler(n, n_resamples=n_draws))


def _over_draws(
    log_ratios: Callable[[Floats], Floats], resampler: Resampler
) -> tuple[Floats, Floats]:
    """Return the median in each draw, (n_draws,), and the standard deviation of each column, (n,)."""
    medians = []
    total: Floats = np.zeros(0)
    for counts in resampler.blocks():
        ratios = log_ratios(counts)
        is_known = np.isfinite(ratios)
        finite_ratios = np.where(is_known, ratios, np.nan)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", RuntimeWarning)  # a draw in which no ratio is known
            medians.append(np.nanmedian(finite_ratios, axis=1))
        filled = np.where(is_known, ratios, 0.0)
        sums = np.array([is_known.sum(axis=0), filled.sum(axis=0), (filled**2).sum(axis=0)])
        if total.size:
            sums += total
        total = sums
    n = np.maximum(total[0], 1.0)
    variance = total[2] / n - (total[1] / n) ** 2
    return np.concatenate(medians), np.sqrt(np.maximum(variance, 0.0))
