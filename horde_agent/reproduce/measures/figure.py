"""RUPEE against the true error and against the NMSRE."""

from __future__ import annotations

import numpy as np

from horde_agent.reproduce.figures import COLOURS, Picture, new_canvas, style_axes
from horde_agent.reproduce.measures.claims import before_reset
from horde_agent.reproduce.measures.problem import Data


def pictures(data: Data) -> dict[str, Picture]:
    """Draw RUPEE and the true root MSPBE on the chain, and RUPEE against the root NMSRE of every question."""
    canvas, (left, right) = new_canvas(9.0, 3.2, 2)
    for colour, (rule, curves) in zip(COLOURS, data.chains.items(), strict=False):
        left.plot(
            np.mean([c.true for c in curves], axis=0), color=colour, label=f"{rule}: root MSPBE"
        )
        left.plot(np.mean([c.rupee for c in curves], axis=0), ":", color=colour, label="its RUPEE")
    life = data.tracked[0]
    k = before_reset(data, life)
    right.plot(
        np.sqrt(life.nmsre[k, life.judged]), life.rupee[k, life.judged], ".", ms=3, color=COLOURS[0]
    )
    style_axes(left, "chain, mean of 100 runs", legend=True, xlabel="episodes", ylim=(0.0, None))
    labels = {"xlabel": "root NMSRE", "ylabel": "RUPEE / deviation of the return"}
    style_axes(
        right,
        "the 795 questions before the reset",
        legend=False,
        yscale="log",
        xlim=(0.0, 3.0),
        **labels,
    )
    caption = (
        "Left: RUPEE follows the true error, also after theta is replaced at episode 1,000. "
        "Right: one dot a question."
    )
    return {"measures": (canvas, caption)}
