"""The gain of every rule over the default one."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from horde_agent.reproduce import TUNING_SEED
from horde_agent.reproduce.experiment import Table
from horde_agent.reproduce.figures import COLOURS, Picture, new_canvas, style_axes
from horde_agent.reproduce.league.problem import DEFAULT, Data, Score
from horde_agent.reproduce.stats import mean_ci
from horde_agent.types import Floats


def pictures(data: Data) -> dict[str, Picture]:
    """Draw by how much every rule is better than the default one on its questions, one dot per life."""
    score_tables = (data.defaults, data.best)
    order = sorted(
        data.best,
        key=lambda name: max(np.mean(data.gains(name, scores[name])) for scores in score_tables),
    )
    canvas, (axes,) = new_canvas(9.0, 1.0 + 0.3 * len(order))
    for shift, colour, (label, scores) in zip(
        (0.15, -0.15),
        COLOURS,
        {"default settings": data.defaults, "best of the grid": data.best}.items(),
        strict=False,
    ):
        for y, name in enumerate(order):
            of_lives = data.gains(name, scores[name])
            axes.plot(
                of_lives, [y + shift] * len(of_lives), "o", color=colour, label=None if y else label
            )
    axes.axvline(0.0, color="0.5")
    named = [f"{name} ({len(data.best[name][0].nmsre)} questions)" for name in order]
    axes.set_yticks(range(len(order)), named)
    title = (
        f"{DEFAULT}'s error (mean NMSRE, at most 1 each) minus the rule's, on the same questions"
    )
    style_axes(axes, title, legend=True, xlabel="gain: high is good")
    caption = (
        "Gain of every update rule over the default one, one dot per life; the best rule on top."
    )
    return {"league": (canvas, caption)}


def tables(data: Data) -> list[Table]:
    """Return the league with default and with the best settings, means over the lives."""
    note = (
        "Means over the lives. NMSRE: final, two-pass. Error: mean of the NMSRE, at most 1 each, 1 for a diverged "
        f"demon. The best settings have the least error on a life of {data.size.tuning:,} steps with seed "
        f"{TUNING_SEED}. Gain: {DEFAULT}'s error with its defaults, on the same questions, minus this one. ms: per "
        "step, with a prediction of every demon; MB: state of the learner; both grow with the number of questions."
    )
    defaults = [_row(data, name, "default", data.defaults[name]) for name in data.best]
    best = [_row(data, name, data.chosen[name].settings, data.best[name]) for name in data.best]
    return [
        Table.of("Update rules with their defaults", defaults, note),
        Table.of("Update rules with the best settings of the grid", best, note),
    ]


def _row(data: Data, name: str, settings: str, scores: list[Score]) -> dict[str, object]:
    """Return one rule's row; a diverged demon has no NMSRE."""
    nmsre = [score.nmsre[score.sound & ~np.isnan(score.nmsre)] for score in scores]

    def mean_of(statistic: Callable[[Floats], Any]) -> float | None:
        if all(map(len, nmsre)):
            return float(np.mean([statistic(values) for values in nmsre]))
        return None

    return {
        "rule": name,
        "settings": settings,
        "questions": len(scores[0].nmsre),
        "error": mean_ci([score.error for score in scores]),
        "gain": mean_ci(data.gains(name, scores)),
        "median NMSRE": mean_of(np.median),
        "mean NMSRE": mean_of(np.mean),
        "share below 1": mean_of(lambda values: (values < 1).mean()),
        "diverged": sum((~score.sound).sum() for score in scores),
        "median RUPEE": np.mean([np.median(score.rupee) for score in scores]),
        "ms": np.mean([score.ms for score in scores]),
        "MB": np.mean([score.megabytes for score in scores]),
    }
