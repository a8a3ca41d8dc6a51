"""The log of a robot, which an environment plays, as rows of a data set without actions."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import gymnasium
import numpy as np

from horde_agent.interface import Interface
from horde_agent.life.counts import RobotInfo
from horde_agent.record import UNKNOWN_POSE, Phase, Recorder, Row, Stream
from horde_agent.runs.storage.run import record_header

_PART_ROWS = 4096


class PlayedLog:
    """A log that an environment plays, as consecutive `Stream`s, as a `Table` is; it can be read once.

    Attributes:
        header: Description of the robot, as in the header of a recording.
        notes, remarks, facts: Of a `Table`; a log has none.
    """

    notes: tuple[str, ...] = ()
    remarks: tuple[str, ...] = ()
    facts: tuple[str, ...] = ()

    def __init__(self, env: gymnasium.Env[Any, Any]) -> None:
        self._env = env
        described = record_header(env, Interface.of(env))
        self.header: dict[str, Any] = described | {"b_known": False, "has_actions": False}

    def __iter__(self) -> Iterator[Stream]:
        n_channels = len(self.header["channels"])
        recorder = Recorder(n_channels)
        for row in played_rows(self._env):
            recorder.write(row)
            if recorder.n_rows == _PART_ROWS:
                yield recorder.stream()
                recorder = Recorder(n_channels)
        if recorder.n_rows:
            yield recorder.stream()

    def check_fit(self) -> None:
        """Raise nothing: a log that is too short is refused before it is learned from."""


def played_rows(env: gymnasium.Env[Any, Any]) -> Iterator[Row]:
    """Play a log to its end, and yield its rows.

    Action and probability are those of the log (info `action`, `b`); the environment ignores the
    action passed to it.
    """
    observation, info = env.reset()
    robot_info = RobotInfo.of(info, begins=True)
    is_over = False
    k = 0
    while True:
        action = int(robot_info.action)
        if is_over:
            phase = Phase.END
        else:
            phase = Phase.BEHAVE
        yield Row(
            step=k,
            observation=np.array(observation, dtype=np.float32),
            action=action,
            b=float(robot_info.b),
            phase=phase,
            flags=robot_info.flags,
            reward=robot_info.reward,
            **robot_info.row_fields | {"pose": UNKNOWN_POSE},
        )
        if is_over:
            return
        observation, reward, terminated, truncated, info = env.step(action)
        robot_info = RobotInfo.of(info, reward=reward)
        is_over = terminated or truncated
        k += 1
