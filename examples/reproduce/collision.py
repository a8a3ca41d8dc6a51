"""Experiment `collision`: do eleven rules of off-policy prediction fall into the three tiers of the paper?

Source: Ghiassian & Sutton (2021), arXiv 2106.00922; code: sinaghiassian/OffpolicyAlgorithms. The
authors' grid has more trace decays, ratios alpha_w / alpha (here 1) and betas (here one).
"""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
from numpy.typing import ArrayLike

from examples.reproduce import TUNING_SEED
from examples.reproduce.checks import Measured, Number, at_least, at_most, check, numbers, within
from examples.reproduce.experiment import ExperimentContext, Table
from examples.reproduce.figures import Picture, sensitivity
from examples.reproduce.stats import join
from examples.reproduce.sweeps import Grid, Sweep, Task, sweep
from examples.reproduce.tabular_runner import (
    EXTRAGRADIENT,
    RuleVariant,
    RunSettings,
    value_error,
)
from horde_agent.problems.classics import collision

TITLE = "Eleven rules on the Collision problem"
GAMMA = 0.9
BETA = 0.4
VARIANTS = {
    "TD": RuleVariant("td"),
    "GTD": RuleVariant("gtd"),
    "GTD2": RuleVariant("gtd2"),
    "HTD": RuleVariant("htd"),
    "Proximal GTD2": RuleVariant("gtd2", mode=EXTRAGRADIENT),
    "TDRC": RuleVariant("tdrc"),
    "ETD": RuleVariant("etd"),
    "ETD(λ, β)": RuleVariant("etd", beta=BETA / GAMMA),
    "Tree Backup": RuleVariant("tree_backup"),
    "V-trace": RuleVariant("vtrace"),
    "ABTD": RuleVariant("abtd", psi_max=2.0),
}
LAMBDAS = (0.0, 0.5, 0.9, 1.0)
EXPONENTS = {"paper": np.arange(-18.0, 1.0), "quick": np.arange(-17.0, 1.0, 3.0)}
N_RUNS = {"paper": 50, "quick": 2}
N_TUNING = {"paper": 10, "quick": 1}
RUNS = RunSettings(collision, value_error, steps=20_000, every=10, share_last=0.01)


def run(context: ExperimentContext) -> tuple[Sweep, dict[str, object]]:
    """Learn by every rule and setting from the same trajectories."""
    exponents = EXPONENTS[context.scale]
    n_runs = N_RUNS[context.scale]
    tasks = {"Collision": Task(RUNS, Grid(VARIANTS, 2.0**exponents, LAMBDAS))}
    results = sweep(context, tasks, n_runs, N_TUNING[context.scale])["Collision"]
    return results, {
        "runs of each seed": n_runs,
        "steps": RUNS.steps,
        "log2 alpha": f"{exponents[0]:g} to {exponents[-1]:g}, {exponents.size} values",
        "lambda, zeta": LAMBDAS,
        "alpha_w / alpha": 1,
        "beta": BETA,
        "seed for the best settings": TUNING_SEED,
        "best alpha on the grid's rim": results.on_rim() or "none",
    }


# ---- checks ---------------------------------------------------------------------------------------------------------

GRADIENT = ("GTD", "GTD2", "HTD", "Proximal GTD2", "TDRC")
CLIPPING = ("Tree Backup", "V-trace", "ABTD")
SENSITIVE = ("TD", "GTD", "GTD2", "HTD", "TDRC")
LEVELS = {
    "TD": (0.343, 0.103, 0.104),
    "GTD": (0.366, 0.102, 0.104),
    "GTD2": (0.363, 0.110, 0.115),
    "HTD": (0.350, 0.111, 0.114),
    "TDRC": (0.345, 0.102, 0.104),
    "ETD": (0.123, 0.097, 0.104),
    "Tree Backup": (0.343, 0.183, 0.168),
    "V-trace": (0.343, 0.183, 0.168),
    "ABTD": (0.343, 0.168, 0.168),
}
"""Best areas at lambda 0, .9 and 1 of another program, 50 runs."""


@check(
    claim="Top tier: emphatic TD has the lowest error, and depends least on lambda.",
    paper="the emphatic methods are fastest, lowest and most robust",
    source="abstract and figure",
    terms="The spread is the largest over the smallest of the best areas at each lambda:",
)
def _etd_leads(data: Sweep) -> Measured:
    area = {rule: data.best(rule).mean for rule in VARIANTS}
    spread = {f"spread of {rule}": data.spread(rule) for rule in SENSITIVE}
    return Measured(
        [
            Number(
                "best area of ETD over the lowest of all rules",
                area["ETD"] / min(area.values()),
                at_most(1.02),
            ),
            Number("spread of ETD", data.spread("ETD"), at_most(1.5)),
            *numbers(spread, at_least(2.5)),
        ],
        f"Best areas: {join(f'{rule} {value:.3g}' for rule, value in area.items())}.",
    )


@check(
    claim="Middle tier: TD and the five gradient methods are alike.",
    paper="gradient methods and TD form the second tier",
    source="abstract",
    limit=at_most(1.25),
)
def _gradient_methods_equal_td(data: Sweep) -> Mapping[str, ArrayLike]:
    areas = np.array([data.best(rule).of_seeds for rule in ("TD", *GRADIENT)])
    return {"largest over smallest of their best areas": areas.max(axis=0) / areas.min(axis=0)}


@check(
    claim="Bottom tier: Tree Backup, V-trace and ABTD end with a higher error.",
    paper="no faster than TD, with a higher asymptotic error",
    source="abstract",
    terms="Best areas over TD's:",
    limit=at_least(1.4),
)
def _clipping_rules_end_higher(data: Sweep) -> Mapping[str, ArrayLike]:
    return {rule: data.best(rule).of_seeds / data.best("TD").of_seeds for rule in CLIPPING}


@check(
    claim="The best areas at lambda 0, .9 and 1 have these levels.",
    paper=(
        "published within .01: .32 to .33 at lambda 0 (ETD .12), .10 to .11 at 1 (Tree Backup, "
        "V-trace, ABTD .16)"
    ),
    source="figure, and another program",
    terms=f"Best area minus the area of another program's 50 runs, in the order {join(LEVELS)}:",
)
def _best_areas_have_these_levels(data: Sweep) -> list[Number]:
    judged = []
    for k, (lam, limit) in enumerate(((0.0, 0.05), (0.9, 0.02), (1.0, 0.02))):
        off = [data.best(rule, lam).mean - levels[k] for rule, levels in LEVELS.items()]
        judged.append(Number(f"lambda {lam:g}", off, within(-limit, limit).in_each(), ".3f"))
    return judged


def identities(data: Sweep) -> dict[str, float]:
    """Return the largest relative differences between errors that must be equal, over all settings and runs."""
    area = {rule: data.errors["area"][:, k] for k, rule in enumerate(VARIANTS)}
    one = LAMBDAS.index(1.0)
    half = LAMBDAS.index(0.5)
    pairs = {f"TD and {rule} at 0": (area["TD"][:, 0], area[rule][:, 0]) for rule in CLIPPING}
    pairs["Tree Backup and V-trace"] = (area["Tree Backup"], area["V-trace"])
    pairs["Tree Backup at 1 and ABTD from .5"] = (
        area["Tree Backup"][:, one, None],
        area["ABTD"][:, half:],
    )
    return {name: float((np.abs(a - b) / np.abs(a)).max()) for name, (a, b) in pairs.items()}


@check(
    claim="Rules that are the same rule here have the same errors.",
    paper=(
        "TD = Tree Backup = V-trace = ABTD at 0; Tree Backup = V-trace; ABTD from zeta .5 = "
        "Tree Backup at 1"
    ),
    source="definitions",
    terms="Largest relative differences of the areas of every setting and run:",
    limit=at_most(1e-12),
)
def _equal_rules_have_equal_errors(data: Sweep) -> Mapping[str, ArrayLike]:
    return identities(data)


REMARKS = ("The grid is reduced: four trace decays, one ratio alpha_w / alpha, one beta.",)


# ---- figure and tables ----------------------------------------------------------------------------------------------


def pictures(data: Sweep) -> dict[str, Picture]:
    """Draw the areas over alpha, a panel for each lambda."""
    return {"collision": sensitivity({"Collision": data})}


def tables(data: Sweep) -> list[Table]:
    """Return the best errors of each rule at each lambda."""
    return [data.table("Best errors by rule and lambda")]
