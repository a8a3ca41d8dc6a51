"""Errors of update rules over a grid of step sizes and trace decays, and the best of them, chosen on other runs."""

from __future__ import annotations

from collections.abc import Mapping
from itertools import product
from typing import NamedTuple

import numpy as np

from examples.reproduce import TUNING_SEED
from examples.reproduce.experiment import ExperimentContext, Table
from examples.reproduce.runner import Job
from examples.reproduce.stats import mean_ci
from examples.reproduce.tabular_runner import Batch, BatchScores, RuleVariant, RunSettings, score
from horde_agent.types import Floats


class Grid(NamedTuple):
    """Settings of a sweep."""

    variants: Mapping[str, RuleVariant]  # the rules by name
    alphas: Floats  # step sizes, shape (A,), increasing; or (V, A), those of each of V rules
    lambdas: tuple[float, ...]  # trace decays, shape (L,); zeta of ABTD

    def alphas_of(self, rule: str) -> Floats:
        """Return the step sizes of a rule, shape (A,)."""
        if self.alphas.ndim == 1:
            return self.alphas
        return np.asarray(self.alphas[list(self.variants).index(rule)])

    def batches(self) -> list[Batch]:
        """Return a batch of L A learners for each rule."""
        lam = np.repeat(self.lambdas, self.alphas.shape[-1])
        return [
            Batch(of, np.tile(self.alphas_of(rule), len(self.lambdas)), lam)
            for rule, of in self.variants.items()
        ]


class Task(NamedTuple):
    """Runs on a problem, and the settings that are tried in them."""

    runs: RunSettings
    grid: Grid


class Best(NamedTuple):
    """The best setting of a rule, and its error."""

    lam: float  # chosen on the tuning runs
    alpha: float  # the same
    of_seeds: Floats  # its mean error of each seed, shape (n_seeds,)
    median: float  # its median error over all runs
    is_on_rim: bool  # whether alpha is the smallest or largest of the grid

    @property
    def mean(self) -> float:
        """Mean over the seeds."""
        return float(self.of_seeds.mean())


class Sweep(NamedTuple):
    """Errors over a grid; "area" is the mean over all steps, "last" that over the last ones."""

    grid: Grid  # its settings
    errors: dict[str, Floats]  # by kind, shape (n_seeds, V, L, A, n_runs) for V rules
    tuning: dict[str, Floats]  # means of the tuning runs by kind, shape (V, L, A)

    def best(self, rule: str, lam: float | None = None, kind: str = "area") -> Best:
        """Return the best setting of a rule, or the best alpha for one lambda."""
        v = list(self.grid.variants).index(rule)
        lambdas = self.grid.lambdas
        scores = self.tuning[kind][v]
        if lam is None:
            rows = list(range(len(lambdas)))
        else:
            rows = [lambdas.index(lam)]
        row, a = min(((k, int(scores[k].argmin())) for k in rows), key=lambda at: scores[at])
        runs = self.errors[kind][:, v, row, a]
        alphas = self.grid.alphas_of(rule)
        rim = a in (0, alphas.size - 1)
        return Best(lambdas[row], float(alphas[a]), runs.mean(axis=1), float(np.median(runs)), rim)

    def spread(self, rule: str) -> float:
        """Return the largest over the smallest of a rule's best areas at each lambda."""
        areas = [self.best(rule, lam).mean for lam in self.grid.lambdas]
        return max(areas) / min(areas)

    def on_rim(self) -> list[str]:
        """Return the rules and lambdas whose best alpha for the area is on the grid's rim."""
        pairs = product(self.grid.variants, self.grid.lambdas)
        return [f"{rule} at {lam:g}" for rule, lam in pairs if self.best(rule, lam).is_on_rim]

    def table(self, title: str) -> Table:
        """Return the best errors of each rule at each lambda."""
        rows = []
        for rule, lam in product(self.grid.variants, self.grid.lambdas):
            area = self.best(rule, lam)
            last = self.best(rule, lam, "last")
            row = {"rule": rule, "lambda": lam, "log2 alpha": np.log2(area.alpha)}
            row |= {"area": mean_ci(area.of_seeds), "median area": area.median}
            rows.append(
                row | {"last 1 %": mean_ci(last.of_seeds), "median of the last": last.median}
            )
        return Table.of(
            title, rows, "Best alpha of each rule and lambda (of ABTD: zeta), chosen on other runs."
        )


def sweep(
    context: ExperimentContext,
    tasks: Mapping[str, Task],
    n_runs: int,
    n_tuning: int,
) -> dict[str, Sweep]:
    """Return the errors of each task over its grid by the task's name, and those of the tuning runs."""
    seeds = {TUNING_SEED: n_tuning} | dict.fromkeys(context.seeds, n_runs)
    jobs = {}
    for name, task in tasks.items():
        for seed, n in seeds.items():
            jobs[name, seed] = Job(
                f"{name}, seed {seed}",
                score,
                (task.runs, task.grid.batches(), seed, n),
                cost=task.runs.steps * n,
            )
    results = context.in_parallel(jobs)
    sweeps = {}
    for name, task in tasks.items():
        grid = task.grid
        shape = len(grid.variants), len(grid.lambdas), grid.alphas.shape[-1], -1
        errors = {}
        tuning = {}
        for kind in BatchScores._fields:
            by_seed = {
                seed: np.reshape([getattr(scores, kind) for scores in results[name, seed]], shape)
                for seed in seeds
            }
            tuning[kind] = by_seed.pop(TUNING_SEED).mean(axis=-1)
            errors[kind] = np.array(list(by_seed.values()))
        sweeps[name] = Sweep(grid, errors, tuning)
    return sweeps
