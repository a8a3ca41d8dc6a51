"""What an engine that moves the robot's body looks like: the seam, with PyBullet and the planar engine behind it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple, Protocol

import numpy as np
from numpy.typing import NDArray

from horde_env.backend import State
from horde_env.sim.tick import Drive, Supply

Floats = NDArray[np.float64]
Box = tuple[float, ...]  # centre x, y, size x, y, height, metres; turned by, radians, where that is said

WALL_FRICTION, WALL_RESTITUTION = 0.5, 1.0  # multiplied by the body's own, which its URDF holds


class Motion(NamedTuple):
    """Where the body is and how it moves: world frame, SI; the heading grows without bound."""

    x: float
    y: float
    heading: float
    vx: float
    vy: float
    yaw_rate: float


class Body(Protocol):
    """A body that slides and turns in the plane, among boxes that do not move.

    Attributes:
        is_remembering: Whether it keeps what `save` needs.
    """

    is_remembering: bool

    @property
    def motion(self) -> Motion:
        """How the body moves now."""

    def place(self, x: float, y: float, heading: float) -> None:
        """Put the body at rest at a pose (metres, radians), with no memory of earlier contacts."""

    def save(self) -> State:
        """Return what the body's future depends on, where it `is_remembering`."""

    def restore(self, state: State) -> None:
        """Go on from what `save` returned, here or in another process: the same bits."""

    def step(self, force: Sequence[float]) -> Motion:
        """Apply (Fx N, Fy N, torque N m) of the world frame for one tick and return the motion at its end."""

    def run(self, drive: Drive, supply: Supply, noise: Floats) -> Floats:
        """Let firmware, motors and body run for some ticks during which the power supply stays as it is.

        Args:
            drive: State of firmware and motors, changed in place.
            supply: What the power supply says, and which wheel is stuck.
            noise: Standard normals for the encoders, a row for each tick, shape (n, 3), n >= 1.

        Returns:
            The motion at the end of each tick, one row in the order of `Motion`, shape (n, 6).
        """

    def contact_impulse(self) -> float:
        """Return the sum of the normal impulses on the body in the last tick, N s."""

    def close(self) -> None:
        """Let go of the body. Closing twice does nothing."""
