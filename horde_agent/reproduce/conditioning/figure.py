"""The mean predictions around the CS, and the error of every representation."""

from __future__ import annotations

import numpy as np

from horde_agent.reproduce.conditioning import problem
from horde_agent.reproduce.conditioning.problem import Data
from horde_agent.reproduce.experiment import Table
from horde_agent.reproduce.figures import COLOURS, Picture, new_canvas, style_axes
from horde_agent.reproduce.stats import mean_ci

_SHOWN = {problem.PRESENCE: COLOURS[0], problem.MICRO: COLOURS[2], problem.CLOSED: COLOURS[1]}
_BARS = (
    problem.PRESENCE,
    problem.MICRO,
    problem.TRACES,
    problem.ALONE,
    problem.CLOSED,
    problem.OPEN,
    problem.FOREIGN,
)


def pictures(data: Data) -> dict[str, Picture]:
    """Draw the mean predictions around the CS, and every representation's error."""
    canvas, panels = new_canvas(13.0, 3.8, 3)
    y = np.arange(len(_BARS))
    bars = panels[-1]
    for k, (m, axes) in enumerate(zip((problem.SHORT, problem.LONG), panels, strict=False)):
        curves = data.around_cs[m]
        t = np.arange(len(curves["return"])) - problem.BEFORE_CS
        axes.plot(t, curves["return"], color="black", linewidth=2.0, label="return")
        for name, colour in _SHOWN.items():
            axes.plot(t, curves[name], color=colour, linewidth=1.3, label=name)
        axes.axvline(0, color="0.7", linewidth=0.9, linestyle=":")
        style_axes(
            axes, f"US about {m} steps after the CS", legend=k == 0, xlabel="steps since the CS"
        )
        means, half_widths = np.transpose([mean_ci(data.gap[m][name]) for name in _BARS])
        bars.barh(
            y + 0.38 * k,
            means,
            0.36,
            color=COLOURS[3 + k],
            xerr=np.nan_to_num(half_widths),
            label=f"m {m}",
        )
    panels[0].set_ylabel("prediction of the US")
    bars.set_yticks(y + 0.19, _BARS, fontsize=8)
    bars.invert_yaxis()
    style_axes(bars, legend=True, xlabel="error / variance")
    caption = (
        "Left and middle: mean return of the US and mean predictions by the time since the onset of the CS, with "
        "fixed weights on a fresh stream of the first seed. Right: mean squared error over the variance of the "
        "return, means over the seeds with 95 % intervals; the first three learn with Adam, the others with "
        "constant steps."
    )
    return {"conditioning": (canvas, caption)}


def tables(data: Data) -> list[Table]:
    """Return the errors of all representations in trace conditioning and in noisy patterning."""
    rows = []
    for name in data.gap[problem.SHORT]:
        kind = "Adam (the authors')"
        if name in problem.LOOPS:
            kind = "constant steps (the Horde's)"
        errors = {f"m {m}": mean_ci(found[name]) for m, found in data.gap.items()}
        rows.append({"features": name, "TD(.9) with": kind, **errors})
    note = (
        "Mean squared error over the variance of the return, on a fresh stream with fixed weights; means over the "
        "seeds with 95 % intervals. Loop open: predictions of demons that see only the stimuli."
    )
    not_judged = (
        "Four CS, two patterns (sizes of ours). Not judged: a linear prediction from single stimuli, present or "
        "past, cannot distinguish a pattern from its parts."
    )
    patterning = [
        {"features": name, "error": mean_ci(found)} for name, found in data.patterning.items()
    ]
    return [
        Table.of("Trace conditioning: error over variance", rows, note),
        Table.of("Noisy patterning: error over variance", patterning, not_judged),
    ]
