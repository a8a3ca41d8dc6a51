"""The command `horde bench`: run the sections and print one object or a table."""

from __future__ import annotations

import json
import platform
import sys
from pathlib import Path
from typing import Any

import numba

from horde_agent.bench import KEYS, BenchConfig
from horde_agent.bench.measure import QUICK, THOROUGH
from horde_agent.bench.sections import Bench
from horde_agent.runs.config import BadInput
from horde_agent.runs.keeping.folder import unwritable, writable


def run(config: BenchConfig) -> dict[str, Any]:
    """Measure the chosen sections and print the figures; with `out`, write bench.json and details.json too.

    Returns:
        The object with exactly the keys of `KEYS`, in order; null for a value that was not measured.

    Raises:
        BadInput: If a section is unknown, the folder cannot be written, or `stream` is "simulator" and the simulator
            is not installed.
    """
    sections = config.sections()
    if config.out is not None:
        writable(config.out)  # now, not after minutes of measuring
    answer: dict[str, Any] = dict.fromkeys(KEYS)
    answer |= {"threads": numba.get_num_threads(), "cpu": cpu_name()}
    bench = Bench(QUICK if config.quick else THOROUGH, _say, config.stream)
    if not config.full:
        _say("life: left out, for it takes minutes; --full runs it")
    for name in sections:
        figures: dict[str, float | None] = getattr(bench, name)()
        answer |= {key: _rounded(value) for key, value in figures.items()}
        _say(f"{name}: " + ", ".join(f"{k} {answer[k]}" for k in figures))
    print(json.dumps(answer) if config.json else table(answer), flush=True)
    if config.out is not None:
        try:
            (config.out / "bench.json").write_text(json.dumps(answer, indent=1) + "\n")
            (config.out / "details.json").write_text(json.dumps(bench.details, indent=1) + "\n")
        except OSError as error:
            raise BadInput(unwritable(config.out, error)) from error
    return answer


def table(answer: dict[str, Any]) -> str:
    """Return the figures in lines, those that are missing as a dash."""
    return "\n".join(f"{key:22} {'-' if value is None else value}" for key, value in answer.items())


def cpu_name() -> str:
    """Return what the processor calls itself."""
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
    except OSError:
        lines = []
    names = [line.partition(":")[2].strip() for line in lines if line.startswith("model name")]
    return names[0] if names else platform.processor() or platform.machine()


def _rounded(value: float | None) -> float | None:
    """Return four significant digits; whole numbers stay whole."""
    return value if value is None or isinstance(value, int) else float(f"{value:.4g}")


def _say(words: str) -> None:
    print(f"bench: {words}", file=sys.stderr, flush=True)
