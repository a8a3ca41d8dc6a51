"""What a port makes of packets: readings with the circumstances of their arrival, and the channels of a step."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from horde_env.backend import Floats
from horde_env.hardware.wire import RobotState
from horde_env.robot import RobotSpec


class Reading(NamedTuple):
    """One state and the circumstances of its arrival.

    Attributes:
        state: What the packet says, untouched.
        t: Time at which its last byte was read, in seconds of the clock that the port was given.
        number: 1 for the first packet of the connection.
        n_skipped: Bytes lost, changed or foreign since the reading before.
        ir_light: IR light with its top two bits guessed back by continuity, 0..1023, shape (8,).
    """

    state: RobotState
    t: float
    number: int
    n_skipped: int
    ir_light: Floats


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
    """Return the raw channels of a step, shape (57,): the newest reading, IR light unwrapped and as the mean of two.

    Args:
        readings: One or two, older first (`Port.last_two`).
        spec: Says which channels are "mean2", to take out the dock's beacon, which alternates from packet to packet.
    """
    unwrapped = [reading.state.raw.copy() for reading in readings]
    for raw, reading in zip(unwrapped, readings, strict=True):
        raw[spec.group("ir_light")] = reading.ir_light
    is_mean = np.array([channel.aggregate == "mean2" for channel in spec.channels])
    return np.where(is_mean, np.mean(unwrapped, axis=0), unwrapped[-1])
