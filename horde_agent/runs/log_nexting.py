"""Nexting on a recorded log: learn on its first part, predict its last part, score against its own returns.

The log is read in consecutive parts, several times. A return runs across their borders, so one pass
computes how the return at the first row of each part depends on the part after it, and the next
pass computes the returns. They end at the end of the log or at the row before a gap or before a missing
reading, where each
predictor fills in the rest (`scoring.returns`); a row is scored if at most 5 % of its return lie
beyond.

Source: Modayil, White & Sutton (2014), multi-timescale nexting: on-policy predictions (rho = 1) of
    every sensor.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import chain, pairwise
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from horde_agent.interface import Interface
from horde_agent.learner import Learner
from horde_agent.life.flags import are_followed
from horde_agent.life.learner import PredictorAlong
from horde_agent.record import Flag, Phase, Stream
from horde_agent.refusals import BadInput
from horde_agent.scoring.bands import BandFacts, Bands
from horde_agent.scoring.nmsre import ReturnMoments
from horde_agent.scoring.returns import (
    NEGLIGIBLE_SHARE,
    NO_CHANNEL,
    MeasuredReturns,
    are_read_next,
    is_sum_of_channel,
    measured_along,
    n_terms_needed,
    persistent,
    unmeasured,
)
from horde_agent.types import Bools, Floats, Integers

LEARNED_SHARE = 0.7
LEAST_ROWS = 11
ROWS_OF_A_TEST = (
    50  # between two returns for bands, at least, as those of two excursions do not overlap
)
MOST_ROWS = 4096  # of a part
_LARGEST_GAMMA = 1.0 - 1e-9  # larger ones have no return that ends
SHOWN = ("light_0", "ir_distance_0", "rotational_velocity")
"""Sensors that a reader of the report can picture: a lamp, a wall, a turn."""


class Holdout(NamedTuple):
    """Scores of the predictions on the held-out part of a log."""

    n_steps: int  # number of steps of the log
    n_gaps: int  # how many of them led to a gap
    n_learned: int  # number of rows of the part that was learned from
    n_scored: Integers  # number of scored rows of each question, shape (n_demons,)
    # Cumulant of each question, shape (n_demons,); NO_CHANNEL if its return cannot be computed
    channel: Integers
    gamma: Floats  # its continuation, shape (n_demons,)
    variance: Floats  # of the returns that are scored, shape (n_demons,); NaN without two
    is_constant: Bools  # whether these do not vary, shape (n_demons,)
    nmsre: Floats  # mean squared error / variance, shape (n_demons,)
    # The same for the constant predictor, the mean return of the learned part
    nmsre_of_mean: Floats
    # The same for "the present reading lasts"
    nmsre_of_persistence: Floats
    # For a few demons, by index: row of the held-out part, prediction, return, (n_scored, 3)
    shown: dict[int, Floats]
    bands: BandFacts | None = None
    by_history: Holdout | None = None

    @property
    def why_not(self) -> list[str]:
        """Reason of each question for which it may lack a score."""
        return [
            _why_not_scored(channel, gamma)
            for channel, gamma in zip(self.channel.tolist(), self.gamma.tolist(), strict=True)
        ]


class Border(NamedTuple):
    """Where the rows of a log that are learned from end, and what else there is.

    Attributes:
        n_learned: Number of rows that are learned from.
        last_learned_step: Step of the last one of them.
        n_steps: Number of steps of the log.
        n_gaps: How many of them led to a gap.
    """

    n_learned: int
    last_learned_step: int
    n_steps: int
    n_gaps: int


def border_of(rows: Iterable[Stream]) -> Border:
    """Return where the first 70 % of a log end; raise BadInput if a part is too short to learn from or to score."""
    n_rows = 0
    n_gaps = 0
    first = None
    last = 0
    phase = int(Phase.END)
    for part in rows:
        if len(part):
            if first is None:
                first = part.rows["step"][0]
            last = part.rows["step"][-1]
        phases = np.append(phase, part.rows["phase"])
        phase = int(phases[-1])
        n_gaps += int(
            np.count_nonzero((phases[:-1] == Phase.BEHAVE) & ((part.rows["flags"] & Flag.GAP) > 0))
        )
        n_rows += len(part)
    if n_rows < LEAST_ROWS:
        raise BadInput(
            f"a log of {max(n_rows - 1, 0)} steps is too short to learn from and to score; {LEAST_ROWS - 1} are needed"
        )
    n_learned = round(LEARNED_SHARE * n_rows)
    last_learned_step = 0
    for begin, end in ((0, n_learned), (n_learned, None)):
        is_followed = False
        for extended, part in _with_next(_between(rows, begin, end)):
            is_followed |= bool(are_followed(extended["flags"]).any())
            if end is not None:
                last_learned_step = int(part.rows["step"][-1])
        if not is_followed:
            raise BadInput(
                "a part of the log has no two consecutive rows, so it cannot be learned from or scored"
            )
    return Border(n_learned, last_learned_step, int(last - (first or 0)), n_gaps)


def score(rows: Iterable[Stream], horde: Learner, interface: Interface, border: Border) -> Holdout:
    """Score the predictions of a Horde's present weights on the last 30 % of a log, which begin at `border`."""
    n_learned = border.n_learned
    channel, gamma = returns_asked(horde)
    is_known = channel != NO_CHANNEL
    learned = ReturnMoments(horde.n_demons)
    of_log = _LogReturns(channel, gamma)
    for part, returns in of_log.along(rows, 0, n_learned):
        is_term = part.follows & is_known
        learned.add(np.where(is_term, returns.terms, np.nan), returns.share)
    mean = learned.spread().mean
    held_out = ReturnMoments(horde.n_demons)
    sums = {name: np.zeros(horde.n_demons) for name in ("demons", "mean", "persistence")}
    shown: dict[int, list[Floats]] = {i: [] for i in shown_demons(interface.names, channel, gamma)}
    bands = Bands(horde.n_demons)
    n_tests_apart = [
        math.ceil(n_terms_needed(one) / ROWS_OF_A_TEST) for one in np.minimum(gamma, _LARGEST_GAMMA)
    ]
    k = 0
    of_log.predictor = lambda: PredictorAlong(horde, interface)
    for part, returns in of_log.along(rows, n_learned, None):
        is_term = part.follows & is_known & part.is_read
        is_scored = is_term & (returns.share <= NEGLIGIBLE_SHARE)
        terms = np.where(is_scored, returns.terms, np.nan)
        held_out.add(terms, returns.share)
        remainder = returns.beyond(of_log.DEMONS)
        predictions = part.predictions[: part.n_rows]
        persistence = part.persistence[: part.n_rows]
        predicted = {
            "demons": predictions - remainder,
            "mean": mean * (1.0 - returns.share),
            "persistence": persistence - returns.beyond(of_log.PERSISTENCE),
        }
        for name, prediction in predicted.items():
            sums[name] += np.where(is_scored, (prediction - returns.terms) ** 2, 0.0).sum(axis=0)
        tests = np.arange(-k % ROWS_OF_A_TEST, part.n_rows, ROWS_OF_A_TEST)
        is_test = ((k + tests) // ROWS_OF_A_TEST)[:, None] % n_tests_apart == 0
        errors = np.where(is_test, (predicted["demons"] - terms)[tests], np.nan)
        bands.add(errors, np.arange(horde.n_demons))
        for i, pieces in shown.items():
            at = np.flatnonzero(is_scored[:, i])
            actual = returns.terms[at, i] + remainder[at, i]
            pieces.append(np.column_stack([k + at, predictions[at, i], actual]))
        k += part.n_rows
    nmsre = {
        name: held_out.normalise(total / np.maximum(held_out.n, 1)) for name, total in sums.items()
    }
    spread = held_out.spread()
    return Holdout(
        n_steps=border.n_steps,
        n_gaps=border.n_gaps,
        n_learned=n_learned,
        n_scored=held_out.n,
        channel=channel,
        gamma=gamma,
        variance=spread.variance,
        is_constant=spread.is_constant,
        nmsre=nmsre["demons"],
        nmsre_of_mean=nmsre["mean"],
        nmsre_of_persistence=nmsre["persistence"],
        shown={i: np.concatenate(pieces) for i, pieces in shown.items()},
        bands=bands.facts(),
    )


def _why_not_scored(channel: int, gamma: float) -> str:
    if channel == NO_CHANNEL:
        return (
            "the return cannot be computed from a log: it needs a channel as its cumulant, a constant gamma and no "
            "outcome"
        )
    return (
        f"the held-out part of the log has fewer than 2 rows that {n_terms_needed(gamma):g} consecutive steps follow, "
        f"which gamma {gamma:g} needs: use a longer log"
    )


def shown_demons(channels: Sequence[str], channel: Integers, gamma: Floats) -> list[int]:
    """Return up to three questions to show, at the longest time scale: about channels in `SHOWN`, then others.

    `channel` and `gamma` are those of the questions, shape (n,); `channels` are the names.
    """
    preferred = [
        channels.index(name)
        for name in SHOWN
        if name in channels and channels.index(name) in channel
    ]
    other_channels = [
        c for c in dict.fromkeys(channel.tolist()) if c not in preferred and c != NO_CHANNEL
    ]
    return [
        int(np.argmax(np.where(channel == c, gamma, -np.inf)))
        for c in [*preferred, *other_channels][:3]
    ]


def _between(rows: Iterable[Stream], begin: int, end: int | None) -> Iterator[Stream]:
    """Yield rows `begin` to `end` (excluded) in short parts."""
    first = 0
    for part in rows:
        inside = part[max(begin - first, 0) : None if end is None else max(end - first, 0)]
        first += len(part)
        for k in range(0, len(inside), MOST_ROWS):
            yield inside[k : k + MOST_ROWS]


def _with_next(parts: Iterable[Stream]) -> Iterator[tuple[NDArray[Any], Stream]]:
    """Yield each part with the first row of the next part, if another one follows, and without it."""
    for part, after in pairwise(chain(parts, [None])):
        assert part is not None
        yield part.rows if after is None else np.concatenate([part.rows, after.rows[:1]]), part


class _LogReturns:
    """The returns of a log's rows, by part.

    Args:
        channel: The cumulant of each question, shape (n_demons,).
        gamma: Its constant continuation, shape (n_demons,).

    Attributes:
        predictor: Returns a new predictor, for a further pass; None without one.
    """

    # Predictors of the return beyond the measured terms
    DEMONS = 0
    PERSISTENCE = 1

    def __init__(self, channel: Integers, gamma: Floats) -> None:
        self._channel = channel
        self._gamma = gamma
        self.predictor: Callable[[], PredictorAlong] | None = None

    def along(
        self, rows: Iterable[Stream], begin: int, end: int | None
    ) -> Iterator[tuple[_Part, MeasuredReturns]]:
        """Yield the parts of rows `begin` to `end` (excluded) with their returns, each (n_rows, n_demons)."""
        # Of each part: the returns at its first row if 0 follows it; the weight of what follows
        borders: list[tuple[Floats, Floats]] = []
        for part in self._parts(rows, begin, end):
            # A view would keep the whole part in memory
            first = self._returns(part, 0.0).parts[0].copy()
            is_whole = part.follows.all(axis=0)
            borders.append((first, self._gamma**part.n_rows * is_whole))
        after: list[Floats | float] = [0.0]
        for first, weight in reversed(borders[1:]):
            after.append(first + weight * after[-1])
        parts = self._parts(rows, begin, end)
        for part, following in zip(parts, reversed(after), strict=True):
            returns = self._returns(part, following)
            yield part, MeasuredReturns(returns.parts[: part.n_rows])

    def _parts(self, rows: Iterable[Stream], begin: int, end: int | None) -> Iterator[_Part]:
        predict = None
        if self.predictor is not None:
            predict = self.predictor()
        for extended, stream in _with_next(_between(rows, begin, end)):
            readings = extended["observation"][:, self._channel].astype(np.float64)
            predictions = np.zeros_like(readings)
            if predict is not None:
                predictions[: len(stream)] = predict(stream)
            yield _Part(
                n_rows=len(stream),
                flags=extended["flags"],
                readings=readings,
                predictions=predictions,
                persistence=persistent(readings, self._gamma),
            )

    def _returns(self, part: _Part, following: Floats | float) -> MeasuredReturns:
        """Return the returns of a part, and after it `following`, those of the first row of the next one."""
        is_terminal = (part.flags & Flag.TERMINATED) > 0
        ends = unmeasured(is_terminal, part.predictions, part.persistence)
        if len(part.flags) > part.n_rows:
            ends.parts[-1] = following
        return measured_along(part.readings, self._gamma, part.are_followed, ends)


class _Part(NamedTuple):
    """A part of a log; arrays have one more row if the part has a next one, and are of shape (n, n_demons).

    Attributes:
        n_rows: Number of rows of the part itself.
        flags: Flags of the rows, shape (n,).
        readings: The cumulants on reaching each row; NaN where one is missing.
        predictions: Of the demons; 0 without a predictor, and in the row of the next part.
        persistence: Of "the present reading lasts".
    """

    n_rows: int
    flags: NDArray[np.unsignedinteger]
    readings: Floats
    predictions: Floats
    persistence: Floats

    @property
    def are_followed(self) -> Bools:
        """Whether each row has a next one with the reading of a question, shape (n, n_demons)."""
        return are_read_next(are_followed(self.flags), self.readings)

    @property
    def follows(self) -> Bools:
        """The same of the rows of the part itself, shape (n_rows, n_demons)."""
        return self.are_followed[: self.n_rows]

    @property
    def is_read(self) -> Bools:
        """Whether each row of the part has the reading of a question, shape (n_rows, n_demons)."""
        return np.isfinite(self.readings[: self.n_rows])


def returns_asked(horde: Learner) -> tuple[Integers, Floats]:
    """Return the questions' channels and continuations; `NO_CHANNEL` and 0 if the return cannot be computed."""
    channel = np.full(horde.n_demons, NO_CHANNEL, dtype=np.int64)
    gamma = np.zeros(horde.n_demons)
    for i, question in enumerate(horde.questions):
        if is_sum_of_channel(question):
            channel[i] = question.cumulant.index  # type: ignore[union-attr]
            gamma[i] = float(question.continuation)  # type: ignore[arg-type]
    return channel, gamma
