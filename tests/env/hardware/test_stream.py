"""Streams that lose, gain and change bytes: every whole packet comes out, and nothing that was not sent."""

from __future__ import annotations

from types import SimpleNamespace

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from horde_env.hardware.stream import Reading, aggregate
from horde_env.robot import create2
from horde_env.robots.critterbot import wire
from horde_env.robots.critterbot.stream import IrLightUnwrapper, StateParser
from horde_env.robots.critterbot.wire import RobotState
from tests.env.hardware.packets import GOLDEN, SPEC, decode_state, feed_in_pieces
from tests.oracles import wire as oracle


def pending(parser: StateParser) -> int:
    """Return how many bytes may still become a packet."""
    return parser.size - parser.n_wanted


def test_a_lost_byte_costs_one_packet() -> None:
    """Whichever it is. The robot's own driver delivered the ruin and lost the packet after it."""
    for lost in range(83):
        parser = StateParser()
        stream = GOLDEN + GOLDEN[:lost] + GOLDEN[lost + 1 :] + GOLDEN * 2

        assert feed_in_pieces(parser, stream, []) == [GOLDEN] * 3, lost
        assert parser.skipped_bytes == 82, lost
        assert parser.crc_errors == (lost > 3), lost


def test_a_header_inside_the_readings_is_data() -> None:
    raw = decode_state(GOLDEN).raw.copy()
    # Low byte first: DE AD BE EF
    raw[SPEC.index("thermal_2")] = 0xADDE
    raw[SPEC.index("thermal_3")] = 0xEFBE
    packet = wire.encode_state(RobotState(raw))
    parser = StateParser()

    assert packet.count(wire.HEADER) == 2
    assert feed_in_pieces(parser, packet[40:] + packet * 3, [60, 90, 130]) == [packet] * 3
    assert parser.skipped_bytes == 43
    assert parser.crc_errors == 1


def test_the_parser_keeps_less_than_a_packet() -> None:
    parser = StateParser()
    rng = np.random.default_rng(3)
    for _ in range(200):
        parser.feed(rng.bytes(5000) + wire.HEADER)
        assert pending(parser) < 83
    parser.feed(b"\xde" * 100_000)

    assert pending(parser) == 1
    assert parser.n_wanted == 82


@given(st.binary(max_size=400), st.integers(0, 83), st.integers(0, 83))
def test_the_parser_agrees_with_trying_every_byte(junk: bytes, a: int, b: int) -> None:
    stream = GOLDEN[:a] + junk + GOLDEN + GOLDEN[b:] + junk[::-1] + wire.HEADER + GOLDEN
    parser = StateParser()
    half = len(stream) // 2
    packets, refused = oracle.find_states(stream)

    assert parser.find(stream[:half]) + parser.find(stream[half:]) == packets
    assert parser.crc_errors == refused
    assert len(stream) == 83 * parser.packets + parser.skipped_bytes + pending(parser)


def unwrap(unwrapper: IrLightUnwrapper, wrapped: float | np.ndarray) -> np.ndarray:
    raw = np.zeros(SPEC.n_channels)
    raw[SPEC.group("ir_light")] = wrapped
    return unwrapper.unwrap(RobotState(raw))[SPEC.group("ir_light")]


def test_each_channel_of_a_step_is_the_newest_the_mean_of_two_or_the_largest_reading() -> None:
    """Four readings: a contact in the first alone stays 1; the newest light is 40, not 30 or 25."""
    spec = create2()
    readings = []
    for number, (bump, light) in enumerate([(1, 10), (0, 20), (0, 30), (0, 40)], 1):
        raw = np.zeros(spec.n_channels)
        raw[spec.index("bump_left")] = bump
        raw[spec.index("light_bump_left")] = light
        state = SimpleNamespace(raw=raw)
        readings.append(Reading(state, t=0.015 * number, number=number, n_skipped=0, raw=raw))
    values = aggregate(tuple(readings), spec)
    assert values[spec.index("bump_left")] == 1
    assert values[spec.index("light_bump_left")] == 40
    assert values.sum() == 41

    light = []
    for number, level in enumerate((90.0, 20.0, 120.0), 1):
        raw = np.zeros(SPEC.n_channels)
        raw[SPEC.group("ir_light")] = level
        state = SimpleNamespace(raw=raw % 256)
        light.append(Reading(state, t=0.01 * number, number=number, n_skipped=0, raw=raw))
    mean = aggregate(tuple(light), SPEC)
    assert mean[SPEC.group("ir_light")].tolist() == [70.0] * 8
    alone = aggregate((light[-1],), SPEC)
    assert alone[SPEC.group("ir_light")].tolist() == [120.0] * 8


@given(st.lists(st.tuples(st.integers(-31, 31), st.integers(-31, 31)), max_size=80))
def test_ir_light_is_restored_exactly_if_each_level_changes_by_less_than_32(
    steps: list[tuple[int, int]],
) -> None:
    """Alternating bright and dark packets, each level in a random walk over 0..1023."""
    levels = np.clip(np.cumsum([(20, 60), *steps], axis=0), 0, 1023).ravel()
    unwrapper = IrLightUnwrapper()

    assert [unwrap(unwrapper, level % 256.0)[5] for level in levels] == levels.tolist()


def test_ir_light_is_restored_if_the_beacon_swaps_bright_and_dark_packets() -> None:
    """Dark 20 and bright 340 (sent as 84) alternate, then swap, because the beacon runs at 49.4 Hz.

    Comparing only with two packets ago, or only with the last packet, would read 20 as 276.
    """
    unwrapper = IrLightUnwrapper()
    approach = [level for bright in range(20, 341, 20) for level in (20, bright)]
    levels = [*approach, 20, 340, 20, 20, 340, 20, 340, 340, 20]

    assert [unwrap(unwrapper, level % 256.0)[3] for level in levels] == levels


def test_the_first_two_packets_are_not_changed() -> None:
    unwrapper = IrLightUnwrapper()
    wrapped = np.array([0, 40, 100, 127, 128, 196, 254, 255.0])

    for _ in range(2):
        assert unwrap(unwrapper, wrapped).tolist() == wrapped.tolist()
    assert unwrap(unwrapper, 10.0)[6:].tolist() == [266, 266]
    unwrapper.forget()
    assert unwrap(unwrapper, wrapped).tolist() == wrapped.tolist()
