"""A stop for a Create 2 that nobody drives, or that its driver left: sent over a port of our own."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from horde_env.hardware.port import Port
from horde_env.hardware.settings import PortConfig
from horde_env.robots.create2.body import FrameContinuity
from horde_env.robots.create2.commands import FILL, STOP_BYTES, STREAM_ALL, Op
from horde_env.robots.create2.stream import CreateState, FrameParser

APART_S, ANSWER_S = 0.02, 0.5


def send_stop(
    config: PortConfig, monotonic: Callable[[], float], sleep: Callable[[float], None], **connect: Any
) -> CreateState | None:
    """Tell the robot to stop and let go of it, and return its state half a second later; None if it sends none.

    Raises:
        BackendUnavailable: If the port cannot be opened, as while another program drives the robot.
        PortLost: If it went away before the stop was sent.
    """
    parser = FrameParser()
    continuity: Any = FrameContinuity(parser)
    with Port(config, monotonic, parser=parser, fill=FILL, continuity=continuity, **connect) as port:
        port.write(FILL + STOP_BYTES)
        sleep(APART_S)
        port.write(STOP_BYTES + bytes([Op.START]) + STREAM_ALL)
        sleep(ANSWER_S)
        reading = port.wait(0, 0.0)
        port.write(bytes([Op.PAUSE_STREAM, 0]))
    return None if reading is None else reading.state
