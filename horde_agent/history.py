"""SharedHistory: the past of the features that all demons share. It owns the arrays of `kernels/history.py`."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from horde_agent.kernels import history as kernels

Tiles = NDArray[np.int64]

_FIRST_TIMES = 512  # grown where demons look further back


class SharedHistory:
    """When features were on, and the overlaps of past feature vectors with the present one.

    Args:
        n_features: Length n of the feature vectors.
        n_times: Length of the past for which there is room at first; it grows as needed.

    Attributes:
        arrays: What the kernels read.
        tiles: Active features of the present, shape (n_active,).
    """

    def __init__(self, n_features: int, n_times: int = _FIRST_TIMES) -> None:
        self.arrays = kernels.History(
            features=np.zeros((3, n_features), dtype=np.int64),
            rows=np.zeros((n_features, n_times), dtype=np.uint8),
            log=np.zeros((0, 4), dtype=np.int32),
            overlap=np.zeros(n_times, dtype=np.int32),
            changed=np.zeros((2, 2, 0), dtype=np.int64),
            turned=np.zeros(0, dtype=np.int64),
            clock=np.zeros(kernels.N_CLOCK, dtype=np.int64),
        )
        self.arrays.clock[kernels.NOW] = -1
        self.tiles = np.zeros(0, dtype=np.int64)

    @property
    def now(self) -> int:
        """Time of the present feature vector, -1 before the first."""
        return int(self.arrays.clock[kernels.NOW])

    def observe(self, tiles: Tiles) -> None:
        """Move the present on by one time, to the feature vector at `tiles`."""
        self._make_room(max(tiles.size, self.tiles.size))
        kernels.observe(self.arrays, self.tiles, tiles)
        self.tiles = tiles.copy()

    def overlaps_with(self, tiles: Tiles) -> NDArray[np.int32]:
        """Return phi_k.phi for each past k, in the shape of `arrays.overlap`; nothing changes."""
        out = np.empty_like(self.arrays.overlap)
        kernels.overlaps_with(self.arrays, tiles, out)
        return out

    def _make_room(self, n_active: int) -> None:
        """Make room for one more time at which all of `n_active` features change."""
        arrays, clock = self.arrays, self.arrays.clock
        if arrays.changed.shape[2] < n_active:
            self.arrays = arrays = arrays._replace(
                changed=_widened(arrays.changed, n_active), turned=np.zeros(2 * n_active, dtype=np.int64)
            )
        n_times, capacity = arrays.overlap.size, arrays.log.shape[0]
        if clock[kernels.NOW] + 1 - clock[kernels.ORIGIN] < n_times and clock[kernels.N_LOG] + n_active <= capacity:
            return
        kernels.forget(arrays)
        if clock[kernels.NOW] + 1 - clock[kernels.ORIGIN] > n_times // 2:  # else there would soon be more to forget
            longer = np.zeros(2 * n_times, dtype=np.int32)
            longer[:n_times] = arrays.overlap
            arrays = arrays._replace(overlap=longer, rows=_widened(arrays.rows, 2 * n_times))
        needed = int(clock[kernels.N_LOG]) + n_active
        if needed > capacity // 2:
            log = np.zeros((4 * needed, 4), dtype=np.int32)
            log[:capacity] = arrays.log
            arrays = arrays._replace(log=log)
        self.arrays = arrays


def _widened(array: NDArray[Any], n: int) -> NDArray[Any]:
    """Return a copy whose last dimension is n, the new entries zero."""
    out = np.zeros((*array.shape[:-1], n), dtype=array.dtype)
    out[..., : array.shape[-1]] = array
    return out
