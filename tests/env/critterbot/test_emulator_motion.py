"""What the emulated robot does with its motors, by the bytes that it says about them."""

from __future__ import annotations

import numpy as np
import pytest

from horde_env.robots.critterbot import wire
from horde_env.robots.critterbot.simulator import motors, period, power
from horde_env.robots.critterbot.wire import COAST, HALT, MotorMode, decode_state, encode_control
from tests.env.critterbot.emulated import DUTY, STOP, VELOCITY, drive, listen, robot, say, setpoints

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


def test_a_request_of_20_10_minus_5_takes_200_ms() -> None:
    awake = robot()
    seen = []
    for _ in range(21):
        drive(awake, 1, MotorMode.WHEEL_SPACE, 20, 10, -5)
        seen.append(setpoints(awake))
    assert seen[0] == [0, 0, 0]  # read at the end of that cycle
    assert seen[1] == [1, 0, -1]
    assert seen[10] == [10, 5, -3]
    assert seen[20] == [20, 10, -5]


def test_duties_act_at_once_and_are_clamped_to_100() -> None:
    awake = robot()
    drive(awake, 2, MotorMode.WHEEL_VOLTAGE, 127, -128, 30)
    assert setpoints(awake) == [100, -100, 30]


def test_velocities_are_taken_up_to_100_and_reached_up_to_25() -> None:
    """Rotating: each motor board goes for 25 of the 100 that the ARM accepts."""
    awake = robot()
    state = drive(awake, 250, MotorMode.WHEEL_SPACE, 127, 127, 127)
    assert setpoints(awake) == [100, 100, 100]
    assert np.mean(state.raw[VELOCITY]) == pytest.approx(22, abs=4)


@pytest.mark.parametrize("mode", [3, 42, 0x67, 0x6F, 255])
def test_an_unknown_mode_stops_the_motors(mode: int) -> None:
    awake = robot()
    drive(awake, 60, MotorMode.XYTHETA_SPACE, 0, 0, 15)
    drive(awake, 2, mode, 50, 50, 50)
    assert setpoints(awake) == [0, 0, 0]


@pytest.mark.parametrize("mode", [MotorMode.WHEEL_SPACE, MotorMode.WHEEL_VOLTAGE])
def test_half_a_second_after_the_last_command_the_motors_stop(mode: int) -> None:
    """Velocities by a ramp of 20 cycles, duties at once."""
    awake = robot()
    drive(awake, 60, mode, 20, 20, 20)
    listen(awake, 49)
    assert setpoints(awake) == [20, 20, 20]
    listen(awake, 2 if mode == MotorMode.WHEEL_VOLTAGE else 22)
    assert setpoints(awake) == [0, 0, 0]
    assert is_still(listen(awake, 200)[-1])


@pytest.mark.parametrize("mode", [MotorMode.ENABLE_CHARGING, 0x6B, 0x6E])
def test_what_is_no_motor_command_does_not_keep_the_motors_alive(mode: int) -> None:
    awake = robot()
    drive(awake, 30, MotorMode.WHEEL_VOLTAGE, 20, 20, 20)
    drive(awake, 55, mode)
    assert setpoints(awake) == [0, 0, 0]


def test_the_runaway_bug_is_there() -> None:
    """After a fresh start: duty 30, then velocity 0 for 2 s, then 2 s of silence, and the wheels still turn."""
    awake = robot()
    drive(awake, 20, MotorMode.WHEEL_VOLTAGE, 30, 30, 30)
    assert not is_still(drive(awake, 200, *STOP))
    assert not is_still(listen(awake, 200)[-1])
    assert not is_still(drive(awake, 50, MotorMode.WHEEL_SPACE, 0, 0, 0))


def test_duty_0_and_then_velocity_0_end_the_runaway() -> None:
    """As our driver opens every connection."""
    awake = robot()
    drive(awake, 20, MotorMode.WHEEL_VOLTAGE, 30, 30, 30)
    drive(awake, 50, *STOP)
    awake.receive(encode_control(COAST))
    awake.cycle()
    awake.receive(encode_control(HALT))
    assert is_still(listen(awake, 300)[-1])


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


@pytest.mark.parametrize("state", [*range(12), 201, 211, 235])
def test_only_unplugged_and_complete_let_the_wheels_turn(state: int, monkeypatch: pytest.MonkeyPatch) -> None:
    awake = robot()
    monkeypatch.setattr(period, "draw_power", lambda *_: None)  # stay in that state
    awake.machine.power.state = state
    shown = drive(awake, 60, MotorMode.XYTHETA_SPACE, 0, 0, 10)
    assert shown.charge_state == state
    assert is_still(shown) == (state not in (0, 11))


@pytest.mark.parametrize(("volts", "moves"), [(18.4, True), (18.7, False)])
def test_above_18_and_a_half_volts_the_motors_get_nothing(volts: float, moves: bool) -> None:
    awake = robot()
    awake.machine.power.sag_v = awake.machine.power.bus_v - volts
    period.draw_power(
        awake.machine.motion, awake.machine.power.amounts, awake.machine.power.marks, awake.machine.on_dock()
    )
    before = awake.machine.body.motion.heading
    drive(awake, 100, MotorMode.XYTHETA_SPACE, 0, 0, 10)
    assert (abs(awake.machine.body.motion.heading - before) > 0.1) == moves


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
