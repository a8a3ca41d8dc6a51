"""The runs of features, read off rows of bits: against a walk through the times one by one."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from horde_agent.kernels.arrays import N_MASKS
from numba import njit
from numpy.typing import NDArray

from horde_agent.kernels import runs as kernels

pytestmark = pytest.mark.kernels


@njit
def _ends(bits: Any, start: Any, n: Any, place: Any, masks: Any, ends: Any) -> Any:
    kernels.mask_words(n, start % 64, place, masks)
    return kernels.runs_of_row(bits, start // 64, start, n, place, masks, ends, 0)


def walked(is_on: NDArray[np.bool_], has_coefficient: NDArray[np.bool_]) -> list[int]:
    """Return the ends of the runs among the times with a coefficient, time by time."""
    ends, was_on = [], False
    values = is_on[has_coefficient]
    for number, on in enumerate(values):
        if on != was_on:
            ends.append(number)
        was_on = on
    return [*ends, len(values)] if was_on else ends


@pytest.mark.parametrize("share_on", [0.0, 0.05, 0.5, 1.0])
@pytest.mark.parametrize("share_numbered", [0.02, 0.3, 1.0])
@pytest.mark.parametrize(("start", "n"), [(0, 64), (0, 1), (63, 2), (70, 57), (5, 190), (130, 126)])
def test_runs_are_those_of_the_times_with_a_coefficient(
    start: int, n: int, share_numbered: float, share_on: float
) -> None:
    """Windows that begin and end anywhere in words, long stretches that nobody learned from, bits before the window."""
    rng = np.random.default_rng(n)
    for _ in range(20):
        is_on = rng.random(256) < share_on
        is_on[start + n :] = False  # the present is the last
        numbered = rng.random(n) < share_numbered
        place = np.concatenate([[0], np.cumsum(numbered)]).astype(np.int64)
        bits = np.packbits(is_on, bitorder="little").view(np.uint32)
        masks, ends = np.full((N_MASKS, 4), 7, dtype=np.uint64), np.zeros(300, dtype=np.int32)
        n_ends = _ends(bits, start, n, place, masks, ends)
        assert ends[:n_ends].tolist() == walked(is_on[start : start + n], numbered)
