"""Five small problems, the script's and AdaGrad's step sizes, and the root MSPBE of each rule."""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from typing import NamedTuple

import numpy as np

from horde_agent.problems.classics import baird, boyan_chain, random_walk
from horde_agent.problems.markov import Expectations, Problem
from horde_agent.reproduce import TUNING_SEED
from horde_agent.reproduce.experiment import ExperimentContext
from horde_agent.reproduce.sweeps import Best, Grid, Sweep, sweep
from horde_agent.reproduce.tabular_runner import ADAGRAD, Error, Runs, Variant
from horde_agent.types import Floats

TITLE = "TDRC on five small problems"
# lambda is 0: V-trace with one step clips rho at 1.
RULES = {
    "GTD2": Variant("gtd2"),
    "TDC": Variant("gtd"),
    "V-trace": Variant("vtrace", {"rho_bar": 1.0}),
    "HTD": Variant("htd"),
    "TD": Variant("td"),
    "TDRC": Variant("tdrc"),
}
STEP_RULES = ("script", "AdaGrad")
WALKS = ("tabular", "inverted", "dependent")
SOUND = (*WALKS, "Boyan")
CORRECTED = "Boyan, corrected"
# Each problem with the steps of a run and, of the script, -log2 alpha in the order of RULES.
PROBLEMS = {
    "tabular": (random_walk("tabular"), 3_000, (5, 4, 5, 5, 5, 5)),
    "inverted": (random_walk("inverted"), 3_000, (3, 3, 3, 3, 3, 3)),
    "dependent": (random_walk("dependent"), 3_000, (4, 4, 5, 5, 5, 5)),
    "Boyan": (boyan_chain(), 10_000, (1, 1, 4, 4, 4, 4)),
    "Baird": (baird(), 20_000, (8, 8, 8, 8, 8, 6)),
    CORRECTED: (boyan_chain(), 10_000, (1, 1, 4, 4, 4, 4)),
}
BY_ADAGRAD = Grid(
    {rule: replace(of, mode=ADAGRAD) for rule, of in RULES.items()},
    2.0 ** np.arange(-4.0, 1.0),
    (0.0,),
)
N_RUNS = {"paper": 200, "quick": 10}
N_TUNING = {"paper": 50, "quick": 4}
"""Runs of each seed, and runs on which AdaGrad's alpha is chosen."""


def script_expectations() -> Expectations:
    """Return the script's expectations of Boyan's chain, with its slips.

    P goes from state 10 to the end with probability .5 in excess, the reward of state 10 is -2
    instead of -3, the end has the feature (0, 0, 0, 1), and all 13 states have the same weight.
    """
    P = 0.5 * (np.eye(13, k=1) + np.eye(13, k=2))
    P[10, 11] = P[11, 12] = 1.0
    P[12] = 0.0
    r = np.array([-3.0] * 10 + [-2.0, -2.0, 0.0])
    phi = np.vstack([boyan_chain().features, np.eye(4)[-1]])
    return Expectations(phi.T @ (P @ phi - phi) / 13, phi.T @ r / 13, phi.T @ phi / 13)


def root_mspbe(name: str, problem: Problem) -> Error:
    """Return the root MSPBE of a problem: |L (A theta + b)| with L'L = C^+."""
    if name == "Boyan":
        expected = script_expectations()
    else:
        expected = problem.expectations()
    size, direction = np.linalg.eigh(expected.C)
    is_null = size <= 1e-12 * size.max()
    root = (~is_null / np.sqrt(np.where(is_null, 1.0, size)))[:, None] * direction.T
    return Error((root @ expected.A)[None], -(root @ expected.b)[None])


class Data(NamedTuple):
    """Root MSPBE of the runs, by problem and step rule: "Baird (script)"."""

    sweeps: dict[str, Sweep]

    def best(self, steps: str, problem: str, rule: str) -> Best:
        """Return a rule's setting with the least area and its errors: by "script" the only one."""
        return self.sweeps[f"{problem} ({steps})"].best(rule)

    def relative(self, steps: str, problem: str, rule: str) -> Floats:
        """Return the areas relative to TDRC's, one per seed."""
        return self.best(steps, problem, rule).of_seeds / self.best(steps, problem, "TDRC").of_seeds

    def mean(self, steps: str, problem: str, rule: str) -> float:
        """Return the mean of the areas relative to TDRC's."""
        return float(self.relative(steps, problem, rule).mean())


def gather(context: ExperimentContext) -> tuple[Data, dict[str, object]]:
    """Learn by each rule with both kinds of step sizes; AdaGrad's is chosen on the tuning seed."""
    tasks = {}
    for name, (problem, n_steps, exponents) in PROBLEMS.items():
        runs = Runs(problem, partial(root_mspbe, name), n_steps, every=100)
        by_script = Grid(RULES, 0.5 ** np.array(exponents)[:, None], (0.0,))
        for steps, grid in zip(STEP_RULES, (by_script, BY_ADAGRAD), strict=True):
            tasks[f"{name} ({steps})"] = runs, grid
    data = Data(sweep(context, tasks, N_RUNS[context.scale], N_TUNING[context.scale]))
    return data, {
        "runs of each seed": N_RUNS[context.scale],
        "lambda": 0,
        "alpha_w / alpha": 1,
        "beta": 1,
        "seed for AdaGrad's alpha": TUNING_SEED,
    }
