"""The pictures of the second experiment. Needs matplotlib."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import numpy as np
from matplotlib.axes import Axes

from horde_agent.reproduce.figure import new_canvas, save, style_axes
from horde_agent.reproduce.reset.problem import LIT, Data, Run
from horde_agent.reproduce.result import Figure
from horde_agent.runs.showing.pictures import COLOURS
from horde_agent.types import Bools

_LOOKS = {"vector": (COLOURS[0], "-"), "scalar": (COLOURS[1], "--")}


def pictures(data: Data, folder: Path) -> list[Figure]:
    """Draw all pictures into a folder and return their entries.

    The paper's figure, and what a moved lamp does to the questions about light and to the others.
    """
    caption = (
        f"The paper's figure 4: means over {len(data.questions)} questions at gamma .8 and {_lives(data.reset)}; "
        f"theta := 0 after learning step {data.change_at:,} (dotted). NMSRE on the left, logarithmic; both MSPBE "
        "estimates on the right. A few near-constant sensors carry the mean NMSRE, so its median is drawn too."
    )
    figures = [_picture(data, data.reset, {"": None}, 9.0, 4.4, folder / "reset.png", caption)]
    if data.moved:
        lit = data.is_lit
        panels: dict[str, Bools | None] = {
            f"{int(lit.sum())} questions about {LIT}": lit,
            f"{(~lit).sum()} other questions": ~lit,
        }
        caption = (
            "The change that the paper speaks of and did not make: the lamp moves to the opposite corner after "
            f"learning step {data.change_at:,} (dotted); theta, w and traces are kept. Means over {_lives(data.moved)}."
        )
        figures.append(_picture(data, data.moved, panels, 11.5, 4.2, folder / "lamp.png", caption))
    return figures


def _lives(runs: dict[int, Run]) -> str:
    return f"{len(runs)} lives" if len(runs) > 1 else "one life"


def _picture(
    data: Data,
    runs: dict[int, Run],
    panels: dict[str, Bools | None],
    width: float,
    height: float,
    path: Path,
    caption: str,
) -> Figure:
    canvas, each = new_canvas(width, height, len(panels))
    for axes, (title, which) in zip(each, panels.items(), strict=True):
        other = _draw(axes, data, list(runs.values()), which)
        axes.set_title(title, fontsize=10)
    lines = [*each[-1].get_lines()[:2], *other.get_lines()]
    canvas.legend(handles=lines, loc="outside upper center", ncols=4, frameon=False, fontsize=8)
    return save(canvas, path, caption)


def _draw(axes: Axes, data: Data, runs: Sequence[Run], which: Bools | None) -> Axes:
    """Draw the NMSRE on the left axis and both estimates on the right one, means over runs; return the right one."""
    n = min(len(run.at) for run in runs)
    at = runs[0].at[:n] / 1_000
    means = {k: np.mean([run.means(which)[k][:n] for run in runs], axis=0) for k in ("NMSRE", *_LOOKS)}
    median = np.mean([run.medians(which)[:n] for run in runs], axis=0)
    axes.plot(at, means["NMSRE"], color="black", linewidth=1.8, label="NMSRE, mean")
    axes.plot(at, median, color="0.45", linewidth=1.3, label="NMSRE, median")
    other = axes.twinx()
    for name, (colour, style) in _LOOKS.items():
        other.plot(at, means[name], color=colour, linestyle=style, linewidth=1.6, label=f"MSPBE, {name}")
    axes.axvline(data.change_at / 1_000, color="0.35", linewidth=1.0, linestyle=":")
    style_axes(axes, xlabel="training time (thousand learning steps)", ylabel="NMSRE", yscale="log", xlim=(0, at[-1]))
    axes.spines["right"].set_visible(True)
    other.set_ylabel("MSPBE estimate (squared scaled units)")
    other.set_ylim(min(0.0, float(other.get_ylim()[0])), None)
    other.spines["top"].set_visible(False)
    return other
