"""What the robot makes of the bytes that reach it, whole and in pieces; no line, no motors, no time."""

from __future__ import annotations

import itertools

import pytest
from hypothesis import given
from hypothesis import strategies as st

from horde_env.robots.critterbot import wire
from horde_env.robots.critterbot.emulator.microcontroller import RING, Receiver
from horde_env.robots.critterbot.wire import FILL, LED_CUSTOM, MI_ON, STOP, Control, encode_control
from tests.env.hardware.packets import controls
from tests.oracles.wire import RingReader

ASKED = Control(1, 20, -3, 5)
CUSTOM = encode_control(ASKED._replace(led_mode=LED_CUSTOM)) + bytes([200] * 48)
PLAIN = encode_control(ASKED)


def heard(robot: Receiver, data: bytes) -> list[Control]:
    robot.receive(data)
    return robot.controls()


def at_place(place: int) -> Receiver:
    """Return a robot with the next byte at a given place of its ring."""
    robot = Receiver()
    robot.receive(bytes(place))
    robot.controls()
    return robot


@given(
    st.lists(controls | st.just(CUSTOM) | st.binary(max_size=12), max_size=12),
    st.lists(st.integers(0, 400), max_size=8),
)
def test_it_agrees_with_the_ring_itself(items: list[Control | bytes], cuts: list[int]) -> None:
    """Byte by byte, around the ring several times, in pieces as the cycles of 10 ms cut them."""
    stream = (
        b"".join(encode_control(item) if isinstance(item, Control) else item for item in items) * 9
    )
    robot = Receiver()
    twin = RingReader()
    edges = [0, *sorted(min(9 * c, len(stream)) for c in cuts), len(stream)]
    for a, b in itertools.pairwise(edges):
        for i in range(a, b, 900):  # more would be lost
            piece = stream[i : min(i + 900, b)]
            for byte in piece:
                twin.put(byte)
            assert heard(robot, piece) == twin.cycle()


def test_bytes_that_nobody_reads_are_lost_by_whole_rings() -> None:
    """1,030 bytes in one cycle: the first 1,024 are overwritten, and a packet among them never was."""
    assert heard(Receiver(), PLAIN + bytes(RING - 3)) == []
    assert heard(Receiver(), PLAIN + bytes(RING - 10)) == [ASKED]
    robot = at_place(700)
    robot.receive(bytes(2 * RING - 5) + PLAIN)
    assert list(robot._bytes) == list(PLAIN[-4:])


def test_bytes_across_the_end_of_the_ring_count_as_one_more() -> None:
    """A packet without its last byte acts at once, with FF there; a byte earlier in the ring it is awaited."""
    assert heard(at_place(RING - 8), PLAIN[:8]) == [ASKED._replace(led_mode=0xFF)]
    robot = at_place(RING - 9)
    assert heard(robot, PLAIN[:8]) == []
    assert heard(robot, PLAIN[8:]) == [ASKED]


@pytest.mark.parametrize("place", [0, RING - 20, RING - 60])
def test_a_robot_left_with_half_a_packet_comes_to_rest(place: int) -> None:
    """However much it was left with, and wherever in its ring."""
    for left in range(58):
        robot = at_place(place)
        first_controls = heard(robot, CUSTOM[:left])
        commands = first_controls + heard(robot, FILL + STOP)
        assert commands[-1] == Control(1), left
        assert all({c.a, c.b, c.c} <= {20, -3, 5, 0} for c in commands), left
        assert heard(robot, STOP) == [Control(1)], left


def test_a_line_ends_with_cr_and_one_is_read_at_a_time() -> None:
    robot = Receiver()
    robot.receive(MI_ON + b"stat")
    assert [robot.line(), robot.line(), robot.line()] == [b"", b"mi on", None]
    robot.receive(b"us\r")
    assert robot.line() == b"status"


def test_a_line_ends_for_the_robots_language_at_a_zero() -> None:
    """Stops that were sent to a robot at its console are no words, and do not hide those that come after the CR."""
    robot = Receiver()
    robot.receive(FILL + STOP + MI_ON)
    assert [robot.line(), robot.line()] == [b"", b"mi on"]
    robot.receive(STOP + b"\r")
    assert robot.line() == wire.HEADER + b"\x01"


@pytest.mark.parametrize(
    ("n", "n_cycles", "n_left"), [(255, 0, 255), (256, 1, 1), (511, 2, 1), (510, 1, 255)]
)
def test_of_a_line_that_is_too_long_the_rest_is_the_line(
    n: int, n_cycles: int, n_left: int
) -> None:
    robot = Receiver()
    robot.receive(b"x" * n + b"\r")
    assert [robot.line() for _ in range(n_cycles + 1)] == [None] * n_cycles + [b"x" * n_left]
    assert robot.line() is None
