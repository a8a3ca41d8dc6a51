"""The robot's packets, as pure functions: states of 83 bytes, 100 per second, and controls of 9 or 57 bytes.

    state     DE AD BE EF | 77 bytes of readings | CRC-16, high byte first
    control   DE AD BE EF | mode, three int8, LED mode | 48 LED bytes if custom; no checksum, no reply

A channel has a high byte, and up to eight low bits that may share a byte with other channels
(`GROUPS`). Raw values are the wire's integers with its axes (y to the right); RobotSpec converts
them to SI.

The robot executes the last complete control of each cycle of 10 ms, and stops 0.5 s after the last
one. A stop is a ramp of one unit per 10 ms, 0.2 s from an action of 20 units, and is sent in two
forms:

    HALT    velocity 0, for the longest duration of a ramp: it brakes. A turn at 3.5 rad/s ends after 0.8 rad (in the
            emulator); with duty 0 at once the wheels would roll on, to 1.5 rad
    COAST   duty 0 from then on. A packet that was damaged into mode 2 leaves a duty, and velocity 0 after it has no
            effect, because the firmware compares it with the ramp's last target, which is 0: the
            wheels would turn without end, past the robot's own timeout. Duty 0 ends that, and
            restarts the timeout

COAST alone would leave the old command as the ramp's last target, and repeating that command would
have no effect.

Source: the Critterbot's ARM firmware of June 2011 (lib_mi.c, lib_motor.c: motor_set_speed_slew,
motor_event), confirmed byte for byte.
"""

from __future__ import annotations

import struct
from binascii import crc_hqx
from enum import IntEnum
from typing import NamedTuple

import numpy as np

from horde_env.backend import Floats, Ints
from horde_env.robot import RobotSpec, critterbot
from horde_env.spaces import checked_request

HEADER = b"\xde\xad\xbe\xef"
STATE_SIZE = 83

BUS = 4
CHARGE = 5
CHARGE_COPY = 75
CYCLE_TIME = 79
MONITOR = 80
CRC = 81
# Bits that are always 0: unused bits of short fields, and errors 18..23
SPARE = {25: 0x0F, 43: 0x0F, 76: 0xFC}
BUS_UNREAD = 255  # sent by the firmware if the power board reports 0

MONITOR_CHARGING = 0x80
MONITOR_DRIVE = 0x40
MONITOR_OVERHEATING = 0x01

N_CHANNELS = 57
N_ON_WIRE = 53
OVERHEATING = 56
N_ERRORS = 18


class Group(NamedTuple):
    """The layout of a group of channels in a state packet; the groups have the observation's order."""

    name: str
    high: tuple[int, ...]  # offset of each channel's high byte
    low: tuple[int, ...] = ()  # offset of the byte with its low bits
    bits: int = 0  # number of low bits
    shifts: tuple[int, ...] = ()  # position of the lowest of them in that byte
    signed: bool = False  # the high byte is two's complement


PAIRS = (6, 4, 2, 0)  # four pairs of bits share a byte, the first channel on top
GROUPS = (
    Group("bus_voltage", (BUS,)),
    Group("battery_voltage", (6, 7, 8)),
    Group("motor_voltage", (9, 13, 17), signed=True),
    Group("motor_velocity", (10, 14, 18), signed=True),
    Group("motor_current", (11, 15, 19)),
    Group("motor_temperature", (12, 16, 20)),
    Group("acceleration", (21, 22, 23), (24, 24, 25), 4, (4, 0, 4), signed=True),
    Group("magnetic", (26, 27, 28), (30, 30, 30), 2, (6, 4, 2)),
    Group("rotational_velocity", (29,), (30,), 2, (0,), signed=True),
    Group(
        "ir_distance",
        tuple(range(31, 41)),
        (41,) * 4 + (42,) * 4 + (43,) * 2,
        2,
        PAIRS + PAIRS + PAIRS[:2],
    ),
    Group("ir_light", tuple(range(65, 73)), (73,) * 4 + (74,) * 4, 2, PAIRS + PAIRS),
    Group("light", tuple(range(44, 48)), (48,) * 4, 2, PAIRS),
    Group("thermal", tuple(range(50, 66, 2)), tuple(range(49, 65, 2)), 8, (0,) * 8),
)


def _column(per_group: list[tuple[int, ...]]) -> Ints:
    """Concatenate the numbers of all groups, shape (53,)."""
    return np.array([number for group in per_group for number in group], dtype=np.int64)


_HIGH = _column([g.high for g in GROUPS])
# Any byte if there are no low bits: the mask is 0
_LOW = _column([g.low or g.high for g in GROUPS])
_BITS = _column([(g.bits,) * len(g.high) for g in GROUPS])
_SHIFT = _column([g.shifts or (0,) * len(g.high) for g in GROUPS]).astype(np.uint8)
_MASK = ((1 << _BITS) - 1).astype(np.uint8)
_SIGN = _column([(128 * g.signed,) * len(g.high) for g in GROUPS]).astype(np.uint8)
_WEIGHT = 2.0**_BITS
_LOWEST = 0.0 - _SIGN * _WEIGHT
_HIGHEST = _LOWEST + 256 * _WEIGHT - 1
_NAMES = [f"{g.name}[{i}]" for g in GROUPS for i in range(len(g.high))]
# Of the eight readings, modulo 256
IR_LIGHT = next(slice(i, i + 8) for i, name in enumerate(_NAMES) if name == "ir_light[0]")


class RobotState(NamedTuple):
    """The content of one state packet, in wire units.

    `raw` has the channels in the order of RobotSpec, shape (57,): integers as float64, for
    `RobotSpec.to_si`; read-only if decoded. 53..55 (last request) are not on the wire and 0; 56 is
    bit 0 of `monitor`. IR light is modulo 256.
    """

    raw: Floats
    # Unplugged; 1..10 charging, 11 complete, 201..235 faults. Motors turn only in 0 and 11
    charge_state: int = 0
    # 18 bits, each "since the previous packet"; bit 15 is set in a third of healthy packets
    error_flags: int = 0
    cycle_time: int = 0  # in this firmware
    monitor: int = MONITOR_DRIVE  # | MONITOR_CHARGING | MONITOR_OVERHEATING
    breaks: int = 0  # always: packets have no information on interruptions


def is_sound(packet: bytes) -> bool:
    """Return whether 83 bytes that start with the header are a valid state packet.

    Checks the CRC (XMODEM: polynomial 0x1021, start 0, over bytes 4..80), the bus voltage, which is
    never 0 (a line stuck at zero has the correct CRC), and the 14 spare bits, which reduce accepted
    damage from one in 65,536 to one in 10^9.
    """
    return (
        crc_hqx(packet[4:CRC], 0) == packet[CRC] << 8 | packet[CRC + 1]
        and packet[BUS] != 0
        and not (packet[25] & SPARE[25] or packet[43] & SPARE[43] or packet[76] & SPARE[76])
    )


def decode_states(packets: list[bytes]) -> list[RobotState]:
    """Decode valid state packets; faster than one by one."""
    rows = np.frombuffer(b"".join(packets), dtype=np.uint8).reshape(-1, STATE_SIZE)
    # Two's complement with its sign bit flipped is an unsigned offset from the lowest value.
    high = rows.take(_HIGH, axis=1) ^ _SIGN
    low = rows.take(_LOW, axis=1) >> _SHIFT & _MASK
    raw = np.zeros((len(packets), N_CHANNELS))
    raw[:, :N_ON_WIRE] = (high * _WEIGHT + low.astype(np.float64)) + _LOWEST
    raw[:, OVERHEATING] = rows[:, MONITOR] & MONITOR_OVERHEATING
    raw.flags.writeable = False  # a state is shared between threads
    states = []
    for row, packet in zip(raw, packets, strict=True):
        state = RobotState(
            raw=row,
            charge_state=packet[CHARGE],
            error_flags=int.from_bytes(packet[76:79], "big"),
            cycle_time=packet[CYCLE_TIME],
            monitor=packet[MONITOR],
        )
        states.append(state)
    return states


def encode_state(state: RobotState) -> bytes:
    """Encode a state packet as the firmware does: the inverse of `decode_states`.

    IR light of up to 1023 loses its top two bits, and a bus voltage of 0 is sent as 255.

    Raises:
        ValueError: If a reading does not fit.
    """
    readings = state.raw[:N_ON_WIRE]
    wrong = np.flatnonzero(~((readings >= _LOWEST) & (readings <= _HIGHEST)))
    if wrong.size:
        i = wrong[0]
        raise ValueError(
            f"{_NAMES[i]} is {readings[i]:g}, the wire carries {_LOWEST[i]:g}..{_HIGHEST[i]:g}"
        )
    values = readings.astype(np.int64)
    values[IR_LIGHT] %= 256  # the firmware casts to a byte before it shifts
    # Low bits that share a byte do not overlap, so their sum is their union.
    row = np.bincount(_LOW, weights=(values & _MASK) << _SHIFT, minlength=STATE_SIZE).astype(
        np.uint8
    )
    row[_HIGH] = values >> _BITS & 0xFF
    packet = bytearray(row.tobytes())
    packet[:4] = HEADER
    packet[BUS] = packet[BUS] or BUS_UNREAD
    packet[CHARGE] = packet[CHARGE_COPY] = state.charge_state
    packet[76:79] = state.error_flags.to_bytes(3, "big")
    packet[CYCLE_TIME] = state.cycle_time
    packet[MONITOR] = state.monitor
    packet[CRC:] = crc_hqx(packet[4:CRC], 0).to_bytes(2, "big")
    return bytes(packet)


# ---- control packets -------------------------------------------------------------------------------------------------

MI_ON = b"\rmi on\r"  # the console command that starts the state packets
WAKE = b"\rrecharge stop" + MI_ON  # also stops `recharge start`, which only the console can stop
BODY_SIZE = 5
LEDS_SIZE = 48
# Display modes
LED_CUSTOM = 7
LED_EXIT = 0x67


class MotorMode(IntEnum):
    """Mode of a control packet; 0x6B..0x6E switch voltages, any other number stops the motors."""

    WHEEL_SPACE = 0
    XYTHETA_SPACE = 1
    WHEEL_VOLTAGE = 2
    EXIT = 0x68
    ENABLE_CHARGING = 0x69
    DISABLE_CHARGING = 0x6A


class Control(NamedTuple):
    """One control packet: a mode, three int8 (wheels 100, 220, 340, or x, y (to the RIGHT), theta), and an LED mode."""

    mode: int  # a MotorMode, or any other byte, which stops the motors
    a: int = 0
    b: int = 0
    c: int = 0
    # LED_CUSTOM is followed by 48 bytes of colours, which this package never sends
    led_mode: int = 0


_TRANSLATION = float(critterbot().drive["translation_unit"])
_ROTATION = float(critterbot().drive["rotation_unit"])
UNITS = np.array([_TRANSLATION, -_TRANSLATION, _ROTATION])
"""The SI value of one wire unit of x, y, theta, shape (3,); the wire's y points right, ours left."""


def encode_control(control: Control) -> bytes:
    """Encode a control packet in 9 bytes.

    >>> encode_control(Control(MotorMode.XYTHETA_SPACE, 20, led_mode=1)).hex(" ")
    'de ad be ef 01 14 00 00 01'

    Raises:
        ValueError: If a number does not fit into its byte.
    """
    mode, a, b, c, led_mode = control
    if (
        min(a, b, c) < -128
        or max(a, b, c) > 127
        or min(mode, led_mode) < 0
        or max(mode, led_mode) > 255
    ):
        raise ValueError(f"modes must be 0..255 and a, b, c -128..127: {control}")
    return HEADER + bytes([mode, a & 0xFF, b & 0xFF, c & 0xFF, led_mode])


def decode_control(body: bytes) -> Control:
    """Return the control of a packet's five bytes after the header."""
    return Control(*struct.unpack("B3bB", body))


def drive(request: Floats, spec: RobotSpec) -> Control:  # noqa: ARG001  other robots need it
    """Return the control for a checked request (m/s, m/s, rad/s), rounded to wire units and clipped to +-127."""
    units = np.array(checked_request(request)) / UNITS
    x, y, theta = np.clip(np.rint(units), -127, 127).astype(int).tolist()
    return Control(MotorMode.XYTHETA_SPACE, x, y, theta)


# XYTHETA has the ramp and the 0.5 s timeout. Do not send it alone after WHEEL_VOLTAGE: after a
# reset and a voltage, the firmware ignores it and keeps driving (lib_motor.c,
# motor_set_speed_slew).
HALT = Control(MotorMode.XYTHETA_SPACE)
STOP = encode_control(HALT)

# Sent first: after a partial packet the robot reads the next bytes as the rest of it, and a header
# there would be a large velocity. Zeros complete any partial packet without effect.
FILL = bytes(BODY_SIZE + LEDS_SIZE)

# To the console; works while the robot drives to its dock
LEAVE = Control(MotorMode.EXIT, led_mode=LED_EXIT)

# No voltage at once, without a ramp: the wheels roll on. It stops a robot that was left in
# WHEEL_VOLTAGE. HALT must come before it, in an earlier cycle, because only the last packet of a
# cycle acts; see the module.
COAST = Control(MotorMode.WHEEL_VOLTAGE)

# 25 units, the fastest wheel, at one per 10 ms, and up to 0.1 s of delay in the driver
RAMP_S = 0.4
