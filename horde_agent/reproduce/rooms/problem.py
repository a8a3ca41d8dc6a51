"""Experiment `rooms`: eight rules on eight questions in four rooms, with and without a behaviour of high variance.

Source: Ghiassian & Sutton (2021), arXiv 2109.05110; code: sinaghiassian/OffpolicyAlgorithms. The grid is reduced to
seven step sizes, three trace decays and one ratio alpha_w / alpha.
"""

from __future__ import annotations

import functools
from typing import NamedTuple

import numpy as np

from horde_agent.problems.problem import Problem
from horde_agent.problems.rooms import rooms
from horde_agent.reproduce.small_runs import Runs, Variant, value_error
from horde_agent.reproduce.study import Study
from horde_agent.reproduce.sweeps import Grid, Sweep, sweep

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


class Size(NamedTuple):
    """Steps, runs of each seed, tuning runs, and steps between two evaluations of the errors."""

    steps: int
    runs: int
    tuning: int
    every: int


SIZES = {"paper": Size(50_000, 17, 34, 50), "quick": Size(5_000, 1, 1, 50)}


class Data(NamedTuple):
    """Errors in both tasks, means over the eight questions."""

    even: Sweep
    high: Sweep


def build(high_variance: bool, _: np.random.Generator) -> Problem:
    """Return one of the two tasks, of which nothing is random."""
    return rooms(high_variance=high_variance)


def gather(study: Study) -> Data:
    """Learn by every rule and setting in both tasks."""
    size = SIZES[study.scale]
    runs = {
        name: Runs(functools.partial(build, high), value_error, size.steps, size.every, share_last=0.01)
        for name, high in (("Rooms", False), ("High Variance Rooms", True))
    }
    return Data(*sweep(study, runs, GRID, size.runs, size.tuning))
