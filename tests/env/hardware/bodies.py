"""Bodies over a virtual robot, for the contract's tests and others."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np

from horde_env.backend import Frame
from horde_env.hardware.settings import LinkSettings
from horde_env.robot import Floats
from horde_env.robots.critterbot.body import SerialBody
from tests.env.hardware.virtual import Line, VirtualRobot

FORWARD = np.array([0.35, 0.0, 0.0])  # 20 wire units
REST = np.zeros(3)


class PacedSerialBody(SerialBody):
    """A body that begins its own periods, where no environment shares its clock."""

    def exchange(self, command: Floats) -> Frame:
        self.clock.begin()
        return super().exchange(command)


def serial_body(robot: VirtualRobot, **rest: Any) -> SerialBody:
    settings = LinkSettings(threaded=False, **rest.pop("link", {}))
    time: dict[str, Any] = {"monotonic": robot.monotonic, "sleep": robot.sleep, "connect": robot.connect}
    return PacedSerialBody(robot.config, robot.clock(), settings=settings, **time | rest)


def on_a_line(folder: Path, **rest: Any) -> VirtualRobot:
    return VirtualRobot(Line(folder), **rest)
