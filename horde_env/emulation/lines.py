"""Lines: where a host plugs in. Here a pseudo terminal; `sockets` has a TCP stream of the same bytes.

A line never waits: what has no room is lost, as on a serial line to which nobody listens. Each takes one host at a
time; a second one over TCP is closed at once (a pseudo terminal leaves that to the hosts' own lock, `exclusive`).
"""

from __future__ import annotations

import contextlib
import os
import select
import socket
import tempfile
from abc import ABC, abstractmethod
from pathlib import Path
from typing import Protocol

from horde_env.errors import BackendUnavailable

CHUNK = 65_536


class Line(Protocol):
    """What the emulator needs of a line.

    Attributes:
        url: How a host names it; it stays the same over an unplug.
        n_sent: Bytes that a host can read, since the line was last plugged in or `forget`.
        n_received: Bytes that a host has written, likewise.
        n_breaks: How often it was unplugged.
        in_lockstep: Whether the operating system is asked for bytes by `await_received` alone, and given them by
            `flush`: for those who count them, and to ask it less often.
    """

    url: str
    n_breaks: int
    in_lockstep: bool
    n_sent: int
    n_received: int

    def read(self) -> bytes:
        """Return what the robot receives now."""

    def write(self, data: bytes, bad_parity: bool = False) -> None:
        """Send what the robot says; where its parity is wrong, only who looks at that knows."""

    def flush(self) -> None:
        """Send what has not been sent."""

    def await_received(self, n: int, timeout_s: float) -> bool:
        """Wait until a host's first `n` bytes are here, for the next `read`; return whether they are."""

    def forget(self) -> None:
        """Count from zero: another host begins."""

    def unplug(self) -> None:
        """Let the device, or the server, vanish."""

    def plug(self) -> None:
        """Be there again, under the same name."""

    def close(self) -> None:
        """Vanish for good. Closing twice does nothing."""


class Ends(ABC):
    """What both kinds of line share: a descriptor, its counts, and the bytes that have come."""

    def __init__(self) -> None:
        self._inbox, self._outbox = bytearray(), bytearray()
        self.n_sent = self.n_received = self.n_breaks = 0
        self.in_lockstep = False

    def forget(self) -> None:
        """Count from zero: another host begins."""
        self._inbox.clear()
        self._outbox.clear()
        self.n_sent = self.n_received = 0

    @abstractmethod
    def _descriptor(self) -> int:
        """Return what to read from; -1 where there is nothing."""

    @abstractmethod
    def _fill(self) -> None:
        """Take what has come into the inbox, without waiting."""

    @abstractmethod
    def _put(self, data: bytes) -> int:
        """Give bytes to the operating system, without waiting; return how many it took."""

    def write(self, data: bytes, bad_parity: bool = False) -> None:  # noqa: ARG002  a pseudo terminal has no parity
        """Send bytes; what has no room is lost."""
        self._outbox += data
        if not self.in_lockstep:
            self.flush()

    def flush(self) -> None:
        """Send what has not been sent."""
        if self._outbox:
            self.n_sent += self._put(bytes(self._outbox))
            self._outbox.clear()

    def read(self) -> bytes:
        """Return what has come."""
        if not self.in_lockstep:
            self._fill()
        data = bytes(self._inbox)
        self._inbox.clear()
        return data

    def await_received(self, n: int, timeout_s: float) -> bool:
        """Wait until a host's first `n` bytes are here, for the next `read`; return whether they are."""
        while self.n_received < n and self._descriptor() >= 0:
            if not select.select([self._descriptor()], [], [], timeout_s)[0]:
                return False
            before = self.n_received
            self._fill()
            if self.n_received == before and self._descriptor() >= 0:
                return False  # readable, and nothing to read: the host is gone
        return self.n_received >= n


class PtyLine(Ends):
    """A pseudo terminal in raw mode under a name of its own, a link to the device as it is now.

    The robot's side keeps the host's side open too, so that the line stays raw between two hosts.

    Args:
        robot: What its folder is named after.

    Raises:
        BackendUnavailable: Where there are no pseudo terminals.
    """

    def __init__(self, robot: str) -> None:
        super().__init__()
        self._folder = tempfile.TemporaryDirectory(prefix=f"{robot}-")
        self.url = str(Path(self._folder.name) / "serial")
        self._robot = self._host = -1
        self.plug()

    def plug(self) -> None:
        """Open a pseudo terminal and let the name lead to it."""
        self.unplug()
        try:
            import tty

            self._robot, self._host = os.openpty()
            tty.setraw(self._host)
        except (ImportError, OSError) as error:
            raise BackendUnavailable(f"this machine has no pseudo terminal: {error}. Use TCP instead.") from error
        os.set_blocking(self._robot, False)
        os.symlink(os.ttyname(self._host), self.url)

    def unplug(self) -> None:
        """Close the pseudo terminal; its name leads nowhere any more, and a host's next read or write fails."""
        with contextlib.suppress(FileNotFoundError):
            os.unlink(self.url)
        for descriptor in (self._robot, self._host):
            if descriptor >= 0:
                os.close(descriptor)
        self._robot = self._host = -1
        self.n_breaks += 1
        self.forget()

    def close(self) -> None:
        """Vanish for good. Closing twice does nothing."""
        self.unplug()
        self._folder.cleanup()

    def _put(self, data: bytes) -> int:
        with contextlib.suppress(BlockingIOError):
            return os.write(self._robot, data) if self._robot >= 0 else 0
        return 0

    def _descriptor(self) -> int:
        return self._robot

    def _fill(self) -> None:
        with contextlib.suppress(BlockingIOError):
            while self._robot >= 0:
                data = os.read(self._robot, CHUNK)
                self._inbox += data
                self.n_received += len(data)


# ---- TCP -------------------------------------------------------------------------------------------------------------


class SocketLine(Ends):
    """A TCP server that one host at a time may connect to.

    Attributes:
        waits_for_company: Whether small pieces wait for the host's acknowledgement of those before (Nagle's rule).

    Args:
        host: Address to listen on.
        port: Its port; 0 for any.

    Raises:
        BackendUnavailable: If the address is taken or not of this machine.
    """

    waits_for_company = False

    def __init__(self, host: str, port: int) -> None:
        super().__init__()
        self._address = (host, port)
        self._server: socket.socket | None = None
        self._client: socket.socket | None = None
        self.plug()
        self.url = f"socket://{host}:{self._address[1]}"

    def plug(self) -> None:
        """Listen."""
        self.unplug()
        try:
            self._server = socket.create_server(self._address, backlog=4)
        except OSError as error:
            host, port = self._address
            raise BackendUnavailable(f"cannot listen on {host}:{port}: {error.strerror or error}.") from error
        self._server.setblocking(False)
        self._address = (self._address[0], self._server.getsockname()[1])  # the same port after an unplug

    def unplug(self) -> None:
        """Close the connection and the server: a host is cut off, and the next is refused."""
        self._hang_up()
        if self._server is not None:
            self._server.close()
            self._server = None
        self.n_breaks += 1
        self.forget()

    def close(self) -> None:
        """Vanish for good. Closing twice does nothing."""
        self.unplug()

    def _put(self, data: bytes) -> int:
        self._accept()
        if self._client is None:
            return 0
        try:
            return self._client.send(data)
        except BlockingIOError:
            return 0
        except OSError:
            self._hang_up()
            return 0

    def await_received(self, n: int, timeout_s: float) -> bool:
        """Wait until a host's first `n` bytes are here, for the next `read`; return whether they are."""
        if self._client is None and self._server is not None:
            select.select([self._server], [], [], timeout_s)
            self._accept()
        return super().await_received(n, timeout_s)

    def _descriptor(self) -> int:
        return -1 if self._client is None else self._client.fileno()

    def _accept(self) -> None:
        """Let the first host in, and turn away any other."""
        while self._server is not None:
            try:
                client, _ = self._server.accept()
            except OSError:
                return
            self._fill_from_client()  # notices a host that has left in the meantime
            if self._client is not None:
                client.close()
                continue
            client.setblocking(False)
            client.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, not self.waits_for_company)
            self._client = client

    def _hang_up(self) -> None:
        if self._client is not None:
            self._client.close()
            self._client = None

    def _fill(self) -> None:
        self._accept()
        self._fill_from_client()

    def _fill_from_client(self) -> None:
        while self._client is not None:
            try:
                data = self._client.recv(CHUNK)
            except BlockingIOError:
                return
            except OSError:
                data = b""
            if not data:
                self._hang_up()
                return
            self._inbox += data
            self.n_received += len(data)
