"""Recorded lives made up for tests, a log of 100 Hz packets and a run's folder, and how they are played."""

from __future__ import annotations

import csv
import gzip
from pathlib import Path
from typing import Any

import numpy as np

from horde_agent.record import Recorder, new_rows
from horde_env.backend import Frame
from horde_env.replay import Recording
from horde_env.robot import critterbot
from horde_env.robots.critterbot.log import COLUMNS, NEEDED

REAL_LOG = (
    Path(__file__).resolve().parents[2].parent
    / "shared/data/critterbot_real_wandering_2010-10-05.csv.gz"
)


def packets(n: int = 400, period_ms: float = 10.0) -> dict[str, np.ndarray]:
    """Return the columns of `n` packets; every sensor counts up with its packet, within its raw range."""
    k = np.arange(n)
    log = {name: np.zeros(n) for name in NEEDED}
    for i, name in enumerate(name for names in COLUMNS.values() for name in names):
        log[name] = 40.0 + (k + i) % 60
    log["LocalTime"] = 1_286_293_951_252.0 + np.round(k * period_ms)
    log["a[0]"] = np.full(n, -20.0)
    log["a[2]"] = np.full(n, 20.0)
    return log


def write(path: Path, log: dict[str, np.ndarray], first_row: bool = True) -> Path:
    """Write columns as RLPark did: a header, a row of -1 before the first packet, then the packets."""
    opener = open
    if path.suffix == ".gz":
        opener = gzip.open
    with opener(path, "wt", encoding="utf-8", newline="") as file:
        rows = csv.writer(file)
        rows.writerow(log)
        if first_row:
            rows.writerow([log["LocalTime"][0] - 3, *[-1.0] * (len(log) - 1)])
        rows.writerows(zip(*log.values(), strict=True))
    return path


def made_up(n: int) -> np.ndarray:
    """Return `n` rows of a run with readings, actions and probabilities that differ from row to row."""
    rows = new_rows(n, 57)
    rows["step"] = np.arange(n)
    rows["t"] = 0.1 * np.arange(n)
    rows["observation"] = np.random.default_rng(0).random((n, 57), dtype=np.float32)
    rows["action"] = np.arange(n) % 5
    rows["b"] = 0.2 + 0.01 * (np.arange(n) % 7)
    rows["pose"] = np.arange(3 * n).reshape(n, 3) / 100
    return rows


def record(run: Path, rows: np.ndarray, n_in_a_file: int = 1_000, **facts: Any) -> Path:
    """Record rows as `horde learn` does, with these facts in the header, and return the run's folder."""
    (run / "log").mkdir(parents=True)
    header = {"channels": [{"name": channel.name} for channel in critterbot().channels], **facts}
    size = n_in_a_file * rows.itemsize
    with Recorder(57, run / "log" / "life.rec", header, segment_bytes=size) as recorder:
        recorder.append(rows)
    return run


def frames(life: Recording) -> list[Frame]:
    replay = [life.reset(np.random.default_rng(0))]
    while not replay[-1].last:
        replay.append(life.exchange(np.zeros(3)))
    return replay
