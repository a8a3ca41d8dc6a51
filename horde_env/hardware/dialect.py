"""The two ways to speak to the robot: bytes on its serial line, or drops through its on-board driver."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

from horde_env.hardware.control import FILL, WAKE, Control, encode_control
from horde_env.hardware.drops import DataSource, StateDropParser, encode_control_drop
from horde_env.hardware.stream import StateParser, StreamParser

IR_LIGHT_NOTE = (
    "The firmware sends IR light modulo 256: its top two bits are guessed by continuity, and wrong where a reading "
    "passes 255 between two packets or across lost ones."
)
DROPS_NOTES = (
    "The driver's IR distance is the high eight of ten bits OR the low two: restored to 3.3 of 1023 r.m.s., no better.",
    "With its terminal's defaults the driver changes every byte 0D of the robot's into 0A, which cannot be told.",
    "The driver obeys any number of programs, the newest command of all: another one that drives is not noticed.",
)


class Dialect(NamedTuple):
    """How commands and states travel.

    Attributes:
        encode: Turns a control into the bytes of one write.
        parser: Makes a reader of the stream of states.
        wake: What starts the states at a robot that is silent; empty where nothing does.
        fill: What completes a half packet at the other end (`Port`).
        alone_s: How long a control must be the newest one to be sure to act. The robot acts on the last of each 10 ms;
            its driver passes the newest drop on after each state packet, and looks for new ones every 50 ms.
    """

    encode: Callable[[Control], bytes]
    parser: Callable[[], StreamParser]
    wake: bytes
    fill: bytes
    alone_s: float


SERIAL = Dialect(encode_control, StateParser, WAKE, FILL, 0.03)
DROPS = Dialect(encode_control_drop, StateDropParser, b"", b"", 0.1)


def is_original_simulator(parser: StreamParser) -> bool:
    """Tell whether the newest drop came from the original simulator, which dies of any control but a motor's."""
    newest = parser.newest if isinstance(parser, StateDropParser) else None
    return newest is not None and newest.source == DataSource.SIMULATOR
