"""RUPEE by its definition, with h, d and every trace in full: slow, obvious, float64."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from horde_agent.learning.rupee import UnbiasedTrace

Floats = NDArray[np.float64]
Tiles = NDArray[np.int64]


class DenseRUPEE:
    """Recent unsigned projected error estimate: sqrt(|h.d|), d a trace of delta e and h its projection on the features.

    `alpha_h` is the step size of h over the active tiles, `beta0` that of d. Source: White (2015),
    chapter 7.
    """

    def __init__(self, n_demons: int, n_features: int, alpha_h: float, beta0: float) -> None:
        self.h = np.zeros((n_demons, n_features))
        self._d = UnbiasedTrace((n_demons, n_features), beta0)
        self._alpha_h = alpha_h

    def update(self, td_error: Floats, e: Floats, tiles: Tiles) -> None:
        """Take in a step: delta_t, (n_demons,), e_t, (n_demons, n_features), which holds rho, and phi_t's tiles."""
        sample = td_error[:, None] * e
        h_phi = self.h[:, tiles].sum(axis=1)
        self.h += self._alpha_h * sample
        np.subtract.at(self.h.T, tiles, self._alpha_h * h_phi)
        self._d.update(sample)

    def value(self) -> Floats:
        return np.asarray(np.sqrt(np.abs((self.h * self._d.value).sum(axis=1))))
