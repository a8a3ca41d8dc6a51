"""A life that is killed again and again, and resumed each time, beside the same life that never stopped.

    python -m tests.bench.crashes FOLDER [--kills 200] [--steps 200000] [--span 12] [--seed 0] [--shards N]

Every kill is a SIGKILL at a random moment, to the agent or to the environment's process. In the end weights, learning
curve, questions and record of the two lives must be the same to the bit; otherwise it ends with exit code 1. With
--shards the life that is killed has its demons in so many processes, and the one that never stopped in its own.
"""

from __future__ import annotations

import argparse
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
    """What a life went through.

    Attributes:
        n_kills: How often a process of it was killed.
        n_of_body: How often that was the environment's.
        took_s: How long it lived after each start, in seconds.
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


def rows_of(run: Path) -> int:
    """Return how many bytes a run has recorded."""
    return sum(file.stat().st_size for file in run.glob(LOGS))


def lived_with_kills(run: Path, words: list[str], rng: np.random.Generator, kills: int, span_s: float) -> Killed:
    """Live a life that is killed up to so many times, each time after up to `span_s` seconds of living.

    Args:
        run: Its folder.
        words: Of `horde learn`.
        rng: When, and which process.
        kills: How often.
        span_s: Longest time from the moment that something new is recorded to the next kill.
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
            said = process.stderr.read()
        took_s.append(time.monotonic() - began)
        # Killed when its tables were written already: there is nothing to resume, and it says so.
        if process.returncode == 0 or (process.returncode == 2 and "name more by --steps" in said):
            return Killed(n_kills, n_of_body, took_s)
        if process.returncode not in (1, -signal.SIGKILL):
            raise AssertionError(f"{' '.join(line)} ended with exit code {process.returncode}: {said}")


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


def main(arguments: list[str]) -> int:
    """Live both lives and compare them."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--kills", type=int, default=200)
    parser.add_argument("--steps", type=int, default=200_000)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--span", type=float, default=12.0, help="seconds between two kills, at most")
    parser.add_argument("--snapshot-every", default="5s")
    parser.add_argument("--shards", type=int)
    asked = parser.parse_args(arguments)
    asked.folder.mkdir(parents=True, exist_ok=True)
    words = ["--steps", str(asked.steps), "--seed", str(asked.seed), "--snapshot-every", asked.snapshot_every]
    rng = np.random.default_rng(asked.seed)
    shards = [] if asked.shards is None else ["--shards", str(asked.shards)]
    killed = lived_with_kills(asked.folder / "killed", [*words, *shards], rng, asked.kills, asked.span)
    subprocess.run(command("learn", *words, "--out", str(asked.folder / "whole")), check=True)
    found = differences(asked.folder / "killed", asked.folder / "whole")
    print(f"{killed.n_kills} kills ({killed.n_of_body} of the environment's process) in {sum(killed.took_s):.0f} s")
    print(f"not the same: {', '.join(found)}" if found else "the same life, bit for bit")
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
