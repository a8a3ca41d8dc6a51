"""Five small problems, the script's and AdaGrad's step sizes, and the root MSPBE of each rule."""

from __future__ import annotations

from functools import partial
from typing import NamedTuple

import numpy as np

from horde_agent.problems.classics import baird, boyan_chain, random_walk
from horde_agent.problems.markov import Expectations, Problem
from horde_agent.reproduce import TUNING_SEED
from horde_agent.reproduce.experiment import Cell
from horde_agent.reproduce.small_runs import ADAGRAD, PLAIN, Batch, Error, Runs, Variant, score
from horde_agent.reproduce.study import Job, Study
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
WALKS = ("tabular", "inverted", "dependent")
SOUND = (*WALKS, "Boyan")
CORRECTED = "Boyan, corrected"
PROBLEMS = (*SOUND, "Baird", CORRECTED)
STEPS = {"Baird": 20_000, "Boyan": 10_000, CORRECTED: 10_000} | dict.fromkeys(WALKS, 3_000)
EVERY = 100
# Of the script: -log2 alpha in the order of RULES.
EXPONENTS = {
    "tabular": (5, 4, 5, 5, 5, 5),
    "inverted": (3, 3, 3, 3, 3, 3),
    "dependent": (4, 4, 5, 5, 5, 5),
    "Boyan": (1, 1, 4, 4, 4, 4),
    "Baird": (8, 8, 8, 8, 8, 6),
    CORRECTED: (1, 1, 4, 4, 4, 4),
}
ADAGRAD_ALPHAS: Floats = 2.0 ** np.arange(-4.0, 1.0)

N_RUNS, N_TUNING = {"paper": 200, "quick": 10}, {"paper": 50, "quick": 4}
"""Runs of each seed, and runs on which AdaGrad's alpha is chosen."""


def make_problem(name: str, _rng: object = None) -> Problem:
    """Return one of `PROBLEMS`, of which nothing is random."""
    if name in WALKS:
        return random_walk(name)
    return baird() if name == "Baird" else boyan_chain()


def script_expectations() -> Expectations:
    """Return the script's expectations of Boyan's chain, with its slips.

    P goes from state 10 to the end with probability .5 in excess, the reward of state 10 is -2 instead of -3, the end
    has the feature (0, 0, 0, 1), and all 13 states have the same weight.
    """
    P = 0.5 * (np.eye(13, k=1) + np.eye(13, k=2))
    P[10, 11] = P[11, 12] = 1.0
    P[12] = 0.0
    r = np.array([-3.0] * 10 + [-2.0, -2.0, 0.0])
    phi = np.vstack([boyan_chain().features, np.eye(4)[-1]])
    return Expectations(phi.T @ (P @ phi - phi) / 13, phi.T @ r / 13, phi.T @ phi / 13)


def root_mspbe(name: str, problem: Problem) -> Error:
    """Return the root MSPBE of a problem: |L (A theta + b)| with L'L = C^+."""
    known = script_expectations() if name == "Boyan" else problem.expectations()
    size, direction = np.linalg.eigh(known.C)
    is_null = size <= 1e-12 * size.max()
    root = (~is_null / np.sqrt(np.where(is_null, 1.0, size)))[:, None] * direction.T
    return Error((root @ known.A)[None], -(root @ known.b)[None])


def batches(name: str) -> list[Batch]:
    """Return, for each rule, a learner with the script's step size and some with AdaGrad."""
    found = []
    for rule, exponent in zip(RULES.values(), EXPONENTS[name], strict=True):
        constant: Floats = np.array([2.0**-exponent])
        for mode, sizes in ((PLAIN, constant), (ADAGRAD, ADAGRAD_ALPHAS)):
            variant = Variant(rule.algorithm, rule.parameters, mode=mode)
            found.append(Batch(variant, sizes, np.zeros(sizes.size)))
    return found


class Data(NamedTuple):
    """Mean root MSPBE of the runs by step rule ("script" or "AdaGrad"), problem and rule, each of shape (n_seeds,)."""

    area: dict[tuple[str, str, str], Floats]  # over all steps
    last: dict[tuple[str, str, str], Floats]  # at the end
    alpha: dict[tuple[str, str], float]  # AdaGrad's step size by problem and rule

    def relative(self, steps: str, problem: str, rule: str) -> Floats:
        """Return the areas relative to TDRC's, one per seed."""
        return self.area[steps, problem, rule] / self.area[steps, problem, "TDRC"]

    def mean(self, steps: str, problem: str, rule: str) -> float:
        """Return the mean of the areas relative to TDRC's."""
        return float(self.relative(steps, problem, rule).mean())


def gather(study: Study) -> Data:
    """Choose AdaGrad's alphas on the tuning seed, then measure on the others."""
    seeds = {TUNING_SEED: N_TUNING[study.scale]} | dict.fromkeys(study.seeds, N_RUNS[study.scale])
    runs = {name: Runs(partial(make_problem, name), partial(root_mspbe, name), STEPS[name], EVERY) for name in PROBLEMS}
    jobs = {
        (name, seed): Job(f"{name}, seed {seed}", score, (runs[name], batches(name), seed, n), STEPS[name] * n)
        for name in PROBLEMS
        for seed, n in seeds.items()
    }
    found = study.in_parallel(jobs)
    area, last, alpha = {}, {}, {}
    for name in PROBLEMS:
        for k, rule in enumerate(RULES):
            best = int(np.argmin(found[name, TUNING_SEED][2 * k + 1].area.mean(axis=1)))
            alpha[name, rule] = float(ADAGRAD_ALPHAS[best])
            for steps, batch, learner in (("script", 2 * k, 0), ("AdaGrad", 2 * k + 1, best)):
                of_seeds = [found[name, seed][batch] for seed in study.seeds]
                area[steps, name, rule] = np.array([scores.area[learner].mean() for scores in of_seeds])
                last[steps, name, rule] = np.array([scores.last[learner].mean() for scores in of_seeds])
    return Data(area, last, alpha)


def settings(study: Study, _data: Data) -> dict[str, Cell]:
    """Return everything needed to repeat the measurement."""
    return {
        "runs of each seed": N_RUNS[study.scale],
        "lambda": 0,
        "alpha_w / alpha": 1,
        "beta": 1,
        "seed for AdaGrad's alpha": TUNING_SEED,
    }
