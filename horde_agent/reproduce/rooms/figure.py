"""The errors over the step size."""

from __future__ import annotations

from horde_agent.reproduce.experiment import Table
from horde_agent.reproduce.figures import Picture, sensitivity
from horde_agent.reproduce.rooms.problem import Data


def pictures(data: Data) -> dict[str, Picture]:
    """Draw the areas over alpha, a row for each task and a panel for each lambda."""
    return {"rooms": sensitivity(data)}


def tables(data: Data) -> list[Table]:
    """Return the best errors of each rule at each lambda in both tasks."""
    return [found.table(f"{task}: best errors by rule and lambda") for task, found in data.items()]
