"""The picture of the experiment `league`. Needs matplotlib."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from horde_agent.reproduce.figure import new_canvas, save, style_axes
from horde_agent.reproduce.league.problem import DEFAULT, Data, Score, gains_over
from horde_agent.reproduce.result import Figure
from horde_agent.runs.showing.pictures import COLOURS


def pictures(data: Data, folder: Path) -> list[Figure]:
    """Draw by how much every rule is better than the default one on its questions, one dot per life."""

    def gains(name: str, scores: list[Score]) -> list[float]:
        return gains_over(data.default_beside(name), scores)

    order = sorted(data.best, key=lambda name: max(np.mean(gains(name, s[name])) for s in (data.defaults, data.best)))
    canvas, (axes,) = new_canvas(9.0, 1.0 + 0.3 * len(order))
    for shift, colour, (label, scores) in zip(
        (0.15, -0.15), COLOURS, {"default settings": data.defaults, "best of the grid": data.best}.items(), strict=False
    ):
        for y, name in enumerate(order):
            of_lives = gains(name, scores[name])
            axes.plot(of_lives, [y + shift] * len(of_lives), "o", color=colour, label=None if y else label)
    axes.axvline(0.0, color="0.5")
    named = [f"{name} ({len(data.best[name][0].nmsre)} questions)" for name in order]
    axes.set_yticks(range(len(order)), named)
    title = f"{DEFAULT}'s error (mean NMSRE, at most 1 each) minus the rule's, on the same questions"
    style_axes(axes, title, legend=True, xlabel="gain: high is good")
    caption = "Gain of every update rule over the default one, one dot per life; the best rule on top."
    return [save(canvas, folder / "league.png", caption)]
