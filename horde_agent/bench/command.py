"""The command `horde bench`: sections in turn, one object, a table or a page."""

from __future__ import annotations

import json
import platform
import sys
from pathlib import Path
from typing import Any

import numba
import numpy as np

from horde_agent.bench.config import KEYS, BenchConfig
from horde_agent.bench.curves import curves
from horde_agent.bench.estimates import estimates
from horde_agent.bench.measure import QUICK, THOROUGH, Neighbours
from horde_agent.bench.page import write_page
from horde_agent.bench.roofline import Row, roofline
from horde_agent.bench.sections import Bench
from horde_agent.runs.config import BadInput
from horde_agent.runs.run_folder import unwritable, writable

BUSY = 0.05  # share of the processors that other programs may take unmentioned


def run(config: BenchConfig) -> dict[str, Any]:
    """Measure what was asked for, print it, and write the page where a folder is named.

    Returns:
        The object with exactly the keys of `KEYS`, in their order; null where nothing was measured.

    Raises:
        BadInput: If a section is unknown, the folder cannot be written, or the simulator's stream is asked for where
            there is no simulator.
    """
    sections = config.sections()
    if config.out is not None:
        writable(config.out)  # now, not after minutes of measuring
    answer: dict[str, Any] = dict.fromkeys(KEYS)
    answer |= {"threads": numba.get_num_threads(), "cpu": cpu_name()}
    neighbours = Neighbours()
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
            _write(config.out, answer, bench, neighbours)
        except OSError as error:
            raise BadInput(unwritable(config.out, error)) from error
    elif (others := neighbours.share() or 0.0) > BUSY:
        _say(f"other programs took {others:.0%} of the processors: what needs all threads had to wait for them")
    return answer


def _write(folder: Path, answer: dict[str, Any], bench: Bench, neighbours: Neighbours) -> None:
    """Measure what the page has beside the answer, and write the object, the details and the page."""
    bench.say("bandwidth")
    rows, bandwidths = roofline(bench.details, bench.stream, np.random.default_rng(0))
    details = {**bench.details, "bandwidth": bandwidths, "roofline": [_row(row) for row in rows]}
    if bench.effort != QUICK:
        details |= {"estimates": estimates(bench), "curves": curves(bench)}
    details["share_of_others"] = neighbours.share()
    page = write_page(folder, answer, details, rows)
    if "estimates" in details:
        details["estimates"] = {name: cost._asdict() for name, cost in details["estimates"].items()}
    (folder / "bench.json").write_text(json.dumps(answer, indent=1) + "\n")
    (folder / "details.json").write_text(json.dumps(details, indent=1) + "\n")
    bench.say(f"page: {page}")


def _row(row: Row) -> dict[str, Any]:
    """Return a row of the roofline with names."""
    moved = {**row.moved._asdict(), "total": row.moved.total}
    return {**row._asdict(), "moved": moved, "share": row.share, "floor_ms": row.floor_ms}


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
