"""The errors over the step size."""

from __future__ import annotations

from pathlib import Path

from horde_agent.reproduce.experiment import Figure, Table
from horde_agent.reproduce.figure import sensitivity
from horde_agent.reproduce.sweeps import Sweep


def pictures(found: Sweep, folder: Path) -> list[Figure]:
    """Draw the areas over alpha, a panel for each lambda."""
    return [sensitivity({"Collision": found}, folder / "collision.png")]


def tables(found: Sweep) -> list[Table]:
    """Return the best errors of each rule at each lambda."""
    return [found.table("Best errors by rule and lambda")]
