"""Durations: their percentiles, the limit of lateness, and their text."""

from __future__ import annotations

from array import array

import numpy as np

from horde_agent.types import Floats, Integers

LATE_S = 0.05
"""A deadline is missed by more than this; smaller lateness is jitter (design: timing)."""


_EXACT = 1 << 16  # durations in a block, two hours at 10 Hz
# Of the bins
_SHORTEST_S = 1e-7
_LONGEST_S = 1e4
_RATIO = 1.005


class Durations:
    """Durations in seconds, in bounded memory: blocks of 65,536 are counted in bins that are 0.5 % wide."""

    def __init__(self) -> None:
        self._values = array("f")
        self._n_in_bins = 0
        self._longest = 0.0
        self._bins: Integers = np.zeros(
            2 + int(np.log(_LONGEST_S / _SHORTEST_S) / np.log(_RATIO)), dtype=np.int64
        )

    def add(self, seconds: float) -> None:
        """Add a duration."""
        self._values.append(seconds)
        if len(self._values) == _EXACT:
            self._count()

    def _count(self) -> None:
        values = np.asarray(self._values, dtype=np.float64)
        bins = np.log(np.clip(values, _SHORTEST_S, _LONGEST_S) / _SHORTEST_S) / np.log(_RATIO)
        self._bins += np.bincount(bins.astype(np.int64), minlength=self._bins.size)
        self._n_in_bins = len(self)
        self._longest = max(self._longest, float(values.max()))
        self._values = array("f")

    def __len__(self) -> int:
        return self._n_in_bins + len(self._values)

    def latest(self, n: int) -> Floats:
        """Return the last `n` of the present block, in seconds; a copy."""
        return np.array(self._values[-n:], dtype=np.float64)

    def summary_ms(self) -> dict[str, float] | None:
        """Return p50, p99 and max in milliseconds; None if nothing was measured."""
        if not len(self):
            return None
        if self._n_in_bins and self._values:
            self._count()
        if not self._n_in_bins:
            p50, p99, top = np.percentile(np.asarray(self._values), [50, 99, 100])
        else:
            ranks = np.searchsorted(np.cumsum(self._bins), np.array([0.5, 0.99]) * len(self))
            (p50, p99) = _SHORTEST_S * _RATIO ** (ranks + 0.5)
            top = self._longest
        return {"p50": float(p50) * 1e3, "p99": float(p99) * 1e3, "max": float(top) * 1e3}


def duration(seconds: float) -> str:
    """Return a duration as text.

    Examples:
        >>> duration(42.4), duration(200), duration(26168.1)
        ('42 s', '3 min 20 s', '7 h 16 min')
    """
    whole = round(seconds)
    if whole < 60:
        return f"{whole} s"
    if whole < 3600:
        return f"{whole // 60} min {whole % 60:02d} s"
    return f"{whole // 3600} h {whole % 3600 // 60:02d} min"
