"""Predicted and measured times, and the light by heading."""

from __future__ import annotations

import numpy as np

from horde_agent.reproduce.experiment import Table
from horde_agent.reproduce.figures import COLOURS, Picture, new_canvas, style_axes
from horde_agent.reproduce.horde2011.claims import light_from
from horde_agent.reproduce.horde2011.problem import N_HEADINGS, SEEKERS, Data


def pictures(data: Data) -> dict[str, Picture]:
    """Draw the times to the obstacle, the times to stop, and the light by heading."""
    canvas, (left, middle, right) = new_canvas(13.0, 3.8, 3)
    for k, life in enumerate(data.wanderings):
        met = life.time > 0
        left.plot(
            life.time[met], life.predicted[met, 0], ".", color=COLOURS[k % len(COLOURS)], alpha=0.5
        )
    left.axline((0, 0), slope=1, color="black", linewidth=0.9)
    style_axes(
        left,
        "time to the obstacle",
        xlabel="measured (steps)",
        ylabel="predicted at the start (steps)",
    )
    stops = data.stops[0]
    middle.plot(stops.time, ".", color="0.75", markersize=3, label="measured")
    middle.plot(stops.predicted, color=COLOURS[1], linewidth=1.0, label="predicted")
    style_axes(
        middle,
        "time to stop, on three floors",
        legend=True,
        xlabel="stop",
        ylabel="steps",
        ylim=(0, None),
    )
    for k, name in enumerate(SEEKERS):
        light = [light_from(data, heading)[k] for heading in range(N_HEADINGS)]
        right.plot(
            np.arange(N_HEADINGS) * 360 / N_HEADINGS, light, "o-", color=COLOURS[k], label=name
        )
    labels = {
        "xlabel": "heading at the start (degrees)",
        "ylabel": "front light in the last second",
    }
    style_axes(right, "seeking the light", legend=True, ylim=(0, None), **labels)
    caption = (
        "Left: test excursions going forward, a colour per life. Middle: the first life's stops in order; the friction "
        "changes twice. Right: light after 5 s of the policy found by Greedy-GQ, of one written by hand and of a "
        "random one, means over all lives."
    )
    return {"horde2011": (canvas, caption)}


def tables(data: Data) -> list[Table]:
    """Return the runs of the light seekers by heading."""
    rows = [
        {
            "heading (degrees)": 360 * k // N_HEADINGS,
            **dict(zip(SEEKERS, light_from(data, k), strict=True)),
        }
        for k in range(N_HEADINGS)
    ]
    return [Table.of("Front light in the last of 5 s, by heading at the start", rows)]
