"""The figures of a report: pictures, as PNG files, and their captions."""

from __future__ import annotations

import io
import math
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from types import MappingProxyType
from typing import Any, NamedTuple

import matplotlib as mpl
import numpy as np
from matplotlib.axes import Axes
from matplotlib.axis import Axis
from matplotlib.collections import LineCollection
from matplotlib.figure import Figure
from matplotlib.ticker import LogFormatter

from horde_agent.html import element, figure, section
from horde_agent.record import Stream
from horde_agent.runs.log_nexting import shown_demons
from horde_agent.runs.storage.files import read_csv, read_json
from horde_agent.runs.storage.folder import RunFolder
from horde_agent.runs.storage.question_table import QuestionLine
from horde_agent.scoring.excursion_table import ExcursionTable
from horde_agent.scoring.shown import EstimateLine
from horde_agent.scoring.two_pass_nmsre import MOST_DOTS, Curve, PolicyScores, curves, dots
from horde_agent.types import Bools, Floats

# The pen of White, Modayil & Sutton (2012) is 2 m wide; the body's radius keeps its centre off the
# walls.
PEN_HALF_SIDE_M = 1.0
LARGER_BY_M = 0.5  # half a side of a room that is larger than the pen is a multiple of it
BODY_RADIUS_M = 0.121
CELL_M = 0.1

Tested = tuple[ExcursionTable, list[PolicyScores]]

COLOURS = ("#3b6fb6", "#d1622b", "#3d9a5d", "#8d5bb0", "#b03a4b", "#7a7a7a")
DPI = 130
NO_ESTIMATE = "There is none: the update rules of these questions have no secondary weights w, which it needs."
BAND = "± one deviation, learned"
"""Label of the band around a prediction whose variance is predicted."""
ERROR_BAND = "95 % of returns"
"""Label of the band from the errors of the tests before."""


class Margins(NamedTuple):
    """Space in inches around and between the panels of a picture, for their labels and titles.

    The left has room for an axis label of two lines and for eight characters at each tick.
    """

    left: float = 1.2
    right: float = 0.3
    bottom: float = 0.55
    top: float = 0.25
    between_columns: float = 0.0
    between_rows: float = 0.0


def new_canvas(
    width: float, height: float, n: int = 1, **options: Any
) -> tuple[Figure, list[Axes]]:
    """Return an empty picture, width x height inches, with `n` panels side by side; options as of `subplots`.

    Matplotlib arranges the panels by their labels; that costs as much time as drawing them.
    """
    canvas = Figure(figsize=(width, height), dpi=DPI, layout="constrained")
    return canvas, list(canvas.subplots(1, n, squeeze=False, **options)[0])


def new_grid(
    width: float,
    height: float,
    margins: Margins,
    n_rows: int = 1,
    n_columns: int = 1,
    **options: Any,
) -> tuple[Figure, Any]:
    """Return an empty picture, width x height inches, and its panels, shape (n_rows, n_columns).

    The margins are fixed: for pictures that are drawn often. Options as of `subplots`.
    """
    across = width - margins.left - margins.right
    panel_width = (across - (n_columns - 1) * margins.between_columns) / n_columns
    upwards = height - margins.bottom - margins.top
    panel_height = (upwards - (n_rows - 1) * margins.between_rows) / n_rows
    places = {
        "left": margins.left / width,
        "right": 1.0 - margins.right / width,
        "bottom": margins.bottom / height,
        "top": 1.0 - margins.top / height,
        "wspace": margins.between_columns / panel_width,
        "hspace": margins.between_rows / panel_height,
    }
    canvas = Figure(figsize=(width, height), dpi=DPI)
    panels = canvas.subplots(n_rows, n_columns, squeeze=False, gridspec_kw=places, **options)
    return canvas, panels


class PlainLogFormatter(LogFormatter):
    """Labels a log scale with 0.01, not with a power of ten in mathematical type, which is slow to typeset."""

    def __call__(self, x: float, pos: int | None = None) -> str:
        """Return the label of a tick at `x`; "" where the ticks are too dense for it."""
        if super().__call__(x, pos) == "":
            return ""
        return f"{x:g}"


def label_plainly(axis: Axis) -> None:
    """Label an axis with a log scale of base 10 with plain numbers."""
    axis.set_major_formatter(PlainLogFormatter())
    axis.set_minor_formatter(PlainLogFormatter())


def style_axes(
    axes: Axes, title: str = "", *, legend: bool | dict[str, Any] = False, **labels: Any
) -> None:
    """Give axes a title, a legend, labels and scales, no frame at the top and right, and a light grid below the data.

    `legend` is whether to show one, or its options; `labels` are those of `Axes.set`.
    """
    axes.set(**labels)
    for axis in (axes.xaxis, axes.yaxis):
        if axis.get_scale() == "log":
            label_plainly(axis)
    axes.set_title(title, fontsize=10)
    if legend is not False:
        axes.legend(
            **{"frameon": False, "fontsize": 8, **(legend if isinstance(legend, dict) else {})}
        )
    axes.spines[["top", "right"]].set_visible(False)
    axes.grid(visible=True, color="0.92", linewidth=0.8)
    axes.set_axisbelow(True)


def save(canvas: Figure, place: Path | io.BytesIO) -> None:
    """Write a picture as PNG without a time stamp."""
    # Half the time of the usual level, 6, and files that are larger by a tenth at most
    compression = {"compress_level": 3}
    with mpl.rc_context({"agg.path.chunksize": 20_000}):
        canvas.savefig(place, format="png", metadata={"Software": None}, pil_kwargs=compression)


def figures(
    folder: RunFolder,
    drawn: Callable[[str, Sequence[Path], Callable[[], str]], str],
    tested: Tested | None,
    questions: Sequence[QuestionLine],
    stream: Stream | None,
    details: dict[str, Any],
    time_name: str = "robot time",
    half_widths: Mapping[str, float] = MappingProxyType({}),
) -> list[str]:
    """Return a section for each picture; `time_name` is what the time of steps is called, "" if they have none.

    `half_widths` are those of the bands of 95 %, by question.

    `drawn` calls the function that draws it from files, and notes errors.
    """
    scored_files = [folder.excursions]
    known_details = [folder.excursions, folder.details]
    curve = [folder.mspbe_curve, folder.life, folder.details]
    facts = details.get("mspbe")
    return [
        drawn(
            "The picture of surprise",
            [folder.surprise],
            lambda: _surprise_section(folder, stream, time_name, half_widths),
        ),
        drawn(
            "The picture of the return errors",
            scored_files,
            lambda: _nmsre_section(folder, tested, questions),
        ),
        drawn("The picture of the pen", [folder.life], lambda: _pen_section(folder, stream)),
        drawn(
            "The picture of predictions",
            known_details,
            lambda: _scatter_section(folder, tested, details),
        ),
        drawn(
            "The picture of predictions over time",
            [folder.traces],
            lambda: _trace_section(folder, time_name, half_widths),
        ),
        drawn(
            "The picture of the MSPBE",
            curve,
            lambda: _mspbe_section(folder, stream, facts, time_name),
        ),
    ]


def nmsre_picture(curves: Sequence[Curve], sound: Bools) -> Figure:
    """Draw the NMSRE of each question (thin) and their mean (bold) over the number of excursions of the question.

    `sound` are the demons that have not diverged, shape (n_demons,).

    Source: White, Modayil & Sutton (2012), figure of section 4.
    """
    sound_curves = [
        curve._replace(nmsre=curve.nmsre[:, sound[curve.policy.demons]]) for curve in curves
    ]
    x = min((curve.at for curve in sound_curves), key=lambda at: int(at[-1]))
    # Except the end of the shortest
    x = x[np.logical_and.reduce([np.isin(x, curve.at) for curve in sound_curves])]
    together = np.concatenate([curve.nmsre[np.isin(curve.at, x)] for curve in sound_curves], axis=1)
    canvas, [[axes]] = new_grid(8.0, 4.6, Margins(left=0.9, right=0.2, top=0.15))
    for colour, curve in zip(_cycle(len(sound_curves)), sound_curves, strict=True):
        lines = [np.column_stack([curve.at, column]) for column in curve.nmsre.T]
        axes.add_collection(
            LineCollection(lines, colors=colour, linewidths=0.5, alpha=0.13), autolim=True
        )
    some = ~np.isnan(together).all(axis=1)  # NaN: a question that was not tested yet
    mean = np.nanmean(together[some], axis=1)
    median = np.nanmedian(together[some], axis=1)
    axes.plot(x[some], mean, color="black", linewidth=2.6, label="mean over all questions")
    axes.plot(x[some], median, color="black", linewidth=1.3, linestyle="--", label="median")
    axes.axhline(
        1.0, color="0.35", linewidth=0.9, linestyle=":", label="predicting the mean return"
    )
    style_axes(
        axes,
        legend={"loc": "upper right", "fontsize": "medium"},
        yscale="log",
        ylim=_log_limits(together),
        xlim=(1, max(max(int(curve.at[-1]) for curve in sound_curves), 2)),
        xlabel="tests of the question",
        ylabel="NMSRE (share of the variance left unexplained)",
    )
    axes.locator_params(axis="x", integer=True)
    return canvas


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


def _sound(questions: Sequence[QuestionLine], n_demons: int) -> Bools:
    """Return which demons have not diverged, shape (n_demons,); all if the questions do not say."""
    if len(questions) != n_demons:
        return np.ones(n_demons, dtype=bool)
    return np.array([not question.has_diverged for question in questions])


def _nmsre_section(
    folder: RunFolder, tested: Tested | None, questions: Sequence[QuestionLine]
) -> str:
    if tested is None or not tested[1]:
        return ""
    picture = nmsre_picture(curves(*tested), _sound(questions, tested[0].n_demons))
    save(picture, folder.path / "nmsre.png")
    return figure(
        "Return error (NMSRE)",
        "nmsre.png",
        "One thin line per question, one colour per tested policy; dashed: the median over all questions, bold: the "
        "mean. The error is the exponential trace (10 excursions) of the squared difference between the prediction "
        "at the start of a test and the measured return, divided by the variance of that question's returns over the "
        "whole run (two passes). Below 1, predictions are better than the mean return.",
    )


def half_side(x_m: Floats, y_m: Floats) -> float:
    """Return half the side, in metres, of the square room that a path of positions in metres, shape (n,), lies in.

    It is the pen, unless the path leaves that.
    """
    farthest = float(max(np.abs(x_m).max(initial=0.0), np.abs(y_m).max(initial=0.0)))
    return max(PEN_HALF_SIDE_M, LARGER_BY_M * float(np.ceil(farthest / LARGER_BY_M)))


def visited_share(x_m: Floats, y_m: Floats) -> tuple[Floats, float]:
    """Return the visits per 10 cm cell of the room, and the share of cells visited that the body's centre can reach.

    Positions are in metres from the middle of the room, shape (n,). The counts have the shape (20,
    20), more in a room larger than the pen, with the first axis along x.
    """
    side = half_side(x_m, y_m)
    edges = np.linspace(-side, side, round(2 * side / CELL_M) + 1)
    visits, _, _ = np.histogram2d(x_m, y_m, bins=(edges, edges))
    # A cell can be reached if its side nearest to the middle is no nearer to a wall than the body's
    # radius.
    nearest = np.minimum(np.abs(edges[:-1]), np.abs(edges[1:]))
    within = nearest < side - BODY_RADIUS_M
    reachable = np.outer(within, within)
    return visits, float((visits[reachable] > 0).mean())


def _pen_section(folder: RunFolder, stream: Stream | None) -> str:
    """Draw the robot's path in the pen, and a map of its visits."""
    if stream is None or not len(stream):
        return ""
    x, y = (stream.rows["pose"][:, i].astype(np.float64) for i in (0, 1))
    is_known = np.isfinite(x) & np.isfinite(y)
    if not is_known.any():
        return ""
    x = x[is_known]
    y = y[is_known]
    n_shown = 6_000  # steps of the path that are drawn, the latest ones
    side = half_side(x, y)
    (visits, share) = visited_share(x, y)
    margins = Margins(left=0.95, right=1.05, top=0.35, between_columns=0.95)
    canvas, [[left, right]] = new_grid(9.6, 4.5, margins, n_columns=2)
    _draw_room(left, side)
    left.plot(x[-n_shown:], y[-n_shown:], color=COLOURS[0], linewidth=0.5, alpha=0.6)
    left.plot(x[-1:], y[-1:], marker="o", color=COLOURS[1], markersize=6)
    left.set_title(f"path of the last {min(n_shown, len(x)):,} steps (10 per second)", fontsize=10)
    _draw_room(right, side)
    shown = np.ma.masked_equal(visits.T, 0.0)
    image = right.imshow(
        shown, origin="lower", extent=(-side, side, -side, side), cmap="viridis", norm="log"
    )
    # In parts of the panel's width and height, from its lower left corner
    bar = right.inset_axes((1.03, 0.03, 0.045, 0.94))
    canvas.colorbar(image, cax=bar, label="steps in the cell")
    label_plainly(bar.yaxis)
    right.set_title(f"{share:.0%} of the 10 cm cells within reach visited", fontsize=10)
    save(canvas, folder.path / "pen.png")
    first = int(stream.rows["step"][0])
    from_step = ""
    if first:
        from_step = f" From step {first:,} on."
    return figure(
        "Path in the pen",
        "pen.png",
        "Path and visits of the robot's centre, seen from above. Reachable: at least the robot's radius of 12 cm from "
        "the walls; obstacles in the pen are not subtracted. The agent does not observe its position."
        + from_step,
    )


def _draw_room(axes: Axes, side: float) -> None:
    axes.plot(
        [-side, side, side, -side, -side],
        [-side, -side, side, side, -side],
        color="0.2",
        linewidth=2.0,
    )
    limits = (-1.06 * side, 1.06 * side)
    axes.set(aspect="equal", xlim=limits, ylim=limits, xlabel="x (m, east)", ylabel="y (m, north)")
    axes.spines[["top", "right", "left", "bottom"]].set_visible(False)


def _scatter_section(folder: RunFolder, tested: Tested | None, details: dict[str, Any]) -> str:
    """Draw predictions against the returns that followed, a panel per sensor and a colour per policy."""
    channels = details.get("channels", [])
    actions = details.get("actions", [])
    groups = {}
    if tested is not None:
        groups = scatter_groups(*tested, channels, actions)
    if not groups:
        return ""
    title = "policy followed"
    text_widths = [_text_width(title, 10)]
    for policies in groups.values():
        text_widths += [0.45 + _text_width(policy, 8) for policy in policies]  # after a dot
    side = 2.9
    margins = Margins(left=1.05, right=max(text_widths) + 0.2, top=0.35, between_columns=0.75)
    width = margins.left + margins.right
    width += len(groups) * side + (len(groups) - 1) * margins.between_columns
    height = margins.bottom + side + margins.top
    canvas, [panels] = new_grid(width, height, margins, n_columns=len(groups))
    for axes, (sensor, policies) in zip(panels, groups.items(), strict=True):
        for colour, (policy, (predictions, returns)) in zip(
            _cycle(len(policies)), policies.items(), strict=True
        ):
            axes.scatter(
                returns, predictions, s=9, color=colour, alpha=0.6, linewidths=0, label=policy
            )
        limits = _limits([part for pair in policies.values() for part in pair])
        axes.plot(limits, limits, color="0.4", linewidth=0.9, linestyle=":")
        style_axes(
            axes,
            sensor,
            xlim=limits,
            ylim=limits,
            aspect="equal",
            xlabel="return measured (units of the reading)",
        )
        axes.locator_params(axis="x", nbins=4)  # so that long numbers do not touch
    panels[0].set_ylabel("prediction before (units of the reading)")
    handles, labels = panels[0].get_legend_handles_labels()
    canvas.legend(
        handles,
        labels,
        loc="upper right",
        frameon=False,
        fontsize=8,
        title=title,
    )
    save(canvas, folder.path / "predictions.png")
    return figure(
        "Predictions and returns",
        "predictions.png",
        "One dot per test excursion in the second half of the run: the prediction at its start and the measured "
        "discounted sum of the scaled reading, both without what comes after the test, at the longest time scale; "
        f"at most {MOST_DOTS:,} dots per policy, "
        "evenly spaced. On the dotted line, prediction and return are equal.",
    )


def _text_width(text: str, points: float) -> float:
    """Return the width in inches of a text in a size in points."""
    shown = Figure(dpi=DPI).text(0.0, 0.0, text, fontsize=points)
    return float(shown.get_window_extent().width) / DPI


def scatter_groups(
    tests: ExcursionTable, tested: Sequence[PolicyScores], channels: list[str], actions: list[str]
) -> dict[str, dict[str, tuple[Floats, Floats]]]:
    """Return sensor to policy to (predictions, returns) of the second half of each policy's excursions."""
    policies = {course.number: course.policy for course in tested}
    shown = {
        number: shown_demons(channels, of.channel, of.gamma) for number, of in policies.items()
    }
    dots_of_policy = dots(
        tests, tested, {number: np.array(places) for number, places in shown.items() if places}
    )
    groups: dict[str, dict[str, tuple[Floats, Floats]]] = {}
    for number, (predictions, returns) in dots_of_policy.items():
        policy = policies[number]
        for j, k in enumerate(shown[number]):
            name = f"{channels[policy.channel[k]]}, gamma {policy.gamma[k]:g}"
            groups.setdefault(name, {})[policy.label(actions)] = (predictions[:, j], returns[:, j])
    return groups


class Traces(NamedTuple):
    """Predictions and returns over time; a band is of the learned variance if a question is about it."""

    panels: dict[tuple[str, str], Floats]
    """Time, prediction, return and half the band, (4, n), of a sensor and a policy or log."""
    label: str  # of the band


def _read_traces(folder: RunFolder, half_widths: Mapping[str, float]) -> Traces:
    """Return the traces of a run; `half_widths` are those of bands from the errors of tests, by question."""
    lines = read_csv(folder.traces)
    label = ERROR_BAND
    if any(line.get("deviation") for line in lines):
        label = BAND  # all bands of a picture have one meaning
    rows: dict[tuple[str, str], list[tuple[float, ...]]] = {}
    for line in lines:
        half_width = half_widths.get(line["question"], math.nan)
        if label == BAND:
            half_width = float(line.get("deviation") or math.nan)
        values = (
            float(line["t_s"]),
            float(line["prediction"]),
            float(line["actual"]),
            half_width,
        )
        rows.setdefault((line["channel"], line["panel"]), []).append(values)
    return Traces({key: np.array(values).T for key, values in rows.items()}, label)


def _draw_band(
    axes: Axes, x: Floats, prediction: Floats, half_width: Floats | float, label: str
) -> None:
    """Draw a band around predictions, all of shape (n,), or of one half width; nothing if none is known."""
    if not np.isfinite(half_width).any():
        return
    axes.fill_between(
        x,
        prediction - half_width,
        prediction + half_width,
        color=COLOURS[1],
        alpha=0.2,
        linewidth=0,
        label=label,
    )


def _draw_traces(traces: Traces, xlabel: str) -> Figure:
    """Draw a row of panels per sensor, a column per policy or log."""
    sensors = list(dict.fromkeys(sensor for sensor, _ in traces.panels))
    columns = list(dict.fromkeys(column for _, column in traces.panels))
    curves_of: dict[str, list[Floats]] = {}
    for (sensor, _), (_, prediction, actual, half_width) in traces.panels.items():
        curves_of.setdefault(sensor, []).extend(
            [actual, prediction, prediction - half_width, prediction + half_width]
        )
    canvas, grid = new_grid(
        max(2.3 * len(columns) + 1.2, 8.0),
        1.9 * len(sensors) + 0.7,
        Margins(top=0.6, between_columns=0.25, between_rows=0.25),
        n_rows=len(sensors),
        n_columns=len(columns),
        sharex=True,
        sharey="row",
    )
    for (sensor, column), (t_s, prediction, actual, half_width) in traces.panels.items():
        i = sensors.index(sensor)
        j = columns.index(column)
        axes = grid[i, j]
        axes.plot(t_s, actual, color="0.55", linewidth=1.8, label="return")
        axes.plot(t_s, prediction, color=COLOURS[1], linewidth=1.3, label="prediction")
        _draw_band(axes, t_s, prediction, half_width, traces.label)
        style_axes(axes, ylim=_limits(curves_of[sensor]))
        if i == 0:
            axes.set_title(column, fontsize=9)
        if i == len(sensors) - 1:
            axes.set_xlabel(xlabel)
        if j == 0:
            axes.set_ylabel(f"{sensor}\n(units of the reading)", fontsize=9)
    handles: dict[str, Any] = {}
    for axes in grid.flat:
        for handle, label in zip(*axes.get_legend_handles_labels(), strict=True):
            handles.setdefault(label, handle)
    canvas.legend(
        handles.values(),
        handles.keys(),
        loc="upper right",
        ncols=3,
        frameon=False,
        fontsize=8,
    )
    return canvas


_EXPLANATIONS = {
    ERROR_BAND: " The band holds 95 % of the returns if errors stay as in the tests before.",
    BAND: (
        " The band is one standard deviation of the return to each side, as learned by the question about its "
        "variance; the error of the prediction is not part of it."
    ),
}


def _trace_section(folder: RunFolder, time_name: str, half_widths: Mapping[str, float]) -> str:
    """Return the section of predictions and returns over time; "" without any."""
    traces = _read_traces(folder, half_widths)
    if not traces.panels:
        return ""
    xlabel = "step"
    if time_name:
        xlabel = "time (s)"
    save(_draw_traces(traces, xlabel), folder.path / "traces.png")
    explanation = ""
    if any(np.isfinite(half_width).any() for _, _, _, half_width in traces.panels.values()):
        explanation = _EXPLANATIONS[traces.label]
    return figure(
        "Predictions over time",
        "traces.png",
        "Final predictions at each step (orange) and the discounted sum of the scaled reading that followed (grey), "
        "along observations that were not learned from." + explanation,
    )


def surprise_picture(table: Mapping[str, Any], hours_per_step: float, xlabel: str) -> Figure:
    """Draw the evidence of the groups of signals over time, the threshold and the alarms of a surprise.json."""
    canvas, [[axes]] = new_grid(8.0, 3.4, Margins(left=0.9, right=2.2))
    time = hours_per_step * np.array(table["step"])
    groups = {name: np.array(values) for name, values in table["evidence_of_groups"].items()}
    largest = sorted(groups, key=lambda name: -groups[name].max())[: len(COLOURS)]
    for name, colour in zip(largest, COLOURS, strict=False):
        shown = np.maximum(groups[name], 0.1)
        axes.plot(time, shown, color=colour, linewidth=1.0, label=name)
    axes.plot(
        time,
        np.maximum(table["evidence"], 0.1),
        color="black",
        linewidth=1.6,
        label="mean of all tests",
    )
    axes.axhline(table["threshold"], color="0.35", linewidth=0.9, linestyle=":", label="alarm")
    for event in table["events"]:
        colour = "0.6"
        if event["name"] == "surprise":
            colour = COLOURS[4]
        axes.axvline(hours_per_step * event["step"], color=colour, linewidth=0.8)
    style_axes(
        axes,
        legend={"loc": "upper left", "bbox_to_anchor": (1.0, 1.0)},
        yscale="log",
        xlabel=xlabel,
        ylabel="evidence",
    )
    return canvas


def alarm_picture(table: Mapping[str, Any], half_widths: Mapping[str, float]) -> Figure:
    """Draw the predictions of the questions of the last alarm of a surprise.json, their bands, and the readings."""
    traces = table["at_the_last_alarm"]
    alarm = [event for event in table["events"] if event["name"] == "surprise"][-1]
    canvas, grid = new_grid(
        8.0,
        1.6 * len(traces) + 0.7,
        Margins(left=0.9, right=2.2, top=0.3, between_rows=0.4),
        n_rows=len(traces),
        n_columns=1,
        sharex=True,
    )
    for axes, trace in zip(grid[:, 0], traces, strict=True):
        step = np.array(trace["step"])
        reading = np.array(trace["reading"], dtype=np.float64)
        prediction = np.array(trace["prediction"], dtype=np.float64)
        half_width = trace["share"] * half_widths.get(trace["question"], math.nan)
        axes.plot(step, reading, color="0.55", linewidth=1.4, label="reading")
        axes.plot(step, prediction, color=COLOURS[1], linewidth=1.1, label="prediction")
        _draw_band(axes, step, prediction, half_width, ERROR_BAND)
        axes.axvspan(alarm["began_first"], alarm["began_last"], color="0.85", zorder=0)
        axes.axvline(alarm["step"], color=COLOURS[4], linewidth=0.8)
        style_axes(axes, xlim=(step[0], step[-1]), ylabel="units of the reading")
        axes.set_title(trace["question"], fontsize=9)
    grid[-1, 0].set_xlabel("step")
    grid[0, 0].legend(loc="upper left", bbox_to_anchor=(1.0, 1.0), frameon=False, fontsize=8)
    return canvas


def _alarm_section(
    folder: RunFolder, table: Mapping[str, Any], half_widths: Mapping[str, float]
) -> str:
    if not table.get("at_the_last_alarm"):
        return ""
    save(alarm_picture(table, half_widths), folder.path / "alarm.png")
    return figure(
        "The last alarm",
        "alarm.png",
        "Of the questions that surprised most: final predictions (orange) times 1 - gamma, which is the mean reading "
        "to come, and the reading (grey). Red line: the alarm; shaded: when it may have begun.",
    )


def _surprise_section(
    folder: RunFolder,
    stream: Stream | None,
    time_name: str,
    half_widths: Mapping[str, float],
) -> str:
    if not folder.surprise.is_file():
        return ""
    table = read_json(folder.surprise)
    title = "Surprise"
    sentences = [event["sentence"] for event in table["events"]]
    if not table["step"]:
        n_missing = table["steps_missing"]
        return section(
            title, element("p", f"{n_missing:,} more learning steps are needed for a first test.")
        )
    hours_per_step = 1.0
    xlabel = "step"
    if stream is not None and time_name:
        hours_per_step = float(stream.header.get("period_s", 1.0)) / 3600.0
        xlabel = f"{time_name} (h)"
    picture = surprise_picture(table, hours_per_step, xlabel)
    save(picture, folder.path / "surprise.png")
    alarms = "No alarm. "
    if sentences:
        alarms = ". ".join(sentence[:1].upper() + sentence[1:] for sentence in sentences) + ". "
    evidence = figure(
        title,
        "surprise.png",
        f"{alarms}The evidence against predictions that fit, over all possible beginnings, of the groups of sensors "
        f"with the most (the largest of their tests). An alarm (red line) is raised where the mean of all tests "
        f"exceeds the dotted line: at most {table['rate']} if nothing changes. Grey line: predictions fit again.",
    )
    return evidence + _alarm_section(folder, table, half_widths)


def _mspbe_section(
    folder: RunFolder, stream: Stream | None, facts: dict[str, Any] | None, time_name: str
) -> str:
    lines = read_csv(folder.mspbe_curve)
    if len(lines) < 2:
        return ""
    step, mspbe = (
        np.array([float(line[c] or "nan") for line in lines]) for c in ("step", "mspbe_scalar_mean")
    )
    if not np.isfinite(mspbe).any():
        return section("MSPBE estimate", element("p", NO_ESTIMATE))
    xlabel = "step"
    if stream is not None and time_name:
        step = step * float(stream.header.get("period_s", 1.0)) / 3600.0
        xlabel = f"{time_name} (h)"
    canvas, [[axes]] = new_grid(8.0, 3.0, Margins())
    axes.plot(step, mspbe, color=COLOURS[2], linewidth=1.6)
    axes.axhline(0.0, color="0.5", linewidth=0.8)
    style_axes(axes, xlabel=xlabel, ylabel="mean MSPBE estimate\n(squared units of readings)")
    save(canvas, folder.path / "mspbe.png")
    return figure(
        "MSPBE estimate",
        "mspbe.png",
        "The scalar estimate of the mean squared projected Bellman error, averaged over all questions that have one "
        "and have not diverged. It starts at 0 and rises while the secondary weights w learn. The MSPBE is never "
        "negative, but the estimate can be while w lags behind theta: read negative values as near 0. "
        + _validity(facts),
    )


def _validity(facts: dict[str, Any] | None) -> str:
    if facts is None or facts["valid_after_updates"] is None:
        return ""
    not_yet = "none is"
    if facts["n_not_yet_valid"]:
        not_yet = f"{facts['n_not_yet_valid']:,} are"
    needed = f"{facts['valid_after_updates']:,.0f}"
    least = facts.get("valid_after_updates_least", facts["valid_after_updates"])
    if f"{least:,.0f}" != needed:
        needed = f"{least:,.0f} to {needed} (by its update rule)"
    none = ""
    if facts.get("n_without_estimate"):
        none = (
            f" {facts['n_without_estimate']:,} questions have none: their update rules have no w."
        )
    return (
        f"An estimate is valid after {needed} updates of its question, which w needs to change: "
        f"{facts['n_valid']:,} are valid, {not_yet} not yet.{none}"
    )


def comparison_picture(
    curves: Mapping[str, tuple[Sequence[float], Sequence[float]]], title: str
) -> bytes:
    """Return a PNG of a curve (steps, values) of several runs, by their names; on a log scale if all are positive."""
    canvas, [[axes]] = new_grid(8.0, 3.2, Margins(left=1.0))
    for k, (name, (steps, values)) in enumerate(curves.items()):
        axes.plot(steps, values, color=COLOURS[k % len(COLOURS)], linewidth=1.5, label=name)
    if all(value > 0.0 for _, values in curves.values() for value in values):
        axes.set_yscale("log")
    style_axes(axes, legend=True, xlabel="step", ylabel=title)
    return as_bytes(canvas)


def as_bytes(canvas: Figure) -> bytes:
    """Return a picture as PNG."""
    picture = io.BytesIO()
    save(canvas, picture)
    return picture.getvalue()


def interval_picture(
    lines: Mapping[str, EstimateLine], reference: str, line: EstimateLine
) -> bytes:
    """Return a PNG of values and intervals by name, and below them a `reference` with its `line`."""
    return as_bytes(interval_canvas(lines, reference, line))


def interval_canvas(
    lines: Mapping[str, EstimateLine], reference: str, line: EstimateLine
) -> Figure:
    """Return the picture; an interval that leaves it ends in an arrow.

    It reaches from the smallest to the largest of the values and of the ends of intervals that are
    at most ten times as wide as the median one.
    """
    shown = {name: one for name, one in lines.items() if math.isfinite(one.value)}
    shown[reference] = line
    widths = sorted(
        one.high - one.low for one in shown.values() if math.isfinite(one.high - one.low)
    )
    widest = math.inf
    if widths:
        widest = 10.0 * widths[len(widths) // 2]
    ends = [one.value for one in shown.values()]
    for one in shown.values():
        if one.high - one.low <= widest:
            ends += [one.low, one.high]
    left, right = _limits([np.array(ends)])
    height = 0.8 + 0.3 * len(shown)
    canvas, [[axes]] = new_grid(8.0, height, Margins(left=2.6))
    axes.axvline(line.value, color="0.6", linestyle="--", linewidth=1.0)
    for k, (name, one) in enumerate(shown.items()):
        colour = COLOURS[0]
        if name == reference:
            colour = COLOURS[-1]
        if math.isfinite(one.low) and math.isfinite(one.high):
            axes.hlines(k, max(one.low, left), min(one.high, right), color=colour, linewidth=3.0)
        for is_outside, end, marker in (
            (one.low < left, left, "<"),
            (one.high > right, right, ">"),
        ):
            if is_outside:
                axes.plot(end, k, marker, color=colour, clip_on=False)
        axes.plot(one.value, k, "o", color=colour)
    axes.set_yticks(range(len(shown)), list(shown))
    style_axes(axes, xlim=(left, right), ylim=(len(shown) - 0.5, -0.5), xlabel="value")
    return canvas


def _limits(parts: Sequence[Floats]) -> tuple[float, float]:
    """Return limits around all values with a margin."""
    values = np.concatenate(parts)
    values = values[np.isfinite(values)]
    if not len(values):
        return 0.0, 1.0
    low = float(values.min())
    high = float(values.max())
    margin = max(0.06 * (high - low), 1e-3 * max(abs(high), 1.0))
    return low - margin, high + margin
