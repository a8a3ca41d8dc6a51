"""Memory is there before the robot moves."""

from __future__ import annotations

import mmap
from pathlib import Path

import numpy as np
import pytest
from horde_agent.learning.learner import GTDLambda
from horde_agent.learning.memory import aligned_zeros, touch

from horde_agent.learning.rules import LearnerConfig
from horde_agent.learning.span import SpanGTD

STATM = Path("/proc/self/statm")


def resident() -> int:
    """Return the bytes of memory behind this process."""
    return int(STATM.read_text().split()[1]) * mmap.PAGESIZE


@pytest.mark.skipif(not STATM.exists(), reason="this system does not tell how much memory is in use")
@pytest.mark.parametrize("engine", [SpanGTD, GTDLambda])
def test_no_step_of_a_life_waits_for_the_memory_of_its_weights(engine: type[SpanGTD | GTDLambda]) -> None:
    """Zeros that nobody wrote to have none behind them: a step would wait for it, 0.4 s with 50,000 demons."""
    n_demons, n_features = 800, 10_000
    before = resident()
    made = engine(np.arange(n_demons), n_features, 0.1, 0.001, LearnerConfig(vector_mspbe=False))
    grown = resident() - before
    weights = 2 * 4 * n_demons * n_features  # theta and w, float32: 64 MB
    assert grown > 0.95 * weights
    assert made.n_demons == n_demons


@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_touching_changes_nothing(dtype: str) -> None:
    """Nor what is there already: minus zero stays minus zero, and what is not a number the same one."""
    rows = aligned_zeros((40_000,), np.dtype(dtype))
    rows[:] = np.random.default_rng(0).normal(size=rows.size)
    rows[::1024], rows[::512] = -0.0, np.nan
    before = rows.tobytes()
    touch(rows, rows[:0], rows[5:6], n_threads=2)
    assert rows.tobytes() == before


def test_rows_begin_with_a_cache_line() -> None:
    for size in (1, 17, 100_003):
        rows = aligned_zeros((size,), np.dtype("float32"))
        assert rows.ctypes.data % 64 == 0
        assert not rows.any()
