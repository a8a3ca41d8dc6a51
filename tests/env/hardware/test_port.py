"""The port over loop://, a pseudo terminal and a socket; its failures and their error messages."""

from __future__ import annotations

import errno
import grp
import re
import socket
import termios
import threading
from collections.abc import Callable
from functools import partial
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from unittest.mock import Mock

import pytest
import serial

from horde_env.errors import BackendUnavailable, PortLost
from horde_env.hardware.settings import LinkSettings, PortConfig
from horde_env.hardware.stream import Counts
from horde_env.robots.create2 import body as create2
from horde_env.robots.critterbot import body as critterbot
from horde_env.robots.critterbot.body import start_packets
from horde_env.robots.critterbot.emulator.microcontroller import Receiver
from horde_env.robots.critterbot.wire import STOP, Control, encode_control
from tests.env.hardware.packets import GOLDEN, SPEC, packet_of
from tests.env.hardware.peers import (
    LIMIT_S,
    Terminal,
    await_reading,
    config,
    open_port,
    raising,
    ticks,
    until,
)

pytestmark = pytest.mark.hardware

IR_LIGHT_2 = SPEC.index("ir_light_2")

# ---- reading ---------------------------------------------------------------------------------------------------------


def test_a_packet_is_there_with_its_last_byte_whatever_the_read_timeout(terminal: Terminal) -> None:
    """The reader waits for the bytes that a packet lacks and no more: with a timeout of 60 s nothing is late."""
    p = open_port(config(terminal.path, read_timeout_s=60.0), ticks())
    terminal.say(b"junk" + GOLDEN[:50])
    terminal.say(GOLDEN[50:] + GOLDEN)
    assert await_reading(p, 2).number == 2
    assert p.counts.skipped_bytes == 4
    terminal.unplug()
    p.close()


def test_the_same_over_a_socket_and_no_command_waits_for_company() -> None:
    """Nagle's algorithm would hold it back for up to 40 ms."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        p = open_port(
            config(f"socket://127.0.0.1:{server.getsockname()[1]}", read_timeout_s=60.0), ticks()
        )
        robot, _ = server.accept()
        with robot:
            robot.sendall(b"junk" + GOLDEN * 3)
            assert await_reading(p, 3).number == 3
            assert p._serial._socket.getsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY) == 1
            p.write(STOP)
            assert robot.recv(100) == STOP
        with pytest.raises(PortLost, match="the other side closed the connection"):
            until(lambda: p.newest(3))
        p.close()


def test_continuity_of_ir_light_reaches_over_one_lost_packet_and_no_further() -> None:
    """After 250 the byte 10 means 266; after two lost packets it is not changed."""
    high = packet_of(ir_light_2=250)
    low = packet_of(ir_light_2=10)
    lost = GOLDEN[:-1] + b"\x00"
    for n_lost, level in ((0, 266.0), (1, 266.0), (2, 10.0)):
        with open_port(config("loop://"), ticks()) as p:
            p.write(high * 3)
            await_reading(p, 3)
            p.write(lost * n_lost + low)
            assert await_reading(p, 4).raw[IR_LIGHT_2] == level


class LateSerial:
    """A line on virtual time. A read that waited for its bytes returns one packet although more have come."""

    def __init__(self) -> None:
        self._received = b""
        self._is_waited_for = False

    def attach(self, read_once: Callable[[], bool]) -> bool:
        self._read_once = read_once
        return True

    def deliver(self, data: bytes, waited_for: bool) -> None:
        self._received = data
        self._is_waited_for = waited_for
        while self._received:
            assert self._read_once()

    @property
    def in_waiting(self) -> int:
        if self._is_waited_for:
            self._is_waited_for = False
            return 0
        return len(self._received)

    def read(self, size: int) -> bytes:
        data = self._received[:size]
        self._received = self._received[size:]
        return data

    def close(self) -> None:
        pass


@pytest.mark.parametrize("n_at_once", [1, 2, 10], ids="{} at once".format)
@pytest.mark.parametrize("waited_for", [False, True], ids=["read together", "first read alone"])
def test_ir_light_is_the_same_however_many_packets_are_read_at_once(
    n_at_once: int, waited_for: bool
) -> None:
    """Dark 20 and bright up to 480 alternate at 100 Hz; packets 41 and 42 are damaged, so 43 and 44 are not changed.

    If packets that were read late counted as lost, 480 would be 224 again in each read of ten.
    """
    levels = [level for bright in range(20, 501, 20) for level in (20, min(bright, 480))]
    serial_port = LateSerial()
    time_s = 0.0
    p = open_port(config("late"), lambda: time_s, connect=lambda *_, **__: serial_port)
    readings = []
    for first in range(0, len(levels), n_at_once):
        packets = [packet_of(ir_light_2=level) for level in levels[first : first + n_at_once]]
        for k in {41, 42}.intersection(range(first, first + n_at_once)):
            packets[k - first] = GOLDEN[:-1] + b"\x00"
        time_s = 0.01 * (first + n_at_once)
        serial_port.deliver(b"".join(packets), waited_for)
        newest = 0
        if readings:
            newest = readings[-1].number
        readings += p.readings(newest)
    p.close()
    assert [reading.raw[IR_LIGHT_2] for reading in readings[:41]] == levels[:41]
    assert [reading.raw[IR_LIGHT_2] for reading in readings[41:43]] == [levels[43] % 256, 20]


def test_a_robot_that_was_silent_starts_a_new_sequence_of_ir_light() -> None:
    """After 250 the byte 10 means 266, but not 0.06 s after it, nor in two packets 0.07 s after it."""
    for n_packets, elapsed_s, level in ((1, 0.05, 266.0), (1, 0.06, 10.0), (2, 0.07, 10.0)):
        serial_port = LateSerial()
        times = iter([0.0, elapsed_s])
        p = open_port(
            config("late"), times.__next__, connect=lambda *_, line=serial_port, **__: line
        )
        serial_port.deliver(packet_of(ir_light_2=250) * 3, waited_for=False)
        serial_port.deliver(packet_of(ir_light_2=10) * n_packets, waited_for=False)
        assert p.readings(3)[0].raw[IR_LIGHT_2] == level
        p.close()


def test_drops_that_are_read_late_over_tcp_are_not_lost() -> None:
    """Nine come while nothing is read for 0.09 s; pyserial reports one waiting byte, which would read 10 again."""
    high = packet_of(ir_light_2=250)
    low = packet_of(ir_light_2=10)
    time_s = 0.0
    with socket.create_server(("127.0.0.1", 0)) as server:
        p = open_port(config(f"socket://127.0.0.1:{server.getsockname()[1]}"), lambda: time_s)
        robot, _ = server.accept()
        with robot, p:
            robot.sendall(high * 3)
            await_reading(p, 3)
            time_s = 0.09
            robot.sendall(low * 9)
            await_reading(p, 12)
            assert [reading.raw[IR_LIGHT_2] for reading in p.readings(3)] == [266.0] * 9


def test_bytes_that_terminals_like_to_change_come_through(terminal: Terminal) -> None:
    """FF would be doubled with PARMRK, 0D become 0A with ICRNL, 11 and 13 vanish with IXON, 03 and 04 interrupt."""
    odd = [0xFFFF, 0x0D0D, 0x0A0D, 0x1113, 0x0304, 0x1A1C, 0x7F00, 0x1600]
    with open_port(config(terminal.path), ticks()) as p:
        terminal.say(packet_of(**{f"thermal_{i}": value for i, value in enumerate(odd)}))
        assert await_reading(p, 1).state.raw[SPEC.group("thermal")].tolist() == odd


def test_a_robot_that_already_talks_is_not_woken(terminal: Terminal) -> None:
    with open_port(config(terminal.path), ticks()) as p:
        terminal.say(GOLDEN)
        await_reading(p, 1)
        assert next(start_packets(p, ticks()), None) is None
        p.write(b"!")
        assert terminal.hear(1) == b"!"


class TornWrite:
    """A port with a first write that fails after `n_sent` bytes; pyserial reports a timeout after a whole write too."""

    def __init__(self, error: type[BaseException], n_sent: int) -> None:
        self.errors = [error]
        self.n_sent = n_sent
        self.sent = b""

    def connect(self, *arguments: Any, **settings: Any) -> Any:
        """Connect as pyserial does, but write here."""
        line = serial.serial_for_url(*arguments, **settings)
        line.write = self.write
        return line

    def write(self, data: bytes) -> None:
        if self.errors:
            self.sent += data[: self.n_sent]
            raise self.errors.pop()
        self.sent += data


@pytest.mark.parametrize("n_sent", [0, 6, 9])
@pytest.mark.parametrize("error", [serial.SerialTimeoutException, KeyboardInterrupt])
def test_a_torn_write_is_completed_before_the_command_is_sent_again(
    error: type[BaseException], n_sent: int
) -> None:
    """If nothing, a part or all of the command was sent, the robot executes this command and no other.

    Without zeros between them, DE AD BE of the second header would be velocities -34, -83 and an
    LED mode.
    """
    torn = TornWrite(error, n_sent)
    command = Control(1, 20, -7, 3)
    with open_port(config("loop://"), ticks(), connect=torn.connect) as p:
        if error is KeyboardInterrupt:
            with pytest.raises(KeyboardInterrupt):
                p.write(encode_control(command))
        p.write(encode_control(command))
        assert p.lost == ""

    assert torn.sent == encode_control(command)[:n_sent] + bytes(53) + encode_control(command)
    robot = Receiver()
    robot.receive(torn.sent)
    heard = robot.controls()
    assert heard[-1] == command
    assert {control[:2] for control in heard} == {(1, 20)}


def test_a_drop_cut_short_loses_the_port_for_nothing_completes_it() -> None:
    torn = TornWrite(KeyboardInterrupt, 6)
    with open_port(config("loop://"), ticks(), fill=b"", connect=torn.connect) as p:
        with pytest.raises(KeyboardInterrupt):
            p.write(STOP)
        with pytest.raises(PortLost, match="cut short by KeyboardInterrupt"):
            p.write(STOP)
        assert "cut short" in p.lost


# ---- ports that cannot be opened -------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("url", "sentence"),
    [
        ("/dev/ttyNone7", r"there is no port /dev/ttyNone7\. This machine has .+\."),
        ("127.0.0.1:2330", r"there is no device 127"),
        ("/", "/ is not a serial port"),
        ("/dev/null", "/dev/null is not a serial port"),
        ("socket://127.0.0.1", "has no port: write socket://HOST:PORT"),
        ("socket://127.0.0.1:", "has no port: write socket://HOST:PORT"),
        ("rfc2217://robot", "has no port: write rfc2217://HOST:PORT"),
        ("socket://:2330", "has no host: write socket://HOST:PORT"),
        ("socket://127.0.0.1:x", "the port must be a number from 1 to 65535, not x"),
        ("socket://127.0.0.1:99999", "the port must be a number from 1 to 65535, not 99999"),
        ("socket://127.0.0.1:0", "the port must be a number from 1 to 65535, not 0"),
        (
            "socket://::1:2330",
            r"invalid address .*: write socket://HOST:PORT, with brackets .* as in \[::1\]:2330",
        ),
        ("gopher://robot", "gopher://robot cannot be opened: .*'gopher' not known"),
    ],
)
def test_a_port_that_cannot_be_opened_says_why(url: str, sentence: str) -> None:
    with pytest.raises(BackendUnavailable, match=sentence):
        open_port(config(url), ticks())


@pytest.mark.parametrize(
    ("group", "mode", "helps"),
    [
        ("dialout", 0o660, True),
        ("dialout", 0o600, False),
        ("dialout", 0o640, False),
        ("root", 0o660, False),
    ],
)
def test_no_permission_advises_a_group_only_where_that_helps_and_gives_no_more(
    group: str, mode: int, helps: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """/dev/ttyS0 of a bare machine belongs to root; a member of that group, or of disk, may do anything."""
    device = tmp_path / "ttyS0"
    device.touch()
    device.chmod(mode)
    monkeypatch.setattr(grp, "getgrgid", lambda _: SimpleNamespace(gr_name=group))

    error = serial.SerialException(
        errno.EACCES, f"could not open port {device}: [Errno 13] Permission denied"
    )
    with pytest.raises(BackendUnavailable, match=f"belongs to the group {group}") as refusal:
        open_port(config(str(device)), ticks(), connect=raising(error))
    assert (f"`sudo usermod -aG {group} $USER`" in str(refusal.value)) is helps
    assert ("usermod" in str(refusal.value)) is helps
    assert ("ask the administrator" in str(refusal.value)) is not helps
    assert ("which may not read and write it" in str(refusal.value)) is (
        group == "dialout" and not helps
    )


@pytest.mark.parametrize(
    ("url", "received", "dialect", "sentence"),
    [
        (
            "/dev/robot",
            b"",
            critterbot.SERIAL,
            "/dev/robot was lost before the robot answered: gone",
        ),
        (
            "socket://r:2330",
            b"",
            critterbot.SERIAL,
            "2330 is the port of the robot's own driver: use the drops",
        ),
        (
            "socket://r:9",
            b"CritterStateDrop",
            critterbot.SERIAL,
            "r:9 sends drops, not the bytes .*: use the drops",
        ),
        (
            "/dev/robot",
            b"",
            create2.CREATE2,
            r": gone\. Does another program drive the robot already\?$",
        ),
    ],
)
def test_a_port_that_is_lost_at_once_is_explained(
    url: str, received: bytes, dialect: Any, sentence: str
) -> None:
    """The robot's own driver disconnects hosts that do not send whole drops, such as those of its serial line."""
    opened: Any = SimpleNamespace(config=config(url), first_bytes=received)
    assert re.search(sentence, dialect.explain_parting(opened, dialect, "gone"))


explain_no_drops = partial(critterbot.explain_silence, is_serial=False)


@pytest.mark.parametrize(
    ("explain", "first_bytes", "sentence"),
    [
        (explain_no_drops, b"", "nothing comes from socket://r:2330. Is the robot switched on"),
        (explain_no_drops, b"HTTP/1.1 400 Bad Request\r\n", "is not the robot: it sends 'HTTP"),
        (
            explain_no_drops,
            b"\xde\xad\xbe\xef" + bytes(79),
            "the serial line, not drops: use the serial backend",
        ),
        (create2.explain_silence, b"", "asleep or off"),
        (create2.explain_silence, b"bat:   min 3  sec 0  mV 16977\r\n", "is off and prints"),
        (create2.explain_silence, b"login: ", "is not the robot"),
        (create2.explain_silence, b"\xf3\x9c\x80\x1f" * 8, "19200 baud"),
    ],
)
def test_bytes_that_are_no_drops_and_no_frames_are_explained(
    explain: Any, first_bytes: bytes, sentence: str
) -> None:
    """The Create 2's are the sentences in the table of docs/create2.md."""
    message = explain(
        PortConfig("socket://r:2330", parity="none"), first_bytes, Counts(len(first_bytes))
    )
    assert sentence in message
    assert "8N1" not in message, "drops have no line settings"


def test_no_permission_for_what_cannot_even_be_looked_at(tmp_path: Path) -> None:
    """Asking for the group must not raise in place of the sentence."""
    device = tmp_path / "locked" / "ttyUSB0"
    with pytest.raises(BackendUnavailable, match=re.escape(f"no permission to use {device}.")):
        open_port(
            config(str(device)),
            ticks(),
            connect=raising(PermissionError(errno.EACCES, "Permission denied")),
        )


def test_a_parity_that_the_port_refuses_is_named() -> None:
    """What a pseudo terminal raises when it is opened with odd parity for the second time; no OSError."""
    with pytest.raises(BackendUnavailable, match=r"odd parity.* Use parity none"):
        open_port(
            PortConfig("/dev/pts/7"),
            ticks(),
            connect=raising(termios.error(errno.EINVAL, "Invalid argument")),
        )


def test_the_line_is_the_robots_unless_told_otherwise() -> None:
    connect = Mock(side_effect=OSError("enough"))
    with pytest.raises(BackendUnavailable, match=re.escape("/dev/robot cannot be opened: enough.")):
        open_port(PortConfig("/dev/robot"), ticks(), connect=connect)
    line = {
        "baudrate": 115_200,
        "parity": "O",
        "timeout": 0.05,
        "write_timeout": 0.1,
        "exclusive": True,
    }
    connect.assert_called_once_with("/dev/robot", **line)
    assert PortConfig("/dev/robot").line == "115200 8O1"


@pytest.mark.parametrize(
    ("kind", "wrong"),
    [
        *(
            (config, wrong)
            for wrong in ({"baudrate": 0}, {"read_timeout_s": 0.0}, {"write_timeout_s": -1})
        ),
        *((LinkSettings, wrong) for wrong in ({"repeat_s": 0.2}, {"hold_s": 0.6}, {"attempts": 0})),
        (LinkSettings, {"first_pause_s": 3.0}),
        (PortConfig, {"parity": "mark"}),
    ],
)
def test_settings_that_are_unsafe_or_make_no_sense_are_refused(
    kind: Any, wrong: dict[str, Any]
) -> None:
    url = {}
    if kind is not LinkSettings:
        url = {"url": "loop://"}
    with pytest.raises(ValueError, match="must be"):
        kind(**url, **wrong)


# ---- ports that are lost ---------------------------------------------------------------------------------------------


def test_an_unplugged_port_is_lost_for_all_who_use_it(terminal: Terminal) -> None:
    p = open_port(config(terminal.path), ticks())
    terminal.say(GOLDEN)
    await_reading(p, 1)
    terminal.unplug()

    with pytest.raises(PortLost, match=r"was lost: the device disconnected"):
        until(lambda: p.newest(1))
    with pytest.raises(PortLost, match="the device disconnected"):
        p.write(STOP)
    assert p.newest() is not None, "earlier readings stay readable"
    p.close()
    p.close()


def test_a_port_without_room_is_lost_after_the_write_timeout(terminal: Terminal) -> None:
    """A terminal without a reader is full after some kilobytes and would block without end."""
    with open_port(config(terminal.path, write_timeout_s=0.05), ticks()) as p:
        with pytest.raises(PortLost, match=r"accepts no bytes.*\(waited 0\.05 s, twice\)"):
            p.write(STOP * 100_000)
        with pytest.raises(PortLost, match="accepts no bytes"):
            until(lambda: p.newest(0))
        terminal.hear(4096)
        with pytest.raises(PortLost, match="accepts no bytes"):
            p.write(STOP)


class BrokenSerial:
    """A port that raises; its reader does so once `read_now` is set."""

    def __init__(self, error: Exception, *, can_write: bool = False) -> None:
        self.error = error
        self.read_now = threading.Event()
        self.can_write = can_write
        self.written = b""

    @property
    def in_waiting(self) -> int:
        self.read_now.wait(LIMIT_S)
        raise self.error

    def read(self, _size: int) -> bytes:
        raise self.error

    def write(self, data: bytes) -> None:
        if not self.can_write:
            raise self.error
        self.written += data

    def close(self) -> None:
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
    p = open_port(config("/dev/robot"), ticks(), connect=lambda *_, **__: broken)
    if first == "read":
        broken.read_now.set()
    with pytest.raises(PortLost, match="the device disconnected"):
        until(lambda: p.newest(0)) if first == "read" else p.write(STOP)
    broken.read_now.set()
    p.close()


def test_an_error_that_nobody_foresaw_does_not_kill_the_reader_in_silence() -> None:
    broken = BrokenSerial(TypeError("'NoneType' object cannot be interpreted as an integer"))
    broken.read_now.set()
    p = open_port(config("/dev/robot"), ticks(), connect=lambda *_, **__: broken)

    with pytest.raises(PortLost, match="TypeError: 'NoneType' object"):
        until(lambda: p.newest(0))


def test_a_stop_still_goes_out_where_only_reading_failed() -> None:
    broken = BrokenSerial(OSError(errno.EIO, "Input/output error"), can_write=True)
    broken.read_now.set()
    p = open_port(config("/dev/robot"), ticks(), connect=lambda *_, **__: broken)
    with pytest.raises(PortLost):
        until(lambda: p.newest(0))
    p.write(STOP)

    assert broken.written == STOP
