"""The robot's bytes, in both directions."""

from __future__ import annotations

import numpy as np
import pytest

from horde_agent.tiles import TileCoder
from horde_env.robot import create2, critterbot
from horde_env.robots.create2 import wire
from horde_env.robots.create2.stream import FrameParser
from horde_env.robots.create2.wire import Op, Sensors, Wheels, drive, drive_direct, frame_of

SPEC = create2()
# A frame with a different number in each place, and its content as two published drivers decode it.
GOLDEN = bytes.fromhex(
    "13 51 64 06 01 00 01 00 01 00 08 07 00 a4 04 ff 85 00 2d 02 3b d9 ff 05 1b 08 56 0a 89 01 41 0b 37 0b 63 0b 40 04 "
    "b0 00 00 00 02 01 03 00 01 00 c7 80 00 00 c7 ff 39 b0 f4 79 18 16 00 0e 01 ac 04 31 00 00 0d fd 00 8d a8 ac 01 38 "
    "ff d3 00 00 00 01 01 30"
)
SAID = Sensors(
    bumps=6, wall=1, cliff_front_left=1, cliff_right=1, overcurrents=8, dirt=7, ir_omni=164, buttons=4, distance=-123,
    angle=45, charging_state=2, voltage=15321, current=-251, temperature=27, charge=2134, capacity=2697,
    wall_signal=321, cliff_signal_left=2871, cliff_signal_front_left=2915, cliff_signal_front_right=2880,
    cliff_signal_right=1200, charging_sources=2, mode=1, song=3, n_stream_packets=1, requested_velocity=199,
    requested_radius=-32768, requested_right=199, requested_left=-199, encoder_left=-20236, encoder_right=31000,
    light_bumper=22, light_left=14, light_front_left=428, light_centre_left=1073, light_front_right=3581,
    light_right=141, ir_left=168, ir_right=172, current_left=312, current_right=-45, current_side_brush=1, stasis=1,
)  # fmt: skip


def test_the_golden_frame_is_decoded_and_encoded_to_the_bit() -> None:
    assert wire.is_sound(GOLDEN)
    assert wire.decode(GOLDEN[3:-1]) == SAID
    assert frame_of(SAID) == GOLDEN


@pytest.mark.parametrize(
    ("packet", "within", "beyond"),
    [
        ("bumps", 15, 16), ("wall", 1, 2), ("cliff_front_left", 1, 2), ("virtual_wall", 1, 255),
        ("overcurrents", 31, 32), ("unused_16", 0, 1), ("charging_state", 6, 7), ("wall_signal", 1023, 1024),
        ("cliff_signal_right", 4095, 4096), ("charging_sources", 3, 4), ("song_playing", 1, 2),
        ("n_stream_packets", 108, 109), ("requested_right", 500, 501), ("requested_left", -500, -501),
        ("light_bumper", 63, 64), ("light_centre_left", 4095, 4096), ("stasis", 3, 4),
    ],
)  # fmt: skip
def test_one_reading_beyond_its_range_is_enough_to_refuse_a_frame(
    packet: str, within: int, beyond: int
) -> None:
    """The checksum is right in both: one random frame in 256 has such a one."""
    assert wire.is_sound(frame_of(SAID._replace(**{packet: within})))
    assert not wire.is_sound(frame_of(SAID._replace(**{packet: beyond})))


def test_the_checksum_includes_the_header() -> None:
    """OI600's example, 148 2 29 13: the sum without the 19 would end in 182."""
    sensors = Sensors(cliff_signal_front_left=537, virtual_wall=0)
    assert list(frame_of(sensors, (29, 13))) == [19, 5, 29, 2, 25, 13, 0, 163]


@pytest.mark.parametrize(
    ("group", "size"),
    [
        (0, 26),
        (1, 10),
        (2, 6),
        (3, 10),
        (4, 14),
        (5, 12),
        (6, 52),
        (100, 80),
        (101, 28),
        (106, 12),
        (107, 9),
    ],
)
def test_groups_have_their_sizes(group: int, size: int) -> None:
    packet = wire.encode_packet(SAID, group)
    assert len(packet) == size
    assert group > 6 or packet in wire.encode_packet(SAID, 100)


def test_every_channel_comes_from_its_own_packet() -> None:
    values = SPEC.to_si(wire.channels(SAID, 7, -5, 2))
    expected = {
        "battery_voltage": 15.321, "battery_current": -0.251, "battery_temperature": 300.15, "battery_charge": 2.134,
        "wheel_velocity_left": 7 * 0.000444565 * 64 / 6, "wheel_velocity_right": -5 * 0.000444565 * 64 / 6,
        "wheel_current_left": 0.312, "wheel_current_right": -0.045,
        "rotational_velocity": -12 * 0.000444565 * 64 / 6 / 0.235,
        "light_bump_left": 333 / 1023, "light_bump_centre_right": 0.0, "near_front_left": 1.0, "near_left": 0.0,
        "near_centre_left": 1.0, "near_front_right": 1.0, "cliff_signal_right": 1200 / 4095, "cliff_front_left": 1.0,
        "cliff_left": 0.0, "cliff_right": 1.0, "bump_left": 1.0, "bump_right": 0.0, "wheel_drop_left": 0.0,
        "wheel_drop_right": 1.0, "dock_beam_omni_field": 0.0, "dock_beam_omni_green": 1.0, "dock_beam_omni_red": 0.0,
        "dock_beam_left_green": 0.0, "dock_beam_left_red": 1.0, "dock_beam_right_green": 1.0,
        "wheel_overcurrent_left": 0.0, "wheel_overcurrent_right": 1.0, "brush_current_side": 0.001, "stasis": 1.0,
        "dirt": 7 / 255, "docked": 1.0, "blocked": 0.0, "charging": 1.0, "button": 1.0,
    }  # fmt: skip
    for name, value in expected.items():
        assert values[SPEC.index(name)] == pytest.approx(value, abs=1e-9), name


@pytest.mark.parametrize(
    ("first", "receiver"), [(33, "ir_omni"), (36, "ir_left"), (39, "ir_right")]
)
def test_each_receiver_shows_field_green_and_red_of_either_dock(first: int, receiver: str) -> None:
    for character, beams in (
        (161, [1, 0, 0]),
        (168, [0, 0, 1]),
        (246, [1, 1, 0]),
        (162, [0, 0, 0]),
    ):
        raw = wire.channels(Sensors(**{receiver: character}), 0, 0, 2)
        assert raw[first : first + 3].tolist() == beams


def test_the_robot_has_55_channels_and_348_tilings() -> None:
    """6136 tiles and a bias; 50 sensors, so that three time scales and five actions make 750 questions."""
    coder = TileCoder.from_layout(
        SPEC.tile_layout, [{"name": c.name, "group": c.group} for c in SPEC.channels]
    )
    assert (SPEC.n_channels, SPEC.n_sensors, len(SPEC.actions)) == (55, 50, 5)
    assert (coder.n_active, coder.n_features) == (349, 6137)
    assert (critterbot().n_channels, critterbot().n_sensors) == (57, 53)


@pytest.mark.parametrize(
    ("action", "data"),
    [
        ("forward", "91 00 c7 00 c7"),
        ("reverse", "91 ff 39 ff 39"),
        ("rotate_counterclockwise", "91 00 b2 ff 4e"),
        ("rotate_clockwise", "91 ff 4e 00 b2"),
        ("stop", "91 00 00 00 00"),
    ],
)
def test_actions_are_the_golden_commands(action: str, data: str) -> None:
    request = next(np.array(a.request) for a in SPEC.actions if a.name == action)
    assert drive_direct(drive(request, SPEC)) == bytes(4) + bytes.fromhex(data)


def test_no_byte_of_a_speed_is_an_opcode() -> None:
    """No request gives a byte 7 or 128..173, in either direction; create2.md lists the speeds."""
    free = [
        range(1, 7),
        range(8, 83),
        range(174, 249),
        range(250, 263),
        range(264, 339),
        range(430, 501),
    ]
    assert [s for s in range(1, 501) if wire.is_harmless(s)] == [s for r in free for s in r]
    for speed in range(-700, 701):
        sent = wire.harmless(speed)
        assert all(
            b != Op.RESET and not Op.START <= b <= Op.STOP
            for b in sent.to_bytes(2, "big", signed=True)
        )
        assert abs(sent - max(-500, min(speed, 500))) <= 46  # half of the widest hole, 338 to 430
        assert sent * speed >= 0


def test_a_request_beyond_the_wheels_keeps_its_shape() -> None:
    wheels = drive(np.array([0.5, 0.0, 2.1]), SPEC)
    assert wheels.right == 500
    assert wheels.left / wheels.right == pytest.approx(0.25325 / 0.74675, abs=0.02)


@pytest.mark.parametrize(
    ("new", "old", "way"), [(-32768, 32767, 1), (32767, -32768, -1), (5, -5, 10), (-5, 5, -10)]
)
def test_encoders_wrap_in_both_directions(new: int, old: int, way: int) -> None:
    assert wire.difference(new, old) == way


def test_speeds_are_differences_over_six_ticks_and_count_the_frames_that_were_lost() -> None:
    """18 counts a tick; the eighth frame is damaged, and its tick counts all the same."""
    parser = FrameParser()
    frames = [
        frame_of(Sensors(encoder_left=32700 + 18 * i - 65536 * (32700 + 18 * i > 32767)))
        for i in range(12)
    ]
    damaged = bytearray(frames[7])
    damaged[20] ^= 1
    states = parser.feed(b"".join(frames[:7]) + bytes(damaged) + b"".join(frames[8:]))
    assert [s.raw[SPEC.index("wheel_velocity_left")] for s in states[1:]] == [108.0] * 10
    assert parser.breaks == 0


def test_a_jump_of_an_encoder_is_a_break() -> None:
    parser = FrameParser()
    first, second = parser.feed(frame_of(Sensors()) + frame_of(Sensors(encoder_right=500)))
    assert (first.breaks, second.breaks) == (0, 1)
    assert second.raw[SPEC.index("wheel_velocity_right")] == 0.0


@pytest.mark.parametrize("text", [b"Roomba by iRobot!\r\nstm32\r\n", b"bl-start\r\nSTR730\r\n"])
def test_a_banner_is_survived_and_is_a_break(text: bytes) -> None:
    """In one piece or byte by byte, once."""
    for pieces in ([text], [bytes([b]) for b in text]):
        parser = FrameParser()
        states = parser.feed(GOLDEN)
        for piece in pieces:
            states += parser.feed(piece)
        states += parser.feed(GOLDEN)
        assert [s.breaks for s in states] == [0, 1]


def test_charging_text_in_mid_stream_costs_no_frame() -> None:
    parser = FrameParser()
    text = b"bat:   min 807  sec 0  mV 16977  mA 293  deg-C 60\r\n"
    assert len(parser.feed((GOLDEN + text) * 20)) == 20
    assert parser.skipped_bytes == 20 * len(text)


def test_a_robot_that_reports_each_mode_one_too_high_is_read_one_lower() -> None:
    parser = FrameParser()
    parser.mode_offset = 1
    (state,) = parser.feed(frame_of(SAID._replace(mode=3)))
    assert (state.mode, state.raw[SPEC.index("blocked")]) == (wire.SAFE, 0.0)


def fuzzed(seed: int, n_frames: int) -> tuple[bytes, set[bytes]]:
    """Return a stream with cut and flipped frames, noise and text, and the frames sent."""
    rng = np.random.default_rng(seed)
    stream = bytearray()
    sent = set()
    for _ in range(n_frames):
        data = bytearray(GOLDEN[3:-1])
        data[52:56] = rng.bytes(4)
        data[71:75] = rng.bytes(4)
        frame = frame_of(wire.decode(bytes(data)))
        sent.add(frame)
        damage = rng.random()
        if damage < 0.1:
            at = int(rng.integers(len(frame)))
            frame = frame[:at] + frame[at + 1 :]
        elif damage < 0.2:
            at = int(rng.integers(len(frame)))
            frame = frame[:at] + bytes([frame[at] ^ 1 << int(rng.integers(8))]) + frame[at + 1 :]
        elif damage < 0.3:
            frame += rng.bytes(int(rng.integers(1, 300)))
        stream += frame
    return bytes(stream), sent


def test_the_parser_agrees_with_a_slow_one_and_accepts_no_frame_that_was_not_sent() -> None:
    """Oracle: at every position 84 bytes with the header, the sum and the ranges; then on behind them."""
    n_frames = 1_000
    stream, sent = fuzzed(0, n_frames)
    parser = FrameParser()
    rng = np.random.default_rng(0)
    frames = []
    pieces = np.split(
        np.frombuffer(stream, np.uint8), np.cumsum(rng.integers(1, 400, len(stream) // 200))
    )
    for piece in pieces:
        frames += [frame_of(state.sensors) for state in parser.feed(piece.tobytes())]
    expected = []
    at = 0
    while at + 84 <= len(stream):
        candidate = stream[at : at + 84]
        is_frame = (
            list(candidate[:3]) == [19, 81, 100]
            and sum(candidate) % 256 == 0
            and wire.is_sound(candidate)
        )
        expected += [candidate] * is_frame
        at += 84 if is_frame else 1
    assert frames == expected
    assert set(frames) <= sent
    assert len(frames) > 0.7 * n_frames
    assert (
        parser.packets * parser.size + parser.skipped_bytes + parser.size - parser.n_wanted
        == len(stream)
    )


def test_fill_completes_the_longest_command() -> None:
    """A song of 16 notes has 35 bytes."""
    assert len(wire.FILL) >= 35
    assert drive_direct(Wheels(0, 0)) == wire.STOP_BYTES
