"""The robot's two programs, against what the real ones do and against a slow twin."""

from __future__ import annotations

import numpy as np
import pytest

from horde_env.robot import critterbot
from horde_env.sim import firmware as fw
from horde_env.sim.firmware import Firmware
from tests.oracles.motors import SlowAVR

pytestmark = pytest.mark.kernels
BUS = 165


@pytest.fixture
def robot() -> Firmware:
    """A firmware with cool motors whose voltage cap has grown."""
    firmware = Firmware(np.array(critterbot().drive["kinematics_1024"]))
    firmware.wheels[fw.TEMPERATURE] = 128
    for _ in range(130):
        firmware.cycle(BUS, False)
    return firmware


def wheels_of(robot: Firmware, x: int, y: int, theta: int) -> list[int]:
    robot.command(fw.XYTHETA_SPACE, x, y, theta)
    return robot.wheels[fw.SLEW_TARGET].tolist()


def test_the_golden_request_gives_the_robots_setpoints(robot: Firmware) -> None:
    """XYTHETA x = 20 -> -19, 12, 6 (seen on the robot): truncated toward zero; floor would give -20, 12, 6."""
    assert wheels_of(robot, 20, 0, 0) == [-19, 12, 6]
    assert wheels_of(robot, -20, 0, 0) == [19, -12, -6]
    assert wheels_of(robot, 0, 0, 10) == [10, 10, 10]


def test_a_request_beyond_100_keeps_its_direction(robot: Firmware) -> None:
    """A request x = 127 asks for -125, 81, 43; scaled by 100/125: -100, 64, 34. Clamping alone would keep 81 and 43."""
    assert wheels_of(robot, 127, 0, 0) == [-100, 64, 34]


def test_a_slew_lets_all_wheels_arrive_together_after_200_ms(robot: Firmware) -> None:
    robot.command(fw.WHEEL_SPACE, 20, 10, -5)
    seen = []
    for _ in range(20):
        robot.cycle(BUS, False)
        seen.append(robot.wheels[fw.SETPOINT].tolist())
    assert seen[0] == [1, 0, 0]
    assert seen[9] == [10, 5, -2]
    assert seen[18] == [19, 9, -4]
    assert seen[19] == [20, 10, -5]


def test_repeating_a_request_does_not_restart_its_slew(robot: Firmware) -> None:
    for _ in range(20):
        robot.command(fw.WHEEL_SPACE, 20, 10, -5)
        robot.cycle(BUS, False)
    assert robot.wheels[fw.SETPOINT].tolist() == [20, 10, -5]


def test_half_a_second_of_silence_slews_to_zero(robot: Firmware) -> None:
    """The 50th cycle begins the ramp (++count == 50), which takes as many cycles as the setpoint has units."""
    robot.command(fw.WHEEL_SPACE, 10, 10, 10)
    for _ in range(49):
        robot.cycle(BUS, False)
    assert robot.wheels[fw.SETPOINT].tolist() == [10, 10, 10]
    robot.cycle(BUS, False)
    assert robot.wheels[fw.SETPOINT].tolist() == [9, 9, 9]
    for _ in range(9):
        robot.cycle(BUS, False)
    assert robot.wheels[fw.SETPOINT].tolist() == [0, 0, 0]


def test_silence_stops_a_voltage_at_once(robot: Firmware) -> None:
    robot.command(fw.WHEEL_VOLTAGE, 40, 40, 40)
    for _ in range(49):
        robot.cycle(BUS, False)
    assert robot.wheels[fw.SETPOINT].tolist() == [40, 40, 40]
    robot.cycle(BUS, False)
    assert robot.wheels[fw.OUTPUT].tolist() == [0, 0, 0]


def test_zeros_after_a_voltage_do_not_stop_the_wheels(robot: Firmware) -> None:
    """The firmware's own fault: the slew's target is zero already, so the setter returns early and 15 stays."""
    robot.command(fw.WHEEL_VOLTAGE, 15, 15, 15)
    robot.cycle(BUS, False)
    robot.command(fw.WHEEL_SPACE, 0, 0, 0)
    for _ in range(200):
        robot.cycle(BUS, False)
    assert robot.wheels[fw.SETPOINT].tolist() == [15, 15, 15]
    robot.command(fw.WHEEL_VOLTAGE, 0, 0, 0)
    robot.cycle(BUS, False)
    assert robot.wheels[fw.SETPOINT].tolist() == [0, 0, 0]


def test_an_unknown_mode_stops_and_a_charging_mode_leaves_the_motors_alone(robot: Firmware) -> None:
    robot.command(fw.WHEEL_VOLTAGE, 40, 40, 40)
    robot.command(0x69, 0, 0, 0)
    assert robot.wheels[fw.SETPOINT].tolist() == [40, 40, 40]
    robot.command(77, 1, 2, 3)
    assert robot.wheels[fw.SETPOINT].tolist() == [0, 0, 0]


def test_each_wheel_goes_for_25_units_at_most(robot: Firmware) -> None:
    """At 100 clicks (25 units) a setpoint of 90 is content in the end; unclamped it would push with 127."""
    robot.wheels[fw.CLICKS] = [100, 0, 0]
    for _ in range(1000):
        robot.command(fw.WHEEL_SPACE, 90, 0, 0)
        robot.cycle(BUS, False)
    assert robot.wheels[fw.SETPOINT, 0] == 90
    assert robot.wheels[fw.OUTPUT, 0] == 0


def test_a_setpoint_of_zero_coasts_however_fast_the_wheel_turns(robot: Firmware) -> None:
    robot.wheels[fw.CLICKS] = [80, -80, 3]
    robot.cycle(BUS, False)
    assert robot.wheels[fw.OUTPUT].tolist() == [0, 0, 0]
    assert robot.wheels[fw.INTEGRAL].tolist() == [-80, 80, -3]


def test_the_voltage_cap_follows_the_bus(robot: Firmware) -> None:
    """127 up to 12.0 V, 94 at 16.5 V (127 - 0.75 x 45 = 93.25, 33 taken off), nothing above 18.5 V."""
    for bus, cap in ((115, 127), (120, 127), (165, 94), (185, 79), (186, 0)):
        robot.command(fw.WHEEL_VOLTAGE, 100, -100, 100)
        robot.wheels[fw.CLICKS] = 1
        robot.wheels[fw.STALL_CAP] = 127
        robot.cycle(bus, False)
        robot.cycle(bus, False)
        assert robot.wheels[fw.DUTY].tolist() == [min(cap, 100), -min(cap, 100), min(cap, 100)]
        assert robot.wheels[fw.OUTPUT].tolist() == [100, -100, 100]


def test_the_cap_grows_from_nothing_after_power_up() -> None:
    firmware = Firmware(np.array(critterbot().drive["kinematics_1024"]))
    firmware.command(fw.WHEEL_VOLTAGE, 50, 50, 50)
    duties = []
    for _ in range(60):
        firmware.command(fw.WHEEL_VOLTAGE, 50, 50, 50)
        firmware.cycle(BUS, False)
        duties.append(int(firmware.wheels[fw.DUTY, 0]))
    assert duties == [min(k, 50) for k in range(1, 61)]


def test_a_change_of_sign_takes_one_dead_period(robot: Firmware) -> None:
    duties = []
    for volts in (40, -40, -40):
        robot.command(fw.WHEEL_VOLTAGE, volts, 0, 0)
        robot.cycle(BUS, False)
        duties.append(int(robot.wheels[fw.DUTY, 0]))
    assert duties == [40, 0, -40]


def test_a_stalled_motor_loses_a_unit_of_duty_every_six_periods(robot: Firmware) -> None:
    """From the bus's 94; once it turns it wins one back per period, six times as fast."""
    robot.command(fw.WHEEL_VOLTAGE, 100, 0, 0)
    robot.wheels[fw.CURRENT] = 31
    for _ in range(30):
        robot.cycle(BUS, False)
    assert robot.wheels[fw.DUTY, 0] == 94 - 5
    robot.command(fw.WHEEL_VOLTAGE, 100, 0, 0)
    robot.wheels[fw.CLICKS] = 4
    for _ in range(4):
        robot.cycle(BUS, False)
    assert robot.wheels[fw.DUTY, 0] == 93


def test_heat_latches_below_65_and_lets_go_at_85(robot: Firmware) -> None:
    verdicts = []
    for hottest in (65, 64, 70, 84, 85, 65):
        robot.command(fw.WHEEL_VOLTAGE, 30, 30, 30)
        robot.wheels[fw.TEMPERATURE] = [120, hottest, 120]
        robot.cycle(BUS, False)
        verdicts.append((robot.overheated, int(robot.wheels[fw.OUTPUT, 0])))
    assert verdicts == [(False, 30), (True, 0), (True, 0), (True, 0), (False, 30), (False, 30)]


def test_the_first_second_does_not_look_at_the_temperature() -> None:
    firmware = Firmware(np.array(critterbot().drive["kinematics_1024"]))
    firmware.wheels[fw.TEMPERATURE] = 10
    for _ in range(99):
        firmware.cycle(BUS, False)
    assert not firmware.overheated
    firmware.cycle(BUS, False)
    assert firmware.overheated


def test_charging_holds_the_wheels(robot: Firmware) -> None:
    robot.command(fw.WHEEL_VOLTAGE, 30, 30, 30)
    robot.cycle(BUS, True)
    assert robot.wheels[fw.OUTPUT].tolist() == [0, 0, 0]


def test_speed_control_and_caps_are_the_slow_twins(robot: Firmware) -> None:
    """3 wheels x 2,000 periods of random setpoints, clicks, currents and bus voltages: every output and duty."""
    rng = np.random.default_rng(4)
    firmware = Firmware(np.array(critterbot().drive["kinematics_1024"]))
    firmware.wheels[fw.TEMPERATURE] = 128
    slow = [SlowAVR() for _ in range(3)]
    for k in range(2000):
        if k % 20 == 0:
            setpoint, bus = rng.integers(-40, 41, 3) * rng.integers(0, 2, 3), int(rng.integers(115, 188))
            firmware.command(fw.WHEEL_SPACE, *(int(v) for v in setpoint))
        firmware.wheels[fw.CLICKS] = rng.integers(-110, 111, 3) * rng.integers(0, 2, 3)
        firmware.wheels[fw.CURRENT] = rng.integers(0, 60, 3) * (rng.random(3) < 0.5)
        firmware.cycle(bus, False)
        for i, avr in enumerate(slow):
            row = firmware.wheels[:, i].tolist()
            expected = avr.period(row[fw.SETPOINT], row[fw.CLICKS], row[fw.CURRENT], bus)
            assert (row[fw.OUTPUT], row[fw.DUTY]) == expected, (k, i)
            assert row[fw.INTEGRAL] == avr.integral
