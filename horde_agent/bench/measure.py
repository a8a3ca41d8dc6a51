"""Time competitors in turn over the same steps."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from typing import NamedTuple

import numpy as np

Step = Callable[[int], object]

_FIRST_OF_YARDSTICK, _CHUNK_OF_YARDSTICK, _WARM_UP_OF_YARDSTICK = 16, 136, 8  # steps
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

    def of_yardstick(self) -> Effort:
        """Return the effort for one without bursts, that uses all its memory on each step: fewer steps."""
        chunk, warm_up = min(self.chunk, _CHUNK_OF_YARDSTICK), min(self.warm_up, _WARM_UP_OF_YARDSTICK)
        return Effort(min(self.first, _FIRST_OF_YARDSTICK), chunk, self.n_chunks, warm_up)


# The engine's first writings touch its memory for the first time: after 64 steps, or 192 where policies are shared.
# 64 steps later the data between two writes is in the caches again, as in a life.
THOROUGH = Effort(first=256, chunk=200, n_chunks=4, warm_up=72)  # 512 steps that count
QUICK = Effort(first=8, chunk=24, n_chunks=1, warm_up=4)


class Times(NamedTuple):
    """Milliseconds per step."""

    mean: float
    worst: float


def measure(steps: Mapping[str, Step], effort: Effort, others: Mapping[str, Effort] | None = None) -> dict[str, Times]:
    """Return how long each competitor's steps take: a chunk of them at a time, in turn.

    Means, not medians: an engine that writes in bursts would be flattered. All threads get time to go to sleep before
    each chunk, so that idle threads of one program do not slow down the next.

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


def timed(step: Step, t: int) -> float:
    """Return the seconds that a step takes."""
    began = time.perf_counter()
    step(t)
    return time.perf_counter() - began
