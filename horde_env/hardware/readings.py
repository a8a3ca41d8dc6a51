"""What a port makes of packets: readings with the circumstances of their arrival, and the channels of a step."""

from __future__ import annotations

from typing import Any, NamedTuple, Protocol

import numpy as np

from horde_env.backend import Floats
from horde_env.robot import RobotSpec


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
