"""Lines: the emulator's ends of the connections to hosts, a pseudo terminal or a TCP server.

A line never blocks: bytes without room are lost, as on a serial line without a reader. Each takes one host at a time;
over TCP a second one is disconnected at once (on a pseudo terminal the hosts' own lock, `exclusive`, prevents it).
"""

from __future__ import annotations

import contextlib
import os
import select
import socket
import tempfile
from abc import ABC, abstractmethod
from pathlib import Path

from horde_env.errors import BackendUnavailable

CHUNK = 65_536


class Line(ABC):
    """One line: the bytes received and not yet read, the bytes to send, and their counts.

    Attributes:
        url: The host's address of the line; it stays the same when the line is unplugged.
        n_sent: Bytes that a host can read, since the line was last plugged in or `forget` was called.
        n_received: Bytes that a host has written since then.
        n_breaks: Number of times that it was unplugged.
        in_lockstep: If true, only `await_received` and `flush` call the operating system, so that bytes can be counted.
    """

    url: str

    def __init__(self) -> None:
        self._inbox, self._outbox = bytearray(), bytearray()
        self.n_sent = self.n_received = self.n_breaks = 0
        self.in_lockstep = False

    @abstractmethod
    def plug(self) -> None:
        """Open the device or server, under the same name as before."""

    @abstractmethod
    def unplug(self) -> None:
        """Remove the device or server: a host's next read or write fails."""

    def close(self) -> None:
        """Remove the line for good. Closing twice does nothing."""
        self.unplug()

    def forget(self) -> None:
        """Discard all bytes and restart the counts, for a new host."""
        self._inbox.clear()
        self._outbox.clear()
        self.n_sent = self.n_received = 0

    def write(self, data: bytes, bad_parity: bool = False) -> None:  # noqa: ARG002  only the driver checks the parity
        """Send bytes to the host; those without room are lost."""
        self._outbox += data
        if not self.in_lockstep:
            self.flush()

    def flush(self) -> None:
        """Send the buffered bytes."""
        if self._outbox:
            self.n_sent += self._put(bytes(self._outbox))
            self._outbox.clear()

    def read(self) -> bytes:
        """Return the bytes received from the host."""
        if not self.in_lockstep:
            self._fill()
        data = bytes(self._inbox)
        self._inbox.clear()
        return data

    def await_received(self, n: int, timeout_s: float) -> bool:
        """Wait until `n` bytes of the host are in the buffer; return whether they arrived."""
        while self.n_received < n and self._descriptor() >= 0:
            if not select.select([self._descriptor()], [], [], timeout_s)[0]:
                return False
            before = self.n_received
            self._fill()
            if self.n_received == before and self._descriptor() >= 0:
                return False  # readable but empty: the host has disconnected
        return self.n_received >= n

    @abstractmethod
    def _descriptor(self) -> int:
        """Return the file descriptor to read from; -1 without a host."""

    @abstractmethod
    def _fill(self) -> None:
        """Read available bytes into the buffer without blocking."""

    @abstractmethod
    def _put(self, data: bytes) -> int:
        """Write bytes without blocking; return how many were accepted."""


class PtyLine(Line):
    """A pseudo terminal in raw mode, under a symbolic link that stays the same.

    The emulator keeps the host's side open too, so the line stays raw between two hosts.

    Args:
        robot: Prefix of the link's folder.

    Raises:
        BackendUnavailable: If this machine has no pseudo terminals.
    """

    def __init__(self, robot: str) -> None:
        super().__init__()
        self._folder = tempfile.TemporaryDirectory(prefix=f"{robot}-")
        self.url = str(Path(self._folder.name) / "serial")
        self._robot = self._host = -1
        self.plug()

    def plug(self) -> None:
        """Open a pseudo terminal and link its device."""
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
        """Close the pseudo terminal and remove the link."""
        with contextlib.suppress(FileNotFoundError):
            os.unlink(self.url)
        for descriptor in (self._robot, self._host):
            if descriptor >= 0:
                os.close(descriptor)
        self._robot = self._host = -1
        self.n_breaks += 1
        self.forget()

    def close(self) -> None:
        """Remove the line and its folder. Closing twice does nothing."""
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


class SocketLine(Line):
    """A TCP server for one host at a time.

    Attributes:
        has_nagle: Whether small writes wait until the host acknowledges earlier ones (Nagle's algorithm).

    Args:
        host: Address to listen on.
        port: Port; 0 for any free one.

    Raises:
        BackendUnavailable: If the address is in use or not local.
    """

    has_nagle = False

    def __init__(self, host: str, port: int) -> None:
        super().__init__()
        self._address = (host, port)
        self._server: socket.socket | None = None
        self._client: socket.socket | None = None
        self.plug()
        self.url = f"socket://{host}:{self._address[1]}"

    def plug(self) -> None:
        """Listen on the address."""
        self.unplug()
        try:
            self._server = socket.create_server(self._address, backlog=4)
        except OSError as error:
            host, port = self._address
            raise BackendUnavailable(f"cannot listen on {host}:{port}: {error.strerror or error}.") from error
        self._server.setblocking(False)
        self._address = (self._address[0], self._server.getsockname()[1])  # the same port after an unplug

    def unplug(self) -> None:
        """Disconnect the host and close the server."""
        self._disconnect()
        if self._server is not None:
            self._server.close()
            self._server = None
        self.n_breaks += 1
        self.forget()

    def await_received(self, n: int, timeout_s: float) -> bool:
        """Accept a host if there is none, and wait until `n` of its bytes are in the buffer."""
        if self._client is None and self._server is not None:
            select.select([self._server], [], [], timeout_s)
            self._accept()
        return super().await_received(n, timeout_s)

    def _put(self, data: bytes) -> int:
        self._accept()
        if self._client is None:
            return 0
        try:
            return self._client.send(data)
        except BlockingIOError:
            return 0
        except OSError:
            self._disconnect()
            return 0

    def _descriptor(self) -> int:
        return -1 if self._client is None else self._client.fileno()

    def _accept(self) -> None:
        """Accept the first host and disconnect any other."""
        while self._server is not None:
            try:
                client, _ = self._server.accept()
            except OSError:
                return
            self._fill_from_client()  # detects that the earlier host has disconnected
            if self._client is not None:
                client.close()
                continue
            client.setblocking(False)
            client.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, not self.has_nagle)
            self._client = client

    def _disconnect(self) -> None:
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
                self._disconnect()
                return
            self._inbox += data
            self.n_received += len(data)
