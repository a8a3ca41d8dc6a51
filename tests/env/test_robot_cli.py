"""The command horde-robot: one sentence per error; check and monitor."""

from __future__ import annotations

import io
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from horde_env import cli
from horde_env.env import RobotEnv
from horde_env.errors import BackendLost, BackendUnavailable
from horde_env.hardware import robot_file
from horde_env.hardware.latch import EmergencyLatch, default_path
from horde_env.hardware.robot_file import RobotFile
from horde_env.robot import critterbot
from horde_env.tools.running import Target
from tests.env.hardware.peers import raising
from tests.env.healthy import Instead, Robot, Run, setting
from tests.env.recording import packets, write

SPEC = critterbot()
PORT = "--backend serial --port /dev/robot"


@pytest.fixture
def log(tmp_path: Path) -> str:
    columns = packets(800)
    # Bus and batteries
    columns |= {name: np.full(800, 165.0) for name in columns if name.startswith("B")}
    columns |= {
        name: np.full(800, 128.0) for name in columns if name.startswith("MotorTemperature")
    }
    return str(write(tmp_path / "log.csv", columns))


def answering(monkeypatch: pytest.MonkeyPatch, text: str) -> None:
    monkeypatch.setattr(sys, "stdin", io.StringIO(text))


# ---- bad input -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("words", "said"),
    [
        ("look", "unknown command 'look': choose check, monitor, emulate, stop"),
        ("look --help", "unknown command 'look'"),
        ("monito", "did you mean 'monitor'?"),
        ("", "name a command: check, monitor, emulate, stop"),
        ("check --bogus", "unrecognized arguments: --bogus; see horde-robot --help"),
        ("check --backend robot", "invalid choice: 'robot'"),
        ("check --port /dev/x", "--port /dev/x needs --backend serial or --backend drops"),
        ("check --backend serial", "--backend serial needs --port"),
        ("check --backend drops", "--backend drops needs --port: HOST or HOST:2330"),
        (
            "check --backend simulator --port x",
            "--port belongs to --backend serial or drops, not to simulator",
        ),
        (
            "check --backend drops --port h:1 --parity odd",
            "--parity belongs to --backend serial, not to drops",
        ),
        (
            "check --backend serial --port x --baudrate 0",
            "baudrate must be a positive whole number, not 0",
        ),
        ("check --backend replay", "--backend replay needs --log"),
        ("check --backend replay --log none.csv", "there is no recorded life at none.csv"),
        ("check --seed -1", "--seed must not be negative"),
        ("check --seed one", "invalid int value: 'one'"),
        ("check --robot ../me", "a robot's name is letters, digits, - and _"),
        ("check --backend replay --log log.csv --save", "--save needs a robot"),
        ("emulate --speed 0", "speed must be positive"),
        ("emulate --faults nonsense=1", "unknown fault 'nonsense'"),
        ("emulate --tcp nowhere", "an address is HOST:PORT or PORT"),
        ("emulate --seed -1", "--seed must not be negative"),
        ("stop --robot a/b", "a robot's name"),
        ("stop --clear --port x", "--clear goes with --robot alone"),
    ],
)
def test_bad_input_is_one_sentence_and_exit_code_2(words: str, said: str, run: Run) -> None:
    out, err = run(words, code=2)
    assert out == ""
    assert len(err.splitlines()) == 1, err
    assert said in err
    assert list(Path.cwd().iterdir()) == []


def test_a_wrong_robot_file_is_named(run: Run) -> None:
    path = robot_file.default_path()
    path.parent.mkdir(parents=True)
    path.write_text('prot = "/dev/ttyS0"')
    err = run("check", code=2).err
    assert "unknown key 'prot'" in err
    assert str(path) in err


def test_a_body_that_cannot_be_opened_is_bad_input(instead: Instead, run: Run) -> None:
    robot = instead(Robot(raising(BackendUnavailable("nothing comes from /dev/robot."))))
    assert run(f"check --yes {PORT}", code=2) == (
        "",
        "horde-robot: nothing comes from /dev/robot.\n",
    )
    assert robot.n_closed == 1


def test_help_and_version_are_no_errors(capsys: pytest.CaptureFixture[str]) -> None:
    for words in (
        ["--help"],
        ["--version"],
        ["check", "--help"],
        ["monitor", "--help"],
        ["stop", "--help"],
    ):
        with pytest.raises(SystemExit) as end:
            cli.main(words)
        assert end.value.code == 0
    assert "horde-robot" in capsys.readouterr().out


# ---- check -----------------------------------------------------------------------------------------------------------


def test_check_says_well_with_0_and_not_well_with_1(instead: Instead, run: Run) -> None:
    robot = instead(Robot())
    lines = run("check").out.splitlines()
    assert lines[0] == "critterbot · simulator"
    assert lines[-1] == "well: 22 ok"
    assert max(map(len, lines)) <= 80
    assert robot.n_closed == 1

    instead(Robot(setting(light_0=0.1)))
    out = run("check", code=1).out
    assert "  FAIL  light" in out
    assert out.splitlines()[-1] == "not well: 21 ok, 1 FAIL"


@pytest.mark.parametrize(
    ("answer", "moves"),
    [("y\n", True), ("YES\n", True), ("n\n", False), ("\n", False), ("", False)],
)
def test_a_robot_that_weighs_something_moves_only_after_a_yes(
    answer: str, moves: bool, instead: Instead, run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    robot = instead(Robot())
    answering(monkeypatch, answer)
    out = run(f"check {PORT}").out
    assert "[y/N]" in out
    assert bool(np.any(robot.requests)) is moves
    assert ("skip  movement" in out) is not moves
    assert ("--yes drives without asking" in out) is (answer == "")


def test_save_keeps_what_was_said_and_measured(instead: Instead, run: Run) -> None:
    instead(Robot())
    out = run(f"check --robot second --parity none --baudrate 9600 --yes --save {PORT}").out
    path = robot_file.default_path("second")
    assert f"saved in {path}" in out
    assert "[y/N]" not in out, "--yes drives without asking"
    file = robot_file.load(path)
    assert (file.backend, file.port, file.parity, file.baudrate) == (
        "serial",
        "/dev/robot",
        "none",
        9600,
    )
    assert file.signs["rotational_velocity"] == 1
    assert file.ranges["bus_voltage"] == (16.5, 16.5)

    assert run("monitor --robot second --once").out.startswith("second · /dev/robot (serial)")


def test_a_check_at_rest_keeps_the_known_signs(
    instead: Instead, run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = robot_file.default_path()
    robot_file.save(RobotFile("serial", "/dev/robot", signs={"rotational_velocity": -1}), path)
    instead(Robot())
    answering(monkeypatch, "n\n")
    run("check --save")
    assert robot_file.load(path).signs == {"rotational_velocity": -1}


def test_what_is_said_goes_before_the_robots_file(
    monkeypatch: pytest.MonkeyPatch, run: Run
) -> None:
    robot_file.save(RobotFile("serial", "/dev/old", "none", 9600), robot_file.default_path())
    made: list[Target] = []
    monkeypatch.setattr(
        Target, "make", lambda self, realtime: made.append(self) or RobotEnv(Robot())
    )
    for words in ("", "--port /dev/new", "--backend simulator"):
        run(f"monitor --once {words}")
    assert [(t.backend, t.file.port, t.file.parity) for t in made] == [
        ("serial", "/dev/old", "none"),
        ("serial", "/dev/new", "none"),
        ("simulator", "", "none"),
    ]


def test_a_recorded_life_is_checked_but_not_driven(log: str, run: Run) -> None:
    out = run(f"check --backend replay --log {log}", code=1).out
    assert "skip  movement                a recorded life cannot be driven" in out
    assert "forward" not in out


@pytest.mark.sim
@pytest.mark.parametrize(
    "words",
    [
        "simulator",
        "emulated",
        "emulated --link drops",
        "simulator --robot create2",
        "emulated --robot create2",
    ],
)
def test_the_simulated_and_the_emulated_robot_are_well(words: str, run: Run) -> None:
    out = run(f"check --seed 3 --backend {words}").out
    for action in SPEC.actions:
        assert f"  ok    {action.name.replace('_', ' ')}" in out
    assert "FAIL" not in out


# ---- monitor ---------------------------------------------------------------------------------------------------------


def test_once_shows_one_frame(instead: Instead, run: Run) -> None:
    robot = instead(Robot())
    out = run("monitor --once").out
    assert out.count("faults:") == 1
    assert "100 packets/s" in out
    assert "\x1b" not in out
    assert len(robot.requests) == 1
    assert not np.any(robot.requests)


def test_a_picture_is_drawn_in_place_on_a_terminal_and_once_a_second_elsewhere(
    log: str, monkeypatch: pytest.MonkeyPatch, run: Run
) -> None:
    """800 packets are 80 frames, the first of them the reset's: 7 whole seconds, then the last frame."""
    make = Target.make
    monkeypatch.setattr(Target, "make", lambda self, realtime: make(self, realtime=False))
    assert run(f"monitor --backend replay --log {log}").out.count("faults:") == 8
    monkeypatch.setattr(sys.stdout, "isatty", lambda: True)
    out = run(f"monitor --backend replay --log {log}").out
    assert out.startswith("\x1b[?25l\x1b[2J\x1b[H")
    assert out.endswith("\x1b[?25h")
    assert out.count("\x1b[2J") == 1
    assert out.count("faults:") == out.count("\x1b[H") == 79


def test_a_lost_robot_is_one_error_in_the_monitor(
    instead: Instead, run: Run, caplog: pytest.LogCaptureFixture
) -> None:
    robot = instead(Robot())
    robot.exchange = raising(BackendLost("/dev/robot", 1.0, 0.5, 300))  # type: ignore[method-assign]
    assert run("monitor", code=1).err.count("no frame from /dev/robot") == 1
    assert caplog.records == []
    assert robot.n_closed == 1


def test_an_emergency_stop_a_lost_link_and_a_robot_that_obeys_nothing_are_shown(
    instead: Instead, run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    stopped: Any = instead(Robot())
    stopped.latch = EmergencyLatch(default_path())
    stopped.latch.set("smoke")
    assert "kept still: emergency stop: smoke" in run("monitor --once").out
    robot: Any = instead(
        Robot(lambda frame, _: replace(frame, extras={**frame.extras, "s_without_link": 0.1}))
    )
    robot.loss = "no packet for 0.31 s"
    assert "link lost: no packet for 0.31 s" in run("monitor --once").out
    instead(Robot())
    monkeypatch.setattr(RobotEnv, "disobedience", "it does nothing")
    assert run("monitor --once").out.rstrip().endswith("\nit does nothing")
