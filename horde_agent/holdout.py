"""Nexting on a recorded stream: learn on its first part, predict its last part, score against its own returns.

Source: Modayil, White & Sutton (2014), multi-timescale nexting: on-policy predictions (rho = 1) of every sensor.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import gymnasium
import numpy as np
from numpy.typing import NDArray

from horde_agent.gvf import Channel
from horde_agent.horde import Horde
from horde_agent.nmsre import normalise
from horde_agent.record import Flag, Phase, Recorder, Row, Stream
from horde_agent.student import Student, predict_along, relearn

Floats = NDArray[np.float64]

LEARNED_SHARE = 0.7
LEAST_ROWS = 11


class Holdout(NamedTuple):
    """How well predictions did on the part of a stream that was not learned from.

    Attributes:
        channel, gamma: Cumulant and continuation of each question, shape (n_demons,).
        predictions, returns: Shape (n_held_out, n_demons).
        variance: Of the held-out returns, shape (n_demons,).
        nmsre: Mean squared error / variance, exactly 1 where nothing varies, shape (n_demons,).
        nmsre_of_mean: The same for the predictor that always says the mean return of the learned part.
    """

    channel: NDArray[np.int64]
    gamma: Floats
    predictions: Floats
    returns: Floats
    variance: Floats
    nmsre: Floats
    nmsre_of_mean: Floats


def read_log(env: gymnasium.Env[Any, Any], recorder: Recorder, steps: int | None = None) -> int:
    """Play a recorded life to its end, or for `steps`, and record it; return the number of its gaps.

    The action is the log's own where it tells one (info `action`, `b`); the environment ignores what it is given.
    """
    observation, info = env.reset()
    n_gaps, is_over, k = 0, False, 0
    while True:
        flags: int = Flag.GAP if k == 0 or info.get("gap", 0) else Flag.NONE
        if not info.get("applied", 1):
            flags |= Flag.NOT_APPLIED
        n_gaps += int(k > 0 and bool(flags & Flag.GAP))
        is_over = is_over or k == steps
        action, b = int(info.get("action", 0)), float(info.get("b", 1.0))
        phase = Phase.END if is_over else Phase.BEHAVE
        pose = (np.nan, np.nan, np.nan)
        recorder.write(
            Row(k, info.get("t", np.nan), np.array(observation, dtype=np.float32), action, b, phase, flags, pose)
        )
        if is_over:
            return n_gaps
        observation, _, terminated, truncated, info = env.step(action)
        is_over, k = terminated or truncated, k + 1


def returns_of(stream: Stream, channel: NDArray[np.int64], gamma: Floats) -> Floats:
    """Return sum_k gamma^k r_{t+k+1} for each row, truncated at gaps and where the stream ends.

    Args:
        stream: The recorded stream.
        channel: The cumulant of each question, shape (n,).
        gamma: Its constant continuation, shape (n,).

    Returns:
        Shape (n_rows, n), in units of the scaled channels; 0 in the last row, after which nothing comes.
    """
    rewards = stream.rows["observation"][:, channel].astype(np.float64)
    is_gap = (stream.rows["flags"] & Flag.GAP) > 0
    returns = np.zeros_like(rewards)
    for t in range(len(rewards) - 2, -1, -1):
        if not is_gap[t + 1]:
            returns[t] = rewards[t + 1] + gamma * returns[t + 1]
    return returns


def learn_and_score(
    stream: Stream, student: Student, *, passes: int, observer: Callable[[Student, int], None] | None = None
) -> Holdout:
    """Learn from the first 70 % of a stream, several times over, and score the predictions on the rest.

    Learning is off in the last 30 %. The last row of all is not scored: nothing follows it.

    Args:
        stream: The recorded stream.
        student: With a Horde whose questions have channels as cumulants and constant continuations.
        passes: How often to learn from the first part.
        observer: Called with the student and the step after each row that is learned from.

    Raises:
        ValueError: If the stream is shorter than ten steps, or a question's return is not known from it.
    """
    if len(stream) < LEAST_ROWS:
        raise ValueError(
            f"a log of {max(len(stream) - 1, 0)} steps is too short to learn from and to score; {LEAST_ROWS - 1} are "
            "needed"
        )
    horde = student.horde
    channel, gamma = known_returns(horde)
    split = round(LEARNED_SHARE * len(stream))
    for _ in range(passes):
        relearn(stream[:split], horde, student.interface, student=student, observer=observer)
    actual = returns_of(stream, channel, gamma)[split:-1]
    mean = returns_of(stream[:split], channel, gamma)[:-1].mean(axis=0)
    predictions = predict_along(stream[split:-1], horde, student.interface)
    variance = actual.var(axis=0)
    return Holdout(
        channel=channel,
        gamma=gamma,
        predictions=predictions,
        returns=actual,
        variance=variance,
        nmsre=normalise(((predictions - actual) ** 2).mean(axis=0), variance),
        nmsre_of_mean=normalise(((mean - actual) ** 2).mean(axis=0), variance),
    )


def known_returns(horde: Horde) -> tuple[NDArray[np.int64], Floats]:
    """Return the questions' channels and continuations, both of shape (n_demons,).

    Raises:
        ValueError: If a question's return is not known from observations alone.
    """
    channels, gammas = [], []
    for question in horde.questions:
        gamma = question.continuation
        if not isinstance(question.cumulant, Channel) or callable(gamma) or question.outcome != 0:
            raise ValueError(
                f"the return of {question.name} is not known from a log alone: it needs a channel as its cumulant, a "
                f"constant gamma and no outcome"
            )
        channels.append(question.cumulant.index)
        gammas.append(float(gamma))
    return np.array(channels, dtype=np.int64), np.array(gammas)
