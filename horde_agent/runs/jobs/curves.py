"""Predictions and returns of a few questions over time: the rows of traces.csv."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from horde_agent.cluster import AnyHorde
from horde_agent.interface import Interface
from horde_agent.life.student import predict_along
from horde_agent.measures.passes import PolicyScores
from horde_agent.measures.returns import NO_CHANNEL, returns_along
from horde_agent.record import Phase, Stream
from horde_agent.runs.jobs.holdout import Holdout

COLUMNS = ("question", "channel", "panel", "t_s", "prediction", "actual")
SHOWN = ("light_0", "ir_distance_0", "rotational_velocity")
"""Sensors that a reader of the report can picture: a lamp, a wall, a turn."""

_NEGLIGIBLE = 0.05  # maximum share of a shown return beyond the end of the excursion


def shown_channels(channels: Sequence[str], known: Sequence[int]) -> list[int]:
    """Return up to three channels to show: those in `SHOWN` that have questions, then others."""
    preferred = [channels.index(name) for name in SHOWN if name in channels and channels.index(name) in known]
    others = [channel for channel in dict.fromkeys(known) if channel not in preferred and channel != NO_CHANNEL]
    return [*preferred, *others][:3]


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

    Args:
        stream: The recorded life.
        horde: The demons.
        interface: The body's.
        tested: Scores of each policy.
        horizon: Steps of an excursion.
    """
    lines: list[list[object]] = []
    channels = [channel.name for channel in interface.channels]
    for course in tested:
        policy, first = course.policy, _last_whole(stream, course, horizon)
        if first is None:
            continue
        observations = stream.rows["observation"][first : first + horizon + 1]
        predictions = predict_along(stream[first : first + horizon], horde, interface)
        for channel in shown_channels(channels, policy.channel.tolist()):
            mine = np.flatnonzero(policy.channel == channel)
            k = int(mine[np.argmax(policy.gamma[mine])])
            demon, gamma = int(policy.demons[k]), float(policy.gamma[k])
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


def holdout_traces(holdout: Holdout, horde: AnyHorde, channels: Sequence[str], period_s: float) -> list[list[object]]:
    """Return the predictions and the returns along the held-out part of a log.

    Args:
        holdout: The scored part.
        horde: The demons.
        channels: Names of the channels.
        period_s: Duration of a step, in seconds.
    """
    lines: list[list[object]] = []
    for channel in shown_channels(channels, holdout.channel.tolist()):
        mine = np.flatnonzero(holdout.channel == channel)
        demon = int(mine[np.argmax(holdout.gamma[mine])])
        for t in np.flatnonzero(~np.isnan(holdout.returns[:, demon])).tolist():
            facts = (t * period_s, float(holdout.predictions[t, demon]), float(holdout.returns[t, demon]))
            lines.append([horde.names[demon], channels[channel], "held-out part of the log", *facts])
    return lines
