"""The areas relative to TDRC's."""

from __future__ import annotations

from itertools import product

import numpy as np

from horde_agent.reproduce.experiment import Table
from horde_agent.reproduce.figures import COLOURS, Picture, new_canvas, style_axes
from horde_agent.reproduce.stats import mean_ci
from horde_agent.reproduce.tdrc.claims import OTHERS, PUBLISHED, SCRIPT
from horde_agent.reproduce.tdrc.problem import CORRECTED, PROBLEMS, STEP_RULES, Data

HIGHEST = 3.2
"""Taller bars are cut and marked by an arrow, as are published bars that leave their figure."""


def pictures(data: Data) -> dict[str, Picture]:
    """Draw the relative areas with both step rules and the published bars."""
    canvas, panels = new_canvas(11.0, 2.9, n=len(PUBLISHED), sharey=True)
    for axes, (problem, published) in zip(panels, PUBLISHED.items(), strict=True):
        measured = [
            ("script's step sizes", [data.mean("script", problem, rule) for rule in OTHERS]),
            ("AdaGrad, inferred", [data.mean("AdaGrad", problem, rule) for rule in OTHERS]),
            ("published", [np.nan if bar is None else bar for bar in published]),
        ]
        for k, (label, heights) in enumerate(measured):
            x = np.arange(len(OTHERS)) + 0.27 * (k - 1)
            colour = "0.6"
            if label != "published":
                colour = COLOURS[k]
            axes.bar(x, np.minimum(heights, HIGHEST), 0.25, color=colour, label=label)
            for at, height in zip(x, heights, strict=True):
                if height > HIGHEST:
                    axes.annotate("↑", (at, HIGHEST), ha="center", va="top", fontsize=8)
        axes.axhline(1.0, color="k", linewidth=0.8)
        axes.set_xticks(range(len(OTHERS)), OTHERS, rotation=60, fontsize=8)
        style_axes(axes, problem, legend=problem == "tabular", ylim=(0.0, HIGHEST))
    panels[0].set_ylabel("area over TDRC's")
    caption = (
        "Area under the root MSPBE of each rule over that of TDRC (line at 1): with the step sizes of the authors' "
        "script, with AdaGrad, and the published bars, some of which leave their figure or are missing."
    )
    return {"tdrc": (canvas, caption)}


def tables(data: Data) -> list[Table]:
    """Return the relative areas, and the areas of TDRC."""
    rows = []
    for problem, (k, rule) in product(PROBLEMS, enumerate(OTHERS)):
        published, script = (
            of.get(problem, (None,) * len(OTHERS))[k] for of in (PUBLISHED, SCRIPT)
        )
        measured = {steps: data.mean(steps, problem, rule) for steps in STEP_RULES}
        alpha = data.best("AdaGrad", problem, rule).alpha
        row = {
            "problem": problem,
            "rule": rule,
            "published": published,
            **measured,
            "AdaGrad's alpha": alpha,
        }
        rows.append(row | {"script, other program": script})
    note = f"Areas under the root MSPBE over TDRC's. {CORRECTED}: the exact matrices in place of the script's."
    of_tdrc = []
    for problem in PROBLEMS:
        best = {steps: data.best(steps, problem, "TDRC") for steps in STEP_RULES}
        areas = {steps: mean_ci(of.of_seeds) for steps, of in best.items()}
        of_tdrc.append({"problem": problem, **areas, "AdaGrad's alpha": best["AdaGrad"].alpha})
    return [
        Table.of("Areas relative to TDRC", rows, note),
        Table.of("Area of TDRC", of_tdrc, "Means over the seeds."),
    ]
