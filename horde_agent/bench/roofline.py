"""The roofline of the span engine: the bytes that a demon's step cannot do without, over what memory gives.

Eager, a step reads the rows of the features that went on or off, and once in K steps every row that was on meanwhile is
read and written. Deferred, a block's rows come from memory once for a batch of steps. Both follow from the stream
alone; how far back a demon looks is counted while it learns.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, NamedTuple

import numba
import numpy as np

from horde_agent.bench.measure import bandwidth
from horde_agent.bench.workload import N_ACTIONS, Stream
from horde_agent.learning.span import SpanEngine, widest

BATCH = 64  # steps that a deferred Horde takes at once
_LONGEST_WAIT = 3  # periods after which something owed is written
_SMALLEST, _LARGEST = 1_000_000, 1_000_000_000  # bytes of memory that are read to find the limit


class Moved(NamedTuple):
    """Bytes per demon and step."""

    reading: float  # rows of weights read for predictions and for w.phi
    writing: float  # rows read and written when what is owed is written
    past: float  # numbers of the demon's own past, read in each step

    @property
    def total(self) -> float:
        """All of them."""
        return self.reading + self.writing + self.past


class Row(NamedTuple):
    """What was reached of the limit, for one size and mode."""

    name: str
    n_demons: int
    moved: Moved
    ms: float
    reached: float  # GB/s
    limit: float  # GB/s

    @property
    def share(self) -> float:
        """Share of the limit reached."""
        return self.reached / self.limit

    @property
    def floor_ms(self) -> float:
        """Milliseconds that the bytes alone would take at the limit."""
        return self.ms * self.share


# ---- bytes that the stream asks for ---------------------------------------------------------------------------------


def period(*, is_deferred: bool) -> int:
    """Return K, the steps between two writings of the engine."""
    one = np.zeros(1, dtype=np.int64)
    return SpanEngine(one, 1, 0.1, 0.1, batch=BATCH if is_deferred else 1).period


def n_switched(stream: Stream) -> float:
    """Return the rows that move theta.phi on by a step: those that went on and off, or all that are on where less."""
    changed = 2 * np.count_nonzero(stream.tiles[1:] != stream.tiles[:-1], axis=1)
    return float(np.mean(np.minimum(changed, stream.n_active)))


def n_touched(stream: Stream, n_steps: int) -> float:
    """Return the features that are on at some time of `n_steps` steps, on average."""
    starts = range(0, max(1, len(stream.tiles) - n_steps), n_steps)
    return float(np.mean([np.unique(stream.tiles[t : t + n_steps + 1]).size for t in starts]))


def eager_bytes(stream: Stream, itemsize: int = 4) -> Moved:
    """Return what a step of a demon moves whose rho is above 0 on every step; its past is not counted here."""
    k = period(is_deferred=False)
    return Moved(2 * itemsize * n_switched(stream), 4 * itemsize * n_touched(stream, k) / k, 0.0)


def deferred_bytes(stream: Stream, itemsize: int = 4) -> Moved:
    """Return the same where a batch of steps is taken while its rows are in cache: each comes from memory once.

    A writing finds the rows of the last batch in cache, and needs the older ones from memory.
    """
    k = period(is_deferred=True)
    of_batch, of_period = n_touched(stream, BATCH), n_touched(stream, max(k, BATCH))
    return Moved(2 * itemsize * of_batch / BATCH, itemsize * (4 * of_period - 2 * of_batch) / k, 0.0)


def followed_bytes(stream: Stream, itemsize: int = 4) -> Moved:
    """Return what a step moves of a demon that follows one action, eager: the mean over all actions.

    Where its action is not taken, the prediction alone is moved on. Where it is taken again, w.phi is moved on too,
    and where it is taken anew, summed from scratch.
    """
    n = len(stream.tiles) - 1
    changed = 2 * np.count_nonzero(stream.tiles[1:] != stream.tiles[:-1], axis=1)
    again = stream.actions[1:n] == stream.actions[: n - 1]
    w_rows = np.where(again, np.minimum(changed[: n - 1], stream.n_active), stream.n_active)
    of_w = float(np.mean(w_rows)) / N_ACTIONS
    written = [rows for action in range(N_ACTIONS) for rows in _written(stream, stream.actions[:n] == action)]
    return Moved(itemsize * (n_switched(stream) + of_w), 4 * itemsize * sum(written) / (n * N_ACTIONS), 0.0)


def _written(stream: Stream, is_busy: Any) -> Iterator[int]:
    """Yield the rows of each writing of a demon busy on some steps: after K of them, or where one waits long."""
    k, times = period(is_deferred=False), np.flatnonzero(is_busy)
    while times.size:
        of_one = times[times < times[0] + _LONGEST_WAIT * k][:k]
        yield np.unique(stream.tiles[np.concatenate([of_one, of_one + 1])]).size
        times = times[of_one.size :]


# ---- beside the bandwidth of the same run ---------------------------------------------------------------------------


def roofline(
    details: Mapping[str, Any], stream: Stream, rng: np.random.Generator
) -> tuple[list[Row], dict[str, float]]:
    """Return a row for each size and mode that was measured, and the bandwidths measured for them, by name.

    The limit is that of reading rows in random order, as an engine does, out of as much memory as is touched between
    two writings.
    """
    rows, found = [], {}
    share_touched = n_touched(stream, period(is_deferred=False)) / stream.n_features
    for section, competitors in details.items():
        for who, times in competitors.items() if section.split()[0] in ("w1", "w2", "w10k", "w50k", "max") else ():
            if not isinstance(times, dict) or "numbers_kept" not in times or "every-step" in who:
                continue
            moved, row_bytes = _moved(section, who, stream, times["numbers_kept"], times["n_demons"])
            itemsize = 8 if "float64" in who else 4
            touched = share_touched * 2 * itemsize * stream.n_features * times["n_demons"]
            n_bytes = int(min(max(touched, _SMALLEST), _LARGEST)) // row_bytes * row_bytes
            name = f"{n_bytes / 1e6:.0f} MB in rows of {row_bytes} bytes"
            if name not in found:
                found[name] = bandwidth(n_bytes, numba.get_num_threads(), rng, row_bytes=row_bytes)
            reached = 1e-6 * times["n_demons"] * moved.total / times["mean"]
            rows.append(
                Row(f"{section.split()[0]}, {who}", times["n_demons"], moved, times["mean"], reached, found[name])
            )
    return rows, found


def _moved(section: str, who: str, stream: Stream, n_kept: float, n_demons: int) -> tuple[Moved, int]:
    """Return what a demon's step moves, and the size of a block's row."""
    itemsize = 8 if "float64" in who else 4
    if section == "w1":
        return followed_bytes(stream, itemsize)._replace(past=itemsize * n_kept), 80 * itemsize
    is_deferred = "deferred" in who
    row_bytes = widest(n_demons, is_deferred=is_deferred) * itemsize
    if is_deferred:
        return deferred_bytes(stream, itemsize)._replace(past=itemsize * n_kept / BATCH), row_bytes
    return eager_bytes(stream, itemsize)._replace(past=itemsize * n_kept), row_bytes
