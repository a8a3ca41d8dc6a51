"""The pictures of a report, as PNG files. Needs matplotlib (extra `viz`)."""

from __future__ import annotations

import io
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import matplotlib as mpl
import numpy as np
from matplotlib.axes import Axes
from matplotlib.collections import LineCollection
from matplotlib.figure import Figure

from horde_agent.measures.passes import Curve
from horde_agent.types import Bools, Floats

# The pen of White, Modayil & Sutton (2012) is 2 m wide; the body's radius keeps its centre off the walls.
PEN_HALF_SIDE_M = 1.0
LARGER_BY_M = 0.5  # half a side of a room that is larger than the pen is a multiple of it
BODY_RADIUS_M = 0.121
CELL_M = 0.1

COLOURS = ("#3b6fb6", "#d1622b", "#3d9a5d", "#8d5bb0", "#b03a4b", "#7a7a7a")
DPI = 130


def new_canvas(width: float, height: float, n: int = 1, **options: Any) -> tuple[Figure, list[Axes]]:
    """Return an empty picture, width x height inches, with `n` panels side by side; options as of `subplots`."""
    canvas = Figure(figsize=(width, height), dpi=DPI, layout="constrained")
    return canvas, list(canvas.subplots(1, n, squeeze=False, **options)[0])


def style_axes(axes: Axes, title: str = "", *, legend: bool | dict[str, Any] = False, **labels: Any) -> None:
    """Give axes a title, a legend, labels and scales, no frame at the top and right, and a light grid below the data.

    `legend` is whether to show one, or its options; `labels` are those of `Axes.set`.
    """
    axes.set(**labels)
    axes.set_title(title, fontsize=10)
    if legend is not False:
        axes.legend(**{"frameon": False, "fontsize": 8, **(legend if isinstance(legend, dict) else {})})
    axes.spines[["top", "right"]].set_visible(False)
    axes.grid(visible=True, color="0.92", linewidth=0.8)
    axes.set_axisbelow(True)


def save(canvas: Figure, place: Path | io.BytesIO) -> None:
    """Write a picture as PNG without a time stamp."""
    with mpl.rc_context({"agg.path.chunksize": 20_000}):
        canvas.savefig(place, format="png", metadata={"Software": None})


def nmsre_picture(curves: Sequence[Curve], sound: Bools, path: Path) -> None:
    """Draw the NMSRE of each question (thin) and their mean (bold) over the number of excursions of the question.

    `sound` are the demons that have not diverged, shape (n_demons,).

    Source: White, Modayil & Sutton (2012), figure of section 4.
    """
    kept = [curve._replace(nmsre=curve.nmsre[:, sound[curve.policy.demons]]) for curve in curves]
    x = min((curve.at for curve in kept), key=lambda at: int(at[-1]))
    x = x[np.logical_and.reduce([np.isin(x, curve.at) for curve in kept])]  # but for the shortest one's own end
    together = np.concatenate([curve.nmsre[np.isin(curve.at, x)] for curve in kept], axis=1)
    canvas, [axes] = new_canvas(8.0, 4.6)
    for colour, curve in zip(_cycle(len(kept)), kept, strict=True):
        lines = [np.column_stack([curve.at, column]) for column in curve.nmsre.T]
        axes.add_collection(LineCollection(lines, colors=colour, linewidths=0.5, alpha=0.13), autolim=True)
    some = ~np.isnan(together).all(axis=1)  # NaN: a question that was not tested yet
    mean, median = np.nanmean(together[some], axis=1), np.nanmedian(together[some], axis=1)
    axes.plot(x[some], mean, color="black", linewidth=2.6, label="mean over all questions")
    axes.plot(x[some], median, color="black", linewidth=1.3, linestyle="--", label="median")
    axes.axhline(1.0, color="0.35", linewidth=0.9, linestyle=":", label="predicting the mean return")
    style_axes(
        axes,
        legend={"loc": "upper right", "fontsize": "medium"},
        yscale="log",
        ylim=_log_limits(together),
        xlim=(1, max(max(int(curve.at[-1]) for curve in kept), 2)),
        xlabel="test excursions of the question",
        ylabel="NMSRE (share of the variance left unexplained)",
    )
    axes.locator_params(axis="x", integer=True)
    save(canvas, path)


def _cycle(n: int) -> list[str]:
    return [COLOURS[k % len(COLOURS)] for k in range(n)]


def _log_limits(values: Floats) -> tuple[float, float]:
    """Return limits that hold all but the outermost percent of the values, and 1."""
    positive = values[np.isfinite(values) & (values > 0)]
    if not len(positive):
        return 0.1, 10.0
    low, high = np.percentile(positive, [0.5, 99.5])
    mean = np.nanmean(values[~np.isnan(values).all(axis=1)], axis=1).max()
    return max(min(low, 0.5) / 1.3, 1e-4), max(high, mean, 2.0) * 1.5


def half_side(x_m: Floats, y_m: Floats) -> float:
    """Return half the side, in metres, of the square room that a path of positions in metres, shape (n,), lies in.

    It is the pen, unless the path leaves that.
    """
    farthest = float(max(np.abs(x_m).max(initial=0.0), np.abs(y_m).max(initial=0.0)))
    return max(PEN_HALF_SIDE_M, LARGER_BY_M * float(np.ceil(farthest / LARGER_BY_M)))


def visited_share(x_m: Floats, y_m: Floats) -> tuple[Floats, float]:
    """Return the visits per 10 cm cell of the room, and the share of cells visited that the body's centre can reach.

    Positions are in metres from the middle of the room, shape (n,). The counts have the shape (20, 20), more in a room
    larger than the pen, with the first axis along x.
    """
    side = half_side(x_m, y_m)
    edges = np.linspace(-side, side, round(2 * side / CELL_M) + 1)
    visits, _, _ = np.histogram2d(x_m, y_m, bins=(edges, edges))
    # A cell can be reached if its side nearest to the middle is no nearer to a wall than the body's radius.
    nearest = np.minimum(np.abs(edges[:-1]), np.abs(edges[1:]))
    within = nearest < side - BODY_RADIUS_M
    reachable = np.outer(within, within)
    return visits, float((visits[reachable] > 0).mean())


def pen_picture(x_m: Floats, y_m: Floats, path: Path) -> float:
    """Draw the robot's path in the pen and a map of its visits; return the share of cells visited.

    Positions of its centre are in metres east and north of the pen's middle, shape (n_steps,).
    """
    n_shown = 6_000  # steps of the path that are drawn, the latest ones
    side, (visits, share) = half_side(x_m, y_m), visited_share(x_m, y_m)
    canvas, (left, right) = new_canvas(9.6, 4.5, 2)
    _draw_room(left, side)
    left.plot(x_m[-n_shown:], y_m[-n_shown:], color=COLOURS[0], linewidth=0.5, alpha=0.6)
    left.plot(x_m[-1:], y_m[-1:], marker="o", color=COLOURS[1], markersize=6)
    left.set_title(f"path of the last {min(n_shown, len(x_m)):,} steps (10 per second)", fontsize=10)
    _draw_room(right, side)
    limits = (-side, side, -side, side)
    shown = np.ma.masked_equal(visits.T, 0.0)
    image = right.imshow(shown, origin="lower", extent=limits, cmap="viridis", norm="log")
    canvas.colorbar(image, ax=right, label="steps in the cell", shrink=0.85)
    right.set_title(f"{share:.0%} of the 10 cm cells within reach visited", fontsize=10)
    save(canvas, path)
    return share


def _draw_room(axes: Axes, side: float) -> None:
    axes.plot([-side, side, side, -side, -side], [-side, -side, side, side, -side], color="0.2", linewidth=2.0)
    limits = (-1.06 * side, 1.06 * side)
    axes.set(aspect="equal", xlim=limits, ylim=limits, xlabel="x (m, east)", ylabel="y (m, north)")
    axes.spines[["top", "right", "left", "bottom"]].set_visible(False)


def scatter_picture(groups: Mapping[str, Mapping[str, tuple[Floats, Floats]]], path: Path) -> None:
    """Draw predictions against the returns that followed, a panel per sensor and a colour per policy.

    `groups` maps sensor to policy to (predictions, returns), both of shape (n,).
    """
    canvas, panels = new_canvas(3.6 * len(groups) + 1.0, 3.9, len(groups))
    for axes, (sensor, policies) in zip(panels, groups.items(), strict=True):
        for colour, (policy, (predictions, returns)) in zip(_cycle(len(policies)), policies.items(), strict=True):
            axes.scatter(returns, predictions, s=9, color=colour, alpha=0.6, linewidths=0, label=policy)
        limits = _limits([part for pair in policies.values() for part in pair])
        axes.plot(limits, limits, color="0.4", linewidth=0.9, linestyle=":")
        style_axes(axes, sensor, xlim=limits, ylim=limits, aspect="equal", xlabel="return measured (scaled units)")
    panels[0].set_ylabel("prediction before (scaled units)")
    handles, labels = panels[0].get_legend_handles_labels()
    canvas.legend(handles, labels, loc="outside right upper", frameon=False, fontsize=8, title="policy followed")
    save(canvas, path)


def trace_picture(panels: Mapping[tuple[str, str], tuple[Floats, Floats, Floats]], path: Path) -> None:
    """Draw predictions and returns over time: a row per sensor, a column per policy or log.

    `panels` maps (sensor, column) to (t in s, prediction, return measured), each of shape (n_steps,).
    """
    sensors, columns = (list(dict.fromkeys(key[i] for key in panels)) for i in (0, 1))
    size = max(2.3 * len(columns) + 1.2, 8.0), 1.9 * len(sensors) + 0.7
    canvas = Figure(figsize=size, dpi=DPI, layout="constrained")
    grid = canvas.subplots(len(sensors), len(columns), squeeze=False, sharex=True)
    for (sensor, column), (t_s, prediction, actual) in panels.items():
        i, j = sensors.index(sensor), columns.index(column)
        axes = grid[i, j]
        axes.plot(t_s, actual, color="0.55", linewidth=1.8, label="what then happened")
        axes.plot(t_s, prediction, color=COLOURS[1], linewidth=1.3, label="prediction")
        style_axes(axes, ylim=_limits([v for (s, _), (_, p, a) in panels.items() if s == sensor for v in (p, a)]))
        if i == 0:
            axes.set_title(column, fontsize=9)
        if i == len(sensors) - 1:
            axes.set_xlabel("time (s)")
        if j == 0:
            axes.set_ylabel(f"{sensor}\n(scaled units)", fontsize=9)
    handles, labels = grid[0, 0].get_legend_handles_labels()
    canvas.legend(handles, labels, loc="outside upper right", ncols=2, frameon=False, fontsize=8)
    save(canvas, path)


def mspbe_picture(step: Floats, mspbe: Floats, period_s: float, path: Path) -> None:
    """Draw the mean signed MSPBE estimate over robot time, both arguments of shape (n,)."""
    canvas, [axes] = new_canvas(8.0, 3.0)
    axes.plot(step * period_s / 3600.0, mspbe, color=COLOURS[2], linewidth=1.6)
    axes.axhline(0.0, color="0.5", linewidth=0.8)
    style_axes(axes, xlabel="robot time (h)", ylabel="mean MSPBE estimate\n(squared scaled units)")
    save(canvas, path)


def comparison_picture(curves: Mapping[str, tuple[Sequence[float], Sequence[float]]], title: str) -> bytes:
    """Return a PNG of a curve (steps, values) of several runs, by their names; on a log scale if all are positive."""
    canvas, [axes] = new_canvas(8.0, 3.2)
    for k, (name, (steps, values)) in enumerate(curves.items()):
        axes.plot(steps, values, color=COLOURS[k % len(COLOURS)], linewidth=1.5, label=name)
    if all(value > 0.0 for _, values in curves.values() for value in values):
        axes.set_yscale("log")
    style_axes(axes, legend=True, xlabel="step", ylabel=title)
    picture = io.BytesIO()
    save(canvas, picture)
    return picture.getvalue()


def _limits(parts: Sequence[Floats]) -> tuple[float, float]:
    """Return limits around all values with a margin."""
    values = np.concatenate(parts)
    values = values[np.isfinite(values)]
    if not len(values):
        return 0.0, 1.0
    low, high = float(values.min()), float(values.max())
    margin = max(0.06 * (high - low), 1e-3 * max(abs(high), 1.0))
    return low - margin, high + margin
