"""`horde reproduce`: the results of White, Modayil & Sutton (2012), each claim beside what was measured.

An experiment is a function from a `Study` to a `Result`; `EXPERIMENTS` says where each is, and it is imported when it
is asked for. Add a file and a line here to add one.
"""

from __future__ import annotations

from horde_agent.reproduce.settings import SCALES, ReproduceConfig

EXPERIMENTS = {
    "chain": "horde_agent.reproduce.chain.experiment:run",
    "excursions": "horde_agent.reproduce.excursions.experiment:run",
    "reset": "horde_agent.reproduce.reset.experiment:run",
    "policies": "horde_agent.reproduce.policies.experiment:run",
    "loop": "horde_agent.reproduce.feedback.experiment:run",
}
"""Where the experiments are, in the order of the paper; `loop` is the feedback of its first figure."""

__all__ = ["EXPERIMENTS", "SCALES", "ReproduceConfig"]
