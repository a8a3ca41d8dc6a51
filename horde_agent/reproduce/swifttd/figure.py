"""The median NMSE over the step size."""

from __future__ import annotations

from typing import Any

import numpy as np

from horde_agent.reproduce.experiment import Table
from horde_agent.reproduce.figures import COLOURS, Picture, new_canvas, style_axes
from horde_agent.reproduce.stats import mean_ci
from horde_agent.reproduce.swifttd.claims import best_rivals, medians
from horde_agent.reproduce.swifttd.problem import LARGE, METAS, SWIFT, Data


def pictures(data: Data) -> dict[str, Picture]:
    """Draw the median NMSE over the step size: of the rivals in all lives, and of SwiftTD's grid in the first."""
    canvas, (left, right) = new_canvas(9.0, 3.2, 2)
    for colour, rule in zip(COLOURS, best_rivals(data), strict=False):
        variants = [v for v in data.scores if v.rule == rule]
        heights = [np.mean(medians(data, v)) for v in variants]
        left.plot([v.step_size for v in variants], heights, "o-", color=colour, label=rule)
    left.axhline(
        float(np.mean(medians(data, SWIFT))), color="0.3", ls="--", label="swift_td, default"
    )
    for colour, meta in zip(COLOURS, METAS, strict=False):
        variants = [v for v in data.grid if v.rule == SWIFT.rule and v.meta == meta and v != LARGE]
        heights = [np.median(data.grid[v].nmse) for v in variants]
        right.plot(
            [v.step_size for v in variants], heights, "o-", color=colour, label=f"meta {meta:g}"
        )
    style_axes(
        left,
        "median NMSE of the rules",
        legend=True,
        xscale="log",
        yscale="log",
        xlabel="step size",
    )
    style_axes(
        right,
        "SwiftTD, first life",
        legend=True,
        xscale="log",
        yscale="log",
        xlabel="first step size",
    )
    caption = "Median NMSE over all steps by step size: one step size for all weights (left), SwiftTD (right)."
    return {"swifttd": (canvas, caption)}


def tables(data: Data) -> list[Table]:
    """Return the median NMSE of every variant."""
    rows = []
    for v in data.scores:
        errors = medians(data, v)
        is_swift = v.rule == SWIFT.rule
        row = {"rule": v.rule, "step size": v.step_size, "meta": v.meta if is_swift else None}
        row |= {"eta": f"{v.eta:g}" if is_swift else None, "random bits": v.n_random}
        error: Any = f"inf in {np.isinf(errors).sum()} lives"
        if np.isfinite(errors).all():
            error = mean_ci(errors)
        rows.append(row | {"median NMSE": error})
    note = "Means over the lives. Step sizes are divided by the active features."
    return [Table.of("Median NMSE over all steps", rows, note)]
