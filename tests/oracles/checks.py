"""The signals of a transition, checked and remembered one number at a time: slow, obvious, float64."""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import NDArray

from horde_agent.kernels.checks import BOUND_SCALE, ELSEWHERE, LONGEST_HORIZON, NO_CHANNEL, ON_POLICY, SignalArrays

Floats = NDArray[np.float64]
Integers = NDArray[np.int64]


def first_wrong(observation: Floats, tiles: Integers, n_features: int) -> int:
    """Return where a state is wrong, as `kernels.checks.first_wrong` numbers the places."""
    for i, value in enumerate(observation):
        if not math.isfinite(value):
            return i
    for k, tile in enumerate(tiles):
        if not 0 <= tile < n_features:
            return -2 - k
        if tile in tiles[:k]:
            return -2 - len(tiles) - k
    return -1


class SlowSignals:
    """What `kernels.checks.finish_signals` writes, from the arrays that it was given, before it changes them.

    Attributes:
        rho, cumulant, largest, longest, bound, totals: As in `SignalArrays`; cumulant is that of each demon.
        is_broken: Whether the last transition had a number that is not finite or larger than `max_finite`.
    """

    def __init__(self, of: SignalArrays) -> None:
        self.of, self.max_finite = of, of.max_finite
        self.rho, self.longest = of.rho.copy(), np.zeros(of.gamma.size)
        self.cumulant, self.largest, self.bound = np.zeros((3, of.group.size))
        self.totals, self.is_broken = np.zeros((3, of.rho.size)), False

    def _is_sound(self, *values: float) -> bool:
        return all(abs(value) <= self.max_finite for value in values)

    def finish_signals(self, observation: Floats, action: int, probability: float) -> None:
        """Take the transition to a sound state."""
        of = self.of
        for p, constant in enumerate(of.action.tolist()):
            given = {ON_POLICY: 1.0, ELSEWHERE: float(of.rho[p])}
            self.rho[p] = rho = given.get(constant, 1.0 / probability if constant == action else 0.0)
            if self._is_sound(rho):
                self.totals[:, p] += rho > 0, rho, rho**2
        told = [*of.z, *self.rho, *of.gamma, *of.lam]
        for g, gamma in enumerate(of.gamma):
            if math.isfinite(gamma):
                self.longest[g] = max(self.longest[g], gamma)
        for i, k in enumerate(of.cumulant.tolist()):
            channel = of.channel[k]
            reading = float(observation[channel] if channel != NO_CHANNEL else of.c[k])
            told.append(reading)
            self.cumulant[i] = c = reading - float(of.reference[k])
            self.largest[i] = max([self.largest[i], *(abs(v) for v in (c, of.z[i]) if self._is_sound(v))])
            gamma = self.longest[of.group[i]]
            horizon = min(1 / (1 - gamma) if gamma < 1 else math.inf, LONGEST_HORIZON)
            self.bound[i] = min(BOUND_SCALE * self.largest[i] * horizon, self.max_finite)
        self.is_broken = not self._is_sound(*told)
