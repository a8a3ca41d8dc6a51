"""One, 4 and 16 robots that share a Horde: NMSRE against the time of one robot and against processor time.

    NUMBA_NUM_THREADS=1 python -m tests.bench.robots --steps 24000 --out runs/robots

The NMSRE is that of the current weights on the test excursions of another life, the same for all.
Processor time is that of simulation and learning on one core, without the tests: unlike wall time
it does not depend on the load.
"""

from __future__ import annotations

import argparse
import csv
import time
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from examples.reproduce.scores import NO_VARIANCE
from horde_agent.horde import Horde
from horde_agent.interface import Interface
from horde_agent.life.bodies import make_body
from horde_agent.life.learner import encoder
from horde_agent.life.life import Life
from horde_agent.policies import StickyRandom
from horde_agent.questions import excursions
from horde_agent.record import Phase, Recorder
from horde_agent.types import Floats, Integers

ROBOTS = (1, 4, 16)
N_POINTS = 12
FIRST = 500
N_TEST_STEPS = 12_000
TEST_SEED = 1_000
COLUMNS = ("robots", "s_of_one_robot", "processor_s", "median_nmsre", "mean_nmsre")


class Tests(NamedTuple):
    """Tests of one policy.

    Attributes:
        demons: Those with questions about it, shape (n,).
        observation: At which each test begins, shape (n_tests, n_channels).
        tiles: Of these observations, shape (n_tests, n_active).
        returns: The returns that followed, shape (n_tests, n).
    """

    demons: Integers
    observation: Floats
    tiles: Integers
    returns: Floats


def robots(seeds: list[int], recorder: Recorder | None = None) -> Life:
    """Return a life of robots that has not begun, with a Horde of the 795 questions."""
    envs = [make_body("simulator", physics="planar") for _ in seeds]
    interface = Interface.of(envs[0])
    size: dict[str, Any] = {
        "n_features": interface.coder.n_features,
        "n_active": interface.coder.n_active,
    }
    horde = Horde(excursions(interface), **size, mode="deferred")
    behaviours = [StickyRandom(len(interface.actions)) for _ in seeds]
    rngs = [np.random.default_rng(seed) for seed in seeds]
    life = Life(envs[0], horde, behaviours[0], rngs[0], interface=interface, recorder=recorder)
    for robot in zip(envs[1:], behaviours[1:], rngs[1:], strict=True):
        life.add_robot(*robot)
    return life


def tests() -> list[Tests]:
    """Return the excursions of a life of its own."""
    interface = Interface.of(make_body("simulator", physics="planar"))
    recorder = Recorder(len(interface.channels))
    with robots([TEST_SEED], recorder) as life:
        life.run(N_TEST_STEPS)
    rows = recorder.stream().rows
    test_sets = []
    rows = rows[rows["phase"] == Phase.EXCURSION]
    for outcomes in life.student.errors.table.outcomes():
        observations = rows["observation"][np.searchsorted(rows["step"], outcomes.step)]
        test_sets.append(
            Tests(
                demons=outcomes.policy.demons,
                observation=observations.astype(np.float64),
                tiles=np.array([encoder(interface)(x) for x in observations]),
                returns=outcomes.returns,
            )
        )
    return test_sets


def nmsre(horde: Horde, on: list[Tests]) -> Floats:
    """Return the mean squared error over the variance of the returns, of the questions whose returns vary."""
    errors = []
    for test in on:
        starts = zip(test.tiles, test.observation, strict=True)
        predictions = np.array([horde.predict(*start)[test.demons] for start in starts])
        variance = test.returns.var(axis=0)
        varies = variance > NO_VARIANCE
        errors.append(((predictions - test.returns) ** 2).mean(axis=0)[varies] / variance[varies])
    return np.concatenate(errors)


def curve(n: int, n_steps: int, on: list[Tests]) -> list[tuple[float, ...]]:
    """Return rows of COLUMNS for `n` robots with the seeds 0..n - 1."""
    rows = []
    processor_s = 0.0
    with robots(list(range(n))) as life:
        for step in np.geomspace(FIRST, n_steps, N_POINTS).round().astype(int).tolist():
            began = time.process_time()
            life.run(step - life.steps)
            processor_s += time.process_time() - began
            scores = nmsre(life.horde, on)
            rows.append(
                (n, step / n / 10, processor_s, float(np.median(scores)), float(scores.mean()))
            )
    return rows


def draw(rows: list[tuple[float, ...]], path: Path) -> None:
    """Draw the median NMSRE over both times."""
    from matplotlib import pyplot

    figure, axes = pyplot.subplots(1, 2, figsize=(9, 2.8), sharey=True, layout="constrained")
    for n in ROBOTS:
        _, of_robot, processor, score, _ = np.array([row for row in rows if row[0] == n]).T
        for axis, x in zip(axes, (of_robot, processor), strict=True):
            axis.semilogx(x, score, label=f"{n} robot{'s' * (n > 1)}")
    for axis, label in zip(axes, ("time of one robot (s)", "processor time (s)"), strict=True):
        axis.set(xlabel=label)
    axes[0].set_ylabel("median NMSRE")
    axes[0].legend(frameon=False)
    figure.savefig(path, dpi=80)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--steps", type=int, default=24_000)
    parser.add_argument("--out", type=Path, default=Path("runs/robots"))
    arguments = parser.parse_args()
    arguments.out.mkdir(parents=True, exist_ok=True)
    on = tests()
    rows = [row for n in ROBOTS for row in curve(n, arguments.steps, on)]
    with (arguments.out / "robots.csv").open("w", newline="") as file:
        csv.writer(file).writerows([COLUMNS, *([f"{value:.4g}" for value in row] for row in rows)])
    draw(rows, arguments.out / "robots.png")


if __name__ == "__main__":
    main()
