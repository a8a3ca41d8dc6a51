"""What moves the robot's body: two engines behind one seam. PyBullet where it is asked for, the planar engine anywhere.

`bullet.PlanarBody` is the reference; `planar.PlanarBody` meets its poses and is many times faster.
"""

from __future__ import annotations

from collections.abc import Sequence
from importlib.util import find_spec
from typing import Literal, NamedTuple, Protocol, get_args

import numpy as np
from numpy.typing import NDArray

from horde_env.sim.tick import Drive, Supply

Floats = NDArray[np.float64]
Box = tuple[float, float, float, float, float]  # centre x, y, size x, y, height, metres
Physics = Literal["planar", "bullet"]
PHYSICS: tuple[Physics, ...] = get_args(Physics)

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
    """A body that slides and turns in the plane, among boxes that do not move."""

    @property
    def motion(self) -> Motion:
        """How the body moves now."""

    def place(self, x: float, y: float, heading: float) -> None:
        """Put the body at rest at a pose (metres, radians), with no memory of earlier contacts."""

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


def default_physics() -> Physics:
    """Return "bullet" where PyBullet is installed, else "planar". Nothing is imported to find out."""
    try:
        return "bullet" if find_spec("pybullet") is not None else "planar"
    except ValueError:  # a module of this name without a specification: somebody has put it out of reach
        return "planar"


def chosen(physics: str | None, *, window: bool = False) -> Physics:
    """Return the engine that is asked for, the default one for None, where it can be opened here.

    Raises:
        ValueError: If there is no such engine, or a window is asked of one that has none.
        BackendUnavailable: If it needs PyBullet and that is missing, or a display that is not there.
    """
    if physics is None:
        physics = "bullet" if window else default_physics()
    if physics not in PHYSICS:
        raise ValueError(f"unknown physics {physics!r}; choose one of {', '.join(PHYSICS)}")
    if physics == "bullet":
        from horde_env.sim import bullet

        bullet.require(window)
        return "bullet"
    if window:
        raise ValueError('the planar engine has no window of its own: ask for physics="bullet", or render the pen')
    return "planar"


def open_body(physics: Physics, boxes: Sequence[Box], *, tick_s: float, window: bool = False) -> Body:
    """Return the robot's body in the engine of that name.

    Raises:
        BackendUnavailable: See `chosen`.
    """
    if physics == "bullet":
        from horde_env.sim import bullet

        return bullet.PlanarBody(boxes, tick_s=tick_s, window=window)
    from horde_env.sim import planar

    return planar.PlanarBody(boxes, tick_s=tick_s)
