"""The emulator's lines in real time: pseudo terminals, sockets, drops. All waits have a limit."""

from __future__ import annotations

import contextlib
import os
import socket
import time
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
import serial
from numpy.random import default_rng

from horde_env.emulation.lines import PtyLine, SocketLine
from horde_env.errors import BackendUnavailable
from horde_env.hardware.port import Port, serial_for_url
from horde_env.robot import critterbot
from horde_env.robots.critterbot import stream
from horde_env.robots.critterbot.emulator.driver import DropsLine, PacketCutter
from horde_env.robots.critterbot.emulator.emulator import LATE_MS, Emulator, packet_delays
from horde_env.robots.critterbot.wire import Control, encode_control
from horde_env.tools.serving import serve
from tests.env.hardware.packets import GOLDEN
from tests.env.hardware.peers import LIMIT_S, Serving, config, handshake, open_port, raising, until

pytestmark = [pytest.mark.sim, pytest.mark.hardware]
SPEC = critterbot()


def address(url: str) -> tuple[str, int]:
    host, port = url.removeprefix("socket://").split(":")
    return host, int(port)


def test_the_gaps_are_those_of_the_real_robots_log() -> None:
    """The log's: mean 9.97 ms, p1 7, p5 8, median 10, p95 14, p99 18, max 33, in whole milliseconds."""
    rng = default_rng(0)
    k = np.arange(50_000)
    delays = packet_delays(rng)
    times_ms = 10.0 * k + 1e3 * np.array([next(delays) for _ in k])
    gaps = np.diff(np.floor(times_ms))

    assert np.mean(gaps) == pytest.approx(10.0, abs=0.01)
    for share, logged_ms in (
        (1, 7),
        (5, 8),
        (25, 9),
        (50, 10),
        (75, 10),
        (90, 11),
        (95, 14),
        (99, 18),
    ):
        assert np.percentile(gaps, share) == pytest.approx(logged_ms, abs=1)
    assert np.min(np.diff(times_ms)) >= 7.9  # 83 bytes of 11 bits at 115,200 baud
    assert np.max(times_ms - 10.0 * k) <= LATE_MS[1]


# ---- lines -----------------------------------------------------------------------------------------------------------


def test_every_byte_passes_a_pseudo_terminal_both_ways_and_one_that_nobody_reads_loses_bytes() -> (
    None
):
    line = PtyLine("robot")
    everything = bytes(range(256))
    host = os.open(line.url, os.O_RDWR | os.O_NOCTTY)
    os.write(host, everything)
    received = bytearray()
    until(lambda: (received.extend(line.read()), len(received) == 256)[1])
    assert received == everything
    line.write(everything)
    heard = b""
    while len(heard) < 256:
        heard += os.read(host, 256)
    assert heard == everything
    os.close(host)
    for _ in range(10_000):
        line.write(GOLDEN)  # never waits
    line.close()


@pytest.mark.parametrize(
    "make", [SocketLine, lambda host, port: DropsLine(host, port, clock=lambda: 0.0)]
)
def test_a_second_host_over_tcp_is_closed_and_the_first_stays(make: Any) -> None:
    with contextlib.closing(make("127.0.0.1", 0)) as line:
        with socket.create_connection(address(line.url)) as first:
            until(lambda: (line._accept(), line._client)[1])
            with socket.create_connection(address(line.url)) as second:
                line.write(GOLDEN)
                second.settimeout(LIMIT_S)
                assert second.recv(1) == b""
            assert first.recv(16)
        until(lambda: (line.read(), line._client is None)[1])
        with socket.create_connection(address(line.url)) as third:
            until(lambda: (line.write(GOLDEN), line._client)[1])
            assert third.recv(16)


def test_an_address_that_is_taken_is_refused_in_a_sentence() -> None:
    with socket.create_server(("127.0.0.1", 0)) as other:
        port = other.getsockname()[1]
        with pytest.raises(BackendUnavailable, match=rf"cannot listen on 127\.0\.0\.1:{port}: "):
            SocketLine("127.0.0.1", port)


# ---- the on-board driver ---------------------------------------------------------------------------------------------


Driver = tuple[DropsLine, socket.socket]


@pytest.fixture
def driver() -> Iterator[Driver]:
    line = DropsLine("127.0.0.1", 0, clock=lambda: 1_286_293_951.25)
    with contextlib.closing(line), socket.create_connection(address(line.url)) as host:
        host.settimeout(LIMIT_S)
        until(lambda: (line._accept(), line._client)[1])
        yield line, host


def test_the_driver_wakes_the_robot_and_says_nothing_with_zeros(driver: Driver) -> None:
    line, _ = driver
    assert line.read() == b"\rmi on\r" + encode_control(Control(0))
    assert line.read() == b""


def test_the_driver_passes_the_newest_control_on_after_each_packet(driver: Driver) -> None:
    line, host = driver
    line.read()
    host.sendall(
        stream.encode_control_drop(Control(1, 1)) + stream.encode_control_drop(Control(1, 2))
    )
    until(lambda: (line.read(), line._slot)[1] == encode_control(Control(1, 2)))
    line.write(GOLDEN)
    assert line.read() == encode_control(Control(1, 2))
    line.write(GOLDEN)
    assert line.read() == b""


def test_the_driver_cuts_off_a_host_whose_control_comes_in_two_segments(driver: Driver) -> None:
    line, host = driver
    line.read()
    host.sendall(stream.encode_control_drop(Control(1, 1))[:50])
    until(lambda: (line.read(), line._client is None)[1])
    assert host.recv(1) == b""


def bundles(line: DropsLine, port: Any) -> list[int]:
    """Return how many drops are there for a host after each one that the driver sends; the host speaks with every 10th.

    No clock is in it: what waits for an acknowledgement waits for far longer than two hundred drops
    take.
    """
    sizes = []
    for k in range(200):
        line.write(GOLDEN)
        if k % 10 == 0:
            port.write(stream.encode_control_drop(Control(0)))
            line.read()
        sizes.append(len(port.read(100 * stream.DROP_SIZE)) // stream.DROP_SIZE)
    return sizes[50:]  # a new connection acknowledges at once for a while


@pytest.mark.skipif(not hasattr(socket, "TCP_QUICKACK"), reason="acknowledging at once is Linux's")
def test_our_host_gets_each_drop_when_it_is_sent_though_the_driver_waits_for_acknowledgements() -> (
    None
):
    """The original driver's Nagle against the host's delayed acknowledgement: drops in fours, 40 ms old."""
    sizes = {}
    for whose, connect in (("pyserial's", serial.serial_for_url), ("ours", serial_for_url)):
        line = DropsLine("127.0.0.1", 0, clock=lambda: 0.0)
        with contextlib.closing(line), contextlib.closing(connect(line.url, timeout=0)) as port:
            until(lambda line=line: (line._accept(), line._client)[1])
            sizes[whose] = bundles(line, port)
    assert max(sizes["pyserial's"]) >= 4
    assert max(sizes["ours"]) <= 2


# ---- what the driver makes of a bad line -----------------------------------------------------------------------------


def test_the_driver_takes_the_79_bytes_after_a_header_for_a_packet() -> None:
    """Whatever they are, and however the header came: DE 00 AD BE EF is one, because the match does not restart."""
    wrong_crc = GOLDEN[:-1] + b"!"
    assert PacketCutter().cut(wrong_crc + GOLDEN) == [wrong_crc, GOLDEN]
    assert PacketCutter().cut(b"\xde\0\0\xad\xbe" + b"junk" + GOLDEN[3:]) == [GOLDEN]
    cutter = PacketCutter()
    assert [p for k in range(0, 2 * 83, 7) for p in cutter.cut((GOLDEN * 2)[k : k + 7])] == [
        GOLDEN
    ] * 2


def test_a_wrong_parity_costs_its_packet_and_no_other() -> None:
    cutter = PacketCutter()
    assert cutter.cut(GOLDEN) == [GOLDEN]
    assert cutter.cut(GOLDEN[:50] + b"?" + GOLDEN[51:], bad_parity=True) == []
    assert cutter.cut(GOLDEN) == [GOLDEN]
    cutter.cut(GOLDEN[:30])
    assert cutter.cut(GOLDEN[30:], bad_parity=True) == []
    assert cutter.cut(GOLDEN) == [GOLDEN]


def test_a_drops_error_flags_begin_with_the_byte_that_should_be_the_charge_states_copy(
    driver: Driver,
) -> None:
    line, host = driver
    line.write(GOLDEN[:75] + b"\x09" + GOLDEN[76:])
    drop = host.recv(396, socket.MSG_WAITALL)
    assert drop[24 + 4 * 90 : 24 + 4 * 91] == b"\0\0\0\x09"


def test_the_driver_changes_0d_to_0a(driver: Driver) -> None:
    """GOLDEN's fourth thermal reading is 0D0D, 3341: it becomes 0A0A, 2570."""
    line, host = driver
    line.write(GOLDEN)
    (state,) = stream.decode_state_drops([host.recv(396, socket.MSG_WAITALL)])
    assert state.raw[SPEC.group("thermal")][3] == 2570


def test_a_host_that_reads_nothing_gets_whole_drops_when_it_does(driver: Driver) -> None:
    line, host = driver
    for _ in range(30_000):
        line.write(GOLDEN)
    assert len(line._outbox) < 2 * 396  # what has no room is lost, not kept
    parser = stream.StateDropParser()
    host_is_silent = False
    host.settimeout(0.2)
    while not host_is_silent:
        try:
            parser.feed(host.recv(1 << 20))
        except TimeoutError:
            host_is_silent = True
    assert parser.packets > 10
    assert parser.skipped_bytes == 0


def test_a_port_that_was_taken_while_it_was_unplugged_is_tried_again() -> None:
    """The robot must not die of it, nor cut off the host of its other line at each attempt."""
    with Emulator(seed=1) as emulator:
        terminal = emulator.open_pty()
        url = emulator.listen()
        emulator.inject("unplug", for_s=0.02)
        emulator.advance()
        with socket.create_server(address(url)):
            for _ in range(5):
                emulator.advance()
            device = os.readlink(terminal)
            for _ in range(5):
                emulator.advance()
            assert os.readlink(terminal) == device
        emulator.advance()
        with socket.create_connection(address(url)):
            emulator.advance()
            assert os.readlink(terminal) == device


def is_turning(port: Port) -> bool:
    """Ask the robot to turn; return whether its gyroscope shows that it does."""
    port.write(encode_control(Control(1, 0, 0, 10)))
    return bool(port.readings()[-1].state.raw[SPEC.index("rotational_velocity")] > 100)


def test_serve_tells_where_it_is_drives_its_robot_and_ends_when_told(serving: Serving) -> None:
    served = serving(tcp="0", drops="127.0.0.1:0", speed=5.0, faults="stall=5", seed=3)
    for url in served.urls[:2]:
        with open_port(config(url), time.monotonic) as port:
            handshake(port, patience_s=LIMIT_S)
            until(lambda port=port: is_turning(port))
    with open_port(config(served.urls[2]), time.monotonic, parser=stream.StateDropParser()) as port:
        handshake(port, wake=b"", listen_s=LIMIT_S)
    counts = served.end()
    assert counts["stall"] > 0
    assert counts["flip"] == 0


@pytest.mark.filterwarnings("ignore::pytest.PytestUnhandledThreadExceptionWarning")
def test_serve_does_not_outlive_its_robot(monkeypatch: pytest.MonkeyPatch) -> None:
    """A dead thread would look like a robot that is switched off."""
    monkeypatch.setattr(Emulator, "_cycle", raising(ZeroDivisionError("a bug in the emulator")))
    with pytest.raises(RuntimeError, match="the emulated robot's thread"):
        serve(say=lambda _: None)


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        ({"speed": 0.0}, "speed must be positive and finite, not 0.0"),
        ({"speed": float("nan")}, "speed must be positive and finite, not nan"),
        ({"speed": float("inf")}, "speed must be positive and finite, not inf"),
        ({"tcp": "nowhere"}, "an address is HOST:PORT or PORT, not 'nowhere'"),
        ({"tcp": ""}, "an address is HOST:PORT or PORT, not ''"),
        ({"drops": "127.0.0.1:65536"}, "an address is HOST:PORT or PORT, not '127.0.0.1:65536'"),
    ],
)
def test_an_impossible_speed_or_address_is_refused(
    arguments: dict[str, Any], sentence: str
) -> None:
    with pytest.raises(ValueError, match=sentence):
        serve(say=lambda _: pytest.fail("a line was opened"), **arguments)
