"""Step sizes by the rarity of features, feature by feature: slow, obvious."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]


class RarityByHand:
    """Counts how often each feature is active, and classifies the features every 64 learning steps.

    This is the rule of a life of up to 512 learning steps, after which it becomes seldomer.

    Args:
        n_features: Number of features.
        often, seldom: Shares of the states above which a feature has a sixteenth, or a quarter, of the step size of
            the rarest. One that was never active has a quarter at most.
        n_imagined: States before the first one in which every feature is taken to have been active.

    Attributes:
        scale: Factor of each feature's step size, shape (n_features,).
    """

    def __init__(self, n_features: int, often: float, seldom: float, n_imagined: int) -> None:
        self._often = often
        self._seldom = seldom
        self._n_imagined = n_imagined
        self._visits = np.zeros(n_features)
        self._n_states = 0
        self._n_learned = 0
        self.scale = np.ones(n_features)

    def see(self, phi: Floats) -> None:
        """Count a state."""
        self._visits += phi
        self._n_states += 1

    def count_step(self) -> bool:
        """Count a learning step; classify after every 64th, and return whether that was done."""
        self._n_learned += 1
        is_due = self._n_learned % 64 == 0
        if is_due:
            self._classify()
        return is_due

    def _factor(self, visits: float) -> float:
        share = (visits + self._n_imagined) / (self._n_states + self._n_imagined)
        if share > self._often:
            return 1.0
        if share > self._seldom or visits == 0:
            return 4.0
        return 16.0

    def _classify(self) -> None:
        factors = np.array([self._factor(visits) for visits in self._visits])
        n_active = self._visits.sum() / self._n_states
        mean_norm = (self._visits / self._n_states * factors).sum()
        self.scale = factors * n_active / mean_norm
