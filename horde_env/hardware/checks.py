"""A robot's own part of the commands, and the lines that a check prints."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from enum import StrEnum
from typing import Any, NamedTuple

from horde_env.backend import Floats
from horde_env.hardware.dialect import Supervising
from horde_env.hardware.settings import PortConfig
from horde_env.robot import RobotSpec


class Verdict(StrEnum):
    """The result of one line of a check."""

    OK = "ok"
    WARN = "warn"
    FAIL = "FAIL"
    SKIP = "skip"


class Line(NamedTuple):
    """One verdict of a check."""

    verdict: Verdict
    subject: str
    text: str


class StepEvent(NamedTuple):
    """One step of a check.

    Attributes:
        values: All channels in SI units, shape (n_channels,).
        info: The step's info.
        reason: Why the robot did not follow its command; "" if it did.
    """

    values: Floats
    info: Mapping[str, Any]
    reason: str = ""


class StopReport(NamedTuple):
    """The result of sending a stop.

    Attributes:
        has_stopped: Whether the robot has stopped; None if it did not answer.
        text: The result, and what to do if the robot has not stopped.
    """

    has_stopped: bool | None
    text: str


class RobotChecks(NamedTuple):
    """A robot's own part of the commands: `checks.CHECKS` in its folder.

    Attributes:
        wheels: The channel group of the wheels' speeds.
        motors: Groups whose channels must change when the wheels are driven.
        lively: Groups that must vary at rest.
        may_rest: Those of `lively` whose channels may be constant, with a warning.
        voltages: Groups that `judge_power` judges.
        expected_wheels: Returns the wheel speeds, m/s, that belong to a request.
        judge_power: Judges the batteries.
        supervisor: Makes the rules that keep the robot from moving.
        send_stop: Sends a stop over a port of its own to a robot behind a backend ("serial", ...).
        explain: Explains wheel speeds (measured, requested) that show a wiring fault; "" if they show none.
    """

    wheels: str
    motors: tuple[str, ...]
    lively: tuple[str, ...]
    may_rest: tuple[str, ...]
    voltages: tuple[str, ...]
    expected_wheels: Callable[[Floats, RobotSpec], Floats]
    judge_power: Callable[[Sequence[StepEvent], RobotSpec], Line]
    supervisor: Callable[[RobotSpec], Supervising]
    send_stop: Callable[[PortConfig, str], StopReport]
    explain: Callable[[Floats, Floats], str] = lambda measured, requested: ""  # noqa: ARG005
