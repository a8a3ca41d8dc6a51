"""Write the run folders of this version to tests/folders/VERSION: `python -m tests.folders` before a release.

One small run of each source, learned with different engines; tests read those of every version.
"""

from __future__ import annotations

import io
import lzma
import os
import signal
import sys
import tarfile
import tempfile
import threading
import time
from contextlib import chdir
from pathlib import Path

import numpy as np

from horde_agent import cli
from horde_agent.processes import own_version
from horde_agent.runs.reporting import report
from tests.agent.commands import QUESTIONS

HERE = Path(__file__).parent
COLUMNS = """
actions = ["left", "right"]
period_s = 0.1
action = "a"
b = "p"
[[channel]]
column = "x"
low = 0.0
high = 1.0
"""
BATTERY = """
[[family]]
policies = ["behaviour"]
gammas = [0.0, 0.8]
channels = ["battery_voltage", "battery_current"]
"""
CONTROL = """
[[control]]
name = "balance"
reward = true
gamma = 0.9

[[family]]
policies = ["action_0", "behaviour"]
gammas = [0.0, 0.8]
channels = ["obs_0"]
"""
TWO_RULES = (
    QUESTIONS
    + """
[[family]]
policies = ["forward"]
gammas = [0.5]
channels = ["light_0"]
algorithm = "tdrc"
"""
)
FEW = "--horizon 12 --snapshot-every never"
LIVES = {
    "critterbot": f"--physics planar --steps 100 --excursion-probability 0.1 --questions own.toml {FEW}",
    "create2": f"--robot create2 --steps 80 --paper --trace-rule capped --questions battery.toml {FEW}",
    "env": f"--env CartPole-v1 --steps 120 --questions control.toml {FEW}",
    "data": "--data table.csv --columns columns.toml --passes 60 --horizon 12 --snapshot-every 0.1s",
    "stream": "- --columns columns.toml --horizon 12",
    "shards": f"--physics planar --steps 60 --shards 2 --questions two_rules.toml {FEW}",
}
"""Options of `horde learn` by the name of the folder."""


def table_lines(seed: int) -> list[str]:
    """Return a table of 300 rows: a random reading, and an action with its probability."""
    rng = np.random.default_rng(seed)
    lines = ["x,a,p"]
    for x, a in zip(rng.random(300).round(3), rng.integers(2, size=300), strict=True):
        lines.append(f"{x},{a},0.5")
    return lines


def write_inputs(folder: Path) -> None:
    """Write the question files and the table that the lives learn from."""
    (folder / "own.toml").write_text(QUESTIONS)
    (folder / "two_rules.toml").write_text(TWO_RULES)
    (folder / "control.toml").write_text(CONTROL)
    (folder / "battery.toml").write_text(BATTERY)
    (folder / "columns.toml").write_text(COLUMNS)
    (folder / "table.csv").write_text("\n".join(table_lines(seed=0)) + "\n")


def stop_early(run: Path) -> None:
    """Press Ctrl-C after the first snapshot, so that there are rows left to learn from."""
    while not list(run.glob("checkpoint/[0-9]*")):
        time.sleep(0.005)
    os.kill(os.getpid(), signal.SIGINT)


def packed(run: Path) -> bytes:
    """Return a folder as a .tar.xz, without pages, pictures and times."""
    content = io.BytesIO()
    with tarfile.open(fileobj=content, mode="w") as archive:
        for path in sorted(run.rglob("*")):
            if path.suffix in (".html", ".png") or path.name == ".lock" or not path.is_file():
                continue
            entry = tarfile.TarInfo(f"{run.name}/{path.relative_to(run)}")
            entry.size = path.stat().st_size
            archive.addfile(entry, io.BytesIO(path.read_bytes()))
    return lzma.compress(content.getvalue(), preset=9 | lzma.PRESET_EXTREME)


def main() -> None:
    report.draw_pictures = lambda *_: []
    place = HERE / own_version().partition(".dev")[0]
    place.mkdir(exist_ok=True)
    # Relative names: a stored folder says nothing of the machine that wrote it
    with tempfile.TemporaryDirectory() as elsewhere, chdir(elsewhere):
        folder = Path()
        write_inputs(folder)
        for name, options in LIVES.items():
            if name == "stream":
                sys.stdin = (folder / "table.csv").open()
            code = 0
            if name == "data":
                code = 130
                threading.Thread(target=stop_early, args=(folder / name,), daemon=True).start()
            if cli.main(["learn", *options.split(), "--out", name]) != code:
                raise SystemExit(f"the life {name} failed")
            file = place / f"{name}.tar.xz"
            file.write_bytes(packed(folder / name))
            print(f"{file.relative_to(HERE)}: {file.stat().st_size:,} bytes")


if __name__ == "__main__":
    main()
