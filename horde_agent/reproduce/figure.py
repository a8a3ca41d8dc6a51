"""Shared parts of the experiments' figures. Needs matplotlib."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from matplotlib.axes import Axes
from matplotlib.figure import Figure as Canvas

from horde_agent.reproduce.result import Figure


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
