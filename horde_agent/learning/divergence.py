"""DivergenceMonitor: which demons of a Horde skip a step or have diverged, when, and why.

A demon skips a step if one of its signals is invalid: a cumulant, outcome, continuation, trace decay or
ratio is infinite or NaN, or a continuation or trace decay lies outside [0, 1]. Its trace is
cleared, its weights do not change, and it continues with the next step. Skips have no limit,
because the sensor may recover.

A demon diverges, and its weights are zero from then on, if a weight exceeds its bound, if
a weight, prediction or estimate is not finite, if its target policy returns invalid probabilities,
or if a finite signal exceeds the range of the engine's dtype.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import ClassVar, Self

import numpy as np

from horde_agent.learning.stored import DEMON, Earlier, Field, Fields, Stored
from horde_agent.types import Bools, Floats


class DivergenceMonitor(Stored):
    """Skipped steps and divergence of the demons with these names.

    Attributes:
        n_steps: Number of completed transitions; the current one is number n_steps + 1.
        is_diverged: True for diverged demons, shape (n_demons,).
        is_skipping: True for demons that skip the current step, shape (n_demons,).
        somebody_skips: True if a demon skips the current step.
        n_skipped: Number of skipped steps, shape (n_demons,).
        reasons: Reasons of divergence, by name.
    """

    FIELDS: ClassVar[Fields] = {
        "n_steps": Field(),
        "somebody_skips": Field(),
        "is_diverged": Field(DEMON),
        "is_skipping": Field(DEMON),
        "n_skipped": Field(DEMON),
        "reasons": Field(),
        "_first_skips": Field(),
    }

    def __init__(self, names: Sequence[str]) -> None:
        self.names = names
        self.n_steps = 0
        self.somebody_skips = False
        self.is_diverged = np.zeros(len(names), dtype=bool)
        self.is_skipping = np.zeros(len(names), dtype=bool)
        self.n_skipped = np.zeros(len(names), dtype=np.int64)
        self.reasons: dict[str, str] = {}
        self._first_skips: dict[str, str] = {}

    def carry_over(self, before: Self, earlier: Earlier) -> None:
        """Continue what remaining demons have, and forget the reasons of those that are gone."""
        super().carry_over(before, earlier)
        for texts in (self.reasons, self._first_skips):
            for name in texts.keys() - set(self.names):
                del texts[name]

    def begin_step(self) -> None:
        """Clear the skips of the previous step."""
        if self.somebody_skips:
            self.is_skipping[:] = False
            self.somebody_skips = False

    def skip(self, mask: Bools, what: str, values: Floats) -> None:
        """Mark demons in `mask`, shape (n_demons,), as skipping; `values`, (n_demons,), are the invalid signals."""
        new = mask & ~(self.is_diverged | self.is_skipping)
        for demon in np.flatnonzero(new & (self.n_skipped == 0)).tolist():
            why = f"its {what} was {values[demon]} at learning step {self.n_steps + 1:,}"
            self._first_skips[self.names[demon]] = why
        self.n_skipped += new
        self.is_skipping |= new
        self.somebody_skips |= bool(new.any())

    def note(self, demon: int, why: str) -> bool:
        """Note that a demon diverged; return True if it is new. Only the first reason is kept."""
        is_first = not self.is_diverged[demon]
        if is_first:
            self.is_diverged[demon] = True
            self.reasons[self.names[demon]] = why
        return is_first

    def skipped_because(self) -> dict[str, str]:
        """Return the number of skipped steps and the first reason of each demon that skipped, by name."""
        times = {name: int(n) for name, n in zip(self.names, self.n_skipped, strict=True) if n}
        return {
            name: f"{n:,} x, first because {self._first_skips[name]}" for name, n in times.items()
        }
