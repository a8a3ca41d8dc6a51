"""What a check says, and what it must know of a kind of robot."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from enum import StrEnum
from typing import Any, NamedTuple

from horde_env.backend import Floats
from horde_env.hardware.dialect import Supervising
from horde_env.robot import RobotSpec


class Verdict(StrEnum):
    """What was found."""

    OK = "ok"
    WARN = "warn"
    FAIL = "FAIL"
    SKIP = "skip"


class Line(NamedTuple):
    """One verdict of a check."""

    verdict: Verdict
    subject: str
    text: str


class Moment(NamedTuple):
    """One step: all channels in SI units, shape (n_channels,), its info, and why the robot did not obey, if so."""

    values: Floats
    info: Mapping[str, Any]
    reason: str = ""


class Anatomy(NamedTuple):
    """What a check must know of a kind of robot.

    Attributes:
        wheels: The group of its wheels' speeds.
        motors: Groups whose channels must change when the wheels are driven.
        lively: Groups that must flicker at rest.
        may_rest: Those of them of which standing still is only a warning.
        voltages: Groups that `judge_power` judges.
        expected_wheels: Returns the speeds that a request asks of the wheels, m/s.
        judge_power: Judges the batteries.
        supervisor: Makes what the robot is kept from.
        explain: Says what speeds (got, asked) give away of how it is wired; "" where nothing.
    """

    wheels: str
    motors: tuple[str, ...]
    lively: tuple[str, ...]
    may_rest: tuple[str, ...]
    voltages: tuple[str, ...]
    expected_wheels: Callable[[Floats, RobotSpec], Floats]
    judge_power: Callable[[Sequence[Moment], RobotSpec], Line]
    supervisor: Callable[[RobotSpec], Supervising]
    explain: Callable[[Floats, Floats], str] = lambda got, asked: ""  # noqa: ARG005
