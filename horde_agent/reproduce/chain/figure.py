"""The chain's figure: following the true MSPBE, a change, and what the time constant does. Needs matplotlib."""

from __future__ import annotations

from pathlib import Path

import numpy as np
from matplotlib.axes import Axes

from horde_agent.reproduce.chain.problem import (
    CHANGE_AFTER,
    CHANGED,
    GAMMAS,
    N_EPISODES,
    N_RUNS,
    TAU,
    TAUS,
    Curves,
    Data,
    fit,
)
from horde_agent.reproduce.figure import new_canvas, save, style_axes
from horde_agent.reproduce.result import Figure
from horde_agent.runs.showing.pictures import COLOURS

_LOOKS = {
    "true": ("black", 2.2),
    "sample": (COLOURS[5], 1.0),
    "vector": (COLOURS[0], 1.4),
    "scalar": (COLOURS[1], 1.4),
}
_SAMPLE_TAU = 100


def pictures(data: Data, folder: Path) -> list[Figure]:
    """Draw the first seed's curves of each gamma and return the figures' entries."""
    first = {gamma: next(curves for (g, _), curves in data.items() if g == gamma) for gamma in GAMMAS}
    return [_picture(curves, gamma, folder / f"gamma-{gamma:g}.png") for gamma, curves in first.items()]


def _picture(curves: Curves, gamma: float, path: Path) -> Figure:
    canvas, (left, middle, right) = new_canvas(13.0, 4.2, 3)
    true = curves.at("true")
    _draw(left, curves, 0, CHANGE_AFTER)
    top = 1.8 * true[: CHANGE_AFTER + 1].max()
    style_axes(left, "tracking", legend=True, xlabel="episode", ylabel="MSPBE", ylim=(-0.001, top))
    _draw(middle, curves, CHANGE_AFTER - 100, N_EPISODES)
    top = 1.1 * true[CHANGED].max()
    style_axes(middle, f"theta := U[0, 1] after episode {CHANGE_AFTER:,}", xlabel="episode", ylim=(-0.001, top))
    _draw_taus(right, curves)
    return save(
        canvas,
        path,
        f"Means of {N_RUNS} runs at gamma {gamma:g}, bands of two standard errors. Left: the first {CHANGE_AFTER:,} "
        "episodes. Middle: theta is drawn anew, w and the estimates are kept. The estimates have tau = "
        f"{TAU} steps, the sample MSPBE tau = {_SAMPLE_TAU} (at {TAU} it lies above the panels). Right: root mean "
        "square difference from the true curve, relative to it, against tau; before the change and, dashed, after it.",
    )


def _draw(axes: Axes, curves: Curves, first: int, last: int) -> None:
    """Draw the four measures over the episodes first..last."""
    x = np.arange(first, last + 1)
    for name, (colour, width) in _LOOKS.items():
        tau = _SAMPLE_TAU if name == "sample" else TAU
        mean, error = (values[first : last + 1] for values in (curves.at(name, tau), curves.error_at(name, tau)))
        axes.plot(x, mean, color=colour, linewidth=width, label=name if name == "true" else f"{name}, tau {tau}")
        axes.fill_between(x, mean - 2 * error, mean + 2 * error, color=colour, alpha=0.15, linewidth=0)
    axes.set_xlim(first, last)


def _draw_taus(axes: Axes, curves: Curves) -> None:
    """Draw how far each measure is from the true curve, for every tau."""
    for name in ("sample", "vector", "scalar"):
        fits = [fit(curves.at(name, tau), curves.at("true")) for tau in TAUS]
        colour = _LOOKS[name][0]
        axes.plot(TAUS, [f.error for f in fits], "o-", color=colour, markersize=3, label=name)
        axes.plot(TAUS, [f.error_changed for f in fits], "o--", color=colour, markersize=3)
    axes.plot([], [], "k--", linewidth=1.0, label="after the change")
    axes.axvline(TAU, color="0.6", linewidth=0.9, linestyle=":")
    labels = {"xlabel": "tau (steps)", "ylabel": "error relative to the true curve"}
    style_axes(axes, "sensitivity to tau", legend=True, xscale="log", yscale="log", **labels)
