"""When an estimate of the MSPBE counts, and how many on-policy steps the steps so far are worth (ESS).

The estimates themselves are made where the demons learn: the scalar one is a trace of delta (e.w), the vector one m.w
with m a trace of delta e. Both rest on w, and are worth nothing before it has moved.

Sources: White, Modayil & Sutton (2012), section 5; Kong (1992) for the effective sample size.
"""

from __future__ import annotations

import numpy as np

from horde_agent.learning.rules import LearnerConfig
from horde_agent.types import Floats


def updates_until_valid(config: LearnerConfig) -> float:
    """Return after how many updates with rho > 0 an MSPBE estimate may be read.

    Both estimates begin at 0 with w, and w has moved most of its way after some 1 / (alpha_w ||phi||^2) updates. With
    n active tiles ||phi||^2 = n and alpha_w = step_size secondary_ratio / n. Infinite where w does not move.
    """
    rate = config.step_size * config.secondary_ratio
    return 1.0 / rate if rate > 0 else np.inf


def effective_sample_size(total: Floats, squares: Floats) -> Floats:
    """Return (sum rho)^2 / sum rho^2 for each demon, shape (n_demons,): t after t on-policy steps, 0 if rho was 0.

    Args:
        total: Sum of rho, shape (n_demons,).
        squares: Sum of its squares, shape (n_demons,).

    Source: Kong (1992).
    """
    return np.asarray(total**2 / np.where(squares > 0, squares, 1.0))
