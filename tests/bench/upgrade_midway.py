"""Stop a run under one Python and resume it under another: `python -m tests.bench.upgrade_midway ONE OTHER`.

ONE and OTHER are Python interpreters with the packages that this one needs, each followed by the
folder of a clone if that is not this one: `python3.11@/old/clone python3.13`. A life of the simulated
Critterbot, a run on a table and one on a stream are each learned by ONE alone, and again, with the
second half by OTHER; words after OTHER choose among `life`, `table` and `stream`. Prints what both are
made of, whether the weights are the same to the bit, and otherwise the first test whose predictions
differ, and by how much.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import NamedTuple

import numpy as np

from horde_agent.record import read, snapshots
from horde_agent.scoring.excursion_table import ExcursionTable

ROOT = Path(__file__).resolve().parents[2]
STEPS = 40_000
LIFE = "--physics planar --questions excursions --snapshot-every never --seed 0"
ROWS = "--columns columns.toml --questions questions.toml --snapshot-every never --horizon 100 --seed 0"
N_SENSORS = 12
CALL = "import sys; from horde_agent import cli; sys.exit(cli.main(sys.argv[1:]))"


class Program(NamedTuple):
    """An interpreter and a clone."""

    python: str
    clone: Path

    @classmethod
    def of(cls, text: str) -> Program:
        python, _, clone = text.partition("@")
        return cls(python, Path(clone or ROOT))

    def run(self, words: str, folder: Path, rows: Path | None = None) -> None:
        """Run a command of `horde` in a folder, with rows on standard input; raise CalledProcessError if it fails."""
        environment = {**os.environ, "PYTHONPATH": str(self.clone)}
        lines = b""
        if rows is not None:
            lines = rows.read_bytes()
        subprocess.run(
            [self.python, "-c", CALL, *words.split()],
            cwd=folder,
            env=environment,
            input=lines,
            check=True,
            stdout=subprocess.DEVNULL,
        )


def excursions(run: Path) -> np.ndarray:
    """Return the predictions of all excursions, shape (n_excursions, n_tested), and their steps in the first column."""
    rows = np.concatenate(list(ExcursionTable.read(run / "log" / "excursions.rec")))
    return np.column_stack([rows["step"], rows["prediction"]])


def write_rows(folder: Path) -> None:
    """Write the rows of a plant with two actions, in two tables, and their columns."""
    rng = np.random.default_rng(0)
    actions = (rng.random(STEPS) < 0.75).astype(int)
    readings = np.zeros((STEPS, N_SENSORS))
    for t in range(1, STEPS):
        push = actions[t - 1] * np.linspace(0.2, 1.0, N_SENSORS)
        readings[t] = 0.95 * readings[t - 1] + 0.05 * push
    readings = np.clip(readings + rng.normal(0.0, 0.02, readings.shape), 0.0, 1.0).round(4)
    names = [f"sensor_{i}" for i in range(N_SENSORS)]
    columns = [
        "period_s = 0.1",
        'time = "t"',
        'action = "a"',
        'b = "p"',
        'actions = ["close", "open"]',
    ]
    for name in names:
        columns += ["[[channel]]", f'column = "{name}"', "low = 0.0", "high = 1.0"]
    (folder / "columns.toml").write_text("\n".join(columns))
    questions = [
        "[[family]]",
        'policies = ["close", "open", "behaviour"]',
        "gammas = [0.0, 0.8, 0.95]",
    ]
    (folder / "questions.toml").write_text("\n".join(questions))
    header = ",".join(["t", "a", "p", *names])
    lines = []
    for t, (action, cells) in enumerate(zip(actions, readings, strict=True)):
        b = 0.75 if action else 0.25
        lines.append(",".join(map(str, [t / 10, action, b, *cells])))
    half = STEPS // 2
    for name, part in (("first", lines[:half]), ("second", lines[half:])):
        (folder / f"{name}.csv").write_text("\n".join([header, *part]) + "\n")


def live(folder: Path, first: Program, second: Program, out: str) -> None:
    """Live a life, its second half by another program."""
    first.run(f"learn {LIFE} --steps {STEPS // 2} --out {out}", folder)
    second.run(f"resume {out} --steps {STEPS}", folder)


def learn_tables(folder: Path, first: Program, second: Program, out: str) -> None:
    """Learn from two tables, the second one by another program."""
    first.run(f"learn --data first.csv {ROWS} --out {out}", folder)
    second.run(f"resume {out} --data second.csv", folder)


def learn_stream(folder: Path, first: Program, second: Program, out: str) -> None:
    """Learn from a stream, its second half by another program."""
    first.run(f"learn - {ROWS} --out {out}", folder, folder / "first.csv")
    second.run(f"resume {out} --data -", folder, folder / "second.csv")


KINDS: dict[str, Callable[[Path, Program, Program, str], None]] = {
    "life": live,
    "table": learn_tables,
    "stream": learn_stream,
}


def main(one: Program, other: Program, kinds: Sequence[str]) -> None:
    for kind in kinds or KINDS:
        with tempfile.TemporaryDirectory() as temporary:
            folder = Path(temporary)
            write_rows(folder)
            print(f"-- {kind}", flush=True)
            KINDS[kind](folder, one, one, "alone")
            print("one  ", identity_in(folder / "alone"), flush=True)
            KINDS[kind](folder, one, other, "switched")
            print("other", identity_in(folder / "switched"))
            compare(folder / "alone", folder / "switched")


def compare(alone: Path, switched: Path) -> None:
    """Print where two runs differ first."""
    digests = [
        json.loads((run / "summary.json").read_text())["weights_sha256"]
        for run in (alone, switched)
    ]
    print(f"weights after {STEPS:,} steps equal to the bit: {digests[0] == digests[1]}")
    rows = [read(run / "log" / "life.rec").rows for run in (alone, switched)]
    for name in ("observation", "action", "b"):
        print(f"{name} of all rows equal: {rows[0][name].tobytes() == rows[1][name].tobytes()}")
    first = excursions(alone)
    second = excursions(switched)
    is_equal = (first == second) | (np.isnan(first) & np.isnan(second))
    differs = np.flatnonzero(~is_equal.all(axis=1))
    if not differs.size:
        print(f"predictions of all {len(first):,} tests equal to the bit")
        return
    where = int(differs[0])
    ratio = np.abs(second - first)[:, 1:] / np.maximum(np.abs(first[:, 1:]), 1e-9)
    print(
        f"first difference in the test at step {int(first[where, 0]):,}, by {np.nanmax(ratio[where]):.1e} of the "
        f"prediction at most; in the last test by {np.nanmax(ratio[-1]):.1e}"
    )


def identity_in(run: Path) -> str:
    """Return by what the newest snapshot of a run was written."""
    newest, *_ = snapshots.found(run / "checkpoint")
    facts = snapshots.read_facts(newest)
    values = {**facts, **facts.get("versions", {})}
    names = ("version", "python", "numba", "numpy", "processor")
    return ", ".join(f"{name} {values.get(name)}" for name in names)


if __name__ == "__main__":
    main(Program.of(sys.argv[1]), Program.of(sys.argv[2]), sys.argv[3:])
