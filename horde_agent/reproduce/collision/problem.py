"""Experiment `collision`: eleven rules of off-policy prediction over step sizes and trace decays.

Source: Ghiassian & Sutton (2021), arXiv 2106.00922; code: sinaghiassian/OffpolicyAlgorithms. The authors' grid has more
trace decays, ratios alpha_w / alpha (here 1) and betas (here one).
"""

from __future__ import annotations

import numpy as np

from horde_agent.problems.collision import collision
from horde_agent.reproduce.small_runs import EXTRAGRADIENT, Runs, Variant, value_error
from horde_agent.reproduce.study import Study
from horde_agent.reproduce.sweeps import Grid, Sweep, sweep

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


def gather(study: Study) -> Sweep:
    """Learn by every rule and setting from the same trajectories."""
    grid = Grid(VARIANTS, 2.0 ** EXPONENTS[study.scale], LAMBDAS)
    return sweep(study, {"collision": RUNS}, grid, N_RUNS[study.scale], N_TUNING[study.scale])[0]
