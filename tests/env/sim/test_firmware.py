"""The robot's two programs, against the real ones and against a slow twin."""

from __future__ import annotations

import numba
import numpy as np
import pytest

from horde_env.robot import critterbot
from horde_env.robots.critterbot.simulator import firmware as fw
from horde_env.robots.critterbot.simulator.firmware import Firmware
from tests.oracles.motors import SlowARM, SlowAVR

N_CYCLES = 20_000
if numba.config.DISABLE_JIT:  # type: ignore[attr-defined]
    N_CYCLES = 4_000  # interpreted, a cycle takes 20 times as long

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


# ---- the ARM: ramps, timeout, modes ----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("request_", "target"),
    [
        # Seen on the robot: truncated toward zero; floor would give -20, 12, 6
        ((20, 0, 0), [-19, 12, 6]),
        ((-20, 0, 0), [19, -12, -6]),
        ((0, 0, 10), [10, 10, 10]),
        # -125, 81, 43 scaled by 100/125; clipping alone would keep 81 and 43
        ((127, 0, 0), [-100, 64, 34]),
    ],
)
def test_requests_become_wheel_units(
    robot: Firmware, request_: tuple[int, int, int], target: list[int]
) -> None:
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


def test_half_a_second_of_silence_slews_to_zero(robot: Firmware) -> None:
    """The 50th cycle begins the ramp (++count == 50), with one unit per cycle."""
    robot.command(fw.WHEEL_SPACE, 10, 10, 10)
    assert cycles(robot, 59)[48:] == [[k] * 3 for k in range(10, -1, -1)]


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


def test_zeros_after_duties_do_not_stop_the_wheels(robot: Firmware) -> None:
    """The firmware's fault: the slew's target is zero already, so the command has no effect and 15 stays."""
    robot.command(fw.WHEEL_VOLTAGE, 15, 15, 15)
    cycles(robot, 1)
    robot.command(fw.WHEEL_SPACE, 0, 0, 0)
    assert cycles(robot, 200)[-1] == [15, 15, 15]
    robot.command(fw.WHEEL_VOLTAGE, 0, 0, 0)
    assert cycles(robot, 1) == [[0, 0, 0]]


def test_setpoints_equal_the_slow_twins() -> None:
    """Random commands of every kind, dense and sparse: ramps, duties within ramps, timeouts."""
    rng = np.random.default_rng(5)
    firmware = new_firmware()
    slow = SlowARM()
    often = 0.5
    for k in range(N_CYCLES):
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


def test_a_stalled_motor_loses_a_unit_of_duty_every_six_periods(robot: Firmware) -> None:
    """While current flows, until it has turned for as many periods as it stood; then it gains 1 a period."""

    def run(n: int, clicks: int, current: int) -> int:
        robot.wheels[fw.CLICKS] = clicks
        robot.wheels[fw.CURRENT] = current
        for _ in range(n):
            robot.command(fw.WHEEL_VOLTAGE, 100, 100, 100)
            robot.cycle(BUS, False)
        return int(robot.wheels[fw.DUTY, 0])

    assert run(30, 0, 10) == 94 - 5
    assert run(29, 4, 10) == 94 - 5 - 4
    assert run(1, 4, 10) == 94 - 5 - 4 + 1  # as long as it stood
    assert run(3, 4, 10) == 94 - 5 - 4 + 1 + 3
    assert run(12, 0, 10) == 89 - 2
    assert run(2, 4, 2) == 89 - 2 + 2  # without current at once
    assert run(1_000, 0, 10) == 1
    assert run(254, 4, 10) == 1  # counts up to 255
    assert run(2, 4, 10) == 3


def test_overheating_begins_below_65_and_ends_at_85(robot: Firmware) -> None:
    verdicts = []
    for hottest in (65, 64, 70, 84, 85, 65):
        robot.command(fw.WHEEL_VOLTAGE, 30, 30, 30)
        robot.wheels[fw.TEMPERATURE] = [120, hottest, 120]
        robot.cycle(BUS, False)
        verdicts.append((bool(robot.arm[fw.OVERHEATED]), int(robot.wheels[fw.OUTPUT, 0])))
    assert verdicts == [(False, 30), (True, 0), (True, 0), (True, 0), (False, 30), (False, 30)]


def test_the_first_second_ignores_the_temperature() -> None:
    firmware = new_firmware()
    firmware.wheels[fw.TEMPERATURE] = 10
    cycles(firmware, 99)
    assert not firmware.arm[fw.OVERHEATED]
    cycles(firmware, 1)
    assert firmware.arm[fw.OVERHEATED]


def test_charging_holds_the_wheels(robot: Firmware) -> None:
    robot.command(fw.WHEEL_VOLTAGE, 30, 30, 30)
    robot.cycle(BUS, True)
    assert robot.wheels[fw.OUTPUT].tolist() == [0, 0, 0]


def test_speed_control_and_limits_equal_the_slow_twins() -> None:
    """3 wheels x 4,000 periods of random setpoints, clicks, currents and bus voltages, either mode: output and duty."""
    rng = np.random.default_rng(4)
    firmware = new_firmware()
    slow = [SlowAVR() for _ in range(3)]
    bus = BUS
    for k in range(4_000):
        if k % 20 == 0:
            largest = int(rng.choice([10, 40, 100]))
            setpoint = rng.integers(-largest, largest + 1, 3) * rng.integers(0, 2, 3)
            firmware.command(
                int(rng.choice([fw.WHEEL_SPACE, fw.WHEEL_VOLTAGE])), *(int(v) for v in setpoint)
            )
        if k % 200 == 0:
            bus = int(rng.integers(115, 188))
        if k % 5 == 0:
            firmware.wheels[fw.CLICKS] = rng.integers(-110, 111, 3) * rng.integers(0, 2, 3)
            firmware.wheels[fw.CURRENT] = rng.integers(0, 60, 3) * (rng.random(3) < 0.5)
        firmware.cycle(bus, False)
        in_duties = bool(firmware.arm[fw.MODE] == fw.WHEEL_VOLTAGE)
        for i, avr in enumerate(slow):
            row = firmware.wheels[:, i].tolist()
            expected = avr.period(
                row[fw.SETPOINT], row[fw.CLICKS], row[fw.CURRENT], bus, in_duties=in_duties
            )
            assert (row[fw.OUTPUT], row[fw.DUTY]) == expected, (k, i)
            assert row[fw.INTEGRAL] == avr.integral
