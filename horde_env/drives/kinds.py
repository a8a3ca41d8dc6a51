"""Drives: the manoeuvres of a kind of robot between episodes."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple, Protocol

from horde_env.backend import Floats, Frame, Observation
from horde_env.drives.charging import Chargeable, DockStay
from horde_env.drives.manoeuvre import CentringDrive
from horde_env.robot import RobotSpec


class Drive(Protocol):
    """A drive to the middle, or to free space."""

    def request(self, observation: Observation) -> Floats | None:
        """Process the newest observation; return the next request (m/s, m/s, rad/s), or None at the end."""


class Stay(Protocol):
    """A stay at the dock: drive there, charge, leave; see `charging.DockStay`."""

    docked: bool
    is_charging: bool
    outcome: str

    def request(self, frame: Frame, observation: Observation) -> Floats | None:
        """Process the newest frame, raw and scaled; return the next request (m/s, m/s, rad/s), or None at the end."""

    def end(self) -> None:
        """Give up the drive, or stop charging and leave."""

    def stop_charging(self) -> None:
        """Disable charging if it is enabled."""


class Drives(NamedTuple):
    """The manoeuvres of a kind of robot, each None if it has none.

    Attributes:
        centring: Returns a drive to the middle, from the robot and the side of its pen in metres.
        stay: Returns a stay at the dock, from the robot, its body and the longest charge in seconds.
    """

    centring: Callable[[RobotSpec, float], Drive] | None = None
    stay: Callable[[RobotSpec, Chargeable, float], Stay] | None = None


CRITTERBOT = Drives(CentringDrive, DockStay)
NONE = Drives()


def drives_of(backend: object, spec: RobotSpec) -> Drives:
    """Return a body's `drives`; by default the Critterbot's if it has those sensors."""
    own = getattr(backend, "drives", None)
    if own is not None:
        return own  # type: ignore[no-any-return]
    return CRITTERBOT if "ir_distance" in spec.groups else NONE
