"""Whatever ends a command stops the robot; and horde-robot stop keeps it stopped."""

from __future__ import annotations

import math
import os
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path
from subprocess import PIPE
from typing import Any

import numpy as np
import pytest

from horde_env import cli
from horde_env.backend import Frame
from horde_env.hardware import robot_file
from horde_env.hardware.latch import EmergencyLatch, default_path
from horde_env.hardware.robot_file import RobotFile
from horde_env.hardware.settings import PortConfig
from horde_env.robot import Floats
from horde_env.robots.critterbot import checks
from horde_env.robots.critterbot.emulator.emulator import Emulator
from horde_env.robots.critterbot.wire import (
    COAST,
    FILL,
    HALT,
    LEAVE,
    WAKE,
    Control,
    MotorMode,
    encode_control,
)
from horde_env.tools import running
from tests.env.critterbot.emulated import wake
from tests.env.hardware.packets import packet_of
from tests.env.hardware.peers import Terminal, open_port, raising, until
from tests.env.healthy import Instead, Robot, Run
from tests.facts import states

pytestmark = pytest.mark.usefixtures("own_folders")

PORT = "--backend serial --port /dev/robot"


@pytest.fixture
def _no_patience(monkeypatch: pytest.MonkeyPatch) -> None:
    """Wait only briefly for a driving program's confirmation, when there is none."""
    monkeypatch.setattr(running, "PATIENCE_S", 0.1)


# ---- signals ---------------------------------------------------------------------------------------------------------


class Interrupting(Robot):
    """Raises signals in the middle of the first drive, and again while it is closed."""

    def __init__(self, moving: int, *closing: int) -> None:
        super().__init__()
        self.moving = moving
        self.closing = list(closing)

    def exchange(self, command: Floats) -> Frame:
        frame = super().exchange(command)
        if np.any(command) and self.moving:
            signal.raise_signal(self.moving)
        return frame

    def close(self) -> None:
        while self.closing:
            signal.raise_signal(self.closing.pop())
        super().close()


@pytest.mark.parametrize(
    ("signum", "code"), [(signal.SIGINT, 130), (signal.SIGTERM, 143), (signal.SIGHUP, 129)]
)
def test_a_signal_while_moving_stops_the_robot(
    signum: int, code: int, instead: Instead, run: Run
) -> None:
    handler = signal.getsignal(signum)
    robot = instead(Interrupting(signum))
    assert "a stop was sent to the robot" in run(f"check --yes {PORT}", code=code).err
    assert robot.n_closed == 1
    assert sum(bool(np.any(request)) for request in robot.requests) == 1
    assert signal.getsignal(signum) is handler
    assert EmergencyLatch(default_path()).reason == ""


@pytest.mark.parametrize(
    ("words", "reason"),
    [(f"{PORT} --yes", "Ctrl-C was pressed twice"), ("", "")],
    ids=["a robot", "the simulator"],
)
def test_a_second_ctrl_c_sets_a_robots_emergency_stop(
    words: str, reason: str, instead: Instead, run: Run
) -> None:
    """And does not disturb the closing that the first one began."""
    robot = instead(Interrupting(signal.SIGINT, signal.SIGINT))
    run(f"check {words}", code=130)
    assert robot.n_closed == 1
    assert EmergencyLatch(default_path()).reason == reason


def test_a_signal_during_the_closing_waits_for_it(instead: Instead, run: Run) -> None:
    robot = instead(Interrupting(0, signal.SIGTERM))
    run(f"check --yes {PORT}", code=143)
    assert robot.n_closed == 1


def test_a_bug_while_moving_stops_the_robot_and_keeps_its_traceback(
    instead: Instead, run: Run
) -> None:
    robot = instead(Robot(lambda frame, request: 1 / 0 if np.any(request) else frame))
    with pytest.raises(ZeroDivisionError):
        run(f"check --yes {PORT}")
    assert robot.n_closed == 1


def test_ctrl_c_ends_the_monitor_with_a_stop(instead: Instead, run: Run) -> None:
    class Watched(Robot):
        def exchange(self, command: Floats) -> Frame:
            if len(self.requests) == 25:
                signal.raise_signal(signal.SIGINT)
            return super().exchange(command)

    robot = instead(Watched())
    run("monitor", code=130)
    assert robot.n_closed == 1


# ---- stop ------------------------------------------------------------------------------------------------------------


def test_stop_holds_until_it_is_cleared(run: Run) -> None:
    run("stop --reason", "smoke from motor 220")
    assert EmergencyLatch(default_path()).reason == "smoke from motor 220"
    run("stop")
    assert EmergencyLatch(default_path("second")).reason == ""
    assert "`horde-robot stop --clear --robot second` ends it" in run("stop --robot second").out
    still_set = "that of second is set: `horde-robot stop --clear --robot second` ends it\n"
    cleared = "the emergency stop of critterbot is cleared; it was set: smoke from motor 220\n"
    assert run("stop --clear").out == cleared + still_set
    assert EmergencyLatch(default_path()).reason == ""
    assert EmergencyLatch(default_path("second")).reason
    assert run("stop --clear").out == "no emergency stop of critterbot was set\n" + still_set
    run("stop --clear --robot second")
    assert run("stop --clear").out == "no emergency stop of critterbot was set\n"


def test_a_stop_without_a_name_says_which_robots_it_does_not_stop(run: Run) -> None:
    robot_file.save(RobotFile(kind="create2"), robot_file.default_path("kitchen"))
    out = run("stop").out
    assert "this stops the critterbot only" in out
    assert "`horde-robot stop --robot create2` or `horde-robot stop --robot kitchen`" in out
    assert EmergencyLatch(default_path("create2")).reason == ""
    assert "this stops the" not in run("stop --robot critterbot").out


@pytest.mark.usefixtures("_no_patience")
def test_a_stop_whose_port_is_not_there_is_set_all_the_same(run: Run) -> None:
    assert "there is no port /dev/none" in run("stop --port /dev/none", code=1).err
    assert EmergencyLatch(default_path()).reason


@pytest.mark.usefixtures("_no_patience")
def test_a_stop_that_cannot_be_written_is_sent(
    terminal: Terminal, monkeypatch: pytest.MonkeyPatch, run: Run
) -> None:
    robot_file.save(RobotFile("serial", terminal.path, "none"), robot_file.default_path())
    monkeypatch.setattr(
        "horde_env.hardware.latch.write_whole", raising(PermissionError(13, "Permission denied"))
    )
    assert "Permission denied" in run("stop", code=1).err
    assert terminal.hear(len(FILL) + 9) == FILL + encode_control(HALT)


@pytest.mark.usefixtures("_no_patience")
def test_a_stop_to_a_given_port_is_sent_though_the_robots_file_cannot_be_read(
    terminal: Terminal, run: Run
) -> None:
    path = robot_file.default_path()
    path.parent.mkdir(parents=True)
    path.write_text("port = ")
    assert "is not valid TOML" in run("stop", code=2).err, "neither a port nor a file"
    err = run(f"stop --parity none --port {terminal.path}", code=1).err
    assert terminal.hear(len(FILL) + 9) == FILL + encode_control(HALT)
    assert "is not valid TOML" in err
    assert "the defaults of a critterbot were used for the stop" in err
    assert "nothing answers there" in err


@pytest.mark.parametrize(
    ("shown", "code", "said"),
    [
        ([{}], 0, "the robot answers, and its wheels are at rest"),
        (
            [{"motor_velocity_220": 20}],
            0,
            "the robot answers, and its motors are off, but a wheel still turns",
        ),
        ([{"motor_voltage_220": 20}], 1, "but its motors are still driven: switch the robot off"),
        ([{"motor_voltage_220": 20}, {}], 0, "the robot answers, and its wheels are at rest"),
    ],
    ids=["at rest", "rolling", "driven", "driven a little longer"],
)
def test_a_stop_is_sent_to_the_port_and_motors_and_wheels_are_looked_at(
    shown: list[dict[str, float]],
    code: int,
    said: str,
    terminal: Terminal,
    monkeypatch: pytest.MonkeyPatch,
    run: Run,
) -> None:
    """Velocity 0 brakes; duty 0, which stays, ends even the runaway of a robot that was left in WHEEL_VOLTAGE.

    A duty within a ramp does not end it: the motors are driven for a while longer. One that is
    driven all the same may be on its own way to its dock: its console ends that.
    """
    monkeypatch.setattr(checks, "SETTLE_S", 0.2)
    monkeypatch.setattr(checks, "OFF_S", 0.5)
    coast = encode_control(COAST)
    stand = encode_control(HALT)
    heard = b""

    def answer() -> None:
        nonlocal heard
        heard = terminal.hear(len(FILL) + 27)
        for channels in shown:
            terminal.say(packet_of(**channels))
            time.sleep(0.1)
        if code:
            heard += terminal.hear(9 + len(WAKE) + len(FILL) + 27)

    robot = threading.Thread(target=answer)
    robot.start()
    out, err = run(f"stop --parity none --port {terminal.path}", code=code)
    robot.join()
    stop = FILL + stand + stand + coast
    assert heard == stop + bool(code) * (encode_control(LEAVE) + WAKE + stop)
    assert said in (err if code else out)


@pytest.mark.sim
def test_a_stop_waits_until_the_wheels_of_a_runaway_have_rolled_out(run: Run) -> None:
    """Left with duties of 100, it drives on as fast as its controllers allow; then its wheels roll for a second."""
    with Emulator(seed=0) as robot:
        wake(robot.robot)
        path = robot.open_pty()
        for _ in range(150):  # the voltage cap grows by one per cycle
            robot.robot.receive(encode_control(Control(MotorMode.WHEEL_VOLTAGE, 100, 100, 100)))
            robot.advance(speak=False)
        robot.robot.receive(encode_control(HALT))
        for _ in range(100):
            robot.advance(speak=False)
        assert abs(robot.robot.machine.body.motion.yaw_rate) > 4.0, "it does not stop by itself"
        robot.start()
        assert (
            "the robot answers, and its wheels are at rest"
            in run(f"stop --parity none --port {path}").out
        )
        assert abs(robot.robot.machine.body.motion.yaw_rate) < 0.4, "two units"


def test_a_program_that_drives_confirms_the_stop(
    terminal: Terminal, monkeypatch: pytest.MonkeyPatch, run: Run
) -> None:
    """It holds the port, so that nothing can be sent, but it sees the stop in its next step and says so."""
    latch = EmergencyLatch(default_path())

    def step() -> None:
        until(lambda: latch.reason)
        time.sleep(0.3)  # it is within a step, and that took long
        latch.answer()

    driver = threading.Thread(target=step)
    with open_port(PortConfig(terminal.path, parity="none"), time.monotonic):
        driver.start()
        out, err = run(f"stop --parity none --port {terminal.path}")
        driver.join()
        assert states(out, f"process {os.getpid()}", "stopped")
        assert err == ""
        run("stop --clear")
        monkeypatch.setattr(running, "PATIENCE_S", 0.1)
        err = run(f"stop --parity none --port {terminal.path}", code=1).err
    assert "nothing was sent to the robot" in err
    assert "is in use by another program" in err
    assert "No program has confirmed the emergency stop" in err


# ---- emulate ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("signum", "code"), [(signal.SIGINT, 130), (signal.SIGTERM, 143)])
def test_an_emulator_runs_until_a_signal(
    signum: int, code: int, monkeypatch: pytest.MonkeyPatch, run: Run
) -> None:
    asked: dict[str, Any] = {}

    def serve(**words: Any) -> dict[str, int]:
        asked.update(words)
        words["say"]("serial   /dev/pts/7")
        signal.raise_signal(signum)
        assert words["stop"].is_set()
        return {"loss": 3, "flip": 0}

    monkeypatch.setattr("horde_env.tools.serving.serve", serve)
    out = run("emulate --drops --faults loss=1 --speed 2 --seed 5", code=code).out
    assert out == "serial   /dev/pts/7\nfaults: loss 3\n"
    assert (asked["tcp"], asked["drops"], asked["faults"]) == (None, "", "loss=1")
    assert (asked["speed"], asked["seed"], asked["battery_scale"]) == (2.0, 5, 1.0)


@pytest.mark.slow
@pytest.mark.sim
@pytest.mark.parametrize(("signum", "code"), [(signal.SIGINT, 130), (signal.SIGTERM, 143)])
def test_a_signal_stops_the_wheels_behind_a_real_port(signum: int, code: int) -> None:
    """In real time: a process that drives over a pseudo terminal receives a signal in its first drive."""
    environment = {
        **os.environ,
        "PYTHONPATH": str(Path(cli.__file__).parents[1]),
        "PYTHONUNBUFFERED": "1",
    }
    with Emulator(seed=0) as robot:
        words = [
            "check",
            "--backend",
            "serial",
            "--port",
            robot.open_pty(),
            "--parity=none",
            "--yes",
        ]
        command = [sys.executable, "-m", "horde_env.cli", *words]
        robot.start()
        with subprocess.Popen(
            command, stdout=PIPE, stderr=PIPE, text=True, env=environment
        ) as process:
            # Which is printed after the first drive
            while "forward" not in (line := process.stdout.readline()):
                assert line, process.stderr.read()
            until(lambda: speed_of(robot) > 0.1)  # in the second drive
            process.send_signal(signum)
            assert process.wait(timeout=30) == code
            until(lambda: speed_of(robot) < 0.02)
            assert "a stop was sent to the robot" in process.stderr.read()


def speed_of(robot: Emulator) -> float:
    motion = robot.robot.machine.body.motion
    return math.hypot(motion.vx, motion.vy)
