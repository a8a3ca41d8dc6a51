"""GuardedPort: a port that a guardian process owns, as `Port` takes it in place of pyserial's."""

from __future__ import annotations

import contextlib
import errno
import fcntl
import os
import select
import socket
import struct
import subprocess
import sys
import termios
import threading
from pathlib import Path
from typing import Any

from horde_env.robots.create2.commands import STOP_BYTES
from horde_env.robots.create2.guardian import NO_ROOM

GUARDIAN = Path(__file__).with_name("guardian.py")
_NO_ROOM = "the port accepts no bytes"
STARTING_S, LAST_WORDS_S, ENDING_S = 10.0, 0.2, 2.0


class GuardedPort:
    """The life's end of a guarded port: what `Port` needs of pyserial's.

    Args:
        url: A device, or "socket://HOST:PORT".
        baudrate: Bits per second.
        timeout: How long `read` waits for bytes, in seconds.
        emergency: The file of the emergency stop, which the guardian watches too; none when "".

    Raises:
        OSError: If the guardian cannot open the port, with its errno.
    """

    def __init__(self, url: str, *, baudrate: int, timeout: float, emergency: str = "") -> None:
        if url.startswith(("rfc2217://", "loop://")):
            raise OSError(errno.EINVAL, f"a guardian opens devices and socket://HOST:PORT alone, not {url}")
        self._timeout_s = timeout
        self._port: int | None = None  # the robot's own, for a stop when the guardian is no more
        self._letting_go = threading.Lock()
        self._life, theirs = socket.socketpair()
        words = [url, str(baudrate), str(theirs.fileno()), *([emergency] if emergency else [])]
        with theirs:
            self.process = subprocess.Popen(
                [sys.executable, "-I", "-S", str(GUARDIAN), *words],
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
        said, port = b"", list[int]()
        while not said.endswith(b"\n"):
            data, descriptors, _, _ = socket.recv_fds(self._life, 1, 1)
            port += descriptors
            if not data:
                raise OSError(errno.EIO, "the guardian ended before it had opened the port")
            said += data
        if said != b"ok\n":
            number, _, reason = said.decode(errors="replace").strip().partition(" ")
            raise OSError(int(number), reason)
        (self._port,) = port
        self._life.settimeout(self._timeout_s)

    @property
    def in_waiting(self) -> int:
        """Bytes that can be read at once."""
        room = fcntl.ioctl(self._life.fileno(), termios.FIONREAD, b"\0\0\0\0")
        return int(struct.unpack("i", room)[0])

    def read(self, size: int = 1) -> bytes:
        """Return what is there, `size` bytes at most, or nothing after the timeout.

        Raises:
            BlockingIOError: If the guardian has ended because the port accepts no bytes.
            OSError: If it has ended for another reason.
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
        """Hand bytes to the guardian.

        Raises:
            BlockingIOError, OSError: As `read`.
        """
        try:
            self._life.sendall(data)
        except ConnectionError:
            raise self._explained_end() from None
        except TimeoutError:  # the guardian has not written what it was sent before
            raise BlockingIOError(errno.EAGAIN, _NO_ROOM) from None
        return len(data)

    def _explained_end(self) -> OSError:
        """Stop the robot in the place of a guardian that has ended, and return why it has."""
        with contextlib.suppress(subprocess.TimeoutExpired):
            self.process.wait(LAST_WORDS_S)
        self._let_go(must_stop=True)
        if self.process.returncode == NO_ROOM:
            return BlockingIOError(errno.EAGAIN, _NO_ROOM)
        return OSError(errno.EIO, "the device went away, or its guardian was killed")

    def _let_go(self, *, must_stop: bool) -> None:
        """Let go of the port, and say the stop before that where there is no guardian that has said it."""
        with self._letting_go:
            port, self._port = self._port, None
        if port is not None:
            with contextlib.suppress(OSError):
                os.write(port, STOP_BYTES if must_stop else b"")
            os.close(port)

    def close(self) -> None:
        """End the connection, at which the guardian stops the robot, and wait for it. Closing twice does nothing.

        One that does not end, because it was stopped itself, is killed, and the stop said in its place.
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


def connect_guarded(url: str, **settings: Any) -> GuardedPort:
    """Open a port through a guardian; for `Port(connect=...)`.

    Raises:
        OSError: If that is not possible.
    """
    return GuardedPort(
        url,
        baudrate=settings["baudrate"],
        timeout=settings["timeout"],
        emergency=settings.get("emergency", ""),
    )
