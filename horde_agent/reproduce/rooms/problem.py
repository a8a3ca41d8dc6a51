"""The rules and the grid, and their errors on the tasks."""

from __future__ import annotations

import functools
from typing import NamedTuple

import numpy as np

from horde_agent.problems.markov import Problem
from horde_agent.problems.rooms import rooms
from horde_agent.reproduce import TUNING_SEED
from horde_agent.reproduce.claims import join
from horde_agent.reproduce.experiment import Cell
from horde_agent.reproduce.small_runs import Runs, Variant, value_error
from horde_agent.reproduce.study import Study
from horde_agent.reproduce.sweeps import Grid, Sweep, sweep

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
CLIPPING = ("Tree Backup", "V-trace", "ABTD")
UNCLIPPED = ("TD", "GTD", "TDRC", "HTD")
TASKS = {"Rooms": False, "High Variance Rooms": True}
N_RUNS, N_TUNING = {"paper": 17, "quick": 1}, {"paper": 34, "quick": 1}
STEPS = {"paper": 50_000, "quick": 5_000}


class Data(NamedTuple):
    """Errors in both tasks, means over the eight questions."""

    even: Sweep
    high: Sweep


def build(high_variance: bool, _rng: np.random.Generator) -> Problem:
    """Return one of the two tasks, of which nothing is random."""
    return rooms(high_variance=high_variance)


def gather(study: Study) -> Data:
    """Learn by every rule and setting in both tasks."""
    runs = {
        task: Runs(functools.partial(build, high), value_error, STEPS[study.scale], every=50, share_last=0.01)
        for task, high in TASKS.items()
    }
    return Data(*sweep(study, runs, GRID, N_RUNS[study.scale], N_TUNING[study.scale]))


def settings(study: Study, data: Data) -> dict[str, Cell]:
    """Return everything needed to repeat the measurement."""
    on_rim = [f"{task}: {join(found.on_rim())}" for task, found in zip(TASKS, data, strict=True) if found.on_rim()]
    return {
        "runs of each seed": N_RUNS[study.scale],
        "steps": STEPS[study.scale],
        "log2 alpha": join(np.log2(GRID.alphas), "g"),
        "lambda, zeta": join(GRID.lambdas, "g"),
        "alpha_w / alpha": f"{RATIO:g}, TDRC 1",
        "seed for the best settings": TUNING_SEED,
        "best alpha on the grid's rim": "; ".join(on_rim) or "none",
    }
