"""The picture of the experiment `swifttd`. Needs matplotlib."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from horde_agent.reproduce.figure import new_canvas, save, style_axes
from horde_agent.reproduce.result import Figure
from horde_agent.reproduce.swifttd.claims import best_rivals, medians
from horde_agent.reproduce.swifttd.problem import LARGE, METAS, SWIFT, Data
from horde_agent.runs.showing.pictures import COLOURS


def pictures(data: Data, folder: Path) -> list[Figure]:
    """Draw the median NMSE over the step size: of the rivals in all lives, and of SwiftTD's grid in the first."""
    canvas, (left, right) = new_canvas(9.0, 3.2, 2)
    for colour, rule in zip(COLOURS, best_rivals(data), strict=False):
        mine = [v for v in data.scores if v.rule == rule]
        left.plot(
            [v.step_size for v in mine], [np.mean(medians(data, v)) for v in mine], "o-", color=colour, label=rule
        )
    left.axhline(float(np.mean(medians(data, SWIFT))), color="0.3", ls="--", label="swift_td, default")
    for colour, meta in zip(COLOURS, METAS, strict=False):
        mine = [v for v in data.grid if v.rule == SWIFT.rule and v.meta == meta and v != LARGE]
        heights = [np.median(data.grid[v].nmse) for v in mine]
        right.plot([v.step_size for v in mine], heights, "o-", color=colour, label=f"meta {meta:g}")
    style_axes(left, "median NMSE of the rules", legend=True, xscale="log", yscale="log", xlabel="step size")
    style_axes(right, "SwiftTD, first life", legend=True, xscale="log", yscale="log", xlabel="first step size")
    caption = "Median NMSE over all steps by step size: one step size for all weights (left), SwiftTD (right)."
    return [save(canvas, folder / "swifttd.png", caption)]
