"""Experiment `rooms`: which of eight rules suffer from the variance of the ratios? On eight questions in four rooms.

Source: Ghiassian & Sutton (2021), arXiv 2109.05110; code: sinaghiassian/OffpolicyAlgorithms. The grid is reduced to
seven step sizes, three trace decays and one ratio alpha_w / alpha.
"""

from __future__ import annotations

import functools
from pathlib import Path
from typing import NamedTuple

import numpy as np

from horde_agent.problems.markov import Problem
from horde_agent.problems.rooms import rooms
from horde_agent.reproduce import TUNING_SEED
from horde_agent.reproduce.claims import Claims, Finding, Part, above, at_most, join, parts
from horde_agent.reproduce.experiment import Cell, Figure, Table
from horde_agent.reproduce.figure import sensitivity
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


# ---- claims ----------------------------------------------------------------------------------------------------------

CLAIMS = Claims("abstract")


@CLAIMS.add(
    "Emphatic TD has the lowest error in the end.",
    "ETD tends to the lowest asymptotic error, and may be slower",
    "Mean error of the last 1 % at each rule's best alpha and lambda for it, ETD's over the lowest:",
)
def _lowest_in_the_end(data: Data) -> Finding:
    over_lowest, said = {}, []
    for task, found in zip(TASKS, data, strict=True):
        last = {rule: found.best(rule, kind="last").mean for rule in VARIANTS}
        over_lowest[task] = last["ETD"] / min(last.values())
        said.append(f"{task}: {join(f'{rule} {value:.3f}' for rule, value in last.items())}")
    medians = [np.median(data.high.errors["last"][:, v], axis=(0, -1)).min() for v in range(len(VARIANTS))]
    own = medians.pop(list(VARIANTS).index("ETD"))
    cause = (
        "Few runs carry the means in High Variance Rooms: the lowest median over the runs, of any setting, is "
        f"{own:.3f} for ETD and {min(medians):.3f} for the others."
    )
    return Finding(parts(over_lowest, at_most(1.05)), f"{'; '.join(said)}.", cause)


@CLAIMS.add(
    "Rules that clip the ratios lose least where these vary most.",
    "Tree Backup, V-trace and ABTD suffer less from the variance of the ratios",
    "Best area in High Variance Rooms over the one in Rooms:",
)
def _clipping_loses_least(data: Data) -> list[Part]:
    ratios = {rule: data.high.best(rule).of_seeds / data.even.best(rule).of_seeds for rule in (*CLIPPING, *UNCLIPPED)}
    largest = max(ratios[rule].mean() for rule in CLIPPING)
    more = {f"{rule} over the largest of those that clip": ratios[rule] / largest for rule in UNCLIPPED}
    return parts({rule: ratios[rule] for rule in CLIPPING}, at_most(1.28)) + parts(more, above(1.0))


REMARKS = (
    "The grid is reduced: the authors' has thousands of settings.",
    "A question's traces restart when its policy is defined again; only HTD's second trace could differ.",
)

# ---- figures ---------------------------------------------------------------------------------------------------------


def pictures(data: Data, folder: Path) -> list[Figure]:
    """Draw the areas over alpha, a row for each task and a panel for each lambda."""
    return [sensitivity(dict(zip(TASKS, data, strict=True)), folder / "rooms.png")]


def tables(data: Data) -> list[Table]:
    """Return the best errors of each rule at each lambda in both tasks."""
    return [found.table(f"{task}: best errors by rule and lambda") for task, found in zip(TASKS, data, strict=True)]
