"""One, 4 and 16 robots that share a Horde: NMSRE against the time of one robot and against wall time.

    python -m tests.bench.robots --steps 30000 --out runs/robots

All runs have as many steps in total. Speeds are measured in short runs by turns, because the load changes.
"""

from __future__ import annotations

import argparse
import csv
import json
from itertools import pairwise
from pathlib import Path
from statistics import median

import numpy as np

from horde_agent import cli

ROBOTS, ROUNDS, SHORT = (1, 4, 16), 3, 2_000
N_POINTS = 24
COLUMNS = ("robots", "s_of_one_robot", "wall_s", "median_nmsre", "mean_nmsre", "steps_per_s")


def run(n: int, steps: int, out: Path) -> Path:
    """Run `horde learn`, unless it was run before, and return its folder."""
    words = f"learn --physics planar --seed 0 --snapshot-every never --steps {steps} --robots {n} --out {out}"
    if not (out / "summary.json").exists() and cli.main(words.split()):
        raise SystemExit(f"{out} failed")
    return out


def speeds(out: Path) -> dict[int, float]:
    """Return the steps per second of each number of robots: medians of short runs."""
    found: dict[int, list[float]] = {n: [] for n in ROBOTS}
    for k in range(ROUNDS):
        for n in ROBOTS:
            summary = run(n, SHORT, out / f"speed-{n}-{k}") / "summary.json"
            found[n].append(json.loads(summary.read_text())["steps_per_s"])
    return {n: median(of_n) for n, of_n in found.items()}


def curve(folder: Path, n: int, steps_per_s: float) -> list[tuple[float, ...]]:
    """Return rows of COLUMNS: medians over the tests of equal ratios of time."""
    with (folder / "learning_curve.csv").open() as file:
        rows = [[float(row[name]) for name in ("step", "median_nmsre", "mean_nmsre")] for row in csv.DictReader(file)]
    table, edges = np.array(rows), np.geomspace(600, rows[-1][0], N_POINTS + 1)
    found = []
    for low, high in pairwise(edges):
        part = table[(table[:, 0] > low) & (table[:, 0] <= high)]
        if len(part):
            _, of_median, of_mean = np.median(part, axis=0)
            found.append((n, high / n / 10, high / steps_per_s, of_median, of_mean, steps_per_s))
    return found


def draw(rows: list[tuple[float, ...]], path: Path) -> None:
    """Draw the median NMSRE over both times."""
    from matplotlib import pyplot

    figure, axes = pyplot.subplots(1, 2, figsize=(9, 2.8), sharey=True, layout="constrained")
    for n in ROBOTS:
        _, of_robot, wall, score, *_ = np.array([row for row in rows if row[0] == n]).T
        for axis, x in zip(axes, (of_robot, wall), strict=True):
            axis.semilogx(x, score, label=f"{n} robot{'s' * (n > 1)}")
    for axis, label in zip(axes, ("time of one robot (s)", "wall time (s)"), strict=True):
        axis.set(xlabel=label, ylim=(0, 1))
    axes[0].set_ylabel("median NMSRE")
    axes[0].legend(frameon=False)
    figure.savefig(path, dpi=80)


def main() -> None:
    """Run all, and write robots.csv and robots.png."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--steps", type=int, default=30_000)
    parser.add_argument("--out", type=Path, default=Path("runs/robots"))
    asked = parser.parse_args()
    asked.out.mkdir(parents=True, exist_ok=True)
    folders = {n: run(n, asked.steps, asked.out / f"robots-{n}") for n in ROBOTS}
    speed = speeds(asked.out)
    rows = [row for n in ROBOTS for row in curve(folders[n], n, speed[n])]
    with (asked.out / "robots.csv").open("w", newline="") as file:
        csv.writer(file).writerows([COLUMNS, *([f"{value:.4g}" for value in row] for row in rows)])
    draw(rows, asked.out / "robots.png")


if __name__ == "__main__":
    main()
