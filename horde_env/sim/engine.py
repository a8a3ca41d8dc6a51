"""The interface of the physics engines, PyBullet and the planar one, and the states of the body."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple, Protocol

import numpy as np
from numpy.typing import NDArray

from horde_env.backend import State
from horde_env.sim.tick import Drive, Supply

Floats = NDArray[np.float64]
Box = tuple[float, ...]  # centre x, y, size x, y, height, metres; rotation, radians, if it is rotated

WALL_FRICTION, WALL_RESTITUTION = 0.5, 1.0  # multiplied by the body's own, which its URDF holds


class Motion(NamedTuple):
    """Pose and velocity of the body: world frame, SI; the heading is not wrapped."""

    x: float
    y: float
    heading: float
    vx: float
    vy: float
    yaw_rate: float


class BodyState(NamedTuple):
    """The body at one 100 Hz instant, the input of all sensors: world frame of the pen, SI units.

    Attributes:
        x, y: Position of the body's centre, metres.
        heading: Radians counter-clockwise from x, in (-pi, pi].
        vx, vy, yaw_rate: Velocity, m/s and rad/s.
        ax, ay: Mean acceleration over the last 10 ms, contact impulses included, m/s^2.
        wheel_speed: Rim speeds, m/s, counter-clockwise positive, shape (3,).
        duty: PWM share of each wheel, -1..1, shape (3,).
        contact_n_s: Total contact impulse over the last 10 ms, N s.
    """

    x: float
    y: float
    heading: float
    vx: float
    vy: float
    yaw_rate: float
    ax: float
    ay: float
    wheel_speed: Floats
    duty: Floats
    contact_n_s: float


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

    def run(self, drive: Drive, supply: Supply, noise: Floats) -> Floats:
        """Run firmware, motors and body for n ticks under a constant power supply.

        Args:
            drive: State of firmware and motors, changed in place.
            supply: State of the power supply, and which wheel is stuck.
            noise: Standard normals for the encoders, a row for each tick, shape (n, 3), n >= 1.

        Returns:
            The motion at the end of each tick, one row in the order of `Motion`, shape (n, 6).
        """

    def contact_impulse(self) -> float:
        """Return the sum of the normal impulses on the body in the last tick, N s."""

    def close(self) -> None:
        """Close the engine. Closing twice does nothing."""
