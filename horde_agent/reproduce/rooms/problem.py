"""The rules and the grid, and their errors on the tasks."""

from __future__ import annotations

import numpy as np

from horde_agent.problems.rooms import rooms
from horde_agent.reproduce import TUNING_SEED
from horde_agent.reproduce.experiment import ExperimentContext
from horde_agent.reproduce.stats import join
from horde_agent.reproduce.sweeps import Grid, Sweep, sweep
from horde_agent.reproduce.tabular_runner import Runs, Variant, value_error

TITLE = "Eight rules in the Rooms and High Variance Rooms problems"
RATIO = 2.0**-4
VARIANTS = {
    "TD": Variant("td"),
    "GTD": Variant("gtd", ratio=RATIO),
    "HTD": Variant("htd", ratio=RATIO),
    "TDRC": Variant("tdrc"),
    "ETD": Variant("etd"),
    "Tree Backup": Variant("tree_backup"),
    "V-trace": Variant("vtrace"),
    "ABTD": Variant("abtd", psi_max=4.0),
}
GRID = Grid(VARIANTS, 2.0 ** np.arange(-14.0, 0.0, 2.0), (0.0, 0.9, 1.0))
EVEN = "Rooms"
HIGH = "High Variance Rooms"
N_RUNS = {"paper": 17, "quick": 1}
N_TUNING = {"paper": 34, "quick": 1}
STEPS = {"paper": 50_000, "quick": 5_000}

Data = dict[str, Sweep]
"""Errors in both tasks, means over the eight questions."""


def gather(context: ExperimentContext) -> tuple[Data, dict[str, object]]:
    """Learn by every rule and setting in both tasks."""
    tasks = {
        task: (Runs(problem, value_error, STEPS[context.scale], every=50, share_last=0.01), GRID)
        for task, problem in ((EVEN, rooms()), (HIGH, rooms(high_variance=True)))
    }
    data = sweep(context, tasks, N_RUNS[context.scale], N_TUNING[context.scale])
    on_rim = [f"{task}: {join(found.on_rim())}" for task, found in data.items() if found.on_rim()]
    return data, {
        "runs of each seed": N_RUNS[context.scale],
        "steps": STEPS[context.scale],
        "log2 alpha": np.log2(GRID.alphas),
        "lambda, zeta": GRID.lambdas,
        "alpha_w / alpha": f"{RATIO:g}, TDRC 1",
        "seed for the best settings": TUNING_SEED,
        "best alpha on the grid's rim": "; ".join(on_rim) or "none",
    }
