"""A made-up recording of the Critterbot, written from the format's documentation alone."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any
from zlib import crc32

import numpy as np
from numpy.typing import NDArray

from horde_env.robot import critterbot

SPEC = critterbot()
BEHAVE, CENTRE, END = 0, 2, 3
FIELDS: list[Any] = [
    ("t", "<f8"),
    ("b", "<f8"),
    ("observation", "<f4", (SPEC.n_channels,)),
    ("pose", "<f4", (3,)),
    ("step", "<i8"),
    ("policy", "<u4"),
    ("action", "<i2"),
    ("phase", "u1"),
    ("flags", "u1"),
    ("crc", "<u4"),
]


def made_up(n: int) -> NDArray[Any]:
    """Return `n` rows with readings, actions and probabilities that differ from row to row."""
    rows = np.zeros(n, dtype=FIELDS)
    rows["step"] = np.arange(n)
    rows["t"] = 0.1 * np.arange(n)
    rows["observation"] = np.random.default_rng(0).random((n, SPEC.n_channels), dtype=np.float32)
    rows["action"], rows["b"] = np.arange(n) % 5, 0.2 + 0.01 * (np.arange(n) % 7)
    rows["pose"] = np.arange(3 * n).reshape(n, 3) / 100
    return rows


def record(run: Path, n: int, further: int = 0, **facts: Any) -> Path:
    """Write a recording of `n` rows, the last `further` of them in a second file, and return the run's folder."""
    (run / "log").mkdir(parents=True)
    rows = made_up(n)
    write(run / "log" / "life.rec", rows[: n - further], 0, **facts)
    if further:
        write(run / "log" / "life-2.rec", rows[n - further :], n - further, **facts)
    return run


def write(path: Path, rows: NDArray[Any], first: int, **facts: Any) -> None:
    channels = [{"name": channel.name} for channel in SPEC.channels]
    header = {"format": "horde-life", "version": 2, "dtype": rows.dtype.descr, "offset": 16_384, "first": first}
    data = bytearray(rows.tobytes())
    for end in range(rows.itemsize, len(data) + 1, rows.itemsize):
        data[end - 4 : end] = crc32(data[end - rows.itemsize : end - 4]).to_bytes(4, "little")
    line = json.dumps({**header, "channels": channels, **facts}).encode()
    path.write_bytes(line.ljust(16_383) + b"\n" + data)
