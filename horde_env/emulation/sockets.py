"""SocketLine: the bytes of the serial line over TCP, for one host at a time."""

from __future__ import annotations

import select
import socket

from horde_env.emulation.lines import CHUNK, Ends
from horde_env.errors import BackendUnavailable


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
