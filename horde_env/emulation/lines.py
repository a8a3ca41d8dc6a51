"""Lines: where a host plugs in. A pseudo terminal, a TCP stream of the same bytes, and the on-board driver's drops.

A line never waits: what has no room is lost, as on a serial line to which nobody listens. Each takes one host at a
time; a second one over TCP is closed at once (a pseudo terminal leaves that to the hosts' own lock, `exclusive`).
"""

from __future__ import annotations

import contextlib
import os
import select
import socket
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Protocol

from horde_env.errors import BackendUnavailable
from horde_env.hardware import drops
from horde_env.hardware.control import MI_ON, Control, encode_control
from horde_env.hardware.stream import PacketFinder
from horde_env.hardware.wire import decode_state

CHUNK = 65_536
N_DROPS_KEPT = 16
WAKE_AFTER = 100  # cycles without a packet after which the driver types "mi on"


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

    def write(self, data: bytes) -> None:
        """Send what the robot says."""

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


class Ends:
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

    def _descriptor(self) -> int:
        """Return what to read from; -1 where there is nothing."""
        raise NotImplementedError

    def _fill(self) -> None:
        """Take what has come into the inbox, without waiting."""
        raise NotImplementedError

    def _put(self, data: bytes) -> int:
        """Give bytes to the operating system, without waiting; return how many it took."""
        raise NotImplementedError

    def write(self, data: bytes) -> None:
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

    Raises:
        BackendUnavailable: Where there are no pseudo terminals.
    """

    def __init__(self) -> None:
        super().__init__()
        self._folder = tempfile.TemporaryDirectory(prefix="critterbot-")
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


class SocketLine(Ends):
    """A TCP server that one host at a time may connect to.

    Args:
        host: Address to listen on.
        port: Its port; 0 for any.

    Raises:
        BackendUnavailable: If the address is taken or not of this machine.
    """

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
            client.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
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


class DropsLine(SocketLine):
    """The robot's on-board driver: state drops out, control drops in (`hardware.drops`).

    As the original: each sound state packet becomes a drop, IR distance scrambled; after each packet the newest control
    that has come since the last one goes to the robot, older ones are lost; what comes in must be whole control drops,
    else the host is cut off. It differs in taking one host and in checking the CRC, so that a packet spoiled on its
    way from the microcontroller is missing, where the original passes it on.

    Args:
        host: Address to listen on.
        port: Its port; 0 for any.
        clock: The driver's wall clock, in seconds, for the drops' time.
    """

    def __init__(self, host: str, port: int, clock: Callable[[], float]) -> None:
        super().__init__(host, port)
        self._clock = clock
        self._finder = PacketFinder()
        self._drops: dict[bytes, bytes] = {}
        self._slot: bytes | None = None
        self._ready = encode_control(Control(0))  # the driver's first word: all zeros
        self._silent = WAKE_AFTER

    def read(self) -> bytes:
        """Return what the driver writes to the robot."""
        data = super().read()
        for start in range(0, len(data), drops.CONTROL_SIZE):
            drop = data[start : start + drops.CONTROL_SIZE]
            if len(drop) < drops.CONTROL_SIZE:
                self._hang_up()
                break
            self._slot = encode_control(drops.decode_control_drop(drop))
        ready, self._ready = self._ready, b""
        if self._silent >= WAKE_AFTER:
            self._silent = 0
            return MI_ON + ready
        return ready

    def write(self, data: bytes) -> None:
        """Turn the robot's packets into drops."""
        packets = self._finder.find(data)
        self._silent = 0 if packets else self._silent + 1
        for packet in packets:
            self._send(self._drop(packet))
        if packets and self._slot is not None:
            self._ready, self._slot = self._slot, None

    def _drop(self, packet: bytes) -> bytes:
        """Return the drop of a packet; those of repeated ones (`Microcontroller.cycle`) are not computed again."""
        if packet not in self._drops:
            if len(self._drops) >= N_DROPS_KEPT:
                self._drops.clear()
            self._drops[packet] = drops.encode_state_drop(drops.drop_of(decode_state(packet), 0.0))
        drop, start = self._drops[packet], len(drops.STATE_START)
        seconds, microseconds = divmod(round(self._clock() * 1e6), 1_000_000)
        now = seconds.to_bytes(4, "little") + microseconds.to_bytes(4, "little")
        return drop[:start] + now + drop[start + 8 :]

    def _send(self, drop: bytes) -> None:
        """Send a whole drop or none: one for which there is no room is lost."""
        if len(self._outbox) < len(drop) or self.in_lockstep:
            self._outbox += drop
        if not self.in_lockstep:
            self.flush()

    def flush(self) -> None:
        """Send what has not been sent; a drop of which the network took a part is kept."""
        n = self._put(bytes(self._outbox)) if self._outbox else 0
        self.n_sent += n
        del self._outbox[:n]

    def _hang_up(self) -> None:
        super()._hang_up()
        self._slot = None
        self._outbox.clear()
