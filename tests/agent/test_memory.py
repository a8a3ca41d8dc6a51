"""Memory of weights is pre-faulted before the steps that need it."""

from __future__ import annotations

import ctypes
import mmap
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from horde_agent.kernels.span.arrays import CHUNK, N_ROWS
from horde_agent.learning import LearnerConfig, PlainEngine, Signals, SpanEngine, memory
from horde_agent.learning.layout import aligned_zeros, prefault

STATM = Path("/proc/self/statm")


def resident() -> int:
    """Return the resident memory of this process in bytes."""
    return int(STATM.read_text().split()[1]) * mmap.PAGESIZE


def share_behind(numbers: NDArray[Any]) -> float:
    """Return the share of an array's pages that are resident."""
    first = numbers.ctypes.data // mmap.PAGESIZE * mmap.PAGESIZE
    n_bytes = numbers.ctypes.data + numbers.nbytes - first
    pages = (ctypes.c_ubyte * -(-n_bytes // mmap.PAGESIZE))()
    assert ctypes.CDLL(None).mincore(ctypes.c_void_p(first), ctypes.c_size_t(n_bytes), pages) == 0
    return float(np.mean(np.frombuffer(pages, np.uint8) & 1))


@pytest.mark.skipif(not STATM.exists(), reason="needs /proc")
@pytest.mark.parametrize(("engine", "n_rows"), [(SpanEngine, 4 * CHUNK), (PlainEngine, 10_000)])
def test_the_first_rows_of_weights_are_resident(engine: Any, n_rows: int) -> None:
    """Otherwise a step waits for memory, 0.4 s with 50,000 demons. The span engine pre-faults the first rows only."""
    n_demons, n_features = 800, 10_000
    before = resident()
    made = engine(np.arange(n_demons), n_features, 0.1, 0.001, LearnerConfig(vector_mspbe=False))
    grown = resident() - before
    of = made.arrays if engine is SpanEngine else made._demons
    for weights in (of.theta, of.w if engine is SpanEngine else of.vectors):
        assert share_behind(weights.ravel()[: n_demons * n_rows]) == 1.0
    assert n_rows == n_features or grown < 2 * 4 * n_demons * n_features
    assert made.n_demons == n_demons


@pytest.mark.parametrize(("n_parts", "waits"), [(1, False), (4, False), (64, True)])
def test_rows_are_resident_before_their_features_are_first_active(
    monkeypatch: pytest.MonkeyPatch, n_parts: int, waits: bool
) -> None:
    """A chunk of rows is used up in eight steps: pre-faulting it in four parts is in time, in 64 it is not."""
    n_features, n_active, n_demons, waited = 8 * CHUNK, CHUNK // 2, 16, False
    engine = SpanEngine(np.arange(n_demons), n_features, 0.1, 0.001, LearnerConfig(vector_mspbe=False))
    monkeypatch.setattr(memory, "_PARTS", n_parts)
    monkeypatch.setattr(memory, "_LEAST_TOUCHED", 1)
    assert engine.memory._n_ready == 4 * CHUNK
    zero, few = np.zeros(n_demons), np.arange(n_active)
    engine.begin(few)
    for _ in range(60):
        waited |= bool(engine.memory._n_ready < min(n_features, engine.memory.clock[N_ROWS] + n_active))
        few = few + CHUNK // 8
        engine.learn(few % n_features, Signals(zero, zero, zero, zero, zero))
        assert engine.memory._n_ready >= engine.memory.clock[N_ROWS]
    assert engine.memory.clock[N_ROWS] == n_features <= engine.memory._n_ready
    assert waited == waits


def test_pre_faulting_changes_no_number() -> None:
    """Not even the bits of -0.0 and NaN."""
    rows = aligned_zeros((40_000,), np.dtype("float32"))
    rows[:] = np.random.default_rng(0).normal(size=rows.size)
    rows[::1024], rows[::512] = -0.0, np.nan
    before = rows.tobytes()
    prefault(rows, rows[:0], rows[5:6], n_threads=2)
    assert rows.tobytes() == before
