"""All estimates of a policy's value from the same episodes, each with its interval, and the verdict."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from horde_agent import html
from horde_agent.refusals import number_in, whole_number
from horde_agent.scoring.doubly_robust import (
    doubly_robust,
    error_weight,
    weighted_doubly_robust,
    weighted_error_weight,
)
from horde_agent.scoring.episodes import Episodes, Target
from horde_agent.scoring.fitted_q import FittedQ, folds_of
from horde_agent.scoring.horde_value import horde_values
from horde_agent.scoring.importance import (
    by_step,
    effective_size,
    expected_sizes,
    ordinary,
    per_decision,
    recorded_sizes,
    smaller_sizes,
    step_importance,
    weighted,
    weighted_per_decision,
)
from horde_agent.scoring.intervals import (
    N_RESAMPLES,
    Biased,
    Difference,
    Estimate,
    Interval,
    Mean,
    Resampler,
    unknown,
)
from horde_agent.scoring.shown import EstimateLine, cells, head
from horde_agent.scoring.verdict import ENOUGH, Evidence, WeightShare, verdict, weight_share
from horde_agent.types import Floats

STRETCH = "stretch"
FITTED = "fitted"
TRUNCATED = (STRETCH, FITTED)
"""What follows a truncation: nothing, so that the return is that of the stretch; or the fitted Q's value."""
LABELS = {
    "wdr": "weighted doubly robust",
    "dr": "doubly robust",
    "cwpdis": "weighted per-decision importance sampling",
    "pdis": "per-decision importance sampling",
    "wis": "weighted importance sampling",
    "ois": "ordinary importance sampling",
    "fqe": "fitted Q",
    "gvf": "GVF of the Horde",
}
BEHAVIOUR = "logged behaviour"
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
        n_resamples: Number of resampled sets of episodes, from 50 to 100,000.
        seed: Seed of everything random.

    Raises:
        ValueError: If an attribute is out of range.
    """

    gamma: float = 1.0
    truncated: str = STRETCH
    estimators: Sequence[str] = tuple(LABELS)
    level: float = 0.95
    n_resamples: int = N_RESAMPLES
    seed: int = 0

    def __post_init__(self) -> None:
        number_in("gamma", self.gamma, "[0, 1]")
        if self.truncated not in TRUNCATED:
            raise ValueError(f"truncated must be {' or '.join(TRUNCATED)}, not {self.truncated!r}")
        unknown = [key for key in self.estimators if key not in LABELS]
        if unknown or not self.estimators:
            raise ValueError(
                f"estimators must be among {', '.join(LABELS)}, not {', '.join(unknown) or 'none'}"
            )
        number_in("level", self.level, "(0, 1)")
        if not LEAST_RESAMPLES <= self.n_resamples <= MOST_RESAMPLES:
            raise ValueError(
                f"n_resamples must be from {LEAST_RESAMPLES} to {MOST_RESAMPLES:,}, not {self.n_resamples:,}"
            )
        whole_number("seed", self.seed, 0)


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

    def _repr_html_(self) -> str:
        """Return a table and the verdict of each policy, for a notebook."""
        parts = []
        for judgement in self.judgements:
            rows = [[LABELS[line.estimator], *cells(line)] for line in judgement.lines]
            rows.append([BEHAVIOUR, *cells(self.behaviour)])
            caption = f"{judgement.policy}: {judgement.verdict}"
            parts.append(html.table(head(self.config.level), rows, caption))
        return "".join(parts)


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
    )
    logged = Mean(episodes.returns(config.gamma))
    n_episodes = float(episodes.n_episodes)
    behaviour = _line("logged", logged, resampler, LineSizes(n_episodes, n_episodes))
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
        function, through_q, spread = fitted.cross_fitted(weights)
        continues = fitted.continues()
        corrected = weighted_doubly_robust(
            target, function, gamma, continues, through_q=through_q[1], spread=spread[1]
        )
        estimates["wdr"] = corrected
        estimates["dr"] = doubly_robust(
            target, function, gamma, continues, through_q=through_q[0], spread=spread[0]
        )
        value = fitted.value()
        estimates["fqe"] = Biased(value.value, value.influence(), corrected)
        if gvf_value is not None:
            no_influence = np.full(episodes.n_episodes, np.nan)
            estimates["gvf"] = Biased(gvf_value, no_influence, corrected)
        if goes_on:
            extended = _with_values_at_truncations(target, function.v, gamma)
    estimates["ois"] = ordinary(extended, gamma)
    estimates["pdis"] = per_decision(extended, gamma)
    estimates["wis"] = weighted(extended, gamma)
    estimates["cwpdis"] = weighted_per_decision(extended, gamma)
    keys = [key for key in LABELS if key in config.estimators and key in estimates]
    for key in _unknown_keys(extended, keys):
        estimates[key] = unknown(episodes.n_episodes)
    return {key: estimates[key] for key in keys}


def _unknown_keys(target: Target, keys: Collection[str]) -> list[str]:
    """Return the estimators of which no episode has a weight that counts.

    Weighted per-decision importance sampling needs a weight at each step with a reward. Doubly robust
    forms and the fitted Q need one at the first step: without, no action of the policy was taken.
    """
    episodes = target.episodes
    weight, reward = by_step(target, episodes.reward)
    has_weight = np.asarray((weight > 0.0).any(axis=0))
    has_reward = np.asarray((reward != 0.0).any(axis=0))
    has_reward[0] |= not has_reward.any()
    unknown = {
        "ois": not has_weight[-1],
        "wis": not has_weight[-1],
        "pdis": not (has_weight & has_reward).any(),
        "cwpdis": not has_weight[has_reward].all(),
    }
    return [key for key in keys if unknown.get(key, not has_weight[0])]


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


class LineSizes(NamedTuple):
    """Effective sizes of an estimate.

    Attributes:
        shown: Beside the estimate.
        of_interval: By which it has an interval: that of another estimate's weights if the interval is.
    """

    shown: float
    of_interval: float


def sizes_of(target: Target, gamma: float) -> dict[str, LineSizes]:
    """Return the effective sizes of each estimator, in episodes."""
    episodes = target.episodes
    sizes = smaller_sizes(recorded_sizes(target), expected_sizes(target))
    stepwise = sizes.per_decision(step_importance(target, gamma))
    single = effective_size(target.ratio) * episodes.n_episodes / episodes.n_transitions
    by_key = dict.fromkeys(LABELS, LineSizes(stepwise, stepwise))
    by_key |= dict.fromkeys(("ois", "wis"), LineSizes(sizes.whole, sizes.whole))
    return by_key | dict.fromkeys(BIASED, LineSizes(single, stepwise))


def evidence_of(target: Target, config: EvaluationConfig) -> Evidence:
    """Return the facts about the ratios by which a policy can be judged or not."""
    episodes = target.episodes
    judged_by = _judged_by(config.estimators)
    importance = step_importance(target, config.gamma)
    recorded = recorded_sizes(target)
    expected = expected_sizes(target)
    sizes = [recorded.per_decision(importance), expected.per_decision(importance)]
    if judged_by == "wis":
        sizes = [recorded.whole, expected.whole]
    deviations = episodes.sums(target.ratio - 1.0)
    returns = episodes.returns(config.gamma)
    only_return = None
    if (returns == returns[0]).all():
        only_return = float(returns[0])
    return Evidence(
        recorded_size=sizes[0],
        expected_size=sizes[1],
        share=weight_share(target.final_weight),
        mean_ratio=float(target.ratio.mean()),
        mean_ratio_error=float(np.sqrt((deviations**2).sum()) / episodes.n_transitions),
        level=config.level,
        only_return=only_return,
    )


def _judged_by(keys: Collection[str]) -> str | None:
    """Return the estimator of the verdict, None if none of those can give one."""
    return next((key for key in (HEADLINE, "cwpdis", "wis") if key in keys), None)


def _judgement(
    target: Target,
    estimates: dict[str, Estimate],
    logged: Estimate,
    resampler: Resampler,
    config: EvaluationConfig,
) -> Judgement:
    sizes = sizes_of(target, config.gamma)
    lines = []
    for key, estimate in estimates.items():
        lines.append(_line(key, estimate, resampler, sizes[key]))
    difference = None
    judged_by = _judged_by(estimates)
    if judged_by is not None and config.truncated == STRETCH:
        estimate = Difference(estimates[judged_by], logged)
        difference = _line(judged_by, estimate, resampler, sizes[judged_by])
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


def _line(key: str, estimate: Estimate, resampler: Resampler, sizes: LineSizes) -> EstimateLine:
    ends = Interval(np.nan, np.nan)
    if sizes.of_interval >= ENOUGH:
        ends = resampler.interval(estimate)
    return EstimateLine(
        estimator=key,
        value=estimate.value,
        low=ends.low,
        high=ends.high,
        standard_error=estimate.standard_error,
        effective_size=sizes.shown,
    )
