"""Telling: what the demons of a Horde are told about each transition, in arrays that stay from step to step."""

from __future__ import annotations

from typing import Any

import numpy as np

from horde_agent.kernels import checks
from horde_agent.kernels.entry import Holder
from horde_agent.kernels.gtd_arrays import Signals
from horde_agent.kernels.held import hold


class Telling(Holder):
    """The arrays of `kernels/checks.py`, also in native form, and as signals for an engine that is told in Python.

    Args:
        told: The arrays; their owner writes what functions give, before an engine completes them.
    """

    def __init__(self, told: checks.Told) -> None:
        self.told = told
        self._signals = Signals(told.rho, told.gamma, told.lam, told.c, told.z)  # the same arrays

    @property
    def native(self) -> Any:
        """The arrays as kernels read them."""
        if self._held is None:
            self._held = hold(self.told)
        return self._held

    def signals(self, *, is_last: bool) -> Signals:
        """Return the signals of the transition that was completed last; where the stream ends, continuations are 0."""
        return self._signals._replace(gamma_tp1=np.zeros_like(self.told.gamma)) if is_last else self._signals


def nothing_told() -> checks.Told:
    """Return what nobody is told: for an engine that is told signals instead."""
    numbers, places = np.zeros(0), np.zeros(0, dtype=np.int64)
    seen, totals = np.zeros(1, dtype=np.int64), np.zeros((checks.N_TOTALS, 0))
    ratios_and_places = places, numbers, places, places, places
    values = (numbers,) * 9
    return checks.Told(*ratios_and_places, *values, seen, totals, np.inf, 0, is_fixed=True, is_by_channel=True)
