"""Tile coding: an observation in [0, 1] to the indices of its active tiles.

    cell = min(n - 1, floor(x n + j / m))      tiling j of m, n intervals; the same j in both dimensions of a pair

Source: Modayil, White & Sutton (2011), White, Modayil & Sutton (2012): offset tilings get no extra interval.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from horde_agent.kernels._jit import kernel


class Tilings(NamedTuple):
    """One row per tiling; a one-dimensional tiling has a second dimension of one interval."""

    first: NDArray[np.int64]  # (T,): its first tile
    channel: NDArray[np.int64]  # (T, 2)
    intervals: NDArray[np.int64]  # (T, 2)
    offset: NDArray[np.float64]  # (T,): j / m


@kernel
def encode(observation: NDArray[Any], tilings: Tilings, tiles: NDArray[np.int64]) -> None:
    """Write the active tile of each tiling, row-major within a pair; what follows them (a bias) is left alone."""
    for t in range(tilings.first.shape[0]):
        n_slow, n_fast = tilings.intervals[t, 0], tilings.intervals[t, 1]
        slow = min(n_slow - 1, int(observation[tilings.channel[t, 0]] * n_slow + tilings.offset[t]))
        fast = min(n_fast - 1, int(observation[tilings.channel[t, 1]] * n_fast + tilings.offset[t]))
        tiles[t] = tilings.first[t] + slow * n_fast + fast


@kernel
def first_outside_unit(observation: NDArray[Any]) -> int:
    """Return the position of the first value that is not in [0, 1] (NaN included), or -1."""
    for i in range(observation.shape[0]):
        if not 0.0 <= observation[i] <= 1.0:
            return i
    return -1
