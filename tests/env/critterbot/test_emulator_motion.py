"""What the emulated robot does with its motors, by the bytes that it says about them."""

from __future__ import annotations

import numpy as np
import pytest

from horde_env.robots.critterbot import wire
from horde_env.robots.critterbot.simulator import motors, power
from horde_env.robots.critterbot.wire import MotorMode
from tests.env.critterbot.emulated import DUTY, VELOCITY, drive, robot, say, setpoints
from tests.env.hardware.packets import decode_state

pytestmark = pytest.mark.sim


def is_still(state: wire.RobotState) -> bool:
    """Floor division makes -1 of a wheel that hardly turns."""
    return bool(np.all(np.isin(state.raw[VELOCITY], (0, -1)))) and not state.raw[DUTY].any()


def test_the_golden_request_reaches_the_wheels() -> None:
    """XYTHETA x = 20 is -19, 12, 6, as on the robot; its wheels follow within half a second."""
    awake = robot()
    state = drive(awake, 60, MotorMode.XYTHETA_SPACE, 20)
    assert setpoints(awake) == [-19, 12, 6]
    assert state.raw[VELOCITY].tolist() == pytest.approx([-19, 12, 6], abs=3)


# ---- when motion is refused ------------------------------------------------------------------------------------------


def test_an_overheated_robot_takes_commands_and_does_not_move_until_it_has_cooled() -> None:
    """Held below 65, free again at 85: at 75 it is still held, though it would not have been stopped there."""
    awake = robot()
    drive(awake, 60, MotorMode.XYTHETA_SPACE, 0, 0, 10)
    idle = np.array(motors.IDLE_TEMPERATURE)

    awake.machine.motion[motors.HEAT] = idle - 75.0
    assert drive(awake, 5, MotorMode.XYTHETA_SPACE, 0, 0, 10).monitor == wire.MONITOR_DRIVE
    awake.machine.motion[motors.HEAT, 1] = idle[1] - 60.0
    state = drive(awake, 200, MotorMode.XYTHETA_SPACE, 0, 0, 10)
    assert state.monitor == wire.MONITOR_OVERHEATING
    assert state.raw[56] == 1
    assert is_still(state)
    assert setpoints(awake) == [10, 10, 10]
    awake.machine.motion[motors.HEAT] = idle - 75.0
    assert drive(awake, 5, MotorMode.XYTHETA_SPACE, 0, 0, 10).monitor == wire.MONITOR_OVERHEATING
    awake.machine.motion[motors.HEAT] = idle - 90.0
    state = drive(awake, 60, MotorMode.XYTHETA_SPACE, 0, 0, 10)
    assert state.monitor == wire.MONITOR_DRIVE
    assert np.all(state.raw[VELOCITY] > 5)


def test_at_the_dock_it_charges_through_all_states_and_is_free_again() -> None:
    awake = robot()
    supply = awake.machine.power
    supply.__init__(battery_scale=0.0005)  # type: ignore[misc]
    supply.charge[:] = [0.5, 0.5, 0.5]
    awake.machine.on_dock = lambda: True  # type: ignore[method-assign]
    say(awake, MotorMode.ENABLE_CHARGING)
    seen = []
    for _ in range(3_000):
        state = decode_state(awake.cycle(look=True))
        if state.charge_state not in seen:
            seen.append(state.charge_state)
        if state.charge_state == power.COMPLETE:
            break
    assert seen == list(range(12))
    assert not is_still(drive(awake, 60, MotorMode.XYTHETA_SPACE, 0, 0, 10))
