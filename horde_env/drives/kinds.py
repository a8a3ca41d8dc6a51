"""Drives: what a body can do on its own between episodes; each kind of robot has its own, or none."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple, Protocol

from horde_env.backend import Floats, Frame, Observation
from horde_env.drives.charging import Chargeable, DockStay
from horde_env.drives.manoeuvre import CentringDrive
from horde_env.robot import RobotSpec


class Drive(Protocol):
    """A drive to the middle, or to wherever there is room."""

    def request(self, observation: Observation) -> Floats | None:
        """Take the newest observation and return the next request (m/s, m/s, rad/s), or None at the end."""


class Stay(Protocol):
    """A stay at the dock: the way there, the charging, the way off; see `charging.DockStay`."""

    docked: bool
    is_charging: bool
    outcome: str

    def request(self, frame: Frame, observation: Observation) -> Floats | None:
        """Take the newest frame, raw and scaled, and return the next request (m/s, m/s, rad/s), or None at the end."""

    def end(self) -> None:
        """Give up the drive, or stop charging and leave."""

    def stop_charging(self) -> None:
        """Disable the charging where it was enabled."""


class Drives(NamedTuple):
    """What a kind of robot does on its own.

    Attributes:
        centring: Makes a drive to the middle, from the robot and the side of its pen in metres; None where it has none.
        stay: Makes a stay at the dock, from the robot, its body and the longest charge in seconds; None likewise.
    """

    centring: Callable[[RobotSpec, float], Drive] | None = None
    stay: Callable[[RobotSpec, Chargeable, float], Stay] | None = None


CRITTERBOT = Drives(CentringDrive, DockStay)
NONE = Drives()


def drives_of(backend: object, spec: RobotSpec) -> Drives:
    """Return what a body can do: what it says itself (`drives`), else the Critterbot's where it has those sensors."""
    own = getattr(backend, "drives", None)
    if own is not None:
        return own  # type: ignore[no-any-return]
    return CRITTERBOT if "ir_distance" in spec.groups else NONE
