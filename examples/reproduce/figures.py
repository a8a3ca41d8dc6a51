"""Shared parts of the experiments' figures. Needs matplotlib."""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

import numpy as np
from matplotlib.figure import Figure as Canvas

from examples.reproduce.sweeps import Sweep
from horde_agent.runs.reporting.pictures import COLOURS, DPI, new_canvas, style_axes

__all__ = ["COLOURS", "Picture", "new_canvas", "sensitivity", "style_axes"]


class Picture(NamedTuple):
    """A picture with its caption."""

    canvas: Canvas
    caption: str


def sensitivity(sweeps: Mapping[str, Sweep]) -> Picture:
    """Draw the areas over alpha: a row for each sweep by name, a panel for each lambda, a line per rule.

    Lines end at areas above .7.
    """
    highest = 0.7
    grid = next(iter(sweeps.values())).grid
    canvas = Canvas(
        figsize=(2.4 * len(grid.lambdas) + 2.0, 2.7 * len(sweeps)), dpi=DPI, layout="constrained"
    )
    panels = canvas.subplots(
        len(sweeps), len(grid.lambdas), squeeze=False, sharex=True, sharey=True
    )
    for row, (title, sweep) in zip(panels, sweeps.items(), strict=True):
        areas = sweep.errors["area"].mean(axis=(0, -1))
        for axes, lam, of_lambda in zip(row, grid.lambdas, areas.swapaxes(0, 1), strict=True):
            for k, (rule, area) in enumerate(zip(grid.variants, of_lambda, strict=True)):
                shown = np.where(area <= highest, area, np.nan)
                axes.plot(
                    np.log2(grid.alphas),
                    shown,
                    "-" if k < 6 else "--",
                    color=f"C{k % 6}",
                    label=rule,
                )
            style_axes(axes, f"{title}, λ = {lam:g}", xlabel="log2 α", ylim=(0.0, highest))
            axes.label_outer()
        row[0].set_ylabel("mean error")
    canvas.legend(
        *panels[0, 0].get_legend_handles_labels(),
        loc="outside right upper",
        frameon=False,
        fontsize=8,
    )
    caption = (
        "Mean error over all steps and questions by step size; a row for each task, a panel for each lambda (of ABTD: "
        "zeta). Rules that are the same rule there hide each other."
    )
    return Picture(canvas, caption)
