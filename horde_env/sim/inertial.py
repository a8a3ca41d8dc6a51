"""Accelerometer, gyroscope and magnetometer: what the body feels, as plain functions of its state. SI units.

The constants were measured in the real robot's log of 5 October 2010 (100 Hz, 100 s); 1 LSB of the accelerometer is
9.81/1024 m/s^2, of the gyroscope 1/77.5 rad/s.
"""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import NDArray

from horde_env.sim.pen import Iron, Magnetism
from horde_env.sim.state import BodyState

Floats = NDArray[np.float64]

PACKET_S = 0.01
GRAVITY_Z = 9.81 * 978 / 1024  # the chip reads 4.5 % low: raw 978 of 1024 at rest
REST_X = -13 * 9.81 / 1024  # raw +13 at rest; the chip is turned, so negative in the body frame
CHIP_M = (-0.005, -0.014)  # of the accelerometer from the axis of rotation: regression of the log's x, y on yaw_rate^2
GYRO_OFFSET = 5 / 77.5

ROLLER_PITCH_M = 0.0147  # rim travel per shake: the log's 20 .. 23 Hz at about 18 wheel units
SHAKE_PER_SPEED = np.array([10.9, 12.0, 13.6])  # sd of the shaking over rim speed, (m/s^2)/(m/s), for x, y, z
SHAKE_MOST = np.array([1.35, 3.1, 3.7])  # sd that it does not pass, m/s^2
SHAKE_PHASE = 2.0 * math.pi * np.array([[0.0, 0.31, 0.67], [0.25, 0.90, 0.44], [0.58, 0.13, 0.79]])  # axis, wheel
RING_PER_IMPACT = 6.0  # vertical ringing, m/s^2 per N s of contact

MOTOR_FIELD = np.array([12.0, 0.3, 4.0])  # counts that one motor's full duty adds to x, y, z


def specific_force(previous: BodyState, body: BodyState) -> tuple[float, float]:
    """Return the accelerometer's (x forward, y left), m/s^2, from the body's motion alone.

    The chip sits beside the axis at r: a + alpha x r - yaw_rate^2 r, turned into the body frame.
    """
    c, s = math.cos(body.heading), math.sin(body.heading)
    alpha = (body.yaw_rate - previous.yaw_rate) / PACKET_S
    spin = body.yaw_rate * body.yaw_rate
    rx, ry = CHIP_M
    x = c * body.ax + s * body.ay - alpha * ry - spin * rx
    y = -s * body.ax + c * body.ay + alpha * rx - spin * ry
    return x, y


def shaking(wheel_speed: Floats, phase: Floats) -> Floats:
    """Return the vibration (x, y, z), m/s^2, of wheels at `wheel_speed` (3,) whose rollers stand at `phase` (3,) rad.

    Each wheel shakes each axis with a sine per roller; its size grows with the speed up to a bound.
    """
    size = np.minimum(np.outer(SHAKE_PER_SPEED, np.abs(wheel_speed)), SHAKE_MOST[:, None])
    shake: Floats = math.sqrt(2.0 / 3.0) * (size * np.sin(phase + SHAKE_PHASE)).sum(axis=1)
    return shake


def magnetic_counts(body: BodyState, earth: Magnetism, iron: tuple[Iron, ...]) -> Floats:
    """Return the magnetometer's counts (x, y, z), shape (3,): Earth's field, steel under the floor and the motors.

    Steel at depth h, r aside, adds its field times (1 + (r/h)^2)^(-3/2), as a dipole falls off. Only x is a live
    horizontal axis; y answers to nothing by more than a fraction of a count.
    """
    turn = body.heading - earth.north_rad
    east = north = up = 0.0
    for piece in iron:
        aside2 = (body.x - piece.position_m[0]) ** 2 + (body.y - piece.position_m[1]) ** 2
        near = (1.0 + aside2 / piece.depth_m**2) ** -1.5
        east, north, up = east + near * piece.field[0], north + near * piece.field[1], up + near * piece.field[2]
    live = math.cos(body.heading) * east + math.sin(body.heading) * north
    drive = float(body.duty[0] - 0.5 * body.duty[1] - 0.5 * body.duty[2])
    return np.array(
        [
            earth.centre[0] + earth.swing[0] * math.cos(turn) + live + MOTOR_FIELD[0] * drive,
            earth.centre[1] + earth.swing[1] * math.cos(turn) + MOTOR_FIELD[1] * drive,
            earth.centre[2] + earth.swing[2] * math.cos(turn) + up + MOTOR_FIELD[2] * drive,
        ]
    )
