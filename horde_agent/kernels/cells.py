"""Sums of errors over the rows with an observation in the same cell of a grid over two channels."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from horde_agent.kernels._jit import kernel


@kernel
def sum_by_cell(
    errors: NDArray[np.float32],
    cells: NDArray[np.uint8],
    sums: NDArray[np.float32],
    counts: NDArray[np.float32],
) -> None:
    """Add each demon's errors to the cells of their rows, and count those that are not 0.

        sums[g, c, i] += errors[n, i]       c = cells[n, g], for each row n, grid g and demon i

    Args:
        errors: Of each demon in each row, shape (n_rows, n_demons).
        cells: Cell of each row in each grid, shape (n_rows, n_grids).
        sums: Sums, shape (n_grids, n_cells, n_demons), written.
        counts: Numbers of errors in `sums`, of the same shape, written.
    """
    for row in range(errors.shape[0]):
        for grid in range(cells.shape[1]):
            cell = cells[row, grid]
            for demon in range(errors.shape[1]):
                error = errors[row, demon]
                sums[grid, cell, demon] += error
                counts[grid, cell, demon] += error != 0.0
