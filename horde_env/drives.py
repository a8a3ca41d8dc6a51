"""Manoeuvres without the agent, and the rule that judges whether a body follows commands.

A robot's own drives are in its folder, as `DRIVES` in `drives`; a body may name others as `drives`.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from typing import Any, ClassVar, NamedTuple, Protocol, runtime_checkable

from horde_env.backend import Floats, Frame, Observation
from horde_env.robot import RobotSpec

CHARGE_LIMIT_S = 9 * 3600.0  # the longest full charge of a robot here takes 7.7 h
RECORD_S = 60.0  # between two recorded frames while charging


@runtime_checkable
class Chargeable(Protocol):
    """A body with charging that the host can allow."""

    def enable_charging(self, enabled: bool) -> None:
        """Allow charging at the dock, or forbid it (as after boot)."""


class Drive(Protocol):
    """A drive to the middle, or to free space."""

    def request(self, observation: Observation) -> Floats | None:
        """Process the newest observation; return the next request (m/s, m/s, rad/s), or None at the end."""


class Stay(ABC):
    """A stay at the dock: drive there, charge, leave; it depends on the frames alone.

    The body's charging is enabled at the dock, and disabled again in any case.
    """

    def __init__(self, body: Chargeable) -> None:
        self._body = body
        self.docked = self._is_ended = False
        self.is_charging = False  # whether charging is enabled now
        self.outcome = "not docked"  # for a log

    @abstractmethod
    def request(self, frame: Frame, observation: Observation) -> Floats | None:
        """Process the newest frame, raw and scaled; return the next request (m/s, m/s, rad/s), or None at the end."""

    def end(self) -> None:
        """Give up the drive, or stop charging and leave."""
        self._is_ended = True

    def stop_charging(self) -> None:
        """Disable charging if it is enabled."""
        if self.is_charging:
            self.is_charging = False
            self._body.enable_charging(False)


class Drives(NamedTuple):
    """The manoeuvres of a kind of robot, each None if it has none."""

    # From the robot and its place (`PenEnv.pen`)
    centring: Callable[[RobotSpec, Any], Drive] | None = None
    # The number: the longest charge in seconds
    stay: Callable[[RobotSpec, Chargeable, float], Stay] | None = None


class Obedience:
    """The rule of a robot that reports which commands it accepted: its body compares them, in `Frame.refusal`.

    `complaint` describes the fault in one or two sentences until a frame shows the contrary; ""
    without a fault.
    """

    saved: ClassVar[tuple[str, ...]] = ("complaint",)  # attributes that a saved environment keeps

    def __init__(self, spec: RobotSpec) -> None:  # noqa: ARG002  other rules need it
        self.forget()

    def forget(self) -> None:
        """Begin a life without a complaint."""
        self.complaint = ""

    def judge(self, request: Floats, frame: Frame) -> str:  # noqa: ARG002
        """Take the frame that ended a step under `request` (m/s, m/s, rad/s; shape (3,)) and return `complaint`."""
        if not frame.stale:
            self.complaint = frame.refusal
        return self.complaint

    def info(self) -> dict[str, int]:
        """Return `obeyed`, 0 or 1."""
        return {"obeyed": int(not self.complaint)}


class Unjudged(Obedience):
    """The rule of a body that names none as `obedience`, such as a recorded life: its frames have no refusal."""

    def info(self) -> dict[str, int]:
        """Return nothing."""
        return {}
