"""QRC(lambda): Greedy-GQ(lambda) with regularised secondary weights.

    delta_t, e_t and theta as in `greedy_gq`
    w_{t+1} = w_t + alpha_w (delta_t e_t - (w_t.phi_t) phi_t - beta w_t)

Weakness: as `greedy_gq`; the regularised w biases the correction, and a large beta makes it Q-learning.
Identities: beta = 0 is `greedy_gq`; lambda = 0 is `qrc_2025`.

Source: Ghiassian et al. (2020); Patterson, White & White (2022) for lambda = 0. No QRC(lambda) of this form was found.
"""

from __future__ import annotations

from typing import NamedTuple

from horde_agent.kernels._jit import inner_kernel
from horde_agent.kernels.plain import Demons, Step
from horde_agent.kernels.rules import greedy_gq

WEIGHTS = ("w",)
RANGES = {"beta": "[0, 10]", "rho_max": "(0, inf]"}
SECONDARY_RATIO = 1.0
TRACE_RULE = "plain"
CAN_WEIGHT = False
FINDS_POLICY = True


class QRC(NamedTuple):
    """Regularisation of w, and the largest factor of the old trace."""

    beta: float = 1.0
    rho_max: float = 1.0


@inner_kernel
def learn(parameters: QRC, i: int, demons: Demons, step: Step) -> None:
    """Update demon `i` in place."""
    greedy_gq.move(i, demons, step, parameters.rho_max, parameters.beta)
