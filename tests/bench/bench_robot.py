"""Ten minutes in real time over the serial line of a robot emulated in another process, with 795 questions.

    python -m tests.bench.bench_robot [--minutes 10]

Prints one JSON object. Absolute times depend on the machine and its neighbours.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from tests.bench.bench_life import life


def in_real_time(minutes: float) -> dict[str, Any]:
    """Run `horde learn` at 10 Hz over the pseudo terminal of a robot emulated in another process."""
    with emulated() as port, tempfile.TemporaryDirectory() as folder:
        out = Path(folder) / "run"
        life(round(600 * minutes), out, "--backend=serial", f"--port={port}", "--parity=none")
        summary, details = (json.loads((out / name).read_text()) for name in ("summary.json", "details.json"))
        return summary | {name: details[name] for name in ("sensor_age_ms", "overrun_ms", "n_not_applied")}


@contextmanager
def emulated() -> Iterator[str]:
    """Run `horde-robot emulate` and yield the path of its pseudo terminal."""
    command = [sys.executable, "-u", "-m", "horde_env.cli", "emulate", "--seed", "0"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        try:
            assert process.stdout is not None
            for line in process.stdout:
                kind, _, rest = line.partition(" ")
                if kind == "serial":
                    yield rest.split()[0]
                    break
            else:
                raise RuntimeError(f"no serial line from {' '.join(command)}: exit code {process.wait()}")
        finally:
            process.terminate()


if __name__ == "__main__":
    parser = argparse.ArgumentParser(prog="python -m tests.bench.bench_robot")
    parser.add_argument("--minutes", type=float, default=10.0)
    print(json.dumps(in_real_time(parser.parse_args().minutes)))
