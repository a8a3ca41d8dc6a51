"""A stop for a robot that nobody drives, or that its driver left: sent over a port of our own."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from horde_env.hardware.dialect import Dialect
from horde_env.hardware.port import Port
from horde_env.hardware.settings import PortConfig
from horde_env.robot import RobotSpec, critterbot
from horde_env.robots.critterbot.commands import COAST, HALT, LEAVE, RAMP_S
from horde_env.robots.critterbot.ir_light import IrLightContinuity
from horde_env.robots.critterbot.wire import RobotState

# How long to wait, after the last word, for a robot to say anything, for its motors to be off (a ramp that goes on as a
# duty takes 0.5 s), for its wheels to roll out (from an action 0.6 s); and between two looks.
ANSWER_S, OFF_S, SETTLE_S, LOOK_S = 0.5, 0.7, 3.0, 0.05
TYPED_S = 0.05  # the robot's console reads one line in 10 ms


def send_stop(
    config: PortConfig,
    dialect: Dialect,
    monotonic: Callable[[], float],
    sleep: Callable[[float], None],
    **connect: Any,
) -> RobotState | None:
    """Tell the robot to stop, and return the state in which it stands, or that of 3 s later; None if it sends none.

    Nothing is asked of it first, so that a robot that cannot answer is stopped too. Velocity 0 brakes; duty 0, when
    that ramp is over, ends even the runaway of a robot that was left in WHEEL_VOLTAGE (`commands`). One that drives
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
    parser, continuity = dialect.parser(), IrLightContinuity()
    with Port(config, monotonic, parser=parser, fill=dialect.fill, continuity=continuity, **connect) as port:
        state = _stop(port, dialect, monotonic, sleep)
        if dialect.wake and (state is None or is_driven(state, critterbot())):
            port.write(dialect.encode(LEAVE))
            sleep(dialect.alone_s)
            port.write(dialect.wake)
            sleep(TYPED_S)
            state = _stop(port, dialect, monotonic, sleep)
    return state


def _stop(
    port: Port, dialect: Dialect, monotonic: Callable[[], float], sleep: Callable[[float], None]
) -> RobotState | None:
    """Say the stop, and return the state in which the robot stands, or the last one; None if there was none."""
    port.write(dialect.fill + dialect.encode(HALT))
    sleep(dialect.alone_s)
    port.write(dialect.encode(HALT))
    sleep(RAMP_S)
    port.write(dialect.encode(COAST))
    spec, sent_t = critterbot(), monotonic()
    while True:
        sleep(LOOK_S)
        reading, waited_s = port.wait(0, 0.0), monotonic() - sent_t
        state = None if reading is None else reading.state
        if state is None:
            limit_s = ANSWER_S
        elif is_driven(state, spec):
            limit_s = OFF_S
        else:
            limit_s = SETTLE_S if turns(state, spec) else 0.0
        if waited_s >= limit_s:
            return state


def is_driven(state: RobotState, spec: RobotSpec) -> bool:
    """Tell whether a motor has a voltage."""
    return bool(state.raw[spec.group("motor_voltage")].any())


def turns(state: RobotState, spec: RobotSpec) -> bool:
    """Tell whether a wheel turns (by more than one unit, 0.018 m/s), be it driven or not."""
    return bool((np.abs(state.raw[spec.group("motor_velocity")]) > 1.0).any())
