"""Nexting on a recorded log: learn on its first part, predict its last part, score against its own returns.

The log is read in consecutive parts, several times. A return runs across their borders, so one pass
computes how the return at the first row of each part depends on the part after it, and the next
pass computes the returns.

Source: Modayil, White & Sutton (2014), multi-timescale nexting: on-policy predictions (rho = 1) of
    every sensor.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from itertools import chain, pairwise
from typing import Any, NamedTuple

import gymnasium
import numpy as np
from numpy.typing import NDArray

from horde_agent.cluster import AnyHorde
from horde_agent.life.flags import are_followed, flags_of
from horde_agent.life.learner import StreamLearner, predict_along, relearn
from horde_agent.life.observers import RowObserver
from horde_agent.life.robot import UNKNOWN_POSE, RobotInfo, reward_number
from horde_agent.measures.nmsre import normalise
from horde_agent.measures.returns import NO_CHANNEL, is_sum_of_channel, returns_along
from horde_agent.record import Flag, Phase, Recorder, Row, Stream
from horde_agent.runs.config import BadInput
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
    n_scored: int  # number of scored rows: the held-out ones with a next row
    channel: Integers  # cumulant of each question, shape (n_demons,)
    gamma: Floats  # its continuation, shape (n_demons,)
    variance: Floats  # of the returns that are scored, shape (n_demons,)
    # Mean squared error / variance, exactly 1 if the returns do not vary, shape (n_demons,)
    nmsre: Floats
    # The same for the constant predictor, the mean return of the learned part
    nmsre_of_mean: Floats
    # For a few demons, by index: row of the held-out part, prediction, return, (n_scored, 3)
    shown: dict[int, Floats]


def read_log(env: gymnasium.Env[Any, Any], recorder: Recorder, steps: int | None = None) -> int:
    """Play a log to its end, or for `steps`, and record it; return the number of gaps.

    Action and probability are those of the log (info `action`, `b`); the environment ignores the
    action passed to it.
    """
    observation, info = env.reset()
    n_gaps = 0
    is_over = False
    reward = np.nan
    k = 0
    while True:
        robot_info = RobotInfo.of(info)
        flags = flags_of(robot_info, begins=k == 0)
        n_gaps += int(k > 0 and bool(flags & Flag.GAP))
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
            t=robot_info.t,
            observation=readings,
            action=action,
            b=b,
            phase=phase,
            flags=flags,
            pose=UNKNOWN_POSE,
            reward=reward,
        )
        recorder.write(row)
        if is_over:
            return n_gaps
        observation, task_reward, terminated, truncated, info = env.step(action)
        reward = reward_number(task_reward)
        is_over = terminated or truncated
        k = k + 1


def returns_of(
    rows: NDArray[Any], channel: Integers, gamma: Floats, last: Floats | float = 0.0
) -> Floats:
    """Return sum_k gamma^k r_{t+k+1} for each row, truncated at gaps and at the end.

    Args:
        rows: Of a recording.
        channel: The cumulant of each question, shape (n,).
        gamma: Its constant continuation, shape (n,).
        last: Return from the last row, if the log continues.

    Returns:
        Shape (n_rows, n), in units of the channels; 0 in rows without a next row.
    """
    return returns_along(
        rows["observation"][:, channel].astype(np.float64), gamma, are_followed(rows["flags"]), last
    )


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
    """Score the predictions on the last 30 % of a log. Rows without a next row are not scored."""
    horde = student.horde
    interface = student.interface
    channel, gamma = known_returns(horde)
    (n_learned, n_steps, n_gaps) = _split(rows)
    k = 0
    mean = Moments(horde.n_demons)
    for _, follows, returns in _with_returns(rows, 0, n_learned, channel, gamma):
        mean.add(returns[follows])
    actual, errors, of_mean = (Moments(horde.n_demons) for _ in range(3))
    shown: dict[int, list[Floats]] = {i: [] for i in shown_demons(interface.names, channel, gamma)}
    previous: Floats | None = None
    for part, follows, returns in _with_returns(rows, n_learned, None, channel, gamma):
        predictions = predict_along(part, horde, interface, previous)
        previous = predictions[-1].copy()
        actual.add(returns[follows])
        errors.add((predictions[follows] - returns[follows]) ** 2)
        of_mean.add((mean.mean - returns[follows]) ** 2)
        for i, pieces in shown.items():
            number = k + np.flatnonzero(follows)
            pieces.append(np.column_stack([number, predictions[follows, i], returns[follows, i]]))
        k += len(part)
    variance = actual.variance()
    return Holdout(
        n_steps=n_steps,
        n_gaps=n_gaps,
        n_learned=n_learned,
        n_scored=actual.n,
        channel=channel,
        gamma=gamma,
        variance=variance,
        nmsre=normalise(errors.mean, variance),
        nmsre_of_mean=normalise(of_mean.mean, variance),
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


class Moments:
    """Mean and variance of rows that are added in batches. Source: Chan, Golub & LeVeque (1979)."""

    def __init__(self, n: int) -> None:
        self.n = 0
        self.mean = np.zeros(n)
        self._squares = np.zeros(n)

    def add(self, values: Floats) -> None:
        """Add values, shape (n_rows, n)."""
        if not len(values):
            return
        mean = values.mean(axis=0)
        n = self.n + len(values)
        away = mean - self.mean
        self._squares += ((values - mean) ** 2).sum(axis=0) + away**2 * (self.n * len(values) / n)
        if self.n:
            mean = self.mean + away * (len(values) / n)
        self.mean = mean
        self.n = n

    def variance(self) -> Floats:
        """Return the variance of the rows so far, shape (n,)."""
        return self._squares / self.n


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


def _with_returns(
    rows: Iterable[Stream], begin: int, end: int | None, channel: Integers, gamma: Floats
) -> Iterator[tuple[Stream, Bools, Floats]]:
    """Yield each part of the rows `begin` to `end`, which of its rows have a next row, and the returns.

    The returns, of shape (n_rows, n_demons), are truncated at gaps and at `end`.
    """
    # Of each part: the return at its first row if 0 follows; its weight else
    borders: list[tuple[Floats, Floats]] = []
    for extended, part in _with_next(_between(rows, begin, end)):
        is_whole = are_followed(extended["flags"])[: len(part)].all()
        # A view would keep the whole part in memory
        first = returns_of(extended, channel, gamma)[0].copy()
        borders.append((first, gamma ** len(part) * is_whole))
    after: list[Floats | float] = [0.0]
    for first, weight in reversed(borders[1:]):
        after.append(first + weight * after[-1])
    for (extended, part), last in zip(
        _with_next(_between(rows, begin, end)), reversed(after), strict=True
    ):
        follows = are_followed(extended["flags"])
        returns = returns_of(extended, channel, gamma, last)
        yield part, follows[: len(part)], returns[: len(part)]


def known_returns(horde: AnyHorde) -> tuple[Integers, Floats]:
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
