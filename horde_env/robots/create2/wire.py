"""The robot's protocol, as pure functions: frames of sensor packets 7 to 58, 64 times a second, and commands.

    frame     19 | 81 | 100 | 80 bytes of readings | checksum        the sum of all 84 bytes is 0 modulo 256
    command   opcode | operands; no checksum, no length, no reply

Numbers of two bytes have their high byte first. Frames have no counter and no CRC: two errors may
cancel in the sum, so readings out of range are rejected too (`is_sound`).

After a lost byte of a command, the robot takes the next opcode for an operand. Therefore four zeros
precede each wheel
command: as operands they are speed 0, as opcodes nothing. And no byte of a speed is an active
opcode (128..173, or 7, reset): -113 mm/s is FF 8F, and 8F sends a robot to its dock.

Source: iRobot Create 2 Open Interface Specification based on the Roomba 600 (2016); the checksum
includes the header, against that text's example.
"""

from __future__ import annotations

import struct
from enum import IntEnum
from math import log2
from typing import NamedTuple

import numpy as np

from horde_env.backend import Floats, Ints
from horde_env.robot import RobotSpec
from horde_env.spaces import checked_request

GROUP = 100
GROUP_SIZE = 80
HEADER = bytes([19, GROUP_SIZE + 1, GROUP])
FRAME_SIZE = len(HEADER) + GROUP_SIZE + 1
TICK_S = 1 / 64
COUNT_MOST = 40  # of an encoder in one tick: 500 mm/s is 18

OFF, PASSIVE, SAFE, FULL = range(4)
# States in which current flows; a fault
CHARGES = (1, 2, 3)
CHARGING_FAULT = 5


class Sensors(NamedTuple):
    """Packets 7 to 58 in wire units: integers (mV, mA, mAh, degrees C, mm, counts)."""

    bumps: int = 0  # bits: bump right, bump left, wheel drop right, wheel drop left
    wall: int = 0
    cliff_left: int = 0
    cliff_front_left: int = 0
    cliff_front_right: int = 0
    cliff_right: int = 0
    virtual_wall: int = 0
    # Bits: side brush, -, main brush, right wheel, left wheel; in this order from 0
    overcurrents: int = 0
    dirt: int = 0
    unused_16: int = 0
    ir_omni: int = 0
    buttons: int = 0
    distance: int = 0
    angle: int = 0
    charging_state: int = 0
    voltage: int = 0
    current: int = 0
    temperature: int = 0
    charge: int = 0
    capacity: int = 0
    wall_signal: int = 0
    cliff_signal_left: int = 0
    cliff_signal_front_left: int = 0
    cliff_signal_front_right: int = 0
    cliff_signal_right: int = 0
    unused_32: int = 0
    unused_33: int = 0
    charging_sources: int = 0  # bits: internal charger, home base
    mode: int = 0
    song: int = 0
    song_playing: int = 0
    n_stream_packets: int = 0
    requested_velocity: int = 0
    requested_radius: int = 0
    requested_right: int = 0
    requested_left: int = 0
    encoder_left: int = 0
    encoder_right: int = 0
    light_bumper: int = 0  # bits, from the left
    light_left: int = 0
    light_front_left: int = 0
    light_centre_left: int = 0
    light_centre_right: int = 0
    light_front_right: int = 0
    light_right: int = 0
    ir_left: int = 0
    ir_right: int = 0
    current_left: int = 0
    current_right: int = 0
    current_main_brush: int = 0
    current_side_brush: int = 0
    stasis: int = 0


# Of `struct`, one for each packet from 7 on
CODES = "BBBBBBBBBBBBhhBHhbHHHHHHHBHBBBBBhhhhhhBHHHHHHBBhhhhB"
_LAYOUT = struct.Struct(">" + CODES)
PACKETS = {7 + i: struct.Struct(">" + code) for i, code in enumerate(CODES)}
GROUPS = {
    0: (7, 26),
    1: (7, 16),
    2: (17, 20),
    3: (21, 26),
    4: (27, 34),
    5: (35, 42),
    6: (7, 42),
    100: (7, 58),
    101: (43, 58),
    106: (46, 51),
    107: (54, 58),
}
_GROUP_LAYOUTS = {
    n: struct.Struct(">" + CODES[first - 7 : last - 6]) for n, (first, last) in GROUPS.items()
}

# Largest and smallest values that the firmware sends.
_MOST = Sensors(
    bumps=15, wall=1, cliff_left=1, cliff_front_left=1, cliff_front_right=1, cliff_right=1, virtual_wall=1,
    overcurrents=31, dirt=255, unused_16=0, ir_omni=255, buttons=255, distance=32767, angle=32767, charging_state=6,
    voltage=65535, current=32767, temperature=127, charge=65535, capacity=65535, wall_signal=1023,
    cliff_signal_left=4095, cliff_signal_front_left=4095, cliff_signal_front_right=4095, cliff_signal_right=4095,
    unused_32=0, unused_33=0, charging_sources=3, mode=255, song=255, song_playing=1, n_stream_packets=108,
    requested_velocity=500, requested_radius=32767, requested_right=500, requested_left=500, encoder_left=32767,
    encoder_right=32767, light_bumper=63, light_left=4095, light_front_left=4095, light_centre_left=4095,
    light_centre_right=4095, light_front_right=4095, light_right=4095, ir_left=255, ir_right=255, current_left=32767,
    current_right=32767, current_main_brush=32767, current_side_brush=32767, stasis=3,
)  # fmt: skip
_LEAST = Sensors()._replace(
    distance=-32768, angle=-32768, current=-32768, temperature=-128, requested_velocity=-500,
    requested_radius=-32768, requested_right=-500, requested_left=-500, encoder_left=-32768, encoder_right=-32768,
    current_left=-32768, current_right=-32768, current_main_brush=-32768, current_side_brush=-32768,
)  # fmt: skip


def decode(data: bytes) -> Sensors:
    """Decode the 80 bytes of group 100."""
    return Sensors(*_LAYOUT.unpack(data))


def encode_packet(sensors: Sensors, number: int) -> bytes:
    """Return the bytes of a packet or group; b"" for an unknown number."""
    if number in GROUPS:
        first, last = GROUPS[number]
        return _GROUP_LAYOUTS[number].pack(*sensors[first - 7 : last - 6])
    if number in PACKETS:
        return PACKETS[number].pack(sensors[number - 7])
    return b""


def frame_of(sensors: Sensors, numbers: tuple[int, ...] = (GROUP,)) -> bytes:
    """Return a frame with these packets or groups."""
    body = b"".join(bytes([number]) + encode_packet(sensors, number) for number in numbers)
    start = bytes([19, len(body) % 256]) + body
    return start + bytes([-sum(start) % 256])


def is_sound(frame: bytes) -> bool:
    """Return whether 84 bytes that start with the header are a valid frame.

    One random frame in 256 has a valid checksum; the ranges of the packets reject all but one in
    10^40 of those. Damage within the ranges that keeps the sum is not detected.
    """
    if sum(frame) % 256:
        return False
    sensors = decode(frame[len(HEADER) : -1])
    return all(
        low <= value <= high for low, value, high in zip(_LEAST, sensors, _MOST, strict=True)
    )


def difference(new: int, old: int) -> int:
    """Return the difference of two encoder counts, which wrap at 32767 in both directions."""
    return (new - old + 32768) % 65536 - 32768


# ---- channels --------------------------------------------------------------------------------------------------------

# The first channel, its packet, and its bits; without bits, packets one after the other as they
# are. Channels 4, 5, 8 and 50 to 54 have other sources.
_LAID_OUT: tuple[tuple[int, str, int | tuple[int, ...]], ...] = (
    (0, "voltage", 4),
    (6, "current_left", 2),
    (9, "light_left", 6),
    (15, "light_bumper", (0, 1, 2, 3, 4, 5)),
    (21, "cliff_signal_left", 4),
    (25, "cliff_left", 4),
    (29, "bumps", (1, 0, 3, 2)),
    (33, "ir_omni", (0, 2, 3)),
    (36, "ir_left", (0, 2, 3)),
    (39, "ir_right", (0, 2, 3)),
    (42, "virtual_wall", 1),
    (43, "overcurrents", (4, 3)),
    (45, "current_main_brush", 2),
    (47, "stasis", (0,)),
    (48, "dirt", 1),
    (49, "charging_sources", (1,)),
)
N_CHANNELS = 55
LIGHTS = 9
N_LIGHTS = 6
COUNTS_LEFT = 4
COUNTS_RIGHT = 5
TURN = 8
BLOCKED = 52
CHARGING = 53
BUTTON = 54


def _layout() -> Ints:
    """Return place in `Sensors`, shift and mask of each channel, shape (55, 3)."""
    layout = np.zeros((N_CHANNELS, 3), dtype=np.int64)
    for first, name, bits in _LAID_OUT:
        place = Sensors._fields.index(name)
        if isinstance(bits, int):
            rows = [(place + k, 0, -1) for k in range(bits)]
        else:
            rows = [(place, bit, 1) for bit in bits]
        layout[first : first + len(rows)] = rows
    return layout


LAYOUT = _layout()
LOUDNESS = np.array([round(1023 * log2(1 + signal) / 12) for signal in range(4096)])
"""A light bumper's channel for a signal of 0..4095."""
_RECEIVERS = [Sensors._fields.index(name) for name in ("ir_omni", "ir_left", "ir_right")]


def beams(character: int) -> int:
    """Return the dock's beams in an infrared character: 1 force field, 4 green buoy, 8 red buoy.

    A 500 or 600 dock sends A0 + these bits, a Discovery dock F0 + (2 field, 4 green, 8 red); 162
    (A2) is a virtual wall, 160 and 240 nothing.

    >>> beams(161), beams(172), beams(254), beams(162), beams(0)
    (1, 12, 13, 0, 0)
    """
    kind = character & 0xF0
    bits = character & 0x0F
    if (kind, bits & 0x02) == (0xA0, 0):
        return bits
    if (kind, bits & 0x01) == (0xF0, 0):
        return bits & 12 | bits >> 1 & 1
    return 0


def channels(sensors: Sensors, counts_left: int, counts_right: int, mode: int) -> Floats:
    """Return the raw channels in the order of `assets/create2.toml`, shape (55,); the last request is 0.

    The counts are those of the encoders over the last six ticks, `mode` is packet 35 without its
    offset (`stream`).
    """
    packets = np.array(sensors)
    packets[_RECEIVERS] = [beams(character) for character in packets[_RECEIVERS].tolist()]
    place, shift, mask = LAYOUT.T
    raw: Floats = (packets[place] >> shift & mask).astype(np.float64)
    raw[LIGHTS : LIGHTS + N_LIGHTS] = LOUDNESS[packets[place[LIGHTS : LIGHTS + N_LIGHTS]]]
    raw[[COUNTS_LEFT, COUNTS_RIGHT, TURN]] = counts_left, counts_right, counts_right - counts_left
    raw[[BLOCKED, CHARGING, BUTTON]] = (
        mode != SAFE,
        sensors.charging_state in CHARGES,
        sensors.buttons != 0,
    )
    return raw


# ---- commands --------------------------------------------------------------------------------------------------------


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
"""Number of operand bytes of an opcode; 0 if not listed. 140, 148 and 149 include their length."""

FASTEST = 500  # mm/s of a wheel


class Wheels(NamedTuple):
    """Requested wheel speeds, mm/s."""

    right: int
    left: int


PAD = bytes(4)
FILL = bytes(40)  # completes a partial command of an earlier program: the longest has 35 bytes
STREAM_ALL = bytes([Op.STREAM, 1, GROUP])


def drive_direct(wheels: Wheels | None) -> bytes:
    """Return the padded command for two wheel speeds; a zero for None, which only shows that the host runs.

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
    """Return whether no byte of a speed, in either direction, is an active opcode."""
    speed_bytes = speed.to_bytes(2, "big", signed=True) + (-speed).to_bytes(2, "big", signed=True)
    return not any(byte == Op.RESET or Op.START <= byte <= Op.STOP for byte in speed_bytes)


def _nearest_harmless() -> list[int]:
    harmless = np.array([speed for speed in range(FASTEST + 1) if is_harmless(speed)])
    return [int(harmless[np.abs(harmless - speed).argmin()]) for speed in range(FASTEST + 1)]


_HARMLESS = _nearest_harmless()


def harmless(speed_mm_s: float) -> int:
    """Return the nearest speed without active opcodes in its bytes, mm/s, -500..500; the slower of two.

    >>> [harmless(speed) for speed in (199.0, -178.0, 113.0, -129.0, 3.4, 1000.0)]
    [199, -178, 82, -174, 3, 500]
    """
    size = _HARMLESS[min(round(abs(speed_mm_s)), FASTEST)]
    return -size if speed_mm_s < 0 else size


def drive(request: Floats, spec: RobotSpec) -> Wheels:
    """Return the wheel speeds for a checked request (m/s, ignored, rad/s): forward -+ yaw b / 2, wheel base b.

    Both speeds are scaled down together if one exceeds the wheels' limit, so the path keeps its
    shape.
    """
    forward, _, yaw = checked_request(request)
    half = 0.5 * float(spec.drive["wheel_base_m"]) * yaw
    right = 1000.0 * (forward + half)
    left_mm = 1000.0 * (forward - half)
    excess = max(abs(right), abs(left_mm), FASTEST) / FASTEST
    return Wheels(harmless(right / excess), harmless(left_mm / excess))
