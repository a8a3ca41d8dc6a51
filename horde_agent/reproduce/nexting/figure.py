"""Learning curves by time scale, and the NMSE against the off-line solution."""

from __future__ import annotations

import numpy as np

from horde_agent.reproduce.experiment import Table
from horde_agent.reproduce.figures import COLOURS, Picture, new_canvas, style_axes
from horde_agent.reproduce.nexting.claims import Scores
from horde_agent.reproduce.nexting.life import N_WINDOWS, TIME_SCALES_S
from horde_agent.reproduce.nexting.problem import Data


def pictures(data: Data) -> dict[str, Picture]:
    """Draw the learning curves by time scale, and the NMSE of every sensor against the off-line solution's."""
    scores = Scores(data)
    canvas, (left, right) = new_canvas(9.0, 3.4, 2)
    minutes = (np.arange(N_WINDOWS) + 1) * data.size.window * data.asked.interface.period_s / 60
    online, frozen = (
        scores.medians(curve).mean(axis=1) for curve in (scores.curve, scores.frozen_curve)
    )
    half = scores.medians(scores.half).mean(axis=0)
    for k, scale in enumerate(TIME_SCALES_S):
        left.plot(minutes, online[:, k], "-", color=COLOURS[k], label=f"{scale:g} s")
        left.plot(minutes, frozen[:, k], ":", color=COLOURS[k])
        left.axhline(half[k], color=COLOURS[k], lw=0.7, ls="--")
        in_scale = scores.varies[0] & data.asked.is_sensor & (data.asked.scale == k)
        right.plot(
            scores.half[0, in_scale],
            scores.online[0, in_scale],
            ".",
            ms=4,
            color=COLOURS[k],
            label=f"{scale:g} s",
        )
    right.plot([1e-3, 10], [1e-3, 10], color="0.6", lw=0.8)
    style_axes(
        left,
        "median NMSE; dotted: frozen weights",
        legend=True,
        xlabel="minutes of life",
        yscale="log",
    )
    labels = {"xlabel": "NMSE of the off-line solution of the first half", "ylabel": "NMSE online"}
    style_axes(
        right,
        "each sensor in the last 20 minutes",
        legend=False,
        xscale="log",
        yscale="log",
        **labels,
    )
    caption = (
        "Left: median NMSE of all questions that vary, by time scale; dashed: ridge regression on the first half. "
        "Right: every sensor of the first life; below the line TD(lambda) is better."
    )
    return {"nexting": (canvas, caption)}


def tables(data: Data) -> list[Table]:
    """Return the medians and shares by time scale and kind of target, means over the lives."""
    scores = Scores(data)
    rows = []
    columns = {"online": scores.online, "frozen weights": scores.frozen}
    columns |= {"off-line (b), first half": scores.half, "off-line (a), whole life": scores.whole}
    for kind, which in (("sensors", data.asked.is_sensor), ("feature bits", ~data.asked.is_sensor)):
        below = scores.below_1(scores.online, which).mean(axis=0)
        medians = {
            name: scores.medians(errors, which).mean(axis=0) for name, errors in columns.items()
        }
        for k, scale in enumerate(TIME_SCALES_S):
            errors = {name: of_scales[k] for name, of_scales in medians.items()}
            rows.append(
                {
                    "targets": kind,
                    "time scale (s)": scale,
                    **errors,
                    "online below 1": f"{below[k]:.0%}",
                }
            )
    note = "Median NMSE in the last 20 minutes of the questions with returns that vary; means over the lives."
    return [Table.of("NMSE by time scale", rows, note)]
