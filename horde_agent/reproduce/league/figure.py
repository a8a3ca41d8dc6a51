"""The picture of the experiment `league`. Needs matplotlib."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from horde_agent.reproduce.figure import new_canvas, save, style_axes
from horde_agent.reproduce.league.problem import Data
from horde_agent.reproduce.result import Figure
from horde_agent.runs.showing.pictures import COLOURS


def pictures(data: Data, folder: Path) -> list[Figure]:
    """Draw every rule's error, one dot per life, with its defaults and with its best settings."""
    order = sorted(data.best, key=lambda name: np.mean([score.error for score in data.best[name]]), reverse=True)
    canvas, (axes,) = new_canvas(9.0, 1.0 + 0.3 * len(order))
    for shift, colour, (label, scores) in zip(
        (0.15, -0.15), COLOURS, {"default settings": data.defaults, "best of the grid": data.best}.items(), strict=False
    ):
        for y, name in enumerate(order):
            errors = [score.error for score in scores[name]]
            axes.plot(errors, [y + shift] * len(errors), "o", color=colour, label=None if y else label)
    axes.set_yticks(range(len(order)), order)
    style_axes(axes, "mean NMSRE of all questions, at most 1 each", legend=True, xlabel="error: low is good")
    return [save(canvas, folder / "league.png", "Error of every update rule, one dot per life; the best rule on top.")]
