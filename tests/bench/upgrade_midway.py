"""Stop a life under one Python and resume it under another: `python -m tests.bench.upgrade_midway ONE OTHER`.

ONE and OTHER are Python interpreters with the packages that this one needs, each followed by the
folder of a clone if that is not this one: `python3.11@/old/clone python3.13`. A life of the
simulated Critterbot is lived by ONE alone, and again, with the second half by OTHER. Prints what both
are made of, whether the weights are the same to the bit, and otherwise the first excursion whose
predictions differ, and by how much.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import NamedTuple

import numpy as np

from horde_agent.record import read, snapshots
from horde_agent.scoring.excursion_table import ExcursionTable

ROOT = Path(__file__).resolve().parents[2]
STEPS = 40_000
LIFE = "--physics planar --questions excursions --snapshot-every never --seed 0"
CALL = "import sys; from horde_agent import cli; sys.exit(cli.main(sys.argv[1:]))"


class Program(NamedTuple):
    """An interpreter and a clone."""

    python: str
    clone: Path

    @classmethod
    def of(cls, text: str) -> Program:
        python, _, clone = text.partition("@")
        return cls(python, Path(clone or ROOT))

    def run(self, *words: str) -> None:
        """Run a command of `horde`; raise CalledProcessError if it fails."""
        environment = {**os.environ, "PYTHONPATH": str(self.clone)}
        command = [self.python, "-c", CALL, *words]
        subprocess.run(
            command, cwd=self.clone, env=environment, check=True, capture_output=True, text=True
        )


def excursions(run: Path) -> np.ndarray:
    """Return the predictions of all excursions, shape (n_excursions, n_tested), and their steps in the first column."""
    rows = np.concatenate(list(ExcursionTable.read(run / "log" / "excursions.rec")))
    return np.column_stack([rows["step"], rows["prediction"]])


def main(one: Program, other: Program) -> None:
    with tempfile.TemporaryDirectory() as folder:
        alone = Path(folder) / "alone"
        switched = Path(folder) / "switched"
        one.run("learn", *LIFE.split(), "--steps", str(STEPS), "--out", str(alone))
        one.run("learn", *LIFE.split(), "--steps", str(STEPS // 2), "--out", str(switched))
        (snapshot,) = snapshots.found(switched / "checkpoint")
        print("one  ", identity_in(snapshot))
        other.run("resume", str(switched), "--steps", str(STEPS))
        print("other", identity_in(next(snapshots.found(switched / "checkpoint"))))
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
            print(f"predictions of all {len(first):,} excursions equal to the bit")
            return
        where = int(differs[0])
        ratio = np.abs(second - first)[:, 1:] / np.maximum(np.abs(first[:, 1:]), 1e-9)
        print(
            f"first difference in the excursion at step {int(first[where, 0]):,}, by {np.nanmax(ratio[where]):.1e} of "
            f"the prediction at most; in the last excursion by {np.nanmax(ratio[-1]):.1e}"
        )


def identity_in(snapshot: Path) -> str:
    facts = snapshots.read_facts(snapshot)
    names = ("version", "python", "numba", "numpy", "processor")
    return ", ".join(f"{name} {facts[name]}" for name in names)


if __name__ == "__main__":
    main(*map(Program.of, sys.argv[1:]))
