"""Where demons sit: lanes side by side, in tiles that learn together, in families that write together."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from horde_agent.learning.rules import LANE_UNIT

TILES_OF_A_FAMILY = 8  # which list their runs once for each hand
_MOST_FAMILIES = 64  # one for each step between writings


class Arrangement:
    """Which lane each demon has: the demons of a policy side by side, in tiles of even width.

    A tile in which nobody's rho is above 0 has little to do, so that a policy with many demons gets tiles of its own.

    Args:
        group: Group of each demon, shape (n_demons,), numbered from 0.
        policy: Policy of each group, shape (n_groups,).
        widest: Most lanes of a tile.
        of_a_family: Tiles that write what they owe together, where policies are small.

    Attributes:
        lane: Lane of each demon, shape (n_demons,).
        group, demon: Of each lane, -1 where it is empty, shape (n_lanes,).
        start: Tile b is the lanes start[b]..start[b + 1], shape (n_tiles + 1,).
        family: Of each tile, shape (n_tiles,): a policy with tiles of its own is a family, the others' tiles a few.
        first: Family f is the tiles first[f]..first[f + 1], shape (n_families + 1,).
        is_mixed: Of each family, 1 where its tiles are of several policies, uint8 of shape (n_families,).
    """

    def __init__(
        self,
        group: NDArray[np.int64],
        policy: NDArray[np.int64],
        widest: int,
        of_a_family: int = TILES_OF_A_FAMILY,
    ) -> None:
        policy_of = policy[group]
        sizes = np.bincount(policy_of)[policy_of]
        is_small = sizes < min(widest, 3 * LANE_UNIT)
        order = np.lexsort((group, policy_of))
        pieces: list[NDArray[np.int64]] = []
        sizes_of_families: list[int] = []
        for p in np.unique(policy_of[~is_small]):
            pieces += _even(order[policy_of[order] == p], widest)
            sizes_of_families.append(len(pieces) - sum(sizes_of_families))
        n_pure = len(sizes_of_families)
        others = _even(order[is_small[order]], widest)
        n_families = min(_MOST_FAMILIES, -(-len(others) // of_a_family))
        sizes_of_families += [len(f) for f in np.array_split(np.arange(len(others)), max(n_families, 1)) if f.size]
        pieces += others
        self.is_mixed = (np.arange(len(sizes_of_families)) >= n_pure).astype(np.uint8)
        self.family = np.repeat(np.arange(len(sizes_of_families)), sizes_of_families)
        self.first = np.concatenate([[0], np.cumsum(sizes_of_families)]).astype(np.int64)
        widths = [-(-members.size // LANE_UNIT) * LANE_UNIT for members in pieces]
        self.start = np.concatenate([[0], np.cumsum(widths)]).astype(np.int64)
        self.n_lanes, self.n_tiles = int(self.start[-1]), len(pieces)
        self.lane = np.empty(group.size, dtype=np.int64)
        self.group, self.demon = np.full((2, self.n_lanes), -1, dtype=np.int64)
        for members, first in zip(pieces, self.start, strict=False):
            self.lane[members] = np.arange(first, first + members.size)
        self.group[self.lane], self.demon[self.lane] = group, np.arange(group.size)

    def way_to(self, k: int) -> NDArray[np.int64]:
        """Return how many lanes lie between a tile's first and that of the k-th after it, if as wide, else 0."""
        way, width = np.zeros(self.n_tiles, dtype=np.int64), np.diff(self.start)
        way[:-k] = np.where(width[k:] == width[:-k], self.start[k:-1] - self.start[: -1 - k], 0)
        return way


def _even(members: NDArray[np.int64], widest: int) -> list[NDArray[np.int64]]:
    """Cut demons into pieces of at most `widest`, as even as can be."""
    return np.array_split(members, -(-members.size // widest)) if members.size else []
