"""The port over loop://, a pseudo terminal and a socket."""

from __future__ import annotations

import socket
from typing import Any

import pytest
import serial

from horde_env.errors import PortLost
from horde_env.hardware.port import serial_for_url
from horde_env.robots.critterbot.body import start_packets
from horde_env.robots.critterbot.emulator.console import Receiver
from horde_env.robots.critterbot.wire import STOP, Control, encode_control
from tests.env.hardware.packets import GOLDEN, SPEC, packet_of
from tests.env.hardware.peers import Terminal, Ticks, await_reading, config, open_port, until

pytestmark = pytest.mark.hardware

# ---- reading ---------------------------------------------------------------------------------------------------------


def test_a_packet_is_there_with_its_last_byte_whatever_the_read_timeout(terminal: Terminal) -> None:
    """The reader waits for the bytes that a packet lacks and no more: with a timeout of 60 s nothing is late."""
    p = open_port(config(terminal.path, read_timeout_s=60.0), Ticks())
    terminal.say(b"junk" + GOLDEN[:50])
    terminal.say(GOLDEN[50:] + GOLDEN)
    assert await_reading(p, 2).number == 2
    assert p.counts.skipped_bytes == 4
    terminal.unplug()
    p.close()


def test_the_same_over_a_socket() -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        p = open_port(config(f"socket://127.0.0.1:{server.getsockname()[1]}", read_timeout_s=60.0), Ticks())
        robot, _ = server.accept()
        with robot:
            robot.sendall(b"junk" + GOLDEN * 3)
            assert await_reading(p, 3).number == 3
            p.write(STOP)
            assert robot.recv(100) == STOP
        with pytest.raises(PortLost, match="the other side closed the connection"):
            until(lambda: p.newest(3))
        p.close()


def test_continuity_of_ir_light_reaches_over_one_lost_packet_and_no_further() -> None:
    """After 250 the byte 10 means 266; after two lost packets it is not changed."""
    high, low, lost = packet_of(ir_light_2=250), packet_of(ir_light_2=10), GOLDEN[:-1] + b"\x00"
    for n_lost, level in ((0, 266.0), (1, 266.0), (2, 10.0)):
        with open_port(config("loop://"), Ticks()) as p:
            p.write(high * 3)
            await_reading(p, 3)
            p.write(lost * n_lost + low)
            assert await_reading(p, 4).ir_light[2] == level


def test_a_command_over_tcp_does_not_wait_for_company() -> None:
    """Nagle's algorithm would hold it back for up to 40 ms."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = serial_for_url(f"socket://127.0.0.1:{server.getsockname()[1]}")
        assert port._socket.getsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY) == 1
        port.close()


def test_bytes_that_terminals_like_to_change_come_through(terminal: Terminal) -> None:
    """FF would be doubled with PARMRK, 0D become 0A with ICRNL, 11 and 13 vanish with IXON, 03 and 04 interrupt."""
    odd = [0xFFFF, 0x0D0D, 0x0A0D, 0x1113, 0x0304, 0x1A1C, 0x7F00, 0x1600]
    with open_port(config(terminal.path), Ticks()) as p:
        terminal.say(packet_of(**{f"thermal_{i}": value for i, value in enumerate(odd)}))
        assert await_reading(p, 1).state.raw[SPEC.group("thermal")].tolist() == odd


# ---- the handshake ---------------------------------------------------------------------------------------------------


def test_a_robot_that_already_talks_is_not_woken(terminal: Terminal) -> None:
    with open_port(config(terminal.path), Ticks()) as p:
        terminal.say(GOLDEN)
        await_reading(p, 1)
        assert next(start_packets(p, Ticks()), None) is None
        p.write(b"!")
        assert terminal.hear(1) == b"!"


class BusyMachine:
    """A port that reports its first writes as late after `n_sent` bytes; pyserial does so after a whole write too."""

    def __init__(self, n_late: int, n_sent: int) -> None:
        self.n_late, self.n_sent, self.sent = n_late, n_sent, b""

    def write(self, data: bytes) -> None:
        if self.n_late:
            self.n_late -= 1
            self.sent += data[: self.n_sent]
            raise serial.SerialTimeoutException("Write timeout")
        self.sent += data


@pytest.mark.parametrize("n_sent", [0, 6, 9])
def test_a_write_that_ran_out_of_time_is_said_again_and_loses_nothing(n_sent: int) -> None:
    """If nothing, a part or all of the command was sent, the robot executes this command and no other."""
    late = BusyMachine(1, n_sent)
    asked = Control(1, 20, -7, 3)
    with open_port(config("loop://"), Ticks()) as p:
        p._serial.write = late.write
        p.write(encode_control(asked))
        assert p.lost == ""

    assert late.sent == encode_control(asked)[:n_sent] + bytes(53) + encode_control(asked)
    robot = Receiver()
    robot.receive(late.sent)
    heard = robot.controls()
    assert heard[-1] == asked
    assert {control[:2] for control in heard} == {(1, 20)}


def test_a_drop_cut_short_loses_the_port_for_nothing_completes_it() -> None:
    ports: list[Any] = []

    def connect(*arguments: Any, **settings: Any) -> Any:
        ports.append(serial.serial_for_url(*arguments, **settings))
        return ports[0]

    with open_port(config("loop://"), Ticks(), connect=connect, fill=b"") as p:
        ports[0].write = _interrupted
        with pytest.raises(KeyboardInterrupt):
            p.write(STOP)
        with pytest.raises(PortLost, match="cut short by KeyboardInterrupt"):
            p.write(STOP)
        assert "cut short" in p.lost


def _interrupted(data: bytes) -> None:
    raise KeyboardInterrupt
