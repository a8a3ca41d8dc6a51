"""`horde reproduce`: reproduce White, Modayil & Sutton (2012) and compare each claim with the measurement.

An experiment is a function from a `Study` to a `Result`; `EXPERIMENTS` maps names to functions, and each is
imported on demand. To add one, add a folder (problem.py, claims.py, figure.py) and a line here.
"""

from __future__ import annotations

from horde_agent.reproduce.settings import SCALES, ReproduceConfig

EXPERIMENTS = {
    "chain": "horde_agent.reproduce.chain.claims:run",
    "excursions": "horde_agent.reproduce.excursions.claims:run",
    "reset": "horde_agent.reproduce.reset.claims:run",
    "policies": "horde_agent.reproduce.policies.claims:run",
    "loop": "horde_agent.reproduce.feedback.claims:run",
}
"""Location of each experiment, in the order of the paper; `loop` is the feedback of its first figure."""

__all__ = ["EXPERIMENTS", "SCALES", "ReproduceConfig"]
