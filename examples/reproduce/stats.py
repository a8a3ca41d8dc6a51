"""Numbers of independent runs: their mean with its interval, correlations, and both in words."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from typing import NamedTuple

import numpy as np
from numpy.typing import ArrayLike

from horde_agent.scoring.intervals import student_t
from horde_agent.types import Floats


class Mean(NamedTuple):
    """A mean over independent runs with the half-width of its confidence interval; NaN for a single run."""

    mean: float
    half_width: float

    def __str__(self) -> str:
        if math.isnan(self.mean):
            return "-"
        if math.isnan(self.half_width):
            return f"{self.mean:.3g}"
        return f"{self.mean:.3g} ± {self.half_width:.2g}"


def mean_ci(values: ArrayLike) -> Mean:
    """Return the mean of independent runs (seeds), shape (n,), with its 95 % confidence interval by Student's t.

    Raises:
        ValueError: If there is no value.

    Examples:
        >>> str(mean_ci([1.0, 2.0, 3.0]))
        '2 ± 2.5'
    """
    v = np.asarray(values, dtype=np.float64).ravel()
    if not v.size:
        raise ValueError("values must hold at least one run")
    if v.size == 1:
        return Mean(float(v[0]), math.nan)
    spread = float(v.std(ddof=1)) / math.sqrt(v.size)
    return Mean(float(v.mean()), student_t(v.size - 1) * spread)


def correlation(x: Floats, y: Floats) -> float:
    """Return Pearson's correlation of two series of shape (n,); NaN if one of them does not vary."""
    if len(x) < 3 or x.std() == 0.0 or y.std() == 0.0:
        return float("nan")
    return float(np.corrcoef(x, y)[0, 1])


def rank_correlation(x: Floats, y: Floats) -> float:
    """Return Spearman's correlation of two series of shape (n,); ties are ranked in order."""
    rank_x, rank_y = (np.argsort(np.argsort(values, kind="stable")) for values in (x, y))
    return float(np.corrcoef(rank_x, rank_y)[0, 1])


def join(values: Iterable[object], form: str = "") -> str:
    """Return values in one format, with commas between them."""
    return ", ".join(format(value, form) for value in values)


def format_means(values: Mapping[str, ArrayLike]) -> str:
    """Return the means of independent runs, one value per run, shape (n,), by name: "TD 2 ± 2.5; GTD 0.5"."""
    return "; ".join(f"{name} {mean_ci(of_runs)}" for name, of_runs in values.items())
