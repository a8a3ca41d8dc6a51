"""Kill a run with SIGKILL at random times and resume it; compare two runs bit for bit."""

from __future__ import annotations

import json
import multiprocessing
import os
import signal
import sys
import time
from collections.abc import Callable
from pathlib import Path
from tempfile import TemporaryDirectory

import numpy as np

from horde_agent import cli
from horde_agent.runs.reporting import report
from horde_agent.scoring import excursion_table

# Each command is a fork of one process that has imported what commands import: that takes longer than a short life.
FORKS = multiprocessing.get_context("forkserver")
FORKS.set_forkserver_preload(
    [
        "tests.agent.kills",
        "horde_agent.cli.learn",
        "horde_env.robots.create2.simulator.backend",
        "horde_env.robots.critterbot.emulator",
    ]
)
SAME = ("learning_curve.csv", "questions.csv", "mspbe_curve.csv", "traces.csv")
LOGS = "log/*.rec"
ROWS = 60_000  # bytes of a record: more than its header, which has no rows


def is_alive(pid: int) -> bool:
    """Return whether a process exists and is not a zombie."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False


def rows_of(run: Path) -> int:
    """Return the size of the rows of a run's record in bytes; a resume writes excursions before its first row."""
    return sum(file.stat().st_size for file in run.glob("log/life*.rec"))


def fold_early() -> None:
    """Let a file of excursions have 64, so that some can be folded in a short life."""
    excursion_table.BLOCK = 64


def run_command(
    words: list[str], messages: Path, prepare: Callable[[], None] | None = None
) -> None:
    """Run a command in this process, with its messages in a file, and exit with its code."""
    if prepare is not None:
        prepare()
    # Pictures of a report take longer than a resume
    report.draw_pictures = lambda *_: []
    with open(os.devnull, "wb") as nothing, open(messages, "wb") as file:
        os.dup2(nothing.fileno(), 1)
        os.dup2(file.fileno(), 2)
    sys.exit(cli.main(words))


def lived_with_kills(
    run: Path,
    words: list[str],
    rng: np.random.Generator,
    kills: int,
    span_s: float,
    growth: int = 0,
    prepare: Callable[[], None] | None = None,
) -> int:
    """Run `horde learn`, kill it up to `kills` times, and resume it until it is done.

    Each kill is at most `span_s` after the record has grown by more than `growth` bytes, of which a
    new one's header is a part; return how many there were. Each process calls `prepare` first.
    """
    n_kills = 0
    while True:
        is_first = not (run / "log" / "life.rec").exists()
        if is_first:
            command = ["learn", *words, "--out", str(run)]
        else:
            command = ["resume", str(run)]
        recorded = rows_of(run)
        began = time.monotonic()
        with TemporaryDirectory() as folder:
            messages = Path(folder) / "messages"
            process = FORKS.Process(target=run_command, args=(command, messages, prepare))
            process.start()
            if n_kills < kills:
                while (
                    process.is_alive()
                    and rows_of(run) <= recorded + growth
                    and time.monotonic() - began < 120.0
                ):
                    time.sleep(0.02)
                process.join(rng.uniform(0.0, span_s))
                if process.is_alive():
                    assert process.pid is not None
                    os.kill(process.pid, signal.SIGKILL)
                    n_kills += 1
            process.join()
            output = messages.read_text()
        # Killed when its tables were written already: there is nothing to resume, and it says so.
        if process.exitcode == 0 or (process.exitcode == 2 and "larger --steps" in output):
            return n_kills
        if process.exitcode not in (1, -signal.SIGKILL):
            raise AssertionError(
                f"horde {' '.join(command)} ended with exit code {process.exitcode}: {output}"
            )


def lasting(path: Path) -> bytes:
    """Return the content of a file of a run without the wall clock, which no two runs share."""
    content = path.read_bytes()
    if path.suffix != ".rec":
        return content
    header = json.loads(content[: content.index(b"\n")])
    fields = [(name, kind, *map(tuple, shape)) for name, kind, *shape in header["dtype"]]
    rows = np.frombuffer(content, np.dtype(fields), offset=header["offset"]).copy()
    for field in ("unix_s", "crc"):  # the latter is of the whole row
        if field in (rows.dtype.names or ()):
            rows[field] = 0
    return rows.tobytes()


def differences(run: Path, other: Path) -> list[str]:
    """Return which results of two lives are not the same to the bit; wall clocks are left out."""
    deviations = []
    summary, another = (json.loads((r / "summary.json").read_text()) for r in (run, other))
    deviations += [
        key
        for key in ("weights_sha256", "steps", "learning_steps", "gaps")
        if summary[key] != another[key]
    ]
    names = {file.relative_to(r) for r in (run, other) for file in r.glob(LOGS)} | {
        Path(name) for name in SAME
    }
    for name in sorted(names):
        one = run / name
        two = other / name
        if not (one.exists() and two.exists() and lasting(one) == lasting(two)):
            deviations.append(str(name))
    return deviations
