"""Slow twin of `kernels.cells`, and what the cells of a pair explain, from all errors of one demon."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray


def sums_by_cell(
    errors: NDArray[np.float32], cells: NDArray[np.uint8], n_cells: int
) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Return sums and numbers of the errors that are not 0, shape (n_grids, n_cells, n_demons)."""
    n_grids = cells.shape[1]
    sums = np.zeros((n_grids, n_cells, errors.shape[1]))
    counts = np.zeros_like(sums)
    for grid in range(n_grids):
        for cell in range(n_cells):
            of_cell = errors[cells[:, grid] == cell].astype(np.float64)
            sums[grid, cell] = of_cell.sum(axis=0)
            counts[grid, cell] = (of_cell != 0.0).sum(axis=0)
    return sums, counts


def share_explained(errors: Sequence[float], cells: Sequence[int], fewest: int) -> float:
    """Return the share of one demon's squared errors that its cells explain beyond chance."""
    pairs = [(error, cell) for error, cell in zip(errors, cells, strict=True) if error]
    total = sum(error**2 for error, _ in pairs)
    explained = 0.0
    n_cells = 0
    for cell in set(cells):
        in_cell = [error for error, its_cell in pairs if its_cell == cell]
        if len(in_cell) >= fewest:
            n_cells += 1
            explained += len(in_cell) * (sum(in_cell) / len(in_cell)) ** 2
    return max(explained - n_cells * total / len(pairs), 0.0) / total
