"""A robot's own part of the commands, and the lines that a check prints."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from enum import StrEnum
from typing import Any, NamedTuple, Protocol

from horde_env.backend import Floats
from horde_env.hardware.settings import PortConfig
from horde_env.robot import RobotSpec


class Supervising(Protocol):
    """A supervisor: decides from a robot's frames whether it may move."""

    def judge(self, values: Floats, charge_state: int, t: float) -> str:
        """Return why the robot must not move, "" if it may; the text stays the same while the reason does.

        Args:
            values: All channels in SI units, shape (n_channels,).
            charge_state: The charge state as the robot reports it.
            t: Time of the frame in seconds.
        """


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
    """One step of a check: all channels in SI units, shape (n_channels,), and the step's info."""

    values: Floats
    info: Mapping[str, Any]
    reason: str = ""  # why the robot did not follow its command


class StopReport(NamedTuple):
    """The result of sending a stop; `text` says what to do if the robot has not stopped."""

    has_stopped: bool | None  # None if it did not answer
    text: str


class RobotChecks(NamedTuple):
    """A robot's own part of the commands: `checks.CHECKS` in its folder."""

    wheels: str  # the channel group of the wheels' speeds
    motors: tuple[str, ...]  # groups whose channels must change when the wheels are driven
    lively: tuple[str, ...]  # groups that must vary at rest
    may_rest: tuple[str, ...]  # those of `lively` whose channels may be constant, with a warning
    voltages: tuple[str, ...]  # groups that `judge_power` judges
    expected_wheels: Callable[[Floats, RobotSpec], Floats]  # the wheel speeds, m/s, of a request
    judge_power: Callable[[Sequence[StepEvent], RobotSpec], Line]
    supervisor: Callable[[RobotSpec], Supervising]
    # Opens the port of a backend ("serial", ...) for one stop
    send_stop: Callable[[PortConfig, str], StopReport]
    # The wiring fault that wheel speeds (measured, requested) show; "" if there is none.
    explain: Callable[[Floats, Floats], str] = lambda measured, requested: ""  # noqa: ARG005
