"""Where demons sit: lanes side by side, in blocks of rows, in flush groups; who moves where; and the memory behind it.

Demons come and go in mid-life. An engine is laid out anew then: whoever stays takes its rows of weights and its numbers
to its new lane; a newcomer finds zeros. Nobody's numbers are recomputed, so that it changes nothing for those that
stay, but for the rounding of what is written, and summed, at another time than it would have been.
"""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from horde_agent.types import Bools, Integers, Reals

LANE_UNIT = 16  # lanes come in multiples of a cache line of float32
LANES_OF_A_GROUP = 1_024  # of demons of many policies; they share the list of runs
_MOST_GROUPS = 64  # one for each step between two writings

_CACHE_LINE = 64  # bytes
_PAGE = 4_096  # bytes, the smallest there are
_PART = 1 << 26  # bytes that a thread touches at a time

NEWCOMER = -1


class DemonMapping(NamedTuple):
    """Who answers from now on.

    Attributes:
        stays: Which demon each one was before, NEWCOMER where it is new, shape (n_demons,).
        group: Group of each demon, shape (n_demons,), numbered from 0. Newcomers have groups of their own: the others'
            traces reach back to before they came.
        policy: Policy of each group, shape (n_groups,).
        alpha, alpha_w: Step sizes of newcomers, already divided by the number of active tiles.
        cumulant: Which of the cumulants that are told each demon sums, shape (n_demons,), or None: each its own.
    """

    old_index: Integers
    group: Integers
    policy: Integers
    alpha: float
    alpha_w: float
    cumulant: Integers | None = None

    @property
    def is_new(self) -> NDArray[np.bool_]:
        """Who is new, shape (n_demons,)."""
        return np.equal(self.old_index, NEWCOMER)


class Seating(NamedTuple):
    """In which blocks and flush groups demons sit, which decides how their numbers are rounded.

    Attributes:
        order: The demons, block by block, shape (n_demons,).
        sizes: Demons of each block, shape (n_blocks,).
        n_blocks: Blocks of each flush group, shape (n_flush_groups,).
        has_one_policy: Of each flush group, shape (n_flush_groups,): it may rest.
    """

    order: Integers
    sizes: Integers
    n_blocks: Integers
    has_one_policy: Bools

    @property
    def widths(self) -> Integers:
        """Lanes of each block, shape (n_blocks,)."""
        return np.asarray(-(-self.sizes // LANE_UNIT) * LANE_UNIT)


def assign_lanes(group: Integers, policy: Integers, widest: int) -> Seating:
    """Seat the demons of a policy side by side, in blocks of even width.

    A block in which nobody's ratio is above 0 has little to do, so that a policy with many demons is a flush group.

    Args:
        group: Trace group of each demon, shape (n_demons,), numbered from 0.
        policy: Policy of each trace group, shape (n_groups,).
        widest: Most lanes of a block.
    """
    policy_of = policy[group]
    sizes = np.bincount(policy_of)[policy_of]
    is_small = sizes < min(widest, 3 * LANE_UNIT)
    order = np.lexsort((group, policy_of))
    blocks: list[Integers] = []
    sizes_of_groups: list[int] = []
    for p in np.unique(policy_of[~is_small]):
        own = _even(order[policy_of[order] == p], widest)
        blocks, sizes_of_groups = blocks + own, [*sizes_of_groups, len(own)]
    n_alone = len(sizes_of_groups)
    others = _even(order[is_small[order]], widest)
    n_groups = min(_MOST_GROUPS, -(-len(others) * widest // LANES_OF_A_GROUP))
    shares = [len(share) for share in np.array_split(np.arange(len(others)), max(n_groups, 1)) if share.size]
    blocks, sizes_of_groups = blocks + others, sizes_of_groups + shares
    sizes_of_blocks = np.array([members.size for members in blocks], dtype=np.int64)
    has_one_policy = np.arange(len(sizes_of_groups)) < n_alone
    return Seating(np.concatenate(blocks), sizes_of_blocks, np.array(sizes_of_groups, dtype=np.int64), has_one_policy)


class ShardContext(NamedTuple):
    """What a part of a larger Horde knows of the whole: enough for its demons' numbers to be those of the whole.

    No sum crosses a lane, so that a demon depends on others in this alone: with whom it is flushed, and when.

    Attributes:
        seating: How its demons sit, as they do in the whole.
        first_group: Which of the whole's flush groups is its first.
        n_groups: Flush groups of the whole.
        may_rest: Whether any of these has one policy alone.
        largest_decay: The largest product of a continuation and a trace decay in the whole.
        n_gibbs: Gibbs policies of the whole.
    """

    seating: Seating
    first_group: int
    n_groups: int
    may_rest: bool
    largest_decay: float
    n_gibbs: int


class Layout:
    """Which lane each demon has.

    Args:
        policy_of: Policy of each demon, shape (n_demons,).
        seating: In which blocks they sit.

    Attributes:
        lane: Lane of each demon, shape (n_demons,).
        demon: Of each lane, -1 where it is empty, shape (n_lanes,).
        start: Block b is the lanes start[b]..start[b + 1], shape (n_blocks + 1,).
        flush_group: Of each block, shape (n_blocks,).
        first_block: Flush group g is the blocks first_block[g]..first_block[g + 1], shape (n_flush_groups + 1,).
        only_policy: Of each flush group, its policy, or -1 where it has several, shape (n_flush_groups,).
    """

    def __init__(self, policy_of: Integers, seating: Seating) -> None:
        order, sizes, n_blocks, has_one_policy = seating
        self.flush_group = np.repeat(np.arange(n_blocks.size), n_blocks)
        self.first_block = np.concatenate([[0], np.cumsum(n_blocks)]).astype(np.int64)
        self.start = np.concatenate([[0], np.cumsum(seating.widths)]).astype(np.int64)
        self.n_lanes, self.n_blocks = int(self.start[-1]), sizes.size
        first = np.cumsum(sizes) - sizes  # in `order`, of each block
        self.lane = np.empty(order.size, dtype=np.int64)
        self.lane[order] = np.arange(order.size) + np.repeat(self.start[:-1] - first, sizes)
        self.demon = np.full(self.n_lanes, -1, dtype=np.int64)
        self.demon[self.lane] = np.arange(order.size)
        self.only_policy = np.where(has_one_policy, policy_of[order[first[self.first_block[:-1]]]], -1)

    def block_of(self, lane: int) -> int:
        """Return the block of a lane."""
        return int(np.searchsorted(self.start, lane, side="right")) - 1


def _even(members: Integers, widest: int) -> list[Integers]:
    """Cut demons into pieces of at most `widest`, as even as can be."""
    return np.array_split(members, -(-members.size // widest)) if members.size else []


# ---- who moves where ------------------------------------------------------------------------------------------------


class Move(NamedTuple):
    """Lanes that go from one block to another: the old `source`'s lanes `there` become `block`'s lanes `here`."""

    block: int
    here: Integers
    source: int
    there: Integers


def moves(old: Layout, new: Layout, old_index: Integers) -> list[Move]:
    """Return each lane's old and new position in its block; `old_index`, shape (n_demons,), as in `DemonMapping`."""
    staying = np.flatnonzero(old_index != NEWCOMER)
    to, came_from = new.lane[staying], old.lane[old_index[staying]]
    block = np.searchsorted(new.start, to, side="right") - 1
    source = np.searchsorted(old.start, came_from, side="right") - 1
    here, there = to - new.start[block], came_from - old.start[source]
    order = np.lexsort((source, block))
    cuts = np.flatnonzero(np.diff(block[order]) | np.diff(source[order])) + 1
    return [Move(int(block[p[0]]), here[p], int(source[p[0]]), there[p]) for p in np.split(order, cuts) if p.size]


def rows_of(numbers: Reals, layout: Layout, block: int, n: int) -> Reals:
    """Return a view of a block's rows, shape (chunks, n, lanes), of chunks in which all blocks have n rows."""
    start, stop = int(layout.start[block]), int(layout.start[block + 1])
    return numbers.reshape(-1, n * layout.n_lanes)[:, n * start : n * stop].reshape(-1, n, stop - start)


# ---- memory ---------------------------------------------------------------------------------------------------------


def aligned_zeros(shape: tuple[int, ...], dtype: np.dtype[Any]) -> NDArray[Any]:
    """Return zeros that begin with a cache line: a row that does not takes one more of them, and each vector two."""
    n_bytes = int(np.prod(shape)) * dtype.itemsize
    raw = np.zeros(n_bytes + _CACHE_LINE, dtype=np.uint8)
    skipped = -raw.ctypes.data % _CACHE_LINE
    return raw[skipped : skipped + n_bytes].view(dtype).reshape(shape)


def touch(*arrays: NDArray[Any], n_threads: int = 1) -> None:
    """Have the system put memory behind flat arrays now, not when they are first written to; nothing in them changes.

    It takes 0.3 to 0.8 ms per 2 MB: a robot's step that came upon rows of 50,000 demons for the first time took 0.4 s.
    """
    parts = [a[i : i + _PART // a.itemsize] for a in arrays for i in range(0, a.size, _PART // a.itemsize)]
    with ThreadPoolExecutor(n_threads) as threads:
        list(threads.map(_touch, parts))


def _touch(part: NDArray[Any]) -> None:
    """Write a number of each page to its place."""
    of_each_page = part[:: _PAGE // part.itemsize]
    of_each_page[:] = of_each_page.copy()
