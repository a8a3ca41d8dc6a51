"""Durations: how they are kept, what is too late, and how they are said to people."""

from __future__ import annotations

from array import array

import numpy as np

from horde_agent.types import Floats

LATE_S = 0.05
"""A deadline is missed by more than this; smaller lateness is jitter (design: timing)."""


class Durations:
    """Durations in seconds, kept as float32 (a day at 10 Hz is 3.5 MB)."""

    def __init__(self) -> None:
        self._values = array("f")

    def add(self, seconds: float) -> None:
        """Take in one duration."""
        self._values.append(seconds)

    def __len__(self) -> int:
        return len(self._values)

    def latest(self, n: int) -> Floats:
        """Return the last `n` of them in seconds, fewer where there are fewer; a copy."""
        return np.array(self._values[-n:], dtype=np.float64)

    def summary_ms(self) -> dict[str, float] | None:
        """Return p50, p99 and max in milliseconds; None where nothing was measured."""
        if not self._values:
            return None
        p50, p99, top = np.percentile(np.asarray(self._values), [50, 99, 100]) * 1e3
        return {"p50": float(p50), "p99": float(p99), "max": float(top)}


def duration(seconds: float) -> str:
    """Return a duration for people.

    Example:
        >>> duration(42.4), duration(200), duration(26168.1)
        ('42 s', '3 min 20 s', '7 h 16 min')
    """
    whole = round(seconds)
    if whole < 60:
        return f"{whole} s"
    if whole < 3600:
        return f"{whole // 60} min {whole % 60:02d} s"
    return f"{whole // 3600} h {whole % 3600 // 60:02d} min"
