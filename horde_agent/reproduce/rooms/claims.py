"""Experiment `rooms`: which rules suffer from the variance of the ratios? Source: Ghiassian & Sutton (2021)."""

from __future__ import annotations

import numpy as np

from horde_agent.reproduce.experiment import ClaimRule, Experiment, Finding, finding_of_means
from horde_agent.reproduce.result import Cell, Table, join
from horde_agent.reproduce.rooms.problem import GRID, RATIO, SIZES, VARIANTS, Data, gather
from horde_agent.reproduce.study import Study
from horde_agent.reproduce.sweeps import TUNING_SEED

CLIPPING = ("Tree Backup", "V-trace", "ABTD")
UNCLIPPED = ("TD", "GTD", "TDRC", "HTD")
TASKS = {"Rooms": 0, "High Variance Rooms": 1}


def _lowest_in_the_end(data: Data) -> Finding:
    holds, said = [], []
    for task, found in zip(TASKS, data, strict=True):
        last = {rule: found.best(rule, kind="last").mean for rule in VARIANTS}
        holds.append(last["ETD"] <= 1.05 * min(last.values()))
        said.append(f"{task}: {join(f'{rule} {value:.3f}' for rule, value in last.items())}")
    medians = [np.median(data.high.errors["last"][:, v], axis=(0, -1)).min() for v in range(len(VARIANTS))]
    own = medians.pop(list(VARIANTS).index("ETD"))
    cause = (
        "Few runs carry the means in High Variance Rooms: the lowest median over the runs, of any setting, is "
        f"{own:.3f} for ETD and {min(medians):.3f} for the others."
    )
    return Finding(f"{'; '.join(said)}.", holds, "" if all(holds) else cause)


def _clipping_loses_least(data: Data) -> Finding:
    ratios = {rule: data.high.best(rule).of_seeds / data.even.best(rule).of_seeds for rule in (*CLIPPING, *UNCLIPPED)}
    largest = max(ratios[rule].mean() for rule in CLIPPING)
    found = finding_of_means(ratios, lambda ratio: ratio <= 1.28, "Best area in High Variance Rooms over Rooms: ")
    return found._replace(holds=[*found.holds[: len(CLIPPING)], *(ratios[r].mean() > largest for r in UNCLIPPED)])


CLAIMS = [
    ClaimRule(
        "Emphatic TD has the lowest error in the end.",
        "abstract",
        "ETD tends to the lowest asymptotic error, and may be slower",
        "Mean error of the last 1 % at each rule's best alpha and lambda for it: ETD's is at most 1.05 times the "
        "lowest, in both tasks.",
        _lowest_in_the_end,
    ),
    ClaimRule(
        "Rules that clip the ratios lose least where these vary most.",
        "abstract",
        "Tree Backup, V-trace and ABTD suffer less from the variance of the ratios",
        "Best area in High Variance Rooms over that in Rooms: at most 1.28 for each of the three, and larger than "
        "theirs for each of TD, GTD, TDRC and HTD.",
        _clipping_loses_least,
    ),
]


def tables(data: Data) -> list[Table]:
    """Return the best errors of each rule at each lambda in both tasks."""
    return [found.table(f"{task}: best errors by rule and lambda") for task, found in zip(TASKS, data, strict=True)]


def settings(study: Study, data: Data) -> dict[str, Cell]:
    """Return everything needed to repeat the measurement."""
    size = SIZES[study.scale]
    on_rim = [f"{task}: {join(found.on_rim())}" for task, found in zip(TASKS, data, strict=True) if found.on_rim()]
    return {
        "seeds": study.seed_list,
        "runs of each seed": size.runs,
        "steps": size.steps,
        "log2 alpha": join(np.log2(GRID.alphas), "g"),
        "lambda, zeta": join(GRID.lambdas, "g"),
        "alpha_w / alpha": f"{RATIO:g}, TDRC 1",
        "seed for the best settings": TUNING_SEED,
        "best alpha on the grid's rim": "; ".join(on_rim) or "none",
    }


EXPERIMENT = Experiment(
    "rooms",
    "Eight rules in the Rooms and High Variance Rooms problems",
    gather,
    CLAIMS,
    tables,
    settings,
    remarks=(
        "The grid is reduced: the authors' has thousands of settings.",
        "A question's traces begin anew when its policy is defined again; only HTD's second trace could tell.",
    ),
)
