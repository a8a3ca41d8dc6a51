"""The robot's bytes. Golden packets were made by the original firmware's own code."""

from __future__ import annotations

import itertools

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from horde_env.hardware import wire
from horde_env.hardware.wire import Control, ControlParser, IrLightUnwrapper, RobotState, StateParser
from horde_env.robot import critterbot
from tests.oracles import wire as oracle

SPEC = critterbot()
RELAXED = settings(deadline=None)  # a busy machine is no failure

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
LOWEST, HIGHEST = wire._LOWEST.astype(int), wire._HIGHEST.astype(int)
HIGHEST[SPEC.group("ir_light")] = 255  # the field has room for 1023, the firmware's cast leaves a byte


def state_of(values: np.ndarray, monitor: int = 0x40, **rest: int) -> RobotState:
    raw = np.zeros(57)
    raw[:53], raw[56] = values, monitor & 1
    return RobotState(raw, monitor=monitor, **rest)


def random_state(rng: np.random.Generator) -> RobotState:
    values = rng.integers(LOWEST, HIGHEST + 1)
    values[0] = rng.integers(1, 256)
    errors, charge, cycle, monitor = rng.integers(0, [1 << 18, 256, 256, 256]).tolist()
    return state_of(values, monitor, error_flags=errors, charge_state=charge, cycle_time=cycle)


@st.composite
def states(draw: st.DrawFn) -> RobotState:
    values = [draw(st.integers(low, high)) for low, high in zip(LOWEST, HIGHEST, strict=True)]
    values[0] = draw(st.integers(1, 255))
    byte = st.integers(0, 255)
    return state_of(
        np.array(values),
        draw(byte),
        error_flags=draw(st.integers(0, (1 << 18) - 1)),
        charge_state=draw(byte),
        cycle_time=draw(byte),
    )


# ---- state packets ---------------------------------------------------------------------------------------------------


def test_the_golden_packet_says_what_was_put_into_the_firmware() -> None:
    state = wire.decode_state(GOLDEN)

    for group, expected in GOLDEN_RAW.items():
        assert state.raw[SPEC.group(group)].tolist() == expected, group
    assert (state.charge_state, state.error_flags, state.cycle_time, state.monitor) == (0, 0, 0, 0x40)
    assert state.raw[53:].tolist() == [0, 0, 0, 0]


def test_the_golden_packet_comes_out_of_its_raw_inputs() -> None:
    """IR light goes in as the ten bits that the firmware has: its cast loses the top two, not this test."""
    raw = np.zeros(57)
    for group, values in GOLDEN_RAW.items():
        raw[SPEC.group(group)] = values
    raw[SPEC.group("ir_light")] = [40, 171, 302, 433, 564, 695, 826, 957]

    assert wire.encode_state(RobotState(raw)) == GOLDEN


def test_ir_distance_has_the_ten_bits_of_the_wire() -> None:
    """The robot's own driver forgot to shift and made hi8 | lsb2 of it: 946 would read 238."""
    assert wire.decode_state(GOLDEN).raw[SPEC.index("ir_distance_9")] == 946


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
    """But for the PWM duty, whose -128 the motor controllers never send, and IR light."""
    low, high = SPEC.raw_low[:53].copy(), SPEC.raw_high[:53]
    low[SPEC.group("motor_voltage")] = -128

    np.testing.assert_array_equal(LOWEST, low)
    np.testing.assert_array_equal(HIGHEST, high)


def test_every_byte_of_a_packet_is_accounted_for() -> None:
    used = {offset for group in wire.GROUPS for offset in group.high + group.low}
    others = {0, 1, 2, 3, wire.CHARGE, wire.CHARGE_COPY, 76, 77, 78, wire.CYCLE_TIME, wire.MONITOR, 81, 82}

    assert used | others == set(range(83))
    assert not used & others


@RELAXED
@given(states())
def test_a_state_survives_its_packet(state: RobotState) -> None:
    packet = wire.encode_state(state)
    back = wire.decode_state(packet)

    np.testing.assert_array_equal(back.raw, state.raw)
    assert back[1:] == state[1:]
    assert wire.encode_state(back) == packet


@RELAXED
@given(states())
def test_fields_lie_where_the_protocol_says(state: RobotState) -> None:
    packet = wire.encode_state(state)

    for group, expected in oracle.decode_field_by_field(packet).items():
        assert state.raw[SPEC.group(group)].tolist() == expected, group
    assert packet[5] == packet[75] == state.charge_state
    assert packet[76] << 16 | packet[77] << 8 | packet[78] == state.error_flags
    assert packet[79:81] == bytes([state.cycle_time, state.monitor])


@RELAXED
@given(states())
def test_the_crc_is_long_division_by_0x1021(state: RobotState) -> None:
    packet = wire.encode_state(state)

    assert oracle.crc_bit_by_bit(packet[4:81]) == packet[81] << 8 | packet[82]
    assert oracle.crc_bit_by_bit(packet[4:]) == 0


def test_any_one_or_two_flipped_bits_are_noticed() -> None:
    """A CRC of 16 bits with this polynomial sees every double error in fewer than 32,767 bits."""
    bits = range(4 * 8, 83 * 8)
    number = int.from_bytes(GOLDEN, "big")
    pairs = itertools.chain(((i, i) for i in bits), itertools.combinations(bits[::3], 2))
    for i, j in pairs:
        damaged = (number ^ (1 << (663 - i) | 1 << (663 - j))).to_bytes(83, "big")
        assert not wire.is_sound(damaged), (i, j)


def test_a_line_stuck_at_zero_is_not_a_robot() -> None:
    """The CRC of zeros is zero: only the bus voltage, which is never sent as 0, gives it away."""
    stuck = wire.HEADER + bytes(79)

    assert oracle.crc_bit_by_bit(stuck[4:]) == 0
    assert StateParser().feed(stuck * 3) == []


def test_a_splice_with_the_right_crc_is_refused() -> None:
    """Half a packet, one byte, a packet: by one chance in 65,536 its CRC is right, and only spare bits betray it."""
    splice = (GOLDEN[:44] + b"Q" + GOLDEN)[:83]

    assert oracle.crc_bit_by_bit(splice[4:]) == 0
    assert feed_in_pieces(StateParser(), GOLDEN[:44] + b"Q" + GOLDEN, []) == [GOLDEN]


@pytest.mark.parametrize(("offset", "bit"), [(25, 1), (25, 8), (43, 2), (76, 4), (76, 128)])
def test_bits_that_no_firmware_sets_give_an_accident_away(offset: int, bit: int) -> None:
    body = bytearray(GOLDEN[:81])
    body[offset] |= bit
    packet = bytes(body) + oracle.crc_bit_by_bit(bytes(body[4:])).to_bytes(2, "big")

    assert not wire.is_sound(packet)


def test_an_unread_bus_voltage_is_sent_as_the_firmware_sends_it() -> None:
    raw = wire.decode_state(GOLDEN).raw.copy()
    raw[0] = 0

    assert wire.decode_state(wire.encode_state(RobotState(raw))).raw[0] == 255


@pytest.mark.parametrize(
    ("packet", "sentence"),
    [
        (GOLDEN[:-1], "82 bytes that start with deadbeef"),
        (b"", "0 bytes that start with nothing"),
        (b"\0" + GOLDEN[1:], "83 bytes that start with 00adbeef"),
        (GOLDEN[:-1] + b"\0", "its CRC says bb00, its bytes bb55"),
    ],
)
def test_a_packet_is_refused_in_a_sentence(packet: bytes, sentence: str) -> None:
    with pytest.raises(ValueError, match=sentence):
        wire.decode_state(packet)


@pytest.mark.parametrize(
    ("channel", "value", "sentence"),
    [
        ("ir_distance_3", 1024, r"ir_distance\[3\] is 1024, the wire carries 0..1023"),
        ("ir_light_0", -1, r"ir_light\[0\] is -1, the wire carries 0..1023"),
        ("ir_light_0", 1024, r"ir_light\[0\] is 1024, the wire carries 0..1023"),
        ("acceleration_y", -2049, r"acceleration\[1\] is -2049, the wire carries -2048..2047"),
        ("light_0", 0.5, "57 integers"),
        ("light_0", np.nan, "57 integers"),
        ("overheating", 1, "overheating is 1 in raw and the monitor byte is 0x40"),
    ],
)
def test_a_state_that_does_not_fit_is_refused(channel: str, value: float, sentence: str) -> None:
    raw = wire.decode_state(GOLDEN).raw.copy()
    raw[SPEC.index(channel)] = value

    with pytest.raises(ValueError, match=sentence):
        wire.encode_state(RobotState(raw))


def test_there_are_18_error_flags() -> None:
    with pytest.raises(ValueError, match="error_flags are 18 bits, not 0x40000"):
        wire.encode_state(RobotState(wire.decode_state(GOLDEN).raw, error_flags=1 << 18))


def test_overheating_is_bit_0_of_the_monitor() -> None:
    state = state_of(wire.decode_state(GOLDEN).raw[:53], monitor=0x81)
    back = wire.decode_state(wire.encode_state(state))

    assert back.raw[SPEC.index("overheating")] == 1
    assert back.monitor == wire.MONITOR_CHARGING | wire.MONITOR_OVERHEATING


# ---- IR light --------------------------------------------------------------------------------------------------------


@RELAXED
@given(st.lists(st.tuples(st.integers(-31, 31), st.integers(-31, 31)), max_size=80))
def test_ir_light_is_unwrapped_exactly_while_each_phase_moves_by_less_than_32(steps: list[tuple[int, int]]) -> None:
    """Bright and dark packets by turns, each level wandering as it likes over 0..1023, through every coincidence."""
    levels = np.clip(np.cumsum([(20, 60), *steps], axis=0), 0, 1023).ravel()
    unwrapper = IrLightUnwrapper()

    assert [unwrapper.unwrap(np.full(8, level % 256.0))[5] for level in levels] == levels.tolist()


def test_the_beacon_may_swap_its_bright_and_dark_packets() -> None:
    """Dark 20 and bright 340 by turns, then the other way round (the beacon runs at 49.4 Hz): 340 is sent as 84.

    The nearest reading to two packets ago alone would take 20 for 276, and to the previous packet alone likewise.
    """
    unwrapper = IrLightUnwrapper()
    approach = [level for bright in range(20, 341, 20) for level in (20, bright)]
    levels = [*approach, 20, 340, 20, 20, 340, 20, 340, 340, 20]

    assert [unwrapper.unwrap(np.full(8, level % 256.0))[3] for level in levels] == levels


def test_the_first_ir_light_is_taken_as_it_is() -> None:
    unwrapper = IrLightUnwrapper()
    wrapped = np.array([0, 40, 100, 127, 128, 196, 254, 255.0])

    for _ in range(2):
        assert unwrapper.unwrap(wrapped).tolist() == wrapped.tolist()
    assert unwrapper.unwrap(np.full(8, 10.0))[6:].tolist() == [266, 266]
    unwrapper.forget()
    assert unwrapper.unwrap(wrapped).tolist() == wrapped.tolist()


def test_a_state_gives_its_ir_light() -> None:
    assert wire.ir_light(wire.decode_state(GOLDEN)).tolist() == GOLDEN_RAW["ir_light"]


# ---- control packets -------------------------------------------------------------------------------------------------

controls = st.builds(
    Control,
    st.integers(0, 255),
    *[st.integers(-128, 127)] * 3,
    st.integers(0, 255).filter(lambda mode: mode != wire.LedMode.CUSTOM),
    st.just(b""),
) | st.builds(
    Control, st.integers(0, 255), *[st.integers(-128, 127)] * 3, st.just(7), st.binary(min_size=48, max_size=48)
)


def test_the_golden_control_packet() -> None:
    control = Control(wire.MotorMode.XYTHETA_SPACE, 20, 0, 0, wire.LedMode.CLEAR)

    assert wire.encode_control(control) == bytes.fromhex("deadbeef 01 14 00 00 01")
    assert wire.decode_control(bytes.fromhex("deadbeef 01 14 00 00 01")) == control


def test_stop_is_a_velocity_of_zero() -> None:
    """Not WHEEL_VOLTAGE, and not the all-zero WHEEL_SPACE packet of the old driver."""
    assert bytes.fromhex("deadbeef 01 00 00 00 00") == wire.STOP


@RELAXED
@given(controls)
def test_a_control_survives_its_packet(control: Control) -> None:
    packet = wire.encode_control(control)

    assert len(packet) == (57 if control.led_mode == 7 else 9)
    assert wire.decode_control(packet) == control


@pytest.mark.parametrize(
    "control",
    [
        Control(256),
        Control(-1),
        Control(1, 128),
        Control(1, 0, -129),
        Control(1, led_mode=256),
        Control(1, led_mode=7),
        Control(1, led_mode=7, leds=bytes(47)),
        Control(1, led_mode=1, leds=bytes(48)),
    ],
)
def test_a_control_that_does_not_fit_is_refused(control: Control) -> None:
    """The old driver sent the low eight bits: 300 became 44."""
    with pytest.raises(ValueError, match=r"modes must be|custom LEDs are 48 bytes"):
        wire.encode_control(control)


@pytest.mark.parametrize(
    "packet", [b"", wire.STOP[:-1], wire.STOP + b"\0", b"\0" + wire.STOP[1:], wire.STOP[:8] + b"\7"]
)
def test_bytes_that_are_no_control_are_refused(packet: bytes) -> None:
    with pytest.raises(ValueError, match="a control packet is 9 bytes"):
        wire.decode_control(packet)


@pytest.mark.parametrize(
    ("action", "units"),
    [("forward", (20, 0, 0)), ("reverse", (-20, 0, 0)), ("rotate_clockwise", (0, 0, -10)), ("stop", (0, 0, 0))],
)
def test_an_action_is_these_wire_units(action: str, units: tuple[int, int, int]) -> None:
    request = next(np.array(a.request) for a in SPEC.actions if a.name == action)

    assert wire.drive(request, SPEC) == Control(1, *units)


def test_the_wires_y_points_to_the_right() -> None:
    """A request to the left (+y, SI) is -y on the wire; the likely mistake gives +25."""
    assert wire.drive(np.array([0, 0.44, 0]), SPEC) == Control(1, 0, -25, 0)
    assert wire.request_of(Control(1, 0, -25, 0), SPEC)[1] == pytest.approx(0.44)


@RELAXED
@given(*[st.integers(-127, 127)] * 3)
def test_units_survive_the_way_to_si_and_back(x: int, y: int, theta: int) -> None:
    control = Control(1, x, y, theta)

    assert wire.drive(wire.request_of(control, SPEC), SPEC) == control


def test_a_request_beyond_int8_is_limited_alike_to_both_sides() -> None:
    assert wire.drive(np.array([99, 99, 99.0]), SPEC) == Control(1, 127, -127, 127)
    assert wire.drive(np.array([-99, -99, -99.0]), SPEC) == Control(1, -127, 127, -127)


@pytest.mark.parametrize("request_", [[0, np.nan, 0], [0, 0], [np.inf, 0, 0]])
def test_a_request_that_is_not_three_finite_numbers_is_refused(request_: list[float]) -> None:
    with pytest.raises(ValueError, match="three finite numbers"):
        wire.drive(np.array(request_), SPEC)


def test_only_xytheta_asks_for_a_velocity() -> None:
    with pytest.raises(ValueError, match="only motor mode 1"):
        wire.request_of(Control(2, 1, 1, 1), SPEC)


# ---- the state parser ------------------------------------------------------------------------------------------------


def feed_in_pieces(parser: StateParser, stream: bytes, cuts: list[int]) -> list[bytes]:
    edges = [0, *sorted(cuts), len(stream)]
    return [wire.encode_state(s) for a, b in itertools.pairwise(edges) for s in parser.feed(stream[a:b])]


@RELAXED
@given(st.lists(st.integers(0, 5 * 83), max_size=30))
def test_however_the_stream_is_cut_the_packets_are_the_same(cuts: list[int]) -> None:
    parser = StateParser()

    assert feed_in_pieces(parser, GOLDEN * 5, cuts) == [GOLDEN] * 5
    assert (parser.packets, parser.crc_errors, parser.skipped_bytes, parser.n_pending) == (5, 0, 0, 0)


@pytest.mark.parametrize("lost", range(83))
def test_a_lost_byte_costs_one_packet(lost: int) -> None:
    """The robot's own driver delivered the ruin and lost the packet after it."""
    parser = StateParser()
    stream = GOLDEN + GOLDEN[:lost] + GOLDEN[lost + 1 :] + GOLDEN * 2

    assert feed_in_pieces(parser, stream, []) == [GOLDEN] * 3
    assert parser.skipped_bytes == 82
    assert parser.crc_errors == (lost > 3)


@pytest.mark.parametrize("where", range(84))
@pytest.mark.parametrize("extra", [b"\x0d", b"\xde", b"\xde\xad\xbe", wire.HEADER])
def test_extra_bytes_cost_at_most_the_packet_they_fall_into(where: int, extra: bytes) -> None:
    parser = StateParser()
    stream = GOLDEN + GOLDEN[:where] + extra + GOLDEN[where:] + GOLDEN
    # A byte put in before its own like (or a header into a header) leaves a whole packet somewhere.
    intact = 3 if GOLDEN in GOLDEN[:where] + extra + GOLDEN[where:] else 2

    assert feed_in_pieces(parser, stream, []) == [GOLDEN] * intact
    assert parser.skipped_bytes == len(stream) - 83 * intact


def test_a_header_inside_the_readings_is_data() -> None:
    raw = wire.decode_state(GOLDEN).raw.copy()
    raw[SPEC.index("thermal_2")], raw[SPEC.index("thermal_3")] = 0xADDE, 0xEFBE  # low byte first: DE AD BE EF
    packet = wire.encode_state(RobotState(raw))
    parser = StateParser()

    assert packet.count(wire.HEADER) == 2
    assert feed_in_pieces(parser, packet[40:] + packet * 3, [60, 90, 130]) == [packet] * 3
    assert parser.skipped_bytes == 43
    assert parser.crc_errors == 1


@pytest.mark.parametrize("byte", [0xFF, 0x0D, 0x0A, 0x11, 0x13, 0x00])
def test_bytes_that_terminals_like_to_change_survive(byte: int) -> None:
    """FF is not doubled on the wire: that was the old driver's own terminal setting."""
    raw = wire.decode_state(GOLDEN).raw.copy()
    raw[SPEC.group("thermal")] = byte << 8 | byte
    packet = wire.encode_state(RobotState(raw))

    assert feed_in_pieces(StateParser(), packet * 4, []) == [packet] * 4


def test_the_parser_keeps_less_than_a_packet() -> None:
    parser = StateParser()
    rng = np.random.default_rng(3)
    for _ in range(200):
        parser.feed(rng.bytes(5000) + wire.HEADER)
        assert parser.n_pending < 83
    parser.feed(b"\xde" * 100_000)

    assert parser.n_pending == 1
    assert parser.n_wanted == 82


@RELAXED
@given(st.binary(max_size=400), st.integers(0, 83), st.integers(0, 83))
def test_the_parser_agrees_with_trying_every_byte(junk: bytes, a: int, b: int) -> None:
    stream = GOLDEN[:a] + junk + GOLDEN + GOLDEN[b:] + junk[::-1] + wire.HEADER + GOLDEN
    parser, half = StateParser(), len(stream) // 2
    found, refused = oracle.find_states(stream)

    assert parser.find(stream[:half]) + parser.find(stream[half:]) == found
    assert parser.crc_errors == refused
    assert len(stream) == 83 * parser.packets + parser.skipped_bytes + parser.n_pending


def damaged(packet: bytes, rng: np.random.Generator) -> bytes:
    """One packet after one of the things that happen to bytes on a line; never the packet itself at its place."""
    where, kind = int(rng.integers(83)), int(rng.integers(6))
    if kind == 0:
        return packet[:where] + packet[where + 1 :]
    if kind == 1:
        return packet[:where] + rng.bytes(int(rng.integers(1, 5))) + packet[where:]
    if kind == 2:
        return packet[:where] + bytes([packet[where] ^ 1 << int(rng.integers(8))]) + packet[where + 1 :]
    if kind == 3:
        return packet[:where]
    if kind == 4:
        return packet[:where] + wire.HEADER + packet[where + 4 :]
    return rng.bytes(int(rng.integers(1, 200)))


def fuzz(n_bytes: int, seed: int) -> None:
    """A tenth of the packets damaged: every whole one is found, in order, and nothing that was not sent."""
    rng = np.random.default_rng(seed)
    parser, n_fed, n_whole, n_found, chunk = StateParser(), 0, 0, 0, bytearray()
    waiting: dict[bytes, bool] = {}  # packets sent and not yet seen, in their order; True where sent whole
    while n_fed < n_bytes:
        packet = wire.encode_state(random_state(rng))
        whole = rng.random() < 0.9
        waiting[packet] = whole
        n_whole += whole
        chunk += packet if whole else damaged(packet, rng)
        if rng.random() < 0.3:
            size = int(rng.integers(1, len(chunk) + 1))
            n_fed += size
            for state in parser.feed(bytes(chunk[:size])):
                found = wire.encode_state(state)
                assert found in waiting, "a packet that nobody sent was accepted"
                n_found += 1
                while found in waiting:
                    passed_over = next(iter(waiting))
                    assert passed_over == found or not waiting[passed_over], "a whole packet was not found"
                    del waiting[passed_over]
            del chunk[:size]
    n_left = sum(waiting.values())

    assert n_fed == 83 * parser.packets + parser.skipped_bytes + parser.n_pending
    assert n_found == parser.packets
    assert n_found >= n_whole - n_left > 0.85 * n_fed / 83
    assert parser.crc_errors > 0.02 * n_fed / 83
    assert n_left < 100


def test_a_million_bytes_of_bad_line() -> None:
    fuzz(1_000_000, seed=1)


@pytest.mark.slow
def test_ten_million_bytes_of_bad_line() -> None:
    fuzz(10_000_000, seed=2)


def test_a_million_bytes_of_noise_hold_no_packet() -> None:
    """Noise rich in headers: 22,000 candidates, of which a CRC alone lets through a third of one on average."""
    rng = np.random.default_rng(5)
    noise = b"".join(wire.HEADER + rng.bytes(40) for _ in range(22_728))
    parser = StateParser()

    assert len(noise) > 1_000_000
    assert parser.feed(noise) == []
    assert parser.crc_errors > 22_700


# ---- the robot's reader of controls ----------------------------------------------------------------------------------


@RELAXED
@given(st.lists(controls | st.binary(max_size=12), max_size=12), st.lists(st.integers(0, 400), max_size=8))
def test_the_control_parser_agrees_with_the_state_machine(items: list[Control | bytes], cuts: list[int]) -> None:
    stream = b"".join(wire.encode_control(item) if isinstance(item, Control) else item for item in items)
    parser, reader = ControlParser(), oracle.ControlReader()
    edges = [0, *sorted(min(c, len(stream)) for c in cuts), len(stream)]

    got = [c for a, b in itertools.pairwise(edges) for c in parser.feed(stream[a:b])]
    expected = [control for byte in stream if (control := reader.take(byte)) is not None]

    assert got == expected


@pytest.mark.parametrize(
    ("before", "n_taken"),
    [(b"", 1), (b"\xde", 0), (b"\xde\xad", 0), (b"\xde\xad\xbe", 0), (b"\xad", 1), (b"junk", 1), (b"\xde\x00", 1)],
)
def test_a_byte_that_breaks_the_header_is_not_looked_at_again(before: bytes, n_taken: int) -> None:
    """DE DE AD BE EF loses its packet in the robot; a searching parser would find it."""
    assert len(ControlParser().feed(before + wire.STOP)) == n_taken


def test_a_control_is_taken_when_its_last_byte_is_there() -> None:
    custom = wire.encode_control(Control(1, 1, 2, 3, wire.LedMode.CUSTOM, bytes(range(48))))
    parser = ControlParser()

    assert [len(parser.feed(bytes([byte]))) for byte in custom] == [0] * 56 + [1]


def test_controls_are_found_byte_by_byte_in_a_million_bytes_of_bad_line() -> None:
    rng = np.random.default_rng(11)
    alphabet = np.frombuffer(wire.HEADER + b"\x00\x01\x07\x14", dtype=np.uint8)
    packets = [wire.encode_control(Control(int(m), int(a))) for m, a in rng.integers(-128, 128, (500, 2)) if m >= 0]
    pieces = [packets[i % len(packets)] + bytes(rng.choice(alphabet, 7)) for i in range(6_000)]
    stream = b"".join(pieces) + wire.HEADER * 3
    parser, reader = ControlParser(), oracle.ControlReader()
    got = [c for i in range(0, len(stream), 997) for c in parser.feed(stream[i : i + 997])]

    assert got == [c for byte in stream if (c := reader.take(byte)) is not None]
    assert len(got) > 4_000
    taken = sum(len(wire.encode_control(c)) for c in got)
    assert taken + parser.skipped_bytes <= len(stream) < taken + parser.skipped_bytes + 57


@pytest.mark.parametrize("left", range(58))
def test_a_robot_left_with_half_a_packet_comes_to_rest(left: int) -> None:
    """The header of the next packet, taken for velocities, is y = -34, theta = -83: a spin at full speed."""
    custom = wire.encode_control(Control(1, 20, -3, 5, wire.LedMode.CUSTOM, bytes([200] * 48)))
    robot = ControlParser()
    robot.feed(custom[:left])
    controls = robot.feed(wire.RESYNC)

    assert wire.encode_control(controls[-1]) == wire.STOP
    assert all({c.a, c.b, c.c} <= {20, -3, 5, 0} for c in controls)
    assert robot.feed(wire.STOP) == controls[-1:]

    if left == 6:
        wild = ControlParser()
        wild.feed(custom[:left])
        assert wild.feed(wire.STOP)[0][1:4] == (20, -34, -83)
