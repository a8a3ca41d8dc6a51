"""Rows of weights: an active feature is one row over all lanes, and these kernels read and write many rows in turn.

They are the plain engine's time. What they sum or add is said where they are called (`gtd.py`).
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from horde_agent.kernels._jit import inner_kernel, prefetch
from horde_agent.kernels.gtd_arrays import Integers, Reals

# A short row far from the last one costs 200 ns of waiting, or 50 ns where it was asked for this many rows before.
AHEAD = 8
LANES_AT_ONCE = 256  # 457 rows of so many float32 stay in a core's own cache from their sum to their decay
# A cache line of float32. Of float64 every other line is asked for; the processor fetches its neighbour by itself.
LANES_PER_LINE = 16


@inner_kernel
def fetch_row(rows: Reals, f: int, start: int, stop: int) -> None:
    """Ask for a row that will be read soon."""
    row = rows[f, start:stop]
    for i in range(0, row.shape[0], LANES_PER_LINE):
        prefetch(row, i)


@inner_kernel
def sum_rows(rows: Reals, tiles: Integers, start: int, stop: int, sums: Reals) -> None:
    """Write theta.phi (or w.phi) of the lanes start..stop: the sum of the rows of the active tiles."""
    out = sums[start:stop]
    n_by_four = tiles.shape[0] // 4 * 4
    for i in range(out.shape[0]):
        out[i] = 0
    for k in range(0, n_by_four, 4):  # four rows at a time: a quarter of the traffic to `out`
        for ahead in range(k + AHEAD, min(k + AHEAD + 4, tiles.shape[0])):
            fetch_row(rows, tiles[ahead], start, stop)
        r0, r1 = rows[tiles[k], start:stop], rows[tiles[k + 1], start:stop]
        r2, r3 = rows[tiles[k + 2], start:stop], rows[tiles[k + 3], start:stop]
        for i in range(out.shape[0]):
            out[i] += (r0[i] + r1[i]) + (r2[i] + r3[i])
    for k in range(n_by_four, tiles.shape[0]):
        row = rows[tiles[k], start:stop]
        for i in range(out.shape[0]):
            out[i] += row[i]


@inner_kernel
def subtract_from_rows(rows: Reals, tiles: Integers, start: int, stop: int, amounts: Reals) -> None:
    """Subtract `amounts` (one per lane) from the rows of the active tiles, on the lanes start..stop."""
    amount = amounts[start:stop]
    for k in range(tiles.shape[0]):
        if k + AHEAD < tiles.shape[0]:
            fetch_row(rows, tiles[k + AHEAD], start, stop)
        row = rows[tiles[k], start:stop]
        for i in range(amount.shape[0]):
            row[i] -= amount[i]


@inner_kernel
def move_w(
    w: Reals,
    live: NDArray[np.int32],
    e: Reals,
    phi: Reals,
    start: int,
    stop: int,
    amounts: Reals,
    spent: Reals,
    y: Reals,
) -> None:
    """Collect y = e.w, and add e amount - phi spent to the rows of w as soon as they were read.

    `e` is (n, 1) where the lanes share a trace, else (n, stop - start).
    """
    amount, less, dot = amounts[start:stop], spent[start:stop], y[start:stop]
    for k in range(live.shape[0]):
        if k + AHEAD < live.shape[0]:
            fetch_row(w, live[k + AHEAD], start, stop)
        row, x, on = w[live[k], start:stop], e[live[k]], phi[live[k]]
        if x.shape[0] == 1:
            for i in range(row.shape[0]):
                dot[i] += x[0] * row[i]
                row[i] += x[0] * amount[i] - on * less[i]
        else:
            for i in range(row.shape[0]):
                dot[i] += x[i] * row[i]
                row[i] += x[i] * amount[i] - on * less[i]


@inner_kernel
def move_theta(
    theta: Reals, live: NDArray[np.int32], e: Reals, phi: Reals, start: int, stop: int, amounts: Reals, spent: Reals
) -> None:
    """Add e amount - phi spent to the live rows; `e` as in `move_w`."""
    amount, less = amounts[start:stop], spent[start:stop]
    for k in range(live.shape[0]):
        if k + AHEAD < live.shape[0]:
            fetch_row(theta, live[k + AHEAD], start, stop)
        row, x, on = theta[live[k], start:stop], e[live[k]], phi[live[k]]
        if x.shape[0] == 1:
            for i in range(row.shape[0]):
                row[i] += x[0] * amount[i] - on * less[i]
        else:
            for i in range(row.shape[0]):
                row[i] += x[i] * amount[i] - on * less[i]


@inner_kernel
def move_m(m: Reals, live: NDArray[np.int32], e: Reals, start: int, stop: int, amounts: Reals) -> None:
    """Add e amount to the live rows; `e` as in `move_w`."""
    amount = amounts[start:stop]
    for k in range(live.shape[0]):
        if k + AHEAD < live.shape[0]:
            fetch_row(m, live[k + AHEAD], start, stop)
        row, x = m[live[k], start:stop], e[live[k]]
        if x.shape[0] == 1:
            for i in range(row.shape[0]):
                row[i] += x[0] * amount[i]
        else:
            for i in range(row.shape[0]):
                row[i] += x[i] * amount[i]
