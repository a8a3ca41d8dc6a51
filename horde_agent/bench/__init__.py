"""`horde bench`: time learning on this machine against NumPy and dense baselines, in one run."""

from __future__ import annotations

from horde_agent.bench.config import KEYS, SECTIONS, BenchConfig

__all__ = ["KEYS", "SECTIONS", "BenchConfig"]
