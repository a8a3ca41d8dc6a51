"""Two-pass NMSRE from the table of excursions, read in chunks: a month has 200,000 excursions.

The two-pass NMSRE needs the variance of all returns before its first value. The first pass computes
the moments of the returns, the second the last error traces (`policy_scores`); a further one the
values for tables and pictures: those after each excursion in order (`nmsre_along`), a thinned curve
(`curves`), or some predictions and returns (`dots`).

In a long life only the newest `BLOCK` to 2 `BLOCK` excursions are scored so. The blocks before them are
its `Past`: their moments, traces, and every 16th point of a curve, and half as many whenever the age
doubles. Each block is added when it ends, and its records are not needed afterwards. So it may be folded
(`folding`), and scores have the same bits as those of the whole table. If persistence is the mean
return, a block's is the mean up to the end of this block.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import NamedTuple

import numpy as np

from horde_agent.saving import State, attributes, inner, nested, put_back
from horde_agent.scoring import excursion_table
from horde_agent.scoring.excursion_table import ExcursionTable, Folded
from horde_agent.scoring.nmsre import Outcomes, ReturnMoments, error_trace
from horde_agent.scoring.returns import PolicyUnderTest
from horde_agent.types import Bools, Floats, Integers

MOST_POINTS = 1200
"""Points of a curve in a picture, one per pixel."""
_MOST_NUMBERS = 4_000_000  # of all curves together: 32 MB
MOST_DOTS = 2000
EVERY = 16
"""Excursions of a block from one point of its curve to the next; a power of two."""
IN_FOLDED = "past"
"""The past's part of the state of folded excursions."""


class PolicyScores:
    """Scores of one policy's excursions, which are added batch by batch, in two passes.

    Attributes:
        number: Of the policy, among all.
        policy: The policy with its n demons.
        past: Of all policies, from which these scores continue.
        n_excursions: Excursions of the policy.
        moments: Of the returns.
        trace: The last error trace, shape (n,); NaN if there is none.
        persistence_trace: The same of "the present reading lasts", or of the mean return.
    """

    def __init__(self, number: int, policy: PolicyUnderTest, past: Past | None = None) -> None:
        self.number = number
        self.policy = policy
        if past is None:
            past = Past(number + 1, int(policy.demons.max(initial=-1)) + 1)
        self.past = past
        self._steps = list[Integers]()
        self.n_excursions = int(past.n_excursions[number])
        self.moments = past.moments.at(policy.demons)
        self.trace = past.trace[policy.demons]
        self.persistence_trace = past.persistence_trace[policy.demons]

    def add(self, excursions: Outcomes) -> None:
        """Add excursions of the policy: the first pass."""
        self._steps.append(excursions.step)
        self.n_excursions += len(excursions.step)
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
        """Step at which each excursion after the past began, in order."""
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


_POINT_ARRAYS = ("number", "step", "policy", "online", "n_excursions", "trace")


class Points:
    """Points of a curve of n_demons demons, each after an excursion.

    Attributes:
        number: Of the excursion, from 0, shape (n_points,).
        step: At which it began, of that shape.
        policy: Number of its policy, of that shape.
        online: Mean online NMSRE after it, of that shape.
        n_excursions: Excursions of each policy up to it, shape (n_points, n_policies).
        trace: Error traces after it, shape (n_points, n_demons).
    """

    def __init__(self, n_policies: int, n_demons: int) -> None:
        self.number: Integers = np.zeros(0, dtype=np.int64)
        self.step: Integers = np.zeros(0, dtype=np.int64)
        self.policy: Integers = np.zeros(0, dtype=np.int64)
        self.online: Floats = np.zeros(0)
        self.n_excursions: Integers = np.zeros((0, n_policies), dtype=np.int64)
        self.trace: Floats = np.zeros((0, n_demons))

    def add(self, points: Sequence[Mapping[str, object]]) -> None:
        """Add later points, each with its values by these names."""
        for name in _POINT_ARRAYS:
            values = getattr(self, name)
            later = np.array([point[name] for point in points], dtype=values.dtype)
            setattr(
                self, name, np.concatenate([values, later.reshape(len(points), *values.shape[1:])])
            )

    def keep(self, is_kept: Bools) -> None:
        """Remove the points that are not kept, shape (n_points,)."""
        for name in _POINT_ARRAYS:
            setattr(self, name, getattr(self, name)[is_kept])

    def rearrange(self, old_index: Integers, old_number: Integers) -> None:
        """Continue after demons and policies were added or removed; points after excursions of removed policies go.

        Args:
            old_index: The former number of each demon, -1 for later ones, shape (n_demons,).
            old_number: That of each policy, likewise, shape (n_policies,).
        """
        self.trace = np.where(old_index >= 0, self.trace[:, old_index], np.nan)
        self.n_excursions = np.where(old_number >= 0, self.n_excursions[:, old_number], 0)
        self.keep(np.isin(self.policy, old_number))
        new_number = {old: new for new, old in enumerate(old_number.tolist())}
        self.policy = np.array([new_number[old] for old in self.policy.tolist()], dtype=np.int64)

    def state(self) -> State:
        """Return the points."""
        return attributes(self, *_POINT_ARRAYS)

    def restore(self, state: State) -> None:
        """Continue from what `state` returned."""
        put_back(self, state, *_POINT_ARRAYS)


_PAST_STATE = ("n", "n_excursions", "trace", "persistence_trace")


class Past:
    """Scores and a thinned curve of all excursions but the newest, block by block.

    Attributes:
        n: Number of its excursions, a multiple of `BLOCK`.
        n_excursions: Those of each policy, shape (n_policies,).
        moments: Of the returns of all demons.
        trace: Error traces after it, shape (n_demons,); NaN without a test.
        persistence_trace: Those of "the present reading lasts".
        points: Of its curve.
    """

    def __init__(self, n_policies: int, n_demons: int) -> None:
        self.n = 0
        self.n_excursions: Integers = np.zeros(n_policies, dtype=np.int64)
        self.moments = ReturnMoments(n_demons)
        self.trace: Floats = np.full(n_demons, np.nan)
        self.persistence_trace: Floats = np.full(n_demons, np.nan)
        self.points = Points(n_policies, n_demons)

    @classmethod
    def of_folded(cls, folded: Folded) -> Past:
        """Return what was folded, for the demons and policies of now."""
        state = inner(folded.state, IN_FOLDED)
        past = cls(len(state["n_excursions"]), len(state["trace"]))
        put_back(past, state, *_PAST_STATE)
        past.moments.restore(inner(state, "moments"))
        past.points.restore(inner(state, "points"))
        old_index = folded.old_index
        old_number = folded.old_number
        past.n_excursions = np.where(old_number >= 0, past.n_excursions[old_number], 0)
        past.moments.rearrange(old_index)
        past.trace = np.where(old_index >= 0, past.trace[old_index], np.nan)
        past.persistence_trace = np.where(old_index >= 0, past.persistence_trace[old_index], np.nan)
        past.points.rearrange(old_index, old_number)
        return past

    def state(self) -> State:
        """Return everything that `of_folded` needs."""
        parts = nested(moments=self.moments.state(), points=self.points.state())
        return attributes(self, *_PAST_STATE) | parts

    def add_block(self, table: ExcursionTable) -> None:
        """Add the next block of a table."""
        end = self.n + excursion_table.BLOCK
        self._add_moments(table, end)
        scores = [PolicyScores(k, policy, self) for k, policy in enumerate(table.policies)]
        points = []
        n_excursions = self.n_excursions.copy()
        trace = self.trace.copy()
        for chunk in table.chunks(self.n, end, EVERY):
            for k, excursions in table.by_policy(chunk.records):
                scores[k].add_errors(excursions)
                trace[scores[k].policy.demons] = scores[k].trace
                n_excursions[k] += len(excursions.step)
            number = int(chunk.numbers[-1])
            if (number + 1) % EVERY == 0:  # else the last one of the chunk is damaged
                record = chunk.records[-1]
                point = {name: record[name] for name in ("step", "policy", "online")}
                counts = {"number": number, "n_excursions": n_excursions.copy()}
                points.append({**point, **counts, "trace": trace.copy()})
        for one in scores:
            demons = one.policy.demons
            self.trace[demons] = one.trace
            self.persistence_trace[demons] = one.persistence_trace
        self.n_excursions = n_excursions
        self.points.add(points)
        self.n = end
        self.points.keep(are_kept(self.points.number, end))

    def _add_moments(self, table: ExcursionTable, end: int) -> None:
        """Add the moments of the excursions before number `end`."""
        demons = np.arange(table.n_demons)
        # With a further column, since NumPy sums one column alone in another order
        moments = self.moments.at(np.append(demons, -1))
        for chunk in table.chunks(self.n, end, EVERY):
            terms = np.full((len(chunk.records), len(demons) + 1), np.nan)
            share = np.zeros_like(terms)
            first = 0
            for _, excursions in table.by_policy(chunk.records):
                rows = np.arange(first, first + len(excursions.step))[:, None]
                terms[rows, excursions.policy.demons] = excursions.returns
                share[rows, excursions.policy.demons] = excursions.share
                first += len(excursions.step)
            moments.add(terms, share)
        self.moments = moments.at(demons)


def are_kept(numbers: Integers, n_past: int) -> Bools:
    """Return which points of a curve stay, shape (n_points,), by their numbers from 0, all less than `n_past`.

    These are whole blocks. Every 16th point of the newest stays, every 32nd of the two blocks
    before, every 64th of the four before these, and so on: the longer the curve, the fewer.
    """
    block = excursion_table.BLOCK
    age = n_past // block - numbers // block
    distance = EVERY * 2 ** np.floor(np.log2(age)).astype(np.int64)
    return np.asarray((numbers + 1) % distance == 0)


def past_of(table: ExcursionTable, n: int | None = None) -> Past:
    """Return the past of a table: all whole blocks but the newest one, or those of its first `n` excursions."""
    folded = table.folded
    if folded is None:
        past = Past(len(table.policies), table.n_demons)
    else:
        past = Past.of_folded(folded)
    if n is None:
        n = table.n - excursion_table.BLOCK
    while past.n + excursion_table.BLOCK <= n:
        past.add_block(table)
    return past


def policy_scores(table: ExcursionTable) -> list[PolicyScores]:
    """Return the scores of each policy that has excursions. Two passes."""
    past = past_of(table)
    scores = [PolicyScores(k, policy, past) for k, policy in enumerate(table.policies)]
    for chunk in table.chunks(past.n):
        for k, excursions in table.by_policy(chunk.records):
            scores[k].add(excursions)
    for chunk in table.chunks(past.n):
        for k, excursions in table.by_policy(chunk.records):
            scores[k].add_errors(excursions)
    return [one for one in scores if one.n_excursions]


def final_nmsre(tested: Iterable[PolicyScores], n_demons: int) -> Floats:
    """Return the last two-pass NMSRE of each demon, shape (n_demons,); NaN where tested fewer than two times."""
    final = np.full(n_demons, np.nan)
    for one in tested:
        final[one.policy.demons] = one.last_nmsre()
    return final


class CurvePoint(NamedTuple):
    """The scores after an excursion.

    Attributes:
        number: Of the excursion, from 0.
        step: At which it began.
        scores: Of its policy.
        online: Mean online NMSRE after it, over all demons.
        nmsre: Two-pass NMSRE of each demon, shape (n_demons,); NaN without two tests. The next
            point changes it.
        n_excursions: Of each policy up to it, by its number. The next point changes it.
    """

    number: int
    step: int
    scores: PolicyScores
    online: float
    nmsre: Floats
    n_excursions: dict[int, int]


def nmsre_along(table: ExcursionTable, some: Sequence[PolicyScores]) -> Iterator[CurvePoint]:
    """Yield the points of a table's curve in order: those of its past, and one for each later excursion."""
    if not some:
        return
    by_number = {scores.number: scores for scores in some}
    past = some[0].past
    points = past.points
    nmsre = np.full(table.n_demons, np.nan)
    n_excursions = dict.fromkeys(by_number, 0)
    normalised = {
        k: one.moments.normalise(points.trace[:, one.policy.demons]) for k, one in by_number.items()
    }
    for i, number in enumerate(points.number.tolist()):
        for k, one in by_number.items():
            nmsre[one.policy.demons] = normalised[k][i]
            n_excursions[k] = int(points.n_excursions[i, k])
        yield CurvePoint(
            number=number,
            step=int(points.step[i]),
            scores=by_number[int(points.policy[i])],
            online=float(points.online[i]),
            nmsre=nmsre,
            n_excursions=n_excursions,
        )
    traces = {}
    for k, one in by_number.items():
        traces[k] = past.trace[one.policy.demons]
        nmsre[one.policy.demons] = one.moments.normalise(traces[k])
        n_excursions[k] = int(past.n_excursions[k])
    for chunk in table.chunks(past.n):
        values = {}
        for k, excursions in table.by_policy(chunk.records):
            trace = error_trace(excursions.errors**2, traces[k])
            values[k] = iter(by_number[k].moments.normalise(trace))
        facts = chunk.records[["policy", "step", "online"]].tolist()
        for number, (k, step, online) in zip(chunk.numbers.tolist(), facts, strict=True):
            nmsre[by_number[k].policy.demons] = next(values[k])
            n_excursions[k] += 1
            yield CurvePoint(number, step, by_number[k], online, nmsre, n_excursions)


class Curve(NamedTuple):
    """The NMSRE of one policy's questions over its excursions."""

    policy: PolicyUnderTest  # the policy with its n demons
    at: Integers  # after how many of its excursions, shape (n_points,)
    nmsre: Floats  # shape (n_points, n)


def curves(table: ExcursionTable, some: Sequence[PolicyScores]) -> list[Curve]:
    """Return each policy's curve, thinned to at most `MOST_POINTS` points. One pass.

    All curves have points at the same numbers of excursions, and each at its own last one. In the
    past, a point has the NMSRE after the last excursion before it that is known.
    """
    longest = max((scores.n_excursions for scores in some), default=0)
    n_points = min(MOST_POINTS, max(_MOST_NUMBERS // max(table.n_demons, 1), 50))
    grid = np.unique(np.linspace(1, longest, min(n_points, longest)).round().astype(np.int64))
    thinned = {}
    for scores in some:
        at = np.union1d(grid[grid < scores.n_excursions], scores.n_excursions)
        thinned[scores.number] = _ThinnedCurve(scores.policy, at)
    for point in nmsre_along(table, some):
        for k, curve in thinned.items():
            curve.add(point.n_excursions[k], point.nmsre)
    for scores in some:
        thinned[scores.number].end(scores.last_nmsre())
    return [
        Curve(scores.policy, thinned[scores.number].at, np.array(thinned[scores.number].nmsre))
        for scores in some
    ]


class _ThinnedCurve:
    """Makes the points of a policy's curve from those after some of its excursions.

    Attributes:
        at: After how many of its excursions, shape (n_points,).
        nmsre: So far, each (n,).
    """

    def __init__(self, policy: PolicyUnderTest, at: Integers) -> None:
        self.at = at
        self.nmsre: list[Floats] = []
        self._demons = policy.demons
        self._n_reached = 0
        self._latest: Floats = np.full(len(policy.demons), np.nan)

    def add(self, n_excursions: int, nmsre: Floats) -> None:
        """Add the NMSRE of all demons after a number of the policy's excursions."""
        if n_excursions == self._n_reached:
            return
        self._fill(n_excursions)
        self._n_reached = n_excursions
        self._latest = nmsre[self._demons]
        if len(self.nmsre) < len(self.at) and self.at[len(self.nmsre)] == n_excursions:
            self.nmsre.append(self._latest)

    def end(self, nmsre: Floats) -> None:
        """Add the last NMSRE of the policy's demons, shape (n,)."""
        self._fill(int(self.at[-1]))
        self.nmsre += [nmsre] * (len(self.at) - len(self.nmsre))

    def _fill(self, n_excursions: int) -> None:
        """Repeat the latest values up to before a number of excursions."""
        while len(self.nmsre) < len(self.at) and self.at[len(self.nmsre)] < n_excursions:
            self.nmsre.append(self._latest)


def dots(
    table: ExcursionTable, some: Sequence[PolicyScores], columns: Mapping[int, Integers]
) -> dict[int, tuple[Floats, Floats]]:
    """Return predictions and sums of the terms measured in the second half of each policy's excursions.

    At most `MOST_DOTS` of them, and none of the past.

    `columns` are places among a policy's demons, (m,), by its number; both results have the shape
    (n_shown, m). One pass.
    """
    shown = {}
    n_tests = {}
    first = 0
    for scores in some:
        if scores.number in columns:
            first = scores.past.n
            n_tests[scores.number] = int(scores.past.n_excursions[scores.number])
            shown[scores.number] = _shown(n_tests[scores.number], scores.n_excursions)
    kept: dict[int, list[tuple[Floats, Floats]]] = {k: [] for k in shown}
    for chunk in table.chunks(first):
        for k, excursions in table.by_policy(chunk.records):
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
        if some
    }


def _shown(n_past: int, n: int) -> Integers:
    """Return the indices of the excursions shown as dots: of the second half of `n`, evenly thinned, after the past."""
    first = max(n // 2, n_past)
    return np.unique(np.linspace(first, n - 1, min(n - first, MOST_DOTS)).round().astype(np.int64))
