"""Predictions and returns of a few questions over time: the rows of traces.csv."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np

from horde_agent.cluster import AnyHorde
from horde_agent.interface import Interface
from horde_agent.life.student import predict_along
from horde_agent.measures.passes import PolicyScores
from horde_agent.measures.returns import NO_CHANNEL, returns_along
from horde_agent.record import Phase, Stream
from horde_agent.types import Floats, Integers

COLUMNS = ("question", "channel", "panel", "t_s", "prediction", "actual")
SHOWN = ("light_0", "ir_distance_0", "rotational_velocity")
"""Sensors that a reader of the report can picture: a lamp, a wall, a turn."""

_NEGLIGIBLE = 0.05  # maximum share of a shown return beyond the end of the excursion


def shown_demons(channels: Sequence[str], channel: Integers, gamma: Floats) -> list[int]:
    """Return up to three questions to show, at the longest time scale: about channels in `SHOWN`, then others.

    `channel` and `gamma` are those of the questions, shape (n,); `channels` are the names.
    """
    preferred = [channels.index(name) for name in SHOWN if name in channels and channels.index(name) in channel]
    others = [c for c in dict.fromkeys(channel.tolist()) if c not in preferred and c != NO_CHANNEL]
    return [int(np.argmax(np.where(channel == c, gamma, -np.inf))) for c in [*preferred, *others][:3]]


def excursion_traces(
    stream: Stream,
    horde: AnyHorde,
    interface: Interface,
    tested: Sequence[PolicyScores],
    horizon: int,
) -> list[list[object]]:
    """Return the final predictions and the returns along each policy's last complete excursion.

    Nothing is learned in an excursion, so these observations are new to the Horde. The longest time scale is shown. An
    excursion that is not fully recorded, for example because the disk was full, is skipped.
    """
    lines: list[list[object]] = []
    channels = [channel.name for channel in interface.channels]
    for course in tested:
        policy, first = course.policy, _last_whole(stream, course, horizon)
        if first is None:
            continue
        observations = stream.rows["observation"][first : first + horizon + 1]
        predictions = predict_along(stream[first : first + horizon], horde, interface)
        for k in shown_demons(channels, policy.channel, policy.gamma):
            demon, channel, gamma = int(policy.demons[k]), int(policy.channel[k]), float(policy.gamma[k])
            actual = returns_along(observations[:, channel].astype(np.float64), gamma)[:-1]
            n_shown = len(actual) - (0 if gamma == 0.0 else int(np.log(_NEGLIGIBLE) / np.log(gamma)))
            for t in range(max(n_shown, 0)):
                facts = (t * interface.period_s, float(predictions[t, demon]), float(actual[t]))
                lines.append([horde.names[demon], channels[channel], policy.label(interface.actions), *facts])
    return lines


def _last_whole(stream: Stream, course: PolicyScores, horizon: int) -> int | None:
    """Return the first row of a policy's last fully recorded excursion; None if there is none."""
    is_begun = np.isin(stream.rows["step"], course.step) & (stream.rows["phase"] == Phase.EXCURSION)
    whole = np.flatnonzero(is_begun[: max(len(stream) - horizon, 0)])
    return int(whole[-1]) if whole.size else None


def holdout_traces(
    shown: Mapping[int, Floats], channel: Integers, horde: AnyHorde, channels: Sequence[str], period_s: float
) -> list[list[object]]:
    """Return the predictions and the returns of `Holdout.shown`; `channel` is of each demon, shape (n_demons,)."""
    return [
        [horde.names[demon], channels[channel[demon]], "held-out part of the log", t * period_s, prediction, actual]
        for demon, rows in shown.items()
        for t, prediction, actual in rows.tolist()
    ]
