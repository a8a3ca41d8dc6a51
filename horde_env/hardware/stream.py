"""Packets out of a stream of bytes: what a port needs of a reader, and what readers of packets of one size share."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from typing import Any, NamedTuple, Protocol

import numpy as np

from horde_env.backend import Floats
from horde_env.robot import RobotSpec

# ---- readings --------------------------------------------------------------------------------------------------------


class State(Protocol):
    """What one packet says, of whatever robot."""

    @property
    def raw(self) -> Floats:
        """The channels in the order of RobotSpec, in the wire's own units, shape (n_channels,)."""

    @property
    def breaks(self) -> int:
        """How often so far the packets themselves told that they do not follow from one another."""


class Continuity(Protocol):
    """What a robot's packets leave out and only their sequence can tell."""

    def forget(self) -> None:
        """The next packet does not follow from the last one."""

    def unwrap(self, state: Any) -> Floats | None:
        """Return the infrared light of the next packet, shape (8,), or None for a robot without."""


class Reading(NamedTuple):
    """One state and the circumstances of its arrival.

    Attributes:
        state: What the packet says, untouched.
        t: Time at which its last byte was read, in seconds of the clock that the port was given.
        number: 1 for the first packet of the connection.
        n_skipped: Bytes lost, changed or foreign since the reading before.
        ir_light: IR light with its top two bits guessed back by continuity, 0..1023, shape (8,); None for a robot
            without.
    """

    state: Any  # a `State` with whatever else its robot tells
    t: float
    number: int
    n_skipped: int
    ir_light: Floats | None


class Counts(NamedTuple):
    """What a connection has seen so far."""

    n_bytes: int = 0
    packets: int = 0
    crc_errors: int = 0
    skipped_bytes: int = 0

    def plus(self, other: Counts) -> Counts:
        """Return the sums of both."""
        return Counts(*(x + y for x, y in zip(self, other, strict=True)))


class LinkStats(NamedTuple):
    """What a link has seen since it was opened, over all its connections.

    Attributes:
        packets: Sound packets.
        crc_errors: Packets refused for a wrong checksum.
        skipped_bytes: Bytes that belong to no sound packet.
        losses: How often the link was lost.
        reconnects: How often it came back.
        lapses: How often a command became too old and the robot was told to stop.
        lost_s: Seconds between its losses and its returns, a loss that still lasts included.
    """

    packets: int
    crc_errors: int
    skipped_bytes: int
    losses: int
    reconnects: int
    lapses: int
    lost_s: float = 0.0


def aggregate(readings: tuple[Reading, ...], spec: RobotSpec) -> Floats:
    """Return the raw channels of a step, shape (n_channels,): the newest reading, but for what the robot has otherwise.

    Args:
        readings: All of the step, older first, the one before it included where there is but one (`Port.last_two`).
        spec: Says which channels are "mean2", of the last two, to take out the Critterbot's dock, whose beacon
            alternates from packet to packet; and which are "any", of all: contacts that last less than a step.
    """
    unwrapped = [reading.state.raw.copy() for reading in readings[-2:]]
    for raw, reading in zip(unwrapped, readings[-2:], strict=True):
        if reading.ir_light is not None:
            raw[spec.group("ir_light")] = reading.ir_light
    values: Floats = np.where(spec.is_mean, np.mean(unwrapped, axis=0), unwrapped[-1])
    if spec.is_any.any():
        values[spec.is_any] = np.max([reading.state.raw[spec.is_any] for reading in readings], axis=0)
    return values


# ---- packets ---------------------------------------------------------------------------------------------------------


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
