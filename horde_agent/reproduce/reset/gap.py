"""What sets the vector estimate of the MSPBE apart from the scalar one: what w did since, soon after and later.

With a_k = (1 - 1/tau)^(t - k) / tau the trace is m_t = sum_k a_k delta_k e_k, the vector estimate m_t.w_t and the
scalar one sum_k a_k delta_k e_k.w_k, so that they differ by

    sum_k a_k delta_k e_k.(w_t - w_k)

In the steps right after k, w takes up sample k itself, alpha_w delta_k e_k; in the tau steps of the trace it drifts.
Cut into blocks of B << tau steps, w' being w at the end of the block in which k lies, the part of the later steps is

    L_t = sum_k a_k delta_k e_k.(w_t - w'_k) = (1 - 1/tau)^B (L_{t-B} + m_{t-B}.(w_t - w_{t-B}))
"""

from __future__ import annotations

import numpy as np

from horde_agent.horde import Horde
from horde_agent.types import Floats


class LaterPart:
    """Keeps L_t of every demon; to be told at the end of each block.

    Args:
        horde: Which has learned nothing, and keeps the vector estimate.
        block: B, in learning steps.

    Attributes:
        value: L_t of each demon, shape (n_demons,).
    """

    def __init__(self, horde: Horde, block: int) -> None:
        self._decay = (1.0 - 1.0 / horde.config.mspbe_tau) ** block
        self._m, self._w = horde.mspbe_trace(), horde.weights()[1]
        self.value: Floats = np.zeros(horde.n_demons)

    def end_block(self, horde: Horde) -> None:
        """Take in what w did in the block that ends now."""
        w = horde.weights()[1]
        moved = np.einsum("ij,ij->i", self._m, w - self._w, dtype=np.float64)
        self.value = self._decay * (self.value + moved)
        self._m, self._w = horde.mspbe_trace(), w


def share_of_drift(block: int, tau: float) -> float:
    """Return which share of the difference the blocks would have, were it a steady drift of w, in the long run.

    The age of the samples is tau in the mean, and the end of their block half a block away.
    """
    return 0.5 * block / tau
