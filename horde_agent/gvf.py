"""GVF: a question about the future, posed in the language of value functions. Nothing here is learned.

    V(s) = E_pi[ sum_k (product of gammas) (C_{t+k+1} + (1 - gamma_{t+k+1}) z_{t+k+1}) | S_t = s ]

Source: Sutton et al. (2011), Horde; White, Modayil & Sutton (2012), section 3.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from horde_agent.policies import Policy

Tiles = NDArray[np.int64]
StateFunction = Callable[[NDArray[Any], Tiles], float]


@dataclass(frozen=True, slots=True)
class Channel:
    """A cumulant: the reading of one channel of the observation, in the observation's own units.

    Raises:
        ValueError: If `index` is negative.
    """

    index: int

    def __post_init__(self) -> None:
        _not_negative("index", self.index)


@dataclass(frozen=True, slots=True)
class Feature:
    """A cumulant: 1 where a feature is active, else 0.

    Raises:
        ValueError: If `index` is negative.
    """

    index: int

    def __post_init__(self) -> None:
        _not_negative("index", self.index)


@dataclass(frozen=True, slots=True)
class Prediction:
    """A cumulant: what another demon predicts at the state reached, theta_t.phi_{t+1}, before this step's update.

    Source: Sutton & Tanner (2005), TD networks: compositional predictions.
    """

    name: str


Cumulant = Channel | Feature | Prediction | StateFunction


@dataclass(frozen=True, slots=True)
class GVF:
    """A question: what happens if the robot follows a policy, over a time scale.

    Args:
        name: Unique within a Horde, such as "forward/g0.8/light_0".
        target_policy: The policy asked about.
        cumulant: The signal that is summed: Channel, Feature, Prediction, or a function of (observation, tiles).
        continuation: gamma, the probability of going on: a number in [0, 1), or a function of (observation, tiles).
        outcome: z, collected on stopping: a number or a function of (observation, tiles).
        lam: Trace decay lambda: a number in [0, 1], or a function of (observation, tiles).
        ends: True where the stream itself ends, which allows a constant continuation of 1.

    Raises:
        ValueError: If a constant is out of its range; the message names the question and the argument.
    """

    name: str
    target_policy: Policy
    cumulant: Cumulant
    continuation: float | StateFunction
    outcome: float | StateFunction = 0.0
    lam: float | StateFunction = 0.9
    ends: bool = False

    def __post_init__(self) -> None:
        for argument in ("continuation", "lam"):
            value = getattr(self, argument)
            if not callable(value) and not 0.0 <= value <= 1.0:
                raise ValueError(f"question {self.name!r}: {argument} must be in [0, 1], not {value!r}")
        if not callable(self.continuation) and self.continuation == 1.0 and not self.ends:
            raise ValueError(
                f"question {self.name!r}: a continuation of 1 sums for ever; use one below 1, or ends=True where the "
                f"stream ends"
            )
        if not callable(self.outcome) and not math.isfinite(self.outcome):
            raise ValueError(f"question {self.name!r}: outcome must be finite, not {self.outcome!r}")


def _not_negative(argument: str, value: int) -> None:
    """Raise ValueError where an index is negative."""
    if value < 0:
        raise ValueError(f"{argument} must be at least 0, not {value}")
