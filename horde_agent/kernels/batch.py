"""Sums over rows of weights at many steps in one go: each row is read once, and added wherever its feature switched.

While a tile takes a batch of steps, its weights as last written stand still. So theta.phi and w.phi by these weights,
at all steps of the batch, can be had before any of them is learned from:

    row.phi_t = row.phi_{t-1} + (rows of the features that went on) - (rows of those that went off)

In the order of the steps a row would be read a dozen times, from wherever it has gone meanwhile. In the order of the
features it is read once, from memory that lies in that order, and stays in registers while it is added to the gains of
its steps, which stay in a core's first cache.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from horde_agent.kernels import history as past
from horde_agent.kernels._jit import inner_kernel
from horde_agent.kernels.arrays import Switched
from horde_agent.kernels.vectors import add_switched_rows

Reals = NDArray[Any]
Integers = NDArray[np.int64]


@inner_kernel
def list_switched(history: past.History, since: int, switched: Switched) -> int:
    """List which features switched after time `since`, and at which steps: step k is the one to time `since` + 1 + k.

    Args:
        history: Its slots must still hold these times.
        since: A time.
        switched: Written.

    Returns:
        How many features there are.
    """
    n, first, steps = history.bits.shape[1], switched.first, switched.steps
    for k in range(2 * n + 2):
        first[k] = 0
    for time in range(since + 1, history.clock[past.NOW] + 1):
        slot = past.slot_of(history, time)
        for kind in range(2):
            for i in range(history.counts[slot, past.N_GAINED + kind]):
                first[2 * history.changed[slot, kind, i] + kind] += 1
    total = 0
    for k in range(2 * n + 1):
        here = first[k]
        first[k] = total
        total += here
    for time in range(since + 1, history.clock[past.NOW] + 1):
        slot = past.slot_of(history, time)
        for kind in range(2):
            for i in range(history.counts[slot, past.N_GAINED + kind]):
                k = 2 * history.changed[slot, kind, i] + kind
                steps[first[k]] = time - since - 1
                first[k] += 1
    return int(close_up(n, switched.features, first))


@inner_kernel
def close_up(n: int, features: Integers, first: Integers) -> int:
    """Leave out the features that never switched; `first` holds the ends of the lists."""
    n_features, begins = 0, 0
    for f in range(n):
        on, off = first[2 * f], first[2 * f + 1]
        if off > begins:
            features[n_features] = f
            first[2 * n_features], first[2 * n_features + 1] = begins, on
            n_features += 1
        begins = off
    first[2 * n_features] = begins
    return int(n_features)


@inner_kernel
def sum_rows(
    rows: Reals, origin: int, width: int, switched: Switched, n_features: int, n_steps: int, now: Reals, sums: Reals
) -> None:
    """Write the sum of the rows of the active features at each of the coming steps.

    Args:
        rows: Flat, a tile's rows from `origin` on.
        origin: See `rows`.
        width: Lanes of the tile.
        switched: What `list_switched` found.
        n_features: What it returned.
        n_steps: How many steps.
        now: The sum before the first of them, shape (width,).
        sums: Flat, at least (n_steps, width), written.
    """
    for i in range(n_steps * width):
        sums[i] = 0
    features, first, steps = switched.features, switched.first, switched.steps
    add_switched_rows(rows, origin, width, features, n_features, first, steps, width, sums)
    for i in range(width):
        sums[i] += now[i]
    for i in range(width, n_steps * width):
        sums[i] += sums[i - width]
