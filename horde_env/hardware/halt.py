"""A stop for a robot that nobody drives, or that its driver left: sent over a port of our own."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from horde_env.hardware.control import COAST, HALT, LEAVE
from horde_env.hardware.dialect import Dialect
from horde_env.hardware.keepalive import RAMP_S
from horde_env.hardware.port import Port
from horde_env.hardware.settings import PortConfig
from horde_env.hardware.wire import RobotState
from horde_env.robot import RobotSpec, critterbot

SETTLE_S = 0.7  # wheels coast to rest in less
TYPED_S = 0.05  # the robot's console reads one line in 10 ms


def send_stop(
    config: PortConfig,
    dialect: Dialect,
    monotonic: Callable[[], float],
    sleep: Callable[[float], None],
    **connect: Any,
) -> RobotState | None:
    """Tell the robot to stop, and return the state that it then sends; None if it sends none.

    Nothing is asked of it first, so that a robot that cannot answer is stopped too. Velocity 0 brakes; duty 0, when
    that ramp is over, ends even the runaway of a robot that was left in WHEEL_VOLTAGE (`keepalive`). One that drives
    on, or is silent, may be on its own way to its dock, or at its console: on a serial line it is told to leave for
    the console, to end that way, and to talk; and to stop, once more.

    Args:
        config: Where the robot is.
        dialect: How it is spoken to.
        monotonic: The time in seconds.
        sleep: Lets seconds pass.
        **connect: `connect` of `Port`.

    Raises:
        BackendUnavailable: If the port cannot be opened, as while another program drives the robot.
        PortLost: If it went away before the stop was sent.
    """
    with Port(config, monotonic, parser=dialect.parser(), **connect) as port:
        state = _stop(port, dialect, sleep)
        if dialect.wake and (state is None or turns(state, critterbot())):
            port.write(dialect.encode(LEAVE))
            sleep(dialect.alone_s)
            port.write(dialect.wake)
            sleep(TYPED_S)
            state = _stop(port, dialect, sleep)
    return state


def _stop(port: Port, dialect: Dialect, sleep: Callable[[float], None]) -> RobotState | None:
    """Say the stop, and return the state when it should be over; None if there was none yet."""
    port.write(dialect.fill + dialect.encode(HALT))
    sleep(dialect.alone_s)
    port.write(dialect.encode(HALT))
    sleep(RAMP_S)
    port.write(dialect.encode(COAST))
    sleep(SETTLE_S)
    reading = port.wait(0, 0.0)
    return None if reading is None else reading.state


def turns(state: RobotState, spec: RobotSpec) -> bool:
    """Tell whether a wheel turns (by more than one unit, 0.018 m/s)."""
    return bool((np.abs(state.raw[spec.group("motor_velocity")]) > 1.0).any())
