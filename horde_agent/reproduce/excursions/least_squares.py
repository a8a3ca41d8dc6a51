"""Regularised linear least squares over binary features: the algebra that ridge regression and LSTD share.

    sum_t e_t (x_t.theta - y_t) + eta theta = 0        A = sum_t e_t x_t',  b = sum_t e_t y_t,  (A + eta I) theta = b

Ridge regression has e_t = x_t = phi_t; LSTD(lambda) has the trace as e_t and x_t = phi_t - gamma phi_{t+1}.
Source: Boyan (2002), LSTD(lambda); Bradtke & Barto (1996).
"""

from __future__ import annotations

from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from horde_agent.types import Floats

Singles = NDArray[np.float32]


class LeastSquares:
    """One matrix A with many right-hand sides.

    Where there are fewer rows than features the same theta comes from a system of the rows' size: with E and X the rows
    stacked, (E'X + eta I)^-1 E' = E' (X E' + eta I)^-1.

    Args:
        n_features: Length of theta.
        n_rows: Number of rows that will be added, which settles the size of the system.
        n_targets: Number of right-hand sides.
    """

    def __init__(self, n_features: int, n_rows: int, n_targets: int) -> None:
        self.n_features, self.n_rows = n_features, n_rows
        self._is_tall = n_rows > n_features
        self._A, self._b = np.zeros((0, 0)), np.zeros((n_features, n_targets))
        if self._is_tall:
            self._A = np.zeros((n_features, n_features))
        self._rows: list[tuple[Singles, Singles, Floats]] = []
        self._trace = 0.0

    def add(self, left: Singles, right: Singles, targets: Floats) -> None:
        """Add rows: e_t and x_t, float32 of shape (k, n_features), and y_t, shape (k, n_targets).

        Products of a block are summed in float32, blocks in float64.
        """
        self._trace += float(np.einsum("ij,ij->", left, right, dtype=np.float64))
        if self._is_tall:
            self._A += left.T @ right
            self._b += left.T @ targets
        else:
            self._rows.append((left, right, targets))

    def solve(self, ridge: float) -> Floats:
        """Return theta, shape (n_features, n_targets). No rows may be added after the first call.

        Args:
            ridge: eta over the mean of A's diagonal.

        Raises:
            numpy.linalg.LinAlgError: If the system is singular.
        """
        eta = ridge * self._trace / self.n_features
        if self._is_tall:
            return np.asarray(np.linalg.solve(self._A + eta * np.eye(self.n_features), self._b), dtype=np.float64)
        left, overlap, y = self._small_system
        return np.asarray(left.T @ np.linalg.solve(overlap + eta * np.eye(len(y)), y))

    @cached_property
    def _small_system(self) -> tuple[Floats, Floats, Floats]:
        """E, X E' and y; asked for once all rows are there."""
        left = np.concatenate([rows[0] for rows in self._rows]).astype(np.float64)
        right = np.concatenate([rows[1] for rows in self._rows]).astype(np.float64)
        return left, right @ left.T, np.concatenate([rows[2] for rows in self._rows])


class LiveFeatures:
    """The features that are ever active in some rows, renumbered: the others' weights are 0 under any ridge.

    Args:
        tiles: Active features of the rows, shape (n_rows, n_active).
        n_features: Number of all features.

    Attributes:
        n: How many are live.
    """

    def __init__(self, tiles: NDArray[np.integer], n_features: int) -> None:
        is_live = np.zeros(n_features, dtype=np.bool_)
        is_live[tiles.ravel()] = True
        self.n = int(is_live.sum())
        # The others share a place after the live ones, which is cut off.
        self._place = np.where(is_live, np.cumsum(is_live) - 1, self.n)

    def dense(self, tiles: NDArray[np.integer]) -> Singles:
        """Return feature vectors, float32 of shape (n_rows, n); features that are not live are left out."""
        phi = np.zeros((len(tiles), self.n + 1), dtype=np.float32)
        np.put_along_axis(phi, self._place[tiles], np.float32(1.0), axis=1)
        return phi[:, :-1]
