"""SharedHistory: the past of the features that all demons share. It owns the arrays of `kernels/history.py`."""

from __future__ import annotations

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
        def zeros(*shape: int) -> NDArray[np.int64]:
            return np.zeros(shape, dtype=np.int64)

        n = n_features
        self.arrays = kernels.History(
            phi=zeros(n),
            since=zeros(n),
            fresh=zeros(n),
            last=np.full(n, -1, dtype=np.int64),
            last_end=zeros(n),
            log=zeros(0, 4),
            overlap=zeros(n_times),
            steps=zeros(n_times + 1),
            gained=zeros(2, 0),
            lost=zeros(2, 0),
            n_gained=zeros(2),
            n_lost=zeros(2),
            clock=zeros(kernels.N_CLOCK),
        )
        self.arrays.clock[kernels.NOW] = -1
        self.tiles = zeros(0)

    @property
    def now(self) -> int:
        """Time of the present feature vector, -1 before the first."""
        return int(self.arrays.clock[kernels.NOW])

    def observe(self, tiles: Tiles) -> None:
        """Move the present on by one time, to the feature vector at `tiles`."""
        self._make_room(max(tiles.size, self.tiles.size))
        kernels.observe(self.arrays, self.tiles, tiles)
        self.tiles = tiles.copy()

    def overlaps_with(self, tiles: Tiles) -> NDArray[np.int64]:
        """Return phi_k.phi for each past k, in the shape of `arrays.overlap`; nothing changes."""
        out = np.empty_like(self.arrays.overlap)
        kernels.overlaps_with(self.arrays, tiles, out)
        return out

    def _make_room(self, n_active: int) -> None:
        """Make room for one more time at which all of `n_active` features change."""
        arrays, clock = self.arrays, self.arrays.clock
        if arrays.gained.shape[1] < n_active:
            self.arrays = arrays = arrays._replace(
                gained=_widened(arrays.gained, n_active), lost=_widened(arrays.lost, n_active)
            )
        n_times, capacity = arrays.overlap.size, arrays.log.shape[0]
        n_used = self.now + 1 - int(clock[kernels.ORIGIN])
        if n_used < n_times and clock[kernels.N_LOG] + n_active <= capacity:
            return
        kernels.forget(arrays, np.empty(capacity, dtype=np.int64))
        n_used = self.now + 1 - int(clock[kernels.ORIGIN])
        if n_used > n_times // 2:  # else there would soon be something to forget again
            arrays = arrays._replace(
                overlap=_lengthened(arrays.overlap, 2 * n_times), steps=np.zeros(2 * n_times + 1, np.int64)
            )
        needed = int(clock[kernels.N_LOG]) + n_active
        if needed > capacity // 2:
            arrays = arrays._replace(log=_lengthened(arrays.log, 4 * needed))
        self.arrays = arrays


def _lengthened(array: NDArray[np.int64], n: int) -> NDArray[np.int64]:
    """Return a copy with n rows, the new ones zero."""
    out = np.zeros((n, *array.shape[1:]), dtype=np.int64)
    out[: array.shape[0]] = array
    return out


def _widened(array: NDArray[np.int64], n: int) -> NDArray[np.int64]:
    """Return a copy with n columns, the new ones zero."""
    return np.ascontiguousarray(_lengthened(np.ascontiguousarray(array.T), n).T)
