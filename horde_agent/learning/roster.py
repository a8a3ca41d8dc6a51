"""Demons that come and go in mid-life: who answers from now on, and what those that stay take along.

An engine is laid out anew. Whoever stays takes its rows of weights and its numbers to its new lane; a newcomer finds
zeros. Nobody's numbers are recomputed, so that leaving and coming changes nothing for those that stay, but for the
rounding of what is written, and summed, at another time than it would have been.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from horde_agent.kernels import arrays
from horde_agent.kernels import lanes as of_lane

if TYPE_CHECKING:
    from horde_agent.kernels.arrays import Past, Span
    from horde_agent.learning.arrangement import Arrangement
    from horde_agent.learning.gibbs import GibbsTable

Integers = NDArray[np.int64]

NEWCOMER = -1


class Roster(NamedTuple):
    """Who answers from now on.

    Attributes:
        stays: Which demon each one was before, NEWCOMER where it is new, shape (n_demons,).
        group: Group of each demon, shape (n_demons,), numbered from 0. Newcomers have groups of their own: the others'
            traces reach back to before they came.
        policy: Policy of each group, shape (n_groups,).
        alpha, alpha_w: Step sizes of newcomers, already divided by the number of active tiles.
        cumulant: Which of the cumulants that are told each demon sums, shape (n_demons,), or None: each its own.
        table: Policies that the engine asks itself.
    """

    stays: Integers
    group: Integers
    policy: Integers
    alpha: float
    alpha_w: float
    cumulant: Integers | None = None
    table: GibbsTable | None = None

    @property
    def is_new(self) -> NDArray[np.bool_]:
        """Who is new, shape (n_demons,)."""
        return np.equal(self.stays, NEWCOMER)


class Move(NamedTuple):
    """Lanes that go from one tile to another: old tile `source`'s lanes `there` become tile `tile`'s lanes `here`."""

    tile: int
    here: Integers
    source: int
    there: Integers


def moves(old: Arrangement, new: Arrangement, stays: Integers) -> list[Move]:
    """Return which lanes go where; lanes are counted from the start of their tile."""
    staying = np.flatnonzero(stays != NEWCOMER)
    to, came_from = new.lane[staying], old.lane[stays[staying]]
    tile = np.searchsorted(new.start, to, side="right") - 1
    source = np.searchsorted(old.start, came_from, side="right") - 1
    here, there = to - new.start[tile], came_from - old.start[source]
    order = np.lexsort((source, tile))
    cuts = np.flatnonzero(np.diff(tile[order]) | np.diff(source[order])) + 1
    return [Move(int(tile[p[0]]), here[p], int(source[p[0]]), there[p]) for p in np.split(order, cuts) if p.size]


def rows_of(numbers: NDArray[Any], layout: Arrangement, tile: int) -> NDArray[Any]:
    """Return a view of one tile's rows, (n, lanes), of an array in which all tiles have n."""
    start, stop = int(layout.start[tile]), int(layout.start[tile + 1])
    n = numbers.size // layout.n_lanes
    return numbers[n * start : n * stop].reshape(n, stop - start)


def take_rows(numbers: NDArray[Any], old: Arrangement, into: NDArray[Any], new: Arrangement, moved: list[Move]) -> None:
    """Take whole columns along: weights, of which each tile has all rows."""
    if into.size:
        for move in moved:
            rows_of(into, new, move.tile)[:, move.here] = rows_of(numbers, old, move.source)[:, move.there]


def take_tails(past: Past, old: Arrangement, into: Past, new: Arrangement, moved: list[Move], now: int) -> None:
    """Take along the tails of the traces, where nothing is owed any more.

    Each tail is an unbroken run of steps up to the last one. A tile keeps as many as the longest that comes to it; a
    lane whose own is shorter has c = 0 before, which is what an ended trace looks like.
    """
    was, book = past.book, into.book
    for move in moved:
        for column in (arrays.N_KEPT, arrays.WAS_BUSY):
            book[move.tile, column] = max(book[move.tile, column], was[move.source, column])
    for tile, n in enumerate(book[:, arrays.N_KEPT]):
        into.times[tile, 0, :n] = np.arange(now - n, now)
    for move in moved:
        n, n_here = int(was[move.source, arrays.N_KEPT]), int(book[move.tile, arrays.N_KEPT])
        rows = rows_of(into.trace, new, move.tile)[n_here - n : n_here]
        rows[:, move.here] = rows_of(past.trace, old, move.source)[:n, move.there]


def take_numbers(roster: Roster, before: Span, old: Arrangement, into: Span, new: Arrangement) -> None:
    """Write the numbers of the lanes: those that they had, or a newcomer's, whose trace is empty."""
    lanes, fresh, staying = into.lanes, new.lane[roster.is_new], new.lane[~roster.is_new]
    came_from = old.lane[roster.stays[~roster.is_new]]
    lanes[of_lane.BOUND] = np.finfo(lanes.dtype).max
    lanes[:, staying] = before.lanes[:, came_from]
    into.past.dropped[:, staying] = before.past.dropped[:, came_from]
    lanes[of_lane.ALPHA, fresh], lanes[of_lane.ALPHA_W, fresh] = roster.alpha, roster.alpha_w
    into.work.is_aside[staying] = before.work.is_aside[came_from]
    is_aside = into.work.is_aside != 0
    for told in into.tiles[:4]:
        told[is_aside] = -1
