"""Shared parts of the experiments' figures. Needs matplotlib."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure as Canvas

from horde_agent.reproduce.result import Figure
from horde_agent.reproduce.sweeps import Sweep


def new_canvas(width: float, height: float, n: int = 1, **options: Any) -> tuple[Canvas, list[Axes]]:
    """Return an empty picture, width x height inches, with `n` panels side by side; options as of `subplots`."""
    canvas = Canvas(figsize=(width, height), dpi=130, layout="constrained")
    return canvas, list(canvas.subplots(1, n, squeeze=False, **options)[0])


def style_axes(axes: Axes, title: str = "", *, legend: bool | dict[str, Any] = False, **labels: Any) -> None:
    """Give axes a title, a legend, labels and scales, no frame at the top and right, and a light grid below the data.

    Args:
        axes: The axes.
        title: Shown above them.
        legend: Whether to show a legend, or its options.
        labels: As of `Axes.set`.
    """
    axes.set(**labels)
    axes.set_title(title, fontsize=10)
    if legend is not False:
        axes.legend(**{"frameon": False, "fontsize": 8, **(legend if isinstance(legend, dict) else {})})
    axes.spines[["top", "right"]].set_visible(False)
    axes.grid(visible=True, color="0.92", linewidth=0.8)
    axes.set_axisbelow(True)


def save(canvas: Canvas, path: Path, caption: str) -> Figure:
    """Write a picture as PNG without a time stamp, and return its entry for the result."""
    canvas.savefig(path, metadata={"Software": None})
    return Figure(path.name, caption)


def sensitivity(found: Mapping[str, Sweep], highest: float = 0.7) -> Canvas:
    """Return a picture of the areas over alpha: a row for each sweep by name, a panel for each lambda, a line per rule.

    Lines end at areas above `highest`.
    """
    grid = next(iter(found.values())).grid
    canvas = Canvas(figsize=(2.4 * len(grid.lambdas) + 2.0, 2.7 * len(found)), dpi=130, layout="constrained")
    panels = canvas.subplots(len(found), len(grid.lambdas), squeeze=False, sharex=True, sharey=True)
    for row, (title, sweep) in zip(panels, found.items(), strict=True):
        areas = sweep.errors["area"].mean(axis=(0, -1))
        for axes, lam, of_lambda in zip(row, grid.lambdas, areas.swapaxes(0, 1), strict=True):
            for k, (rule, area) in enumerate(zip(grid.variants, of_lambda, strict=True)):
                shown = np.where(area <= highest, area, np.nan)
                axes.plot(np.log2(grid.alphas), shown, "-" if k < 6 else "--", color=f"C{k % 6}", label=rule)
            style_axes(axes, f"{title}, λ = {lam:g}", xlabel="log2 α", ylim=(0.0, highest))
            axes.label_outer()
        row[0].set_ylabel("mean error")
    canvas.legend(*panels[0, 0].get_legend_handles_labels(), loc="outside right upper", frameon=False, fontsize=8)
    return canvas
