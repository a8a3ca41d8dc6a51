"""Measuring: competitors in turn over the same steps, and the bandwidth of memory in the same run."""

from __future__ import annotations

import time
from collections.abc import Callable, Collection, Mapping
from typing import Any, NamedTuple

import numpy as np
from numba import prange
from numpy.typing import NDArray

from horde_agent.kernels._jit import parallel_kernel
from horde_agent.kernels.vectors import move_rows

Step = Callable[[int], object]

SETTLE_S = 0.1  # OpenBLAS keeps a core busy for some 30 ms after its last product


class Effort(NamedTuple):
    """How long to measure: in chunks. What counts of each is a multiple of the engine's two batches of 64 steps."""

    first: int  # steps that do not count: arrays grow, kernels are compiled
    chunk: int  # steps of each later chunk
    n_chunks: int
    warm_up: int  # first steps of a chunk, with cold caches, that do not count
    brief: int = 48  # steps of each chunk that slow yardsticks take

    @property
    def n_steps(self) -> int:
        """Steps in all."""
        return self.first + self.chunk * self.n_chunks


THOROUGH = Effort(first=64, chunk=136, n_chunks=4, warm_up=8)  # 512 steps that count
MODERATE = Effort(first=64, chunk=136, n_chunks=1, warm_up=8)
QUICK = Effort(first=8, chunk=24, n_chunks=1, warm_up=4, brief=12)


class Times(NamedTuple):
    """Milliseconds per step."""

    mean: float
    worst: float


def measure(steps: Mapping[str, Step], effort: Effort, brief: Collection[str] = ()) -> dict[str, Times]:
    """Return how long each competitor's steps take: a chunk of them at a time, in turn.

    Means, not medians: an engine that writes in bursts would be flattered. All threads get time to go to sleep before
    each chunk, so that nobody is charged for another's idling threads.

    Args:
        steps: Each competitor's step t; they are taken in the order of t, from 0.
        effort: How many.
        brief: Names of yardsticks, without bursts and too slow to take them all: they take `effort.brief` per chunk.
    """
    spent: dict[str, list[float]] = {name: [] for name in steps}
    taken = dict.fromkeys(steps, 0)
    for k in range(effort.n_chunks + 1):
        for name, step in steps.items():
            n = effort.chunk if k else effort.first
            n = min(n, effort.brief) if name in brief else n
            time.sleep(SETTLE_S)
            times = [timed(step, t) for t in range(taken[name], taken[name] + n)]
            taken[name] += n
            if k:
                spent[name] += times[effort.warm_up :]
    return {name: Times(1e3 * float(np.mean(s)), 1e3 * float(np.max(s))) for name, s in spent.items()}


def timed(step: Step, t: int) -> float:
    """Return the seconds that a step takes."""
    began = time.perf_counter()
    step(t)
    return time.perf_counter() - began


@parallel_kernel  # type: ignore[untyped-decorator]
def read_rows(
    data: NDArray[Any], width: int, order: NDArray[np.int64], none: NDArray[np.int64], sums: NDArray[Any]
) -> None:
    """Add up rows in an order, each thread its share, by the kernel with which the engine reads rows of weights."""
    n = order.shape[0]
    for hand in prange(sums.shape[0]):
        mine = order[hand * n // sums.shape[0] : (hand + 1) * n // sums.shape[0]]
        move_rows(data, 0, width, mine, mine.shape[0], none, 0, sums[hand])


def bandwidth(n_bytes: int, n_threads: int, rng: np.random.Generator, *, row_bytes: int = 512) -> float:
    """Return the GB/s at which rows are read in random order from so much memory: the best of five sweeps.

    Args:
        n_bytes: Size of the memory read.
        n_threads: Threads that read.
        rng: For the order of the rows.
        row_bytes: Size of a row, a multiple of 64: as much as an engine reads of a feature at once.
    """
    width = row_bytes // 4
    n_rows = max(64, n_bytes // row_bytes)
    data, sums = np.ones(n_rows * width, dtype=np.float32), np.zeros((n_threads, width), dtype=np.float32)
    order = rng.permutation(n_rows)
    none = order[:0]
    read_rows(data, width, order, none, sums)
    best = min(timed(lambda _: read_rows(data, width, order, none, sums), 0) for _ in range(5))
    return 4e-9 * data.size / best
