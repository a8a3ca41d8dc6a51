"""A robot that passes its check, and can be harmed. For tests only."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np

from horde_env.backend import Frame
from horde_env.robot import Floats, critterbot
from horde_env.robots.critterbot import checks
from horde_env.robots.critterbot.safety import VoltageMonitor
from tests.env.toy import ToyBody

SPEC = critterbot()
WHEELS = SPEC.group("motor_velocity")
Harm = Callable[[Frame, Floats], Frame]  # a changed frame, from the frame and the request


def setting(**channels: float) -> Harm:
    """Hold channels at a value, in SI units."""

    def harm(frame: Frame, request: Floats) -> Frame:
        values = frame.values.copy()
        for name, value in channels.items():
            values[SPEC.index(name)] = value
        return replace(frame, values=values)

    return harm


class Robot(ToyBody):
    """The toy body with the readings of a healthy robot, changed by `harm`; `motion` maps the request to its motion."""

    command_monitor = VoltageMonitor

    def __init__(
        self,
        harm: Harm = lambda frame, _: frame,
        motion: Callable[[Floats], Floats] = lambda request: request,
    ) -> None:
        super().__init__()
        self.harm = harm
        self.motion = motion
        self.requests: list[Floats] = []
        self.reason = ""

    def reset(self, rng: np.random.Generator) -> Frame:
        super().reset(rng)
        return self._shown(self.place(0.0, 0.0, 0.0), np.zeros(3))

    def exchange(self, command: Floats) -> Frame:
        self.requests.append(command.copy())
        return self._shown(super().exchange(self.motion(command)), command)

    def _shown(self, frame: Frame, command: Floats) -> Frame:
        values = frame.values.copy()
        values[SPEC.index("bus_voltage")] = 16.5
        values[SPEC.group("battery_voltage")] = [16.7, 16.6, 16.6]
        wheels = checks.expected_wheels(self.velocity, SPEC)
        values[WHEELS] = wheels
        values[SPEC.group("motor_voltage")] = wheels
        values[SPEC.group("motor_current")] = 0.1 * np.abs(wheels)
        values[SPEC.group("motor_temperature")] = 0.5
        values[SPEC.group("ir_distance")] = 0.3
        for name in checks.CHECKS.lively:
            values[SPEC.group(name)] += self._rng.normal(0.0, 1e-3, len(values[SPEC.group(name)]))
        return self.harm(replace(frame, values=values, extras={"packets": 10}), command)


Instead = Callable[[Robot], Robot]  # of the fixtures `instead` and `run`
Run = Callable[..., Any]
