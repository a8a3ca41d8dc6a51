"""`horde bench`: what learning costs on this machine, beside what others would write, measured in one run."""

from __future__ import annotations

from horde_agent.bench.config import KEYS, SECTIONS, BenchConfig

__all__ = ["KEYS", "SECTIONS", "BenchConfig"]
