"""The robot's two programs, against the real ones and against a slow twin."""

from __future__ import annotations

import numpy as np
import pytest

from horde_env.robot import critterbot
from horde_env.robots.critterbot.simulator import firmware as fw
from horde_env.robots.critterbot.simulator.firmware import Firmware
from tests.oracles.motors import SlowARM, SlowAVR

pytestmark = pytest.mark.kernels
BUS = 165


def new_firmware() -> Firmware:
    firmware = Firmware(np.array(critterbot().drive["kinematics_1024"]))
    firmware.wheels[fw.TEMPERATURE] = 128
    return firmware


@pytest.fixture
def robot() -> Firmware:
    """A firmware with cool motors and a full duty cap."""
    firmware = new_firmware()
    for _ in range(130):
        firmware.cycle(BUS, False)
    return firmware


def cycles(robot: Firmware, n: int) -> list[list[int]]:
    """Return the setpoints in each of `n` cycles without a command."""
    setpoints = []
    for _ in range(n):
        robot.cycle(BUS, False)
        setpoints.append(robot.wheels[fw.SETPOINT].tolist())
    return setpoints


def run_duty(robot: Firmware, *duties: int, row: int = fw.DUTY, bus: int = BUS) -> list[int]:
    """Return wheel 100's `row` after each of the cycles in which these duties are commanded."""
    found = []
    for duty in duties:
        robot.command(fw.WHEEL_VOLTAGE, duty, duty, duty)
        robot.cycle(bus, False)
        found.append(int(robot.wheels[row, 0]))
    return found


# ---- the ARM: ramps, timeout, modes ----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("request_", "target"),
    [
        ((20, 0, 0), [-19, 12, 6]),  # seen on the robot: truncated toward zero; floor would give -20, 12, 6
        ((-20, 0, 0), [19, -12, -6]),
        ((0, 0, 10), [10, 10, 10]),
        ((127, 0, 0), [-100, 64, 34]),  # -125, 81, 43 scaled by 100/125; clipping alone would keep 81 and 43
    ],
)
def test_requests_become_wheel_units(robot: Firmware, request_: tuple[int, int, int], target: list[int]) -> None:
    robot.command(fw.XYTHETA_SPACE, *request_)
    assert robot.wheels[fw.SLEW_TARGET].tolist() == target


@pytest.mark.parametrize("repeats", [False, True])
def test_all_wheels_of_a_ramp_arrive_together_after_200_ms(robot: Firmware, repeats: bool) -> None:
    """0 to -5 in 20 steps of a quarter unit, rounded DOWN: -1 at once. Repeating the request changes nothing."""
    robot.command(fw.WHEEL_SPACE, 20, 10, -5)
    setpoints = []
    for _ in range(21):
        setpoints += cycles(robot, 1)
        if repeats:
            robot.command(fw.WHEEL_SPACE, 20, 10, -5)
    for k, expected in ((0, [1, 0, -1]), (4, [5, 2, -2]), (9, [10, 5, -3]), (18, [19, 9, -5])):
        assert setpoints[k] == expected
    assert setpoints[19] == setpoints[20] == [20, 10, -5]


def test_a_ramp_sets_its_last_unit_a_cycle_later(robot: Firmware) -> None:
    """0 to 12 in 19 steps of 41,391/65,536: 11.99995 after the last step is 11, and 12 only in the cycle after it."""
    robot.command(fw.WHEEL_SPACE, -19, 12, 6)
    setpoints = cycles(robot, 20)
    assert setpoints[18] == [-19, 11, 5]
    assert setpoints[19] == [-19, 12, 6]


def test_a_ramp_has_sixteen_fractional_bits(robot: Firmware) -> None:
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


def test_half_a_second_of_silence_slews_to_zero(robot: Firmware) -> None:
    """The 50th cycle begins the ramp (++count == 50), with one unit per cycle."""
    robot.command(fw.WHEEL_SPACE, 10, 10, 10)
    assert cycles(robot, 59)[48:] == [[k] * 3 for k in range(10, -1, -1)]


def test_silence_stops_duties_at_once(robot: Firmware) -> None:
    robot.command(fw.WHEEL_VOLTAGE, 40, 40, 40)
    assert cycles(robot, 50)[48:] == [[40, 40, 40], [0, 0, 0]]
    assert robot.wheels[fw.OUTPUT].tolist() == [0, 0, 0]


@pytest.mark.parametrize("ramped", [1, 10, 19, 20])
def test_duty_0_during_a_ramp_does_not_end_it(robot: Firmware, ramped: int) -> None:
    """Its units are duties from then on, up to its target and until the timeout: 49 cycles of 10 ms.

    Also after step 20 of 20, because the ramp sets its target one cycle later.
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


def test_an_unknown_mode_during_a_ramp_ends_neither_the_ramp_nor_the_timeout(robot: Firmware) -> None:
    """Sent at step 5: the ramp continues as duty for the rest of its 50 cycles."""
    robot.command(fw.WHEEL_SPACE, 20, 20, 20)
    cycles(robot, 5)
    robot.command(77, 1, 2, 3)
    setpoints = cycles(robot, 60)
    assert setpoints[:44] == [[min(k, 20)] * 3 for k in range(6, 50)]
    assert setpoints[44:] == [[0, 0, 0]] * 16


@pytest.mark.parametrize("mode", [3, 255, 0x69, 0x6E])
def test_a_packet_that_is_not_a_motor_command_does_not_restart_the_timeout(robot: Firmware, mode: int) -> None:
    """An unknown mode requests duty 0 each time, and the ramp overrides it until its end."""
    robot.command(fw.WHEEL_SPACE, 40, 40, 40)
    setpoints = []
    for _ in range(60):
        setpoints += cycles(robot, 1)
        robot.command(mode, 9, 9, 9)
    assert setpoints[:41] == [[min(k, 40)] * 3 for k in range(1, 42)]
    is_unknown = mode in (3, 255)
    assert setpoints[41:49] == [[0 if is_unknown else 40] * 3] * 8
    assert setpoints[49] == [0 if is_unknown else 39] * 3


def test_a_ramp_outlasts_the_timeout_of_duties(robot: Firmware) -> None:
    """A ramp of 100 steps is in its 59th at the timeout: it continues to 100, until the next timeout."""
    robot.command(fw.WHEEL_SPACE, 100, 0, 0)
    cycles(robot, 10)
    robot.command(fw.WHEEL_VOLTAGE, 0, 0, 0)
    setpoints = [v[0] for v in cycles(robot, 101)]
    assert setpoints[:91] == [*range(11, 101), 100]
    assert setpoints[91:] == [100] * 8 + [0, 0]


def test_zeros_after_duties_do_not_stop_the_wheels(robot: Firmware) -> None:
    """The firmware's fault: the slew's target is zero already, so the command has no effect and 15 stays."""
    robot.command(fw.WHEEL_VOLTAGE, 15, 15, 15)
    cycles(robot, 1)
    robot.command(fw.WHEEL_SPACE, 0, 0, 0)
    assert cycles(robot, 200)[-1] == [15, 15, 15]
    robot.command(fw.WHEEL_VOLTAGE, 0, 0, 0)
    assert cycles(robot, 1) == [[0, 0, 0]]


def test_an_unknown_mode_requests_duty_0_and_a_charging_mode_has_no_effect(robot: Firmware) -> None:
    robot.command(fw.WHEEL_VOLTAGE, 40, 40, 40)
    robot.command(0x69, 0, 0, 0)
    assert robot.wheels[fw.SETPOINT].tolist() == [40, 40, 40]
    robot.command(77, 1, 2, 3)
    assert robot.wheels[fw.SETPOINT].tolist() == [0, 0, 0]


def test_setpoints_equal_the_slow_twins() -> None:
    """20,000 cycles of random commands of every kind, dense and sparse: ramps, duties within ramps, timeouts."""
    rng = np.random.default_rng(5)
    firmware, slow = new_firmware(), SlowARM()
    often = 0.5
    for k in range(20_000):
        if k % 500 == 0:
            often = float(rng.choice([0.01, 0.05, 0.3]))
        if rng.random() < often:
            mode = int(rng.choice([0, 1, 2, 3, 77, *range(0x68, 0x6F), 255]))
            values = [int(v) for v in rng.integers(-128, 128, 3) * rng.integers(0, 2)]
            firmware.command(mode, *values)
            slow.command(mode, *values)
        firmware.cycle(BUS, False)
        assert firmware.wheels[fw.SETPOINT].tolist() == slow.cycle(), k
        assert (firmware.arm[fw.MODE] == fw.WHEEL_VOLTAGE) == slow.in_duties


# ---- the motor AVRs: speed, current, caps ----------------------------------------------------------------------------


def test_each_wheel_regulates_to_25_units_at_most(robot: Firmware) -> None:
    """At 100 clicks (25 units) a setpoint of 90 needs no output; unclipped it would be 127."""
    robot.wheels[fw.CLICKS] = [100, 0, 0]
    for _ in range(1000):
        robot.command(fw.WHEEL_SPACE, 90, 0, 0)
        robot.cycle(BUS, False)
    assert robot.wheels[fw.SETPOINT, 0] == 90
    assert robot.wheels[fw.OUTPUT, 0] == 0


def test_a_setpoint_of_zero_coasts_and_keeps_error_and_integral(robot: Firmware) -> None:
    """The next setpoint continues with them: otherwise the integral would be -80 after the first cycle."""
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


def test_a_current_above_30_reduces_the_setpoint_by_1_per_period_down_to_1(robot: Firmware) -> None:
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


def test_the_current_limit_precedes_the_limit_of_25_units(robot: Firmware) -> None:
    """A wheel with setpoint 40 regulates to 25 until the reduction exceeds 15."""
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


@pytest.mark.parametrize(
    ("setpoint", "outputs"), [(0, [23, 22, 21]), (-5, [18, 17, 16]), (5, [-18, -17, -16]), (30, [7, 8, 9])]
)
def test_the_current_limits_reduction_shrinks_by_1_per_period_for_any_setpoint(
    robot: Firmware, setpoint: int, outputs: list[int]
) -> None:
    """A reduction of 24 makes a setpoint of 0 +24, and 23 makes -5 +18."""
    robot.wheels[fw.REDUCTION], robot.wheels[fw.CURRENT] = 24, 0
    assert run_duty(robot, *[setpoint] * 3, row=fw.OUTPUT) == outputs
    assert run_duty(robot, *[0] * 21, row=fw.OUTPUT)[-1] == 0


def test_the_duty_cap_follows_the_bus(robot: Firmware) -> None:
    """127 up to 12.0 V, 94 at 16.5 V (127 - 0.75 x 45 = 93.25, 33 taken off), nothing above 18.5 V."""
    for bus, cap in ((115, 127), (120, 127), (165, 94), (185, 79), (186, 0)):
        robot.command(fw.WHEEL_VOLTAGE, 100, -100, 100)
        robot.wheels[fw.CLICKS] = 1
        robot.wheels[fw.CAP] = 127
        robot.cycle(bus, False)
        robot.cycle(bus, False)
        assert robot.wheels[fw.DUTY].tolist() == [min(cap, 100), -min(cap, 100), min(cap, 100)]
        assert robot.wheels[fw.OUTPUT].tolist() == [100, -100, 100]


def test_after_overvoltage_the_cap_grows_as_after_power_up(robot: Firmware) -> None:
    robot.wheels[fw.CLICKS] = 1
    duties = [run_duty(robot, 50, bus=bus)[0] for bus in (165, 186, 165, 165, 165)]
    assert duties == [50, 0, 1, 2, 3]
    assert run_duty(new_firmware(), *[50] * 60) == [min(k, 50) for k in range(1, 61)]


@pytest.mark.parametrize(
    ("commands", "duties"),
    [
        ((40, -40, -40), [40, 0, -40]),
        ((0, -40, -40), [0, 0, -40]),  # 0 is on the forward side
        ((-40, 0, 40), [0, 0, 40]),
        ((40, 0, 40), [40, 0, 40]),
        ((-40, -40, 0, -40, -40), [0, -40, 0, 0, -40]),
        ((40, -40, 40, -40), [40, 0, 0, 0]),  # a change is one of the output, not of the duty
    ],
)
def test_a_change_of_sign_takes_one_dead_period(robot: Firmware, commands: tuple[int, ...], duties: list[int]) -> None:
    assert run_duty(robot, *commands) == duties


def test_a_stalled_motor_loses_a_unit_of_duty_every_six_periods(robot: Firmware) -> None:
    """While current flows, until it has turned for as many periods as it stood; then it gains 1 a period."""

    def run(n: int, clicks: int, current: int) -> int:
        robot.wheels[fw.CLICKS], robot.wheels[fw.CURRENT] = clicks, current
        return run_duty(robot, *[100] * n)[-1]

    assert run(30, 0, 10) == 94 - 5
    assert run(29, 4, 10) == 94 - 5 - 4
    assert run(1, 4, 10) == 94 - 5 - 4 + 1  # as long as it stood
    assert run(3, 4, 10) == 94 - 5 - 4 + 1 + 3
    assert run(12, 0, 10) == 89 - 2
    assert run(2, 4, 2) == 89 - 2 + 2  # without current at once
    assert run(1_000, 0, 10) == 1
    assert run(254, 4, 10) == 1  # counts up to 255
    assert run(2, 4, 10) == 3


def test_the_stall_counter_stands_still_without_a_setpoint(robot: Firmware) -> None:
    robot.wheels[fw.STOOD] = 7
    for clicks in (0, 5):
        robot.wheels[fw.CLICKS] = clicks
        cycles(robot, 3)
    assert robot.wheels[fw.STOOD].tolist() == [7, 7, 7]


def test_overheating_begins_below_65_and_ends_at_85(robot: Firmware) -> None:
    verdicts = []
    for hottest in (65, 64, 70, 84, 85, 65):
        robot.command(fw.WHEEL_VOLTAGE, 30, 30, 30)
        robot.wheels[fw.TEMPERATURE] = [120, hottest, 120]
        robot.cycle(BUS, False)
        verdicts.append((robot.overheated, int(robot.wheels[fw.OUTPUT, 0])))
    assert verdicts == [(False, 30), (True, 0), (True, 0), (True, 0), (False, 30), (False, 30)]


def test_the_first_second_ignores_the_temperature() -> None:
    firmware = new_firmware()
    firmware.wheels[fw.TEMPERATURE] = 10
    cycles(firmware, 99)
    assert not firmware.overheated
    cycles(firmware, 1)
    assert firmware.overheated


def test_charging_holds_the_wheels(robot: Firmware) -> None:
    robot.command(fw.WHEEL_VOLTAGE, 30, 30, 30)
    robot.cycle(BUS, True)
    assert robot.wheels[fw.OUTPUT].tolist() == [0, 0, 0]


def test_speed_control_and_limits_equal_the_slow_twins() -> None:
    """3 wheels x 4,000 periods of random setpoints, clicks, currents and bus voltages, either mode: output and duty."""
    rng = np.random.default_rng(4)
    firmware = new_firmware()
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
