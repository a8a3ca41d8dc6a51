"""When MSPBE estimates are valid, and how much the ratios leave of the steps.

The MSPBE estimates themselves are computed by the engines: the scalar one is a trace of delta
(e.w), the vector one m.w with m a trace of delta e. Both depend on w, and are valid once it has
moved.

Sources: White, Modayil & Sutton (2012), section 5; Kong (1992).
"""

from __future__ import annotations

import numpy as np

from horde_agent.kernels.rules import rule
from horde_agent.learning.rules import LearnerConfig
from horde_agent.types import Floats


def updates_until_valid(config: LearnerConfig) -> float:
    """Return the number of updates with rho > 0 after which an MSPBE estimate is valid.

    It is inf if w never changes, or if the update rule has no w and so no estimate. Both estimates
    begin at 0 with w, and w has moved most of its way after some 1 / (alpha_w ||phi||^2) updates.
    With n active tiles ||phi||^2 = n and alpha_w = step_size secondary_ratio / n.
    """
    rate = config.step_size * config.secondary_ratio
    if rate <= 0.0 or not has_estimate(config):
        return np.inf
    return 1.0 / rate


def has_estimate(config: LearnerConfig) -> bool:
    """Return whether the update rule estimates its MSPBE: it has secondary weights w."""
    return "w" in rule(config.algorithm).vectors


def effective_sample_size(total: Floats, squares: Floats) -> Floats:
    """Return (sum rho)^2 / sum rho^2 for each demon, shape (n_demons,): t after t on-policy steps, 0 if rho was 0.

    Source: Kong (1992).
    """
    return np.asarray(total**2 / np.where(squares > 0, squares, 1.0))
