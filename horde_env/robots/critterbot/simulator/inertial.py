"""Accelerometer, gyroscope and magnetometer: kernels on bare arrays, SI units.

The constants were measured in the real robot's log of 5 October 2010 (100 Hz, 100 s); 1 LSB of the accelerometer is
9.81/1024 m/s^2, of the gyroscope 1/77.5 rad/s. `motion` is (x, y, heading, yaw_rate, ax, ay) of the body in the world;
`normal` are standard normals, one per independent source of noise (all zero: the noise-free reading).
"""

from __future__ import annotations

import math

import numpy as np

from horde_env._jit import kernel
from horde_env.backend import Floats

PACKET_S = 0.01
G_LSB = 9.81 / 1024
GRAVITY_Z = 978 * G_LSB  # the chip reads 4.5 % low: raw 978 instead of 1024 at rest
REST_X = -13 * G_LSB  # raw +13 at rest; the chip is turned, so negative in the body frame
REST_SD = (0.9 * G_LSB, 0.9 * G_LSB, 2.9 * G_LSB)
CHIP_M = (-0.005, -0.014)  # of the accelerometer from the axis of rotation: regression of the log's x, y on yaw_rate^2

ROLLER_PITCH_M = 0.0147  # rim travel per shake: the log's 20 .. 23 Hz at about 18 wheel units
SHAKE_PER_SPEED = (10.9, 12.0, 13.6)  # sd of the shaking over rim speed, (m/s^2)/(m/s), for x, y, z
SHAKE_MOST = (1.35, 3.1, 3.7)  # its largest sd, m/s^2
SHAKE_PHASE = np.array([[0.0, 1.9, 4.2], [1.6, 5.7, 2.8], [3.6, 0.8, 5.0]])  # by axis and wheel: they differ
SHAKE_TONE = math.sqrt(0.5)  # the sines carry half of the shaking's power, noise the rest: the log's lag at 0.01 s
RING_PER_IMPULSE = 6.0  # vertical ringing of the body when hit, m/s^2 per N s

GYRO_OFFSET = 5 / 77.5
GYRO_SD = 2.6 / 77.5

MAGNETIC_SD = (2.2, 0.9, 0.7)  # counts
MOTOR_FIELD = (12.0, 0.3, 4.0)  # counts that one motor's full duty adds to x, y, z


@kernel
def acceleration(
    motion: Floats,
    yaw_rate_before: float,
    wheel_speed: Floats,
    roller: Floats,
    contact_n_s: float,
    normal: Floats,
    out: Floats,
) -> None:
    """Write the accelerometer (x forward, y left, z up): motion, gravity, shaking, noise; `normal` (7,).

    The chip at r from the axis measures a + alpha x r - yaw_rate^2 r in the body frame. Each wheel, with its rollers at
    phase `roller`, shakes each axis by a sine and equal noise, which grow with its speed up to a bound.
    """
    c, s = math.cos(motion[2]), math.sin(motion[2])
    alpha = (motion[3] - yaw_rate_before) / PACKET_S
    spin = motion[3] * motion[3]
    out[0] = c * motion[4] + s * motion[5] - alpha * CHIP_M[1] - spin * CHIP_M[0] + REST_X
    out[1] = -s * motion[4] + c * motion[5] + alpha * CHIP_M[0] - spin * CHIP_M[1]
    out[2] = GRAVITY_Z + RING_PER_IMPULSE * contact_n_s * normal[6]
    for axis in range(3):
        tone = power = 0.0
        for wheel in range(3):
            size = min(SHAKE_PER_SPEED[axis] * abs(wheel_speed[wheel]), SHAKE_MOST[axis])
            tone += size * math.sin(roller[wheel] + SHAKE_PHASE[axis, wheel])
            power += size * size
        out[axis] += SHAKE_TONE * math.sqrt(2.0 / 3.0) * tone
        out[axis] += math.sqrt((1.0 - SHAKE_TONE**2) * power / 3.0) * normal[3 + axis]
        out[axis] += REST_SD[axis] * normal[axis]


@kernel
def rotational_velocity(yaw_rate: float, normal: Floats, out: Floats) -> None:
    """Write the gyroscope's reading: the yaw rate, its offset, noise. `normal` (1,)."""
    out[0] = yaw_rate + GYRO_OFFSET + GYRO_SD * normal[0]


@kernel
def magnetic(motion: Floats, duty: Floats, earth: Floats, iron: Floats, normal: Floats, out: Floats) -> None:
    """Write the magnetometer as a share of 1023 counts: Earth, steel under the floor, motors, noise. `normal` (3,).

    `earth` is (north, centre x 3, swing x 3): centre + swing cos(heading - north). `iron` has rows (x, y, depth, field
    x 3), shape (i, 6): steel at depth h and horizontal distance r adds its field times (1 + (r/h)^2)^(-3/2), as of a
    dipole. Of the horizontal axes only x is sensitive.
    """
    swing = math.cos(motion[2] - earth[0])
    drive = duty[0] - 0.5 * duty[1] - 0.5 * duty[2]
    east = north = up = 0.0
    for i in range(iron.shape[0]):
        aside2 = (motion[0] - iron[i, 0]) ** 2 + (motion[1] - iron[i, 1]) ** 2
        near = (1.0 + aside2 / iron[i, 2] ** 2) ** -1.5
        east, north, up = east + near * iron[i, 3], north + near * iron[i, 4], up + near * iron[i, 5]
    for axis in range(3):
        counts = (
            earth[1 + axis] + earth[4 + axis] * swing + MOTOR_FIELD[axis] * drive + MAGNETIC_SD[axis] * normal[axis]
        )
        if axis == 0:
            counts += math.cos(motion[2]) * east + math.sin(motion[2]) * north
        elif axis == 2:
            counts += up
        out[axis] = counts / 1023.0


@kernel
def feel(
    motion: Floats,
    yaw_rate_before: float,
    wheel_speed: Floats,
    duty: Floats,
    contact_n_s: float,
    elapsed_s: float,
    earth: Floats,
    iron: Floats,
    roller: Floats,
    normal: Floats,
    out: Floats,
) -> None:
    """Advance the rollers; write acceleration, magnetic and rotational velocity; `normal` (11,), `out` (7,)."""
    for wheel in range(3):
        roller[wheel] += 2.0 * math.pi / ROLLER_PITCH_M * elapsed_s * wheel_speed[wheel]
    acceleration(motion, yaw_rate_before, wheel_speed, roller, contact_n_s, normal[:7], out[:3])
    magnetic(motion, duty, earth, iron, normal[7:10], out[3:6])
    rotational_velocity(motion[3], normal[10:], out[6:])
