"""SharedHistory: the past of the features that all demons share. It owns the arrays of `kernels/history.py`."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from horde_agent.kernels import history as kernels
from horde_agent.learning.memory import aligned_zeros

Tiles = NDArray[np.int64]

_FIRST_TIMES = 512  # grown where demons look further back


class SharedHistory:
    """When features were on, and the overlaps of past feature vectors with the latest ones.

    Args:
        n_features: Length n of the feature vectors.
        n_slots: Latest times of which tiles, changes and overlaps are kept, at least 2.
        n_times: Length of the past for which there is room at first, a multiple of 64; it grows as needed.

    Attributes:
        arrays: What the kernels read.
    """

    def __init__(self, n_features: int, n_slots: int = 2, n_times: int = _FIRST_TIMES) -> None:
        self.arrays = kernels.History(
            features=np.zeros((n_features, 2), dtype=np.int32),
            bits=np.zeros((0, n_features, n_times // 32), dtype=np.uint32),
            overlap=np.zeros((n_slots, n_times), dtype=np.int32),
            tiles=np.zeros((n_slots, 0), dtype=np.int64),
            changed=np.zeros((n_slots, 2, 0), dtype=np.int64),
            counts=np.zeros((n_slots, kernels.N_COUNTS), dtype=np.int64),
            turned=np.zeros(2, dtype=np.int64),
            clock=np.zeros(kernels.N_CLOCK, dtype=np.int64),
        )
        self.arrays.clock[kernels.NOW] = -1
        self._n_times = n_times
        kernels.forget(self.arrays)  # nothing; but it is compiled now, and not in the middle of a life

    @property
    def now(self) -> int:
        """Time of the present feature vector, -1 before the first."""
        return int(self.arrays.clock[kernels.NOW])

    @property
    def n_times(self) -> int:
        """Length of the past for which there is room."""
        return self._n_times

    @property
    def tiles(self) -> Tiles:
        """Active features of the present."""
        slot = self.now % self.arrays.counts.shape[0]
        return self.arrays.tiles[slot, : self.arrays.counts[slot, kernels.N_TILES]]

    @property
    def most(self) -> int:
        """How often a feature is on at present."""
        return int(self.arrays.counts[self.now % self.arrays.counts.shape[0], kernels.MOST])

    def has_room(self, n_active: int, n_more: int = 1) -> bool:
        """Say whether so many more times, with so many active features, fit."""
        return bool(kernels.has_room(self.arrays, n_active, n_more))

    def make_room(self, n_active: int, n_more: int = 1) -> None:
        """Make room for more times, by forgetting or by growing; nobody may still want to learn from a slot."""
        arrays, clock = self.arrays, self.arrays.clock
        if n_active > arrays.tiles.shape[1]:
            self.arrays = arrays = arrays._replace(
                tiles=_widened(arrays.tiles, n_active),
                changed=_widened(arrays.changed, n_active),
                turned=np.zeros(2 * n_active + 2, dtype=np.int64),
                bits=_more_planes(arrays.bits, n_active),
            )
        if clock[kernels.NOW] + n_more - clock[kernels.ORIGIN] < self._n_times:
            return
        kernels.forget(arrays)
        if clock[kernels.NOW] + 1 - clock[kernels.ORIGIN] > self._n_times // 2:  # else it would soon be full again
            self._n_times *= 2
            self.arrays = arrays._replace(
                overlap=_widened(arrays.overlap, self._n_times), bits=_widened(arrays.bits, self._n_times // 32)
            )

    def overlaps_with(self, tiles: Tiles) -> NDArray[np.int32]:
        """Return phi_k.phi for each past k, shape (n_times,); nothing changes."""
        out = np.zeros(self._n_times, dtype=np.int32)
        kernels.overlaps_with(self.arrays, tiles, out)
        return out


def _more_planes(bits: NDArray[np.uint32], most: int) -> NDArray[np.uint32]:
    """Return a copy with planes enough for a feature that is on `most` times; pages not in use cost nothing."""
    out = aligned_zeros((int(most).bit_length(), *bits.shape[1:]), bits.dtype)
    out[: bits.shape[0]] = bits[: out.shape[0]]
    return out


def _widened(array: NDArray[Any], n: int) -> NDArray[Any]:
    """Return a copy whose last dimension is n, the new entries zero."""
    out = aligned_zeros((*array.shape[:-1], n), array.dtype)
    out[..., : array.shape[-1]] = array
    return out
