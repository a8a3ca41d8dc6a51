"""The picture of the experiment `collision`. Needs matplotlib."""

from __future__ import annotations

from pathlib import Path

from horde_agent.reproduce.figure import save, sensitivity
from horde_agent.reproduce.result import Figure
from horde_agent.reproduce.sweeps import Sweep


def pictures(found: Sweep, folder: Path) -> list[Figure]:
    """Draw the areas over alpha, a panel for each lambda."""
    caption = (
        "Mean error over 20,000 steps by step size, a panel for each lambda (of ABTD: zeta); rules that are the same "
        "rule there hide each other."
    )
    return [save(sensitivity({"Collision": found}), folder / "collision.png", caption)]
