"""Packets out of a stream of bytes: what a port needs of a reader, and what readers of packets of one size share."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from typing import Protocol

from horde_env.hardware.readings import State


class StreamParser(Protocol):
    """What a port needs of a parser of a robot's states."""

    size: int
    packets: int
    crc_errors: int
    skipped_bytes: int

    @property
    def n_wanted(self) -> int:
        """Bytes without which no further packet can be complete, > 0."""

    def feed(self, data: bytes) -> Sequence[State]:
        """Take the next bytes and return the states that are now complete."""


class PacketFinder(ABC):
    """Finds packets of one size and header in a stream that may have lost, gained or changed bytes.

    After a candidate that is not sound it goes on with the very next byte, so a header inside the readings, or inside
    the ruins of a packet, never costs a whole one. It keeps at most one packet's bytes between calls.

    Attributes:
        header: The bytes with which a packet begins.
        size: Bytes of a packet, its header included.
        packets: Sound packets found.
        crc_errors: Headers whose packet was not sound.
        skipped_bytes: Bytes that belong to no sound packet. Fed = packets x size + skipped_bytes + size - n_wanted.
    """

    header: bytes
    size: int

    def __init__(self) -> None:
        self.packets = self.crc_errors = self.skipped_bytes = 0
        self._pending = bytearray()

    @property
    def n_pending(self) -> int:
        """Bytes that may still become a packet, fewer than `size`."""
        return len(self._pending)

    @property
    def n_wanted(self) -> int:
        """Bytes without which no further packet can be complete."""
        return self.size - len(self._pending)

    @abstractmethod
    def is_sound(self, packet: bytes) -> bool:
        """Tell whether a candidate of the right size and header is a packet."""

    def find(self, data: bytes) -> list[bytes]:
        """Take the next bytes of the stream and return the packets that are now complete, in their order."""
        stream, self._pending = bytes(self._pending) + data, bytearray()
        found, position = [], 0
        while (start := stream.find(self.header, position)) >= 0 and start + self.size <= len(stream):
            candidate = stream[start : start + self.size]
            if self.is_sound(candidate):
                found.append(candidate)
                self.skipped_bytes += start - position
                position = start + self.size
            else:
                self.crc_errors += 1
                self.skipped_bytes += start + 1 - position
                position = start + 1
        rest = start if start >= 0 else self._start_of_header(stream, position)
        self.skipped_bytes += rest - position
        self._pending += stream[rest:]
        self.packets += len(found)
        return found

    def _start_of_header(self, stream: bytes, position: int) -> int:
        """Return where at the end of the stream a header may have begun, else its length."""
        for start in range(max(position, len(stream) - len(self.header) + 1), len(stream)):
            if self.header.startswith(stream[start:]):
                return start
        return len(stream)
