"""The mean predictions around the CS, and the error of every representation."""

from __future__ import annotations

from pathlib import Path

import numpy as np
from matplotlib.axes import Axes

from horde_agent.reproduce.claims import mean_ci
from horde_agent.reproduce.conditioning import problem
from horde_agent.reproduce.conditioning.problem import Data
from horde_agent.reproduce.experiment import Figure, Table
from horde_agent.reproduce.figure import COLOURS, new_canvas, save, style_axes

_SHOWN = {problem.PRESENCE: COLOURS[0], problem.MICRO: COLOURS[2], problem.CLOSED: COLOURS[1]}
_BARS = (problem.PRESENCE, problem.MICRO, problem.TRACES, problem.ALONE, problem.CLOSED, problem.OPEN, problem.FOREIGN)


def pictures(data: Data, folder: Path) -> list[Figure]:
    """Draw the mean predictions around the CS, and every representation's error."""
    canvas, (left, middle, right) = new_canvas(13.0, 3.8, 3)
    for axes, m in ((left, problem.SHORT), (middle, problem.LONG)):
        _draw_trial(axes, data, m)
    _draw_bars(right, data)
    return [
        save(
            canvas,
            folder / "conditioning.png",
            "Left and middle: mean return of the US and mean predictions by the time since the onset of the CS, with "
            "fixed weights on a fresh stream of the first seed. Right: mean squared error over the variance of the "
            "return, means over the seeds with 95 % intervals; the first three learn with Adam, the others with "
            "constant steps.",
        )
    ]


def _draw_trial(axes: Axes, data: Data, m: int) -> None:
    curves = data.around_cs[m]
    t = np.arange(len(curves["return"])) - problem.BEFORE_CS
    axes.plot(t, curves["return"], color="black", linewidth=2.0, label="return")
    for name, colour in _SHOWN.items():
        axes.plot(t, curves[name], color=colour, linewidth=1.3, label=name)
    axes.axvline(0, color="0.7", linewidth=0.9, linestyle=":")
    ylabel = "prediction of the US" if m == problem.SHORT else ""
    style_axes(
        axes, f"US about {m} steps after the CS", legend=m == problem.SHORT, xlabel="steps since the CS", ylabel=ylabel
    )


def _draw_bars(axes: Axes, data: Data) -> None:
    y = np.arange(len(_BARS))
    for k, (m, colour) in enumerate(((problem.SHORT, COLOURS[3]), (problem.LONG, COLOURS[4]))):
        means = [mean_ci(data.gap[m][name]) for name in _BARS]
        half_widths = np.nan_to_num([mean.half_width for mean in means])
        axes.barh(y + 0.38 * k, [mean.mean for mean in means], 0.36, color=colour, xerr=half_widths, label=f"m {m}")
    axes.set_yticks(y + 0.19, _BARS, fontsize=8)
    axes.invert_yaxis()
    style_axes(axes, legend=True, xlabel="error / variance")


def tables(data: Data) -> list[Table]:
    """Return the errors of all representations in trace conditioning and in noisy patterning."""
    kinds = {
        name: "constant steps (the Horde's)" if name in problem.LOOPS else "Adam (the authors')"
        for name in data.gap[problem.SHORT]
    }
    rows = [[name, kind, *(str(mean_ci(data.gap[m][name])) for m in data.gap)] for name, kind in kinds.items()]
    note = (
        "Mean squared error over the variance of the return, on a fresh stream with fixed weights; means over the "
        "seeds with 95 % intervals. Loop open: predictions of demons that see only the stimuli."
    )
    return [
        Table(
            "Trace conditioning: error over variance",
            ["features", "TD(.9) with", *(f"m {m}" for m in data.gap)],
            rows,
            note,
        ),
        Table(
            "Noisy patterning: error over variance",
            ["features", "error"],
            [[name, str(mean_ci(found))] for name, found in data.patterning.items()],
            "Four CS, two patterns (sizes of ours). Not judged: a linear prediction from single stimuli, present or "
            "past, cannot distinguish a pattern from its parts.",
        ),
    ]
