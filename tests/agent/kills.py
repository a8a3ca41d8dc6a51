"""Kill a run with SIGKILL at random times and resume it; compare two runs bit for bit."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import NamedTuple

import numpy as np

SAME = ("learning_curve.csv", "questions.csv", "mspbe_curve.csv", "traces.csv")
LOGS = "log/*.rec"


class Killed(NamedTuple):
    """The kills of one run.

    Attributes:
        n_kills: Kills of the agent's or the environment's process.
        n_of_body: Kills of the environment's process.
        took_s: Time from each start to its end, in seconds.
    """

    n_kills: int
    n_of_body: int
    took_s: list[float]


def command(*words: str) -> list[str]:
    """Return the command line of `horde`."""
    return [sys.executable, "-m", "horde_agent.cli", *words]


def children(pid: int) -> list[int]:
    """Return the processes that a process has started."""
    path = Path(f"/proc/{pid}/task/{pid}/children")
    return [int(word) for word in path.read_text().split()] if path.exists() else []


def is_alive(pid: int) -> bool:
    """Return whether a process exists and is not a zombie."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False


def rows_of(run: Path) -> int:
    """Return the size of a run's record in bytes."""
    return sum(file.stat().st_size for file in run.glob(LOGS))


def lived_with_kills(run: Path, words: list[str], rng: np.random.Generator, kills: int, span_s: float) -> Killed:
    """Run `horde learn` and kill it `kills` times, each time after up to `span_s` seconds.

    Args:
        run: Its folder.
        words: Of `horde learn`.
        rng: Draws the times and the processes.
        kills: Number of kills.
        span_s: Longest time from a new record to the next kill.
    """
    n_kills = n_of_body = 0
    took_s: list[float] = []
    while True:
        is_first = not (run / "log" / "life.rec").exists()
        line = command("learn", *words, "--out", str(run)) if is_first else command("resume", str(run))
        recorded, began = rows_of(run), time.monotonic()
        with subprocess.Popen(line, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True) as process:
            if n_kills < kills:
                while process.poll() is None and rows_of(run) <= recorded and time.monotonic() - began < 120.0:
                    time.sleep(0.02)
                with_s = rng.uniform(0.0, span_s)
                try:
                    process.wait(with_s)
                except subprocess.TimeoutExpired:
                    body = children(process.pid)
                    if body and rng.random() < 0.3:
                        n_of_body += 1
                        os.kill(body[0], signal.SIGKILL)
                    else:
                        process.kill()
                    n_kills += 1
            assert process.stderr is not None
            output = process.stderr.read()
        took_s.append(time.monotonic() - began)
        # Killed when its tables were written already: there is nothing to resume, and it says so.
        if process.returncode == 0 or (process.returncode == 2 and "larger --steps" in output):
            return Killed(n_kills, n_of_body, took_s)
        if process.returncode not in (1, -signal.SIGKILL):
            raise AssertionError(f"{' '.join(line)} ended with exit code {process.returncode}: {output}")


def differences(run: Path, other: Path) -> list[str]:
    """Return which results of two lives are not the same to the bit."""
    found = []
    summary, another = (json.loads((r / "summary.json").read_text()) for r in (run, other))
    found += [key for key in ("weights_sha256", "steps", "learning_steps", "gaps") if summary[key] != another[key]]
    names = {file.relative_to(r) for r in (run, other) for file in r.glob(LOGS)} | {Path(name) for name in SAME}
    for name in sorted(names):
        one, two = run / name, other / name
        if not (one.exists() and two.exists() and one.read_bytes() == two.read_bytes()):
            found.append(str(name))
    return found
