"""Streams that lose, gain and change bytes: every whole packet comes out, and nothing that was not sent."""

from __future__ import annotations

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from horde_env.robots.critterbot import wire
from horde_env.robots.critterbot.stream import StateParser
from horde_env.robots.critterbot.wire import RobotState
from tests.env.hardware.packets import GOLDEN, RELAXED, SPEC, decode_state, feed_in_pieces, random_states
from tests.oracles import wire as oracle


def pending(parser: StateParser) -> int:
    """Return how many bytes may still become a packet."""
    return parser.size - parser.n_wanted


# ---- the state parser ------------------------------------------------------------------------------------------------


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
    raw[SPEC.index("thermal_2")], raw[SPEC.index("thermal_3")] = 0xADDE, 0xEFBE  # low byte first: DE AD BE EF
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


@RELAXED
@given(st.binary(max_size=400), st.integers(0, 83), st.integers(0, 83))
def test_the_parser_agrees_with_trying_every_byte(junk: bytes, a: int, b: int) -> None:
    stream = GOLDEN[:a] + junk + GOLDEN + GOLDEN[b:] + junk[::-1] + wire.HEADER + GOLDEN
    parser, half = StateParser(), len(stream) // 2
    found, refused = oracle.find_states(stream)

    assert parser.find(stream[:half]) + parser.find(stream[half:]) == found
    assert parser.crc_errors == refused
    assert len(stream) == 83 * parser.packets + parser.skipped_bytes + pending(parser)


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


def contents(state: RobotState) -> tuple[object, ...]:
    return state.raw.tobytes(), *state[1:]


def fuzz(n_bytes: int, seed: int) -> None:
    """A tenth of the packets damaged: every whole one is found, in order, and nothing that was not sent."""
    rng = np.random.default_rng(seed)
    parser, n_fed, n_whole, n_found, chunk = StateParser(), 0, 0, 0, bytearray()
    states = random_states(rng)
    waiting: dict[tuple[object, ...], bool] = {}  # packets sent and not yet seen, in their order; True where sent whole
    while n_fed < n_bytes:
        sent = next(states)
        packet = wire.encode_state(sent)
        whole = rng.random() < 0.9
        waiting[contents(sent)] = whole
        n_whole += whole
        chunk += packet if whole else damaged(packet, rng)
        if rng.random() < 0.3:
            size = int(rng.integers(1, len(chunk) + 1))
            n_fed += size
            for found in map(contents, parser.feed(bytes(chunk[:size]))):
                assert found in waiting, "a packet that was not sent was accepted"
                n_found += 1
                while found in waiting:
                    passed_over = next(iter(waiting))
                    assert passed_over == found or not waiting[passed_over], "a whole packet was not found"
                    del waiting[passed_over]
            del chunk[:size]
    n_left = sum(waiting.values())

    assert n_fed == 83 * parser.packets + parser.skipped_bytes + pending(parser)
    assert n_found == parser.packets
    assert n_found >= n_whole - n_left > 0.85 * n_fed / 83
    assert parser.crc_errors > 0.02 * n_fed / 83
    assert n_left < 100


def test_a_million_bytes_of_bad_line() -> None:
    fuzz(1_000_000, seed=1)


def test_a_million_bytes_of_noise_hold_no_packet() -> None:
    """Noise rich in headers: 22,000 candidates, of which a CRC alone lets through a third of one on average."""
    rng = np.random.default_rng(5)
    noise = b"".join(wire.HEADER + rng.bytes(40) for _ in range(22_728))
    parser = StateParser()

    assert len(noise) > 1_000_000
    assert parser.feed(noise) == []
    assert parser.crc_errors > 22_700
