"""Doubly robust estimates: a fitted Q, corrected by importance sampling of its TD errors.

    v(s_0) + sum_t gamma^t w_t delta_t,   delta_t = r_{t+1} + gamma v(s_{t+1}) - q(s_t, a_t)

is the recursion v_DR = v(s) + rho (r + gamma v_DR' - q(s, a)) written out. With exact ratios it is
unbiased for any q that does not depend on the episode, and the better q is, the smaller its
variance. The weighted form divides the correction of each step by the total weight of the step.

The influence of an episode includes what it changes through the Q that it helped to fit.

Source: Jiang & Li (2016), "Doubly robust off-policy value evaluation"; Thomas & Brunskill (2016) for
    the weighted form.
"""

from __future__ import annotations

import numpy as np

from horde_agent.scoring.episodes import Target
from horde_agent.scoring.fitted_q import QFunction, td_errors
from horde_agent.scoring.importance import by_step
from horde_agent.scoring.intervals import Mean, Ratios
from horde_agent.types import Floats


def error_weight(target: Target, gamma: float) -> Floats:
    """Return the weight of each transition's TD error in the estimate, shape (n,)."""
    episodes = target.episodes
    return np.asarray(gamma**episodes.step * target.weight / episodes.n_episodes)


def doubly_robust(
    target: Target,
    function: QFunction,
    gamma: float,
    continues: Floats,
    through_q: Floats | None = None,
    spread: float = 0.0,
) -> Mean:
    """Return the estimate, unbiased if the ratios are exact.

    Args:
        target: The policy on the episodes.
        function: The fitted Q.
        gamma: Discount, in [0, 1].
        continues: As of `td_errors`, shape (n,).
        through_q: Influence of each episode through Q, with mean 0, shape (n_episodes,).
        spread: Standard deviation of the error by what the ridge of Q holds back.
    """
    episodes = target.episodes
    delta = td_errors(target, function, gamma, continues)
    corrections = episodes.n_episodes * episodes.sums(error_weight(target, gamma) * delta)
    numbers = function.v[episodes.first_row] + corrections
    if through_q is not None:
        numbers = numbers + through_q
    return Mean(numbers, spread)


def weighted_error_weight(target: Target, gamma: float) -> Floats:
    """Return the weight of each transition's TD error in the weighted estimate, shape (n,)."""
    episodes = target.episodes
    weight, _ = by_step(target, episodes.reward)
    total = weight.sum(axis=0)
    share = gamma ** np.arange(len(total)) / np.where(total > 0.0, total, 1.0)
    return np.asarray(share[episodes.step] * target.weight)


def weighted_doubly_robust(
    target: Target,
    function: QFunction,
    gamma: float,
    continues: Floats,
    through_q: Floats | None = None,
    spread: float = 0.0,
) -> Ratios:
    """Return the estimate with the corrections of each step divided by its total weight.

    `continues` has the shape (n_transitions,), `through_q` (n_episodes,); arguments as above.
    """
    delta = td_errors(target, function, gamma, continues)
    weight, correction = by_step(target, delta)
    discount = np.asarray(gamma ** np.arange(weight.shape[1]), dtype=np.float64)
    numbers = function.v[target.episodes.first_row]
    if through_q is not None:
        numbers = numbers + through_q
    return Ratios(weight * correction, weight, discount, numbers, spread)
