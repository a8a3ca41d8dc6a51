"""kill -9 of the life, and of its guardian, while the robot drives: how long its wheels turn on. In real time.

The robot is emulated in this process; the life is `horde learn --robot create2 --backend serial`, as for a real one.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import psutil

from horde_env.robots.create2.emulator import CreateEmulator
from tests.bench.lives import spread

LIMIT_S = 0.6
STARTING_S, GIVEN_UP_S, POLL_S = 180.0, 10.0, 0.002
DRIVING_S = 0.3  # for so long it must have driven before it is killed


def kills(n: int, *, seed: int = 0) -> dict[str, Any]:
    """Kill lives and guardians, `n` of each, and return how long the wheels turned on, the checks first."""
    rng = np.random.default_rng(seed)
    stopped_s: dict[str, list[float]] = {"life": [], "guardian": []}
    left = 0
    with CreateEmulator(seed=seed) as emulator, tempfile.TemporaryDirectory() as folder:
        url = emulator.open_pty()
        emulator.start()
        firmware = emulator.robot.firmware
        for k in range(n):
            # The last life outlives its guardians.
            life = begin_life(url, Path(folder) / f"run-{k}")
            try:
                guardian = await_driving(life, firmware, rng)
                if k == n - 1:
                    for _ in range(n):
                        stopped_s["guardian"].append(kill(guardian.pid, firmware))
                        guardian = await_driving(life, firmware, rng)
                stopped_s["life"].append(kill(life.pid, firmware))
                left += psutil.wait_procs([guardian], 5.0)[1] != []
            finally:
                life.kill()
                life.wait()
            print(f"{k + 1} lives killed: {stopped_s['life'][-1]:.3f} s", file=sys.stderr, flush=True)
    checks = {
        "each life and each guardian was killed": all(len(times) == n for times in stopped_s.values()),
        f"motors stopped within {LIMIT_S} s of every loss": all(max(times) <= LIMIT_S for times in stopped_s.values()),
        "no guardian outlived its life": left == 0,
    }
    return {
        "failed": [name for name, is_well in checks.items() if not is_well],
        "checks": checks,
        "stopped_s": {victim: spread(times) for victim, times in stopped_s.items()},
        "of_each": {victim: [round(s, 3) for s in times] for victim, times in stopped_s.items()},
        "emulator_slips": emulator.n_slips,
    }


def begin_life(url: str, folder: Path) -> subprocess.Popen[bytes]:
    """Begin a life on a robot at the end of a line."""
    words = ["learn", "--robot", "create2", "--backend", "serial", "--port", url, "--steps", "36000"]
    return subprocess.Popen(
        [sys.executable, "-m", "horde_agent.cli", *words, "--out", str(folder)],
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )


def await_driving(life: subprocess.Popen[bytes], firmware: Any, rng: np.random.Generator) -> psutil.Process:
    """Wait until the robot has been driven for a moment, then for another of 0..1 s; return the life's guardian."""
    wait_for(lambda: life.poll() is not None or bool(firmware.is_driven), STARTING_S)
    assert life.poll() is None, f"the life ended by itself, with code {life.returncode}"
    time.sleep(DRIVING_S + float(rng.uniform(0.0, 1.0)))
    wait_for(lambda: bool(firmware.is_driven), STARTING_S)
    (guardian,) = (
        child for child in psutil.Process(life.pid).children(recursive=True)
        if any(word.endswith("guardian.py") for word in child.cmdline())
    )  # fmt: skip
    return guardian


def kill(pid: int, firmware: Any) -> float:
    """Kill a process while the wheels turn; return for how long they were told to turn on, in seconds."""
    wait_for(lambda: bool(firmware.is_driven), STARTING_S)
    os.kill(pid, signal.SIGKILL)
    began = time.monotonic()
    wait_for(lambda: not firmware.is_driven, GIVEN_UP_S)
    return time.monotonic() - began


def wait_for(what: Callable[[], bool], limit_s: float) -> None:
    """Wait until something is so.

    Raises:
        TimeoutError: If that takes longer than the limit.
    """
    end = time.monotonic() + limit_s
    while not what():
        if time.monotonic() > end:
            raise TimeoutError(f"it did not happen within {limit_s:g} s")
        time.sleep(POLL_S)
