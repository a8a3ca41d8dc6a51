"""The pictures of the first experiment. Needs matplotlib."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
from matplotlib.axes import Axes

from horde_agent.measures.passes import Curve
from horde_agent.reproduce.excursions.problem import (
    LARGER_STEPS,
    PAPER,
    SMALLER_RATIOS,
    Data,
    Variant,
    summary,
)
from horde_agent.reproduce.figure import new_canvas, save, style_axes
from horde_agent.reproduce.result import Figure
from horde_agent.runs.showing.pictures import COLOURS, nmsre_picture
from horde_agent.types import Floats

_CEILING = 1e3  # upper limit of logarithmic axes
_AT_1: Any = {"color": "0.35", "linewidth": 0.9, "linestyle": ":"}


def pictures(data: Data, folder: Path) -> list[Figure]:
    """Draw all pictures into a folder and return their entries."""
    return [
        _questions(data, folder / "nmsre.png"),
        _rules(data, folder / "rules.png"),
        _steps(data, folder / "steps.png"),
        _offline(data, folder / "offline.png"),
    ]


def _questions(data: Data, path: Path) -> Figure:
    """Draw the paper's figure: every question of the first life, and the bold mean."""
    seed, lesson = next(iter(data.main.items()))
    nmsre_picture([Curve.of(outcomes) for outcomes in lesson.outcomes], lesson.sound, path)
    return Figure(
        path.name,
        f"The paper's figure 3: the NMSRE of each of {len(data.questions)} questions over the tests of its policy, in "
        f"the life of seed {seed}; bold: their mean; dashed: their median. The axis is logarithmic.",
    )


def _rules(data: Data, path: Path) -> Figure:
    """Draw the curves of each trace rule, a panel per gamma."""
    gammas = np.unique(data.gamma)
    canvas, panels = new_canvas(11.0, 3.9, len(gammas), sharey=True)
    for axes, gamma in zip(panels, gammas, strict=True):
        mine = data.gamma == gamma
        for colour, variant in zip(COLOURS, [v for v in data.rules if v.w_rule == PAPER.w_rule], strict=False):
            lesson = data.first(variant)
            curves, n_diverged = lesson.curves(mine), int((~lesson.sound & mine).sum())
            label = f"{variant.trace_rule}, {n_diverged} set aside" if n_diverged else variant.trace_rule
            x = np.arange(1, len(curves) + 1)
            axes.plot(x, curves.mean(axis=1), color=colour, linewidth=1.5, label=label)
            axes.plot(x, np.median(curves, axis=1), color=colour, linewidth=1.1, linestyle="--")
        axes.axhline(1.0, **_AT_1)
        legend = {"loc": "upper right"}
        style_axes(axes, f"gamma {gamma:g}", legend=legend, yscale="log", xlabel="test excursions of the question")
    low, high = panels[0].get_ylim()
    panels[0].set(ylim=(max(low, 1e-3), min(high, _CEILING)), ylabel="NMSRE")
    return save(
        canvas,
        path,
        f"The three trace rules on the first life, w rule {PAPER.w_rule}: mean (solid) and median (dashed) over the "
        f"questions of each gamma that were not set aside. The axis ends at {_CEILING:g}.",
    )


def _steps(data: Data, path: Path) -> Figure:
    """Draw the final NMSRE at larger alpha and at smaller alpha_w."""
    canvas, (left, right) = new_canvas(8.4, 3.5, 2, sharey=True)
    steps, ratios = [PAPER, *LARGER_STEPS], [PAPER, *SMALLER_RATIOS]
    _sweep(left, data, steps, [f"{v.step_size:g}" for v in steps])
    style_axes(left, xlabel="alpha x active features", ylabel="final NMSRE")
    _sweep(right, data, ratios, [f"{v.secondary_ratio:g}" for v in ratios])
    style_axes(right, xlabel="alpha_w / alpha", legend=True)
    return save(
        canvas,
        path,
        "Larger alpha (left) and smaller alpha_w (right) on the first life, from the paper's values on; above each "
        "point the number of questions set aside. Means and medians are of the others.",
    )


def _sweep(axes: Axes, data: Data, variants: Sequence[Variant], names: Sequence[str]) -> None:
    found = [summary(data.first(v)) for v in variants]
    x = np.arange(len(found))
    axes.plot(x, [s.mean for s in found], color=COLOURS[0], marker="o", label="mean")
    axes.plot(x, [s.median for s in found], color=COLOURS[1], marker="o", linestyle="--", label="median")
    for k, (s, variant) in enumerate(zip(found, variants, strict=True)):
        n, at = f"{data.first(variant).n_diverged}", (k, s.mean)
        axes.annotate(n, at, textcoords="offset points", xytext=(0, 7), ha="center", fontsize=8)
    axes.axhline(1.0, **_AT_1)
    axes.set_yscale("log")
    axes.set_xticks(x, names)
    axes.margins(x=0.12, y=0.18)


def _offline(data: Data, path: Path) -> Figure:
    """Draw each question's demon against the two off-line predictors."""
    demons = data.first().score(data.offline.is_held_out)
    canvas, panels = new_canvas(9.0, 4.4, 2, sharey=True)
    predictors = (("LSTD(lambda)", data.offline.lstd), ("ridge regression", data.offline.ridge))
    for axes, (name, scores) in zip(panels, predictors, strict=True):
        _scatter(axes, data, scores, demons)
        axes.set_xlabel(f"{name}, off-line")
    panels[0].set_ylabel("demon, last weights")
    panels[1].legend(frameon=False, fontsize=8, loc="lower right")
    canvas.suptitle("mean squared error over variance, held-out excursions", fontsize=10)
    return save(
        canvas,
        path,
        "Each question's demon against the best off-line linear predictors with the same features, on the same "
        "held-out excursions of the first life. Above the diagonal the off-line predictor is better; dotted: the mean "
        "return.",
    )


def _scatter(axes: Axes, data: Data, x: Floats, y: Floats) -> None:
    shown = np.isfinite(x) & np.isfinite(y) & (x > 0) & (y > 0)
    low, high = float(min(x[shown].min(), y[shown].min())), float(max(x[shown].max(), y[shown].max()))
    for colour, gamma in zip(COLOURS, np.unique(data.gamma), strict=False):
        mine = shown & (data.gamma == gamma)
        axes.scatter(x[mine], y[mine], s=8, color=colour, alpha=0.55, linewidths=0, label=f"gamma {gamma:g}")
    limits = (low / 1.3, min(high * 1.3, _CEILING))
    axes.plot(limits, limits, color="0.4", linewidth=0.9)
    axes.axhline(1.0, **_AT_1)
    axes.axvline(1.0, **_AT_1)
    style_axes(axes, xscale="log", yscale="log", xlim=limits, ylim=limits, aspect="equal")
