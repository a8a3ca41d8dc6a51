"""The errors over the step size."""

from __future__ import annotations

from horde_agent.reproduce.experiment import Table
from horde_agent.reproduce.figures import Picture, sensitivity
from horde_agent.reproduce.sweeps import Sweep


def pictures(found: Sweep) -> dict[str, Picture]:
    """Draw the areas over alpha, a panel for each lambda."""
    return {"collision": sensitivity({"Collision": found})}


def tables(found: Sweep) -> list[Table]:
    """Return the best errors of each rule at each lambda."""
    return [found.table("Best errors by rule and lambda")]
