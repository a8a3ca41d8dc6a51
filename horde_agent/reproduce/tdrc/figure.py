"""The picture of the experiment `tdrc`. Needs matplotlib."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from horde_agent.reproduce.figure import new_canvas, save, style_axes
from horde_agent.reproduce.result import Figure
from horde_agent.reproduce.tdrc.claims import OTHERS, PUBLISHED
from horde_agent.reproduce.tdrc.problem import Data
from horde_agent.runs.showing.pictures import COLOURS

HIGHEST = 3.2
"""Taller bars are cut and marked by an arrow, as are published bars that leave their figure."""


def pictures(data: Data, folder: Path) -> list[Figure]:
    """Draw the relative areas with both step rules beside the published bars."""
    canvas, panels = new_canvas(11.0, 2.9, n=len(PUBLISHED), sharey=True)
    for axes, (problem, published) in zip(panels, PUBLISHED.items(), strict=True):
        measured = [
            ("script's step sizes", [float(data.relative("script", problem, rule).mean()) for rule in OTHERS]),
            ("AdaGrad, inferred", [float(data.relative("AdaGrad", problem, rule).mean()) for rule in OTHERS]),
            ("published", [np.nan if bar is None else bar for bar in published]),
        ]
        for k, (label, heights) in enumerate(measured):
            x = np.arange(len(OTHERS)) + 0.27 * (k - 1)
            colour = "0.6" if label == "published" else COLOURS[k]
            axes.bar(x, np.minimum(heights, HIGHEST), 0.25, color=colour, label=label)
            for at, height in zip(x, heights, strict=True):
                if height > HIGHEST:
                    axes.annotate("↑", (at, HIGHEST), ha="center", va="top", fontsize=8)
        axes.axhline(1.0, color="k", linewidth=0.8)
        axes.set_xticks(range(len(OTHERS)), OTHERS, rotation=60, fontsize=8)
        style_axes(axes, problem, legend=problem == "tabular", ylim=(0.0, HIGHEST))
    panels[0].set_ylabel("area over TDRC's")
    caption = (
        "Area under the root MSPBE of each rule over that of TDRC (line at 1): with the step sizes of the authors' "
        "script, with AdaGrad, and the published bars, some of which leave their figure or are missing."
    )
    return [save(canvas, folder / "tdrc.png", caption)]
