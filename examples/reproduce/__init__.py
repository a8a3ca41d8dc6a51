"""Reproduce White, Modayil & Sutton (2012) and later papers, and compare each claim with the measurement.

    python -m examples.reproduce NAME

An experiment is one module of this package: settings, `run`, checks, figure and tables (see
`experiment.run_experiment`; `rooms` is the shortest). To add one, add its name here, in
`EXPERIMENTS` or `LATER`.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import tyro

__all__ = [
    "EXPERIMENTS",
    "FURTHER",
    "GROUPS",
    "LATER",
    "TUNING_SEED",
    "WITHOUT_BACKEND",
    "ReproduceConfig",
]

EXPERIMENTS = ("chain", "excursions", "reset", "policies", "loop")
"""The experiments, in the order of the paper; `loop` is the feedback of its first figure."""

LATER: tuple[str, ...] = (
    "tdrc",
    "nexting",
    "collision",
    "rooms",
    "curiosity",
    "conditioning",
    "swifttd",
    "measures",
    "horde2011",
    "options",
)
"""Experiments of later papers: run by name, or together by `later`."""

FURTHER = ("league", "efficiency", "exam", "surprise", *LATER)
"""All experiments that `all` does not run; the paper leaves what the first three ask to future work."""

GROUPS = ("all", "later")
"""Names that run all of `EXPERIMENTS`, or all of `LATER`."""

WITHOUT_BACKEND = (
    "chain",
    "tdrc",
    "collision",
    "rooms",
    "curiosity",
    "conditioning",
    "horde2011",
    "options",
    "exam",
    "surprise",
)
"""Experiments on small problems or in their own simulation: they do not use the robot of `--backend`."""

TUNING_SEED = 100
"""Seed of the runs on which step sizes, rules and limits are chosen; no claim is judged on them."""


@dataclass(frozen=True)
class ReproduceConfig:
    """Run the paper's experiments and write a page with each claim and its measurement.

    Attributes:
        experiment: `chain` (the MSPBE estimates on a small chain), `excursions` (795 questions and
            their test excursions), `reset` (the measures when the weights are lost, and when the
            lamp moves), `policies` (1,000 and 10,000 Gibbs policies), `loop` (predictions fed back
            as features), or `all` of these; `league` (every update rule on the 795 questions), the
            learning curves of `efficiency` (error against robot time, with and without offsets,
            averages, rarity and the chosen layout, beside baselines and the floor), `exam` (what curious
            behaviours learn in an exam that they cannot choose), `surprise` (which faults of the robot
            are found, and how often an alarm is false), the small problems
            of `tdrc`, `collision` and `rooms`, `nexting` (2,160 predictions at four time
            scales), `curiosity` (surprise drives the behaviour), `conditioning` (memory by traces
            and by predictions fed back), `swifttd` (a step size per weight), `measures` (of RUPEE
            and UDE), `horde2011` (times, and a policy that seeks the light) or `options` (models of
            options, and plans made of them); or `later`, all experiments of later papers.
        scale: `quick` (under a minute once compiled: shorter lives, the same code) or `paper`, with
            lives as long as the paper's.
        seeds: Number of lives, seeded 0, 1, ...
        backend: The body, as in `horde learn`: `simulator`, `serial`, `drops` or `emulated`.
        port: Port of a real robot.
        out: Folder for the page. The same command continues an interrupted run there.
    """

    experiment: Annotated[
        tyro.conf.Positional[str],
        tyro.conf.arg(metavar="EXPERIMENT", help_behavior_hint="(required)"),
    ] = ""
    scale: Annotated[str, tyro.conf.arg(metavar="quick|paper")] = "quick"
    seeds: Annotated[
        int | None,
        tyro.conf.arg(metavar="N", help_behavior_hint="(default: 1; with --scale paper 3)"),
    ] = None
    backend: Annotated[str, tyro.conf.arg(metavar="NAME")] = "simulator"
    port: Annotated[
        str | None, tyro.conf.arg(metavar="PORT", help_behavior_hint="(default: none)")
    ] = None
    out: Annotated[
        Path | None,
        tyro.conf.arg(metavar="DIR", help_behavior_hint="(default: runs/reproduce-SCALE)"),
    ] = None
