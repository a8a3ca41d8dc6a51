"""Layout of demons in memory: lanes, blocks of rows, flush groups, moves between layouts, and allocation.

If demons are added and removed, remaining demons' weights and numbers are copied to their new lanes. Nothing is
recomputed, so that their results change only by the rounding of sums that are flushed at another time.
"""

from __future__ import annotations

from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from horde_agent.types import Bools, Integers, Reals

LANE_UNIT = 16  # lanes come in multiples of a cache line of float32
WIDEST = 128  # lanes of a block
_MANY, _WIDEST_OF_MANY = 8_192, 512  # from _MANY demons on, rows exceed the caches
LANES_OF_A_GROUP = 1_024  # lanes of a flush group with several policies; they share the list of runs
_MOST_GROUPS = 64  # one for each step between two flushes

_CACHE_LINE = 64  # bytes
_PAGE = 4_096  # bytes, the smallest page size
_PART = 1 << 26  # bytes that a thread pre-faults at a time

NEWCOMER = -1


class DemonMapping(NamedTuple):
    """The demons after an addition or removal.

    Attributes:
        old_index: Previous index of each demon, NEWCOMER if it is new, shape (n_demons,).
        group: Trace group of each demon, shape (n_demons,), numbered from 0. New demons have separate groups, because
            the traces of other groups include earlier steps.
        policy: Policy of each group, shape (n_groups,).
        alpha, alpha_w: Step sizes of new demons, already divided by the number of active tiles.
        cumulant: Index of each demon's cumulant in the signals, shape (n_demons,); None for one each.
        algorithm: Update rule of each demon, for `MixedEngine`.
        largest_decay: Upper bound of gamma lambda.
        n_actions: Number of actions, for rules that find policies.
    """

    old_index: Integers
    group: Integers
    policy: Integers
    alpha: float = np.nan
    alpha_w: float = np.nan
    cumulant: Integers | None = None
    algorithm: tuple[str, ...] = ()
    largest_decay: float = 0.0
    n_actions: int = 1

    @property
    def is_new(self) -> NDArray[np.bool_]:
        """Mask of new demons, shape (n_demons,)."""
        return np.equal(self.old_index, NEWCOMER)


class Seating(NamedTuple):
    """Assignment of demons to blocks and flush groups, which determines rounding.

    Attributes:
        order: The demons, block by block, shape (n_demons,).
        sizes: Number of demons in each block, shape (n_blocks,).
        n_blocks: Number of blocks in each flush group, shape (n_flush_groups,).
        has_one_policy: True for a flush group with one policy, which can be idle, shape (n_flush_groups,).
    """

    order: Integers
    sizes: Integers
    n_blocks: Integers
    has_one_policy: Bools

    @property
    def widths(self) -> Integers:
        """Number of lanes of each block, shape (n_blocks,)."""
        return np.asarray(-(-self.sizes // LANE_UNIT) * LANE_UNIT)


def widest(n_demons: int, *, is_deferred: bool) -> int:
    """Return the largest number of lanes of a block."""
    return _WIDEST_OF_MANY if n_demons >= _MANY and not is_deferred else WIDEST


def assign_lanes(group: Integers, policy: Integers, widest: int) -> Seating:
    """Assign the demons of a policy to adjacent lanes, in blocks of even width.

    A policy with many demons gets its own flush group, because a group whose ratios are all 0 can skip the step.

    Args:
        group: Trace group of each demon, shape (n_demons,), numbered from 0.
        policy: Policy of each trace group, shape (n_groups,).
        widest: Largest number of lanes of a block.
    """
    policy_of = policy[group]
    sizes = np.bincount(policy_of)[policy_of]
    is_small = sizes < min(widest, 3 * LANE_UNIT)
    order = np.lexsort((group, policy_of))
    blocks: list[Integers] = []
    sizes_of_groups: list[int] = []
    for p in np.unique(policy_of[~is_small]):
        own = _split_evenly(order[policy_of[order] == p], widest)
        blocks, sizes_of_groups = blocks + own, [*sizes_of_groups, len(own)]
    n_alone = len(sizes_of_groups)
    others = _split_evenly(order[is_small[order]], widest)
    n_groups = min(_MOST_GROUPS, -(-len(others) * widest // LANES_OF_A_GROUP))
    shares = [len(share) for share in np.array_split(np.arange(len(others)), max(n_groups, 1)) if share.size]
    blocks, sizes_of_groups = blocks + others, sizes_of_groups + shares
    sizes_of_blocks = np.array([members.size for members in blocks], dtype=np.int64)
    has_one_policy = np.arange(len(sizes_of_groups)) < n_alone
    return Seating(np.concatenate(blocks), sizes_of_blocks, np.array(sizes_of_groups, dtype=np.int64), has_one_policy)


class ShardLayout(NamedTuple):
    """Layout of a shard's demons of one update rule, as in the whole Horde.

    No sum crosses a lane, so that a demon depends on other demons only through the composition and time of its flushes.

    Attributes:
        seating: Lane assignment of these demons.
        groups: Index of each of their flush groups among those of the rule in the whole Horde, (n_flush_groups,).
        n_groups: Number of the rule's flush groups in the whole Horde.
        may_idle: True if one of these has only one policy.
    """

    seating: Seating
    groups: Integers
    n_groups: int
    may_idle: bool


class ShardContext(NamedTuple):
    """Properties of the whole Horde that a shard needs to compute bit-identical results.

    Attributes:
        layouts: Layout of the shard's demons of each update rule of the whole Horde.
        predicted: Update rules with a demon whose prediction is a cumulant: they process queued steps on each step.
        largest_decay: Largest product of a continuation and a trace decay in the whole Horde.
        n_gibbs: Number of Gibbs policies of the whole Horde.
    """

    layouts: Mapping[str, ShardLayout]
    predicted: frozenset[str]
    largest_decay: float
    n_gibbs: int


WHOLE = ShardContext(layouts={}, predicted=frozenset(), largest_decay=0.0, n_gibbs=0)
"""The context of a Horde that is no shard."""


class Layout:
    """Lane of each demon.

    Attributes:
        lane: Lane of each demon, shape (n_demons,).
        demon: Demon of each lane, -1 for an empty lane, shape (n_lanes,).
        start: Block b is the lanes start[b]..start[b + 1], shape (n_blocks + 1,).
        flush_group: Flush group of each block, shape (n_blocks,).
        first_block: Flush group g is the blocks first_block[g]..first_block[g + 1], shape (n_flush_groups + 1,).
        only_policy: Policy of each flush group, or -1 if it has several, shape (n_flush_groups,).
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


def _split_evenly(members: Integers, widest: int) -> list[Integers]:
    return np.array_split(members, -(-members.size // widest)) if members.size else []


# ---- moves between layouts ------------------------------------------------------------------------------------------


Move = tuple[int, Integers, int, Integers]
"""A block, lanes of it, a block of the old layout, and the lanes there that become these."""


def moves(old: Layout, new: Layout, old_index: Integers) -> list[Move]:
    """Return each lane's old and new position in its block; `old_index`, shape (n_demons,), as in `DemonMapping`."""
    staying = np.flatnonzero(old_index != NEWCOMER)
    to, came_from = new.lane[staying], old.lane[old_index[staying]]
    block = np.searchsorted(new.start, to, side="right") - 1
    source = np.searchsorted(old.start, came_from, side="right") - 1
    here, there = to - new.start[block], came_from - old.start[source]
    order = np.lexsort((source, block))
    cuts = np.flatnonzero(np.diff(block[order]) | np.diff(source[order])) + 1
    return [(int(block[p[0]]), here[p], int(source[p[0]]), there[p]) for p in np.split(order, cuts) if p.size]


def rows_of(numbers: Reals, layout: Layout, block: int, n: int) -> Reals:
    """Return a view of a block's rows, shape (chunks, n, lanes); each chunk holds n rows of every block."""
    start, stop = int(layout.start[block]), int(layout.start[block + 1])
    return numbers.reshape(-1, n * layout.n_lanes)[:, n * start : n * stop].reshape(-1, n, stop - start)


# ---- memory ---------------------------------------------------------------------------------------------------------


def aligned_zeros(shape: tuple[int, ...], dtype: np.dtype[Any]) -> NDArray[Any]:
    """Return zeros aligned to a cache line; an unaligned row would touch one more line, and each vector two."""
    n_bytes = int(np.prod(shape)) * dtype.itemsize
    raw = np.zeros(n_bytes + _CACHE_LINE, dtype=np.uint8)
    skipped = -raw.ctypes.data % _CACHE_LINE
    return raw[skipped : skipped + n_bytes].view(dtype).reshape(shape)


def prefault(*arrays: NDArray[Any], n_threads: int = 1) -> None:
    """Pre-fault the memory of flat arrays, without changing their content.

    The first write to a page takes 0.3 to 0.8 ms per 2 MB: without this, a robot's step that first used rows of 50,000
    demons took 0.4 s.
    """
    parts = [a[i : i + _PART // a.itemsize] for a in arrays for i in range(0, a.size, _PART // a.itemsize)]
    with ThreadPoolExecutor(n_threads) as threads:
        list(threads.map(_prefault_part, parts))


def _prefault_part(part: NDArray[Any]) -> None:
    of_each_page = part[:: _PAGE // part.itemsize]
    of_each_page[:] = of_each_page.copy()
