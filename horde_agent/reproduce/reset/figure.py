"""The pictures of the second experiment. Needs matplotlib."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import numpy as np
from matplotlib.axes import Axes
from matplotlib.lines import Line2D

from horde_agent.reproduce.figure import new_canvas, save
from horde_agent.reproduce.reset.problem import Data, Run
from horde_agent.reproduce.result import Figure
from horde_agent.runs.showing.pictures import COLOURS
from horde_agent.types import Bools

_LOOKS = {"vector": (COLOURS[0], "-"), "scalar": (COLOURS[1], "--")}


def pictures(data: Data, folder: Path) -> list[Figure]:
    """Draw all pictures into a folder and return their entries."""
    figures = [_reset(data, folder / "reset.png")]
    return [*figures, _lamp(data, folder / "lamp.png")] if data.moved else figures


def _reset(data: Data, path: Path) -> Figure:
    """Draw the paper's figure: three measures over training time."""
    canvas = new_canvas(9.0, 4.4)
    axes = canvas.add_subplot()
    lines = _draw(axes, data, list(data.reset.values()), None)
    canvas.legend(handles=lines, loc="outside upper center", ncols=4, frameon=False, fontsize=8)
    return save(
        canvas,
        path,
        f"The paper's figure 4: means over {len(data.questions)} questions at gamma .8 and {_lives(data.reset)}; "
        f"theta := 0 after learning step {data.change_at:,} (dotted). NMSRE on the left, logarithmic; both MSPBE "
        "estimates on the right. A few near-constant sensors carry the mean NMSRE, so its median is drawn too.",
    )


def _lamp(data: Data, path: Path) -> Figure:
    """Draw what a moved lamp does to the questions about light, and to the others."""
    canvas = new_canvas(11.5, 4.2)
    lines: list[Line2D] = []
    runs, panels = list(data.moved.values()), canvas.subplots(1, 2)
    parts = ((f"questions about {data.lit_group}", data.is_lit), ("other questions", ~data.is_lit))
    for axes, (name, which) in zip(panels, parts, strict=True):
        lines = _draw(axes, data, runs, which)
        axes.set_title(f"{int(which.sum())} {name}", fontsize=10)
    canvas.legend(handles=lines, loc="outside upper center", ncols=4, frameon=False, fontsize=8)
    return save(
        canvas,
        path,
        "The change that the paper speaks of and did not make: the lamp moves to the opposite corner after learning "
        f"step {data.change_at:,} (dotted); theta, w and traces are kept. Means over {_lives(data.moved)}.",
    )


def _lives(runs: dict[int, Run]) -> str:
    return f"{len(runs)} lives" if len(runs) > 1 else "one life"


def _draw(axes: Axes, data: Data, runs: Sequence[Run], which: Bools | None) -> list[Line2D]:
    """Draw the NMSRE on the left axis and both estimates on the right one, means over runs; return the lines."""
    n = min(len(run.at) for run in runs)
    at = runs[0].at[:n] / 1_000
    means = {k: np.mean([run.means(which)[k][:n] for run in runs], axis=0) for k in ("NMSRE", *_LOOKS)}
    lines = axes.plot(at, means["NMSRE"], color="black", linewidth=1.8, label="NMSRE, mean")
    median = np.mean([run.medians(which)[:n] for run in runs], axis=0)
    lines += axes.plot(at, median, color="0.45", linewidth=1.3, label="NMSRE, median")
    other = axes.twinx()
    for name, (colour, style) in _LOOKS.items():
        label = f"MSPBE, {name}"
        lines += other.plot(at, means[name], color=colour, linestyle=style, linewidth=1.6, label=label)
    axes.axvline(data.change_at / 1_000, color="0.35", linewidth=1.0, linestyle=":")
    axes.set_yscale("log")
    axes.set_xlim(0, at[-1])
    axes.set_xlabel("training time (thousand learning steps)")
    axes.set_ylabel("NMSRE")
    other.set_ylabel("MSPBE estimate (squared scaled units)")
    other.set_ylim(min(0.0, float(other.get_ylim()[0])), None)
    axes.spines[["top"]].set_visible(False)
    other.spines[["top"]].set_visible(False)
    axes.grid(visible=True, color="0.92", linewidth=0.8)
    axes.set_axisbelow(True)
    return list(lines)
