"""State and control packets. The golden one was made by the original firmware's own code."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from horde_env.robots.critterbot import wire
from horde_env.robots.critterbot.stream import StateParser
from horde_env.robots.critterbot.wire import (
    STOP,
    Control,
    MotorMode,
    RobotState,
    drive,
    encode_control,
)
from tests.env.hardware.packets import (
    GOLDEN,
    GOLDEN_RAW,
    HIGHEST,
    LOWEST,
    SPEC,
    decode_state,
    states,
)
from tests.oracles import wire as oracle


def test_the_golden_packet_says_what_was_put_into_the_firmware() -> None:
    state = decode_state(GOLDEN)

    for group, expected in GOLDEN_RAW.items():
        assert state.raw[SPEC.group(group)].tolist() == expected, group
    assert (state.charge_state, state.error_flags, state.cycle_time, state.monitor) == (
        0,
        0,
        0,
        0x40,
    )
    assert state.raw[53:].tolist() == [0, 0, 0, 0]


def test_the_golden_packet_comes_out_of_its_raw_inputs() -> None:
    """IR light goes in as the ten bits that the firmware has: its cast loses the top two, not this test."""
    raw = np.zeros(57)
    for group, values in GOLDEN_RAW.items():
        raw[SPEC.group(group)] = values
    raw[SPEC.group("ir_light")] = [40, 171, 302, 433, 564, 695, 826, 957]

    assert wire.encode_state(RobotState(raw)) == GOLDEN


def test_the_groups_are_those_of_the_observation() -> None:
    """Were the order wrong (the wire has light before IR light), raw[33] would be a lamp."""
    position = 0
    for group in wire.GROUPS:
        assert SPEC.group(group.name) == slice(position, position + len(group.high))
        position += len(group.high)
    assert position == SPEC.n_sensors == wire.N_ON_WIRE
    assert SPEC.index("overheating") == wire.OVERHEATING
    assert SPEC.n_channels == wire.N_CHANNELS


def test_the_range_of_every_channel_is_the_range_of_its_bits() -> None:
    """Except the PWM duty (the motor controllers never send -128) and IR light."""
    low = SPEC.raw_low[:53].copy()
    high = SPEC.raw_high[:53]
    low[SPEC.group("motor_voltage")] = -128

    np.testing.assert_array_equal(LOWEST, low)
    np.testing.assert_array_equal(HIGHEST, high)


@given(states())
def test_a_state_survives_its_packet(state: RobotState) -> None:
    packet = wire.encode_state(state)
    decoded_state = decode_state(packet)

    np.testing.assert_array_equal(decoded_state.raw, state.raw)
    assert decoded_state[1:] == state[1:]
    assert wire.encode_state(decoded_state) == packet


@given(states())
def test_fields_lie_where_the_protocol_says(state: RobotState) -> None:
    packet = wire.encode_state(state)

    for group, expected in oracle.decode_field_by_field(packet).items():
        assert state.raw[SPEC.group(group)].tolist() == expected, group
    assert packet[5] == packet[75] == state.charge_state
    assert packet[76] << 16 | packet[77] << 8 | packet[78] == state.error_flags
    assert packet[79:81] == bytes([state.cycle_time, state.monitor])
    assert oracle.crc_bit_by_bit(packet[4:81]) == packet[81] << 8 | packet[82]


def test_a_line_stuck_at_zero_is_not_a_robot() -> None:
    """The CRC of zeros is zero: only the bus voltage, which is never sent as 0, shows the error."""
    stuck = wire.HEADER + bytes(79)

    assert oracle.crc_bit_by_bit(stuck[4:]) == 0
    assert StateParser().feed(stuck * 3) == []


@pytest.mark.parametrize(("offset", "bit"), [(25, 1), (25, 8), (43, 2), (76, 4), (76, 128)])
def test_bits_that_no_firmware_sets_give_an_accident_away(offset: int, bit: int) -> None:
    body = bytearray(GOLDEN[:81])
    body[offset] |= bit
    packet = bytes(body) + oracle.crc_bit_by_bit(bytes(body[4:])).to_bytes(2, "big")

    assert not wire.is_sound(packet)


def test_an_unread_bus_voltage_is_sent_as_the_firmware_sends_it() -> None:
    raw = decode_state(GOLDEN).raw.copy()
    raw[0] = 0

    assert decode_state(wire.encode_state(RobotState(raw))).raw[0] == 255


@pytest.mark.parametrize(
    ("channel", "value", "sentence"),
    [
        ("ir_distance_3", 1024, r"ir_distance\[3\] is 1024, the wire carries 0..1023"),
        ("acceleration_y", -2049, r"acceleration\[1\] is -2049, the wire carries -2048..2047"),
        ("light_0", np.nan, r"light\[0\] is nan, the wire carries 0..1023"),
    ],
)
def test_a_reading_that_does_not_fit_is_refused(channel: str, value: float, sentence: str) -> None:
    raw = decode_state(GOLDEN).raw.copy()
    raw[SPEC.index(channel)] = value

    with pytest.raises(ValueError, match=sentence):
        wire.encode_state(RobotState(raw))


def test_control_packets_have_nine_bytes() -> None:
    assert encode_control(Control(MotorMode.XYTHETA_SPACE, 20, -3, 0, 1)) == bytes.fromhex(
        "deadbeef 01 14 fd 00 01"
    )
    assert bytes.fromhex("deadbeef 01 00 00 00 00") == STOP  # a velocity of zero


@pytest.mark.parametrize(
    "control",
    [Control(256), Control(-1), Control(1, 128), Control(1, 0, -129), Control(1, led_mode=256)],
)
def test_a_control_that_does_not_fit_is_refused(control: Control) -> None:
    """The old driver sent the low eight bits: 300 became 44."""
    with pytest.raises(ValueError, match="modes must be"):
        encode_control(control)


@pytest.mark.parametrize(
    ("action", "units"),
    [
        ("forward", (20, 0, 0)),
        ("reverse", (-20, 0, 0)),
        ("rotate_clockwise", (0, 0, -10)),
        ("stop", (0, 0, 0)),
    ],
)
def test_an_action_is_these_wire_units(action: str, units: tuple[int, int, int]) -> None:
    request = next(np.array(a.request) for a in SPEC.actions if a.name == action)

    assert drive(request, SPEC) == Control(1, *units)


@given(*[st.integers(-127, 127)] * 3)
def test_every_number_of_units_can_be_asked_for(x: int, y: int, theta: int) -> None:
    """A unit is .0176 m/s, of y to the right, and .196 rad/s."""
    assert drive(np.array([0.0176 * x, -0.0176 * y, 0.196 * theta]), SPEC) == Control(
        1, x, y, theta
    )


def test_a_request_beyond_int8_is_limited_alike_to_both_sides() -> None:
    assert drive(np.array([99, 99, 99.0]), SPEC) == Control(1, 127, -127, 127)
    assert drive(np.array([-99, -99, -99.0]), SPEC) == Control(1, -127, 127, -127)
