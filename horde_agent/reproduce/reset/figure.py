"""The three measures over training time, and their reactions in numbers."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure as Canvas

from horde_agent.reproduce.experiment import Table
from horde_agent.reproduce.figures import COLOURS, Picture, new_canvas, style_axes
from horde_agent.reproduce.reset.claims import agreements, reactions
from horde_agent.reproduce.reset.problem import LIT, Data, Run
from horde_agent.reproduce.stats import mean_ci
from horde_agent.types import Bools

_LOOKS = {"vector": (COLOURS[0], "-"), "scalar": (COLOURS[1], "--")}


def pictures(data: Data) -> dict[str, Picture]:
    """Draw the paper's figure, and the effect of a moved lamp on the questions about light and on the others."""
    caption = (
        f"The paper's figure 4: means over {len(data.questions)} questions at gamma .8 and {_lives(data.reset)}; "
        f"theta := 0 after learning step {data.change_at:,} (dotted). NMSRE on the left, logarithmic; both MSPBE "
        "estimates on the right. A few near-constant sensors carry the mean NMSRE, so its median is drawn too."
    )
    figures = {"reset": (_picture(data, data.reset, {"": None}, 9.0, 4.4), caption)}
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
        figures["lamp"] = _picture(data, data.moved, panels, 11.5, 4.2), caption
    return figures


def _lives(runs: dict[int, Run]) -> str:
    if len(runs) > 1:
        return f"{len(runs)} lives"
    return "one life"


def _picture(
    data: Data, runs: dict[int, Run], panels: dict[str, Bools | None], width: float, height: float
) -> Canvas:
    canvas, panel_axes = new_canvas(width, height, len(panels))
    for axes, (title, which) in zip(panel_axes, panels.items(), strict=True):
        right_axes = _draw(axes, data, list(runs.values()), which)
        axes.set_title(title, fontsize=10)
    lines = [*panel_axes[-1].get_lines()[:2], *right_axes.get_lines()]
    canvas.legend(handles=lines, loc="outside upper center", ncols=4, frameon=False, fontsize=8)
    return canvas


def _draw(axes: Axes, data: Data, runs: Sequence[Run], which: Bools | None) -> Axes:
    """Draw the NMSRE on the left axis and both estimates on the right one, means over runs; return the right one."""
    n = min(len(run.at) for run in runs)
    at = runs[0].at[:n] / 1_000
    means = {
        k: np.mean([run.means(which)[k][:n] for run in runs], axis=0) for k in ("NMSRE", *_LOOKS)
    }
    median = np.mean([run.medians(which)[:n] for run in runs], axis=0)
    axes.plot(at, means["NMSRE"], color="black", linewidth=1.8, label="NMSRE, mean")
    axes.plot(at, median, color="0.45", linewidth=1.3, label="NMSRE, median")
    right_axes = axes.twinx()
    for name, (colour, style) in _LOOKS.items():
        right_axes.plot(
            at, means[name], color=colour, linestyle=style, linewidth=1.6, label=f"MSPBE, {name}"
        )
    axes.axvline(data.change_at / 1_000, color="0.35", linewidth=1.0, linestyle=":")
    style_axes(
        axes,
        xlabel="training time (thousand learning steps)",
        ylabel="NMSRE",
        yscale="log",
        xlim=(0, at[-1]),
    )
    axes.spines["right"].set_visible(True)
    right_axes.set_ylabel("MSPBE estimate (squared scaled units)")
    right_axes.set_ylim(min(0.0, float(right_axes.get_ylim()[0])), None)
    right_axes.spines["top"].set_visible(False)
    return right_axes


def tables(data: Data) -> list[Table]:
    """Return the experiment's tables, in the order in which they are read."""
    return [_agreement(data), _reaction(data), *([_lamp(data)] if data.moved else []), _cost(data)]


def _agreement(data: Data) -> Table:
    columns = [
        f"{when}: {what}"
        for when in ("before", "after")
        for what in ("correlation", "best lag", "at that lag")
    ]
    rows = [
        {
            "life": f"seed {seed}",
            "estimate": name,
            **dict(zip(columns, (*before, *after), strict=True)),
        }
        for seed, run in data.reset.items()
        for name, (before, after) in agreements(data, run).items()
    ]
    note = (
        "Pearson's correlation of the means over all questions; lags in learning steps, by which the estimate trails. "
        "Where both curves fall all the time, the best lag is the longest one looked at, and measures no delay."
    )
    return Table.of("The estimates against the NMSRE, before the change and after it", rows, note)


_REACTION = ("mean before", "peak", "peak after", "half of the rise gone after")


def _reaction(data: Data) -> Table:
    rows = []
    for seed, run in data.reset.items():
        reaction_of = {name: each[0] for name, each in reactions(data, [run]).items()}
        reaction_of["median NMSRE"] = data.reaction(run.at, run.medians())
        for name, reaction in reaction_of.items():
            rows.append(
                {
                    "life": f"seed {seed}",
                    "measure": name,
                    **dict(zip(_REACTION, reaction, strict=True)),
                }
            )
    return Table.of("The reaction to theta := 0", rows, "The last two columns in learning steps.")


def _lamp(data: Data) -> Table:
    rows = []
    for what, which in ((f"about {LIT}", data.is_lit), ("all others", ~data.is_lit)):
        for name, each in reactions(data, data.moved.values(), which).items():
            means = map(mean_ci, zip(*each, strict=True))
            row = {"questions": what, "number": which.sum(), "measure": name}
            row |= dict(zip(_REACTION, means, strict=True))
            rows.append(row | {"rise / level before": mean_ci([r.rise for r in each])})
    return Table.of(
        "The reaction to the moved lamp", rows, "Means over lives; times in learning steps."
    )


def _cost(data: Data) -> Table:
    rows = [
        {
            "life": f"seed {seed}",
            "steps of robot time": run.n_steps,
            "learning steps": run.n_updates,
            "robot time per learning step": run.n_steps / run.n_updates,
            "ms per learning step": 1e3 * run.seconds / run.n_updates,
        }
        for seed, run in data.reset.items()
    ]
    note = (
        "The NMSRE costs robot time: without excursions every step is a learning step. The last column is the "
        f"program's own time for {len(data.questions)} questions with both estimates, read every {data.every} steps; "
        "it belongs to the machine."
    )
    return Table.of("What the measures cost", rows, note)
