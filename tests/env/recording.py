"""A recorded life made up for tests: 100 Hz packets of a robot that drives by wheel requests."""

from __future__ import annotations

import csv
import gzip
from pathlib import Path

import numpy as np

from horde_env.robots.critterbot.log import COLUMNS, NEEDED

REAL_LOG = Path(__file__).resolve().parents[2].parent / "shared/data/critterbot_real_wandering_2010-10-05.csv.gz"


def packets(n: int = 400, period_ms: float = 10.0) -> dict[str, np.ndarray]:
    """Return the columns of `n` packets; every sensor counts up with its packet, within its raw range."""
    k = np.arange(n)
    log = {name: np.zeros(n) for name in NEEDED}
    for i, name in enumerate(name for names in COLUMNS.values() for name in names):
        log[name] = 40.0 + (k + i) % 60
    log["LocalTime"] = 1_286_293_951_252.0 + np.round(k * period_ms)
    log["a[0]"], log["a[2]"] = np.full(n, -20.0), np.full(n, 20.0)
    return log


def write(path: Path, log: dict[str, np.ndarray], first_row: bool = True) -> Path:
    """Write columns as RLPark did: a header, a row of -1 before the first packet, then the packets."""
    opener = gzip.open if path.suffix == ".gz" else open
    with opener(path, "wt", encoding="utf-8", newline="") as file:
        rows = csv.writer(file)
        rows.writerow(log)
        if first_row:
            rows.writerow([log["LocalTime"][0] - 3, *[-1.0] * (len(log) - 1)])
        rows.writerows(zip(*log.values(), strict=True))
    return path
