"""The verdict on a policy in one sentence: whether the data can judge it, and how it compares with the behaviour."""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np

from horde_agent.scoring.shown import EstimateLine
from horde_agent.types import Floats

ENOUGH = 20.0
"""Smallest effective sample size, in episodes, from which an estimate has an interval, and a policy a verdict.

In 134 settings of two to fifteen steps, intervals of 95 % by weighted per-decision importance sampling cover 54 % of
the values below a size of 2, 82 % from 5 to 10, 89 % from 10 to 20, and 93 % from 20 on.
"""
MOST_WEIGHT = 0.9
"""Share of the weight that is looked for in as few episodes as possible."""
_MOST_ERRORS = 5.0  # of the mean ratio from 1, in standard errors
_LARGEST_DEVIATION = 0.05  # of the mean ratio from 1


class WeightShare(NamedTuple):
    """`share` of the total weight is in the `n_heaviest` heaviest episodes of `n_episodes`."""

    share: float
    n_heaviest: int
    n_episodes: int


class Evidence(NamedTuple):
    """Facts of which a verdict is made."""

    recorded_size: float  # effective size of the weights as they were recorded, in episodes
    expected_size: float  # that which b lets expect of as many episodes
    share: WeightShare
    mean_ratio: float  # of pi / b, expected to be 1
    mean_ratio_error: float  # its standard error
    level: float  # probability of the intervals
    only_return: float | None = None  # of every logged episode; None if they differ


class Verdict(NamedTuple):
    """A sentence, and whether the data can judge the policy."""

    sentence: str
    can_judge: bool


def weight_share(weight: Floats) -> WeightShare:
    """Return the fewest episodes that hold `MOST_WEIGHT` of the weights, shape (n_episodes,), and their share.

    Examples:
        >>> weight_share(np.array([96.0, 1.0, 1.0, 2.0]))
        WeightShare(share=0.96, n_heaviest=1, n_episodes=4)
    """
    total = weight.sum()
    if not total > 0.0:
        return WeightShare(0.0, 0, len(weight))
    shares = np.cumsum(np.sort(weight)[::-1]) / total
    n_heaviest = int(np.searchsorted(shares, MOST_WEIGHT)) + 1
    n_heaviest = min(n_heaviest, len(weight))
    return WeightShare(float(shares[n_heaviest - 1]), n_heaviest, len(weight))


def verdict(evidence: Evidence, difference: EstimateLine | None) -> Verdict:
    """Return the verdict; `difference` is that to the logged behaviour, None if it is unknown."""
    cannot = "these data cannot judge this policy"
    share = evidence.share
    deviation = abs(evidence.mean_ratio - 1.0)
    if not share.n_heaviest:
        return Verdict(f"{cannot}: it would have ended none of the episodes as logged", False)
    if share.n_episodes < ENOUGH:
        sentence = (
            f"{cannot}: there are {share.n_episodes:,} episodes, expected {ENOUGH:g} at least"
        )
        return Verdict(sentence, False)
    if evidence.recorded_size < ENOUGH:
        sentence = (
            f"{cannot}: {share.share:.0%} of the weight is in {share.n_heaviest:,} of "
            f"{share.n_episodes:,} episodes"
        )
        return Verdict(sentence, False)
    if deviation > max(_LARGEST_DEVIATION, _MOST_ERRORS * evidence.mean_ratio_error):
        sentence = (
            f"{cannot}: its ratios pi/b have the mean {evidence.mean_ratio:.3g}, expected 1, so it "
            "takes actions that the behaviour never takes, or b is wrong"
        )
        return Verdict(sentence, False)
    if evidence.expected_size < ENOUGH:
        size = f"{math.floor(10.0 * evidence.expected_size) / 10.0:g}"  # 19.96 is not called 20
        if evidence.expected_size < 0.1:
            size = "less than 0.1"
        sentence = (
            f"{cannot}: by their b, {share.n_episodes:,} episodes are worth {size} of its own, expected {ENOUGH:g}, "
            "so that what it does most differently was hardly seen"
        )
        return Verdict(sentence, False)
    if evidence.only_return is not None:
        sentence = (
            f"{cannot}: each of the {share.n_episodes:,} logged returns is {evidence.only_return:.4g}, "
            "so they say nothing of another one"
        )
        return Verdict(sentence, False)
    if difference is None:
        return Verdict("these data can judge this policy; it was not compared", True)
    return Verdict(_compared(difference, evidence.level), True)


def _compared(difference: EstimateLine, level: float) -> str:
    ends = f"{level:.0%} interval {difference.low:.4g} to {difference.high:.4g}"
    size = f"{abs(difference.value):.4g}"
    if difference.low > 0.0:
        return f"better than the logged behaviour by {size} ({ends})"
    if difference.high < 0.0:
        return f"worse than the logged behaviour by {size} ({ends})"
    return (
        f"not distinguishable from the logged behaviour (difference {difference.value:.4g}, {ends})"
    )
