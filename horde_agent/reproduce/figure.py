"""Shared parts of the experiments' figures. Needs matplotlib."""

from __future__ import annotations

from pathlib import Path

from matplotlib.axes import Axes
from matplotlib.figure import Figure as Canvas

from horde_agent.reproduce.result import Figure


def new_canvas(width: float, height: float) -> Canvas:
    """Return an empty picture; width and height in inches."""
    return Canvas(figsize=(width, height), dpi=130, layout="constrained")


def style_axes(axes: Axes) -> None:
    """Remove the frame's upper and right lines, and draw a light grid below the data."""
    axes.spines[["top", "right"]].set_visible(False)
    axes.grid(visible=True, color="0.92", linewidth=0.8)
    axes.set_axisbelow(True)


def save(canvas: Canvas, path: Path, caption: str) -> Figure:
    """Write a picture as PNG without a time stamp, and return its entry for the result."""
    canvas.savefig(path, metadata={"Software": None})
    return Figure(path.name, caption)
