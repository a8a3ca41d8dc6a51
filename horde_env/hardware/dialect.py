"""How a robot is spoken to; and the Critterbot's two ways: bytes on its serial line, drops through its driver."""

from __future__ import annotations

from collections.abc import Callable, Generator
from typing import TYPE_CHECKING, Any, NamedTuple

from horde_env.errors import STOPS_BY_ITSELF
from horde_env.hardware.control import COAST, FILL, HALT, WAKE, encode_control
from horde_env.hardware.drops import DataSource, StateDropParser, encode_control_drop
from horde_env.hardware.ir_light import IrLightContinuity
from horde_env.hardware.keepalive import RAMP_S
from horde_env.hardware.readings import Continuity, Reading
from horde_env.hardware.safety import FREE
from horde_env.hardware.stream import StateParser, StreamParser
from horde_env.hardware.wire import MONITOR_OVERHEATING, STATE_SIZE

if TYPE_CHECKING:
    from horde_env.hardware.port import Port

IR_LIGHT_NOTE = (
    "The firmware sends IR light modulo 256: its top two bits are guessed by continuity, and wrong where a reading "
    "passes 255 between two packets or across lost ones."
)
DROPS_NOTES = (
    "The driver's IR distance is the high eight of ten bits OR the low two: restored to 3.3 of 1023 r.m.s., no better.",
    "With its terminal's defaults the driver changes every byte 0D of the robot's into 0A, which cannot be told.",
    "The driver obeys any number of programs, the newest command of all: another one that drives is not noticed.",
)


def is_free(reading: Reading) -> bool:
    """Tell whether the Critterbot lets its motors turn: neither charging nor overheated."""
    return reading.state.charge_state in FREE and not reading.state.monitor & MONITOR_OVERHEATING


class Dialect(NamedTuple):
    """How commands and states travel: all that a link needs to know of a robot.

    The defaults are the Critterbot's.

    Attributes:
        encode: Turns a control into the bytes of one write.
        parser: Makes a reader of the stream of states.
        wake: What starts the states at a robot that is silent; empty where nothing does.
        fill: What completes a half packet at the other end (`Port`).
        alone_s: How long a control must be the newest one to be sure to act. The robot acts on the last of each 10 ms;
            its driver passes the newest drop on after each state packet, and looks for new ones every 50 ms.
        halt: The control that brakes the wheels; whoever wants the robot to stand commands it.
        coast: The control that is repeated in its place once the ramp is over.
        last: The last word of a connection, after two stops; `coast` when None.
        ramp_s: How long braking takes, in seconds.
        size: Bytes of a state on the wire, by which damage is counted.
        is_free: Tells from a reading whether the robot lets its motors turn.
        continuity: Makes what only the sequence of packets can tell, from the parser.
        opening: Begins a connection; `opening.open_port` when None.
        stops: What stops the wheels of a robot that is out of reach, in a sentence.
    """

    encode: Callable[[Any], bytes]
    parser: Callable[[], StreamParser]
    wake: bytes
    fill: bytes
    alone_s: float
    halt: Any = HALT
    coast: Any = COAST
    last: bytes | None = None
    ramp_s: float = RAMP_S
    size: int = STATE_SIZE
    is_free: Callable[[Reading], bool] = is_free
    continuity: Callable[[StreamParser], Continuity] = lambda _: IrLightContinuity()
    opening: Callable[..., Generator[None, None, Port]] | None = None
    stops: str = STOPS_BY_ITSELF


SERIAL = Dialect(encode_control, StateParser, WAKE, FILL, 0.03)
DROPS = Dialect(encode_control_drop, StateDropParser, b"", b"", 0.1)


def is_original_simulator(parser: StreamParser) -> bool:
    """Tell whether the newest drop came from the original simulator, which dies of any control but a motor's."""
    newest = parser.newest if isinstance(parser, StateDropParser) else None
    return newest is not None and newest.source == DataSource.SIMULATOR
