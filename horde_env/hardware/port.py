"""A connection to a robot: the only file that imports pyserial.

A reader thread converts bytes to readings on arrival and stores the last 32. Every failure of a
port raises one of two
errors: BackendUnavailable while it is opened, PortLost afterwards. A Port is one connection: to
reconnect, close it and create another.

Source: pyserial 3.5.
"""

from __future__ import annotations

import contextlib
import errno
import os
import socket
import stat
import threading
from collections import deque
from collections.abc import Callable
from typing import Any

import serial
from serial.tools import list_ports

from horde_env.errors import BackendUnavailable, PortLost
from horde_env.hardware.settings import PARITIES, PortConfig
from horde_env.hardware.stream import Counts, Reading, StreamParser

PORT_ERRORS: tuple[type[Exception], ...] = (serial.SerialException, OSError)
try:
    import termios

    PORT_ERRORS += (termios.error,)  # not a subclass of OSError
except ImportError:  # not on Windows
    pass
# The last for an unknown kind of URL
REFUSALS: tuple[type[Exception], ...] = (*PORT_ERRORS, ValueError)

# Seconds; a longer interval means lost packets: the Critterbot's own log has none beyond 0.033 s
GAP_S = 0.05
N_KEPT = 32  # readings: no step has more
PEEKED_BYTES = 1 << 16


class PromptSocket(socket.socket):
    """A connection that acknowledges received data at once, on platforms with TCP_QUICKACK.

    The Critterbot's on-board driver sends no drop before the last one is acknowledged (Nagle's
    algorithm), and a delayed acknowledgement takes 40 ms: drops would arrive in fours. The kernel
    resets the option, so each read sets it.
    """

    def recv(self, size: int, flags: int = 0) -> bytes:
        """Return the available data, up to `size` bytes."""
        acknowledge = getattr(socket, "TCP_QUICKACK", None)
        if acknowledge is not None:
            # A broken connection, which the read below reports better
            with contextlib.suppress(OSError):
                self.setsockopt(socket.IPPROTO_TCP, acknowledge, 1)
        return super().recv(size, flags)


def serial_for_url(url: str, **settings: Any) -> Any:
    """Open a port as pyserial does; over TCP without delayed sends or acknowledgements."""
    port = serial.serial_for_url(url, **settings)
    connection = getattr(port, "_socket", None)
    if connection is not None:
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        if url.startswith("socket://"):  # with rfc2217:// a pyserial thread reads already
            port._socket = PromptSocket(fileno=connection.detach())
            port._socket.setblocking(False)
    return port


class Port:
    """An open connection to the robot and the thread that reads it.

    Args:
        config: Address and settings.
        monotonic: The clock of the readings' times, in seconds.
        parser: Parses the stream.
        fill: Bytes that complete any partial packet at the robot. If empty, an interrupted write
            loses the port.
        packet_period_s: Time between two packets of the robot, in seconds.
        connect: Opens the port; `serial_for_url` by default.

    Raises:
        BackendUnavailable: If the port cannot be opened, with the reason and the remedy.
    """

    def __init__(
        self,
        config: PortConfig,
        monotonic: Callable[[], float],
        *,
        parser: StreamParser,
        fill: bytes,
        packet_period_s: float,
        connect: Callable[..., Any] = serial_for_url,
    ) -> None:
        self.config = config
        self.parser = parser
        self._monotonic = monotonic
        self._fill = fill
        self._packet_period_s = packet_period_s
        self._readings: deque[Reading] = deque(maxlen=N_KEPT)
        self.first_bytes = b""  # 256 or more, to identify the device
        # `lost`: why, once it is
        self.counts = Counts()
        self.lost = ""
        self._skipped_told = 0  # skipped bytes before the last reading
        self._torn = self._cut = False
        self._taking = threading.Lock()
        self._writing = threading.Lock()
        self._closing = threading.Event()
        self._serial = _open(config, connect)
        self._thread: threading.Thread | None = None
        attach = getattr(self._serial, "attach", None)
        # A port on virtual time calls `_read_once` itself
        if attach is None or not attach(self._read_once):
            name = f"reader of {config.url}"
            self._thread = threading.Thread(target=self._read_until_closed, name=name, daemon=True)
            self._thread.start()

    # ---- reading -----------------------------------------------------------------------------------------------------

    def readings(self, after: int = 0) -> tuple[Reading, ...]:
        """Return the readings with a number greater than `after`, older first; no more than the last 32."""
        readings = []
        with self._taking:
            for reading in reversed(self._readings):
                if reading.number <= after:
                    break
                readings.append(reading)
        readings.reverse()
        return tuple(readings)

    def newest(self, after: int = 0) -> Reading | None:
        """Return the newest reading if its number is greater than `after`, else None.

        Raises:
            PortLost: If the port is lost and there is no such reading.
        """
        readings = self.readings(after)
        if not readings:
            self._raise_if_lost()
        if readings:
            return readings[-1]
        return None

    def _raise_if_lost(self) -> None:
        if self.lost:
            raise PortLost(self.config.url, self.lost)

    def _read_until_closed(self) -> None:
        """Run the reader thread."""
        while not self._closing.is_set() and self._read_once():
            pass

    def _read_once(self) -> bool:
        """Read at most the bytes that complete a packet, so none waits in the buffer; return False on failure."""
        try:
            data = self._serial.read(max(self.parser.n_wanted, self._serial.in_waiting))
            if data:
                self._take(data, self._monotonic())
        except Exception as error:  # without a reader the robot would drive on stale data
            self._lose(error)
            return False
        return True

    def _take(self, data: bytes, t: float) -> None:
        """Convert the next bytes to readings."""
        parser = self.parser
        states = parser.feed(data)
        with self._taking:
            if len(self.first_bytes) < 256:
                self.first_bytes += data[:256]
            is_silent = self._was_silent(len(states), t)
            for state, skipped_bytes in zip(states, parser.skipped_at, strict=True):
                skipped = skipped_bytes - self._skipped_told
                # Counters can be unwrapped over one lost packet, not over more.
                if skipped > parser.size or is_silent:
                    parser.forget()
                is_silent = False
                raw = parser.unwrap(state)
                number = 1
                if self._readings:
                    number = self._readings[-1].number + 1
                self._readings.append(Reading(state, t, number, skipped, raw))
                self._skipped_told = skipped_bytes
            n_bytes = self.counts.n_bytes + len(data)
            self.counts = Counts(n_bytes, parser.packets, parser.crc_errors, parser.skipped_bytes)

    def _was_silent(self, n_states: int, t: float) -> bool:
        """Return whether the robot was silent for longer than `GAP_S` before the states read at `t`.

        Packets that are read late, many at once, were sent one per `packet_period_s`.
        """
        if not self._readings or not n_states:
            return False
        parser = self.parser
        n_bytes = n_states * parser.size + parser.skipped_bytes - self._skipped_told
        elapsed_s = t - self._readings[-1].t
        sent_s = self._packet_period_s * n_bytes / parser.size
        silent_s = elapsed_s - (sent_s - self._packet_period_s)
        if silent_s > GAP_S:  # a read may have returned only the first of them
            silent_s -= self._packet_period_s * self._count_waiting() / parser.size
        return silent_s > GAP_S

    def _count_waiting(self) -> int:
        """Return the number of received bytes that are not read yet; 0 if the port fails, as the next read will."""
        with contextlib.suppress(*PORT_ERRORS):
            if not self.config.url.startswith("socket://"):
                return int(self._serial.in_waiting)
            # Pyserial's number is 0 or 1 there
            return len(self._serial._socket.recv(PEEKED_BYTES, socket.MSG_PEEK))
        return 0

    def _lose(self, error: Exception) -> None:
        with self._taking:
            self.lost = self.lost or explain_loss(error, self.config)

    # ---- writing -----------------------------------------------------------------------------------------------------

    def write(self, data: bytes) -> None:
        """Send `data` in one write, even if reading has failed, so a stop can still arrive.

        After a failed write nothing more is sent: the robot may hold a partial packet, and would
        read the header of the next one as velocities. Begin the next connection with
        `Dialect.fill`. After an interrupted write (Ctrl-C) the next write begins with it
        automatically.

        Raises:
            PortLost: If the port is gone, closed, or has no room for `write_timeout_s`, twice.
        """
        with self._writing:
            if self._torn or self._closing.is_set():
                raise PortLost(self.config.url, self.lost or "it was closed")
            try:
                self._put(data)
            except PORT_ERRORS as error:
                self._torn = True
                self._lose(error)
                self._raise_if_lost()
            except BaseException as interruption:  # it is unknown how much of the packet was sent
                self._cut = True
                if not self._fill:
                    self._torn = True
                    self._lose(
                        InterruptedError(
                            f"a command was cut short by {type(interruption).__name__}"
                        )
                    )
                raise

    def _put(self, data: bytes) -> None:
        """Write, and retry once after a timeout: pyserial checks the clock after a complete write, too.

        The retry distinguishes a machine that was busy for `write_timeout_s` from a line without
        room. A repeated packet does no harm, and a partial one is completed by `fill`.
        """
        complete = data
        if self._cut:
            complete = self._fill + data
        try:
            self._serial.write(complete)
        except serial.SerialTimeoutException:
            self._serial.write(self._fill + data)
        self._cut = False

    def pulse_rts(self) -> None:
        """Assert RTS for 0.1 s, which wakes some robots; a port without that line ignores it."""
        with self._writing, contextlib.suppress(*PORT_ERRORS, AttributeError):
            self._serial.rts = True
            self._closing.wait(0.1)
            self._serial.rts = False

    def close(self) -> None:
        """Close the port; the caller stops the motors first. Closing twice does nothing."""
        self._closing.set()
        if self._thread is not None:
            self._thread.join()
        with self._writing:
            # Pyserial leaves it open after the peer disconnects
            connection = getattr(self._serial, "_socket", None)
            with contextlib.suppress(*PORT_ERRORS):  # the device is unplugged: nothing to close
                self._serial.close()
            if connection is not None:
                connection.close()
            self.lost = self.lost or "it was closed"

    def __enter__(self) -> Port:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def _open(config: PortConfig, connect: Callable[..., Any]) -> Any:
    """Open the port, or raise BackendUnavailable with an explanation."""
    fault = explain_address(config.url)
    if fault:
        raise BackendUnavailable(fault)
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
        raise BackendUnavailable(explain_refusal(error, config)) from error


# ---- error messages --------------------------------------------------------------------------------------------------

ON_A_NETWORK = ("socket://", "rfc2217://")
SERIAL_GROUPS = ("dialout", "uucp", "plugdev")  # groups that give access to serial ports only
NO_ROOM = (
    "it accepts no bytes: nothing reads them at its other end, or flow control holds them back"
)


def explain_address(url: str) -> str:
    """Return the error in a network address; "" if it is valid or not a network address."""
    if not url.startswith(ON_A_NETWORK):
        return ""
    kind, place = url.split("://", 1)
    example = f"write {kind}://HOST:PORT"
    host, colon, port = place.partition("?")[0].partition("/")[0].rpartition(":")
    if ":" in host and not (host.startswith("[") and host.endswith("]")):
        return f"invalid address {url}: {example}, with brackets around an IPv6 address, as in [::1]:2330."
    if not colon or not port:
        return f"{url} has no port: {example}."
    if not host:
        return f"{url} has no host: {example}."
    if not port.isascii() or not port.isdigit() or not 0 < int(port) <= 65_535:
        return f"{url} cannot be opened: the port must be a number from 1 to 65535, not {port}."
    return ""


def explain_refusal(error: Exception, config: PortConfig) -> str:
    """Return why a port could not be opened, and the remedy."""
    url = config.url
    number = _number(error)
    if number == errno.ENOENT and ":" in url and "/" not in url:
        return f"there is no device {url}: use socket://{url} for a serial line over TCP, or the drops backend."
    if number == errno.ENOENT:
        devices = [port.device for port in list_ports.comports(include_links=True)]
        return (
            f"there is no port {url}. This machine has {', '.join(devices) or 'no serial ports'}."
        )
    if number in (errno.EACCES, errno.EPERM):
        return _explain_permission(url)
    if number in (errno.EAGAIN, errno.EBUSY):
        return f"{url} is in use by another program. Close it first: one program at a time may drive a robot."
    if number == errno.EINVAL and config.parity != "none":
        return (
            f"{url} does not support {config.parity} parity, as pseudo terminals do not. Use parity none; `horde-robot "
            f"check --robot NAME --parity none --save` stores it for all commands."
        )
    if number in (errno.ENOTTY, errno.EISDIR) or "Inappropriate ioctl" in str(error):
        return f"{url} is not a serial port."
    return f"{url} cannot be opened: {error}."


def _number(error: Exception) -> int | None:
    """Return an error's errno; termios.error has it only in its arguments."""
    number = getattr(error, "errno", None)
    if number is None and error.args and isinstance(error.args[0], int):
        number = error.args[0]
    return number


def _explain_permission(url: str) -> str:
    """Return how to get access: by joining the port's group only if that group is for serial ports and has access."""
    try:
        device = os.stat(url)
    except OSError:
        return f"no permission to use {url}."
    group = _name_of(device.st_gid)
    is_for_ports = group in SERIAL_GROUPS
    access = stat.S_IRGRP | stat.S_IWGRP
    if is_for_ports and device.st_mode & access == access:
        return (
            f"no permission to use {url}: it belongs to the group {group}. Join it with "
            f"`sudo usermod -aG {group} $USER` and log in again."
        )
    flaw = "is not for serial ports"
    if is_for_ports:
        flaw = "may not read and write it"
    return (
        f"no permission to use {url}: it belongs to the group {group}, which {flaw}. If this is the robot's port, "
        f"ask the administrator to assign it to the group dialout with mode 0660 (a udev rule)."
    )


def _name_of(group: int) -> str:
    """Return the name of a group, or its number if it has no name."""
    try:
        from grp import getgrgid

        return getgrgid(group).gr_name
    except (ImportError, KeyError):
        return str(group)


def explain_loss(error: Exception, config: PortConfig) -> str:
    """Return how an open port was lost."""
    if isinstance(error, serial.SerialTimeoutException):
        return f"{NO_ROOM} (waited {config.write_timeout_s} s, twice)"
    if _number(error) == errno.EIO or "returned no data" in str(error) or "Errno 5]" in str(error):
        return "the device disconnected (unplugged, or switched off?)"
    if _number(error) == errno.EAGAIN:
        return NO_ROOM
    hung_up = (errno.ECONNRESET, errno.EPIPE, errno.ECONNABORTED)
    if "socket disconnected" in str(error) or any(
        _number(error) == number or f"Errno {number}]" in str(error) for number in hung_up
    ):
        return "the other side closed the connection"
    return f"{type(error).__name__}: {error}"
