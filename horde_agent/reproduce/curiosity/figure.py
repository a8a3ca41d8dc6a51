"""Surprise around the change, errors in tests, and the pull of noise."""

from __future__ import annotations

import numpy as np

from horde_agent.reproduce.curiosity.claims import reactions, recovery, shares_drawn
from horde_agent.reproduce.curiosity.problem import CHANGED, MINUTE, OTHER, THRESHOLD, Data
from horde_agent.reproduce.experiment import Table
from horde_agent.reproduce.figures import COLOURS, Picture, new_canvas, style_axes
from horde_agent.reproduce.stats import join


def pictures(data: Data) -> dict[str, Picture]:
    """Draw surprise around the change, the errors of curious robots and their twins, and the pull of noise."""
    canvas, (left, middle, right) = new_canvas(13.0, 3.8, 3, width_ratios=[1.4, 1.2, 0.9])
    record = data.lives["curious"][0]
    change_at = data.size.before
    shown = slice(max(change_at - 3 * MINUTE, 0), change_at + 7 * MINUTE)
    t = (np.arange(len(record.drive))[shown] - change_at) / MINUTE
    for question, name, colour in (
        (OTHER, "counter-clockwise", COLOURS[0]),
        (CHANGED, "clockwise", COLOURS[1]),
    ):
        left.plot(t, record.drive[shown, question], color=colour, linewidth=1.2, label=name)
    left.axhline(THRESHOLD, color="0.4", linewidth=0.9, linestyle="--", label="threshold")
    is_followed = record.followed[shown] == CHANGED
    left.fill_between(
        t,
        0,
        1,
        where=is_followed,
        transform=left.get_xaxis_transform(),
        color=COLOURS[1],
        alpha=0.12,
    )
    style_axes(left, "surprise", legend=True, xlabel="minutes since the change", ylabel="UDE")
    t = (record.tested - change_at) / MINUTE
    is_shown = (t >= -1) & (t < 4)
    for kind, colour in (("twin", COLOURS[0]), ("curious", COLOURS[1])):
        error = np.median([life.error[record.tested] for life in data.lives[kind]], axis=0)
        middle.plot(t[is_shown], error[is_shown], color=colour, linewidth=1.3, label=kind)
    style_axes(
        middle,
        "error of the changed question",
        legend=True,
        xlabel="minutes since the change",
        yscale="log",
    )
    for x, kind in enumerate(("noise, UDE", "noise, |delta|")):
        shares = shares_drawn(data, kind)
        right.plot(np.full(len(shares), x), shares, "o", color=COLOURS[2], alpha=0.6)
    right.set_xticks([0, 1], ["by UDE", "by |delta|"])
    style_axes(
        right,
        "time spent on noise",
        ylabel="share of phase B",
        ylim=(-0.03, 1.03),
        xlim=(-0.5, 1.5),
    )
    caption = (
        "Left: UDE of both questions in the curious life of the first seed; the friction of clockwise rotation "
        "rises at 0, and the robot follows that policy in the shaded time. Middle: error of the changed question "
        "in tests, median over the seeds. Right: share of phase B at the policy of a question about noise, one dot "
        "per seed."
    )
    return {"curiosity": (canvas, caption)}


def tables(data: Data) -> list[Table]:
    """Return each seed's reaction."""
    rows = [
        {
            "seed": k,
            "surprised before": found.before,
            "crossed: changed, other": found.crossed,
            "settled (steps)": found.settled,
            "on its policy": found.followed,
            "later: changed, other": join(found.later, ".3f"),
            "error back (steps)": recovery(data.lives["curious"][k], data.size.before),
            "twin": recovery(data.lives["twin"][k], data.size.before),
        }
        for k, found in enumerate(reactions(data))
    ]
    return [Table.of("Reactions to the change, by seed", rows, "Steps of 100 ms after the change.")]
