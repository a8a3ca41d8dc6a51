"""Nexting on a recorded log: learn on its first part, predict its last part, score against its own returns.

The log is read in consecutive parts, several times. A return runs across their borders, so one pass
computes how the return at the first row of each part depends on the part after it, and the next
pass computes the returns. They end at the end of the log or at the row before a gap, where each
predictor fills in the rest (`scoring.returns`); a row is scored if at most 5 % of its return lie
beyond.

Source: Modayil, White & Sutton (2014), multi-timescale nexting: on-policy predictions (rho = 1) of
    every sensor.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import chain, pairwise
from typing import Any, NamedTuple

import gymnasium
import numpy as np
from numpy.typing import NDArray

from horde_agent.learner import Learner
from horde_agent.life.flags import are_followed
from horde_agent.life.learner import PredictorAlong, StreamLearner, relearn
from horde_agent.life.observers import RowObserver
from horde_agent.life.robot import RobotInfo
from horde_agent.record import UNKNOWN_POSE, Flag, Phase, Recorder, Row, Stream
from horde_agent.refusals import BadInput
from horde_agent.scoring.moments import ReturnMoments
from horde_agent.scoring.returns import (
    NEGLIGIBLE_SHARE,
    NO_CHANNEL,
    MeasuredReturns,
    is_sum_of_channel,
    measured_along,
    n_terms_needed,
    persistent,
    unmeasured,
)
from horde_agent.types import Bools, Floats, Integers

LEARNED_SHARE = 0.7
LEAST_ROWS = 11
MOST_ROWS = 4096  # of a part
SHOWN = ("light_0", "ir_distance_0", "rotational_velocity")
"""Sensors that a reader of the report can picture: a lamp, a wall, a turn."""


class Holdout(NamedTuple):
    """Scores of the predictions on the held-out part of a log."""

    n_steps: int  # number of steps of the log
    n_gaps: int  # how many of them led to a gap
    n_learned: int  # number of rows of the part that was learned from
    n_scored: Integers  # number of scored rows of each question, shape (n_demons,)
    channel: Integers  # cumulant of each question, shape (n_demons,)
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

    @property
    def why_not(self) -> list[str]:
        """Reason of each question for which it may lack a score."""
        return [
            f"the held-out part of the log has fewer than 2 rows that {n_terms_needed(gamma):g} consecutive steps "
            f"follow, which gamma {gamma:g} needs: use a longer log"
            for gamma in self.gamma.tolist()
        ]


def read_log(env: gymnasium.Env[Any, Any], recorder: Recorder, steps: int | None = None) -> int:
    """Play a log to its end, or for `steps`, and record it; return the number of gaps.

    Action and probability are those of the log (info `action`, `b`); the environment ignores the
    action passed to it.
    """
    observation, info = env.reset()
    robot_info = RobotInfo.of(info, begins=True)
    n_gaps = 0
    is_over = False
    k = 0
    while True:
        n_gaps += int(k > 0 and bool(robot_info.flags & Flag.GAP))
        is_over = is_over or k == steps
        action = int(robot_info.action)
        b = float(robot_info.b)
        if is_over:
            phase = Phase.END
        else:
            phase = Phase.BEHAVE
        readings = np.array(observation, dtype=np.float32)
        row = Row(
            step=k,
            observation=readings,
            action=action,
            b=b,
            phase=phase,
            flags=robot_info.flags,
            reward=robot_info.reward,
            **robot_info.row_fields | {"pose": UNKNOWN_POSE},
        )
        recorder.write(row)
        if is_over:
            return n_gaps
        observation, reward, terminated, truncated, info = env.step(action)
        robot_info = RobotInfo.of(info, reward=reward)
        is_over = terminated or truncated
        k += 1


def learn(
    rows: Iterable[Stream], student: StreamLearner, passes: int, observer: RowObserver | None = None
) -> None:
    """Learn from the first 70 % of a log, in several passes; raise BadInput if it is too short."""
    known_returns(student.horde)
    n_learned, *_ = _split(rows)
    for part in (_between(rows, 0, n_learned), _between(rows, n_learned, None)):
        if not any(are_followed(extended["flags"]).any() for extended, _ in _with_next(part)):
            raise BadInput(
                "a part of the log has no two consecutive rows, so it cannot be learned from or scored"
            )
    for _ in range(passes):
        part = _between(rows, 0, n_learned)
        relearn(part, student.horde, student.interface, student=student, observer=observer)


def score(rows: Iterable[Stream], student: StreamLearner) -> Holdout:
    """Score the predictions on the last 30 % of a log."""
    horde = student.horde
    interface = student.interface
    channel, gamma = known_returns(horde)
    (n_learned, n_steps, n_gaps) = _split(rows)
    learned = ReturnMoments(horde.n_demons)
    of_log = _LogReturns(channel, gamma)
    for part, returns in of_log.along(rows, 0, n_learned):
        learned.add(np.where(part.follows[:, None], returns.terms, np.nan), returns.share)
    mean = learned.spread().mean
    held_out = ReturnMoments(horde.n_demons)
    sums = {name: np.zeros(horde.n_demons) for name in ("demons", "mean", "persistence")}
    shown: dict[int, list[Floats]] = {i: [] for i in shown_demons(interface.names, channel, gamma)}
    k = 0
    of_log.predictor = lambda: PredictorAlong(horde, interface)
    for part, returns in of_log.along(rows, n_learned, None):
        is_scored = part.follows[:, None] & (returns.share <= NEGLIGIBLE_SHARE)
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
        for i, pieces in shown.items():
            at = np.flatnonzero(is_scored[:, i])
            actual = returns.terms[at, i] + remainder[at, i]
            pieces.append(np.column_stack([k + at, predictions[at, i], actual]))
        k += part.n_rows
    is_known = held_out.n >= 2
    nmsre = {
        name: held_out.normalise(np.where(is_known, total / np.maximum(held_out.n, 1), np.nan))
        for name, total in sums.items()
    }
    spread = held_out.spread()
    return Holdout(
        n_steps=n_steps,
        n_gaps=n_gaps,
        n_learned=n_learned,
        n_scored=held_out.n,
        channel=channel,
        gamma=gamma,
        variance=np.where(is_known, spread.variance, np.nan),
        is_constant=is_known & spread.is_constant,
        nmsre=nmsre["demons"],
        nmsre_of_mean=nmsre["mean"],
        nmsre_of_persistence=nmsre["persistence"],
        shown={i: np.concatenate(pieces) for i, pieces in shown.items()},
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


def _split(rows: Iterable[Stream]) -> tuple[int, int, int]:
    """Return the number of rows to learn from, the number of steps of the log, and how many led to a gap."""
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
    return round(LEARNED_SHARE * n_rows), int(last - (first or 0)), n_gaps


def _between(rows: Iterable[Stream], begin: int, end: int | None) -> Iterator[Stream]:
    """Yield rows `begin` to `end` (excluded) in short parts."""
    first = 0
    for part in rows:
        inside = part[max(begin - first, 0) : None if end is None else max(end - first, 0)]
        first += len(part)
        for k in range(0, len(inside), MOST_ROWS):
            yield inside[k : k + MOST_ROWS]


def _with_next(parts: Iterable[Stream]) -> Iterator[tuple[NDArray[Any], Stream]]:
    """Yield each part with the first row of the next one appended, if there is one, and without it."""
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
            is_whole = part.follows.all()
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
        return measured_along(part.readings, self._gamma, are_followed(part.flags), ends)


class _Part(NamedTuple):
    """A part of a log; arrays have one more row if the part has a next one, and are of shape (n, n_demons).

    Attributes:
        n_rows: Number of rows of the part itself.
        flags: Flags of the rows, shape (n,).
        readings: The cumulants on reaching each row.
        predictions: Of the demons; 0 without a predictor, and in the row of the next part.
        persistence: Of "the present reading lasts".
    """

    n_rows: int
    flags: NDArray[np.unsignedinteger]
    readings: Floats
    predictions: Floats
    persistence: Floats

    @property
    def follows(self) -> Bools:
        """Whether each row of the part has a next one, shape (n_rows,)."""
        return are_followed(self.flags)[: self.n_rows]


def known_returns(horde: Learner) -> tuple[Integers, Floats]:
    """Return the questions' channels and continuations, shape (n_demons,); raise ValueError if a return is unknown."""
    channels = []
    gammas = []
    for question in horde.questions:
        if not is_sum_of_channel(question):
            raise ValueError(
                f"the return of {question.name} cannot be computed from a log: it needs a channel as its cumulant, a "
                f"constant gamma and no outcome"
            )
        channels.append(question.cumulant.index)  # type: ignore[union-attr]
        gammas.append(float(question.continuation))  # type: ignore[arg-type]
    return np.array(channels, dtype=np.int64), np.array(gammas)
