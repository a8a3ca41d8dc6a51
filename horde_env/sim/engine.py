"""The interface of the physics engines, PyBullet and the planar one."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple, Protocol

from horde_env.backend import State

Box = tuple[float, float, float, float, float]  # centre x, y, size x, y, height; metres

WALL_FRICTION, WALL_RESTITUTION = 0.5, 1.0  # multiplied by the body's own, which its URDF holds


class Motion(NamedTuple):
    """Pose and velocity of the body: world frame, SI; the heading is not wrapped."""

    x: float
    y: float
    heading: float
    vx: float
    vy: float
    yaw_rate: float


class Body(Protocol):
    """A body that slides and turns in the plane among fixed boxes.

    Attributes:
        is_restorable: Whether it stores all that `save` needs.
    """

    is_restorable: bool

    @property
    def motion(self) -> Motion:
        """The body's pose and velocity."""

    def place(self, x: float, y: float, heading: float) -> None:
        """Put the body at rest at a pose (metres, radians), with no memory of earlier contacts."""

    def save(self) -> State:
        """Return the body's state, if it `is_restorable`."""

    def restore(self, state: State) -> None:
        """Restore a state from `save`, in this or another process, bit for bit."""

    def step(self, force: Sequence[float]) -> Motion:
        """Apply (Fx N, Fy N, torque N m) of the world frame for one tick and return the motion at its end."""

    def contact_impulse(self) -> float:
        """Return the sum of the normal impulses on the body in the last tick, N s."""

    def close(self) -> None:
        """Close the engine. Closing twice does nothing."""
