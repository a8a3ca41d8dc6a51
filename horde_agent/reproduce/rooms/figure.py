"""The errors over the step size."""

from __future__ import annotations

from pathlib import Path

from horde_agent.reproduce.experiment import Figure, Table
from horde_agent.reproduce.figure import sensitivity
from horde_agent.reproduce.rooms.problem import (
    TASKS,
    Data,
)


def pictures(data: Data, folder: Path) -> list[Figure]:
    """Draw the areas over alpha, a row for each task and a panel for each lambda."""
    return [sensitivity(dict(zip(TASKS, data, strict=True)), folder / "rooms.png")]


def tables(data: Data) -> list[Table]:
    """Return the best errors of each rule at each lambda in both tasks."""
    return [found.table(f"{task}: best errors by rule and lambda") for task, found in zip(TASKS, data, strict=True)]
