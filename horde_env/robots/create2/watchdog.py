"""The watchdog: a small process that owns the robot's port and stops the robot when its program is silent.

    program ── socket ── watchdog ── port ── robot       python -I -S watchdog.py URL BAUD DESCRIPTOR [EMERGENCY FILE]

The robot has no command timeout: a killed or hung program leaves the wheels turning. All bytes
between program and robot pass through the watchdog, which sends the stop itself

    after 0.3 s without a byte from the program     two stops, 20 ms apart; the robot stays in Safe, so a short pause
                                                    does not change the mode; after 5 s also START
                                                    (Passive)
    when the program ends for any reason            two stops and START; then the watchdog exits
    at any signal that can be caught                likewise
    while the emergency file exists                 and no byte of the program passes

It runs in a separate session, so Ctrl-C does not reach it, and requests real-time priority. It
cannot stop the robot if it is killed (SIGKILL) together with the program, or if the cable is pulled
or the computer loses power while the wheels
turn: for these, put a microcontroller between cable and robot
(examples/microcontroller/create2_watchdog.py). If only the watchdog is killed, the program sends
the stop itself over the port's descriptor, and starts another watchdog.

Only the standard library is imported, because the process runs isolated and takes some 10 MB.
"""

from __future__ import annotations

import contextlib
import errno
import os
import select
import signal
import socket
import struct
import subprocess
import sys
import threading
import time
from typing import Any

try:
    import fcntl
    import termios
    import tty
except ImportError:  # on Windows
    IS_SUPPORTED = False
else:
    IS_SUPPORTED = True
"""True on systems on which a watchdog can run: Linux and macOS."""

SILENCE_S = 0.3
LET_GO_S = 5.0
APART_S = 0.02
LOOK_S = 0.05
# For a silent robot: pulses of BRC, which cables connect to RTS
WAKE_S = 1.5
WAKE_AGAIN_S = 30.0
PULSE_S = 0.1
STOP = bytes([0, 0, 0, 0, 145, 0, 0, 0, 0])
START = bytes([128])
CHUNK = 4096
# Exit codes: the port disconnected; it accepts no bytes
GONE = 3
NO_ROOM = 4


class Watch:
    """Decides what to send and when, without input or output; all times are in seconds."""

    def __init__(self) -> None:
        self.is_stopped = False  # the program was silent for too long, or the emergency stop is set
        self.is_barred = False  # the emergency stop is set
        self._heard_t: float | None = None
        self._again_t: float | None = None
        self._has_let_go = False
        self._robot_t: float | None = None
        self._woken_t = 0.0

    def robot_sent(self, t: float) -> None:
        """Record that the robot sent bytes at `t`, or that its port was opened then."""
        if self._robot_t is None:
            self._woken_t = t
        self._robot_t = t

    def must_wake(self, t: float) -> bool:
        """Return whether to wake the robot at `t`: it is silent and was not woken for `WAKE_AGAIN_S`."""
        if (
            self._robot_t is None
            or t - self._robot_t <= WAKE_S
            or t - self._woken_t <= WAKE_AGAIN_S
        ):
            return False
        self._woken_t = t
        return True

    def take(self, data: bytes, t: float) -> bytes:
        """Return the bytes of the program's `data` at `t` that may pass."""
        self._heard_t = t
        self._has_let_go = False
        if self.is_barred:
            return b""
        self.is_stopped = False
        self._again_t = None
        return data

    def bar(self, is_barred: bool, t: float) -> bytes:
        """Record whether the emergency stop is set, and return the bytes to send for it."""
        was_barred = self.is_barred
        self.is_barred = is_barred
        if is_barred and not was_barred:
            return self._stop(t)
        return b""

    def due(self, t: float) -> bytes:
        """Return the bytes to send at `t`, which count as sent."""
        if self._again_t is not None and t >= self._again_t:
            self._again_t = None
            return STOP
        if self._heard_t is None:
            return b""
        silent_s = t - self._heard_t
        if silent_s >= SILENCE_S and not self.is_stopped:
            return self._stop(t)
        if silent_s >= LET_GO_S and not self._has_let_go:
            self._has_let_go = True
            return STOP + START
        return b""

    def _stop(self, t: float) -> bytes:
        self.is_stopped = True
        self._again_t = t + APART_S
        return STOP


def is_set(emergency: str) -> bool:
    """Return whether the emergency file exists; an error of the check counts as set."""
    try:
        os.stat(emergency)
    except FileNotFoundError:
        return False
    except OSError:
        return True
    return True


def open_port(url: str, baudrate: int) -> int:
    """Open a device exclusively, or a TCP stream; return its non-blocking descriptor.

    Raises:
        OSError: If it cannot be opened.
    """
    if url.startswith("socket://"):
        host, _, port = url.removeprefix("socket://").rpartition(":")
        connection = socket.create_connection((host.strip("[]"), int(port)), timeout=5.0)
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        connection.setblocking(False)
        return connection.detach()
    descriptor = os.open(url, os.O_RDWR | os.O_NOCTTY | os.O_NONBLOCK)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        tty.setraw(descriptor)
        speed = getattr(termios, f"B{baudrate}", None)
        if speed is None:
            raise OSError(errno.EINVAL, f"baudrate {baudrate} is not supported")
        settings = termios.tcgetattr(descriptor)
        settings[4] = settings[5] = speed
        settings[2] |= termios.CLOCAL | termios.CREAD
        termios.tcsetattr(descriptor, termios.TCSANOW, settings)
    except termios.error as error:
        os.close(descriptor)
        raise OSError(*error.args) from None
    except BaseException:
        os.close(descriptor)
        raise
    return descriptor


def put(descriptor: int, data: bytes, patience_s: float = 0.1) -> int:
    """Write all bytes; return 0, or `NO_ROOM` after `patience_s`, or `GONE`."""
    end = time.monotonic() + patience_s
    while data:
        try:
            data = data[os.write(descriptor, data) :]
        except BlockingIOError:
            if time.monotonic() > end:
                return NO_ROOM
            select.select([], [descriptor], [], 0.01)
        except OSError:
            return GONE
    return 0


def hand_over(life: int, port: int) -> None:
    """Send "ok" and the port's descriptor to the program, for its own stop if this process is killed."""
    with contextlib.suppress(OSError), socket.socket(fileno=os.dup(life)) as connection:
        socket.send_fds(connection, [b"ok\n"], [port])


def pulse(descriptor: int) -> None:
    """Pulse RTS, if the port has it."""
    bits = struct.pack("I", termios.TIOCM_RTS)
    with contextlib.suppress(OSError):
        fcntl.ioctl(descriptor, termios.TIOCMBIS, bits)
        time.sleep(PULSE_S)
        fcntl.ioctl(descriptor, termios.TIOCMBIC, bits)


def guard(life: int, port: int, ended: int, emergency: str) -> int:
    """Pass bytes until the program ends or a signal arrives (0), or the port fails (`GONE` or `NO_ROOM`)."""
    watch = Watch()
    looked_t = time.monotonic()
    watch.robot_sent(looked_t)
    while True:
        ready = select.select([life, port, ended], [], [], 0.01)[0]
        t = time.monotonic()
        if ended in ready:
            return 0
        if port in ready:
            data = read(port)
            if data is None:
                return GONE
            watch.robot_sent(t)
            if put(life, data, 0.0) and is_closed(life):
                return 0
        if life in ready:
            data = read(life)
            if data is None:
                return 0
            if data:
                failure = put(port, watch.take(data, t))
                if failure:
                    return failure
        if emergency and t - looked_t >= LOOK_S:
            looked_t = t
            put(port, watch.bar(is_set(emergency), t))
        commands = watch.due(t)
        if commands:
            failure = put(port, commands)
            if failure:
                return failure
        if watch.must_wake(t):
            pulse(port)


def read(descriptor: int) -> bytes | None:
    """Return the available bytes, b"" if there are none, None at the end."""
    try:
        return os.read(descriptor, CHUNK) or None
    except BlockingIOError:
        return b""
    except OSError:
        return None


def is_closed(life: int) -> bool:
    """Return whether the program has closed its end; a program that only leaves bytes unread has not."""
    poll = select.poll()
    poll.register(life, select.POLLHUP)
    return any(event & (select.POLLHUP | select.POLLERR) for _, event in poll.poll(0))


def main(words: list[str]) -> int:
    """Run the watchdog; send "ok" to the program once the port is open, or the error."""
    url = words[0]
    baudrate = int(words[1])
    life = int(words[2])
    emergency = ""
    if len(words) > 3:
        emergency = words[3]
    ended, end = os.pipe()
    os.set_blocking(end, False)
    signal.set_wakeup_fd(end, warn_on_full_buffer=False)
    unhandled = {
        signal.SIGKILL,
        signal.SIGSTOP,
        signal.SIGCHLD,
        signal.SIGCONT,
        signal.SIGWINCH,
        signal.SIGURG,
    }
    for signum in set(signal.Signals) - unhandled:
        with contextlib.suppress(OSError, ValueError):
            if signum == signal.SIGPIPE:
                signal.signal(signum, signal.SIG_IGN)
            else:
                signal.signal(signum, lambda *_: None)
    with contextlib.suppress(OSError):
        os.setsid()
    with contextlib.suppress(OSError, AttributeError):  # real-time priority, if it is permitted
        os.sched_setscheduler(0, os.SCHED_FIFO, os.sched_param(10))
    os.set_blocking(life, False)
    try:
        port = open_port(url, baudrate)
    except OSError as error:
        put(life, f"{error.errno or errno.EIO} {error.strerror or error}\n".encode())
        return 1
    hand_over(life, port)
    try:
        return guard(life, port, ended, emergency)
    finally:
        for last in (STOP, STOP + START):
            put(port, last)
            time.sleep(APART_S)


# ---- the life's end of the port --------------------------------------------------------------------------------------

NO_ROOM_TEXT = "the port accepts no bytes"
STARTING_S = 10.0
LAST_WORDS_S = 0.2
ENDING_S = 2.0


class GuardedPort:
    """The program's end of a guarded port, with the part of pyserial's interface that `Port` uses; for its `connect`.

    The url is a device, or "socket://HOST:PORT"; `emergency` is the file of the emergency stop, if
    any, which the watchdog checks too.

    Raises:
        OSError: If the watchdog cannot open the port, with its errno.
    """

    def __init__(
        self, url: str, *, baudrate: int, timeout: float, emergency: str = "", **_: Any
    ) -> None:
        if url.startswith(("rfc2217://", "loop://")):
            raise OSError(
                errno.EINVAL, f"a watchdog opens devices and socket://HOST:PORT only, not {url}"
            )
        self._timeout_s = timeout
        self._port: int | None = None  # the robot's port, for a stop after the watchdog has died
        self._letting_go = threading.Lock()
        self._life, theirs = socket.socketpair()
        words = [url, str(baudrate), str(theirs.fileno())]
        if emergency:
            words.append(emergency)
        with theirs:
            self.process = subprocess.Popen(
                [sys.executable, "-I", "-S", __file__, *words],
                pass_fds=[theirs.fileno()],
                stdin=subprocess.DEVNULL,
            )
        try:
            self._await_port()
        except BaseException:
            self.close()
            raise

    def _await_port(self) -> None:
        self._life.settimeout(STARTING_S)
        output = b""
        port = list[int]()
        while not output.endswith(b"\n"):
            data, descriptors, _, _ = socket.recv_fds(self._life, 1, 1)
            port += descriptors
            if not data:
                raise OSError(errno.EIO, "the watchdog ended before it had opened the port")
            output += data
        if output != b"ok\n":
            number, _, reason = output.decode(errors="replace").strip().partition(" ")
            raise OSError(int(number), reason)
        (self._port,) = port
        self._life.settimeout(self._timeout_s)

    @property
    def in_waiting(self) -> int:
        """Bytes that can be read at once."""
        room = fcntl.ioctl(self._life.fileno(), termios.FIONREAD, b"\0\0\0\0")
        return int(struct.unpack("i", room)[0])

    def read(self, size: int = 1) -> bytes:
        """Return the available bytes, at most `size`, or none after the timeout.

        Raises:
            BlockingIOError: If the watchdog ended because the port accepts no bytes.
            OSError: If it ended for another reason.
        """
        if not select.select([self._life], [], [], self._timeout_s)[0]:
            return b""
        try:
            data = self._life.recv(size)
        except ConnectionError:
            data = b""
        if not data:
            raise self._explained_end()
        return data

    def write(self, data: bytes) -> int:
        """Send bytes to the watchdog.

        Raises:
            BlockingIOError, OSError: As `read`.
        """
        try:
            self._life.sendall(data)
        except ConnectionError:
            raise self._explained_end() from None
        except TimeoutError:  # the watchdog has not written earlier bytes yet
            raise BlockingIOError(errno.EAGAIN, NO_ROOM_TEXT) from None
        return len(data)

    def _explained_end(self) -> OSError:
        """Stop the robot in place of a watchdog that has ended, and return the reason."""
        with contextlib.suppress(subprocess.TimeoutExpired):
            self.process.wait(LAST_WORDS_S)
        self._let_go(must_stop=True)
        if self.process.returncode == NO_ROOM:
            return BlockingIOError(errno.EAGAIN, NO_ROOM_TEXT)
        return OSError(errno.EIO, "the device disconnected, or its watchdog was killed")

    def _let_go(self, *, must_stop: bool) -> None:
        """Close the port's descriptor; send the stop first if no watchdog has sent it."""
        with self._letting_go:
            port = self._port
            self._port = None
        if port is not None:
            with contextlib.suppress(OSError):
                if must_stop:
                    os.write(port, STOP)
            os.close(port)

    def close(self) -> None:
        """Close the connection, at which the watchdog stops the robot and exits. Closing twice does nothing.

        A watchdog that does not exit is killed, and the stop is sent in its place.
        """
        with contextlib.suppress(OSError):
            self._life.shutdown(socket.SHUT_RDWR)
        self._life.close()
        with contextlib.suppress(subprocess.TimeoutExpired):
            self.process.wait(LAST_WORDS_S)
        self._let_go(must_stop=self.process.returncode != 0)
        try:
            self.process.wait(ENDING_S)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
