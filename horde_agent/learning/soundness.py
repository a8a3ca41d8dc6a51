"""Which demons of a Horde are sound: whose steps were gaps, who was set aside, since when and why.

A demon that is told what is no number (its cumulant, outcome, continuation, trace decay or ratio is infinite or NaN, or
a continuation or trace decay lies outside [0, 1]) is not told the transition at all: for it alone the step is a gap.
Its trace is cleared, its weights stand, and it goes on with the next step. That is counted, and however often it
happens it is no reason to give the demon up, since its weights stay sound: a sensor may come back.

A demon is set aside, its weights frozen at zero for good, when its own numbers are lost (a weight past its bound, a
weight, prediction or estimate that is not finite), when its target policy proves to be none, or when it is told a
number that its engine's type cannot hold: numbers are believed.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from horde_agent.learning.layout import NEWCOMER
from horde_agent.saving import State, attributes, put_back, text, untext
from horde_agent.types import Bools, Floats, Integers

_STATE = ("n_steps", "somebody_skips", "is_aside", "is_skipping", "n_skipped")


class Soundness:
    """What is known of the soundness of the demons with these names.

    Args:
        names: Of the demons.

    Attributes:
        n_steps: Transitions that the Horde was told so far; one that is about to be learned from is number n_steps + 1.
        is_aside: Who was set aside, shape (n_demons,).
        is_skipping: For whom the present step is a gap, shape (n_demons,).
        somebody_skips: Whether there is one.
        n_skipped: Steps that were gaps, shape (n_demons,).
        reasons: Why demons were set aside, by name.
    """

    def __init__(self, names: Sequence[str]) -> None:
        self.names, self.n_steps, self.somebody_skips = names, 0, False
        self.is_aside, self.is_skipping = (np.zeros(len(names), dtype=bool) for _ in range(2))
        self.n_skipped = np.zeros(len(names), dtype=np.int64)
        self.reasons: dict[str, str] = {}
        self._first_skips: dict[str, str] = {}

    def rearrange(self, old_index: Integers, names: Sequence[str]) -> None:
        """Go on with other demons; `old_index`, (n_demons,), is as in `layout.DemonMapping`. Newcomers are sound."""
        is_new = old_index == NEWCOMER
        staying = {self.names[i] for i in old_index[~is_new]}
        for notes in (self.reasons, self._first_skips):
            for name in notes.keys() - staying:
                del notes[name]
        self.is_aside, self.is_skipping = (~is_new & who[old_index] for who in (self.is_aside, self.is_skipping))
        self.n_skipped = np.where(is_new, 0, self.n_skipped[old_index])
        self.names = names

    def state(self) -> State:
        """Return what is known."""
        return attributes(self, *_STATE) | {"reasons": text(self.reasons), "first_skips": text(self._first_skips)}

    def restore(self, state: State) -> None:
        """Know what `state` returned, of the same demons."""
        put_back(self, state, *_STATE)
        self.reasons, self._first_skips = untext(state["reasons"]), untext(state["first_skips"])

    def begin_step(self) -> None:
        """Forget for whom the step before was a gap."""
        if self.somebody_skips:
            self.is_skipping[:], self.somebody_skips = False, False

    def end_step(self) -> None:
        """Count the present step."""
        self.n_steps += 1

    def skip(self, who: Bools, what: str, values: Floats) -> None:
        """Note that the present step is a gap for some, who are told `values`, shape (n_demons,), for `what`."""
        new = who & ~(self.is_aside | self.is_skipping)
        for demon in np.flatnonzero(new & (self.n_skipped == 0)).tolist():
            why = f"its {what} was {values[demon]} at learning step {self.n_steps + 1:,}"
            self._first_skips[self.names[demon]] = why
        self.n_skipped += new
        self.is_skipping |= new
        self.somebody_skips |= bool(new.any())

    def set_aside(self, demon: int, why: str) -> bool:
        """Note that a demon is set aside, and return whether it was not before: the first reason stands."""
        is_first = not self.is_aside[demon]
        if is_first:
            self.is_aside[demon] = True
            self.reasons[self.names[demon]] = why
        return is_first

    def skipped_because(self) -> dict[str, str]:
        """Return how often a step was a gap for a demon alone, and why the first time, by name."""
        times = {name: int(n) for name, n in zip(self.names, self.n_skipped, strict=True) if n}
        return {name: f"{n:,} x, first because {self._first_skips[name]}" for name, n in times.items()}
