"""Measuring: competitors in turn over the same steps, and the bandwidth of memory in the same run."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numba import prange
from numpy.typing import NDArray

from horde_agent.kernels._jit import inner_kernel, parallel_kernel
from horde_agent.kernels.vectors import lanes_of, load, narrow_zeros, prefetch, store, wide_zeros
from horde_agent.learning.layout import aligned_zeros

Step = Callable[[int], object]

_FIRST_OF_YARDSTICK, _CHUNK_OF_YARDSTICK, _CHUNK_OF_SLOW, _WARM_UP_OF_YARDSTICK = 16, 136, 48, 8  # steps
SETTLE_S = 0.1  # OpenBLAS keeps a core busy for some 30 ms after its last product


class Effort(NamedTuple):
    """How long to measure: in chunks. What counts of each is a multiple of the engine's two batches of 64 steps."""

    first: int  # steps that do not count: arrays grow, kernels are compiled
    chunk: int  # steps of each later chunk
    n_chunks: int
    warm_up: int  # first steps of a chunk that do not count: the caches hold what the competitor before it left there

    @property
    def n_steps(self) -> int:
        """Steps in all."""
        return self.first + self.chunk * self.n_chunks

    def of_yardstick(self, *, is_slow: bool = False) -> Effort:
        """Return the effort for one without bursts, that uses all its memory on each step; if slow, fewer steps."""
        chunk = min(self.chunk, _CHUNK_OF_SLOW if is_slow else _CHUNK_OF_YARDSTICK)
        warm_up = min(self.warm_up, _WARM_UP_OF_YARDSTICK)
        return Effort(min(self.first, _FIRST_OF_YARDSTICK), chunk, self.n_chunks, warm_up)


# The engine's first writings touch its memory for the first time: after 64 steps, or 192 where policies are shared.
# What it touches from one writing to the next is in the caches, as in a life, 64 steps after another had them.
THOROUGH = Effort(first=256, chunk=200, n_chunks=4, warm_up=72)  # 512 steps that count
MODERATE = Effort(first=128, chunk=200, n_chunks=3, warm_up=72)
QUICK = Effort(first=8, chunk=24, n_chunks=1, warm_up=4)


class Times(NamedTuple):
    """Milliseconds per step."""

    mean: float
    worst: float


def measure(steps: Mapping[str, Step], effort: Effort, others: Mapping[str, Effort] | None = None) -> dict[str, Times]:
    """Return how long each competitor's steps take: a chunk of them at a time, in turn.

    Means, not medians: an engine that writes in bursts would be flattered. All threads get time to go to sleep before
    each chunk, so that nobody is charged for another's idling threads.

    Args:
        steps: Each competitor's step t; they are taken in the order of t, from 0.
        effort: How many.
        others: Efforts of competitors that take another number of steps, in as many chunks.
    """
    spent: dict[str, list[float]] = {name: [] for name in steps}
    taken = dict.fromkeys(steps, 0)
    for k in range(effort.n_chunks + 1):
        for name, step in steps.items():
            own = (others or {}).get(name, effort)
            n = own.chunk if k else own.first
            time.sleep(SETTLE_S)
            times = [timed(step, t) for t in range(taken[name], taken[name] + n)]
            taken[name] += n
            if k:
                spent[name] += times[own.warm_up :]
    return {name: Times(1e3 * float(np.mean(s)), 1e3 * float(np.max(s))) for name, s in spent.items()}


class Neighbours:
    """How much of the processors other programs took since this was made: they slow down whoever needs all threads."""

    def __init__(self) -> None:
        self._before = _busy_and_all(), sum(os.times()[:4]), time.perf_counter()

    def share(self) -> float | None:
        """Return the share of all processors' time that others took, or None where the system does not say."""
        (before, own_before, began), now = self._before, _busy_and_all()
        if before is None or now is None or now[1] <= before[1]:
            return None
        own = (sum(os.times()[:4]) - own_before) / ((time.perf_counter() - began) * (os.cpu_count() or 1))
        return max(0.0, (now[0] - before[0]) / (now[1] - before[1]) - own)


def _busy_and_all() -> tuple[int, int] | None:
    """Return the ticks in which processors were busy, or given to another machine, and all ticks."""
    try:
        ticks = [int(n) for n in Path("/proc/stat").read_text().splitlines()[0].split()[1:9]]
    except (OSError, ValueError, IndexError):
        return None
    return sum(ticks) - ticks[3] - ticks[4], sum(ticks)


def timed(step: Step, t: int) -> float:
    """Return the seconds that a step takes."""
    began = time.perf_counter()
    step(t)
    return time.perf_counter() - began


@inner_kernel  # type: ignore[untyped-decorator]
def add_rows(data: NDArray[Any], first: int, width: int, order: NDArray[np.int64], soon: int, total: Any) -> Any:
    """Return the sum of some lanes of a block's rows, from `first` on, and ask for those that lie `soon` further.

    `data` is flat; `order` has shape (rows that are added,).
    """
    for k in range(order.shape[0]):
        at = first + order[k] * width
        prefetch(data, at + soon, total)
        total = total + load(data, at, total)
    return total


@parallel_kernel  # type: ignore[untyped-decorator]
def read_rows(data: NDArray[Any], width: int, order: NDArray[np.int64], sums: NDArray[Any]) -> None:
    """Add up all rows, block by block, in an order within each, as the engine reads weights.

    A thread asks for rows of the block that it takes next while it adds up those of this one: memory gives its best.
    `data` is flat, `order` has shape (parts of the sweep, rows of each), `sums` (threads, width).
    """
    n_threads, block = sums.shape[0], order.size * width
    n_blocks = data.shape[0] // block
    for part in range(order.shape[0]):
        for thread in prange(n_threads):
            wide, narrow = wide_zeros(data), narrow_zeros(data)
            for b in range(thread, n_blocks, n_threads):
                soon, lane = n_threads * block if b + n_threads < n_blocks else 0, 0
                while lane + lanes_of(wide) <= width:
                    store(sums[thread], lane, add_rows(data, b * block + lane, width, order[part], soon, wide))
                    lane += lanes_of(wide)
                while lane < width:
                    store(sums[thread], lane, add_rows(data, b * block + lane, width, order[part], soon, narrow))
                    lane += lanes_of(narrow)


def bandwidth(n_bytes: int, n_threads: int, rng: np.random.Generator, *, row_bytes: int = 512) -> float:
    """Return the GB/s at which rows are read in random order from so much memory: the best of five sweeps.

    A sweep passes through the memory four times, in blocks of 1,024 rows, and reads a random quarter of each block's
    rows every time.

    Args:
        n_bytes: Size of the memory read.
        n_threads: Threads that read.
        rng: For the order of the rows.
        row_bytes: Size of a row, a multiple of 64: as much as an engine reads of a feature at once.
    """
    width = row_bytes // 4
    n_of_block = min(1_024, max(4, n_bytes // row_bytes // n_threads // 4 * 4))
    n_blocks = max(n_threads, n_bytes // row_bytes // n_of_block)
    data = aligned_zeros((n_blocks * n_of_block * width,), np.dtype(np.float32))
    data[:] = 1  # so that there is memory behind it
    sums = np.zeros((n_threads, width), dtype=np.float32)
    order = np.sort(rng.permutation(n_of_block).reshape(4, -1), axis=1)
    read_rows(data, width, order, sums)
    best = min(timed(lambda _: read_rows(data, width, order, sums), 0) for _ in range(5))
    return 4e-9 * data.size / best
