"""The robot's two programs, against what the real ones do and against a slow twin."""

from __future__ import annotations

import numpy as np
import pytest

from horde_env.robot import critterbot
from horde_env.sim import firmware as fw
from horde_env.sim.firmware import Firmware
from tests.oracles.motors import SlowARM, SlowAVR

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


def cycles(robot: Firmware, n: int) -> list[list[int]]:
    """Return what the wheels are told in each of `n` cycles of silence."""
    told = []
    for _ in range(n):
        robot.cycle(BUS, False)
        told.append(robot.wheels[fw.SETPOINT].tolist())
    return told


# ---- the ARM: ramps, timeout, modes ----------------------------------------------------------------------------------


def test_the_golden_request_gives_the_robots_setpoints(robot: Firmware) -> None:
    """XYTHETA x = 20 -> -19, 12, 6 (seen on the robot): truncated toward zero; floor would give -20, 12, 6."""
    assert wheels_of(robot, 20, 0, 0) == [-19, 12, 6]
    assert wheels_of(robot, -20, 0, 0) == [19, -12, -6]
    assert wheels_of(robot, 0, 0, 10) == [10, 10, 10]


def test_a_request_beyond_100_keeps_its_direction(robot: Firmware) -> None:
    """A request x = 127 asks for -125, 81, 43; scaled by 100/125: -100, 64, 34. Clamping alone would keep 81 and 43."""
    assert wheels_of(robot, 127, 0, 0) == [-100, 64, 34]


def test_a_ramp_lets_all_wheels_arrive_together_after_200_ms(robot: Firmware) -> None:
    """0 to -5 in 20 steps of a quarter unit, rounded DOWN: -1 at once, where truncation would wait for 40 ms."""
    robot.command(fw.WHEEL_SPACE, 20, 10, -5)
    told = cycles(robot, 21)
    assert told[0] == [1, 0, -1]
    assert told[4] == [5, 2, -2]
    assert told[9] == [10, 5, -3]
    assert told[18] == [19, 9, -5]
    assert told[19] == told[20] == [20, 10, -5]


def test_a_ramp_sets_its_last_unit_a_cycle_later(robot: Firmware) -> None:
    """0 to 12 in 19 steps of 41,391/65,536: 11.99995 after the last step is 11, and 12 only in the cycle after it."""
    robot.command(fw.WHEEL_SPACE, -19, 12, 6)
    told = cycles(robot, 20)
    assert told[18] == [-19, 11, 5]
    assert told[19] == [-19, 12, 6]


def test_a_ramp_has_sixteen_bits_behind_the_point(robot: Firmware) -> None:
    """The longest: 19 units in 200 steps. 179 x 19 / 200 is 17.005, which 15 bits would make 16.9997."""
    for request, n in (((-100, 0, 0), 101), ((100, 19, 0), 179)):
        for _ in range(n):
            robot.command(fw.WHEEL_SPACE, *request)
            robot.cycle(BUS, False)
    assert robot.wheels[fw.SETPOINT].tolist() == [79, 17, 0]


def test_a_new_request_begins_where_the_wheels_are(robot: Firmware) -> None:
    robot.command(fw.WHEEL_SPACE, 20, 20, 20)
    cycles(robot, 8)
    robot.command(fw.WHEEL_SPACE, 4, 8, 8)
    assert cycles(robot, 5)[:4] == [[7, 8, 8], [6, 8, 8], [5, 8, 8], [4, 8, 8]]


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


def test_silence_stops_duties_at_once(robot: Firmware) -> None:
    robot.command(fw.WHEEL_VOLTAGE, 40, 40, 40)
    assert cycles(robot, 50)[48:] == [[40, 40, 40], [0, 0, 0]]
    assert robot.wheels[fw.OUTPUT].tolist() == [0, 0, 0]


@pytest.mark.parametrize("ramped", [1, 10, 19, 20])
def test_duty_0_during_a_ramp_does_not_end_it(robot: Firmware, ramped: int) -> None:
    """Its units are duties from then on, up to its target and until the timeout: 49 cycles of 10 ms.

    After step 20 of 20 the ramp is not over either: its target is yet to be set.
    """
    robot.command(fw.WHEEL_SPACE, 20, 10, -20)
    cycles(robot, ramped)
    robot.command(fw.WHEEL_VOLTAGE, 0, 0, 0)
    assert robot.wheels[fw.SETPOINT].tolist() == [0, 0, 0]
    steps = [min(k, 20) for k in range(ramped + 1, ramped + 50)]
    assert cycles(robot, 49) == [[k, k // 2, -k] for k in steps]
    assert robot.wheels[fw.OUTPUT].tolist() == [20, 10, -20]
    assert cycles(robot, 100) == [[0, 0, 0]] * 100


def test_duty_0_after_a_ramp_ends_it(robot: Firmware) -> None:
    robot.command(fw.WHEEL_SPACE, 20, 10, -5)
    cycles(robot, 21)
    robot.command(fw.WHEEL_VOLTAGE, 0, 0, 0)
    assert cycles(robot, 100) == [[0, 0, 0]] * 100


def test_an_unknown_mode_during_a_ramp_does_not_end_it_and_the_timeout_runs_on(robot: Firmware) -> None:
    """Asked at step 5, it goes on as duty for the 44 cycles that are left of the ramp's own 50."""
    robot.command(fw.WHEEL_SPACE, 20, 20, 20)
    cycles(robot, 5)
    robot.command(77, 1, 2, 3)
    told = cycles(robot, 60)
    assert told[:44] == [[min(k, 20)] * 3 for k in range(6, 50)]
    assert told[44:] == [[0, 0, 0]] * 16


@pytest.mark.parametrize("mode", [3, 255, 0x69, 0x6E])
def test_what_is_no_command_of_the_motors_does_not_keep_them_alive(robot: Firmware, mode: int) -> None:
    """An unknown mode asks for duty 0, again and again, and a ramp overrules it each time, to its end."""
    robot.command(fw.WHEEL_SPACE, 40, 40, 40)
    told = []
    for _ in range(60):
        told += cycles(robot, 1)
        robot.command(mode, 9, 9, 9)
    assert told[:41] == [[min(k, 40)] * 3 for k in range(1, 42)]
    is_unknown = mode in (3, 255)
    assert told[41:49] == [[0 if is_unknown else 40] * 3] * 8
    assert told[49] == [0 if is_unknown else 39] * 3


def test_a_ramp_outlasts_the_timeout_of_the_duties_that_it_has_become(robot: Firmware) -> None:
    """A ramp of 100 steps is in its 59th when the timeout asks for duty 0: it goes on to 100, until the next one."""
    robot.command(fw.WHEEL_SPACE, 100, 0, 0)
    cycles(robot, 10)
    robot.command(fw.WHEEL_VOLTAGE, 0, 0, 0)
    told = [v[0] for v in cycles(robot, 101)]
    assert told[:91] == [*range(11, 101), 100]
    assert told[91:] == [100] * 8 + [0, 0]


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


def test_an_unknown_mode_asks_for_duty_0_and_a_charging_mode_leaves_the_motors_alone(robot: Firmware) -> None:
    robot.command(fw.WHEEL_VOLTAGE, 40, 40, 40)
    robot.command(0x69, 0, 0, 0)
    assert robot.wheels[fw.SETPOINT].tolist() == [40, 40, 40]
    robot.command(77, 1, 2, 3)
    assert robot.wheels[fw.SETPOINT].tolist() == [0, 0, 0]


def test_setpoints_are_the_slow_twins() -> None:
    """20,000 cycles of random commands of every kind, dense and sparse: ramps, duties within ramps, timeouts."""
    rng = np.random.default_rng(5)
    firmware, slow = Firmware(np.array(critterbot().drive["kinematics_1024"])), SlowARM()
    firmware.wheels[fw.TEMPERATURE] = 128
    often = 0.5
    for k in range(20_000):
        if k % 500 == 0:
            often = float(rng.choice([0.01, 0.05, 0.3]))
        if rng.random() < often:
            mode = int(rng.choice([0, 1, 2, 3, 77, 0x69, 0x6E, 255]))
            values = [int(v) for v in rng.integers(-128, 128, 3) * rng.integers(0, 2)]
            firmware.command(mode, *values)
            slow.command(mode, *values)
        firmware.cycle(BUS, False)
        assert firmware.wheels[fw.SETPOINT].tolist() == slow.cycle(), k
        assert (firmware.arm[fw.MODE] == fw.WHEEL_VOLTAGE) == slow.in_duties


# ---- the motor AVRs: speed, current, caps ----------------------------------------------------------------------------


def test_each_wheel_goes_for_25_units_at_most(robot: Firmware) -> None:
    """At 100 clicks (25 units) a setpoint of 90 is content in the end; unclamped it would push with 127."""
    robot.wheels[fw.CLICKS] = [100, 0, 0]
    for _ in range(1000):
        robot.command(fw.WHEEL_SPACE, 90, 0, 0)
        robot.cycle(BUS, False)
    assert robot.wheels[fw.SETPOINT, 0] == 90
    assert robot.wheels[fw.OUTPUT, 0] == 0


def test_a_setpoint_of_zero_coasts_and_leaves_error_and_integral_as_they_were(robot: Firmware) -> None:
    """Wanted again, the wheel goes on from there: an integral that ran on would have been -80 after the first cycle."""
    robot.wheels[fw.CLICKS] = [80, -80, 3]
    robot.wheels[fw.INTEGRAL], robot.wheels[fw.LAST_ERROR] = 640, 12
    for _ in range(5):
        robot.cycle(BUS, False)
    assert robot.wheels[fw.OUTPUT].tolist() == [0, 0, 0]
    assert robot.wheels[fw.INTEGRAL].tolist() == [640, 640, 640]
    assert robot.wheels[fw.LAST_ERROR].tolist() == [12, 12, 12]
    robot.command(fw.WHEEL_SPACE, 1, 1, 1)
    robot.wheels[fw.CLICKS] = 0
    robot.cycle(BUS, False)
    assert robot.wheels[fw.OUTPUT].tolist() == [(8 * 4 + 8 * (630 + 4) + 16 * (4 - 12)) // 64] * 3


def test_the_output_is_rounded_down(robot: Firmware) -> None:
    """Error -4: (8 + 8 + 16) x -4 / 64 = -2; error 4 at 1 click less: 8 x 3 + 8 x (3 - 4) + 16 x 7 = 128 / 64."""
    robot.command(fw.WHEEL_SPACE, -1, 1, 1)
    robot.wheels[fw.CLICKS] = [-3, 5, 3]
    robot.cycle(BUS, False)
    assert robot.wheels[fw.OUTPUT].tolist() == [-1, -1, 0]  # -32/64, -32/64, 32/64


def test_a_current_above_30_takes_a_unit_per_period_off_the_setpoint_down_to_1(robot: Firmware) -> None:
    """Of the raw setpoint: 40 is still above the 25 that the wheel goes for after 15 periods of too much current."""
    robot.wheels[fw.CLICKS] = 100
    robot.command(fw.WHEEL_VOLTAGE, 40, -40, 5)
    seen = []
    for current in [31] * 45 + [30] * 3:
        robot.wheels[fw.CURRENT] = current
        robot.cycle(BUS, False)
        seen.append(robot.wheels[fw.OUTPUT].tolist())
    assert [v[0] for v in seen] == [*range(39, 0, -1), *[1] * 6, 2, 3, 4]
    assert [v[1] for v in seen] == [-v[0] for v in seen]
    assert [v[2] for v in seen] == [4, 3, 2, *[1] * 42, 2, 3, 4]


def test_the_current_limit_is_before_the_limit_of_25_units(robot: Firmware) -> None:
    """A wheel that was asked for 40 goes for 25 until the limit has taken off more than 15."""
    robot.wheels[fw.CLICKS] = 100
    robot.command(fw.WHEEL_SPACE, 40, 40, 40)
    cycles(robot, 41)
    robot.wheels[fw.INTEGRAL] = 0
    robot.wheels[fw.CURRENT] = 31
    outputs = []
    for _ in range(16):
        robot.command(fw.WHEEL_SPACE, 40, 40, 40)
        robot.cycle(BUS, False)
        outputs.append(int(robot.wheels[fw.OUTPUT, 0]))
    assert outputs == [0] * 15 + [-2]  # (8 + 8 + 16) x -4 / 64


def test_what_the_current_limit_took_off_drives_on_after_a_stop_at_once(robot: Firmware) -> None:
    """It is given back by 1 per period from whatever setpoint there is: 24 off 0 is +24, 23 off -5 is +18."""
    for setpoint, outputs in ((0, [23, 22, 21]), (-5, [18, 17, 16]), (5, [-18, -17, -16]), (30, [7, 8, 9])):
        robot.wheels[fw.REDUCTION], robot.wheels[fw.CURRENT] = 24, 0
        robot.command(fw.WHEEL_VOLTAGE, setpoint, 0, 0)
        seen = []
        for _ in range(3):
            robot.cycle(BUS, False)
            seen.append(int(robot.wheels[fw.OUTPUT, 0]))
        assert seen == outputs, setpoint
    robot.command(fw.WHEEL_VOLTAGE, 0, 0, 0)
    cycles(robot, 21)
    assert robot.wheels[fw.OUTPUT].tolist() == [0, 0, 0]


def test_the_voltage_cap_follows_the_bus(robot: Firmware) -> None:
    """127 up to 12.0 V, 94 at 16.5 V (127 - 0.75 x 45 = 93.25, 33 taken off), nothing above 18.5 V."""
    for bus, cap in ((115, 127), (120, 127), (165, 94), (185, 79), (186, 0)):
        robot.command(fw.WHEEL_VOLTAGE, 100, -100, 100)
        robot.wheels[fw.CLICKS] = 1
        robot.wheels[fw.CAP] = 127
        robot.cycle(bus, False)
        robot.cycle(bus, False)
        assert robot.wheels[fw.DUTY].tolist() == [min(cap, 100), -min(cap, 100), min(cap, 100)]
        assert robot.wheels[fw.OUTPUT].tolist() == [100, -100, 100]


def test_a_bus_that_was_too_high_costs_the_time_of_a_power_up(robot: Firmware) -> None:
    """There is one cap: what the bus took away comes back by 1 per period."""
    duties = []
    for bus in (165, 186, 165, 165, 165):
        robot.command(fw.WHEEL_VOLTAGE, 50, 50, 50)
        robot.wheels[fw.CLICKS] = 1
        robot.cycle(bus, False)
        duties.append(int(robot.wheels[fw.DUTY, 0]))
    assert duties == [50, 0, 1, 2, 3]


def test_the_cap_grows_from_nothing_after_power_up() -> None:
    firmware = Firmware(np.array(critterbot().drive["kinematics_1024"]))
    firmware.command(fw.WHEEL_VOLTAGE, 50, 50, 50)
    duties = []
    for _ in range(60):
        firmware.command(fw.WHEEL_VOLTAGE, 50, 50, 50)
        firmware.cycle(BUS, False)
        duties.append(int(firmware.wheels[fw.DUTY, 0]))
    assert duties == [min(k, 50) for k in range(1, 61)]


@pytest.mark.parametrize(
    ("asked", "duties"),
    [
        ((40, -40, -40), [40, 0, -40]),
        ((0, -40, -40), [0, 0, -40]),  # 0 is on the forward side
        ((-40, 0, 40), [0, 0, 40]),
        ((40, 0, 40), [40, 0, 40]),
        ((-40, -40, 0, -40, -40), [0, -40, 0, 0, -40]),
        ((40, -40, 40, -40), [40, 0, 0, 0]),  # it remembers what it was told, not what it did
    ],
)
def test_a_change_of_sign_takes_one_dead_period(robot: Firmware, asked: tuple[int, ...], duties: list[int]) -> None:
    seen = []
    for duty in asked:
        robot.command(fw.WHEEL_VOLTAGE, duty, 0, 0)
        robot.cycle(BUS, False)
        seen.append(int(robot.wheels[fw.DUTY, 0]))
    assert seen == duties


def test_a_stalled_motor_loses_a_unit_of_duty_every_six_periods(robot: Firmware) -> None:
    """And goes on losing, while current flows, until it has turned for as many periods as it stood; then 1 a period."""

    def run(n: int, clicks: int, current: int) -> int:
        robot.wheels[fw.CLICKS], robot.wheels[fw.CURRENT] = clicks, current
        for _ in range(n):
            robot.command(fw.WHEEL_VOLTAGE, 100, 0, 0)
            robot.cycle(BUS, False)
        return int(robot.wheels[fw.DUTY, 0])

    assert run(30, 0, 10) == 94 - 5
    assert run(29, 4, 10) == 94 - 5 - 4
    assert run(1, 4, 10) == 94 - 5 - 4 + 1  # as long as it stood
    assert run(3, 4, 10) == 94 - 5 - 4 + 1 + 3
    assert run(12, 0, 10) == 89 - 2
    assert run(2, 4, 2) == 89 - 2 + 2  # without current at once
    assert run(1_000, 0, 10) == 1
    assert run(254, 4, 10) == 1  # 255 at most are remembered
    assert run(2, 4, 10) == 3


def test_a_motor_that_is_not_wanted_neither_stands_nor_turns_in_the_eyes_of_its_cap(robot: Firmware) -> None:
    robot.wheels[fw.STOOD] = 7
    for clicks in (0, 5):
        robot.wheels[fw.CLICKS] = clicks
        cycles(robot, 3)
    assert robot.wheels[fw.STOOD].tolist() == [7, 7, 7]


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


def test_speed_control_and_limits_are_the_slow_twins() -> None:
    """3 wheels x 4,000 periods of random setpoints, clicks, currents and bus voltages, either mode: output and duty."""
    rng = np.random.default_rng(4)
    firmware = Firmware(np.array(critterbot().drive["kinematics_1024"]))
    firmware.wheels[fw.TEMPERATURE] = 128
    slow, bus = [SlowAVR() for _ in range(3)], BUS
    for k in range(4_000):
        if k % 20 == 0:
            largest = int(rng.choice([10, 40, 100]))
            setpoint = rng.integers(-largest, largest + 1, 3) * rng.integers(0, 2, 3)
            firmware.command(int(rng.choice([fw.WHEEL_SPACE, fw.WHEEL_VOLTAGE])), *(int(v) for v in setpoint))
        if k % 200 == 0:
            bus = int(rng.integers(115, 188))
        if k % 5 == 0:
            firmware.wheels[fw.CLICKS] = rng.integers(-110, 111, 3) * rng.integers(0, 2, 3)
            firmware.wheels[fw.CURRENT] = rng.integers(0, 60, 3) * (rng.random(3) < 0.5)
        firmware.cycle(bus, False)
        in_duties = bool(firmware.arm[fw.MODE] == fw.WHEEL_VOLTAGE)
        for i, avr in enumerate(slow):
            row = firmware.wheels[:, i].tolist()
            expected = avr.period(row[fw.SETPOINT], row[fw.CLICKS], row[fw.CURRENT], bus, in_duties=in_duties)
            assert (row[fw.OUTPUT], row[fw.DUTY]) == expected, (k, i)
            assert row[fw.INTEGRAL] == avr.integral
