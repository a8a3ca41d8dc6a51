"""Dialect: the wire protocol of a robot, as the shared hardware code needs it. Each robot has one or more."""

from __future__ import annotations

from collections.abc import Callable, Generator
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol

from horde_env.backend import Floats
from horde_env.hardware.stream import Reading, StreamParser

if TYPE_CHECKING:
    from horde_env.hardware.port import Port


class Dialect(NamedTuple):
    """Encoding, parsing and timing of commands and states.

    Attributes:
        encode: Converts a control to the bytes of one write.
        parser: Creates a parser of the stream of states.
        wake: Bytes that make a silent robot send states; empty if there are none.
        fill: Bytes that complete a partial packet at the robot (`Port`).
        alone_s: Time in seconds for which a control must be the newest to take effect for certain.
        halt: The control that brakes the wheels.
        coast: The control that is repeated after the braking ramp.
        ramp_s: Duration of braking, in seconds.
        size: Bytes of a state on the wire, the unit of damage counts.
        is_free: Returns whether the motors may turn, by a reading.
        opening: Begins a conversation on an open port: takes the port, the dialect and the time in s; yields while it
            waits, returns when the port has two readings, raises BackendUnavailable.
        explain_parting: Returns why the port may have been lost meanwhile, by the port, the dialect and the reason.
        stops: A sentence: what stops the wheels of an unreachable robot.
        last: The last bytes of a connection, after two stops; `coast` when None.
    """

    encode: Callable[[Any], bytes]
    parser: Callable[[], StreamParser]
    wake: bytes
    fill: bytes
    alone_s: float
    halt: Any
    coast: Any
    ramp_s: float
    size: int
    is_free: Callable[[Reading], bool]
    opening: Callable[[Port, Dialect, Callable[[], float]], Generator[None, None, None]]
    explain_parting: Callable[[Port, Dialect, str], str]
    stops: str
    last: bytes | None = None


class Supervising(Protocol):
    """A supervisor: decides from a robot's frames whether it may move."""

    def judge(self, values: Floats, charge_state: int, t: float) -> str:
        """Return why the robot must not move, "" if it may; the text stays the same while the reason does.

        Args:
            values: All channels in SI units, shape (n_channels,).
            charge_state: The charge state as the robot reports it.
            t: Time of the frame in seconds.
        """
