"""Slow twin of `kernels.offsets`: the offset of a demon and what the engine receives, from all of its readings."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field

N_READINGS = 500


@dataclass
class SlowOffset:
    """An automatic offset of one question.

    Attributes:
        gamma: Constant continuation, and `outcome`, constant outcome, if the question `is_centred`.
        readings: Cumulant, continuation and outcome of each of its readings.
    """

    gamma: float
    outcome: float
    is_centred: bool
    readings: list[Sequence[float]] = field(default_factory=list)

    def read(self, cumulant: float, gamma: float, outcome: float, *, max_finite: float) -> None:
        """Add a reading that is finite, unless there are enough."""
        is_sound = abs(cumulant + (1.0 - gamma) * outcome) <= max_finite
        if is_sound and len(self.readings) < N_READINGS:
            self.readings.append((cumulant, gamma, outcome))

    @property
    def value(self) -> float:
        """The answer that would be right if all states were alike."""
        total = sum(c + (1.0 - gamma) * z for c, gamma, z in self.readings)
        ends = sum(1.0 - gamma for _, gamma, _ in self.readings)
        if ends <= 0.0:
            return 0.0
        return total / ends

    @property
    def reference(self) -> float:
        """The part of the cumulant that the engine does not receive."""
        if not self.is_centred:
            return 0.0
        reference = (1.0 - self.gamma) * (self.value - self.outcome)
        for equal in {c for c, _, _ in self.readings}:
            is_constant = all(c == equal for c, _, _ in self.readings)
            if is_constant and math.isclose(reference, equal, rel_tol=1e-12):
                return equal  # nothing is left of equal readings, not even their rounding
        return reference

    def received_outcome(self, outcome: float, *, is_last: bool) -> float:
        """Return the outcome that the engine receives."""
        if not self.is_centred:
            return outcome - self.value
        if is_last:
            return self.gamma * (self.outcome - self.value)
        return 0.0
