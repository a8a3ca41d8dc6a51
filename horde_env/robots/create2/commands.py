"""What is sent to the robot: opcodes with their operands, without checksum, length or reply. Pure functions.

A byte that is lost makes the robot wait for it and take the next opcode for an operand. So four zeros go before each
command of the wheels: as operands they are speed 0, as opcodes nothing. And no byte of a speed is itself an opcode
that acts (128..173, or 7, reset): -113 mm/s is FF 8F, and 8F sends a robot to its dock.

Source: iRobot Create 2 Open Interface Specification based on the Roomba 600 (2016).
"""

from __future__ import annotations

import math
from enum import IntEnum
from typing import NamedTuple

import numpy as np

from horde_env.backend import Floats
from horde_env.robot import RobotSpec
from horde_env.robots.create2.wire import GROUP


class Op(IntEnum):
    """Opcodes."""

    RESET = 7
    START = 128
    BAUD = 129
    CONTROL = 130
    SAFE = 131
    FULL = 132
    POWER = 133
    SPOT = 134
    CLEAN = 135
    MAX = 136
    DRIVE = 137
    MOTORS = 138
    LEDS = 139
    SONG = 140
    PLAY = 141
    SENSORS = 142
    DOCK = 143
    PWM_MOTORS = 144
    DRIVE_DIRECT = 145
    DRIVE_PWM = 146
    STREAM = 148
    QUERY_LIST = 149
    PAUSE_STREAM = 150
    SCHEDULE_LEDS = 162
    DIGITS_RAW = 163
    DIGITS_ASCII = 164
    BUTTONS = 165
    SCHEDULE = 167
    DAY_TIME = 168
    STOP = 173


OPERANDS = {
    Op.BAUD: 1, Op.DRIVE: 4, Op.MOTORS: 1, Op.LEDS: 3, Op.PLAY: 1, Op.SENSORS: 1, Op.PWM_MOTORS: 3,
    Op.DRIVE_DIRECT: 4, Op.DRIVE_PWM: 4, Op.PAUSE_STREAM: 1, Op.SCHEDULE_LEDS: 2, Op.DIGITS_RAW: 4,
    Op.DIGITS_ASCII: 4, Op.BUTTONS: 1, Op.SCHEDULE: 15, Op.DAY_TIME: 3,
}  # fmt: skip
"""How many bytes follow an opcode; none where it is not named. 140, 148 and 149 tell their own length."""

FASTEST = 500  # mm/s of a wheel


class Wheels(NamedTuple):
    """Speeds that the wheels are asked for, mm/s."""

    right: int
    left: int


PAD = bytes(4)
FILL = bytes(40)  # completes any command that an earlier program left half sent: the longest has 35 bytes
STREAM_ALL = bytes([Op.STREAM, 1, GROUP])


def drive_direct(wheels: Wheels | None) -> bytes:
    """Return the padded command that asks for two wheel speeds; a zero for None: the host lives, and asks for nothing.

    >>> drive_direct(Wheels(-199, -199)).hex(" ")
    '00 00 00 00 91 ff 39 ff 39'

    Raises:
        OverflowError: If a speed does not fit in two bytes.
    """
    if wheels is None:
        return PAD[:1]
    speeds = b"".join(speed.to_bytes(2, "big", signed=True) for speed in wheels)
    return PAD + bytes([Op.DRIVE_DIRECT]) + speeds


HALT = Wheels(0, 0)
STOP_BYTES = drive_direct(HALT)


def is_harmless(speed: int) -> bool:
    """Tell whether no byte of a speed, in either direction, is an opcode that acts."""
    both = speed.to_bytes(2, "big", signed=True) + (-speed).to_bytes(2, "big", signed=True)
    return not any(byte == Op.RESET or Op.START <= byte <= Op.STOP for byte in both)


def _nearest_harmless() -> list[int]:
    harmless = np.array([speed for speed in range(FASTEST + 1) if is_harmless(speed)])
    return [int(harmless[np.abs(harmless - speed).argmin()]) for speed in range(FASTEST + 1)]


_HARMLESS = _nearest_harmless()


def harmless(speed_mm_s: float) -> int:
    """Return the nearest speed whose bytes are no opcodes, mm/s, -500..500; the slower of two.

    >>> [harmless(speed) for speed in (199.0, -178.0, 113.0, -129.0, 3.4, 1000.0)]
    [199, -178, 82, -174, 3, 500]
    """
    size = _HARMLESS[min(round(abs(speed_mm_s)), FASTEST)]
    return -size if speed_mm_s < 0 else size


def drive(request: Floats, spec: RobotSpec) -> Wheels:
    """Return the wheel speeds for a velocity: left = forward - yaw b / 2, right = forward + yaw b / 2.

    A pair that exceeds what a wheel can do is slowed down as a whole, so that the way keeps its shape.

    Args:
        request: Forward m/s, leftward m/s (ignored: it cannot), counter-clockwise rad/s, shape (3,).
        spec: The robot, for the wheel base b.

    Raises:
        ValueError: If the request is not three finite numbers.
    """
    request = np.asarray(request, dtype=np.float64)
    if request.shape != (3,) or not all(map(math.isfinite, request.tolist())):
        raise ValueError(f"a request is three finite numbers (m/s, m/s, rad/s), not {request!r}")
    forward, _, yaw = request.tolist()
    half = 0.5 * float(spec.drive["wheel_base_m"]) * yaw
    right, left = 1000.0 * (forward + half), 1000.0 * (forward - half)
    excess = max(abs(right), abs(left), FASTEST) / FASTEST
    return Wheels(harmless(right / excess), harmless(left / excess))
