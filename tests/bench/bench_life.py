"""Whole lives by the command that a user types: wall time, steps per second, peak memory, learning time per step."""

from __future__ import annotations

import json
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import psutil


def life(steps: int, out: Path, *words: str) -> dict[str, Any]:
    """Run `horde learn` for `steps` in another process; its peak RSS is sampled twice a second."""
    command = [sys.executable, "-m", "horde_agent.cli", "learn", f"--steps={steps}", "--seed=0", f"--out={out}", *words]
    began, peak = time.perf_counter(), 0
    with psutil.Popen(command, stdout=-3, stderr=-3) as process:
        while process.poll() is None:
            with process.oneshot():
                peak = max(peak, process.memory_info().rss)
            time.sleep(0.5)
        if process.returncode:
            raise RuntimeError(f"horde learn ended with exit code {process.returncode}: {' '.join(command)}")
    summary = json.loads((out / "summary.json").read_text())
    return {
        "steps": steps,
        "end_to_end_s": time.perf_counter() - began,
        "peak_rss_mb": peak / 1e6,
        **{key: summary[key] for key in ("steps_per_s", "learn_ms", "mean_nmsre", "median_nmsre", "diverged")},
    }


def main() -> dict[str, Any]:
    """Measure 20,000 steps and the paper's 7.3 hours (261,681 steps), kernels compiled before."""
    with tempfile.TemporaryDirectory() as folder:
        life(200, Path(folder) / "warm")
        return {f"life_{n}": life(n, Path(folder) / str(n)) for n in (20_000, 261_681)}


if __name__ == "__main__":
    print(json.dumps(main(), indent=2))
