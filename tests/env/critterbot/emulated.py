"""What the emulator's tests share: a robot at its console or awake, and how to talk to it by bytes."""

from __future__ import annotations

import numpy as np

from horde_env.robot import critterbot
from horde_env.robots.critterbot import wire
from horde_env.robots.critterbot.emulator.microcontroller import Microcontroller
from horde_env.robots.critterbot.simulator import firmware
from horde_env.robots.critterbot.wire import Control, MotorMode, RobotState, encode_control
from tests.env.hardware.packets import decode_state

SPEC = critterbot()
VELOCITY = SPEC.group("motor_velocity")


def robot(
    seed: int = 0, awake: bool = True, x: float = 0.0, y: float = 0.0, heading: float = 0.0
) -> Microcontroller:
    """Return a robot at rest in its pen, with the motors' full voltage cap."""
    robot = Microcontroller()
    robot.boot(np.random.default_rng(seed), x, y, heading)
    if awake:
        wake(robot)
        for k in range(130):
            robot.cycle(look=k >= 128)
    return robot


def wake(robot: Microcontroller) -> None:
    """Make it send state packets, as if there had been no console."""
    robot.in_mi = True
    robot._banner = b""


def say(robot: Microcontroller, mode: int, *values: int, led: int = 0) -> None:
    robot.receive(encode_control(Control(mode, *values, led_mode=led)))


def drive(robot: Microcontroller, n: int, mode: int, *values: int) -> RobotState:
    """Send the same packet in each of `n` cycles and return the last state."""
    for _ in range(n):
        say(robot, mode, *values)
        packet = robot.cycle(look=True)
    return decode_state(packet)


def listen(robot: Microcontroller, n: int) -> list[RobotState]:
    """Return the states of `n` cycles of silence."""
    return [decode_state(robot.cycle()) for _ in range(n)]


def setpoints(robot: Microcontroller) -> list[int]:
    return [int(v) for v in robot.machine.firmware.wheels[firmware.SETPOINT]]


def is_packet(data: bytes) -> bool:
    return len(data) == wire.STATE_SIZE and data.startswith(wire.HEADER) and wire.is_sound(data)


STOP = (MotorMode.XYTHETA_SPACE, 0, 0, 0)
