"""Importance sampling: the value of a policy from the rewards and products of ratios of n episodes.

With w_t = rho_0 ... rho_t of an episode, and returns G:

    ordinary                 (1/n) sum_i w_T G
    weighted                 sum_i w_T G / sum_i w_T
    per-decision             (1/n) sum_i sum_t gamma^t w_t r_{t+1}
    weighted per-decision    sum_t gamma^t (sum_i w_t r_{t+1} / sum_i w_t)

An episode that has ended keeps its last product, with rewards of 0.

Source: Precup, Sutton & Singh (2000), "Eligibility traces for off-policy policy evaluation"; Thomas
    (2015), "Safe reinforcement learning", section 3.8, for the consistent weighted per-decision
    form.
"""

from __future__ import annotations

import numpy as np

from horde_agent.evaluation.episodes import Target
from horde_agent.evaluation.intervals import Mean, Ratios
from horde_agent.types import Floats


def ordinary(target: Target, gamma: float) -> Mean:
    """Return the estimate by whole episodes, unbiased, of high variance."""
    return Mean(target.final_weight * target.episodes.returns(gamma))


def per_decision(target: Target, gamma: float) -> Mean:
    """Return the estimate in which a reward is weighted by the ratios before it only, unbiased."""
    episodes = target.episodes
    weighted = gamma**episodes.step * target.weight * episodes.reward
    return Mean(episodes.sums(weighted))


def weighted(target: Target, gamma: float) -> Ratios:
    """Return the estimate by whole episodes divided by their total weight, biased but consistent."""
    numerator = target.final_weight * target.episodes.returns(gamma)
    return Ratios(numerator[:, None], target.final_weight[:, None], np.ones(1))


def weighted_per_decision(target: Target, gamma: float) -> Ratios:
    """Return the estimate in which each step has its own total weight, biased but consistent."""
    weight, reward = by_step(target, target.episodes.reward)
    discount = np.asarray(gamma ** np.arange(weight.shape[1]), dtype=np.float64)
    return Ratios(weight * reward, weight, discount)


def by_step(target: Target, values: Floats) -> tuple[Floats, Floats]:
    """Return weights and values, shape (n,), by episode and step, each of shape (n_episodes, longest).

    After its end, an episode keeps its last weight, with values of 0.
    """
    episodes = target.episodes
    shape = (episodes.n_episodes, episodes.longest)
    weight = np.repeat(target.final_weight[:, None], episodes.longest, axis=1)
    weight[episodes.episode, episodes.step] = target.weight
    padded = np.zeros(shape)
    padded[episodes.episode, episodes.step] = values
    return weight, padded


def effective_size(weight: Floats) -> float:
    """Return Kish's effective sample size (sum w)^2 / sum w^2 of weights, shape (n,); 0 if all are 0.

    Source: Kish (1965), "Survey sampling".

    Examples:
        >>> effective_size(np.array([1.0, 1.0, 2.0]))
        2.6666666666666665
    """
    largest = weight.max(initial=0.0)
    if largest <= 0.0:
        return 0.0
    scaled = weight / largest
    return float(scaled.sum() ** 2 / (scaled**2).sum())


def per_decision_size(target: Target, gamma: float) -> float:
    """Return the mean effective sample size of the weights at each step, where the rewards fall.

    A step counts by its share of the sum of gamma^t |r|, or of gamma^t without rewards.
    """
    weight, reward = by_step(target, target.episodes.reward)
    discount = gamma ** np.arange(weight.shape[1])
    importance = discount * np.abs(reward).sum(axis=0)
    if importance.sum() <= 0.0:
        importance = discount
    sizes = np.array([effective_size(column) for column in weight.T])
    return float((importance * sizes).sum() / importance.sum())
