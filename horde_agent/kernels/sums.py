"""What a step asks for: theta.phi, w.phi and e.phi of a tile's lanes, by the weights as written and by what is owed.

By the weights as written these sums move on with the rows of the features that went on and off, or are summed afresh;
what is owed to them is one scan over the past (`span.py` has the algebra). Deferred, the first are found for all steps
of a batch at once.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from horde_agent.kernels import history as past
from horde_agent.kernels._jit import inlined, inner_kernel
from horde_agent.kernels.arrays import (
    AFTER,
    AT,
    CARRIES,
    IS_CARRYING,
    IS_STALE,
    N_KEPT,
    N_OWED,
    N_SPENT,
    SOON,
    SPENT_AT,
    W_AT,
    Integers,
    Reals,
    Span,
)
from horde_agent.kernels.batch import sum_rows
from horde_agent.kernels.history import History
from horde_agent.kernels.lanes import ALPHA, ALPHA_W, BASE, BASE_E, BASE_W, DECAYED, SPENT, SUM, TURNED, Q, V
from horde_agent.kernels.owed import sum_afresh
from horde_agent.kernels.vectors import follow, move_rows, weigh


@inner_kernel
def move_base(rows: Reals, origin: int, width: int, history: History, time: int, soon: int, out: Reals) -> None:
    """Move `out` from the rows at `time` - 1 to those at `time`; from scratch where that is less."""
    slot = past.slot_of(history, time)
    n_gained, n_lost = history.counts[slot, past.N_GAINED], history.counts[slot, past.N_LOST]
    if n_gained + n_lost < history.counts[slot, past.N_TILES]:
        gained, lost = history.changed[slot, past.GAINED], history.changed[slot, past.LOST]
        move_rows(rows, origin, width, gained, n_gained, lost, n_lost, soon, out)
    else:
        sum_afresh(rows, origin, width, tiles_at(history, time), out)


@inlined
def tiles_at(history: History, time: int) -> Integers:
    """Return the active features of one of the latest times."""
    slot = past.slot_of(history, time)
    return history.tiles[slot, : history.counts[slot, past.N_TILES]]


@inner_kernel
def scan(b: int, hand: int, span: Span, overlap: NDArray[np.int32], sums: tuple[Reals, ...]) -> None:
    """Add up the past against one feature vector, whose overlaps are given.

    `sums` are four rows over the tile's lanes: v (begun by the caller), sum d u, sum q G, sum h G.
    """
    past_, work, start, stop = span.past, span.work, span.tiles.start[b], span.tiles.start[b + 1]
    book, origin = past_.book[b], span.history.clock[past.ORIGIN]
    n_kept, n_owed = book[N_KEPT], book[N_OWED]
    at, after, spent_at = work.scratch[hand, AT], work.scratch[hand, AFTER], work.scratch[hand, SPENT_AT]
    for k in range(n_kept):
        at[k] = overlap[past_.times[b, 0, k] - origin]
    for k in range(n_owed):
        after[k] = overlap[past_.times[b, 0, n_kept - n_owed + k] + 1 - origin]
    for k in range(book[N_SPENT]):
        spent_at[k] = overlap[past_.times[b, 1, k] - origin]
    n_places, period, width = past_.times.shape[2], past_.m_steps.shape[1], stop - start
    owed = 2 * period * start
    follow(past_.trace, n_places * start, past_.owed, owed, at, n_kept, n_owed, sums[0], sums[1])
    weigh(past_.spent, period * start, width, spent_at, book[N_SPENT], sums[2])
    weigh(past_.owed, owed + width, 2 * width, after, n_owed, sums[3])


@inner_kernel
def find_q(b: int, time: int, span: Span) -> None:
    """Write w_t.phi_t for t = `time` - 1: the rows as written, and what is owed to them."""
    lanes, start, stop, n = span.lanes, span.tiles.start[b], span.tiles.start[b + 1], span.memory.is_alive.shape[1]
    book, base = span.past.book[b], lanes[BASE_W, start:stop]
    if book[W_AT] == time - 2:
        move_base(span.memory.w, n * start, stop - start, span.history, time - 1, book[SOON], base)
    elif book[W_AT] != time - 1:
        sum_afresh(span.memory.w, n * start, stop - start, tiles_at(span.history, time - 1), base)
    book[W_AT] = time - 1
    for i in range(start, stop):
        lanes[Q, i] = lanes[BASE_W, i] + lanes[ALPHA_W, i] * (lanes[SUM, i] - lanes[SPENT, i])


@inner_kernel
def look_ahead(b: int, hand: int, time: int, span: Span, is_foreseen: bool) -> None:
    """Move a tile's sums on to phi at `time`, t + 1: BASE, SUM, SPENT, TURNED, DECAYED = g_t e_{t-1}.phi_{t+1}."""
    lanes, history, memory, book = span.lanes, span.history, span.memory, span.past.book[b]
    start, stop, n = span.tiles.start[b], span.tiles.start[b + 1], memory.is_alive.shape[1]
    width = stop - start
    if not is_foreseen:
        move_base(memory.theta, n * start, width, history, time, book[SOON], lanes[BASE, start:stop])
    if book[IS_CARRYING]:
        none = np.int64(0)
        move_base(memory.carried[book[CARRIES]], none, width, history, time, none, lanes[BASE_E, start:stop])
    add_up(b, hand, time, span)


@inner_kernel
def add_up(b: int, hand: int, time: int, span: Span) -> None:
    """Write a tile's sums over the past against phi at `time`."""
    lanes, history, start, stop = span.lanes, span.history, span.tiles.start[b], span.tiles.start[b + 1]
    is_carrying = span.past.book[b, IS_CARRYING]
    for i in range(start, stop):
        lanes[DECAYED, i] = lanes[BASE_E, i] if is_carrying else 0
    sums = (lanes[DECAYED, start:stop], lanes[SUM, start:stop], lanes[SPENT, start:stop], lanes[TURNED, start:stop])
    scan(b, hand, span, history.overlap[past.slot_of(history, time)], sums)


@inner_kernel
def foresee(b: int, hand: int, n_steps: int, n_switched: int, span: Span) -> None:
    """Write theta.phi and w.phi, by a tile's weights as written, at each of the coming steps into `bases`."""
    lanes, memory, book, bases = span.lanes, span.memory, span.past.book[b], span.work.bases[hand]
    start, stop, n = span.tiles.start[b], span.tiles.start[b + 1], span.memory.is_alive.shape[1]
    since, width = span.history.clock[past.NOW] - n_steps, stop - start
    if book[W_AT] != since:
        sum_afresh(memory.w, n * start, width, tiles_at(span.history, since), lanes[BASE_W, start:stop])
    sum_rows(memory.theta, n * start, width, span.switched, n_switched, n_steps, lanes[BASE, start:stop], bases[0])
    sum_rows(memory.w, n * start, width, span.switched, n_switched, n_steps, lanes[BASE_W, start:stop], bases[1])
    book[W_AT] = since


@inner_kernel
def read_bases(b: int, hand: int, step: int, span: Span) -> None:
    """Set a tile's BASE to the time before a step of the batch, its BASE_W to the same time, from `bases`."""
    start, lanes, bases = span.tiles.start[b], span.lanes, span.work.bases[hand]
    width = span.tiles.start[b + 1] - start
    if step > 0:
        for i in range(width):
            lanes[BASE, start + i] = bases[0, (step - 1) * width + i]
            lanes[BASE_W, start + i] = bases[1, (step - 1) * width + i]


@inner_kernel
def refresh(b: int, hand: int, time: int, span: Span) -> None:
    """Write a tile's sums and V at `time` anew, after steps that left them behind; BASE is there already."""
    lanes, memory, book = span.lanes, span.memory, span.past.book[b]
    start, stop = span.tiles.start[b], span.tiles.start[b + 1]
    if book[IS_CARRYING]:
        tiles = tiles_at(span.history, time)
        sum_afresh(memory.carried[book[CARRIES]], np.int64(0), stop - start, tiles, lanes[BASE_E, start:stop])
    add_up(b, hand, time, span)
    for i in range(start, stop):
        lanes[V, i] = lanes[BASE, i] + lanes[ALPHA, i] * (lanes[SUM, i] - lanes[TURNED, i])
    book[IS_STALE] = 0
