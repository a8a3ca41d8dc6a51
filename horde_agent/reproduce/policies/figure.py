"""The pictures of the experiment `policies`. Needs matplotlib."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import numpy as np
from matplotlib.axes import Axes
from matplotlib.collections import LineCollection

from horde_agent.reproduce.figure import new_canvas, save, style_axes
from horde_agent.reproduce.policies.problem import GAMMAS, Data, PolicyScores
from horde_agent.reproduce.result import Figure
from horde_agent.runs.showing.pictures import COLOURS

_MOST_CURVES = 1_000


def pictures(data: Data, folder: Path) -> list[Figure]:
    """Draw all pictures into a folder and return their entries."""
    return [
        _scores(next(iter(data.few.values())), folder / "mspbe-1000.png"),
        _scores(data.many, folder / "mspbe-10000.png"),
        _traces(data.rules, folder / "traces.png"),
    ]


def _scores(course: PolicyScores, path: Path) -> Figure:
    """Draw the paper's last figure: every estimate and the bold mean (left), the mean of each gamma (right)."""
    canvas, (left, right) = new_canvas(12.0, 4.2, 2, sharex=True)
    n_shown = _draw_questions(left, course)
    _draw_means(right, course)
    legend = {"frameon": True, "framealpha": 0.8, "edgecolor": "none"}
    for axes, label, has_legend in ((left, "scalar MSPBE estimate", False), (right, "mean over its own peak", legend)):
        axes.axhline(0.0, color="0.35", linewidth=0.8)
        style_axes(axes, legend=has_legend, xlim=(0, course.step[-1]), xlabel="learning steps", ylabel=label)
    left.ticklabel_format(axis="y", style="sci", scilimits=(0, 0))
    n = course.gamma.size
    shown = f"every one of {n:,} questions" if n_shown == n else f"{n_shown:,} of {n:,} questions"
    return save(
        canvas,
        path,
        f"The scalar MSPBE estimate of {shown}, each about a Gibbs policy of its own (left; black: the mean of all), "
        "and the mean of each gamma over that mean's own peak (right). The left axis leaves out a thousandth of the "
        "values at either end.",
    )


def _draw_questions(axes: Axes, course: PolicyScores) -> int:
    """Draw curves in the colour of their gamma and the mean; return how many."""
    sound = np.flatnonzero(course.is_sound)
    shown = sound[:: max(-(-sound.size // _MOST_CURVES), 1)]
    for gamma, colour in zip(GAMMAS, COLOURS, strict=False):
        mine = shown[course.gamma[shown] == gamma]
        curves = [np.column_stack([course.step, course.mspbe[:, k]]) for k in mine]
        axes.add_collection(LineCollection(curves, colors=colour, linewidths=0.5, alpha=0.18))
    low, high = np.quantile(course.mspbe[:, shown], [0.001, 0.999]) if shown.size else (0.0, 1.0)
    axes.set_ylim(min(low, 0.0), 1.05 * max(high, 1e-30))
    axes.plot(course.step, course.mspbe[:, sound].mean(axis=1), color="black", linewidth=2.6)
    return int(shown.size)


def _draw_means(axes: Axes, course: PolicyScores) -> None:
    """Draw the mean of each gamma, and of all, over its peak."""
    shown = [(course.gamma == g, c, 1.3, f"gamma {g:g}") for g, c in zip(GAMMAS, COLOURS, strict=False)]
    for mine, colour, width, label in [*shown, (course.gamma >= 0, "black", 2.6, "all")]:
        chosen = course.is_sound & mine
        if chosen.any():
            mean = course.mspbe[:, chosen].mean(axis=1)
            axes.plot(course.step, mean / mean.max(), color=colour, linewidth=width, label=label)


def _traces(rules: Mapping[str, PolicyScores], path: Path) -> Figure:
    """Draw the largest trace so far, by gamma and trace rule."""
    canvas, panels = new_canvas(12.0, 3.2, len(GAMMAS), sharey=True)
    for k, (axes, gamma) in enumerate(zip(panels, GAMMAS, strict=True)):
        for colour, (rule, course) in zip(COLOURS, rules.items(), strict=False):
            axes.plot(course.step, course.max_trace[:, k], color=colour, linewidth=1.6, label=rule)
        style_axes(axes, f"gamma {gamma:g}", legend=k == 0, yscale="log", xlabel="learning steps")
        axes.locator_params(axis="x", nbins=4)
    panels[0].set_ylabel("largest |e| so far")
    return save(canvas, path, "The largest entry of any trace so far, under each trace rule, on the first life.")
