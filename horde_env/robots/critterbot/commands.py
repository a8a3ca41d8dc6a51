"""What is sent to the robot: control packets of 9 or 57 bytes, without checksum or reply. Pure functions.

    DE AD BE EF | mode, three int8, LED mode | 48 LED bytes if custom

The robot acts on the last whole one that it received in a cycle of 10 ms, and stops 0.5 s after the last of all.

A stop is a ramp of one unit per 10 ms, 0.2 s from an action of 20 units, and is said in two ways, one after the other:

    HALT    velocity 0, for as long as the robot's ramp may take: it brakes. A turn at 3.5 rad/s ends after 0.8 rad
            (in the emulator); with duty 0 at once the wheels would roll on freely, to 1.5 rad
    COAST   duty 0 from then on. A packet that was damaged on the way into mode 2 leaves a duty, and velocity 0 after it
            changes nothing, for the firmware compares with the ramp's last target, which is 0 already: the wheels
            drive on for ever, past the robot's own timeout. Duty 0 ends that, and sets a timeout that ends it, too

Not the other way round: after COAST alone the ramp's last target would still be the old command, and the same command
again would be taken for no change.

Source: the Critterbot's ARM firmware of June 2011 (lib_mi.c, lib_motor.c: motor_set_speed_slew, motor_event), confirmed
byte for byte.
"""

from __future__ import annotations

from enum import IntEnum
from typing import NamedTuple

import numpy as np

from horde_env.backend import Floats
from horde_env.robot import RobotSpec
from horde_env.robots.critterbot.wire import HEADER

MI_ON = b"\rmi on\r"  # typed at the robot's console, this starts the stream of state packets
# The same of a robot that may be on its own way to its dock (`recharge start`), which ends there and nowhere else.
WAKE = b"\rrecharge stop" + MI_ON
BODY_SIZE, LEDS_SIZE = 5, 48


class MotorMode(IntEnum):
    """What a control packet asks for. Any other number stops the motors."""

    WHEEL_SPACE = 0
    XYTHETA_SPACE = 1
    WHEEL_VOLTAGE = 2
    EXIT = 0x68
    ENABLE_CHARGING = 0x69
    DISABLE_CHARGING = 0x6A
    ENABLE_REFERENCE = 0x6B
    DISABLE_REFERENCE = 0x6C
    ENABLE_AMPLIFIER = 0x6D
    DISABLE_AMPLIFIER = 0x6E


class LedMode(IntEnum):
    """What the ring of 16 LEDs shows."""

    NONE = 0
    CLEAR = 1
    BATTERY = 2
    BALL = 3
    ERROR = 4
    EMERGENCY = 5
    BUSY = 6
    CUSTOM = 7
    EXIT = 0x67


class Control(NamedTuple):
    """One control packet.

    Attributes:
        mode: A MotorMode, or any other byte, which stops the motors.
        a, b, c: Three int8: wheels 100, 220, 340, or x, y (to the RIGHT), theta.
        led_mode: A LedMode or any other byte.
        leds: 16 x (red, green, blue), LED 0 at the front, clockwise; only with CUSTOM, else empty.
    """

    mode: int
    a: int = 0
    b: int = 0
    c: int = 0
    led_mode: int = LedMode.NONE
    leds: bytes = b""


def encode_control(control: Control) -> bytes:
    """Return the control packet: 9 bytes, or 57 with custom LEDs.

    >>> encode_control(Control(MotorMode.XYTHETA_SPACE, 20, led_mode=LedMode.CLEAR)).hex(" ")
    'de ad be ef 01 14 00 00 01'

    Raises:
        ValueError: If a number does not fit its byte, or there are not 48 LED bytes with CUSTOM and none without.
    """
    mode, *values, led_mode, leds = control
    if not all(-128 <= v <= 127 for v in values) or not all(0 <= v <= 255 for v in (mode, led_mode)):
        raise ValueError(f"modes must be 0..255 and a, b, c -128..127: {control}")
    if len(leds) != (LEDS_SIZE if led_mode == LedMode.CUSTOM else 0):
        raise ValueError(f"custom LEDs are {LEDS_SIZE} bytes and other LED modes have none: {control}")
    return HEADER + bytes([mode, *(v & 0xFF for v in values), led_mode]) + leds


def decode_control(packet: bytes) -> Control:
    """Return what a control packet asks for.

    Raises:
        ValueError: If it is no control packet.
    """
    body = packet[len(HEADER) :]
    custom = len(body) >= BODY_SIZE and body[4] == LedMode.CUSTOM
    if not packet.startswith(HEADER) or len(body) != BODY_SIZE + LEDS_SIZE * custom:
        raise ValueError(f"a control packet is 9 bytes, or 57 with custom LEDs, after {HEADER.hex()}: {packet.hex()}")
    a, b, c = (v - 256 * (v > 127) for v in body[1:4])
    return Control(body[0], a, b, c, body[4], bytes(body[BODY_SIZE:]))


def drive(request: Floats, spec: RobotSpec) -> Control:
    """Return the control that asks the robot for a velocity.

    Args:
        request: Forward m/s, leftward m/s, counter-clockwise rad/s, shape (3,). Rounded to wire units and limited to
            +-127 of them: an int8, and the same to both sides.
        spec: The robot, for the size of a wire unit.

    Raises:
        ValueError: If the request is not three finite numbers.
    """
    request = np.asarray(request, dtype=np.float64)
    if request.shape != (3,) or not np.all(np.isfinite(request)):
        raise ValueError(f"a request is three finite numbers (m/s, m/s, rad/s), not {request!r}")
    x, y, theta = (int(v) for v in np.clip(np.rint(request / _units(spec)), -127, 127))
    return Control(MotorMode.XYTHETA_SPACE, x, y, theta)


def _units(spec: RobotSpec) -> Floats:
    """Return the SI value of one wire unit of x, y, theta, shape (3,); the wire's y points right, ours left."""
    translation, rotation = float(spec.drive["translation_unit"]), float(spec.drive["rotation_unit"])
    return np.array([translation, -translation, rotation])


# XYTHETA, so that the slew and the 0.5 s timeout go with it. Never mix it with WHEEL_VOLTAGE: a fresh firmware, told a
# voltage and then this, keeps driving (lib_motor.c, motor_set_speed_slew).
HALT = Control(MotorMode.XYTHETA_SPACE)
STOP = encode_control(HALT)

# What to send first: a robot that was left with half a packet takes the next bytes for the rest of it, and a header
# there would be a wild velocity. Zeros complete any half packet and add nothing to it; then comes the stop.
FILL = bytes(BODY_SIZE + LEDS_SIZE)

# Back to the console; the one control that a robot on its own way to its dock obeys.
LEAVE = Control(MotorMode.EXIT, led_mode=LedMode.EXIT)

# Nothing to the motors at once, without a ramp: they roll on. It ends the runaway of a robot that was left in
# WHEEL_VOLTAGE. HALT comes before it, in an earlier cycle of the robot's, for only the last packet of a cycle acts, and
# a command that follows it must not be the ramp's last target, which the firmware would take for no change.
COAST = Control(MotorMode.WHEEL_VOLTAGE)

RAMP_S = 0.4  # 25 units, the most that a wheel does, at one per 10 ms; and up to 0.1 s on the way through the driver
