"""What a Horde takes from those who call it: copies of what has the right shape, and a sentence where it has not."""

from __future__ import annotations

import math
import numbers
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from horde_agent.kernels import checks

Tiles = NDArray[np.int64]

_RAREST = 1e-30  # probability with which an action may have been drawn: 1 / it is a number in float32, too


class Expected(NamedTuple):
    """What a state and an action must be.

    Attributes:
        n_features: Tiles lie in 0..n_features - 1.
        n_active: How many there are.
        n_channels: Fewest channels of an observation.
        n_actions: Number of actions; 0 where no policy says.
    """

    n_features: int
    n_active: int
    n_channels: int
    n_actions: int

    def state(self, observation: NDArray[Any], tiles: Tiles) -> tuple[NDArray[Any], Tiles]:
        """Return copies of an observation, float64, and its tiles, int64."""
        observation, tiles = self.copied_state(observation, tiles)
        self.refuse(checks.first_wrong(observation, tiles, self.n_features), observation, tiles)
        return observation, tiles

    def copied_state(self, observation: NDArray[Any], tiles: Tiles) -> tuple[NDArray[Any], Tiles]:
        """Return copies of an observation and its tiles, whose values are not yet looked at."""
        observation = np.array(observation, dtype=np.float64)
        if observation.ndim != 1 or observation.size < self.n_channels:
            raise ValueError(
                f"observation must be flat with at least {self.n_channels} channels, not {observation.shape}"
            )
        return observation, self._copied_tiles(tiles)

    def tiles(self, tiles: Tiles) -> Tiles:
        """Return a copy of the tiles as int64."""
        tiles, nothing = self._copied_tiles(tiles), np.zeros(0)
        self.refuse(checks.first_wrong(nothing, tiles, self.n_features), nothing, tiles)
        return tiles

    def _copied_tiles(self, tiles: Tiles) -> Tiles:
        """Return a copy of the tiles as int64, not yet known to be in range."""
        tiles = np.asarray(tiles)
        if tiles.shape != (self.n_active,) or tiles.dtype.kind not in "iu":
            raise ValueError(f"tiles must be integers of shape ({self.n_active},), not {tiles.dtype} {tiles.shape}")
        return np.array(tiles, dtype=np.int64)

    def refuse(self, wrong: int, observation: NDArray[Any], tiles: Tiles) -> None:
        """Raise ValueError where `checks.first_wrong` found something."""
        if wrong >= 0:
            raise ValueError(f"observation must be finite; channel {wrong} is {observation[wrong]}")
        if wrong < -1:
            outside = -2 - wrong
            raise ValueError(f"tiles must lie in 0..{self.n_features - 1}; number {outside} is {tiles[outside]}")

    def action(self, action: Any, probability: Any) -> tuple[int, float]:
        """Return an action and its probability as plain numbers; arrays of one element will do."""
        n, a, b = self.n_actions, _the_one(action), _the_one(probability)
        if isinstance(action, bool) or not (a >= 0 and a == math.floor(a)) or (n and a >= n):
            raise ValueError(f"action must be a whole number in 0..{n - 1 if n else '...'}, not {action!r}")
        if not _RAREST <= b <= 1.0:
            raise ValueError(f"probability must be in (0, 1], and at least {_RAREST:g}, not {probability!r}")
        return int(a), b


def _the_one(value: Any) -> float:
    """Return a finite number, also where an array holds it alone, as vector environments give actions; else NaN."""
    if isinstance(value, np.ndarray) and value.size == 1:
        value = value.item()
    is_finite = isinstance(value, numbers.Real) and math.isfinite(value)
    return float(value) if is_finite else math.nan
