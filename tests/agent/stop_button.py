"""Lives of emulated robots behind a pseudo terminal, whose live page's stop button is pressed while they drive.

`python -m tests.agent.stop_button ROBOT N` prints the times from press to rest, of N presses in
each motion and state of the feed.
"""

from __future__ import annotations

import itertools
import json
import math
import os
import re
import shutil
import statistics
import subprocess
import sys
import tempfile
import threading
import time
import urllib.request
from pathlib import Path
from typing import Any, NamedTuple

from horde_env import registry

QUESTIONS = """
[[family]]
policies = ["behaviour"]
gammas = [0.8]
channels = ["rotational_velocity"]
"""
# The command `horde` without pictures in the report at the end of a life, when no press is measured
COMMAND = """
import sys
from horde_agent import cli
from horde_agent.runs.reporting import report
report.draw_pictures = lambda *_: []
sys.exit(cli.main())
"""
FEED_ENDED = "live page updates stopped"
MOVING_M_S = 0.1
MOVING_RAD_S = 0.5
# Below these the Critterbot's sensors show at most one unit, which its own body takes for rest.
REST_M_S = 0.031
REST_RAD_S = 0.35
LOOK_S = 0.005
WINDOW_S = 0.02  # over which a speed is measured
WATCHED_S = 1.5  # at least, from the press on, longer than a stop may take
PARITIES = {"critterbot": ["--parity", "none"], "create2": []}
# A command to the wheels and, as its group, the requested speeds: zeros for a stop
WHEEL_COMMANDS = {
    "critterbot": re.compile(rb"\xde\xad\xbe\xef[\x00-\x02](.{3})", re.DOTALL),
    "create2": re.compile(rb"\x00{4}\x91(.{4})", re.DOTALL),
}


class Pose(NamedTuple):
    """A robot's pose in metres and radians at its own time in seconds."""

    t_s: float
    x_m: float
    y_m: float
    heading_rad: float


class Press(NamedTuple):
    """What followed a press of the stop button.

    Attributes:
        stops_s: Robot times, from the press, of the stops that reached the robot after the last
            command to drive.
        rest_s: Robot time from the press until the robot was at rest, and stayed so. On a machine
            that is too slow for the emulator it is shorter than the time of a clock.
        answer_s: Time from the press until the page's answer.
        answer: The page's answer.
        latches: The emergency stops that are set afterwards, by robot.
        summary: The summary of the life.
        output: What the life printed.
    """

    stops_s: list[float]
    rest_s: float
    answer_s: float
    answer: dict[str, Any]
    latches: dict[str, str]
    summary: dict[str, Any]
    output: str


def start_life(kind: str, folder: Path, port: str) -> subprocess.Popen[bytes]:
    """Start a life with a live page of the robot at a port; its run is in `folder`/run."""
    questions = folder / "questions.toml"
    questions.write_text(QUESTIONS, encoding="utf-8")
    words = f"learn --robot {kind} --backend serial --repeat 0.9 --excursion-probability 0 --watch"
    paths = ["--port", port, "--questions", str(questions), "--out", str(folder / "run")]
    environment = {
        **os.environ,
        "XDG_STATE_HOME": str(folder / "state"),
        "XDG_CONFIG_HOME": str(folder / "config"),
    }
    command = [sys.executable, "-c", COMMAND, *words.split(), *PARITIES[kind], *paths]
    return subprocess.Popen(
        command,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        env=environment,
    )


def press_stop(kind: str, folder: Path, *, motion: str, has_feed: bool) -> Press:
    """Run a life of an emulated robot, press the stop button while it drives, and return what followed.

    Args:
        kind: The robot.
        folder: An empty folder for the run, the settings and the emergency stops.
        motion: "straight" or "turning", at the press.
        has_feed: Whether the live feed works; an error ends it before the press otherwise.
    """
    run = folder / "run"
    with registry.robot(kind).emulator()(seed=1) as emulator:
        port = emulator.open_pty()
        emulator.start()
        process = start_life(kind, folder, port)
        output = Output(process)
        is_over = threading.Event()
        try:
            address = output.wait_for("watch at ").split()[0]
            if not has_feed:
                shutil.rmtree(run / "live")
                (run / "live").write_text("this is no folder", encoding="utf-8")
                output.wait_for(FEED_ENDED)
            await_motion(emulator, motion)
            word = post(f"{address}api/stop")["word"]
            await_motion(emulator, motion)
            received = received_by(emulator)
            poses: list[Pose] = []
            watching = threading.Thread(target=record_poses, args=(emulator, poses, is_over))
            watching.start()
            robot_pressed_s = emulator.t
            pressed_s = time.monotonic()
            answer = post(f"{address}api/stop?word={word}")
            answered_s = time.monotonic()
            assert process.wait(60) == 0, output.text
        finally:
            is_over.set()
            process.kill()
            process.wait()
            output.close()
        watching.join()
    latches = {
        path.stem: path.read_text(encoding="utf-8").strip()
        for path in (folder / "state").rglob("*.stop")
    }
    return Press(
        stops_s=[t_s - robot_pressed_s for t_s in stop_times_s(kind, received)],
        rest_s=rest_time_s(poses) - robot_pressed_s,
        answer_s=answered_s - pressed_s,
        answer=answer,
        latches=latches,
        summary=json.loads((run / "summary.json").read_text(encoding="utf-8")),
        output=output.text,
    )


class Output:
    """The standard error of a process, read in a thread."""

    def __init__(self, process: subprocess.Popen[bytes]) -> None:
        self.text = ""
        self._changed = threading.Condition()
        self._is_over = False
        self._thread = threading.Thread(target=self._read, args=(process.stderr,))
        self._thread.start()

    def wait_for(self, words: str, limit_s: float = 120.0) -> str:
        """Wait until the output contains some words, and return what follows them."""
        with self._changed:
            self._changed.wait_for(lambda: self._is_over or self._has_line(words), limit_s)
            assert words in self.text, self.text
            return self.text.partition(words)[2]

    def close(self) -> None:
        """Wait for the end of the output, after the end of the process."""
        self._thread.join()

    def _has_line(self, words: str) -> bool:
        return "\n" in self.text.partition(words)[2]

    def _read(self, stream: Any) -> None:
        with stream:
            for line in stream:
                with self._changed:
                    self.text += line.decode()
                    self._changed.notify_all()
        with self._changed:
            self._is_over = True
            self._changed.notify_all()


def post(url: str) -> dict[str, Any]:
    """Send a stop request of the page, and return its answer."""
    request = urllib.request.Request(url, method="POST", headers={"X-Horde": "stop"})
    with urllib.request.urlopen(request, timeout=60) as response:
        answer: dict[str, Any] = json.loads(response.read())
    return answer


def pose_of(emulator: Any) -> Pose:
    """Return the emulated robot's true pose now."""
    return Pose(emulator.t, *map(float, emulator.robot.pose))


def speeds_between(first: Pose, second: Pose) -> tuple[float, float]:
    """Return the speed in m/s and the rate of turn in rad/s between two poses."""
    duration_s = second.t_s - first.t_s
    turn_rad = math.remainder(second.heading_rad - first.heading_rad, math.tau)
    distance_m = math.hypot(second.x_m - first.x_m, second.y_m - first.y_m)
    return distance_m / duration_s, abs(turn_rad) / duration_s


def await_motion(emulator: Any, motion: str, limit_s: float = 60.0) -> None:
    """Wait until the robot drives straight on, or turns on the spot, at its full speed."""
    end_s = time.monotonic() + limit_s
    while time.monotonic() < end_s:
        first = pose_of(emulator)
        time.sleep(0.1)
        second = pose_of(emulator)
        if second.t_s - first.t_s < WINDOW_S:
            continue
        speed, rate = speeds_between(first, second)
        is_straight = speed > MOVING_M_S and rate < MOVING_RAD_S
        is_turning = speed < MOVING_M_S and rate > MOVING_RAD_S
        if (motion == "straight" and is_straight) or (motion == "turning" and is_turning):
            return
    raise AssertionError(f"the robot is not {motion} within {limit_s} s")


def received_by(emulator: Any) -> list[tuple[float, bytes]]:
    """Return a list to which the robot appends the robot time of each byte that it receives, and the byte."""
    received: list[tuple[float, bytes]] = []
    receive = emulator.robot.receive

    def record(data: bytes, *errors: int) -> None:
        received.extend((emulator.t, bytes([byte])) for byte in data)
        receive(data, *errors)

    emulator.robot.receive = record
    return received


def stop_times_s(kind: str, received: list[tuple[float, bytes]]) -> list[float]:
    """Return the robot times of the stops after the last command that asks the wheels to turn."""
    times_s: list[float] = []
    for command in WHEEL_COMMANDS[kind].finditer(b"".join(byte for _, byte in received)):
        if any(command.group(1)):
            times_s.clear()
        else:
            times_s.append(received[command.end() - 1][0])
    return times_s


def record_poses(emulator: Any, poses: list[Pose], is_over: threading.Event) -> None:
    """Append the robot's pose every LOOK_S for WATCHED_S, and until its life is over."""
    end_s = time.monotonic() + WATCHED_S
    while time.monotonic() < end_s or not is_over.is_set():
        poses.append(pose_of(emulator))
        time.sleep(LOOK_S)


def rest_time_s(poses: list[Pose]) -> float:
    """Return the time after which the robot's speed stays below that of a robot at rest."""
    rest_s = poses[0].t_s
    first = 0
    for second, pose in enumerate(poses):
        while first + 1 < second and poses[first + 1].t_s <= pose.t_s - WINDOW_S:
            first += 1
        if second == first or pose.t_s - poses[first].t_s < WINDOW_S:
            continue
        speed, rate = speeds_between(poses[first], pose)
        if speed > REST_M_S or rate > REST_RAD_S:
            rest_s = pose.t_s
    return rest_s


def main(kind: str, n_presses: int) -> None:
    """Print the median and the largest time from press to rest."""
    for motion, has_feed in itertools.product(("straight", "turning"), (True, False)):
        presses = []
        for _ in range(n_presses):
            with tempfile.TemporaryDirectory() as folder:
                presses.append(press_stop(kind, Path(folder), motion=motion, has_feed=has_feed))
        rests_s = [press.rest_s for press in presses]
        answers_s = [press.answer_s for press in presses]
        n_confirmed = sum(press.answer["is_confirmed"] for press in presses)
        feed = {True: "with a feed", False: "without a feed"}[has_feed]
        print(
            f"{kind}, {motion}, {feed}: at rest {statistics.median(rests_s):.2f} s after the press (at most "
            f"{max(rests_s):.2f}), confirmed after {statistics.median(answers_s):.2f} s (at most "
            f"{max(answers_s):.2f}), {n_confirmed} of {n_presses}",
            flush=True,
        )


if __name__ == "__main__":
    main(sys.argv[1], int(sys.argv[2]))
