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

from typing import NamedTuple

import numpy as np

from horde_agent.scoring.episodes import Target
from horde_agent.scoring.intervals import Mean, Ratios
from horde_agent.types import Floats

_LEAST_OTHERS = 1e-6  # probability of the actions that were not taken, where b is rounded to 1
_LARGEST_LOG = 600.0


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


def expected_squares(target: Target) -> Floats:
    """Return the expected square of an episode's product of ratios up to and with each step, shape (longest,).

    The heavier weights are, the more rarely are they seen: products of the recorded ratios alone look
    best where the heaviest are missing. One step's ratios are seen often, so that the expected
    product is the product over the steps of the mean square of one ratio; after its end, an episode
    has ratios of 1. An action that was never taken shows in b alone: of the others than the one that
    was taken in a state, the squares sum to (1 - pi)^2 / (1 - b) at least (Cauchy-Schwarz), and
    exactly if there is one other.
    """
    episodes = target.episodes
    pi = target.probabilities[episodes.row, episodes.action]
    square_of_others = (1.0 - pi) ** 2 / np.maximum(1.0 - episodes.b, _LEAST_OTHERS)
    square = pi * target.ratio + square_of_others
    n_running = np.bincount(episodes.step, minlength=episodes.longest)
    n_ended = episodes.n_episodes - n_running
    squares = np.bincount(episodes.step, square, episodes.longest)
    if episodes.n_actions > 2:
        recorded = np.bincount(episodes.step, target.ratio**2, episodes.longest)
        squares = np.maximum(squares, recorded)
    mean_square = np.maximum((squares + n_ended) / episodes.n_episodes, 1.0)
    return np.asarray(np.exp(np.minimum(np.cumsum(np.log(mean_square)), _LARGEST_LOG)))


class Sizes(NamedTuple):
    """Effective sample sizes of a policy's weights, in episodes.

    Attributes:
        whole: Of the products of all ratios of an episode.
        by_step: Of the products up to and with each step, shape (longest,).
    """

    whole: float
    by_step: Floats

    def per_decision(self, importance: Floats) -> float:
        """Return the size of an estimate whose steps count by importance, shape (longest,); 0 if one is unknown.

        Errors of the steps add: the mean is a harmonic one.
        """
        counts = importance > 0.0
        if (self.by_step[counts] <= 0.0).any():
            return 0.0
        return float(importance.sum() / (importance[counts] / self.by_step[counts]).sum())


def recorded_sizes(target: Target) -> Sizes:
    """Return Kish's sizes of the weights as they were recorded."""
    weight, _ = by_step(target, target.episodes.reward)
    sizes = np.array([effective_size(column) for column in weight.T])
    return Sizes(effective_size(target.final_weight), sizes)


def expected_sizes(target: Target) -> Sizes:
    """Return the sizes that are expected of as many episodes, n / E[w^2], because E[w] = 1."""
    sizes = target.episodes.n_episodes / expected_squares(target)
    return Sizes(float(sizes[-1]), sizes)


def smaller_sizes(first: Sizes, second: Sizes) -> Sizes:
    """Return the smaller one of two sizes each."""
    return Sizes(min(first.whole, second.whole), np.minimum(first.by_step, second.by_step))


def step_importance(target: Target, gamma: float) -> Floats:
    """Return the sum of gamma^t |r| over the episodes at each step, of gamma^t without rewards, shape (longest,)."""
    _, reward = by_step(target, target.episodes.reward)
    discount = gamma ** np.arange(reward.shape[1])
    importance = discount * np.abs(reward).sum(axis=0)
    if importance.sum() <= 0.0:
        return np.asarray(discount, dtype=np.float64)
    return np.asarray(importance)
