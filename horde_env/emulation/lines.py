"""Lines: the emulator's ends of the connections to hosts, a pseudo terminal or a TCP server (or memory: `lockstep`).

A line never blocks: bytes without room are lost, as on a serial line without a reader. Each takes
one host at a time; over TCP a second one is disconnected at once (on a pseudo terminal the hosts'
own lock, `exclusive`, prevents it).
"""

from __future__ import annotations

import contextlib
import os
import socket
import tempfile
from abc import ABC, abstractmethod
from importlib import import_module
from pathlib import Path

from horde_env.errors import BackendUnavailable

CHUNK = 65_536
NO_PTY = (
    "this machine has no pseudo terminal ({error}): use a line over TCP, `horde-robot emulate --tcp PORT`, or an "
    "emulated robot that does not run in real time"
)


def check_pty() -> None:
    """Refuse a system without pseudo terminals, before the time that making and compiling a robot takes.

    Raises:
        BackendUnavailable: If this system has none.
    """
    try:
        import_module("tty")
    except ImportError as error:
        raise BackendUnavailable(NO_PTY.format(error=error)) from error


class Line(ABC):
    """One line.

    Attributes:
        url: The host's address of the line; it stays the same when the line is unplugged.
    """

    url: str

    @abstractmethod
    def plug(self) -> None:
        """Open the device or server, under the same name as before."""

    @abstractmethod
    def unplug(self) -> None:
        """Remove the device or server and discard all bytes: a host's next read or write fails."""

    def close(self) -> None:
        """Remove the line for good. Closing twice does nothing."""
        self.unplug()

    @abstractmethod
    def read(self) -> bytes:
        """Return the bytes received from the host, without blocking."""

    @abstractmethod
    def write(self, data: bytes, bad_parity: bool = False) -> None:
        """Send bytes to the host without blocking; those without room are lost."""

    def _disconnect(self) -> None:  # noqa: B027  a pseudo terminal cannot
        """Disconnect the host."""


class PtyLine(Line):
    """A pseudo terminal in raw mode, under a symbolic link that stays the same, in a folder named after `robot`.

    The emulator keeps the host's side open too, so the line stays raw between two hosts.

    Raises:
        BackendUnavailable: If this machine has no pseudo terminals.
    """

    def __init__(self, robot: str) -> None:
        self._folder = tempfile.TemporaryDirectory(prefix=f"{robot}-")
        self.url = str(Path(self._folder.name) / "serial")
        self._robot = self._host = -1
        try:
            self.plug()
        except BackendUnavailable:
            self._folder.cleanup()
            raise

    def plug(self) -> None:
        """Open a pseudo terminal and link its device."""
        self.unplug()
        try:
            import tty

            self._robot, self._host = os.openpty()
            tty.setraw(self._host)
        except (ImportError, OSError) as error:
            raise BackendUnavailable(NO_PTY.format(error=error)) from error
        os.set_blocking(self._robot, False)
        os.symlink(os.ttyname(self._host), self.url)

    def unplug(self) -> None:
        """Close the pseudo terminal and remove the link."""
        with contextlib.suppress(FileNotFoundError):
            os.unlink(self.url)
        for descriptor in (self._robot, self._host):
            if descriptor >= 0:
                os.close(descriptor)
        self._robot = self._host = -1

    def close(self) -> None:
        """Remove the line and its folder. Closing twice does nothing."""
        self.unplug()
        self._folder.cleanup()

    def read(self) -> bytes:
        """Return the bytes received from the host."""
        data = b""
        with contextlib.suppress(BlockingIOError):
            while self._robot >= 0:
                data += os.read(self._robot, CHUNK)
        return data

    def write(self, data: bytes, bad_parity: bool = False) -> None:  # noqa: ARG002  it has no parity
        """Send bytes to the host."""
        if data and self._robot >= 0:
            with contextlib.suppress(BlockingIOError):
                os.write(self._robot, data)


class SocketLine(Line):
    """A TCP server for one host at a time, on any free port if `port` is 0; data without room is lost whole.

    Raises:
        BackendUnavailable: If the address is in use or not local.
    """

    # Small writes do not wait until the host acknowledges earlier ones (Nagle's algorithm)
    has_nagle = False

    def __init__(self, host: str, port: int) -> None:
        self._address = (host, port)
        self._server: socket.socket | None = None
        self._client: socket.socket | None = None
        # The second: the rest of partly sent data
        self._inbox = bytearray()
        self._outbox = bytearray()
        self.plug()
        self.url = f"socket://{host}:{self._address[1]}"

    def plug(self) -> None:
        """Listen on the address."""
        self.unplug()
        try:
            self._server = socket.create_server(self._address, backlog=4)
        except OSError as error:
            host, port = self._address
            raise BackendUnavailable(
                f"cannot listen on {host}:{port}: {error.strerror or error}."
            ) from error
        self._server.setblocking(False)
        # The same port after an unplug
        self._address = (self._address[0], self._server.getsockname()[1])

    def unplug(self) -> None:
        """Disconnect the host and close the server."""
        self._disconnect()
        self._inbox.clear()
        if self._server is not None:
            self._server.close()
            self._server = None

    def read(self) -> bytes:
        """Return the bytes received from the host."""
        self._accept()
        self._fill()
        data = bytes(self._inbox)
        self._inbox.clear()
        return data

    def write(self, data: bytes, bad_parity: bool = False) -> None:  # noqa: ARG002  it has no parity
        """Send bytes to the host, with those left over from before."""
        self._accept()
        if self._client is None:
            return
        if len(self._outbox) < len(data):
            self._outbox += data
        try:
            del self._outbox[: self._client.send(self._outbox)]
        except BlockingIOError:
            pass
        except OSError:
            self._disconnect()

    def _accept(self) -> None:
        """Accept the first host and disconnect any other."""
        while self._server is not None:
            try:
                client, _ = self._server.accept()
            except OSError:
                return
            self._fill()  # detects that the earlier host has disconnected
            if self._client is not None:
                client.close()
                continue
            client.setblocking(False)
            client.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, not self.has_nagle)
            self._client = client

    def _fill(self) -> None:
        while self._client is not None:
            try:
                data = self._client.recv(CHUNK)
            except BlockingIOError:
                return
            except OSError:
                data = b""
            if not data:
                self._disconnect()
            self._inbox += data

    def _disconnect(self) -> None:
        if self._client is not None:
            self._client.close()
            self._client = None
        self._outbox.clear()
