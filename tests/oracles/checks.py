"""The signals of a transition, checked and remembered one number at a time: slow, obvious, float64."""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import NDArray

from horde_agent.kernels.checks import (
    BOUND_SCALE,
    ELSEWHERE,
    LONGEST_HORIZON,
    NO_CHANNEL,
    ON_POLICY,
    RatioArrays,
    SignalArrays,
)

Floats = NDArray[np.float64]
Integers = NDArray[np.int64]


def first_wrong(observation: Floats, tiles: Integers, n_features: int) -> int:
    """Return where a state is wrong, as `kernels.checks.first_wrong` numbers the places."""
    for i, value in enumerate(observation):
        if math.isinf(value):
            return i
    for k, tile in enumerate(tiles):
        if not 0 <= tile < n_features:
            return -2 - k
        if tile in tiles[:k]:
            return -2 - len(tiles) - k
    return -1


def count_updated(
    rho: Floats,
    policy: Integers,
    group: Integers,
    is_diverged: NDArray[np.bool_],
    is_skipping: NDArray[np.bool_],
) -> int:
    """Return how many demons learn in a step, as `kernels.checks.count_updated` does."""
    ratios = rho[policy[group]]
    return int(np.count_nonzero((ratios > 0.0) & ~is_diverged & ~is_skipping))


class SlowSignals:
    """What `kernels.checks.finish_ratios` and `finish_signals` write, from the arrays before they change them.

    Attributes:
        rho, totals: As in `RatioArrays`.
        cumulant, largest, longest, bound: As in `SignalArrays`; cumulant is that of each demon.
        is_broken: Whether the last transition had a number that is not finite or larger than
            `max_finite`.
    """

    def __init__(self, of: SignalArrays, ratios: RatioArrays) -> None:
        self.of = of
        self.ratios = ratios
        self.max_finite = of.max_finite
        self.rho = ratios.rho.copy()
        self.longest = np.zeros(of.gamma.size)
        self.cumulant, self.largest, self.bound = np.zeros((3, of.group.size))
        self.totals = np.zeros((3, ratios.rho.size))
        self.is_broken = False

    def _is_sound(self, *values: float) -> bool:
        return all(abs(value) <= self.max_finite for value in values)

    def finish_ratios(self, action: int, probability: float) -> None:
        """Take the ratios of an action."""
        for p, constant in enumerate(self.ratios.action.tolist()):
            ratios = {ON_POLICY: 1.0, ELSEWHERE: float(self.ratios.rho[p])}
            self.rho[p] = rho = ratios.get(
                constant, 1.0 / probability if constant == action else 0.0
            )
            self.totals[:, p] += rho > 0, rho, rho**2

    def finish_signals(self, observation: Floats) -> None:
        """Take the transition to an observation."""
        signals = self.of
        inputs = [*signals.z, *signals.gamma, *signals.lam]
        for g, gamma in enumerate(signals.gamma):
            if math.isfinite(gamma):
                self.longest[g] = max(self.longest[g], gamma)
        for i, k in enumerate(signals.cumulant.tolist()):
            channel = signals.channel[k]
            reading = float(observation[channel] if channel != NO_CHANNEL else signals.c[k])
            inputs.append(reading)
            self.cumulant[i] = c = reading - float(signals.reference[k])
            self.largest[i] = max(
                [self.largest[i], *(abs(v) for v in (c, signals.z[i]) if self._is_sound(v))]
            )
            gamma = self.longest[signals.group[i]]
            horizon = min(1 / (1 - gamma) if gamma < 1 else math.inf, LONGEST_HORIZON)
            self.bound[i] = min(BOUND_SCALE * self.largest[i] * horizon, self.max_finite)
        self.is_broken = not self._is_sound(*inputs)
