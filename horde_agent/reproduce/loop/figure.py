"""A minute of predictions, and the errors of every variant."""

from __future__ import annotations

from itertools import product

import numpy as np

from horde_agent.reproduce.experiment import Table
from horde_agent.reproduce.figures import COLOURS, Picture, new_canvas, style_axes
from horde_agent.reproduce.loop.problem import ALONE, CLOSED, GAMMAS, VARIANTS, Data
from horde_agent.reproduce.loop.worlds import composed_values
from horde_agent.reproduce.stats import mean_ci

_SHOWN = 600  # steps: a minute


def pictures(data: Data) -> dict[str, Picture]:
    """Draw a minute of the first life's predictions, and its errors."""
    outcomes = {
        variant: next(iter(of_variant.values())) for variant, of_variant in data.outcomes.items()
    }
    canvas, (left, right) = new_canvas(12.0, 3.8, 2, width_ratios=[2.4, 1.0])
    actual = outcomes[ALONE].actual
    first = _liveliest(actual)
    span = slice(first, first + _SHOWN)
    t = np.arange(len(actual[span])) * 0.1
    left.plot(t, actual[span], color="black", linewidth=1.8, label="what happened")
    for colour, variant in zip(COLOURS, (ALONE, CLOSED), strict=False):
        left.plot(t, outcomes[variant].predicted[span], color=colour, linewidth=1.1, label=variant)
    left.set_ylim(top=1.2 * float(actual[span].max()))
    legend = {"loc": "upper center", "ncols": 3}
    ylabel = f"return at gamma {GAMMAS[-1]:g}"
    style_axes(
        left, "time since the wall was touched", legend=legend, xlabel="time (s)", ylabel=ylabel
    )
    y = np.arange(len(outcomes))
    for k, (gamma, colour) in enumerate(zip(GAMMAS, COLOURS[2:], strict=False)):
        errors = [outcome.nmse[k] for outcome in outcomes.values()]
        right.barh(y + 0.36 * k, errors, 0.34, color=colour, label=f"gamma {gamma:g}")
    right.set_yticks(y + 0.18, [variant.replace(" ", "\n", 1) for variant in outcomes], fontsize=8)
    right.invert_yaxis()
    style_axes(right, legend=True, xlabel="error / variance")
    caption = (
        "Left: a minute in which nothing was learned, the liveliest one of the first life (such minutes are joined end "
        "to end): what happened, and what is predicted from the observation alone and with the predictions of the step "
        "before fed back. Right: mean squared error over variance of each variant in that life."
    )
    return {"memory": (canvas, caption)}


def _liveliest(actual: np.ndarray) -> int:
    """Return where the minute begins in which the return changes most."""
    changes = np.concatenate([[0.0], np.cumsum(np.abs(np.diff(actual)))])
    n = max(len(actual) - _SHOWN, 1)
    if len(actual) > _SHOWN:
        return int(np.argmax(changes[-n:] - changes[:n]))
    return 0


def tables(data: Data) -> list[Table]:
    """Return every seed's errors, and the corridor's learned and known answers."""
    rows = []
    for (k, gamma), variant in product(enumerate(GAMMAS), VARIANTS):
        errors = data.nmse(variant, k)
        row = {
            "gamma": f"{gamma:g}",
            "coded in addition to the observation": variant,
            "mean": mean_ci(errors),
        }
        rows.append(
            row
            | {f"seed {s}": error for s, error in zip(data.outcomes[variant], errors, strict=True)}
        )
    note = (
        "The truth itself is the time since the touch, known one step late: what a perfect memory would have. A "
        "prediction fed back is also a new feature of the observation of one step before; with the loop open it is "
        "that alone, since demons that see only the observation make it."
    )
    names = ("then: known", "then: learned", "first: known", "first: learned")
    pairs = np.stack([composed_values(), data.composed], axis=2).reshape(-1, 4)
    answers = [{"state": s, **dict(zip(names, row, strict=True))} for s, row in enumerate(pairs)]
    of_answers = (
        '"then": discounted time at the left wall, going mostly left (gamma 0.5). "first": the discounted sum of what '
        '"then" predicts along a walk that goes mostly right (gamma 0.8).'
    )
    return [
        Table.of(
            "Time since the wall was touched: mean squared error over variance, held out",
            rows,
            note,
        ),
        Table.of("Compositional questions in a corridor of five states", answers, of_answers),
    ]
