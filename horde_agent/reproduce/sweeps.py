"""Errors of update rules over a grid of step sizes and trace decays, and the best of them, chosen on other runs."""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

import numpy as np

from horde_agent.reproduce import TUNING_SEED
from horde_agent.reproduce.claims import mean_ci
from horde_agent.reproduce.experiment import Cell, Table
from horde_agent.reproduce.small_runs import Batch, Runs, Scores, Variant, score
from horde_agent.reproduce.study import Job, Study
from horde_agent.types import Floats


class Grid(NamedTuple):
    """What is tried."""

    variants: Mapping[str, Variant]  # the rules by name
    alphas: Floats  # step sizes, shape (A,), increasing
    lambdas: tuple[float, ...]  # trace decays, shape (L,); zeta of ABTD

    def batches(self) -> list[Batch]:
        """Return a batch of L A learners for each rule."""
        step_size, lam = np.tile(self.alphas, len(self.lambdas)), np.repeat(self.lambdas, self.alphas.size)
        return [Batch(variant, step_size, lam) for variant in self.variants.values()]


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

    grid: Grid  # what was tried
    errors: dict[str, Floats]  # by kind, shape (n_seeds, V, L, A, n_runs) for V rules
    tuning: dict[str, Floats]  # means of the tuning runs by kind, shape (V, L, A)

    def best(self, rule: str, lam: float | None = None, kind: str = "area") -> Best:
        """Return the best setting of a rule, or the best alpha for one lambda."""
        v, lambdas = list(self.grid.variants).index(rule), self.grid.lambdas
        found = self.tuning[kind][v]
        rows = range(len(lambdas)) if lam is None else [lambdas.index(lam)]
        row, a = min(((k, int(found[k].argmin())) for k in rows), key=lambda at: found[at])
        runs = self.errors[kind][:, v, row, a]
        rim = a in (0, self.grid.alphas.size - 1)
        return Best(lambdas[row], float(self.grid.alphas[a]), runs.mean(axis=1), float(np.median(runs)), rim)

    def spread(self, rule: str) -> float:
        """Return the largest over the smallest of a rule's best areas at each lambda."""
        areas = [self.best(rule, lam).mean for lam in self.grid.lambdas]
        return max(areas) / min(areas)

    def on_rim(self) -> list[str]:
        """Return the rules and lambdas whose best alpha for the area is on the grid's rim."""
        pairs = [(rule, lam) for rule in self.grid.variants for lam in self.grid.lambdas]
        return [f"{rule} at {lam:g}" for rule, lam in pairs if self.best(rule, lam).is_on_rim]

    def table(self, title: str) -> Table:
        """Return the best errors of each rule at each lambda."""
        rows: list[dict[str, Cell]] = []
        for rule in self.grid.variants:
            for lam in self.grid.lambdas:
                area, last = self.best(rule, lam), self.best(rule, lam, "last")
                row: dict[str, Cell] = {"rule": rule, "lambda": lam, "log2 alpha": float(np.log2(area.alpha))}
                row |= {"area": str(mean_ci(area.of_seeds)), "median area": area.median}
                rows.append(row | {"last 1 %": str(mean_ci(last.of_seeds)), "median of the last": last.median})
        return Table.of(title, rows, "Best alpha of each rule and lambda (of ABTD: zeta), chosen on other runs.")


def sweep(study: Study, runs: Mapping[str, Runs], grid: Grid, n_runs: int, n_tuning: int) -> list[Sweep]:
    """Return the errors of each problem over the grid, and those of the tuning runs."""
    seeds = {TUNING_SEED: n_tuning} | dict.fromkeys(study.seeds, n_runs)
    jobs = {
        (name, seed): Job(f"{name}, seed {seed}", score, (of_name, grid.batches(), seed, n), n)
        for name, of_name in runs.items()
        for seed, n in seeds.items()
    }
    found = study.in_parallel(jobs)
    shape = len(grid.variants), len(grid.lambdas), grid.alphas.size, -1
    sweeps = []
    for name in runs:
        of = {
            (kind, seed): np.reshape([getattr(scores, kind) for scores in found[name, seed]], shape)
            for kind in Scores._fields
            for seed in seeds
        }
        errors = {kind: np.array([of[kind, seed] for seed in study.seeds]) for kind in Scores._fields}
        sweeps.append(Sweep(grid, errors, {kind: of[kind, TUNING_SEED].mean(axis=-1) for kind in Scores._fields}))
    return sweeps
