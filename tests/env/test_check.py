"""A check reports each fault of a robot in its own line, and in no other."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from horde_env.backend import Frame
from horde_env.env import RobotEnv
from horde_env.errors import BackendLost
from horde_env.hardware.checks import Line, Verdict
from horde_env.robot import Floats, critterbot
from horde_env.robots.critterbot import checks
from horde_env.tools.check import Check, judge_stops
from tests.env.healthy import Harm, Robot, setting
from tests.facts import states

SPEC = critterbot()
GYRO = SPEC.index("rotational_velocity")
WHEELS = SPEC.group("motor_velocity")


def check(robot: Robot, may_move: str = "") -> tuple[dict[str, Line], Check]:
    env = RobotEnv(robot)
    env.reset(seed=1)
    inspection = Check(env, lambda: may_move)
    lines = list(inspection.lines())
    assert len({line.subject for line in lines}) == len(lines)
    return {line.subject: line for line in lines}, inspection


def failed(lines: dict[str, Line]) -> list[str]:
    return [subject for subject, line in lines.items() if line.verdict is not Verdict.OK]


def test_a_healthy_robot_is_well() -> None:
    lines, inspection = check(Robot())
    assert failed(lines) == []
    assert lines["packets"].text == "100.0 a second; the robot sends 100"
    assert list(lines)[-6:] == [
        *("forward", "reverse", "rotate_clockwise", "rotate_counterclockwise"),
        *("stop", "motor readings"),
    ]
    assert inspection.signs == {
        **dict.fromkeys([c.name for c in SPEC.channels[WHEELS]], 1),
        "rotational_velocity": 1,
    }
    assert len(inspection.ranges) == 53


@pytest.mark.parametrize(
    ("channels", "subject", "said"),
    [
        ({"thermal_3": 295.0}, "thermal", "thermal_3 is frozen at 295"),
        ({"light_0": 0.0}, "light", "light_0 is frozen at 0"),
        ({"bus_voltage": 14.0}, "power", "charge it soon"),
        ({"battery_voltage_40": 15.0}, "power", "differ by 1.6 V"),
        ({"motor_temperature_100": 0.98}, "motor_temperature", "motor_temperature_100 reads 0.98"),
        ({"acceleration_z": np.nan}, "acceleration", "acceleration_z reads nan"),
    ],
)
def test_a_bad_reading_is_found_in_its_line(
    channels: dict[str, float], subject: str, said: str
) -> None:
    lines, _ = check(Robot(setting(**channels)), may_move="not now")
    assert failed(lines) == [subject, "movement"]
    assert said in lines[subject].text


def test_infrared_that_sees_nothing_is_a_warning() -> None:
    """A driver's drops keep about eight of ten bits: a sensor with nothing in view may give one value for 3 s."""
    lines, _ = check(Robot(setting(ir_distance_9=0.0098)))
    assert failed(lines) == ["ir_distance"]
    assert lines["ir_distance"].verdict is Verdict.WARN
    assert "ir_distance_9 is frozen at 0.0098" in lines["ir_distance"].text
    lines, _ = check(Robot(setting(ir_distance_9=1.2)))
    assert lines["ir_distance"].verdict is Verdict.FAIL


@pytest.mark.parametrize(
    ("channels", "subject"),
    [
        ({"bus_voltage": 12.4}, "power"),
        ({"battery_voltage_160": 7.9}, "power"),
        ({"motor_temperature_340": 0.24}, "safety"),
        ({"overheating": 1.0}, "safety"),
    ],
)
def test_a_robot_that_must_not_move_is_not_moved(channels: dict[str, float], subject: str) -> None:
    robot = Robot(setting(**channels))
    lines, _ = check(robot)
    assert lines[subject].verdict is Verdict.FAIL
    assert lines["movement"] == Line(
        Verdict.SKIP, "movement", "a check that movement needs has failed above"
    )
    assert not np.any(robot.requests)


def test_every_drive_ends_in_a_stop_that_is_waited_for() -> None:
    robot = Robot()
    check(robot)
    requests = [tuple(request) for request in robot.requests]
    assert requests[-1] == (0.0, 0.0, 0.0)
    changes = [a for a, b in zip(requests, [None, *requests], strict=False) if a != b]
    stop = (0.0, 0.0, 0.0)
    drives = [SPEC.actions[k].request for k in range(4)]
    assert changes == [stop, drives[0], stop, drives[1], stop, drives[2], stop, drives[3], stop]


def test_a_reversed_gyro_is_told_from_a_reversed_robot() -> None:
    def reversed_gyro(frame: Frame, _: Floats) -> Frame:
        values = frame.values.copy()
        values[GYRO] *= -1.0
        return replace(frame, values=values)

    lines, inspection = check(Robot(reversed_gyro))
    assert failed(lines) == ["rotate_clockwise", "rotate_counterclockwise"]
    assert "the gyro turns the wrong way" in lines["rotate_clockwise"].text
    assert "wheel" not in lines["rotate_clockwise"].text.split(";", 1)[1]
    assert inspection.signs["rotational_velocity"] == -1
    assert inspection.signs["motor_velocity_100"] == 1

    lines, inspection = check(Robot(motion=lambda request: -request))
    assert failed(lines) == ["forward", "reverse", "rotate_clockwise", "rotate_counterclockwise"]
    assert set(inspection.signs.values()) == {-1}


def veering(frame: Frame, request: Floats) -> Frame:
    """A wheel slips: by its wheels all is well, but it turns by 1 rad/s."""
    values = frame.values.copy()
    values[GYRO] += 1.0 if request[0] else 0.0
    return replace(frame, values=values)


STRAIGHT = ["forward", "reverse"]
TURNS = ["rotate_clockwise", "rotate_counterclockwise"]
DEAD = {f"motor_{what}_{w}": 0.0 for what in ("voltage", "velocity") for w in (100, 220, 340)}


@pytest.mark.parametrize(
    ("harm", "speed", "subjects", "said"),
    [
        (veering, 1.0, STRAIGHT, "it turns during a straight drive"),
        (setting(motor_velocity_220=0.0), 1.0, STRAIGHT + TURNS, "wheel 220 does not turn"),
        (setting(), 0.3, STRAIGHT + TURNS, "wheel 100 reaches 29% of its speed"),
        (setting(), 2.5, STRAIGHT + TURNS, "wheel 100 turns at 24"),
        (setting(motor_current_340=0.0), 1.0, ["motor readings"], "motor_current_340"),
        (setting(**DEAD), 0.0, [*STRAIGHT, *TURNS, "motor readings"], "no motor had a voltage"),
    ],
    ids=[
        "a slipping wheel",
        "a stuck wheel",
        "weak motors",
        "wild motors",
        "a dead current sensor",
        "no motion",
    ],
)
def test_a_fault_of_the_drive_is_found_by_driving(
    harm: Harm, speed: float, subjects: list[str], said: str
) -> None:
    lines, inspection = check(Robot(harm, motion=lambda request: speed * request))
    assert failed(lines) == subjects
    assert said in lines[subjects[0]].text
    assert "wheel 220" not in said or "motor_velocity_220" not in inspection.signs


def test_a_robot_that_does_not_come_to_rest_is_driven_no_further() -> None:
    """A person pushes it: it moves without a voltage on its motors."""
    pushed = setting(motor_voltage_100=0.0, motor_voltage_220=0.0, motor_voltage_340=0.0)
    robot = Robot(pushed, motion=lambda request: np.array([0.3, 0.0, 0.0]))
    lines, _ = check(robot)
    assert lines["stop"].verdict is Verdict.FAIL
    assert "forward" not in lines
    assert not np.any(robot.requests)


def test_a_drive_that_was_kept_from_the_robot_fails_with_the_bodys_reason() -> None:
    def refuse(frame: Frame, request: Floats) -> Frame:
        if np.any(request):
            robot.reason = "the motors are too hot"
        else:
            robot.reason = ""
        return replace(frame, applied=not np.any(request))

    robot = Robot(refuse)
    lines, _ = check(robot)
    assert lines["forward"] == Line(
        Verdict.FAIL, "forward", "the robot did not follow: the motors are too hot"
    )


@pytest.mark.parametrize(
    ("change", "subject", "verdict"),
    [
        (lambda frame: {"extras": {"packets": 4}}, "packets", Verdict.FAIL),
        (lambda frame: {"extras": {"packets": 8}}, "packets", Verdict.WARN),
        (lambda frame: {"t": 1.3 * frame.t, "extras": {"packets": 10}}, "packets", Verdict.WARN),
        (lambda frame: {"t": 1.3 * frame.t, "extras": {"packets": 13}}, "packets", Verdict.OK),
        (lambda frame: {"crc_errors": 1}, "checksums", Verdict.FAIL),
        (
            lambda frame: {"crc_errors": int(frame.t == pytest.approx(1.0))},
            "checksums",
            Verdict.WARN,
        ),
        (lambda frame: {"stale": True}, "frames", Verdict.FAIL),
        (lambda frame: {"gap": True}, "frames", Verdict.FAIL),
    ],
)
def test_a_bad_line_is_found(
    change: Callable[[Frame], dict[str, Any]], subject: str, verdict: Verdict
) -> None:
    """Packets are counted against the time that has passed: a step of 0.13 s on a busy machine has 13."""
    lines, _ = check(Robot(lambda frame, _: replace(frame, **change(frame))), may_move="not now")
    assert failed(lines) == [*[subject] * (verdict is not Verdict.OK), "movement"]
    assert lines[subject].verdict is verdict


def test_a_robot_that_goes_away_ends_the_check() -> None:
    def vanish(frame: Frame, request: Floats) -> Frame:
        if np.any(request):
            raise BackendLost("/dev/robot", 1.0, 0.5, 300)
        return frame

    lines, _ = check(Robot(vanish))
    assert lines["link"].verdict is Verdict.FAIL
    assert "no frame from /dev/robot" in lines["link"].text
    assert list(lines)[-1] == "link"


def test_a_link_that_is_lost_ends_the_check_at_once() -> None:
    """The cable is pulled after a second: the body continues with stale frames, which do not show heat."""

    def pulled(frame: Frame, _: Floats) -> Frame:
        if frame.t < 0.95:
            return frame
        return replace(frame, stale=True, applied=False, extras={**frame.extras, "link_losses": 1})

    robot: Any = Robot(pulled)
    robot.loss = "the device disconnected (unplugged, or switched off?)"
    lines, _ = check(robot)
    assert list(lines) == ["link"]
    assert lines["link"].verdict is Verdict.FAIL
    assert states(lines["link"].text, "lost", "disconnected", "unplugged")
    assert len(robot.requests) == 10


def test_a_robot_that_drives_itself_is_not_driven() -> None:
    lines, _ = check(Robot(motion=lambda _: np.array([0.0, 0.0, 1.0])))
    assert lines["safety"].verdict is Verdict.FAIL
    assert "its motors had voltages" in lines["safety"].text
    assert lines["movement"].verdict is Verdict.SKIP


def test_one_stop_that_did_not_come_is_one_too_many() -> None:
    assert judge_stops([0.3, None, 0.4]).verdict is Verdict.FAIL
    assert judge_stops([0.3, 0.7, 0.4]) == Line(
        Verdict.OK, "stop", "at rest within 0.7 s of each stop"
    )


def test_expected_wheels_are_the_firmwares() -> None:
    """Golden: XYTHETA x = 20 makes wheel setpoints -19, 12, 6 (truncated); ours are not truncated."""
    units = checks.expected_wheels(np.array([20 * 0.0176, 0.0, 0.0]), SPEC) / 0.0176
    assert np.trunc(units).tolist() == [-19.0, 12.0, 6.0]
    wheel_speeds = checks.expected_wheels(np.array([0.0, 0.1, 0.0]), SPEC)
    assert wheel_speeds[2] > 0.0  # wheel 340, front right: leftward is counter-clockwise for it
    assert wheel_speeds[0] < 0.0
