"""A robot stops soon after its program has ended: in real time, with real threads, processes and signals."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import serial

from horde_env.clock import RealTimeClock
from horde_env.robots.critterbot.body import SerialBody
from horde_env.robots.critterbot.wire import COAST, drive
from tests.env.hardware.packets import SPEC
from tests.env.hardware.peers import LIMIT_S, config, until
from tests.env.hardware.virtual import FORWARD, VirtualRobot

pytestmark = pytest.mark.hardware

RNG = np.random.default_rng(0)
ASKED = drive(FORWARD, SPEC)
RAMP_S = 0.19  # the fastest wheel at forward does 19 units, one in 10 ms
# From the last command to rest: it acts in its cycle, and the 50th begins the ramp
ALONE_S = 0.5 + RAMP_S - 0.02


@pytest.fixture
def robot(robot: VirtualRobot) -> VirtualRobot:
    robot.firmware.command(*ASKED[:4])
    robot.sleep(1.0)  # which compiles the firmware, before there is a deadline
    robot.speeds.clear()
    robot.url = robot.line.open_pty()
    robot.line.start()
    return robot


def stood_still_at(robot: VirtualRobot, after: float) -> float:
    """Wait for the wheels to stand still for good after a time, and return since when they do, in robot time."""
    until(lambda: robot.now > after + 1.2)
    moving = [t for t, speeds in robot.speeds if any(speeds)]
    assert moving, "it never moved"
    return moving[-1] + 0.01


@pytest.mark.slow  # in real time
def test_a_program_that_hangs_is_not_driven_on(robot: VirtualRobot) -> None:
    """Repeated at 10 Hz or more, stopped 0.35 s after the last exchange, at rest 0.2 s later: within 0.6 s."""
    clock = RealTimeClock(SPEC.period_s)
    body = SerialBody(config(robot.url), clock)
    body.reset(RNG)
    for _ in range(4):
        clock.begin()
        asked_t = robot.now
        body.exchange(FORWARD)
    until(lambda: body._link is not None and body._link._keep_alive.lapsed)
    rest_t = stood_still_at(robot, robot.now)
    heard = [t for t, control in robot.received if control == ASKED]

    assert max(np.diff(heard)) <= 0.1
    assert rest_t - asked_t < 0.65  # 0.35 + 0.2, and what a busy machine adds
    assert robot.received[-1][1] == COAST
    clock.begin()
    assert not body.exchange(FORWARD).applied
    clock.begin()
    assert body.exchange(FORWARD).applied
    body.close()


@pytest.mark.slow  # in real time
def test_no_step_waits_for_a_reconnection(robot: VirtualRobot) -> None:
    """Opening the port again takes a second, and no step does: its frames are stale and not applied."""
    opened: list[str] = []

    def connect(url: str, **rest: Any) -> Any:
        if opened:
            time.sleep(1.0)
        opened.append(url)
        return serial.serial_for_url(url, **rest)

    clock = RealTimeClock(SPEC.period_s)
    body = SerialBody(config(robot.url), clock, connect=connect)
    body.reset(RNG)
    frames = []
    took_s = []
    for i in range(25):
        if i == 5:
            robot.line.inject("unplug", 0.2)
        clock.begin()
        begin = time.monotonic()
        frames.append(body.exchange(FORWARD))
        took_s.append(time.monotonic() - begin)
    stats = body.stats
    body.close()

    assert max(took_s) < 0.6  # 0.1, and what a busy machine adds
    assert all(frame.stale and not frame.applied for frame in frames[7:14])
    assert sum(frame.gap for frame in frames[7:]) >= 1
    assert frames[-1].applied
    assert (stats.losses, stats.reconnects) == (1, 1)


SLOWLY = ("end", "raise", "SIGTERM", "SIGKILL")
SCRIPT = """
import os, signal, sys
import horde_env

signal.signal(signal.SIGINT, signal.default_int_handler)  # a parent in the background hands down that it is ignored

env = horde_env.make_serial_env(port=sys.argv[1], parity="none")
env.reset()
for i in range(1_000):
    env.step(0)
    if i == 3 and sys.argv[2] == "end":
        break
    if i == 3 and sys.argv[2] == "raise":
        raise RuntimeError("a bug in the agent")
    if i == 3:
        print("driving", flush=True)
"""


@pytest.mark.parametrize(
    "how", ["SIGINT", *(pytest.param(how, marks=pytest.mark.slow) for how in SLOWLY)]
)
def test_a_program_that_is_gone_leaves_a_robot_at_rest(
    robot: VirtualRobot, how: str, tmp_path: Path
) -> None:
    """Without `close`. If Python still runs, it sends the stop; else the robot's 0.5 s timeout stops it."""
    environment = {
        **os.environ,
        "XDG_STATE_HOME": str(tmp_path / "state"),
        "PYTHONPATH": os.getcwd(),
    }
    arguments = [sys.executable, "-c", SCRIPT, robot.url, how]
    with subprocess.Popen(
        arguments, env=environment, stdout=subprocess.PIPE, stderr=subprocess.PIPE
    ) as program:
        if how.startswith("SIG"):
            assert program.stdout.readline() == b"driving\n"
            until(lambda: any(control == ASKED for _, control in robot.received))
            program.send_signal(signal.Signals[how])
        errors = program.communicate(timeout=LIMIT_S)[1].decode()
    rest_t = stood_still_at(robot, robot.now)
    asked_t = max(t for t, control in robot.received if control == ASKED)

    says_stop = how in ("end", "raise", "SIGINT")
    assert (robot.received[-1][1] == COAST) == says_stop, errors
    if says_stop:
        # A period, the ramp, and what a busy machine adds
        assert rest_t - asked_t < 0.1 + RAMP_S + 0.2
    else:
        assert rest_t - asked_t == pytest.approx(ALONE_S)
