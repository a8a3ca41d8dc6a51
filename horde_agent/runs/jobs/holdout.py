"""Nexting on a recorded stream: learn on its first part, predict its last part, score against its own returns.

Source: Modayil, White & Sutton (2014), multi-timescale nexting: on-policy predictions (rho = 1) of every sensor.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import gymnasium
import numpy as np

from horde_agent.cluster import AnyHorde
from horde_agent.life.flags import are_followed, flags_of
from horde_agent.life.robot import UNKNOWN_POSE, RobotInfo
from horde_agent.life.student import Student, predict_along, relearn
from horde_agent.measures.nmsre import nmsre_at_rest
from horde_agent.measures.returns import is_sum_of_channel, returns_along
from horde_agent.record import Flag, Phase, Recorder, Row, Stream
from horde_agent.types import Floats, Integers

LEARNED_SHARE = 0.7
LEAST_ROWS = 11


class Holdout(NamedTuple):
    """Scores of the predictions on the held-out part of a stream.

    Attributes:
        channel, gamma: Cumulant and continuation of each question, shape (n_demons,).
        predictions, returns: Shape (n_held_out, n_demons); NaN in rows without a next row.
        variance: Of the held-out returns that are scored, shape (n_demons,).
        nmsre: Mean squared error / variance, exactly 1 if the returns do not vary, shape (n_demons,).
        nmsre_of_mean: The same for the constant predictor, the mean return of the learned part.
    """

    channel: Integers
    gamma: Floats
    predictions: Floats
    returns: Floats
    variance: Floats
    nmsre: Floats
    nmsre_of_mean: Floats

    @property
    def n_scored(self) -> int:
        """Number of scored rows: those with a next row."""
        return int((~np.isnan(self.returns)).all(axis=1).sum())


def read_log(env: gymnasium.Env[Any, Any], recorder: Recorder, steps: int | None = None) -> int:
    """Play a log to its end, or for `steps`, and record it; return the number of gaps.

    Action and probability are those of the log (info `action`, `b`); the environment ignores the action passed to it.
    """
    observation, info = env.reset()
    n_gaps, is_over, k = 0, False, 0
    while True:
        known = RobotInfo.of(info)
        flags = flags_of(known, begins=k == 0)
        n_gaps += int(k > 0 and bool(flags & Flag.GAP))
        is_over = is_over or k == steps
        action, b = int(known.action), float(known.b)
        phase = Phase.END if is_over else Phase.BEHAVE
        seen = np.array(observation, dtype=np.float32)
        recorder.write(Row(k, known.t, seen, action, b, phase, flags, UNKNOWN_POSE))
        if is_over:
            return n_gaps
        observation, _, terminated, truncated, info = env.step(action)
        is_over, k = terminated or truncated, k + 1


def returns_of(stream: Stream, channel: Integers, gamma: Floats) -> Floats:
    """Return sum_k gamma^k r_{t+k+1} for each row, truncated at gaps and at the end of the stream.

    Args:
        stream: The recorded stream.
        channel: The cumulant of each question, shape (n,).
        gamma: Its constant continuation, shape (n,).

    Returns:
        Shape (n_rows, n), in units of the channels; 0 in rows without a next row, for example the last one.
    """
    cumulants = stream.rows["observation"][:, channel].astype(np.float64)
    return returns_along(cumulants, gamma, are_followed(stream.rows["flags"]))


def learn_and_score(
    stream: Stream, student: Student, *, passes: int, observer: Callable[[Student, int], None] | None = None
) -> Holdout:
    """Learn from the first 70 % of a stream in several passes, and score the predictions on the rest.

    The last 30 % is not learned from. Rows without a next row, for example the last one, are not scored.

    Args:
        stream: The recorded stream.
        student: With a Horde whose questions have channels as cumulants and constant continuations.
        passes: Number of passes over the first part.
        observer: Called with the student and the step after each row that is learned from.

    Raises:
        ValueError: If the stream is shorter than ten steps, or a question's return cannot be computed from it.
    """
    if len(stream) < LEAST_ROWS:
        raise ValueError(
            f"a log of {max(len(stream) - 1, 0)} steps is too short to learn from and to score; {LEAST_ROWS - 1} are "
            "needed"
        )
    horde = student.horde
    channel, gamma = known_returns(horde)
    split = round(LEARNED_SHARE * len(stream))
    learned, held_out = stream[:split], stream[split:]
    scored = are_followed(held_out.rows["flags"])
    known = are_followed(learned.rows["flags"])
    if not (scored.any() and known.any()):
        raise ValueError("a part of the log has no two consecutive rows, so it cannot be learned from or scored")
    for _ in range(passes):
        relearn(learned, horde, student.interface, student=student, observer=observer)
    mean = returns_of(learned, channel, gamma)[known].mean(axis=0)
    actual, predictions = returns_of(held_out, channel, gamma), predict_along(held_out, horde, student.interface)
    variance = actual[scored].var(axis=0)
    return Holdout(
        channel=channel,
        gamma=gamma,
        predictions=predictions[:-1],
        returns=np.where(scored[:, np.newaxis], actual, np.nan)[:-1],
        variance=variance,
        nmsre=nmsre_at_rest(predictions[scored], actual[scored], variance),
        nmsre_of_mean=nmsre_at_rest(mean, actual[scored], variance),
    )


def known_returns(horde: AnyHorde) -> tuple[Integers, Floats]:
    """Return the questions' channels and continuations, both of shape (n_demons,).

    Raises:
        ValueError: If a question's return cannot be computed from observations alone.
    """
    channels, gammas = [], []
    for question in horde.questions:
        if not is_sum_of_channel(question):
            raise ValueError(
                f"the return of {question.name} cannot be computed from a log: it needs a channel as its cumulant, a "
                f"constant gamma and no outcome"
            )
        channels.append(question.cumulant.index)  # type: ignore[union-attr]
        gammas.append(float(question.continuation))  # type: ignore[arg-type]
    return np.array(channels, dtype=np.int64), np.array(gammas)
