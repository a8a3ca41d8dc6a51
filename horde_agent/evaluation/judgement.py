"""All estimates of a policy's value from the same episodes, each with its interval, and the verdict."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from horde_agent.evaluation.doubly_robust import doubly_robust, weighted_doubly_robust
from horde_agent.evaluation.episodes import Episodes, Target
from horde_agent.evaluation.fitted_q import FittedQ, folds_of
from horde_agent.evaluation.horde_value import HordeValue, horde_values
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
_NEEDS_Q = ("dr", "wdr", "fqe")


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
        n_resamples: Number of resampled sets of episodes.
        seed: Seed of everything random.

    Raises:
        ValueError: If an attribute is out of range.
    """

    gamma: float = 1.0
    truncated: str = STRETCH
    estimators: Sequence[str] = tuple(LABELS)
    level: float = 0.95
    method: str = "studentised"
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
        if self.n_resamples < 1:
            raise ValueError(f"n_resamples must be at least 1, not {self.n_resamples}")


class EstimateLine(NamedTuple):
    """One estimate of a policy's value.

    `effective_size` is that of the episodes' weights for ordinary and weighted importance sampling,
    of the weights at each step for per-decision and doubly robust ones, and of the ratios of single
    steps, as a share of the episodes, for the fitted Q and the GVF.
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
    horde: list[HordeValue | None] = [None] * len(targets)
    if "gvf" in config.estimators:
        rng = np.random.default_rng([config.seed, 1])
        continues = config.truncated == FITTED
        horde = [*horde_values(targets, config.gamma, rng, continues_truncated=continues)]
    judgements = []
    for target, horde_value in zip(targets, horde, strict=True):
        estimates = estimates_of(target, config)
        judgements.append(_judgement(target, estimates, horde_value, logged, resampler, config))
    return Evaluation(config, episodes, behaviour, judgements)


def estimates_of(target: Target, config: EvaluationConfig) -> dict[str, Estimate]:
    """Return the estimates of a policy's value by key, without the GVF's."""
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
        function = fitted.cross_fitted()
        continues = fitted.continues()
        estimates["dr"] = doubly_robust(target, function, gamma, continues)
        estimates["wdr"] = weighted_doubly_robust(target, function, gamma, continues)
        estimates["fqe"] = fitted.value()
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


def _judgement(
    target: Target,
    estimates: dict[str, Estimate],
    horde_value: HordeValue | None,
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
    if horde_value is not None:
        lines.append(_horde_line(horde_value, single, config.level))
    difference = None
    judged_by = next((key for key in (HEADLINE, "cwpdis", "wis") if key in estimates), None)
    if judged_by is not None and config.truncated == STRETCH:
        estimate = Difference(estimates[judged_by], logged)
        difference = _line(judged_by, estimate, resampler, sizes.get(judged_by, stepwise))
    share = weight_share(target.final_weight)
    mean_weight = float(target.final_weight.mean())
    deviations = episodes.sums(target.ratio - 1.0)
    evidence = Evidence(
        effective_size=max(whole, stepwise),
        share=share,
        mean_ratio=float(target.ratio.mean()),
        mean_ratio_error=float(np.sqrt((deviations**2).sum()) / episodes.n_transitions),
        level=config.level,
    )
    judged = verdict(evidence, difference)
    return Judgement(
        policy=target.name,
        lines=lines,
        difference=difference,
        share=share,
        mean_weight=mean_weight,
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


def _horde_line(horde_value: HordeValue, size: float, level: float) -> EstimateLine:
    ends = horde_value.interval(level)
    return EstimateLine(
        estimator="gvf",
        value=horde_value.value,
        low=ends.low,
        high=ends.high,
        standard_error=horde_value.standard_error,
        effective_size=size,
    )
