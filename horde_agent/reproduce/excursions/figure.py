"""The pictures of the first experiment. Needs matplotlib."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import numpy as np
from matplotlib.axes import Axes

from horde_agent.measures.passes import Curve
from horde_agent.reproduce.excursions.problem import Data, Variant, VariantResult, summary
from horde_agent.reproduce.figure import new_canvas, save, style_axes
from horde_agent.reproduce.result import Figure
from horde_agent.runs.showing.pictures import COLOURS, nmsre_picture
from horde_agent.types import Floats

_CEILING = 1e3  # upper limit of logarithmic axes


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
    """Draw what the trace rules make of each gamma."""
    first = next(iter(data.main.values()))
    gammas, w_rule = np.unique(first.gamma), data.paper.w_rule
    canvas = new_canvas(11.0, 3.9)
    panels = canvas.subplots(1, len(gammas), sharey=True, squeeze=False)[0]
    for axes, gamma in zip(panels, gammas, strict=True):
        for colour, variant in zip(COLOURS, [v for v in data.rules if v.w_rule == w_rule], strict=False):
            lesson = next(iter(data.lessons[variant].values()))
            curves = lesson.curves(share=list(lesson.gamma == gamma))
            n_diverged = int((~lesson.sound & (lesson.gamma == gamma)).sum())
            label = f"{variant.trace_rule}, {n_diverged} set aside" if n_diverged else variant.trace_rule
            _draw(axes, curves, colour, label)
        axes.axhline(1.0, color="0.35", linewidth=0.9, linestyle=":")
        axes.set_yscale("log")
        axes.set_title(f"gamma {gamma:g}", fontsize=10)
        axes.set_xlabel("test excursions of the question")
        axes.legend(frameon=False, fontsize=8, loc="upper right")
        style_axes(axes)
    low, high = panels[0].get_ylim()
    panels[0].set_ylim(max(low, 1e-3), min(high, _CEILING))
    panels[0].set_ylabel("NMSRE")
    return save(
        canvas,
        path,
        f"The three trace rules on the first life, w rule {w_rule}: mean (solid) and median (dashed) over the "
        f"questions of each gamma that were not set aside. The axis ends at {_CEILING:g}.",
    )


def _draw(axes: Axes, curves: Floats, colour: str, label: str) -> None:
    x = np.arange(1, len(curves) + 1)
    axes.plot(x, curves.mean(axis=1), color=colour, linewidth=1.5, label=label)
    axes.plot(x, np.median(curves, axis=1), color=colour, linewidth=1.1, linestyle="--")


def _steps(data: Data, path: Path) -> Figure:
    """Draw what larger alpha and smaller alpha_w do."""
    canvas = new_canvas(8.4, 3.5)
    left, right = canvas.subplots(1, 2, sharey=True)
    steps, ratios = [data.paper, *data.larger_steps], [data.paper, *data.smaller_ratios]
    _sweep(left, data, steps, [f"{v.step_size:g}" for v in steps])
    left.set_xlabel("alpha x active features")
    _sweep(right, data, ratios, [f"{v.secondary_ratio:g}" for v in ratios])
    right.set_xlabel("alpha_w / alpha")
    left.set_ylabel("final NMSRE")
    right.legend(frameon=False, fontsize=8)
    return save(
        canvas,
        path,
        "Larger alpha (left) and smaller alpha_w (right) on the first life, from the paper's values on; above each "
        "point the number of questions set aside. Means and medians are of the others.",
    )


def _sweep(axes: Axes, data: Data, variants: Sequence[Variant], names: Sequence[str]) -> None:
    found = [summary(next(iter(data.lessons[v].values())), data.questions) for v in variants]
    x = np.arange(len(found))
    axes.plot(x, [s.mean for s in found], color=COLOURS[0], marker="o", label="mean")
    axes.plot(x, [s.median for s in found], color=COLOURS[1], marker="o", linestyle="--", label="median")
    for k, s in enumerate(found):
        axes.annotate(
            f"{s.n_diverged}", (k, s.mean), textcoords="offset points", xytext=(0, 7), ha="center", fontsize=8
        )
    axes.axhline(1.0, color="0.35", linewidth=0.9, linestyle=":")
    axes.set_yscale("log")
    axes.set_xticks(x, names)
    axes.margins(x=0.12, y=0.18)
    style_axes(axes)


def _offline(data: Data, path: Path) -> Figure:
    """Draw each question's demon against the two off-line predictors."""
    lesson = next(iter(data.main.values()))
    demons = lesson.score(data.offline.is_held_out)
    canvas = new_canvas(9.0, 4.4)
    panels = canvas.subplots(1, 2, sharey=True)
    for axes, name, scores in zip(
        panels, ("LSTD(lambda)", "ridge regression"), (data.offline.lstd, data.offline.ridge), strict=True
    ):
        _scatter(axes, lesson, scores, demons)
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


def _scatter(axes: Axes, lesson: VariantResult, x: Floats, y: Floats) -> None:
    shown = np.isfinite(x) & np.isfinite(y) & (x > 0) & (y > 0)
    low, high = float(min(x[shown].min(), y[shown].min())), float(max(x[shown].max(), y[shown].max()))
    for colour, gamma in zip(COLOURS, np.unique(lesson.gamma), strict=False):
        mine = shown & (lesson.gamma == gamma)
        axes.scatter(x[mine], y[mine], s=8, color=colour, alpha=0.55, linewidths=0, label=f"gamma {gamma:g}")
    limits = (low / 1.3, min(high * 1.3, _CEILING))
    axes.plot(limits, limits, color="0.4", linewidth=0.9)
    axes.axhline(1.0, color="0.35", linewidth=0.9, linestyle=":")
    axes.axvline(1.0, color="0.35", linewidth=0.9, linestyle=":")
    axes.set_xscale("log")
    axes.set_yscale("log")
    axes.set_xlim(*limits)
    axes.set_ylim(*limits)
    axes.set_aspect("equal")
    style_axes(axes)
