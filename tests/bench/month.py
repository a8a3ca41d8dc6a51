"""What a month weighs: `horde report`, `horde report A B` and the live page of a made-up life of 26 million steps.

    python -m tests.bench.month FOLDER [--steps 26000000] [--whole]

A short life of the planar simulator with the paper's 795 questions is lived, and drawn out to a month: as many
excursions, points of both curves, events and files of the record as a month has at the short life's own rates, their
numbers made up. The oldest files of the record have their line and their size, but no rows on the disk (--whole writes
them, 7 GB): nothing measured here reads them. Then the month is one that was killed before its tables were written, ten
minutes after a snapshot; a whole one also without a snapshot, to be learned from its beginning, which no more than 1 GB
is allowed. Printed: seconds and peak resident memory of each command, in a process of its own; it ends with exit code 1
where one takes more than 30 s or 1 GB.
"""

from __future__ import annotations

import argparse
import csv
import json
import os
import shutil
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import numpy as np

from horde_agent.measures.excursion_file import FORMAT as EXCURSIONS
from horde_agent.record import A_DAY, FORMAT, Recorder, snapshots
from horde_agent.record.segments import encode_header, part, read_pieces, read_segment, sealed
from horde_agent.runs.run_folder import RunFolder
from horde_agent.runs.unfinished import lacks

TEMPLATE_STEPS = 20_000
ROWS_A_SEGMENT = 36_000  # an hour
MOST_S, MOST_MB = 30.0, 1000.0

PAGE = """
import sys, time
from pathlib import Path
from horde_agent.watch.reader import RunReader
began = time.perf_counter()
reader = RunReader(Path(sys.argv[1]))
reader.status(), reader.rows(), reader.curves(), reader.demons("", "nmsre", True, 0, 100)
reader.demon(reader.facts()["questions"][0]["name"])
first = time.perf_counter() - began
reader.status(), reader.rows(), reader.curves()
print(first, time.perf_counter() - began - first)
"""


def lived(folder: Path) -> Path:
    """Live the short life, and return its folder."""
    out = folder / "short"
    if not (out / "summary.json").is_file():
        words = ["learn", "--physics", "planar", "--steps", str(TEMPLATE_STEPS), "--out", str(out)]
        subprocess.run([sys.executable, "-m", "horde_agent.cli", *words], check=True)
    return out


def draw_out(short: Path, out: Path, steps: int, *, whole: bool) -> None:
    """Write the folder of a life of so many steps, as the short one went."""
    (out / "log").mkdir(parents=True)
    for name in ("config.toml", "questions.csv", "traces.csv", "details.json"):
        (out / name).write_bytes((short / name).read_bytes())
    n = _excursions(short, out, steps)
    _record(short, out, steps, whole=whole)
    _curves(short, out, steps, n)
    _events(short, out, steps)
    summary = json.loads((short / "summary.json").read_text())
    summary |= {"steps": steps, "robot_time_s": steps / 10, "n_excursions": n}
    (out / "summary.json").write_text(json.dumps(summary, indent=2))


def _excursions(short: Path, out: Path, steps: int) -> int:
    """Write excursions: those of the short life over and over, each a little other; return how many."""
    known = read_segment(short / "log" / "excursions.rec", EXCURSIONS)
    n, rng = round(len(known.records) * steps / TEMPLATE_STEPS), np.random.default_rng(0)
    with (out / "log" / "excursions.rec").open("xb") as file:
        file.write(encode_header({k: v for k, v in known.header.items() if k not in ("crc", "offset")}))
        for first in range(0, n, len(known.records)):
            some = known.records[: n - first].copy()
            some["step"] += first // len(known.records) * TEMPLATE_STEPS
            for column in ("prediction", "return"):
                some[column] += 0.01 * rng.standard_normal(some[column].shape)
            file.write(sealed(some))
    return n


def _record(short: Path, out: Path, steps: int, *, whole: bool) -> None:
    """Write the files of the record, an hour each; those before the last day and a half in size alone."""
    known = read_segment(short / "log" / "life.rec", FORMAT)
    facts = {k: v for k, v in known.header.items() if k not in ("crc", "offset", "first", "dtype", "format", "version")}
    header = Recorder(known.records["observation"].shape[1], header=facts).header
    hour = np.resize(known.records, ROWS_A_SEGMENT)
    for number, first in enumerate(range(0, steps, ROWS_A_SEGMENT), 1):
        rows = hour[: steps + 1 - first].copy()
        with part(out / "log" / "life.rec", number).open("xb") as file:
            file.write(encode_header({**header, "first": first}))
            if whole or first > steps - 1.5 * A_DAY:
                rows["step"] = first + np.arange(len(rows))
                rows["t"] = rows["step"] / 10
                file.write(sealed(rows))
            else:
                file.truncate(file.tell() + rows.nbytes)


def _curves(short: Path, out: Path, steps: int, n_excursions: int) -> None:
    """Write both curves, their lines over and over."""
    for name, n in (("learning_curve.csv", n_excursions), ("mspbe_curve.csv", steps // 1000)):
        with (short / name).open(newline="") as file:
            head, *lines = csv.reader(file)
        with (out / name).open("x", newline="") as file:
            writer, place = csv.writer(file), head.index("step")
            writer.writerow(head)
            for k in range(n):
                line = list(lines[k % len(lines)])
                line[place] = str(round((k + 1) * steps / n))
                writer.writerow([k + 1, *line[1:]] if head[0] == "excursion" else line)


def _events(short: Path, out: Path, steps: int) -> None:
    """Write events: a snapshot each ten minutes, as a life in real time has them."""
    first, *_ = (short / "log" / "events.jsonl").read_text().splitlines()
    with (out / "log" / "events.jsonl").open("x") as file:
        file.write(first + "\n")
        for step in range(6000, steps, 6000):
            event = {"step": step, "event": "snapshot", "row": step, "time": "2026-11-23T00:04:33+00:00"}
            file.write(json.dumps(event) + "\n")


def kill(short: Path, month: Path, steps: int) -> None:
    """Take the tables away, and put a snapshot of ten minutes before the end there: the short life's, drawn out."""
    folder, at = RunFolder(month), steps - 6_000
    folder.summary.unlink()
    for table in lacks(folder):
        table.unlink(missing_ok=True)
    known = snapshots.read(next(iter(snapshots.found(short / "checkpoint"))))
    began = [int(step) for piece in read_pieces(folder.excursions, EXCURSIONS) for step in piece.records["step"]]
    n = int(np.searchsorted(began, at))
    samples = known.state["sampler/samples"]
    state = known.state | {
        "life/own/steps": np.array(at),
        "life/student/errors/n_in_part": np.array(n),
        "life/student/errors/n_excursions": np.array(n),
        "sampler/next": np.array(at // 1000 * 1000 + 1000),
        "sampler/samples": np.resize(samples, (at // 1000, samples.shape[1])),
    }
    snapshots.write(folder.checkpoint, at, state, known.facts | {"step": at, "n_rows": at, "steps": steps})


def measured(*words: str, cwd: Path | None = None) -> dict[str, Any]:
    """Run Python in a process of its own; return seconds, its peak resident memory in MB, and what it said last."""
    began = time.perf_counter()
    with subprocess.Popen([sys.executable, *words], stdout=subprocess.PIPE, text=True, cwd=cwd) as process:
        assert process.stdout is not None
        said = process.stdout.read()
        _, status, usage = os.wait4(process.pid, 0)
        process.returncode = os.waitstatus_to_exitcode(status)
    if process.returncode:
        raise RuntimeError(f"{words} ended with exit code {process.returncode}")
    return {
        "s": round(time.perf_counter() - began, 1),
        "cpu_s": round(usage.ru_utime + usage.ru_stime, 1),
        "peak_mb": round(usage.ru_maxrss * 1024 / 1e6),
        "said": said.strip()[-120:],
    }


def main() -> int:
    """Make the month where it is not there, and measure."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--steps", type=int, default=26_000_000)
    parser.add_argument("--whole", action="store_true")
    words = parser.parse_args()
    words.folder = words.folder.resolve()
    words.folder.mkdir(parents=True, exist_ok=True)
    short, month = lived(words.folder), words.folder / f"month-{words.steps}"
    if not (month / "summary.json").is_file():
        draw_out(short, month, words.steps, whole=words.whole)
    cli = ("-m", "horde_agent.cli")
    found = {
        "report": measured(*cli, "report", str(month)),
        "report A B": measured(*cli, "report", str(month), str(short), cwd=words.folder),
        "page, at first and again (s)": measured("-c", PAGE, str(month)),
    }
    kill(short, month, words.steps)
    found["report, killed"] = measured(*cli, "report", str(month))
    is_slow = any(one["s"] > MOST_S for one in found.values())
    if words.whole:
        kill(short, month, words.steps)
        shutil.rmtree(month / "checkpoint")
        found["report, killed, no snapshot"] = measured(*cli, "report", str(month))
    print(json.dumps(found, indent=1))
    return int(is_slow or any(one["peak_mb"] > MOST_MB for one in found.values()))


if __name__ == "__main__":
    sys.exit(main())
