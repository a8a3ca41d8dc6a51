"""All estimates of a policy's value from the same episodes, each with its interval, and the verdict."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from horde_agent.evaluation.doubly_robust import (
    doubly_robust,
    error_weight,
    weighted_doubly_robust,
    weighted_error_weight,
)
from horde_agent.evaluation.episodes import Episodes, Target
from horde_agent.evaluation.fitted_q import FittedQ, folds_of
from horde_agent.evaluation.horde_value import horde_values
from horde_agent.evaluation.importance import (
    effective_size,
    ordinary,
    per_decision,
    per_decision_size,
    weighted,
    weighted_per_decision,
)
from horde_agent.evaluation.intervals import (
    N_RESAMPLES,
    Biased,
    Difference,
    Estimate,
    Mean,
    Resampler,
)
from horde_agent.evaluation.verdict import Evidence, WeightShare, verdict, weight_share
from horde_agent.types import Floats

STRETCH = "stretch"
FITTED = "fitted"
TRUNCATED = (STRETCH, FITTED)
"""What follows a truncation: nothing, so that the return is that of the stretch; or the fitted Q's value."""
LABELS = {
    "ois": "ordinary importance sampling",
    "pdis": "per-decision importance sampling",
    "wis": "weighted importance sampling",
    "cwpdis": "weighted per-decision importance sampling",
    "dr": "doubly robust",
    "wdr": "weighted doubly robust",
    "fqe": "fitted Q",
    "gvf": "GVF of the Horde",
}
HEADLINE = "wdr"
"""The estimator of the verdict: of small error in each problem of docs/results/evaluate.csv."""
BIASED = ("fqe", "gvf")
"""Estimators with the error of the tiles, whose intervals are those of the weighted doubly robust estimate."""
LEAST_RESAMPLES = 50
MOST_RESAMPLES = 100_000
_NEEDS_Q = ("dr", "wdr", *BIASED)


@dataclass(frozen=True)
class EvaluationConfig:
    """How policies are judged.

    Attributes:
        gamma: Discount per step, in [0, 1]; 1 for the undiscounted return of an episode.
        truncated: "stretch": the return of a truncated episode is that of its stretch. "fitted":
            the fitted Q's value of the last state is added.
        estimators: Keys of `LABELS`.
        level: Probability of the intervals, in (0, 1).
        method: Of `intervals.METHODS`.
        n_resamples: Number of resampled sets of episodes, from 50 to 100,000.
        seed: Seed of everything random.

    Raises:
        ValueError: If an attribute is out of range.
    """

    gamma: float = 1.0
    truncated: str = STRETCH
    estimators: Sequence[str] = tuple(LABELS)
    level: float = 0.95
    method: str = "wider"
    n_resamples: int = N_RESAMPLES
    seed: int = 0

    def __post_init__(self) -> None:
        if not 0.0 <= self.gamma <= 1.0:
            raise ValueError(f"gamma must be in [0, 1], not {self.gamma}")
        if self.truncated not in TRUNCATED:
            raise ValueError(f"truncated must be {' or '.join(TRUNCATED)}, not {self.truncated!r}")
        unknown = [key for key in self.estimators if key not in LABELS]
        if unknown or not self.estimators:
            raise ValueError(
                f"estimators must be among {', '.join(LABELS)}, not {', '.join(unknown) or 'none'}"
            )
        if not 0.0 < self.level < 1.0:
            raise ValueError(f"level must be in (0, 1), not {self.level}")
        if not LEAST_RESAMPLES <= self.n_resamples <= MOST_RESAMPLES:
            raise ValueError(
                f"n_resamples must be from {LEAST_RESAMPLES} to {MOST_RESAMPLES:,}, not {self.n_resamples:,}"
            )
        if self.seed < 0:
            raise ValueError(f"seed must be at least 0, not {self.seed}")


class EstimateLine(NamedTuple):
    """One estimate of a policy's value.

    `effective_size` is that of the episodes' weights for ordinary and weighted importance sampling,
    of the weights at each step for per-decision and doubly robust ones, and of the ratios of single
    steps, as a share of the episodes, for the fitted Q and the GVF.

    The interval of a fitted Q and of a GVF is that of the value, after the doubly robust correction:
    theirs may lie outside of it. `standard_error` is that of the estimate itself, without its bias,
    NaN for a GVF.
    """

    estimator: str
    value: float
    low: float
    high: float
    standard_error: float
    effective_size: float


class Judgement(NamedTuple):
    """What the data say about a policy."""

    policy: str
    lines: Sequence[EstimateLine]
    difference: EstimateLine | None  # to the logged behaviour; None if it was not computed
    share: WeightShare  # how the weight is spread over the episodes
    mean_weight: float  # of the episodes' weights, 1 in the mean if b is right
    can_judge: bool
    verdict: str

    def line(self, estimator: str) -> EstimateLine:
        """Return the estimate by one estimator; raise KeyError if it was not computed."""
        for line in self.lines:
            if line.estimator == estimator:
                return line
        raise KeyError(estimator)


class Evaluation(NamedTuple):
    """Judgements of policies on the same episodes."""

    config: EvaluationConfig
    episodes: Episodes
    behaviour: EstimateLine  # mean return of the logged episodes
    judgements: Sequence[Judgement]


def judge(targets: Sequence[Target], config: EvaluationConfig) -> Evaluation:
    """Return the judgement of each policy on the same episodes.

    Args:
        targets: The policies, with the same `episodes`.
        config: How.
    """
    episodes = targets[0].episodes
    resampler = Resampler(
        episodes.n_episodes,
        config.seed,
        n_resamples=config.n_resamples,
        level=config.level,
        method=config.method,
    )
    logged = Mean(episodes.returns(config.gamma))
    behaviour = _line("logged", logged, resampler, float(episodes.n_episodes))
    gvf_values: list[float | None] = [None] * len(targets)
    if "gvf" in config.estimators:
        continues = config.truncated == FITTED
        gvf_values = [*horde_values(targets, config.gamma, continues_truncated=continues)]
    judgements = []
    for target, gvf_value in zip(targets, gvf_values, strict=True):
        estimates = estimates_of(target, config, gvf_value)
        judgements.append(_judgement(target, estimates, logged, resampler, config))
    return Evaluation(config, episodes, behaviour, judgements)


def estimates_of(
    target: Target, config: EvaluationConfig, gvf_value: float | None = None
) -> dict[str, Estimate]:
    """Return the estimates of a policy's value by key, the GVF's if its value is given."""
    gamma = config.gamma
    continues_truncated = config.truncated == FITTED
    episodes = target.episodes
    is_fitted = any(key in config.estimators for key in _NEEDS_Q)
    goes_on = continues_truncated and not episodes.is_terminated.all()
    estimates: dict[str, Estimate] = {}
    extended = target
    if is_fitted or goes_on:
        rng = np.random.default_rng([config.seed, 2])
        fitted = FittedQ(
            target,
            gamma,
            continues_truncated=continues_truncated,
            fold=folds_of(episodes.n_episodes, rng),
        )
        weights = [error_weight(target, gamma), weighted_error_weight(target, gamma)]
        function, through_q = fitted.cross_fitted(weights)
        continues = fitted.continues()
        estimates["dr"] = doubly_robust(target, function, gamma, continues, through_q[0])
        corrected = weighted_doubly_robust(target, function, gamma, continues, through_q[1])
        estimates["wdr"] = corrected
        value = fitted.value()
        estimates["fqe"] = Biased(value.value, value.influence(), corrected)
        if gvf_value is not None:
            unknown = np.full(episodes.n_episodes, np.nan)
            estimates["gvf"] = Biased(gvf_value, unknown, corrected)
        if goes_on:
            extended = _with_values_at_truncations(target, function.v, gamma)
    estimates["ois"] = ordinary(extended, gamma)
    estimates["pdis"] = per_decision(extended, gamma)
    estimates["wis"] = weighted(extended, gamma)
    estimates["cwpdis"] = weighted_per_decision(extended, gamma)
    return {key: estimates[key] for key in LABELS if key in config.estimators and key in estimates}


def _with_values_at_truncations(target: Target, v: Floats, gamma: float) -> Target:
    """Return the episodes with gamma v of the last state added to the last reward of truncated ones."""
    episodes = target.episodes
    cut = np.flatnonzero(~episodes.is_terminated)
    last = episodes.first[cut] + episodes.length[cut] - 1
    reward = episodes.reward.copy()
    reward[last] += gamma * v[episodes.last_row[cut]]
    longer = Episodes(
        length=episodes.length,
        tiles=episodes.tiles,
        n_features=episodes.n_features,
        n_actions=episodes.n_actions,
        action=episodes.action,
        b=episodes.b,
        reward=reward,
        is_terminated=episodes.is_terminated,
    )
    return Target(target.name, longer, target.probabilities)


def evidence_of(target: Target, config: EvaluationConfig) -> Evidence:
    """Return the facts about the ratios by which a policy can be judged or not."""
    episodes = target.episodes
    sizes = (effective_size(target.final_weight), per_decision_size(target, config.gamma))
    deviations = episodes.sums(target.ratio - 1.0)
    returns = episodes.returns(config.gamma)
    only_return = None
    if (returns == returns[0]).all():
        only_return = float(returns[0])
    return Evidence(
        effective_size=max(sizes),
        share=weight_share(target.final_weight),
        mean_ratio=float(target.ratio.mean()),
        mean_ratio_error=float(np.sqrt((deviations**2).sum()) / episodes.n_transitions),
        level=config.level,
        only_return=only_return,
    )


def _judgement(
    target: Target,
    estimates: dict[str, Estimate],
    logged: Estimate,
    resampler: Resampler,
    config: EvaluationConfig,
) -> Judgement:
    episodes = target.episodes
    whole = effective_size(target.final_weight)
    stepwise = per_decision_size(target, config.gamma)
    single = effective_size(target.ratio) * episodes.n_episodes / episodes.n_transitions
    sizes = {"ois": whole, "wis": whole, "fqe": single, "gvf": single}
    lines = []
    for key, estimate in estimates.items():
        lines.append(_line(key, estimate, resampler, sizes.get(key, stepwise)))
    difference = None
    judged_by = next((key for key in (HEADLINE, "cwpdis", "wis") if key in estimates), None)
    if judged_by is not None and config.truncated == STRETCH:
        estimate = Difference(estimates[judged_by], logged)
        difference = _line(judged_by, estimate, resampler, sizes.get(judged_by, stepwise))
    evidence = evidence_of(target, config)
    judged = verdict(evidence, difference)
    return Judgement(
        policy=target.name,
        lines=lines,
        difference=difference,
        share=evidence.share,
        mean_weight=float(target.final_weight.mean()),
        can_judge=judged.can_judge,
        verdict=judged.sentence,
    )


def _line(key: str, estimate: Estimate, resampler: Resampler, size: float) -> EstimateLine:
    ends = resampler.interval(estimate)
    return EstimateLine(
        estimator=key,
        value=estimate.value,
        low=ends.low,
        high=ends.high,
        standard_error=estimate.standard_error,
        effective_size=size,
    )
