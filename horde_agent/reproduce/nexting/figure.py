"""Learning curves by time scale, and the NMSE against the off-line solution."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from horde_agent.reproduce.experiment import Cell, Figure, Table
from horde_agent.reproduce.figure import COLOURS, new_canvas, save, style_axes
from horde_agent.reproduce.nexting.claims import scores_of
from horde_agent.reproduce.nexting.life import N_WINDOWS, TIME_SCALES_S
from horde_agent.reproduce.nexting.problem import Data


def pictures(data: Data, folder: Path) -> list[Figure]:
    """Draw the learning curves by time scale, and the NMSE of every sensor against the off-line solution's."""
    found = scores_of(data)
    canvas, (left, right) = new_canvas(9.0, 3.4, 2)
    minutes = (np.arange(N_WINDOWS) + 1) * data.size.window * data.asked.interface.period_s / 60
    for k, scale in enumerate(TIME_SCALES_S):
        for curve, style in (("curve", "-"), ("frozen_curve", ":")):
            medians = np.mean([[life.medians(row)[k] for row in getattr(life, curve)] for life in found], axis=0)
            left.plot(minutes, medians, style, color=COLOURS[k], label=f"{scale:g} s" if style == "-" else None)
        left.axhline(np.mean([life.medians(life.half)[k] for life in found]), color=COLOURS[k], lw=0.7, ls="--")
        mine = found[0].at(k, data.asked.is_sensor)
        right.plot(found[0].half[mine], found[0].online[mine], ".", ms=4, color=COLOURS[k], label=f"{scale:g} s")
    right.plot([1e-3, 10], [1e-3, 10], color="0.6", lw=0.8)
    style_axes(left, "median NMSE; dotted: frozen weights", legend=True, xlabel="minutes of life", yscale="log")
    labels = {"xlabel": "NMSE of the off-line solution of the first half", "ylabel": "NMSE online"}
    style_axes(right, "each sensor in the last 20 minutes", legend=False, xscale="log", yscale="log", **labels)
    caption = (
        "Left: median NMSE of all questions that vary, by time scale; dashed: ridge regression on the first half. "
        "Right: every sensor of the first life; below the line TD(lambda) is better."
    )
    return [save(canvas, folder / "nexting.png", caption)]


def tables(data: Data) -> list[Table]:
    """Return the medians and shares by time scale and kind of target, means over the lives."""
    found = scores_of(data)
    rows: list[dict[str, Cell]] = []
    for kind, which in (("sensors", data.asked.is_sensor), ("feature bits", ~data.asked.is_sensor)):
        below = np.mean([life.below_1(which) for life in found], axis=0)
        medians = {
            name: np.mean([life.medians(getattr(life, name), which) for life in found], axis=0)
            for name in ("online", "frozen", "half", "whole")
        }
        rows += [
            {
                "targets": kind,
                "time scale (s)": scale,
                "online": float(medians["online"][k]),
                "frozen weights": float(medians["frozen"][k]),
                "off-line (b), first half": float(medians["half"][k]),
                "off-line (a), whole life": float(medians["whole"][k]),
                "online below 1": f"{below[k]:.0%}",
            }
            for k, scale in enumerate(TIME_SCALES_S)
        ]
    note = "Median NMSE in the last 20 minutes of the questions with returns that vary; means over the lives."
    return [Table.of("NMSE by time scale", rows, note)]
