"""The span engine's memory: its arrays are made here, all zero but the books, and kernels read and write them."""

from __future__ import annotations

from typing import Any, NamedTuple

import numba
import numpy as np
from numpy.typing import NDArray

from horde_agent.kernels import arrays, dropped
from horde_agent.kernels import lanes as of_lane
from horde_agent.kernels.turns import N_TURNS
from horde_agent.learning.arrangement import Arrangement
from horde_agent.learning.history import SharedHistory
from horde_agent.learning.memory import aligned_zeros

Reals = NDArray[Any]
Integers = NDArray[np.int64]


class Size(NamedTuple):
    """What decides how large the arrays are.

    Attributes:
        layout: Which lane each demon has.
        n_features: Length n of the weight vectors.
        dtype: Of the demons' numbers.
        policy: Policy of each group, shape (n_groups,).
        cumulant: Which of the cumulants that are told each demon sums, shape (n_demons,).
        period: Most steps between two writings.
        tail: Steps beyond those that a trace may reach back.
        batch: Steps that are noted before they are taken together.
        has_m: Whether the vector MSPBE estimate is kept.
    """

    layout: Arrangement
    n_features: int
    dtype: np.dtype[Any]
    policy: Integers
    cumulant: Integers
    period: int
    tail: int
    batch: int
    has_m: bool

    @property
    def limit(self) -> int:
        """Steps after which a tile writes what it owes, so that there is room for another batch."""
        return self.period - self.batch + 1

    @property
    def widest(self) -> int:
        """Lanes of the widest tile."""
        return int(np.diff(self.layout.start).max())

    def zeros(self, *shape: int) -> Reals:
        """Return zeros of the demons' type, which begin with a cache line."""
        return aligned_zeros(shape, self.dtype)


def most_threads() -> int:
    """Return how many threads there may be at once."""
    return int(numba.config.NUMBA_NUM_THREADS)  # type: ignore[attr-defined]


def allocate(size: Size, history: SharedHistory) -> arrays.Span:
    """Return the arrays, without scratch paper: see `with_paper`."""
    layout = size.layout
    places = arrays.Tiles(
        np.append(size.policy, -1)[layout.group],
        layout.group.copy(),
        np.append(size.cumulant, -1)[layout.demon],
        layout.demon.copy(),
        layout.demon,
        layout.start,
        layout.family,
        layout.first,
        layout.is_mixed,
    )
    switched = arrays.Switched(
        np.zeros(size.n_features, dtype=np.int64),
        np.zeros(2 * size.n_features + 2, dtype=np.int64),
        np.zeros(0, dtype=np.int32),
    )
    numbers = size.zeros(of_lane.N_ROWS, layout.n_lanes)
    return arrays.Span(places, _memory(size), _past(size), numbers, _queue(size), _work(size), switched, history.arrays)


def _memory(size: Size) -> arrays.Memory:
    """Return rows of weights; those of carried traces are made when a tile wants them."""
    n_weights = size.n_features * size.layout.n_lanes
    return arrays.Memory(
        theta=size.zeros(n_weights),
        w=size.zeros(n_weights),
        m=size.zeros(n_weights if size.has_m else 0),
        carried=size.zeros(0, size.n_features * size.widest),
        is_alive=np.zeros((0, size.n_features), dtype=np.uint8),
    )


def _past(size: Size) -> arrays.Past:
    """Return what each demon keeps of its past, and the books of the tiles."""
    layout, lanes, kept = size.layout, size.layout.n_lanes, size.period + size.tail
    past = arrays.Past(
        trace=size.zeros(kept * lanes),
        owed=size.zeros(2 * size.period * lanes),
        spent=size.zeros(size.period * lanes),
        ratios=size.zeros(2 * size.period * lanes),
        times=np.zeros((layout.n_tiles, 2, kept), dtype=np.int64),
        m_steps=np.zeros((layout.n_tiles, size.period)),
        dropped=np.zeros((dropped.N_BOUNDS, lanes)),
        book=np.zeros((layout.n_tiles, arrays.N_COLUMNS), dtype=np.int64),
    )
    n_families = layout.first.size - 1
    past.book[:, arrays.LIMIT] = 1 + layout.family * size.limit // n_families  # so that they write in turn
    past.book[:, arrays.W_AT], past.book[:, arrays.CARRIES] = -9, -1
    past.book[:, arrays.SOON] = size.n_features * layout.way_to(most_threads())
    return past


def _queue(size: Size) -> arrays.Queue:
    """Return what is told of the steps of a batch; the last column of each is for empty lanes, and stays zero."""
    slots, n_groups = size.batch + 1, size.policy.size
    queue = arrays.Queue(
        rho=size.zeros(slots, int(size.policy.max()) + 2),
        taken=np.ones((slots, 2)),
        gamma=size.zeros(slots + 1, n_groups + 1),
        lam=size.zeros(slots + 1, n_groups + 1),
        c=size.zeros(slots, int(size.cumulant.max()) + 2),
        z=size.zeros(slots, size.layout.lane.size + 1),
        varies=np.zeros((slots + 1, 2), dtype=np.uint8),
        m_step=np.zeros(slots),
    )
    queue.gamma[-1] = np.nan  # so that the first transition's differ
    return queue


def _work(size: Size) -> arrays.Work:
    """Return what the hands work on and hand out."""
    hands, kept = most_threads(), size.period + size.tail
    return arrays.Work(
        is_aside=np.zeros(size.layout.n_lanes, dtype=np.uint8),
        predictions=np.zeros(size.layout.lane.size),
        scratch=size.zeros(hands, arrays.N_SCRATCH, max(kept, arrays.LANES_AT_ONCE, of_lane.N_NUMBERS)),
        table=size.zeros(hands, 0),
        paper=np.zeros((hands, arrays.N_PAPER, 0), dtype=np.int64),
        runs=np.zeros((hands, 0), dtype=np.int32),
        masks=np.zeros((hands, arrays.N_MASKS, 0), dtype=np.uint64),
        listed=np.full((hands, arrays.N_LISTED), -1, dtype=np.int64),
        bases=size.zeros(hands, 2, size.batch * size.widest if size.batch > 1 else 0),
        turns=np.zeros(N_TURNS, dtype=np.int64),
    )


def with_paper(span: arrays.Span, history: SharedHistory, size: Size) -> arrays.Span:
    """Return the arrays with scratch paper for as much past as there may be, and with the history's own arrays."""
    work, n_times, n_active = span.work, history.n_times, history.arrays.tiles.shape[1]
    hands, n_table = work.paper.shape[0], 4 * arrays.LANES_AT_ONCE * (n_times + 2)
    n_runs = 2 * n_active * (n_times + 1)
    if work.table.shape[1] == n_table and work.runs.shape[1] == n_runs:
        return span._replace(history=history.arrays)
    work.listed[:] = -1
    work = work._replace(
        table=size.zeros(hands, n_table),
        paper=np.zeros((hands, arrays.N_PAPER, max(size.n_features, n_times) + 2), dtype=np.int64),
        runs=np.zeros((hands, n_runs), dtype=np.int32),
        masks=np.zeros((hands, arrays.N_MASKS, n_times // 64), dtype=np.uint64),
    )
    n_steps = 2 * size.batch * n_active if size.batch > 1 else 0
    switched = span.switched._replace(steps=np.zeros(n_steps, dtype=np.int32))
    return span._replace(work=work, switched=switched, history=history.arrays)
