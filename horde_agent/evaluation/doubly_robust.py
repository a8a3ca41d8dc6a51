"""Doubly robust estimates: a fitted Q, corrected by importance sampling of its TD errors.

    v(s_0) + sum_t gamma^t w_t delta_t,   delta_t = r_{t+1} + gamma v(s_{t+1}) - q(s_t, a_t)

is the recursion v_DR = v(s) + rho (r + gamma v_DR' - q(s, a)) written out. With exact ratios it is
unbiased for any q that does not depend on the episode, and the better q is, the smaller its
variance. The weighted form divides the correction of each step by the total weight of the step.

Source: Jiang & Li (2016), "Doubly robust off-policy value evaluation"; Thomas & Brunskill (2016) for
    the weighted form.
"""

from __future__ import annotations

import numpy as np

from horde_agent.evaluation.episodes import Target
from horde_agent.evaluation.fitted_q import QFunction, td_errors
from horde_agent.evaluation.importance import by_step
from horde_agent.evaluation.intervals import Mean, Ratios
from horde_agent.types import Floats


def doubly_robust(target: Target, function: QFunction, gamma: float, continues: Floats) -> Mean:
    """Return the estimate, unbiased if the ratios are exact; `continues` is as in `td_errors`, (n,)."""
    episodes = target.episodes
    delta = td_errors(target, function, gamma, continues)
    corrections = episodes.sums(gamma**episodes.step * target.weight * delta)
    return Mean(function.v[episodes.first_row] + corrections)


def weighted_doubly_robust(
    target: Target, function: QFunction, gamma: float, continues: Floats
) -> Ratios:
    """Return the estimate with the corrections of each step divided by its total weight; arguments as above, (n,)."""
    delta = td_errors(target, function, gamma, continues)
    weight, correction = by_step(target, delta)
    discount = np.asarray(gamma ** np.arange(weight.shape[1]), dtype=np.float64)
    start = function.v[target.episodes.first_row]
    return Ratios(weight * correction, weight, discount, start)
