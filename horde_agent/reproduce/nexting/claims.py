"""Claims about speed, accuracy and one representation for all."""

from __future__ import annotations

from typing import Any

import numpy as np

from horde_agent.measures.nmsre import NO_VARIANCE, normalise
from horde_agent.reproduce.claims import Claims, Finding, Limit, Part, at_least, at_most, below
from horde_agent.reproduce.nexting.life import EVENTS, N_WINDOWS, TIME_SCALES_S, Asked
from horde_agent.reproduce.nexting.problem import LAGS, REAL_PASSES, REAL_SCALES_S, Data
from horde_agent.reproduce.stats import join
from horde_agent.types import Bools, Floats

EARLY = 3
"""Windows in the first 30 minutes."""
LAST = slice(N_WINDOWS - 2, N_WINDOWS)
DEADLINE_MS = 100.0
BELOW_1 = at_least(0.75)
NEAR = at_most(0.10)
"""Share of questions with an NMSE below 1, and the excess of an NMSE over that of an off-line solution."""


class Groups:
    """The questions with returns that vary in each life, `varies` of shape (n_lives, n_questions), by time scale."""

    def __init__(self, asked: Asked, varies: Bools) -> None:
        self.asked = asked
        self.varies = varies

    def medians(self, values: Floats, which: Bools | None = None) -> Floats:
        """Return the medians of values, (..., n_lives, n_questions), (of `which`), shape (..., n_lives, n_scales)."""
        return self._of_scales(np.nanmedian, values, which)

    def below_1(self, values: Floats, which: Bools) -> Floats:
        """Return the shares of the values of `which` that are below 1; shapes as in `medians`."""
        return self._of_scales(np.nanmean, values < 1.0, which)

    def _of_scales(self, statistic: Any, values: Floats | Bools, which: Bools | None) -> Floats:
        kept_values = np.where(
            self.varies if which is None else self.varies & which, values, np.nan
        )
        scales = range(len(self.asked.scales_s))
        return np.stack(
            [statistic(kept_values[..., self.asked.scale == k], axis=-1) for k in scales], axis=-1
        )


class Scores(Groups):
    """The NMSE of every question, (..., n_lives, n_questions); `online` and `frozen` in the last 20 minutes."""

    def __init__(self, data: Data) -> None:
        variance = np.array([life.variance for life in data.learned])
        super().__init__(data.asked, variance >= NO_VARIANCE)
        errors_of_lives = zip(
            *((life.online, life.frozen, life.zero) for life in data.learned), strict=True
        )
        online, frozen, zero = (np.stack(errors, axis=1) for errors in errors_of_lives)
        half, whole = map(
            np.array, zip(*((life.half, life.whole) for life in data.offline), strict=True)
        )
        self.curve, self.frozen_curve, self.zero, self.half, self.whole = (
            normalise(error, variance) for error in (online, frozen, zero[0], half, whole)
        )
        self.online = self.curve[LAST].mean(axis=0)
        self.frozen = self.frozen_curve[LAST].mean(axis=0)

    @property
    def share_reached(self) -> Floats:
        """Share of the improvement that is reached after 30 minutes, by time scale and over all, (n_lives, 5)."""
        curves = (self.medians(v) for v in (self.zero, self.curve[EARLY - 1], self.curve[-1]))
        first, early, last = (
            np.column_stack([values, np.median(values, axis=1)]) for values in curves
        )
        return np.asarray((first - early) / (first - last))


def _of_scales(found: Floats) -> dict[str, Floats]:
    """Return values, (n_lives, n_scales), or with a last column over all, by the scale's name."""
    names = [*(f"{scale:g} s" for scale in TIME_SCALES_S), "over all"]
    return dict(zip(names, np.transpose(found), strict=False))


def _by_scale(found: Floats, form: str = ".3g") -> str:
    return join(f"{scale} {values.mean():{form}}" for scale, values in _of_scales(found).items())


def _parts(what: str, found: Floats, limit: Limit) -> list[Part]:
    return [
        Part(f"{what} {scale}".strip(), values, limit, ".0%")
        for scale, values in _of_scales(found).items()
    ]


_WHAT = "Medians are over the questions with returns that vary, first within a time scale."
CLAIMS = Claims("abstract (2014)")


@CLAIMS.add(
    "Thousands of predictions are made and learned in real time.",
    "thousands of predictions, each from six thousand features, ten or more updates a second on a laptop",
    "Milliseconds, features and predictions included, while other jobs ran:",
    source="abstracts (2012, 2014)",
)
def _real_time(data: Data) -> Finding:
    n_many = len(TIME_SCALES_S) * (len(data.asked.interface.sensors) + data.size.many_bits)
    parts = []
    faster = []
    for n, times in (
        (len(data.asked.scale), [life.ms for life in data.learned]),
        (n_many, [data.many_ms]),
    ):
        means = [ms.mean() for ms in times]
        late = [np.percentile(ms, 99) for ms in times]
        parts.append(Part(f"{n:,} predictions, mean", means, below(DEADLINE_MS), ".2f"))
        parts.append(Part(f"{n:,} predictions, 99th percentile", late, below(DEADLINE_MS), ".2f"))
        faster.append(DEADLINE_MS / np.mean(means))
    return Finding(parts, f"On average {join(faster, '.0f')} times faster than real time.")


@CLAIMS.add(
    "Most of the learning takes place within 30 minutes.",
    "substantial accuracy within 30 minutes",
    f"{_WHAT} Share of the improvement by time scale:",
)
def _half_an_hour(data: Data) -> Finding:
    scores = Scores(data)
    *each, of_all = _parts("", scores.share_reached, at_least(0.5))
    early, last = (_by_scale(scores.medians(scores.curve[k])) for k in (EARLY - 1, -1))
    return Finding(
        [*each, of_all._replace(limit=at_least(0.8))],
        f"Median NMSE in minutes 20-30: {early}; in the last ten: {last}. Most of the improvement is the mean of the "
        "return, which weights of 0 lack.",
    )


@CLAIMS.add(
    "On-line predictions come near the best off-line solution.",
    "accuracy compares favourably with the optimal off-line solution",
    f"{_WHAT} NMSE in the last 20 minutes against ridge regression on the first half (b) and on the whole life (a):",
)
def _near_offline(data: Data) -> Finding:
    scores = Scores(data)
    excess, frozen = (
        scores.medians(errors - scores.half) for errors in (scores.online, scores.frozen)
    )
    ratio = scores.medians(scores.online / np.maximum(scores.whole, 1e-12))
    return Finding(
        [
            Part("median of online minus (b)", np.median(np.mean(excess, axis=0)), NEAR),
            Part("median of online over (a)", np.median(np.mean(ratio, axis=0)), at_most(2.0)),
        ],
        f"Minus (b): {_by_scale(excess)}; over (a): {_by_scale(ratio)}.",
        f"The same weights, frozen for ten minutes, exceed (b) by {_by_scale(frozen)}: the rest comes "
        "from weights that move at each step, and grows with the time scale.",
    )


@CLAIMS.add(
    "One representation serves many signals and time scales.",
    "the same features for all signals and time scales",
    "Share of the questions that vary with an NMSE below 1 in the last 20 minutes:",
)
def _one_representation(data: Data) -> Finding:
    scores = Scores(data)
    is_bit = ~data.asked.is_sensor
    frozen, half = (
        _by_scale(scores.below_1(errors, is_bit), ".0%") for errors in (scores.frozen, scores.half)
    )
    return Finding(
        _parts("sensors", scores.below_1(scores.online, ~is_bit), BELOW_1)
        + _parts("feature bits", scores.below_1(scores.online, is_bit), BELOW_1),
        cause=f"Of the feature bits with frozen weights {frozen}; of the off-line solution (b) {half}.",
    )


@CLAIMS.add(
    "Discounts that depend on the state are learned too.",
    "also with state-dependent discounting",
    "NMSE of six questions; each must be below 1, and at most .15 above the NMSE of ridge regression (b):",
)
def _events(data: Data) -> Finding:
    scores = Scores(data)
    online, half, frozen = (
        errors[:, -len(EVENTS) :].mean(axis=0)
        for errors in (scores.online, scores.half, scores.frozen)
    )
    limits = [below(1.0) if most >= 1.0 else at_most(most) for most in half + 0.15]
    return Finding(
        [
            Part(str(event), of, limit, ".3f")
            for event, of, limit in zip(EVENTS, online, limits, strict=True)
        ],
        f"Off-line (b): {join(half, '.3f')}.",
        f"With weights frozen for ten minutes: {join(frozen, '.2f')}.",
    )


@CLAIMS.add(
    "The features predict better than autoregression on the same sensor.",
    "accuracy compares favourably with autoregression",
    f"At 8 s, against least squares on the last {LAGS} readings:",
    source="abstract (2011 version)",
)
def _autoregression(data: Data) -> Finding:
    longest = data.asked.of_longest
    variance = np.array([life.variance[longest] for life in data.learned])
    autoregression = normalise(np.array([life.autoregression for life in data.offline]), variance)
    online = Scores(data).online
    medians = [np.median(errors, axis=1).mean() for errors in (online[:, longest], autoregression)]
    return Finding(
        [
            Part(
                "share of the sensors with a lower NMSE",
                (online[:, longest] < autoregression).mean(axis=1),
                at_least(0.5),
            )
        ],
        f"Median {medians[0]:.2f}, autoregression {medians[1]:.2f}.",
    )


@CLAIMS.add(
    "The real robot's log: near the off-line solution, and one representation for all.",
    "as above",
    f"Up to 2 s, with frozen weights on the last 30 % of 99.7 s after {REAL_PASSES} passes over the rest:",
)
def _real_log(data: Data) -> Finding | None:
    if data.log is None:
        return None
    log = data.log
    asked_of_log = Asked(data.asked.interface, data.size.bits, REAL_SCALES_S, events=())
    groups = Groups(asked_of_log, log.varies[None])
    excess = groups.medians((log.td - log.ridge)[None])
    parts = [Part("TD(lambda) minus off-line (b), median", np.median(excess), NEAR)]
    offline = []
    for name, kind in (
        ("sensors", asked_of_log.is_sensor),
        ("feature bits", ~asked_of_log.is_sensor),
    ):
        parts += _parts(
            f"share of {name} with an NMSE below 1,", groups.below_1(log.td[None], kind), BELOW_1
        )
        offline.append(f"{name} {_by_scale(groups.below_1(log.ridge[None], kind), '.0%')}")
    return Finding(
        parts,
        f"Minus off-line: {_by_scale(excess)}. The shares off-line: {'; '.join(offline)}.",
        "The best linear predictor of the first 70 s does not transfer to the last 30 s either.",
    )


REMARKS = (
    "This is the simulated robot (planar engine), so absolute errors are not the paper's; pen and wall follower "
    "are this program's. Timing, the order of methods and the shape of curves can be compared.",
    "An online prediction may use the return's recent past through its moving weights; frozen weights cannot.",
)
