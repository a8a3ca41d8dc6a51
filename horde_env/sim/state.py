"""BodyState: all that the sensors may know of the body at one instant."""

from __future__ import annotations

from typing import NamedTuple

from horde_env.backend import Floats


class BodyState(NamedTuple):
    """The body at one 100 Hz instant, world frame of the pen, SI units.

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
