"""A connection to the robot: the only file that imports pyserial.

A reader thread turns bytes into readings as they come and keeps the last two. Everything that a port can do wrong
becomes one of two errors: BackendUnavailable while it is being opened, PortLost afterwards. A Port is one connection:
to reconnect, close it and make another.

Source: pyserial 3.5; the Critterbot's firmware (lib_ui.c, lib_mi.c) and its host tool arm_mi.c for the handshake.
"""

from __future__ import annotations

import contextlib
import errno
import os
import string
import threading
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from types import TracebackType
from typing import Any, Literal, NamedTuple, Protocol
from urllib.parse import urlsplit

import numpy as np
import serial
from numpy.typing import NDArray
from serial.tools import list_ports

from horde_env.errors import BackendUnavailable, HordeEnvError
from horde_env.hardware.wire import MI_ON, IrLightUnwrapper, RobotState, StateParser, ir_light
from horde_env.robot import RobotSpec

Floats = NDArray[np.float64]

PORT_ERRORS: tuple[type[Exception], ...] = (serial.SerialException, OSError)
try:
    import termios

    PORT_ERRORS += (termios.error,)  # which is no OSError
except ImportError:  # not on Windows
    pass
REFUSALS: tuple[type[Exception], ...] = (*PORT_ERRORS, ValueError)  # the last for an unknown kind of URL

PARITIES = {"odd": serial.PARITY_ODD, "even": serial.PARITY_EVEN, "none": serial.PARITY_NONE}
ADVICE = "The robot stops by itself 0.5 s after the last command that reached it."


class PortLost(HordeEnvError):
    """A port that was open went away, or takes no more bytes."""

    def __init__(self, url: str, reason: str) -> None:
        super().__init__(f"{url} was lost: {reason}. {ADVICE}")
        self.url, self.reason = url, reason


@dataclass(frozen=True, slots=True)
class PortConfig:
    """How to reach the robot.

    Attributes:
        url: A device ("/dev/serial/by-id/..."), "socket://HOST:PORT", "rfc2217://HOST:PORT" or "loop://".
        baudrate: Bits per second.
        parity: The robot's is odd. A pseudo terminal refuses any but "none" when it is opened a second time.
        read_timeout_s: How long closing may take, and how long fewer bytes than a packet may stay unseen.
        write_timeout_s: How long a command may wait for room before the port counts as lost.

    Raises:
        ValueError: If the parity is unknown, or a number is not positive.
    """

    url: str
    baudrate: int = 115_200
    parity: Literal["odd", "even", "none"] = "odd"
    read_timeout_s: float = 0.05
    write_timeout_s: float = 0.2

    def __post_init__(self) -> None:
        if self.parity not in PARITIES:
            raise ValueError(f"parity must be one of {', '.join(PARITIES)}, not {self.parity!r}")
        if not (self.baudrate > 0 and self.read_timeout_s > 0 and self.write_timeout_s > 0):
            raise ValueError(f"baudrate and timeouts must be positive: {self}")

    @property
    def line(self) -> str:
        """The line's settings in short, "115200 8O1"."""
        return f"{self.baudrate} 8{PARITIES[self.parity]}1"


class Reading(NamedTuple):
    """One state and the circumstances of its arrival.

    Attributes:
        state: What the packet says, untouched.
        t: Time at which its last byte was read, in seconds of the clock that the port was given.
        number: 1 for the first packet of the connection.
        n_skipped: Bytes lost, changed or foreign since the reading before.
        ir_light: IR light with its top two bits guessed back by continuity, 0..1023, shape (8,).
    """

    state: RobotState
    t: float
    number: int
    n_skipped: int
    ir_light: Floats


class Counts(NamedTuple):
    """What a connection has seen so far."""

    n_bytes: int
    packets: int
    crc_errors: int
    skipped_bytes: int


class StreamParser(Protocol):
    """What a port needs of a parser: `wire.StateParser`, `drops.StateDropParser`."""

    packets: int
    crc_errors: int
    skipped_bytes: int

    @property
    def n_wanted(self) -> int:
        """Bytes without which no further packet can be complete, > 0."""

    def feed(self, data: bytes) -> list[RobotState]:
        """Take the next bytes and return the states that are now complete."""


class Port:
    """An open connection to the robot and the thread that reads it.

    Args:
        config: Where and how.
        monotonic: The clock of the readings' times, in seconds.
        parser: Reads the stream; state packets unless told otherwise.
        connect: Opens the port; pyserial's unless told otherwise.

    Raises:
        BackendUnavailable: If the port cannot be opened, with the reason and the cure in one sentence or two.
    """

    def __init__(
        self,
        config: PortConfig,
        monotonic: Callable[[], float],
        *,
        parser: StreamParser | None = None,
        connect: Callable[..., Any] = serial.serial_for_url,
    ) -> None:
        self.config = config
        self._monotonic = monotonic
        self._parser: StreamParser = StateParser() if parser is None else parser
        self._unwrapper = IrLightUnwrapper()
        self._readings: deque[Reading] = deque(maxlen=2)
        self._heard = bytearray()  # the first bytes, to tell who is talking
        self._counts = Counts(0, 0, 0, 0)
        self._skipped_told = 0  # skipped bytes up to the last reading
        self._lost = ""
        self._torn = False
        self._changed = threading.Condition()
        self._writing = threading.Lock()
        self._closing = threading.Event()
        self._serial = _open(config, connect)
        self._thread = threading.Thread(target=self._read_until_closed, name=f"reader of {config.url}", daemon=True)
        self._thread.start()

    # ---- reading -----------------------------------------------------------------------------------------------------

    @property
    def counts(self) -> Counts:
        """Bytes and packets so far."""
        with self._changed:
            return self._counts

    def last_two(self) -> tuple[Reading, ...]:
        """Return the last two readings, older first; fewer while there are fewer."""
        with self._changed:
            return tuple(self._readings)

    def wait(self, after: int, timeout_s: float) -> Reading | None:
        """Return the newest reading as soon as its number exceeds `after`, or None after `timeout_s`.

        Raises:
            PortLost: If the port is lost and no such reading came before.
        """
        with self._changed:
            self._changed.wait_for(lambda: self._newest_number() > after or bool(self._lost), timeout_s)
            if self._newest_number() > after:
                return self._readings[-1]
            self._raise_if_lost()
            return None

    def _newest_number(self) -> int:
        return self._readings[-1].number if self._readings else 0

    def _raise_if_lost(self) -> None:
        if self._lost:
            raise PortLost(self.config.url, self._lost)

    def _read_until_closed(self) -> None:
        """Run the reader thread: wait for no more bytes than complete a packet, so that none lies unread."""
        try:
            while not self._closing.is_set():
                data = self._serial.read(max(self._parser.n_wanted, self._serial.in_waiting))
                if data:
                    self._take(data, self._monotonic())
        except Exception as error:  # a thread that died in silence would leave the robot without a driver
            self._lose(error)

    def _take(self, data: bytes, t: float) -> None:
        """Make readings of the next bytes."""
        parser = self._parser
        states = parser.feed(data)
        with self._changed:
            if len(self._heard) < 256:
                self._heard += data[:256]
            for state in states:
                level = self._unwrapper.unwrap(ir_light(state))
                skipped = parser.skipped_bytes - self._skipped_told
                self._readings.append(Reading(state, t, self._newest_number() + 1, skipped, level))
                self._skipped_told = parser.skipped_bytes
            n_bytes = self._counts.n_bytes + len(data)
            self._counts = Counts(n_bytes, parser.packets, parser.crc_errors, parser.skipped_bytes)
            self._changed.notify_all()

    def _lose(self, error: Exception) -> None:
        with self._changed:
            self._lost = self._lost or _explain_loss(error, self.config)
            self._changed.notify_all()

    # ---- writing -----------------------------------------------------------------------------------------------------

    def write(self, data: bytes) -> None:
        """Send `data` in one write, even where reading has failed, so that a stop still gets its chance.

        After a write that failed nothing more is sent: the robot may hold half a packet, and would take the header of
        the next one for its velocities. Begin the next connection with `wire.RESYNC`.

        Raises:
            PortLost: If the port is gone, closed, or has no room for `write_timeout_s`.
        """
        with self._writing:
            if self._torn or self._closing.is_set():
                raise PortLost(self.config.url, self._lost or "it was closed")
            try:
                self._serial.write(data)
            except PORT_ERRORS as error:
                self._torn = True
                self._lose(error)
                self._raise_if_lost()

    def handshake(self, *, wake: bytes = MI_ON, listen_s: float = 0.1, patience_s: float = 1.0) -> Reading:
        """Bring the robot to send its state, whatever mode it is in, and return a first reading.

        After a reset the robot's microcontroller shows a text console and sends no packets. So: listen first; if none
        comes, type `wake` at the console, three times at most. Nothing here moves a motor.

        Args:
            wake: What starts the packets; empty for a peer that sends them unasked (drops).
            listen_s: How long to listen first; the robot sends a packet every 10 ms.
            patience_s: How long to wait for a packet after each waking.

        Raises:
            BackendUnavailable: If no packet came, with what came instead. The port is closed.
        """
        try:
            reading = self.wait(0, listen_s)
            for _ in range(3):
                if reading is None:
                    self.write(wake)
                    reading = self.wait(0, patience_s)
        except PortLost as lost:
            self.close()
            raise BackendUnavailable(f"{self.config.url} went away before the robot answered: {lost.reason}.") from lost
        if reading is None:
            self.close()
            raise BackendUnavailable(_explain_silence(self.config, bytes(self._heard), self.counts, bool(wake)))
        return reading

    def close(self) -> None:
        """Let go of the port; what stops the motors is the caller's. Closing twice does nothing."""
        self._closing.set()
        self._thread.join()
        with self._writing:
            with contextlib.suppress(*PORT_ERRORS):  # raised where it had gone away: nothing is left to be closed
                self._serial.close()
            with self._changed:
                self._lost = self._lost or "it was closed"
                self._changed.notify_all()

    def __enter__(self) -> Port:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()


def aggregate(readings: tuple[Reading, ...], spec: RobotSpec) -> Floats:
    """Return the raw channels of a step, shape (57,): the newest reading, IR light unwrapped and as the mean of two.

    Args:
        readings: One or two, older first (`Port.last_two`).
        spec: Says which channels are "mean2", to take out the dock's beacon, which alternates from packet to packet.
    """
    unwrapped = [reading.state.raw.copy() for reading in readings]
    for raw, reading in zip(unwrapped, readings, strict=True):
        raw[spec.group("ir_light")] = reading.ir_light
    is_mean = np.array([channel.aggregate == "mean2" for channel in spec.channels])
    return np.where(is_mean, np.mean(unwrapped, axis=0), unwrapped[-1])


# ---- what went wrong, in sentences -----------------------------------------------------------------------------------


def _open(config: PortConfig, connect: Callable[..., Any]) -> Any:
    """Open the port or say why not."""
    if config.url.startswith(("socket://", "rfc2217://")) and _port_number(config.url) is None:
        raise BackendUnavailable(f"{config.url} names no port: write {config.url.split('://')[0]}://HOST:PORT.")
    try:
        return connect(
            config.url,
            baudrate=config.baudrate,
            parity=PARITIES[config.parity],
            timeout=config.read_timeout_s,
            write_timeout=config.write_timeout_s,
            exclusive=True,
        )
    except REFUSALS as error:
        raise BackendUnavailable(_explain_refusal(error, config)) from error


def _port_number(url: str) -> int | None:
    try:
        return urlsplit(url).port
    except ValueError:
        return None


def _explain_refusal(error: Exception, config: PortConfig) -> str:
    """Say why a port could not be opened."""
    url, number = config.url, _number(error)
    if number == errno.ENOENT:
        ports = [port.device for port in list_ports.comports(include_links=True)]
        return f"there is no port {url}. This machine has {', '.join(ports) or 'no serial port at all'}."
    if number in (errno.EACCES, errno.EPERM):
        return (
            f"no permission to use {url}: it belongs to the group {_group_of(url)}. Join it with "
            f"`sudo usermod -aG {_group_of(url)} $USER` and log in again."
        )
    if number in (errno.EAGAIN, errno.EBUSY):
        return f"{url} is in use by another program. Close that one first: a robot takes commands from one driver."
    if number == errno.EINVAL and config.parity != "none":
        return f"{url} refuses {config.parity} parity, as pseudo terminals do. Use parity none there."
    if number in (errno.ENOTTY, errno.EISDIR) or "Inappropriate ioctl" in str(error):
        return f"{url} is not a serial port."
    return f"{url} cannot be opened: {error}."


def _number(error: Exception) -> int | None:
    """Return an error's errno; termios.error keeps it in its arguments alone."""
    number = getattr(error, "errno", None)
    if number is None and error.args and isinstance(error.args[0], int):
        number = error.args[0]
    return number


def _group_of(path: str) -> str:
    """Return the name of the group that a device belongs to, or its number."""
    group = os.stat(path).st_gid
    try:
        from grp import getgrgid

        return getgrgid(group).gr_name
    except (ImportError, KeyError):
        return str(group)


def _explain_loss(error: Exception, config: PortConfig) -> str:
    """Say how an open port was lost."""
    if isinstance(error, serial.SerialTimeoutException):
        return f"it takes no more bytes (waited {config.write_timeout_s} s)"
    if _number(error) == errno.EIO or "returned no data" in str(error) or "Errno 5]" in str(error):
        return "the device went away (unplugged, or switched off?)"
    if "socket disconnected" in str(error):
        return "the other side closed the connection"
    return f"{type(error).__name__}: {error}"


def _explain_silence(config: PortConfig, heard: bytes, counts: Counts, woken: bool) -> str:
    """Say what came instead of a robot's packets."""
    url, asked = config.url, ", not even after `mi on`" if woken else ""
    if not heard:
        return f"nothing comes from {url}{asked}. Is the robot switched on, and is this its port?"
    if counts.crc_errors:
        return (
            f"packets come from {url}, but the checksum of each was wrong ({counts.crc_errors} of them). Is the line "
            f"noisy, or shared with another program? It was opened as {config.line}; the robot speaks 115200 8O1."
        )
    text = heard[:60].decode("ascii", errors="replace")
    if "critterprompt" in heard.decode("ascii", errors="replace"):
        return f"the robot's console answers at {url}, but sends no packets{asked}: reset the robot. It said {text!r}."
    if all(character in string.printable for character in text):
        return f"{url} is not the robot: it says {text!r}."
    return (
        f"{counts.n_bytes} bytes came from {url} but no packet, the first {heard[:8].hex(' ')}. Wrong baud rate or "
        f"parity, or not the robot? It was opened as {config.line}; the robot speaks 115200 8O1."
    )
