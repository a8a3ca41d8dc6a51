"""horde-robot and `horde learn` with a Create 2, and their errors."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import gymnasium
import numpy as np
import pytest

from horde_agent.cli import main
from horde_agent.refusals import BadInput
from horde_agent.runs.config import LearnConfig, resolve
from horde_agent.runs.reporting import report
from horde_env.env import RobotEnv
from horde_env.hardware import robot_file
from horde_env.hardware.checks import Line
from horde_env.robot import create2
from horde_env.robots.create2 import body
from horde_env.robots.create2.emulator.emulator import CreateEmulator, EmulatedCreate
from horde_env.robots.create2.simulator.backend import SimulatedCreate
from horde_env.robots.create2.simulator.world import RADIUS_M
from horde_env.robots.create2.stream import FrameParser
from horde_env.robots.create2.wire import PASSIVE, Sensors
from horde_env.tools.check import Check
from tests.env.hardware.peers import until
from tests.env.healthy import Run

pytestmark = pytest.mark.usefixtures("own_folders")


def checked(robot: SimulatedCreate, may_move: str = "", **rest: bool) -> tuple[Check, list[Line]]:
    with RobotEnv(robot, spec=create2()) as env:
        env.reset(seed=1, options={"manoeuvre": "stay"})
        check = Check(env, lambda: may_move, **rest)
        return check, list(check.lines())


def test_swapped_encoders_are_found_kept_and_put_right() -> None:
    """A turn shows each wheel's speed in the other's place; the kept file swaps them back."""

    class Swapped(SimulatedCreate):
        def exchange(self, command):
            frame = super().exchange(command)
            speeds = self.spec.group("wheel_velocity")
            frame.values[speeds] = frame.values[speeds][::-1].copy()
            frame.values[self.spec.index("rotational_velocity")] *= -1.0
            return frame

    check, lines = checked(Swapped())
    assert check.is_swapped
    assert any("encoder are swapped" in line.text for line in lines)
    path = robot_file.default_path("create2")
    robot_file.save(
        robot_file.RobotFile("serial", "/dev/ttyUSB0", "none", swapped_encoders=True), path
    )
    assert robot_file.known("create2").swapped_encoders
    right = FrameParser(swapped_encoders=True)
    wrong = FrameParser()
    sent = [Sensors(encoder_left=0), Sensors(encoder_left=9)]
    assert (
        [right.follow(s).raw[5] for s in sent][-1]
        == [wrong.follow(s).raw[4] for s in sent][-1]
        == 54.0
    )


@pytest.mark.hardware
def test_monitor_and_stop_speak_to_a_real_port(robot: tuple[CreateEmulator, str], run: Run) -> None:
    """Through the watchdog; at the end the robot is in Passive, at rest."""
    emulator, url = robot
    assert "packets/s" in run(f"monitor --once --robot create2 --backend serial --port {url}").out
    emulator.robot.receive(bytes.fromhex("80 83 91 00 b2 ff 4e"))
    until(lambda: emulator.robot.is_driven)
    assert "its wheels are at rest" in run(f"stop --robot create2 --port {url}").out
    assert emulator.robot.mode == PASSIVE
    run("stop --robot create2 --clear")


@pytest.mark.hardware
def test_a_stop_uses_the_kind_in_an_invalid_robot_file(
    robot: tuple[CreateEmulator, str], run: Run
) -> None:
    emulator, url = robot
    path = robot_file.default_path("mine")
    path.parent.mkdir(parents=True)
    path.write_text('kind = "create2"\nbaudrate = fast\n')
    emulator.robot.receive(bytes.fromhex("80 83 91 00 b2 ff 4e"))
    result = run(f"stop --robot mine --port {url}")
    assert "its wheels are at rest" in result.out
    assert "is not valid TOML" in result.err
    assert "the defaults of a create2 were used" in result.err
    assert emulator.robot.mode == PASSIVE


@pytest.mark.hardware
def test_the_real_robots_environment_drives_through_its_watchdog(
    robot: tuple[CreateEmulator, str],
) -> None:
    """At the robot's own pace, 64 frames a second; at the close it stands in Passive. A busy machine may be late."""
    emulator, url = robot
    env = gymnasium.make("horde_env:CreateSerial-v0", port=url, disable_env_checker=True)
    start = env.reset(seed=0, options={"manoeuvre": "stay"})[1]
    infos = []
    while sum(info["applied"] for info in infos) < 10:
        infos.append(env.step(2)[4])
        assert len(infos) < 100, "the robot does not follow"
    env.close()
    assert sum(info["packets"] for info in infos) <= 64 * (infos[-1]["t"] - start["t"]) + 4
    assert max(info["packets"] for info in infos) >= 6
    assert emulator.robot.mode == PASSIVE


@pytest.mark.hardware
@pytest.mark.parametrize("state", ["asleep", "on its dock", "no port"])
def test_each_fault_is_one_sentence_and_exit_code_2(
    state: str, robot: tuple[CreateEmulator, str], run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(body, "TRIES", 3)  # of half a second
    emulator, url = robot
    machine = emulator.robot.machine
    if state == "asleep":
        emulator.robot.fall_asleep()
    elif state == "on its dock":
        dock = machine.room.dock
        machine.place(dock.x, dock.y + RADIUS_M, dock.direction + np.pi, np.random.default_rng(0))
        emulator.robot.receive(bytes.fromhex("80 83"))
    else:
        url = "/dev/there-is-none"
    message = run(f"monitor --once --robot create2 --backend serial --port {url}", code=2).err
    expected = {
        "asleep": "press its Clean button",
        "on its dock": "Put it on the floor",
        "no port": "there is no port",
    }
    assert expected[state] in message
    assert machine.is_charging == (state == "on its dock")  # START and no more was sent


def test_what_a_create_2_has_not_is_refused(run: Run) -> None:
    assert (
        "has no backend 'drops'"
        in run("check --robot create2 --backend drops --port x", code=2).err
    )
    assert (
        "no --parity"
        in run("check --robot create2 --backend serial --port x --parity odd", code=2).err
    )
    with pytest.raises(BadInput, match="no backend 'replay': choose simulator, serial, emulated"):
        resolve(LearnConfig(robot="create2", backend="replay"))
    with pytest.raises(BadInput, match=r"unknown robot 'create3'.*did you mean 'create2'"):
        resolve(LearnConfig(robot="create3"))


@pytest.mark.parametrize(
    ("text", "complaint"),
    [
        ("", "lacks the entry 'dock'"),
        ("[room", "TOML"),
        ("dock = " + "[" * 2_000 + "]" * 2_000, "TOML"),
        (".".join("a" * 20_000) + " = 1", "a key has more than 32 dots"),
        ('[dock]\nposition_m = "x"', "lacks the entry"),
    ],
)
def test_a_wrong_layout_is_refused_in_one_sentence(
    text: str, complaint: str, tmp_path: Path
) -> None:
    layout = tmp_path / "room.toml"
    layout.write_text(text, encoding="utf-8")
    with pytest.raises(ValueError, match=complaint):
        gymnasium.make("horde_env:CreatePen-v0", layout=layout, disable_env_checker=True)


@pytest.mark.hardware
def test_what_only_a_real_robot_can_tell_is_measured_and_kept(run: Run) -> None:
    """Over the emulated one's bytes: its true speeds and currents, the noise of its floor, its modes, its zeros."""
    run("check --robot create2 --backend emulated --seed 1 --yes --measure --save")
    measured = robot_file.known("create2").measured
    assert measured["wheel_velocity_left_in_forward"] == pytest.approx(0.189, rel=0.06)
    assert measured["wheel_velocity_right_in_reverse"] == pytest.approx(-0.189, rel=0.06)
    assert measured["rotational_velocity_in_rotate_counterclockwise"] == pytest.approx(
        1.43, rel=0.06
    )
    assert -0.25 < measured["battery_current_at_rest"] < -0.19
    assert measured["battery_current_in_forward"] < -0.3
    assert measured["cliff_signal_left_at_rest"] * 4095 == pytest.approx(2890, abs=90)
    assert measured["cliff_signal_left_noise"] * 4095 == pytest.approx(9.0, rel=0.3)
    assert (measured["mode_offset"], measured["passes_over_zeros"]) == (0.0, 1.0)


def test_a_robot_that_is_not_moved_is_not_measured() -> None:
    check, lines = checked(SimulatedCreate(), "not wanted", measures=True)
    assert [line.verdict.value for line in lines][-2:] == ["skip", "skip"]
    assert check.measured == {}


@pytest.fixture
def live(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[..., dict[str, Any]]:
    """Run `horde learn` with a fault from the tenth second on, expect its exit code, and return its summary."""

    def live(fault: str, for_s: float, steps: int, code: int = 0) -> dict[str, Any]:
        switch_on = EmulatedCreate.switch_on

        def switched_on(body: EmulatedCreate, seed: int) -> CreateEmulator:
            emulator = switch_on(body, seed)
            cycle = emulator.robot.cycle

            def cycled(look: bool = True) -> Any:
                if emulator.t == 10.0:
                    emulator.inject(fault, for_s)
                return cycle(look)

            monkeypatch.setattr(emulator.robot, "cycle", cycled)
            return emulator

        monkeypatch.setattr(EmulatedCreate, "switch_on", switched_on)
        monkeypatch.setattr(report, "draw_pictures", lambda *_: [])
        words = [
            "--backend",
            "emulated",
            "--robot",
            "create2",
            "--questions",
            "nexting",
            "--physics",
            "planar",
        ]
        assert main(["learn", *words, "--steps", str(steps), "--out", str(tmp_path)]) == code
        return json.loads((tmp_path / "summary.json").read_text())

    return live


@pytest.mark.hardware
def test_twelve_seconds_of_disobedience_are_one_warning(
    live: Any, caplog: pytest.LogCaptureFixture
) -> None:
    """Once, as a warning, which Python prints on the terminal; nothing is learned for 11 s or more of 12."""
    assert 250 <= live("unread", 12.0, 400)["learning_steps"] <= 400 - 110
    assert (
        caplog.text.count("packets 41 and 42")
        == caplog.text.count("the robot follows its commands again")
        == 1
    )


@pytest.mark.hardware
def test_a_minute_of_disobedience_ends_the_life(
    live: Any, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """Exit code 1, the same sentence as the reason, and a report."""
    steps = live("lift", 600.0, 2_000, code=1)["steps"]
    assert 700 - 20 <= steps <= 700 + 20  # the drive to the middle took two of the ten seconds
    sentence = "a wheel has dropped (packet 7)"
    assert caplog.text.count(sentence) == 1
    assert sentence in json.loads((tmp_path / "details.json").read_text())["stopped_by"]
    assert (tmp_path / "report.html").is_file()


@pytest.mark.hardware
def test_a_life_whose_robot_slept_through_its_end_says_so(
    live: Any, capsys: pytest.CaptureFixture[str]
) -> None:
    lost_s = live("stall", 600.0, 200)["s_without_link"]
    assert 9.0 < lost_s < 11.0
    assert f"no link to the robot for {lost_s:.1f} s (" in capsys.readouterr().err
