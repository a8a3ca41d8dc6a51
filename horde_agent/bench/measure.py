"""Measuring: competitors in turn over the same steps, and the bandwidth of memory in the same run."""

from __future__ import annotations

import itertools
import time
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

import numpy as np
from numba import prange
from numpy.typing import NDArray

from horde_agent.kernels._jit import kernel, parallel_kernel, prefetch

Step = Callable[[int], object]

SETTLE_S = 0.1  # OpenBLAS keeps a core busy for some 30 ms after its last product
_AHEAD = 6  # rows
_ROW = 128  # float32 numbers: the rows that the engine reads


class Effort(NamedTuple):
    """How long to measure: in chunks, each holding several of the engine's writings."""

    first: int  # steps that do not count: arrays grow, kernels are compiled
    chunk: int  # steps of each later chunk
    n_chunks: int
    warm_up: int  # first steps of a chunk, with cold caches, that do not count

    @property
    def n_steps(self) -> int:
        """Steps in all."""
        return self.first + self.chunk * self.n_chunks


THOROUGH = Effort(first=64, chunk=180, n_chunks=3, warm_up=10)  # 510 steps that count
QUICK = Effort(first=8, chunk=24, n_chunks=1, warm_up=4)


class Times(NamedTuple):
    """Milliseconds per step."""

    mean: float
    worst: float


def measure(steps: Mapping[str, Step], effort: Effort) -> dict[str, Times]:
    """Return how long each competitor's steps take: step t for each t, a chunk of them at a time, in turn.

    Means, not medians: an engine that writes in bursts would be flattered. All threads get time to go to sleep before
    each chunk, so that nobody is charged for another's idling threads.
    """
    spent: dict[str, list[float]] = {name: [] for name in steps}
    starts = [0, *range(effort.first, effort.n_steps + 1, effort.chunk)]
    for start, stop in itertools.pairwise(starts):
        for name, step in steps.items():
            time.sleep(SETTLE_S)
            times = [timed(step, t) for t in range(start, stop)]
            if start > 0:
                spent[name] += times[effort.warm_up :]
    return {name: Times(1e3 * float(np.mean(s)), 1e3 * float(np.max(s))) for name, s in spent.items()}


def timed(step: Step, t: int) -> float:
    """Return the seconds that a step takes."""
    began = time.perf_counter()
    step(t)
    return time.perf_counter() - began


@kernel  # type: ignore[untyped-decorator]
def read_share(data: NDArray[Any], order: NDArray[np.int64], total: NDArray[Any]) -> None:
    """Add up rows in an order, and ask for those to come, as the engine does."""
    for k in range(order.shape[0]):
        row, soon = data[order[k]], data[order[min(k + _AHEAD, order.shape[0] - 1)]]
        for i in range(0, total.shape[0], 16):
            prefetch(soon, i)
        for i in range(total.shape[0]):
            total[i] += row[i]


@parallel_kernel  # type: ignore[untyped-decorator]
def read_rows(data: NDArray[Any], order: NDArray[np.int64], sums: NDArray[Any]) -> None:
    """Add up rows in an order, each thread its share."""
    n = order.shape[0]
    for hand in prange(sums.shape[0]):
        read_share(data, order[hand * n // sums.shape[0] : (hand + 1) * n // sums.shape[0]], sums[hand])


def bandwidth(n_bytes: int, n_threads: int, rng: np.random.Generator, *, at_random: bool) -> float:
    """Return the GB/s at which rows of 512 bytes are read from so much memory: the best of five sweeps.

    Args:
        n_bytes: Size of the memory read.
        n_threads: Threads that read.
        rng: For the order of the rows.
        at_random: In random order, as an engine reads rows of weights; else one after the other.
    """
    n_rows = max(64, n_bytes // (4 * _ROW))
    data, sums = np.ones((n_rows, _ROW), dtype=np.float32), np.zeros((n_threads, _ROW), dtype=np.float32)
    order = rng.permutation(n_rows) if at_random else np.arange(n_rows)
    read_rows(data, order, sums)
    best = min(timed(lambda _: read_rows(data, order, sums), 0) for _ in range(5))
    return 4e-9 * data.size / best
