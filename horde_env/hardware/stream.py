"""Packets in a stream of bytes, the readings that they become, and the counts of a connection."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np

from horde_env.backend import Floats
from horde_env.robot import RobotSpec

# ---- readings --------------------------------------------------------------------------------------------------------


class Reading(NamedTuple):
    """One state and the circumstances of its arrival.

    Every robot's state has `raw`, the channels in the order of RobotSpec in wire units,
    `charge_state`, as the robot reports it, and `breaks`, the number of interruptions so far that
    the packets' content showed.
    """

    state: Any
    t: float  # at which its last byte was read, in seconds of the port's clock
    number: int  # 1 for the first packet of the connection
    n_skipped: int  # bytes since the last reading
    # The state's, with IR light as `StreamParser.unwrap` restores it, shape (n_channels,)
    raw: Floats


class Counts(NamedTuple):
    """Counts of one connection, or of a link over all its connections."""

    n_bytes: int = 0
    packets: int = 0
    crc_errors: int = 0
    skipped_bytes: int = 0  # outside valid packets
    losses: int = 0
    reconnects: int = 0
    lost_s: float = 0.0  # total time without a link, including a loss in progress

    def plus(self, other: Counts) -> Counts:
        """Return the sums of both."""
        return Counts(
            n_bytes=self.n_bytes + other.n_bytes,
            packets=self.packets + other.packets,
            crc_errors=self.crc_errors + other.crc_errors,
            skipped_bytes=self.skipped_bytes + other.skipped_bytes,
            losses=self.losses + other.losses,
            reconnects=self.reconnects + other.reconnects,
            lost_s=self.lost_s + other.lost_s,
        )


def aggregate(readings: tuple[Reading, ...], spec: RobotSpec) -> Floats:
    """Return the raw channels of a step's readings (older first), shape (n_channels,).

    A channel takes the newest reading; "mean2" the mean of the last two, because the beacon of the
    Critterbot's dock alternates from packet to packet; "any" the largest, for contacts shorter than
    a step.
    """
    previous = readings[-2:][0].raw  # the newest, if it is the only one
    newest = readings[-1].raw
    values: Floats = np.where(spec.is_mean, np.mean([previous, newest], axis=0), newest)
    if spec.is_any.any():
        values[spec.is_any] = np.max([reading.raw[spec.is_any] for reading in readings], axis=0)
    return values


# ---- packets ---------------------------------------------------------------------------------------------------------


class StreamParser(ABC):
    """Parses packets of one size and header in a stream with lost, inserted or changed bytes.

    After an invalid candidate the search continues at the next byte, so a header within the
    readings or within a damaged packet costs no valid packet. At most one packet's bytes are
    buffered.
    """

    header: bytes
    size: int  # bytes of a packet, with its header

    def __init__(self) -> None:
        self.packets = self.crc_errors = 0  # valid packets; headers without one
        self.skipped_bytes = 0  # bytes fed = packets x size + skipped_bytes + size - n_wanted
        # Those before each state of the newest `feed`
        self.skipped_at: list[int] = []
        self._pending = bytearray()
        self.n_wanted = self.size  # bytes that are missing for the next packet

    @abstractmethod
    def is_sound(self, packet: bytes) -> bool:
        """Return whether a candidate of the right size and header is a valid packet."""

    @abstractmethod
    def feed(self, data: bytes) -> Sequence[Any]:
        """Add bytes of the stream, `find` its packets, and return their states (`Reading.state`), in order."""

    @abstractmethod
    def forget(self) -> None:
        """Start a new sequence: packets were lost."""

    def unwrap(self, state: Any) -> Floats:
        """Return the channels of the next packet (`Reading.raw`), those that it has modulo a number by continuity."""
        raw: Floats = state.raw
        return raw

    def find(self, data: bytes) -> list[bytes]:
        """Add bytes of the stream and return the packets that are now complete, in order."""
        stream = bytes(self._pending) + data
        self._pending = bytearray()
        self.skipped_at = []
        packets = []
        position = 0
        while (start := stream.find(self.header, position)) >= 0 and start + self.size <= len(
            stream
        ):
            candidate = stream[start : start + self.size]
            if self.is_sound(candidate):
                packets.append(candidate)
                self.skipped_bytes += start - position
                self.skipped_at.append(self.skipped_bytes)
                position = start + self.size
            else:
                self.crc_errors += 1
                self.skipped_bytes += start + 1 - position
                position = start + 1
        if start >= 0:
            pending_from = start
        else:
            pending_from = self._start_of_header(stream, position)
        self.skipped_bytes += pending_from - position
        self._pending += stream[pending_from:]
        self.n_wanted = self.size - len(self._pending)
        self.packets += len(packets)
        return packets

    def _start_of_header(self, stream: bytes, position: int) -> int:
        """Return the position of a partial header at the end of the stream, else its length."""
        for start in range(max(position, len(stream) - len(self.header) + 1), len(stream)):
            if self.header.startswith(stream[start:]):
                return start
        return len(stream)
