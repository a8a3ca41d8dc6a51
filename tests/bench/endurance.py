"""A life of millions of steps: does it grow, does it slow down, what does it leave on the disk?

    python -m tests.bench.endurance FOLDER [--steps 3000000] [--questions excursions]

The body is a toy, so that the agent's own steps count: record, segments, snapshots, test excursions, observers, tables,
report. Memory and time per step are looked at once in so many steps; after a warm-up of a tenth of the life neither may
grow. A snapshot that is being written has some 2 MB for a while, so that medians of tenths are compared. It ends with
exit code 1 where that of the last is more than 1 % above that of the second, or the last tenth is 10 % slower.
"""

from __future__ import annotations

import argparse
import json
import sys
import time
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import psutil

from horde_agent import cli
from tests.agent.doubles import SCALE, ToyBody

MOST_GROWTH, MOST_SLOWING = 0.01, 0.1


class Look(NamedTuple):
    """What was seen at a step: seconds since the life began, and the process's memory in bytes."""

    step: int
    at_s: float
    rss: int


class Walker(ToyBody):
    """The toy body, which remembers nothing of what it did, and is looked at now and then.

    Args:
        every: Steps between two looks.
    """

    def __init__(self, every: int) -> None:
        super().__init__()
        self.looks: list[Look] = []
        self._every, self._began, self._process = every, time.perf_counter(), psutil.Process()

    def _observation(self) -> np.ndarray:
        age = self.age % int(SCALE)
        return np.array([age / SCALE, (age % 7) / 7, self.last_action / 3], np.float32)

    def step(self, action: int) -> Any:
        """Forget what was done before, and look where it is time."""
        self.actions.clear()
        self.drives.clear()
        if self.age // self._every > len(self.looks):
            look = Look(self.age, time.perf_counter() - self._began, self._process.memory_info().rss)
            self.looks.append(look)
        return super().step(action)


def verdict(looks: list[Look]) -> dict[str, Any]:
    """Return growth of memory since the warm-up, and of the time per step, as shares; and steps per second."""
    tenths = [[looks[i] for i in some] for some in np.array_split(np.arange(len(looks)), 10)]
    rss = [float(np.median([look.rss for look in tenth])) for tenth in tenths]
    first, last = tenths[1], tenths[-1]
    speeds = [(some[-1].step - some[0].step) / (some[-1].at_s - some[0].at_s) for some in (first, last)]
    return {
        "rss_each_tenth_mb": [round(n_bytes / 1e6, 1) for n_bytes in rss],
        "largest_rss_mb": max(look.rss for look in looks[len(tenths[0]) :]) / 1e6,
        "growth": rss[-1] / rss[1] - 1.0,
        "steps_per_s_first": speeds[0],
        "steps_per_s_last": speeds[1],
        "slowing": speeds[0] / speeds[1] - 1.0,
    }


def main() -> int:
    """Live, and print what was seen."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--steps", type=int, default=3_000_000)
    parser.add_argument("--questions", default="excursions")
    words = parser.parse_args()
    body = Walker(max(words.steps // 300, 1))
    cli._make_env = lambda _config: body  # type: ignore[assignment]
    settings = ["--questions", words.questions, "--snapshot-every", "2s", "--out", str(words.folder)]
    if code := cli.main(["learn", "--steps", str(words.steps), *settings]):
        return code
    found = verdict(body.looks)
    n_bytes = sum(file.stat().st_size for file in (words.folder / "log").iterdir())
    print(json.dumps({**found, "log_mb_per_day": n_bytes / words.steps * 864_000 / 1e6}, indent=1))
    return int(found["growth"] > MOST_GROWTH or found["slowing"] > MOST_SLOWING)


if __name__ == "__main__":
    sys.exit(main())
