"""How a robot is spoken to: all that the shared parts need to know of its bytes. Each robot has one or more."""

from __future__ import annotations

from collections.abc import Callable, Generator
from typing import TYPE_CHECKING, Any, NamedTuple

from horde_env.hardware.readings import Continuity, Reading
from horde_env.hardware.stream import StreamParser

if TYPE_CHECKING:
    from horde_env.hardware.port import Port


class Dialect(NamedTuple):
    """How commands and states travel: all that a link needs to know of a robot.

    Attributes:
        encode: Turns a control into the bytes of one write.
        parser: Makes a reader of the stream of states.
        wake: What starts the states at a robot that is silent; empty where nothing does.
        fill: What completes a half packet at the other end (`Port`).
        alone_s: How long a control must be the newest one to be sure to act, in seconds.
        halt: The control that brakes the wheels; whoever wants the robot to stand commands it.
        coast: The control that is repeated in its place once the ramp is over.
        ramp_s: How long braking takes, in seconds.
        size: Bytes of a state on the wire, by which damage is counted.
        is_free: Tells from a reading whether the robot lets its motors turn.
        continuity: Makes what only the sequence of packets can tell, from the parser.
        opening: Begins a connection: takes what makes a port with a given parser, the dialect, and the time in seconds;
            yields where time must pass, returns the port with two readings, raises BackendUnavailable.
        stops: What stops the wheels of a robot that is out of reach, in a sentence.
        last: The last word of a connection, after two stops; `coast` when None.
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
    continuity: Callable[[StreamParser], Continuity]
    opening: Callable[..., Generator[None, None, Port]]
    stops: str
    last: bytes | None = None
