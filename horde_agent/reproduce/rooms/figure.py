"""The picture of the experiment `rooms`. Needs matplotlib."""

from __future__ import annotations

from pathlib import Path

from horde_agent.reproduce.figure import save, sensitivity
from horde_agent.reproduce.result import Figure
from horde_agent.reproduce.rooms.claims import TASKS
from horde_agent.reproduce.rooms.problem import Data


def pictures(data: Data, folder: Path) -> list[Figure]:
    """Draw the areas over alpha, a row for each task and a panel for each lambda."""
    caption = "Mean error over all steps and questions by step size; a row for each task, a panel for each lambda."
    return [save(sensitivity(dict(zip(TASKS, data, strict=True))), folder / "rooms.png", caption)]
