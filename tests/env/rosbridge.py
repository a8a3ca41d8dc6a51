"""A rosbridge server with a simulated base between two walls: a WebSocket of the standard library, JSON messages.

The protocol is that of rosbridge 2.0 (`op`: advertise, subscribe, publish) over RFC 6455. The base
takes a step of one period with each command on /cmd_vel, then sends /odom and /scan: no test
depends on how fast the machine is.
"""

from __future__ import annotations

import base64
import contextlib
import hashlib
import json
import math
import socket
import struct
import threading
import time
from collections.abc import Callable
from typing import Any, NamedTuple

_ACCEPT_KEY = b"258EAFA5-E914-47DA-95CA-C5AB0DC85B11"
_TEXT = 1
_CLOSE = 8
N_BEAMS = 360
LENGTH_M = 4.0


class Request(NamedTuple):
    """A command that arrived on /cmd_vel."""

    forward: float
    left: float
    yaw: float


class Rosbridge:
    """One base; clients connect one after the other.

    Args:
        period_s: The time that a command lasts.
        x_m: The base's place between the walls at 0 and 4 m; it looks at the latter.
        stamped: Expect TwistStamped messages.

    Attributes:
        requests: The commands that arrived.
        silent: Topics that send nothing.
        on_request: Called with each command.
        n_handled: Commands that were answered.
        n_sent: Messages that were sent to this client.
    """

    def __init__(self, period_s: float, *, x_m: float = 2.0, stamped: bool = False) -> None:
        self.period_s = period_s
        self.x_m = x_m
        self.speed = 0.0
        self.yaw_rate = 0.0
        self.n_periods = 0
        self.requests: list[Request] = []
        self.kinds: dict[str, str] = {}
        self.silent: set[str] = set()
        self.on_request: Callable[[Request], None] = lambda _: None
        self.n_handled = 0
        self.n_sent = 0
        self._stamped = stamped
        self._lock = threading.Lock()
        self._client: socket.socket | None = None
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.port = self._listener.getsockname()[1]
        self._thread = threading.Thread(target=self._serve, daemon=True)
        self._thread.start()

    def close(self) -> None:
        """Close all sockets."""
        with contextlib.suppress(OSError):  # closed already
            self._listener.shutdown(socket.SHUT_RDWR)  # wakes `accept`
        self._listener.close()
        self.drop()

    def drop(self) -> None:
        """Cut the connection, as a lost network does."""
        if self._client is not None:
            with contextlib.suppress(OSError):  # the client has closed it
                self._client.shutdown(socket.SHUT_RDWR)

    def roll_to_rest(self) -> None:
        """Stop the wheels, as the base's own timeout does, and send /odom."""
        self.speed = 0.0
        self.yaw_rate = 0.0
        self._send_odometry()

    # ---- the base ------------------------------------------------------------------------------------------------

    def _take(self, message: dict[str, Any]) -> None:
        if self._stamped:
            message = message["twist"]
        linear = message["linear"]
        request = Request(linear["x"], linear["y"], message["angular"]["z"])
        self.requests.append(request)
        self.speed = request.forward
        self.yaw_rate = request.yaw
        self.x_m += self.speed * self.period_s
        self.n_periods += 1
        self._send_scan()
        self._send_odometry()
        self.on_request(request)
        self.n_handled += 1

    def _send_odometry(self) -> None:
        t_s = self.n_periods * self.period_s
        stamp = {"sec": int(t_s), "nanosec": round(1e9 * (t_s % 1.0))}
        twist = {"linear": {"x": self.speed}, "angular": {"z": self.yaw_rate}}
        self._publish("/odom", {"header": {"stamp": stamp}, "twist": {"twist": twist}})

    def _send_scan(self) -> None:
        """Send the distances to the walls; a beam that meets none within 3.5 m is infinite, which JSON lacks."""
        ranges: list[float | None] = []
        for k in range(N_BEAMS):
            cosine = math.cos(2 * math.pi * k / N_BEAMS)
            space_m = LENGTH_M - self.x_m if cosine > 0 else self.x_m
            distance_m = space_m / max(abs(cosine), 1e-9)
            ranges.append(distance_m if distance_m <= 3.5 else None)
        scan = {
            "angle_min": 0.0,
            "angle_increment": 2 * math.pi / N_BEAMS,
            "range_min": 0.12,
            "range_max": 3.5,
            "ranges": ranges,
        }
        self._publish("/scan", scan)

    # ---- the protocol --------------------------------------------------------------------------------------------

    def _serve(self) -> None:
        while True:
            try:
                client, _ = self._listener.accept()
            except OSError:
                return
            self._client = client
            self.n_sent = 0
            self.kinds = {}
            with client, contextlib.suppress(OSError):
                self._greet(client)
                self._read(client)

    def _greet(self, client: socket.socket) -> None:
        request = b""
        while b"\r\n\r\n" not in request:
            request += client.recv(4096)
        fields = dict(line.split(b": ", 1) for line in request.split(b"\r\n")[1:] if b": " in line)
        headers = {name.lower(): value for name, value in fields.items()}
        digest = hashlib.sha1(headers[b"sec-websocket-key"] + _ACCEPT_KEY).digest()
        client.sendall(
            b"HTTP/1.1 101 Switching Protocols\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n"
            b"Sec-WebSocket-Accept: " + base64.b64encode(digest) + b"\r\n\r\n"
        )

    def _read(self, client: socket.socket) -> None:
        """Handle frames until the client closes."""
        with client.makefile("rb") as stream:
            while header := stream.read(2):
                length = header[1] & 127
                if length == 126:
                    (length,) = struct.unpack(">H", stream.read(2))
                mask = stream.read(4)
                masked = stream.read(length)
                payload = bytes(byte ^ mask[i % 4] for i, byte in enumerate(masked))
                opcode = header[0] & 15
                if opcode == _CLOSE:
                    self._send(client, _CLOSE, payload)
                    return
                if opcode == _TEXT:
                    self._handle(json.loads(payload))

    def _handle(self, operation: dict[str, Any]) -> None:
        topic = operation["topic"]
        if operation["op"] == "publish":
            assert topic == "/cmd_vel"
            self._take(operation["msg"])
        else:
            self.kinds[topic] = operation["type"]
        if topic == "/odom":
            self._send_odometry()
        if topic == "/scan":
            self._send_scan()

    def _publish(self, topic: str, message: dict[str, Any]) -> None:
        if topic in self.kinds and topic not in self.silent and self._client is not None:
            text = json.dumps({"op": "publish", "topic": topic, "msg": message})
            self._send(self._client, _TEXT, text.encode())

    def _send(self, client: socket.socket, opcode: int, payload: bytes) -> None:
        if len(payload) <= 125:
            header = bytes([128 | opcode, len(payload)])
        else:
            header = struct.pack(">BBH", 128 | opcode, 126, len(payload))
        with self._lock:
            self.n_sent += opcode == _TEXT
            client.sendall(header + payload)


def wait_until(holds: Callable[[], bool], limit_s: float = 20.0) -> None:
    """Wait until `holds` returns True; fail after `limit_s` seconds."""
    deadline_s = time.monotonic() + limit_s
    while not holds():
        assert time.monotonic() < deadline_s, "timeout"
        time.sleep(0.001)
