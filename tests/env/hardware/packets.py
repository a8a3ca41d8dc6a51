"""What the hardware's tests share: a packet made by the original firmware's own code, states and controls at random."""

from __future__ import annotations

import itertools

import numpy as np
from hypothesis import strategies as st

from horde_env.robot import critterbot
from horde_env.robots.critterbot import wire
from horde_env.robots.critterbot.stream import StateParser
from horde_env.robots.critterbot.wire import LED_CUSTOM, Control, RobotState

SPEC = critterbot()

GOLDEN = bytes.fromhex(
    "deadbeef a500a7a6a6 00000080 00000080 00000080 00b23dde20 a19d64ec73 09223b556e87a0bad3ec6c6c60 1b538ac2dd"
    "6c3979398639 0d0dffffad39ba39c739 0a2a0b2c0d2d0e2f3939 00000000 00 40 bb55"
)
GOLDEN_RAW = {
    "bus_voltage": [165],
    "battery_voltage": [167, 166, 166],
    "motor_voltage": [0, 0, 0],
    "motor_velocity": [0, 0, 0],
    "motor_current": [0, 0, 0],
    "motor_temperature": [128, 128, 128],
    "acceleration": [13, -1234, 978],
    "magnetic": [645, 631, 400],
    "rotational_velocity": [435 - 512],
    "ir_distance": [37, 138, 239, 340, 441, 542, 643, 744, 845, 946],
    "ir_light": [raw % 256 for raw in (40, 171, 302, 433, 564, 695, 826, 957)],
    "light": [111, 333, 555, 777],
    "thermal": [14700, 14713, 14726, 0x0D0D, 0xFFFF, 14765, 14778, 14791],
}


def decode_state(packet: bytes) -> RobotState:
    assert wire.is_sound(packet)
    return wire.decode_states([packet])[0]


GOLDEN_STATE = decode_state(GOLDEN)
LOWEST = wire._LOWEST.astype(int)
HIGHEST = wire._HIGHEST.astype(int)
# The field has room for 1023, the firmware's cast leaves a byte
HIGHEST[SPEC.group("ir_light")] = 255


def state_of(values: np.ndarray, monitor: int = 0x40, **rest: int) -> RobotState:
    raw = np.zeros(57)
    raw[:53] = values
    raw[56] = monitor & 1
    return RobotState(raw, monitor=monitor, **rest)


@st.composite
def states(draw: st.DrawFn) -> RobotState:
    """One draw of bytes for all: three a channel, two for its value and one that makes it an extreme or not."""
    drawn = np.frombuffer(draw(st.binary(min_size=3 * 53 + 6, max_size=3 * 53 + 6)), dtype=np.uint8)
    extreme, high, low = drawn[: 3 * 53].reshape(3, 53).astype(int)
    values = LOWEST + (high << 8 | low) % (HIGHEST - LOWEST + 1)
    values = np.select([extreme < 16, extreme >= 240], [LOWEST, HIGHEST], values)
    values[0] = max(values[0], 1)
    monitor, charge, cycle, *errors = drawn[3 * 53 :].tolist()
    error_flags = int.from_bytes(errors, "big") & 0x3FFFF
    return state_of(values, monitor, error_flags=error_flags, charge_state=charge, cycle_time=cycle)


controls = st.builds(
    Control,
    st.integers(0, 255),
    *[st.integers(-128, 127)] * 3,
    st.integers(0, 255).filter(lambda mode: mode != LED_CUSTOM),
)


def packet_of(**channels: float) -> bytes:
    raw = GOLDEN_STATE.raw.copy()
    for name, value in channels.items():
        raw[SPEC.index(name)] = value
    return wire.encode_state(RobotState(raw))


def feed_in_pieces(parser: StateParser, stream: bytes, cuts: list[int]) -> list[bytes]:
    edges = [0, *sorted(cuts), len(stream)]
    return [
        wire.encode_state(s) for a, b in itertools.pairwise(edges) for s in parser.feed(stream[a:b])
    ]
