"""The rules and the grid, and their errors on the task."""

from __future__ import annotations

import numpy as np

from horde_agent.problems.classics import collision
from horde_agent.reproduce import TUNING_SEED
from horde_agent.reproduce.experiment import ExperimentContext
from horde_agent.reproduce.sweeps import Grid, Sweep, sweep
from horde_agent.reproduce.tabular_runner import EXTRAGRADIENT, Runs, Variant, value_error

TITLE = "Eleven rules on the Collision problem"
GAMMA = 0.9
BETA = 0.4
VARIANTS = {
    "TD": Variant("td"),
    "GTD": Variant("gtd"),
    "GTD2": Variant("gtd2"),
    "HTD": Variant("htd"),
    "Proximal GTD2": Variant("gtd2", mode=EXTRAGRADIENT),
    "TDRC": Variant("tdrc"),
    "ETD": Variant("etd"),
    "ETD(λ, β)": Variant("etd", beta=BETA / GAMMA),
    "Tree Backup": Variant("tree_backup"),
    "V-trace": Variant("vtrace"),
    "ABTD": Variant("abtd", psi_max=2.0),
}
LAMBDAS = (0.0, 0.5, 0.9, 1.0)
EXPONENTS = {"paper": np.arange(-18.0, 1.0), "quick": np.arange(-17.0, 1.0, 3.0)}
N_RUNS = {"paper": 50, "quick": 2}
N_TUNING = {"paper": 10, "quick": 1}
RUNS = Runs(collision, value_error, steps=20_000, every=10, share_last=0.01)


def gather(context: ExperimentContext) -> tuple[Sweep, dict[str, object]]:
    """Learn by every rule and setting from the same trajectories."""
    exponents = EXPONENTS[context.scale]
    n_runs = N_RUNS[context.scale]
    tasks = {"Collision": (RUNS, Grid(VARIANTS, 2.0**exponents, LAMBDAS))}
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
