"""Passes over all test excursions of a life, of which never more than a batch is held: a month has 200,000 of them.

The two-pass NMSRE needs the variance of all returns before its first value. So the first pass takes in variances and
the last error traces (`courses`), a second one what tables and pictures show: every value in its order
(`nmsre_along`), a curve that is thinned to what a picture resolves (`curves`), or a few predictions beside what came
(`dots`).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

import numpy as np

from horde_agent.measures.excursion_file import Batch, batches, evened, read_parts, rows_at_once
from horde_agent.measures.nmsre import Outcomes, normalise, trace_on
from horde_agent.measures.returns import PolicyUnderTest
from horde_agent.types import Bools, Floats, Integers

MOST_POINTS = 1200
"""Of a curve in a picture: one for each of its pixels."""
_MOST_NUMBERS = 4_000_000  # of all curves together: 32 MB
MOST_DOTS = 2000


class PastExcursions:
    """All complete excursions of a life, to be gone through as often as it takes.

    Args:
        policies: Those that were tested.
        n_demons: Of the Horde.
        source: Begins a pass from the first excursion on.
    """

    def __init__(
        self, policies: Sequence[PolicyUnderTest], n_demons: int, source: Callable[[], Iterable[Batch]]
    ) -> None:
        self.policies, self.n_demons, self._source = list(policies), n_demons, source

    @classmethod
    def read(cls, path: Path) -> PastExcursions:
        """Return those of a run; where demons came or went, of those that there were in the end.

        Raises:
            FileNotFoundError: If there is no such file.
            ValueError: If the file holds no excursions.
        """
        files = read_parts(path)
        policies = files.policies[-1]
        return cls(policies, files.n_demons, lambda: batches(files, policies))

    def __iter__(self) -> Iterator[Batch]:
        return evened(self._source(), rows_at_once(self.policies))

    def outcomes(self) -> list[Outcomes]:
        """Return each policy's excursions, all of them at once, where they fit in memory."""
        found: dict[int, list[tuple[Integers, Floats, Floats]]] = {}
        for batch in self:
            for k in np.unique(batch.policy).tolist():
                mine, predictions, returns = batch.of(k, len(self.policies[k].demons))
                found.setdefault(k, []).append((batch.step[mine], predictions, returns))
        columns = {k: [np.concatenate(parts) for parts in zip(*found[k], strict=True)] for k in sorted(found)}
        return [Outcomes(self.policies[k], *parts) for k, parts in columns.items()]


class Course(NamedTuple):
    """What the excursions of one policy came to.

    Attributes:
        number: Of the policy, among all.
        policy: The policy with its n demons.
        step: Step at which each excursion began, shape (n_excursions,).
        n_tests: PastExcursions that tested each demon, shape (n,).
        variance: Of each question's returns, shape (n,); NaN where there are none.
        trace: The last error trace, shape (n,); NaN where there is none.
    """

    number: int
    policy: PolicyUnderTest
    step: Integers
    n_tests: Integers
    variance: Floats
    trace: Floats

    def nmsre(self) -> Floats:
        """Return the last two-pass NMSRE, shape (n,); NaN where tested fewer than two times."""
        return np.where(self.n_tests >= 2, normalise(self.trace, self.variance), np.nan)


class _Sums:
    """The running sums of a policy's n demons.

    Source: Chan, Golub & LeVeque (1979), for sums of squares of one batch after the other.
    """

    def __init__(self, n: int) -> None:
        self.steps: list[Integers] = []
        self.n, self.mean, self.squares = np.zeros(n, np.int64), np.zeros(n), np.zeros(n)
        self.trace = np.full(n, np.nan)

    def add(self, step: Integers, predictions: Floats, returns: Floats) -> None:
        """Take in excursions of the policy, shape (n_excursions,) and (n_excursions, n)."""
        self.steps.append(step)
        trace_on((predictions - returns) ** 2, self.trace)
        known = ~np.isnan(returns)
        n = known.sum(axis=0)
        sums = np.where(known, returns, 0.0).sum(axis=0)
        mean = np.divide(sums, n, out=np.zeros(len(n)), where=n > 0)
        squares = np.where(known, (returns - mean) ** 2, 0.0).sum(axis=0)
        both = self.n + n
        share = np.divide(n, both, out=np.zeros(len(n)), where=both > 0)
        away = mean - self.mean
        self.squares += squares + away**2 * self.n * share
        self.mean = np.where(self.n == 0, mean, self.mean + away * share)
        self.n = both

    def course(self, number: int, policy: PolicyUnderTest) -> Course:
        """Return what they came to."""
        variance = np.divide(self.squares, self.n, out=np.full(len(self.n), np.nan), where=self.n > 0)
        return Course(number, policy, np.concatenate(self.steps), self.n, variance, self.trace)


def courses(tests: PastExcursions) -> list[Course]:
    """Return what each policy's excursions came to; a policy without one is left out. One pass."""
    sums = [_Sums(len(policy.demons)) for policy in tests.policies]
    for batch in tests:
        for k in np.unique(batch.policy).tolist():
            mine, predictions, returns = batch.of(k, len(tests.policies[k].demons))
            sums[k].add(batch.step[mine], predictions, returns)
    pairs = zip(sums, tests.policies, strict=True)
    return [one.course(k, policy) for k, (one, policy) in enumerate(pairs) if one.steps]


def final_nmsre(some: Iterable[Course], n_demons: int) -> Floats:
    """Return the last two-pass NMSRE per demon, shape (n_demons,); NaN where tested fewer than two times."""
    final = np.full(n_demons, np.nan)
    for course in some:
        final[course.policy.demons] = course.nmsre()
    return final


def nmsre_along(tests: PastExcursions, some: Sequence[Course]) -> Iterator[tuple[int, Course, Floats, float]]:
    """Yield each excursion in its order: when it began, its policy's course, the NMSRE after it, and the online mean.

    The NMSRE is that of the policy's n demons in two passes, shape (n,); the mean is that of all demons.
    """
    by_number = {course.number: course for course in some}
    traces = {k: np.full(len(course.policy.demons), np.nan) for k, course in by_number.items()}
    for batch in tests:
        values = {}
        for k in np.unique(batch.policy).tolist():
            _, predictions, returns = batch.of(k, len(traces[k]))
            trace = trace_on((predictions - returns) ** 2, traces[k])
            values[k] = iter(normalise(trace, by_number[k].variance))
        for k, step, online in zip(batch.policy.tolist(), batch.step.tolist(), batch.online.tolist(), strict=True):
            yield step, by_number[k], next(values[k]), online


class Curve(NamedTuple):
    """The NMSRE of one policy's questions over its excursions.

    Attributes:
        policy: The policy with its n demons.
        at: After how many of its excursions, shape (n_points,).
        nmsre: Shape (n_points, n).
    """

    policy: PolicyUnderTest
    at: Integers
    nmsre: Floats

    @classmethod
    def of(cls, held: Outcomes) -> Curve:
        """Return the curve at all excursions of a policy that are held."""
        return cls(held.policy, np.arange(1, len(held.step) + 1), held.nmsre())


def curves(tests: PastExcursions, some: Sequence[Course]) -> list[Curve]:
    """Return each policy's curve, at all its excursions, or at as many as a picture shows.

    All of them have their points at the same numbers of excursions, but for each one's last. One pass.
    """
    longest = max((len(course.step) for course in some), default=0)
    n_points = min(MOST_POINTS, max(_MOST_NUMBERS // max(tests.n_demons, 1), 50))
    grid = np.unique(np.linspace(1, longest, min(n_points, longest)).round().astype(np.int64))
    at = {course.number: np.union1d(grid[grid < len(course.step)], len(course.step)) for course in some}
    kept: dict[int, list[Floats]] = {k: [] for k in at}
    seen = dict.fromkeys(at, 0)
    for _, course, nmsre, _ in nmsre_along(tests, some):
        k = course.number
        seen[k] += 1
        if at[k][len(kept[k])] == seen[k]:
            kept[k].append(nmsre)
    return [Curve(course.policy, at[course.number], np.array(kept[course.number])) for course in some]


def dots(
    tests: PastExcursions, some: Sequence[Course], columns: Mapping[int, Integers]
) -> dict[int, tuple[Floats, Floats]]:
    """Return predictions and returns of the second half of each policy's excursions, at most `MOST_DOTS` of them.

    Args:
        tests: The excursions.
        some: What they came to.
        columns: Policy's number to places among its demons, shape (m,).

    Returns:
        Number to predictions and returns, both of shape (n_shown, m). One pass.
    """
    shown = {course.number: _shown(len(course.step)) for course in some if course.number in columns}
    kept: dict[int, list[tuple[Floats, Floats]]] = {k: [] for k in shown}
    seen = dict.fromkeys(shown, 0)
    for batch in tests:
        for k in np.unique(batch.policy).tolist():
            if k in shown:
                mine, predictions, returns = batch.of(k, len(tests.policies[k].demons))
                rows: Bools = np.isin(seen[k] + np.arange(mine.sum()), shown[k])
                kept[k].append((predictions[rows][:, columns[k]], returns[rows][:, columns[k]]))
                seen[k] += int(mine.sum())
    return {k: (np.concatenate([p for p, _ in some]), np.concatenate([r for _, r in some])) for k, some in kept.items()}


def _shown(n: int) -> Integers:
    """Return which of `n` excursions, from 0, are shown as dots: the second half, or some of it at even distances."""
    first = n // 2
    return np.unique(np.linspace(first, n - 1, min(n - first, MOST_DOTS)).round().astype(np.int64))
