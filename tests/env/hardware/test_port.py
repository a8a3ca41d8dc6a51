"""The port: over loop://, a pseudo terminal and a socket. Whoever waits, waits for an event."""

from __future__ import annotations

import errno
import grp
import os
import re
import socket
import termios
import threading
import tty
from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np
import pytest
import serial

from horde_env.errors import BackendUnavailable
from horde_env.hardware import drops, port, wire
from horde_env.hardware.port import Port, PortConfig, PortLost, Reading
from horde_env.hardware.wire import MI_ON, RobotState
from horde_env.robot import critterbot
from tests.env.hardware.test_wire import GOLDEN

pytestmark = pytest.mark.hardware
SPEC = critterbot()
LIMIT_S = 10.0  # for what takes milliseconds: reached only by a test that fails


def packet_of(**channels: float) -> bytes:
    raw = wire.decode_state(GOLDEN).raw.copy()
    for name, value in channels.items():
        raw[SPEC.index(name)] = value
    return wire.encode_state(RobotState(raw))


class Ticks:
    """A clock that counts how often it was asked."""

    def __init__(self) -> None:
        self.n = 0

    def __call__(self) -> float:
        """Return the number of this call."""
        self.n += 1
        return float(self.n)


class Terminal:
    """A pseudo terminal: the test holds the robot's end."""

    def __init__(self) -> None:
        self.robot, self._ours = os.openpty()
        tty.setraw(self._ours)
        self.path = os.ttyname(self._ours)

    def say(self, data: bytes) -> None:
        """Send bytes as the robot."""
        os.write(self.robot, data)

    def hear(self, n: int) -> bytes:
        """Wait for the next `n` bytes to the robot."""
        data = b""
        while len(data) < n:
            data += os.read(self.robot, n - len(data))
        return data

    def unplug(self) -> None:
        """Let the device vanish."""
        for end in ("robot", "_ours"):
            descriptor, _ = getattr(self, end), setattr(self, end, -1)
            if descriptor >= 0:
                os.close(descriptor)


@pytest.fixture
def terminal() -> Iterator[Terminal]:
    terminal = Terminal()
    yield terminal
    terminal.unplug()


def config(url: str, **rest: object) -> PortConfig:
    return PortConfig(url, parity="none", **rest)  # type: ignore[arg-type]


def await_reading(p: Port, number: int) -> Reading:
    reading = p.wait(number - 1, LIMIT_S)
    assert reading is not None
    return reading


def await_(condition: Callable[[], bool], p: Port) -> None:
    with p._changed:
        assert p._changed.wait_for(condition, LIMIT_S)


# ---- reading ---------------------------------------------------------------------------------------------------------


def test_packets_become_readings_with_number_and_time() -> None:
    with Port(config("loop://"), Ticks()) as p:
        assert p.wait(0, 0.0) is None
        assert p.last_two() == ()
        p.write(GOLDEN)
        first = await_reading(p, 1)
        p.write(packet_of(light_0=500))
        second = await_reading(p, 2)

    assert (first.number, second.number) == (1, 2)
    assert 1.0 <= first.t < second.t
    assert second.state.raw[SPEC.index("light_0")] == 500
    assert [r.number for r in p.last_two()] == [1, 2]
    assert p.counts == (2 * 83, 2, 0, 0)


def test_a_packet_is_there_with_its_last_byte_whatever_the_read_timeout(terminal: Terminal) -> None:
    """The reader waits for the bytes that a packet lacks and no more: with a timeout of 60 s nothing is late."""
    p = Port(config(terminal.path, read_timeout_s=60.0), Ticks())
    terminal.say(b"junk" + GOLDEN[:50])
    terminal.say(GOLDEN[50:] + GOLDEN)
    assert await_reading(p, 2).number == 2
    assert p.counts.skipped_bytes == 4
    terminal.unplug()
    p.close()


def test_the_same_over_a_socket() -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        p = Port(config(f"socket://127.0.0.1:{server.getsockname()[1]}", read_timeout_s=60.0), Ticks())
        robot, _ = server.accept()
        with robot:
            robot.sendall(b"junk" + GOLDEN * 3)
            assert await_reading(p, 3).number == 3
            p.write(wire.STOP)
            assert robot.recv(100) == wire.STOP
        with pytest.raises(PortLost, match="the other side closed the connection"):
            p.wait(3, LIMIT_S)
        p.close()


def test_drops_come_through_the_same_port_unasked() -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        parser = drops.StateDropParser()
        p = Port(config(f"socket://127.0.0.1:{server.getsockname()[1]}"), Ticks(), parser=parser)
        driver, _ = server.accept()
        with driver:
            driver.sendall(drops.encode_state_drop(drops.drop_of(wire.decode_state(GOLDEN), 12.5)))
            reading = p.handshake(wake=b"")
            assert reading.state.raw[0] == 165
            assert parser.newest is not None
            assert parser.newest.time_s == 12.5
            p.write(drops.encode_control_drop(wire.drive(np.array([0.35, 0, 0]), SPEC)))
            assert drops.decode_control_drop(driver.recv(94)) == wire.Control(1, 20)
        p.close()


def test_lost_bytes_are_told_with_the_next_reading(terminal: Terminal) -> None:
    with Port(config(terminal.path), Ticks()) as p:
        terminal.say(GOLDEN)
        assert await_reading(p, 1).n_skipped == 0
        terminal.say(GOLDEN[:60] + GOLDEN[61:])
        terminal.say(GOLDEN)
        assert await_reading(p, 2).n_skipped == 82
        terminal.say(GOLDEN)
        assert await_reading(p, 3).n_skipped == 0
        assert p.counts == (4 * 83 - 1, 3, 1, 82)


def test_bytes_that_terminals_like_to_change_come_through(terminal: Terminal) -> None:
    """FF would be doubled with PARMRK, 0D become 0A with ICRNL, 11 and 13 vanish with IXON, 03 and 04 interrupt."""
    odd = [0xFFFF, 0x0D0D, 0x0A0D, 0x1113, 0x0304, 0x1A1C, 0x7F00, 0x1600]
    with Port(config(terminal.path), Ticks()) as p:
        terminal.say(packet_of(**{f"thermal_{i}": value for i, value in enumerate(odd)}))
        assert await_reading(p, 1).state.raw[SPEC.group("thermal")].tolist() == odd


def test_ir_light_is_the_mean_of_the_last_two_packets_and_nothing_else_is() -> None:
    """The beacon by turns 20 and 300; 300 is sent as 44. Newest: 300. Mean without unwrapping: 32. Right: 160."""
    ramp = [level for bright in (*range(20, 300, 28), 300) for level in (20, bright)]
    with Port(config("loop://"), Ticks()) as p:
        for i, level in enumerate(ramp):
            p.write(packet_of(ir_light_2=level, light_1=i))
        await_reading(p, len(ramp))
        raw = port.aggregate(p.last_two(), SPEC)
        newest = p.last_two()[-1]

    assert raw[SPEC.index("ir_light_2")] == 160
    assert raw[SPEC.index("light_1")] == len(ramp) - 1
    assert newest.state.raw[SPEC.index("ir_light_2")] == 44
    assert port.aggregate((newest,), SPEC)[SPEC.index("ir_light_2")] == 300


# ---- the handshake ---------------------------------------------------------------------------------------------------


def test_a_robot_that_already_talks_is_not_woken(terminal: Terminal) -> None:
    with Port(config(terminal.path), Ticks()) as p:
        terminal.say(GOLDEN)
        assert p.handshake(listen_s=LIMIT_S).number == 1
        p.write(b"!")
        assert terminal.hear(1) == b"!"


def test_a_robot_at_its_console_is_woken(terminal: Terminal) -> None:
    """After a reset: a prompt, no packets. CR "mi on" CR, seven bytes, starts them."""
    heard: list[bytes] = []

    def console() -> None:
        terminal.say(b"Critterbot\rcritterprompt> ")
        heard.append(terminal.hear(7))
        terminal.say(b"mi on\r" + GOLDEN)

    robot = threading.Thread(target=console)
    with Port(config(terminal.path), Ticks()) as p:
        robot.start()
        assert p.handshake(listen_s=0.01, patience_s=LIMIT_S).number == 1
        robot.join()

    assert heard == [b"\rmi on\r"] == [MI_ON]


@pytest.mark.parametrize(
    ("said", "sentence"),
    [
        (b"", r"nothing comes from .*, not even after `mi on`\. Is the robot switched on"),
        (b"Ubuntu 24.04 tty1\r\nlogin: ", r"is not the robot: it says 'Ubuntu 24.04 tty1\\r\\nlogin: '"),
        (b"\r\ncritterprompt> ", r"the robot's console answers at .*, but sends no packets.*reset the robot"),
        (
            b"\x80\xf3\x00\x1f" * 40,
            r"160 bytes came .* but no packet, the first 80 f3 00 1f .* 115200 8N1; .* 115200 8O1",
        ),
        (GOLDEN[:-1] + b"\x00", r"packets come .* the checksum of each was wrong \(1 of them\).*opened as 115200 8N1"),
    ],
)
def test_who_is_not_the_robot_is_told_by_what_comes(terminal: Terminal, said: bytes, sentence: str) -> None:
    p = Port(config(terminal.path), Ticks())
    terminal.say(said)
    await_(lambda: p._counts.n_bytes == len(said), p)

    with pytest.raises(BackendUnavailable, match=sentence):
        p.handshake(listen_s=0.01, patience_s=0.02)
    assert terminal.hear(3 * len(MI_ON)) == MI_ON * 3
    with pytest.raises(PortLost, match="it was closed"):
        p.write(wire.STOP)


def test_a_port_that_vanishes_during_the_handshake(terminal: Terminal) -> None:
    p = Port(config(terminal.path), Ticks())
    terminal.unplug()

    with pytest.raises(BackendUnavailable, match="went away before the robot answered: the device went away"):
        p.handshake(listen_s=LIMIT_S)


# ---- ports that cannot be opened -------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("url", "sentence"),
    [
        ("/dev/ttyNone7", r"there is no port /dev/ttyNone7\. This machine has .+\."),
        ("/", "/ is not a serial port"),
        ("/dev/null", "/dev/null is not a serial port"),
        ("socket://127.0.0.1", "names no port: write socket://HOST:PORT"),
        ("socket://127.0.0.1:x", "names no port: write socket://HOST:PORT"),
        ("socket://127.0.0.1:1", "socket://127.0.0.1:1 cannot be opened: .*Connection refused"),
        ("gopher://robot", "gopher://robot cannot be opened: .*'gopher' not known"),
    ],
)
def test_a_port_that_cannot_be_opened_says_why(url: str, sentence: str) -> None:
    with pytest.raises(BackendUnavailable, match=sentence):
        Port(config(url), Ticks())


def test_a_port_in_use_says_so(terminal: Terminal) -> None:
    with Port(config(terminal.path), Ticks()), pytest.raises(BackendUnavailable, match="is in use by another program"):
        Port(config(terminal.path), Ticks())


def test_no_permission_names_the_group(tmp_path: Path) -> None:
    device = tmp_path / "ttyUSB0"
    device.touch()

    def refuse(*_: object, **__: object) -> None:
        raise serial.SerialException(errno.EACCES, f"could not open port {device}: [Errno 13] Permission denied")

    group = grp.getgrgid(device.stat().st_gid).gr_name
    with pytest.raises(BackendUnavailable, match=f"belongs to the group {group}.*usermod -aG {group}"):
        Port(config(str(device)), Ticks(), connect=refuse)


def test_a_parity_that_the_port_refuses_is_named() -> None:
    """What a pseudo terminal raises when it is opened with odd parity for the second time; no OSError."""

    def refuse(*_: object, **__: object) -> None:
        raise termios.error(errno.EINVAL, "Invalid argument")

    with pytest.raises(BackendUnavailable, match=r"refuses odd parity, as pseudo terminals do\. Use parity none"):
        Port(PortConfig("/dev/pts/7"), Ticks(), connect=refuse)


def test_the_line_is_the_robots_unless_told_otherwise() -> None:
    asked: dict[str, object] = {}

    def remember(url: str, **settings: object) -> None:
        asked.update(settings, url=url)
        raise OSError("enough")

    with pytest.raises(BackendUnavailable, match=re.escape("/dev/robot cannot be opened: enough.")):
        Port(PortConfig("/dev/robot"), Ticks(), connect=remember)
    assert asked == {
        "url": "/dev/robot",
        "baudrate": 115_200,
        "parity": "O",
        "timeout": 0.05,
        "write_timeout": 0.2,
        "exclusive": True,
    }
    assert PortConfig("/dev/robot").line == "115200 8O1"


@pytest.mark.parametrize(
    "wrong", [{"parity": "mark"}, {"baudrate": 0}, {"read_timeout_s": 0.0}, {"write_timeout_s": -1}]
)
def test_settings_that_make_no_sense_are_refused(wrong: dict[str, object]) -> None:
    with pytest.raises(ValueError, match=r"parity must be one of|must be positive"):
        PortConfig("loop://", **wrong)  # type: ignore[arg-type]


# ---- ports that are lost ---------------------------------------------------------------------------------------------


def test_an_unplugged_port_is_lost_for_all_who_use_it(terminal: Terminal) -> None:
    p = Port(config(terminal.path), Ticks())
    terminal.say(GOLDEN)
    await_reading(p, 1)
    terminal.unplug()

    with pytest.raises(PortLost, match=r"was lost: the device went away .*stops by itself 0\.5 s after"):
        p.wait(1, LIMIT_S)
    with pytest.raises(PortLost, match="the device went away"):
        p.write(wire.STOP)
    assert p.wait(0, 0.0) is not None, "what came before stays readable"
    p.close()
    p.close()


def test_a_port_without_room_is_lost_after_the_write_timeout(terminal: Terminal) -> None:
    """A terminal that nobody reads is full after some kilobytes and would block for ever."""
    with Port(config(terminal.path, write_timeout_s=0.05), Ticks()) as p:
        with pytest.raises(PortLost, match=r"takes no more bytes \(waited 0\.05 s\)"):
            p.write(wire.STOP * 100_000)
        with pytest.raises(PortLost, match="takes no more bytes"):
            p.wait(0, LIMIT_S)
        terminal.hear(4096)
        with pytest.raises(PortLost, match="takes no more bytes"):
            p.write(wire.STOP)


class BrokenSerial:
    """A port that raises; its reader does so once `read_now` is set."""

    def __init__(self, error: Exception, *, can_write: bool = False) -> None:
        self.error, self.read_now, self.can_write, self.written = error, threading.Event(), can_write, b""

    @property
    def in_waiting(self) -> int:
        """Raise, sooner or later."""
        self.read_now.wait(LIMIT_S)
        raise self.error

    def read(self, _size: int) -> bytes:
        """Raise."""
        raise self.error

    def write(self, data: bytes) -> None:
        """Raise or keep the bytes."""
        if not self.can_write:
            raise self.error
        self.written += data

    def close(self) -> None:
        """Raise."""
        raise self.error


@pytest.mark.parametrize(
    "error",
    [
        termios.error(errno.EIO, "Input/output error"),
        OSError(errno.EIO, "Input/output error"),
        serial.SerialException("device reports readiness to read but returned no data"),
        serial.SerialException("write failed: [Errno 5] Input/output error"),
    ],
)
@pytest.mark.parametrize("first", ["read", "write"])
def test_every_way_to_say_unplugged_is_the_same_loss(error: Exception, first: str) -> None:
    broken = BrokenSerial(error)
    p = Port(config("/dev/robot"), Ticks(), connect=lambda *_, **__: broken)
    if first == "read":
        broken.read_now.set()
    with pytest.raises(PortLost, match="the device went away"):
        p.wait(0, LIMIT_S) if first == "read" else p.write(wire.STOP)
    broken.read_now.set()
    p.close()


def test_an_error_that_nobody_foresaw_does_not_kill_the_reader_in_silence() -> None:
    broken = BrokenSerial(TypeError("'NoneType' object cannot be interpreted as an integer"))
    broken.read_now.set()
    p = Port(config("/dev/robot"), Ticks(), connect=lambda *_, **__: broken)

    with pytest.raises(PortLost, match="TypeError: 'NoneType' object"):
        p.wait(0, LIMIT_S)


def test_a_stop_still_goes_out_where_only_reading_failed() -> None:
    broken = BrokenSerial(OSError(errno.EIO, "Input/output error"), can_write=True)
    broken.read_now.set()
    p = Port(config("/dev/robot"), Ticks(), connect=lambda *_, **__: broken)
    with pytest.raises(PortLost):
        p.wait(0, LIMIT_S)
    p.write(wire.STOP)

    assert broken.written == wire.STOP


def test_a_closed_port_leaves_no_thread() -> None:
    p = Port(config("loop://"), Ticks())
    p.close()

    assert not p._thread.is_alive()
    with pytest.raises(PortLost, match="it was closed"):
        p.wait(0, LIMIT_S)


# ---- load ------------------------------------------------------------------------------------------------------------


def test_a_bad_line_through_a_terminal_delivers_every_whole_packet(terminal: Terminal) -> None:
    """2,000 packets, one in ten damaged, through the kernel and the thread: the rest come, in order, none else."""
    rng = np.random.default_rng(4)
    seen: list[float] = []

    class Watching(wire.StateParser):
        def feed(self, data: bytes) -> list[RobotState]:
            states = super().feed(data)
            seen.extend(state.raw[SPEC.index("thermal_0")] for state in states)
            return states

    whole = []
    with Port(config(terminal.path), Ticks(), parser=Watching()) as p:
        for i in range(2_000):
            packet = packet_of(thermal_0=i)
            if rng.random() < 0.1:
                where = int(rng.integers(4, 80))
                packet = packet[:where] + packet[where + int(rng.integers(1, 3)) :]
            else:
                whole.append(i)
            terminal.say(packet)
        terminal.say(GOLDEN)
        await_reading(p, len(whole) + 1)

    assert seen[:-1] == whole
    assert p.counts.crc_errors >= 150
