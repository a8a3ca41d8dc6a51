"""Which lane of the plain engine each demon has; the span engine's are dealt out in `arrangement.py`."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from horde_agent.learning.rules import LANE_UNIT

_WIDEST_BLOCK = 256  # lanes: a block's live rows, some 1,400 of a robot's features, should stay in a core's own cache
# A trace of its own for each lane costs less than the empty lanes of a block that fewer than eight demons share.
SMALLEST_SHARED_GROUP = 8


class Layout:
    """Which lane each demon has: the large groups first, a block or more each, then the small ones packed together.

    Args:
        group: Group of each demon, shape (n_demons,), numbered from 0.
        smallest_shared: Groups with fewer demons are packed, with a trace per lane.
        is_alone: Which demons have a trace of their own in any case, shape (n_demons,); nobody unless given.

    Attributes:
        n_lanes: Number of lanes, the empty ones at the ends of blocks included.
        lane: Lane of each demon, shape (n_demons,).
        group: Group of each lane, -1 where it is empty, shape (n_lanes,).
        start: Block b is the lanes start[b]..start[b + 1], shape (n_blocks + 1,).
        n_blocks: Number of blocks.
        n_shared: Number of those at the front whose lanes share one trace.
    """

    def __init__(
        self,
        group: NDArray[np.int64],
        smallest_shared: int = SMALLEST_SHARED_GROUP,
        is_alone: NDArray[np.bool_] | None = None,
    ) -> None:
        sizes, is_alone = np.bincount(group), np.zeros(group.size, dtype=bool) if is_alone is None else is_alone
        large = np.flatnonzero(sizes >= smallest_shared)
        blocks = [b for g in large for b in _cut(np.flatnonzero((group == g) & ~is_alone))]
        self.n_shared = len(blocks)
        blocks += _cut(np.flatnonzero((sizes[group] < smallest_shared) & ~is_alone))
        blocks += _cut(np.flatnonzero(is_alone))
        self.n_blocks = len(blocks)
        widths = [-(-members.size // LANE_UNIT) * LANE_UNIT for members in blocks]
        self.start = np.concatenate([[0], np.cumsum(widths)]).astype(np.int64)
        self.n_lanes = int(self.start[-1])
        self.lane = np.empty(group.size, dtype=np.int64)
        self.group = np.full(self.n_lanes, -1, dtype=np.int64)
        for members, first in zip(blocks, self.start, strict=False):
            self.lane[members] = np.arange(first, first + members.size)
        self.group[self.lane] = group


def _cut(members: NDArray[np.int64]) -> list[NDArray[np.int64]]:
    """Cut a run of demons into pieces of at most one block."""
    return [members[i : i + _WIDEST_BLOCK] for i in range(0, members.size, _WIDEST_BLOCK)]
