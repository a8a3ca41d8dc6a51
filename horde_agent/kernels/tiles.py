"""Tile coding: convert an observation in [0, 1] to the indices of its active tiles.

    cell = min(n - 1, floor(x n + j / m))      tiling j of m, n intervals; the same j in both dimensions of a pair

Source: Modayil, White & Sutton (2011), White, Modayil & Sutton (2012): offset tilings get no extra
interval.
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
def first_outside(observation: NDArray[Any]) -> int:
    """Return the position of the first value, of (n_inputs,), that is outside [0, 1] or NaN; -1 if there is none."""
    for i in range(observation.shape[0]):
        if not 0.0 <= observation[i] <= 1.0:
            return i
    return -1


@kernel
def encode(observation: NDArray[Any], tilings: Tilings, tiles: NDArray[np.int64]) -> int:
    """Write the active tile of each tiling, row-major within a pair, into tiles, (n_active,); skip a bias tile.

    Returns:
        The position of the first value outside [0, 1] or NaN, with nothing written; -1 if there is
        none.
    """
    outside = first_outside(observation)
    if outside >= 0:
        return int(outside)
    for t in range(tilings.first.shape[0]):
        n_slow = tilings.intervals[t, 0]
        n_fast = tilings.intervals[t, 1]
        slow = min(n_slow - 1, int(observation[tilings.channel[t, 0]] * n_slow + tilings.offset[t]))
        fast = min(n_fast - 1, int(observation[tilings.channel[t, 1]] * n_fast + tilings.offset[t]))
        tiles[t] = tilings.first[t] + slow * n_fast + fast
    return -1


@kernel
def switched(
    before: NDArray[np.int64],
    after: NDArray[np.int64],
    balance: NDArray[np.int64],
    gained: NDArray[np.int64],
    lost: NDArray[np.int64],
) -> tuple[int, int]:
    """Write the features that switched on, and those that switched off, between two lists of tiles, shape (n_active,).

    A feature that only changed its place does not count. `gained` and `lost`, (n_active,), are
    written; `balance` is scratch and 0 for each feature. Return the numbers of features in `gained`
    and in `lost`.
    """
    n = n_gained = n_lost = 0
    for k in range(
        after.shape[0]
    ):  # most tiles do not change; no branch, which the processor could not predict
        gained[n] = after[k]
        lost[n] = before[k]
        n += after[k] != before[k]
    for k in range(n):
        balance[gained[k]] += 1
        balance[lost[k]] -= 1
    for k in range(n):
        on = gained[k]
        off = lost[k]
        gained[n_gained] = on
        lost[n_lost] = off
        n_gained += balance[on] > 0
        n_lost += balance[off] < 0
    for k in range(n_gained):
        balance[gained[k]] = 0
    for k in range(n_lost):
        balance[lost[k]] = 0
    return n_gained, n_lost


@kernel
def count_visits(visits: NDArray[np.int64], tiles: NDArray[np.int64]) -> None:
    """Count a state with these tiles, (n_active,), in the visits of the features, (n_features,)."""
    for k in range(tiles.shape[0]):
        visits[tiles[k]] += 1
