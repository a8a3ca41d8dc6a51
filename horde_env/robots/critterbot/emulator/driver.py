"""The robot's on-board driver, which converts state packets to drops and control drops to packets.

Source: the original Critterdriver (CritterSerialLink, ActionWriter and its drop servers), June
    2011.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from horde_env.emulation.lines import Line, SocketLine
from horde_env.emulation.lockstep import MemoryLine
from horde_env.robots.critterbot import stream, wire
from horde_env.robots.critterbot.wire import MI_ON, Control, encode_control

N_DROPS_KEPT = 16
WAKE_AFTER = 100  # cycles without a packet after which the driver types "mi on"


class PacketCutter:
    """The driver's packet search: the next 79 bytes after a header, without a check of the CRC.

    A byte that does not continue a header is skipped without restarting the match. A lost byte
    therefore damages one packet and loses the next. A packet with wrong parity is dropped.
    """

    def __init__(self) -> None:
        self._n_header = 0
        self._packet = bytearray()

    def cut(self, data: bytes, bad_parity: bool = False) -> list[bytes]:
        """Return the packets completed by a cycle's bytes."""
        if bad_parity:
            self._n_header = 0
            self._packet.clear()
            return []
        packets = []
        for byte in data:
            if self._n_header < len(wire.HEADER):
                self._n_header += byte == wire.HEADER[self._n_header]
                continue
            self._packet.append(byte)
            if len(self._packet) == wire.STATE_SIZE - len(wire.HEADER):
                packets.append(wire.HEADER + bytes(self._packet))
                self._packet.clear()
                self._n_header = 0
        return packets


class OnBoardDriver(Line):
    """A line of the robot's on-board driver: sends state drops and receives control drops (`stream`).

    As in the original, each packet becomes a drop, valid or not (`PacketCutter`), with 0D changed
    to 0A and IR distance scrambled; after each packet the newest control received since the last
    one goes to the robot; a partial control drop disconnects the host. Unlike the original it
    serves one host. `clock` is its wall clock, for the drops' time.
    """

    def __init__(self, *place: Any, clock: Callable[[], float]) -> None:
        self._clock = clock
        self._cutter = PacketCutter()
        self._drops: dict[bytes, bytes] = {}
        self._slot: bytes | None = None
        self._ready = encode_control(Control(0))  # the driver's first packet: all zeros
        self._silent = WAKE_AFTER
        super().__init__(*place)

    def read(self) -> bytes:
        """Return the bytes that the driver sends to the robot."""
        data = super().read()  # type: ignore[safe-super]  # of the line that a subclass adds
        for start in range(0, len(data), stream.CONTROL_DROP_SIZE):
            drop = data[start : start + stream.CONTROL_DROP_SIZE]
            if len(drop) < stream.CONTROL_DROP_SIZE:
                self._disconnect()
                break
            control = stream.decode_control_drop(drop)
            colours = b""
            if control.led_mode == wire.LED_CUSTOM:
                colours = drop[-wire.LEDS_SIZE :]
            self._slot = encode_control(control) + colours
        ready = self._ready
        self._ready = b""
        if self._silent >= WAKE_AFTER:
            self._silent = 0
            return MI_ON + ready
        return ready

    def write(self, data: bytes, bad_parity: bool = False) -> None:
        """Convert the robot's packets to drops and send them."""
        packets = self._cutter.cut(data.replace(b"\r", b"\n"), bad_parity)
        if packets:
            self._silent = 0
        else:
            self._silent += 1
        for packet in packets:
            super().write(self._drop(packet))  # type: ignore[safe-super]  # as in `read`
        if packets and self._slot is not None:
            self._ready = self._slot
            self._slot = None

    def _drop(self, packet: bytes) -> bytes:
        """Return the drop of a packet, cached because packets may repeat (`Microcontroller.cycle`)."""
        if packet not in self._drops:
            if len(self._drops) >= N_DROPS_KEPT:
                self._drops.clear()
            drop_bytes = bytearray(stream.encode_state_drop(wire.decode_states([packet])[0], 0.0))
            # The error flags' top byte is the charge state's copy, whatever its value in a damaged
            # packet.
            drop_bytes[len(stream.STATE_START) + 4 * stream.ERRORS + 3] = packet[wire.CHARGE_COPY]
            self._drops[packet] = bytes(drop_bytes)
        drop = self._drops[packet]
        start = len(stream.STATE_START)
        seconds, microseconds = divmod(round(self._clock() * 1e6), 1_000_000)
        time_bytes = seconds.to_bytes(4, "little") + microseconds.to_bytes(4, "little")
        return drop[:start] + time_bytes + drop[start + 8 :]

    def _disconnect(self) -> None:
        super()._disconnect()
        self._slot = None


class DropsLine(OnBoardDriver, SocketLine):
    """The driver's TCP server. Its small writes wait for the host's acknowledgement (Nagle's algorithm)."""

    has_nagle = True


class MemoryDropsLine(OnBoardDriver, MemoryLine):
    """The driver in lockstep."""
