"""Estimates, and the cells of their tables."""

from __future__ import annotations

import math
from typing import NamedTuple

UNKNOWN = "unknown"


class EstimateLine(NamedTuple):
    """One estimate of a policy's value; NaN if no episode says anything of it.

    `effective_size` is that of the episodes' weights for ordinary and weighted importance sampling,
    of the weights at each step for per-decision and doubly robust ones, and of the ratios of single
    steps, as a share of the episodes, for the fitted Q and the GVF. Weights count as heavy as b lets
    expect, if the heaviest were not seen. Below `verdict.ENOUGH` there is no interval: its ends are
    NaN.

    The interval of a fitted Q and of a GVF is that of the value, after the doubly robust correction:
    theirs may lie outside of it. `standard_error` is that of the estimate itself, without its bias,
    NaN for a GVF.
    """

    estimator: str
    value: float
    low: float
    high: float
    standard_error: float
    effective_size: float


def head(level: float) -> list[str]:
    """Return the head of a table of estimates with intervals of a probability."""
    return ["estimator", "value", f"{level:.0%} from", "to", "effective size"]


def cells(line: EstimateLine) -> list[str]:
    """Return the numbers of an estimate as texts."""
    value = number_text(line.value)
    if math.isnan(line.value):
        value = UNKNOWN
    size = f"{line.effective_size:,.1f}"
    return [value, number_text(line.low), number_text(line.high), size]


def number_text(value: float) -> str:
    """Return a number with four digits, "-" if it is unknown."""
    if math.isnan(value):
        return "-"
    return f"{value:.4g}"


def sentence(text: str) -> str:
    """Return a text with a capital letter and a full stop."""
    return f"{text[0].upper()}{text[1:]}."
