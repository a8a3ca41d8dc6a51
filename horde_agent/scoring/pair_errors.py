"""The share of a Horde's errors that pairs of channels explain.

    e_t = rho_t delta_t                          the error of a demon's prediction, at the state S_t
    m_c = mean of e_t over the rows with S_t in cell c of a grid over two channels
    share = (sum_c n_c m_c^2 - K sum_t e_t^2 / n) / sum_t e_t^2

Once the weights have settled, each of their features has a mean error of 0. A further feature lowers
the Bellman error by what its own mean error is: m_c is the Bellman error basis function (Parr et al.,
2007) as far as the grid can show it. Errors without any relation to the cells give K cells the second
term, on average; a share is 0 for them, and 1 if the cells explain the errors wholly.

Source: Parr, Painter-Wakefield, Li & Littman (2007), Analyzing feature generation for value-function
approximation.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from horde_agent.interface import Interface
from horde_agent.interface.pairs import INTERVALS, draw_pairs
from horde_agent.kernels.cells import sum_by_cell
from horde_agent.tiles import TileCoder
from horde_agent.types import Floats

MOST_DEMONS = 1000
MOST_ROWS = 60_000  # 240 MB of errors of 1,000 demons
MOST_PAIRS = 5_000  # 300 MB of cells
FEWEST_IN_CELL = 5  # a mean of fewer errors says nothing

_N_CELLS = INTERVALS**2
_AT_ONCE = 8  # grids: their sums fit in the processor's cache


class PairErrors:
    """Errors of a Horde in the cells of a grid over each pair of channels that vary.

    Args:
        interface: The robot: `interface.varying` are paired; of more than 5,000 pairs, these are
            random ones.
        n_demons: Number of demons; of more than 1,000, every k-th is looked at.
        n_rows: Number of rows that `add` will be called with; of more than 60,000, every k-th is
            kept.
        seed: Draws the pairs' order and the offsets of their grids, as of `Interface.with_pairs`.

    Attributes:
        tables: A `[[tiling]]` table for each pair.

    Raises:
        ValueError: If fewer than two channels vary.
    """

    def __init__(self, interface: Interface, n_demons: int, n_rows: int, seed: int) -> None:
        names = interface.varying
        n_pairs = min(math.comb(len(names), 2), MOST_PAIRS)
        self.tables: list[dict[str, Any]] = draw_pairs(names, n_pairs, seed)
        groups = ["" for _ in interface.names]
        self._coder = TileCoder(self.tables, groups, names=interface.names, bias=False)
        self._scaler = interface.scaler
        self._demons = np.arange(0, n_demons, math.ceil(n_demons / MOST_DEMONS))
        self._every = math.ceil(n_rows / MOST_ROWS)
        n_kept = math.ceil(n_rows / self._every)
        self._errors = np.zeros((n_kept, len(self._demons)), dtype=np.float32)
        self._cells = np.zeros((n_kept, len(self.tables)), dtype=np.uint8)
        self._n_added = 0

    def add(self, observation: NDArray[Any], errors: Floats) -> None:
        """Add the errors of a transition, (n_demons,), and the observation at its beginning, (n_channels,).

        An error that is not finite counts as none: its demon has diverged, or skipped the step.
        """
        row, n_since = divmod(self._n_added, self._every)
        self._n_added += 1
        if n_since or row >= len(self._errors):
            return
        self._errors[row] = np.nan_to_num(errors[self._demons], posinf=0.0, neginf=0.0)
        # A missing reading is in one cell, as a constant one
        tiles = self._coder.encode(np.nan_to_num(self._scaler(observation)))
        self._cells[row] = tiles - self._coder.tilings.first

    def shares(self) -> Floats:
        """Return the share of the errors that each pair's cells explain, shape (n_pairs,), the mean over the demons."""
        n_rows = min(math.ceil(self._n_added / self._every), len(self._errors))
        errors = self._errors[:n_rows]
        cells = self._cells[:n_rows]
        squares = np.square(errors, dtype=np.float64).sum(axis=0)
        n_errors = np.count_nonzero(errors, axis=0)
        is_known = squares > 0.0
        shares = np.zeros(len(self.tables))
        for first in range(0, len(self.tables), _AT_ONCE):
            some = cells[:, first : first + _AT_ONCE]
            sums = np.zeros((some.shape[1], _N_CELLS, errors.shape[1]), dtype=np.float32)
            counts = np.zeros_like(sums)
            sum_by_cell(errors, np.ascontiguousarray(some), sums, counts)
            is_told = counts >= FEWEST_IN_CELL
            of_cells = np.divide(sums**2, counts, out=np.zeros_like(sums), where=is_told)
            explained = of_cells.sum(axis=1, dtype=np.float64)
            by_chance = is_told.sum(axis=1) * (squares / np.maximum(n_errors, 1))
            share = np.maximum(explained - by_chance, 0.0)[:, is_known] / squares[is_known]
            if share.size:
                shares[first : first + _AT_ONCE] = share.mean(axis=1)
        return shares

    def best(self, n: int) -> list[tuple[Mapping[str, Any], float]]:
        """Return the `n` pairs with the largest shares above 0, largest first: their tables, and the shares."""
        shares = self.shares()
        order = np.argsort(-shares, kind="stable")[:n]
        return [(self.tables[pair], float(shares[pair])) for pair in order if shares[pair] > 0.0]
