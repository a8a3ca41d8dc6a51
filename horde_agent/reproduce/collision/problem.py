"""The rules and the grid, and their errors on the task."""

from __future__ import annotations

import numpy as np

from horde_agent.problems.classics import collision
from horde_agent.reproduce import TUNING_SEED
from horde_agent.reproduce.claims import join
from horde_agent.reproduce.experiment import Cell
from horde_agent.reproduce.small_runs import EXTRAGRADIENT, Runs, Variant, value_error
from horde_agent.reproduce.study import Study
from horde_agent.reproduce.sweeps import Grid, Sweep, sweep

TITLE = "Eleven rules on the Collision problem"

GAMMA, BETA = 0.9, 0.4
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
N_RUNS, N_TUNING = {"paper": 50, "quick": 2}, {"paper": 10, "quick": 1}
STEPS = 20_000
RUNS = Runs(collision, value_error, STEPS, every=10, share_last=0.01)

GRADIENT = ("GTD", "GTD2", "HTD", "Proximal GTD2", "TDRC")
CLIPPING = ("Tree Backup", "V-trace", "ABTD")
SENSITIVE = ("TD", "GTD", "GTD2", "HTD", "TDRC")

# Best areas at lambda 0, .9 and 1 of another program, 50 runs.
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


def gather(study: Study) -> Sweep:
    """Learn by every rule and setting from the same trajectories."""
    grid = Grid(VARIANTS, 2.0 ** EXPONENTS[study.scale], LAMBDAS)
    return sweep(study, {"collision": RUNS}, grid, N_RUNS[study.scale], N_TUNING[study.scale])[0]


def settings(_study: Study, found: Sweep) -> dict[str, Cell]:
    """Return everything needed to repeat the measurement."""
    alphas = np.log2(found.grid.alphas)
    return {
        "runs of each seed": found.errors["area"].shape[-1],
        "steps": STEPS,
        "log2 alpha": f"{alphas[0]:g} to {alphas[-1]:g}, {alphas.size} values",
        "lambda, zeta": join(LAMBDAS, "g"),
        "alpha_w / alpha": 1,
        "beta": BETA,
        "seed for the best settings": TUNING_SEED,
        "best alpha on the grid's rim": join(found.on_rim()) or "none",
    }
