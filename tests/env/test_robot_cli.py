"""The command horde-robot: what is wrong is said in one sentence, and whatever ends a command stops the robot."""

from __future__ import annotations

import io
import math
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from horde_env import cli
from horde_env import terminal as terminal_module
from horde_env.backend import Frame
from horde_env.emulator import Emulator
from horde_env.env import PenEnv
from horde_env.errors import BackendLost, BackendUnavailable
from horde_env.hardware import robot_file
from horde_env.hardware.control import COAST, FILL, HALT, encode_control
from horde_env.hardware.latch import EmergencyLatch, default_path
from horde_env.hardware.robot_file import BACKENDS, RobotFile
from horde_env.hardware.wire import RobotState, encode_state
from horde_env.robot import Floats, critterbot
from horde_env.target import IDS, Target
from tests.env.hardware.peers import Terminal
from tests.env.healthy import Robot
from tests.env.recording import packets, write

SPEC = critterbot()
PORT = ["--backend", "serial", "--port", "/dev/robot"]


@pytest.fixture(autouse=True)
def _own_folders(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """No test reads or writes the user's own files."""
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "config"))
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    monkeypatch.setenv("COLUMNS", "80")
    monkeypatch.chdir(tmp_path)


@pytest.fixture
def instead(monkeypatch: pytest.MonkeyPatch) -> Callable[[Robot], Robot]:
    """Put a robot in the place of whatever is asked for."""

    def put(robot: Robot) -> Robot:
        monkeypatch.setattr(Target, "make", lambda self, realtime: PenEnv(robot))
        return robot

    return put


@pytest.fixture
def log(tmp_path: Path) -> str:
    columns = packets(800)
    columns |= {name: np.full(800, 165.0) for name in columns if name.startswith("B")}  # bus and batteries
    columns |= {name: np.full(800, 128.0) for name in columns if name.startswith("MotorTemperature")}
    return str(write(tmp_path / "log.csv", columns))


@pytest.fixture
def terminal() -> Iterator[Terminal]:
    terminal = Terminal()
    yield terminal
    terminal.unplug()


def answering(monkeypatch: pytest.MonkeyPatch, text: str) -> None:
    monkeypatch.setattr(sys, "stdin", io.StringIO(text))


# ---- bad input -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("words", "said"),
    [
        ("", "check | monitor | emulate | stop"),
        ("chek", "invalid choice: 'chek'"),
        ("check --bogus", "unrecognized arguments: --bogus; see horde-robot --help"),
        ("check --backend robot", "invalid choice: 'robot'"),
        ("check --port /dev/x", "--port /dev/x needs --backend serial or --backend drops"),
        ("check --backend serial", "--backend serial needs --port"),
        ("check --backend drops", "--backend drops needs --port: HOST or HOST:2330"),
        ("check --backend simulator --port x", "--port belongs to --backend serial or drops, not to simulator"),
        ("check --backend drops --port h:1 --parity odd", "--parity belongs to --backend serial, not to drops"),
        ("check --backend serial --port x --baudrate 0", "baudrate must be a positive whole number, not 0"),
        ("check --backend serial --port x --parity mark", "invalid choice: 'mark'"),
        ("check --backend replay", "--backend replay needs --log"),
        ("check --backend replay --log none.csv", "there is no recorded life at none.csv"),
        ("check --log x.csv", "--log belongs to --backend replay, not to simulator"),
        ("check --faults loss=1", "--faults belongs to --backend emulated"),
        ("check --seed -1", "--seed must not be negative"),
        ("check --seed one", "invalid int value: 'one'"),
        ("check --robot ../me", "a robot's name is letters, digits, - and _"),
        ("check --backend replay --log log.csv --save", "nothing to --save"),
        ("monitor --robot a/b", "a robot's name"),
        ("emulate --speed 0", "speed must be positive"),
        ("emulate --faults nonsense=1", "unknown fault 'nonsense'"),
        ("emulate --tcp nowhere", "an address is HOST:PORT or PORT"),
        ("emulate --seed -1", "--seed must not be negative"),
        ("stop --robot a/b", "a robot's name"),
        ("stop --clear --port x", "--clear goes with --robot alone"),
    ],
)
def test_bad_input_is_one_sentence_and_exit_code_2(words: str, said: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(words.split()) == 2
    out, err = capsys.readouterr()
    assert out == ""
    assert len(err.splitlines()) == 1, err
    assert said in err
    assert list(Path.cwd().iterdir()) == []


def test_a_wrong_robot_file_is_named(capsys: pytest.CaptureFixture[str]) -> None:
    path = robot_file.default_path()
    path.parent.mkdir(parents=True)
    path.write_text('prot = "/dev/ttyS0"')
    assert cli.main(["check"]) == 2
    err = capsys.readouterr().err
    assert "unknown key 'prot'" in err
    assert str(path) in err


def test_a_body_that_cannot_be_opened_is_bad_input(
    instead: Callable[[Robot], Robot], capsys: pytest.CaptureFixture[str]
) -> None:
    class Absent(Robot):
        def reset(self, rng: np.random.Generator) -> Frame:
            raise BackendUnavailable("nothing comes from /dev/robot.")

    robot = instead(Absent())
    assert cli.main(["check", *PORT, "--yes"]) == 2
    out, err = capsys.readouterr()
    assert (out, err) == ("", "horde-robot: nothing comes from /dev/robot.\n")
    assert robot.n_closed == 1


def test_help_and_version_are_no_errors(capsys: pytest.CaptureFixture[str]) -> None:
    for words in (["--help"], ["--version"], ["check", "--help"], ["monitor", "--help"], ["stop", "--help"]):
        with pytest.raises(SystemExit) as end:
            cli.main(words)
        assert end.value.code == 0
    assert "horde-robot" in capsys.readouterr().out


def test_every_backend_of_a_robot_file_has_an_environment() -> None:
    assert set(IDS) == set(BACKENDS)


# ---- check -----------------------------------------------------------------------------------------------------------


def test_check_says_well_with_0_and_not_well_with_1(
    instead: Callable[[Robot], Robot], capsys: pytest.CaptureFixture[str]
) -> None:
    robot = instead(Robot())
    assert cli.main(["check"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert lines[0] == "critterbot · simulator"
    assert lines[-1] == "well: 22 ok"
    assert max(map(len, lines)) <= 80
    assert robot.n_closed == 1

    def dim(frame: Frame, _: Floats) -> Frame:
        values = frame.values.copy()
        values[SPEC.group("light")] = 0.1
        return replace(frame, values=values)

    instead(Robot(dim))
    assert cli.main(["check"]) == 1
    out = capsys.readouterr().out
    assert "  FAIL  light" in out
    assert out.splitlines()[-1] == "not well: 21 ok, 1 FAIL"


@pytest.mark.parametrize(
    ("answer", "moves"), [("y\n", True), ("YES\n", True), ("n\n", False), ("\n", False), ("", False)]
)
def test_a_robot_that_weighs_something_moves_only_after_a_yes(
    answer: str,
    moves: bool,
    instead: Callable[[Robot], Robot],
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    robot = instead(Robot())
    answering(monkeypatch, answer)
    assert cli.main(["check", *PORT]) == 0
    out = capsys.readouterr().out
    assert "[y/N]" in out
    assert bool(np.any(robot.requests)) is moves
    assert ("skip  movement" in out) is not moves
    assert ("--yes drives without asking" in out) is (answer == "")


def test_yes_moves_it_without_asking(instead: Callable[[Robot], Robot], capsys: pytest.CaptureFixture[str]) -> None:
    robot = instead(Robot())
    assert cli.main(["check", *PORT, "--yes"]) == 0
    assert "[y/N]" not in capsys.readouterr().out
    assert np.any(robot.requests)


def test_save_keeps_what_was_said_and_measured(
    instead: Callable[[Robot], Robot], capsys: pytest.CaptureFixture[str]
) -> None:
    instead(Robot())
    words = ["check", "--robot", "second", *PORT, "--parity", "none", "--baudrate", "9600", "--yes", "--save"]
    assert cli.main(words) == 0
    path = robot_file.default_path("second")
    assert f"saved in {path}" in capsys.readouterr().out
    file = robot_file.load(path)
    assert (file.backend, file.port, file.parity, file.baudrate) == ("serial", "/dev/robot", "none", 9600)
    assert file.signs["rotational_velocity"] == 1
    assert file.ranges["bus_voltage"] == (16.5, 16.5)

    assert cli.main(["monitor", "--robot", "second", "--once"]) == 0
    assert capsys.readouterr().out.startswith("second · /dev/robot (serial)")


def test_a_check_that_does_not_move_keeps_the_signs_measured_before(
    instead: Callable[[Robot], Robot], monkeypatch: pytest.MonkeyPatch
) -> None:
    path = robot_file.default_path()
    robot_file.save(RobotFile("serial", "/dev/robot", signs={"rotational_velocity": -1}), path)
    instead(Robot())
    answering(monkeypatch, "n\n")
    assert cli.main(["check", "--save"]) == 0
    assert robot_file.load(path).signs == {"rotational_velocity": -1}


def test_what_is_said_goes_before_the_robots_file(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    robot_file.save(RobotFile("serial", "/dev/old", "none", 9600), robot_file.default_path())
    made: list[Target] = []
    monkeypatch.setattr(Target, "make", lambda self, realtime: made.append(self) or PenEnv(Robot()))
    cli.main(["monitor", "--once"])
    cli.main(["monitor", "--once", "--port", "/dev/new"])
    cli.main(["monitor", "--once", "--backend", "simulator"])
    assert [(t.backend, t.file.port, t.file.parity) for t in made] == [
        ("serial", "/dev/old", "none"),
        ("serial", "/dev/new", "none"),
        ("simulator", "", "odd"),
    ]


def test_a_recorded_life_is_checked_but_not_driven(log: str, capsys: pytest.CaptureFixture[str]) -> None:
    cli.main(["check", "--backend", "replay", "--log", log])
    out = capsys.readouterr().out
    assert "skip  movement                a recorded life cannot be driven" in out
    assert "forward" not in out


@pytest.mark.sim
@pytest.mark.parametrize("words", ["simulator", "emulated", "emulated --link drops"])
def test_the_simulated_and_the_emulated_robot_are_well(words: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["check", "--seed", "3", "--backend", *words.split()]) == 0
    out = capsys.readouterr().out
    for action in SPEC.actions:
        assert f"  ok    {action.name.replace('_', ' ')}" in out


# ---- monitor ---------------------------------------------------------------------------------------------------------


def test_once_shows_one_frame(instead: Callable[[Robot], Robot], capsys: pytest.CaptureFixture[str]) -> None:
    robot = instead(Robot())
    assert cli.main(["monitor", "--once"]) == 0
    out = capsys.readouterr().out
    assert out.count("faults:") == 1
    assert "100 packets/s" in out
    assert "\x1b" not in out
    assert len(robot.requests) == 1
    assert not np.any(robot.requests)


def test_where_there_is_no_terminal_a_block_comes_every_second(
    log: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """800 packets are 80 frames, the first of them the reset's: 7 whole seconds, then the last frame."""
    make = Target.make
    monkeypatch.setattr(Target, "make", lambda self, realtime: make(self, realtime=False))
    assert cli.main(["monitor", "--backend", "replay", "--log", log]) == 0
    assert capsys.readouterr().out.count("faults:") == 8


def test_on_a_terminal_the_picture_is_drawn_in_place(
    log: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    make = Target.make
    monkeypatch.setattr(Target, "make", lambda self, realtime: make(self, realtime=False))
    monkeypatch.setattr(sys.stdout, "isatty", lambda: True)
    assert cli.main(["monitor", "--backend", "replay", "--log", log]) == 0
    out = capsys.readouterr().out
    assert out.startswith("\x1b[?25l\x1b[2J\x1b[H")
    assert out.endswith("\x1b[?25h")
    assert out.count("\x1b[2J") == 1
    assert out.count("faults:") == out.count("\x1b[H") == 79


def test_why_a_robot_is_kept_still_is_shown(
    instead: Callable[[Robot], Robot], capsys: pytest.CaptureFixture[str]
) -> None:
    instead(Robot()).reason = "the robot is charging"
    assert cli.main(["monitor", "--once"]) == 0
    assert "kept still: the robot is charging" in capsys.readouterr().out


def test_an_emergency_stop_set_meanwhile_is_shown(
    instead: Callable[[Robot], Robot], capsys: pytest.CaptureFixture[str]
) -> None:
    robot: Any = instead(Robot())
    robot.latch = EmergencyLatch(default_path())
    robot.latch.set("smoke")
    assert cli.main(["monitor", "--once"]) == 0
    assert "kept still: emergency stop: smoke" in capsys.readouterr().out


def test_a_robot_that_goes_away_ends_the_monitor(
    instead: Callable[[Robot], Robot], capsys: pytest.CaptureFixture[str]
) -> None:
    class Vanishing(Robot):
        def exchange(self, command: Floats) -> Frame:
            raise BackendLost("/dev/robot", 1.0, 0.5, 300)

    robot = instead(Vanishing())
    assert cli.main(["monitor"]) == 1
    assert "no frame from /dev/robot" in capsys.readouterr().err
    assert robot.n_closed == 1


def test_blocks_are_drawn_only_where_they_can_be_written(monkeypatch: pytest.MonkeyPatch) -> None:
    for encoding, can in (("utf-8", True), ("ascii", False), ("latin-1", False)):
        monkeypatch.setattr(sys, "stdout", io.TextIOWrapper(io.BytesIO(), encoding=encoding))
        assert terminal_module.has_blocks() is can


# ---- signals ---------------------------------------------------------------------------------------------------------


class Interrupting(Robot):
    """Raises signals in the middle of the first drive, and again while it is closed."""

    def __init__(self, moving: int, *closing: int) -> None:
        super().__init__()
        self.moving, self.closing = moving, list(closing)

    def exchange(self, command: Floats) -> Frame:
        frame = super().exchange(command)
        if np.any(command) and self.moving:
            signal.raise_signal(self.moving)
        return frame

    def close(self) -> None:
        while self.closing:
            signal.raise_signal(self.closing.pop())
        super().close()


@pytest.mark.parametrize(("signum", "code"), [(signal.SIGINT, 130), (signal.SIGTERM, 143)])
def test_a_signal_while_moving_stops_the_robot(
    signum: int, code: int, instead: Callable[[Robot], Robot], capsys: pytest.CaptureFixture[str]
) -> None:
    before = signal.getsignal(signum)
    robot = instead(Interrupting(signum))
    assert cli.main(["check", *PORT, "--yes"]) == code
    assert robot.n_closed == 1
    assert sum(bool(np.any(request)) for request in robot.requests) == 1
    assert "the robot was told to stop" in capsys.readouterr().err
    assert signal.getsignal(signum) is before
    assert EmergencyLatch(default_path()).reason == ""


def test_a_second_ctrl_c_sets_the_emergency_stop_and_does_not_disturb_the_first(
    instead: Callable[[Robot], Robot],
) -> None:
    robot = instead(Interrupting(signal.SIGINT, signal.SIGINT))
    assert cli.main(["check", *PORT, "--yes"]) == 130
    assert robot.n_closed == 1
    assert EmergencyLatch(default_path()).reason == "Ctrl-C was pressed twice"


def test_a_second_ctrl_c_does_not_latch_what_weighs_nothing(instead: Callable[[Robot], Robot]) -> None:
    instead(Interrupting(signal.SIGINT, signal.SIGINT))
    assert cli.main(["check"]) == 130
    assert EmergencyLatch(default_path()).reason == ""


def test_a_signal_during_the_closing_waits_for_it(instead: Callable[[Robot], Robot]) -> None:
    robot = instead(Interrupting(0, signal.SIGTERM))
    assert cli.main(["check", *PORT, "--yes"]) == 143
    assert robot.n_closed == 1


def test_a_bug_while_moving_stops_the_robot_and_keeps_its_traceback(instead: Callable[[Robot], Robot]) -> None:
    class Buggy(Robot):
        def exchange(self, command: Floats) -> Frame:
            if np.any(command):
                raise ZeroDivisionError
            return super().exchange(command)

    robot = instead(Buggy())
    with pytest.raises(ZeroDivisionError):
        cli.main(["check", *PORT, "--yes"])
    assert robot.n_closed == 1


def test_ctrl_c_ends_the_monitor_with_a_stop(instead: Callable[[Robot], Robot]) -> None:
    class Watched(Robot):
        def exchange(self, command: Floats) -> Frame:
            if len(self.requests) == 25:
                signal.raise_signal(signal.SIGINT)
            return super().exchange(command)

    robot = instead(Watched())
    assert cli.main(["monitor"]) == 130
    assert robot.n_closed == 1


# ---- stop ------------------------------------------------------------------------------------------------------------


def test_stop_holds_until_it_is_cleared(capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["stop", "--reason", "smoke from motor 220"]) == 0
    assert EmergencyLatch(default_path()).reason == "smoke from motor 220"
    assert cli.main(["stop"]) == 0
    assert EmergencyLatch(default_path("second")).reason == ""
    capsys.readouterr()
    assert cli.main(["stop", "--clear"]) == 0
    assert capsys.readouterr().out == "cleared; it was set: smoke from motor 220\n"
    assert EmergencyLatch(default_path()).reason == ""
    assert cli.main(["stop", "--clear"]) == 0
    assert capsys.readouterr().out == "no emergency stop was set\n"


def test_the_stop_of_another_robot_says_how_it_is_cleared(capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["stop", "--robot", "second"]) == 0
    assert "`horde-robot stop --clear --robot second` ends it" in capsys.readouterr().out
    assert EmergencyLatch(default_path()).reason == ""


def test_a_stop_whose_port_is_not_there_is_set_all_the_same(capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["stop", "--port", "/dev/none"]) == 1
    assert "there is no port /dev/none" in capsys.readouterr().err
    assert EmergencyLatch(default_path()).reason


def test_a_stop_that_cannot_be_written_is_sent_all_the_same(
    terminal: Terminal, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    robot_file.save(RobotFile("serial", terminal.path, "none"), robot_file.default_path())

    def refuse(*_: object) -> None:
        raise PermissionError(13, "Permission denied")

    monkeypatch.setattr("horde_env.hardware.latch.write_whole", refuse)
    assert cli.main(["stop"]) == 1
    assert terminal.hear(len(FILL) + 9) == FILL + encode_control(COAST)
    assert "Permission denied" in capsys.readouterr().err


@pytest.mark.parametrize(("velocity", "code"), [(0, 0), (20, 1)])
def test_a_stop_is_sent_to_the_port_and_the_wheels_are_looked_at(
    velocity: int, code: int, terminal: Terminal, capsys: pytest.CaptureFixture[str]
) -> None:
    """Duty 0 ends even the runaway of a robot in WHEEL_VOLTAGE; velocity 0, twice, is what stays."""
    raw = np.zeros(SPEC.n_channels)
    raw[SPEC.index("bus_voltage")] = 160
    raw[SPEC.index("motor_velocity_220")] = velocity
    coast, halt = encode_control(COAST), encode_control(HALT)
    heard = b""

    def answer() -> None:
        nonlocal heard
        heard = terminal.hear(len(FILL) + 27)
        terminal.say(encode_state(RobotState(raw)))

    robot = threading.Thread(target=answer)
    robot.start()
    assert cli.main(["stop", "--port", terminal.path, "--parity", "none"]) == code
    robot.join()
    assert heard == FILL + coast + halt + halt
    out, err = capsys.readouterr()
    assert ("its wheels are at rest" in out) is (code == 0)
    assert ("switch the robot off" in err) is (code == 1)


def test_a_stop_to_a_silent_robot_says_that_nothing_answers(
    terminal: Terminal, capsys: pytest.CaptureFixture[str]
) -> None:
    robot_file.save(RobotFile("serial", terminal.path, "none"), robot_file.default_path())
    assert cli.main(["stop"]) == 1
    assert "nothing answers there" in capsys.readouterr().err


# ---- emulate ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("signum", "code"), [(signal.SIGINT, 130), (signal.SIGTERM, 143)])
def test_an_emulated_robot_is_played_until_a_signal(
    signum: int, code: int, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    asked: dict[str, Any] = {}

    def serve(**words: Any) -> dict[str, int]:
        asked.update(words)
        words["say"]("serial   /dev/pts/7")
        signal.raise_signal(signum)
        assert words["stop"].is_set()
        return {"loss": 3, "flip": 0}

    monkeypatch.setattr("horde_env.emulator.serve", serve)
    assert cli.main(["emulate", "--drops", "--faults", "loss=1", "--speed", "2", "--seed", "5"]) == code
    assert capsys.readouterr().out == "serial   /dev/pts/7\nfaults: loss 3\n"
    assert (asked["tcp"], asked["drops"], asked["faults"]) == (None, "", "loss=1")
    assert (asked["speed"], asked["seed"], asked["battery_scale"]) == (2.0, 5, 1.0)


@pytest.mark.slow
@pytest.mark.sim
@pytest.mark.parametrize(("signum", "code"), [(signal.SIGINT, 130), (signal.SIGTERM, 143)])
def test_a_signal_stops_the_wheels_behind_a_real_port(signum: int, code: int) -> None:
    """The whole way, in real time: a process that drives over a pseudo terminal is told to end in its first drive."""
    with Emulator(seed=0) as robot:
        words = ["check", "--backend", "serial", "--port", robot.open_pty(), "--parity", "none", "--yes"]
        robot.start()
        with process_of(words) as process:
            assert process.stdout is not None
            while "forward" not in process.stdout.readline():  # which is printed after the first drive
                pass
            assert wait_until(lambda: speed_of(robot) > 0.1), "the second drive never came"
            process.send_signal(signum)
            assert process.wait(timeout=30) == code
            assert wait_until(lambda: speed_of(robot) < 0.02)
            assert process.stderr is not None
            assert "the robot was told to stop" in process.stderr.read()


def process_of(words: list[str]) -> subprocess.Popen[str]:
    environment = {**os.environ, "PYTHONPATH": str(Path(cli.__file__).parents[1]), "PYTHONUNBUFFERED": "1"}
    command = [sys.executable, "-m", "horde_env.cli", *words]
    return subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=environment)


def wait_until(condition: Callable[[], bool], limit_s: float = 10.0) -> bool:
    end = time.monotonic() + limit_s
    while not condition() and time.monotonic() < end:
        time.sleep(0.01)
    return condition()


def speed_of(robot: Emulator) -> float:
    motion = robot.robot.machine.body.motion
    return math.hypot(motion.vx, motion.vy)


@pytest.mark.slow
@pytest.mark.sim
def test_an_emulated_robot_in_a_process_of_its_own_is_stopped_and_ended() -> None:
    with process_of(["emulate", "--tcp", "0", "--faults", "heat=5"]) as process:
        assert process.stdout is not None
        path = process.stdout.readline().split()[1]
        assert process.stdout.readline().split()[1].startswith("socket://127.0.0.1:")
        assert cli.main(["stop", "--port", path, "--parity", "none"]) == 1  # at its console it does not answer
        process.send_signal(signal.SIGTERM)
        out, err = process.communicate(timeout=30)
    assert process.returncode == 143, err
    assert out.startswith("faults: heat ")
