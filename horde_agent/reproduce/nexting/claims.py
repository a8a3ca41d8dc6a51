"""Claims about speed, accuracy and one representation for all."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from horde_agent.measures.nmsre import NO_VARIANCE, normalise
from horde_agent.reproduce.claims import Claims, Finding, Limit, Part, at_least, at_most, below, join
from horde_agent.reproduce.nexting.life import EVENTS, N_WINDOWS, TIME_SCALES_S, Asked
from horde_agent.reproduce.nexting.problem import LAGS, REAL_PASSES, REAL_SCALES_S, Data
from horde_agent.types import Bools, Floats

EARLY = 3
"""Windows in the first 30 minutes."""
LAST = slice(N_WINDOWS - 2, N_WINDOWS)
DEADLINE_MS = 100.0
BELOW_1, NEAR = at_least(0.75), at_most(0.10)
"""Share of questions with an NMSE below 1, and the excess of an NMSE over that of an off-line solution."""


class Life:
    """The NMSE of every question in one life, each (..., n_questions); `online` and what follows in the last 20 min."""

    def __init__(self, data: Data, number: int) -> None:
        learned, solved = data.learned[number], data.offline[number]
        self.asked, self.ms, self.varies = data.asked, learned.ms, learned.variance >= NO_VARIANCE
        self.curve, self.frozen_curve, self.zero, self.half, self.whole = (
            normalise(error, learned.variance)
            for error in (learned.online, learned.frozen, learned.zero[0], solved.half, solved.whole)
        )
        self.online, self.frozen = self.curve[LAST].mean(axis=0), self.frozen_curve[LAST].mean(axis=0)
        longest = self.asked.is_sensor & (self.asked.scale == len(TIME_SCALES_S) - 1)
        self.autoregression = normalise(solved.autoregression[-1], learned.variance[longest])
        self.of_longest = self.online[longest]

    def at(self, scale: int, which: Bools | None = None) -> Bools:
        """Return the questions of a time scale (of `which`) with returns that vary, shape (n_questions,)."""
        found = (self.asked.scale == scale) & self.varies
        return np.asarray(found if which is None else found & which)

    def medians(self, values: Floats, which: Bools | None = None) -> Floats:
        """Return the medians over the questions of each time scale, shape (n_scales,)."""
        return np.array([np.median(values[self.at(k, which)]) for k in range(len(TIME_SCALES_S))])

    @property
    def share_reached(self) -> Floats:
        """Share of the improvement that is reached after 30 minutes, by time scale and over all, shape (5,)."""
        first, early, last = (self.medians(v) for v in (self.zero, self.curve[EARLY - 1], self.curve[-1]))
        first, early, last = (np.append(values, np.median(values)) for values in (first, early, last))
        return np.asarray((first - early) / (first - last))

    def below_1(self, which: Bools, values: Floats | None = None) -> Floats:
        """Return the share of the questions of `which` with an NMSE below 1, by time scale, shape (n_scales,)."""
        values = self.online if values is None else values
        return np.array([np.mean(values[self.at(k, which)] < 1.0) for k in range(len(TIME_SCALES_S))])


def scores_of(data: Data) -> list[Life]:
    """Return the scores of all lives."""
    return [Life(data, k) for k in range(len(data.learned))]


def _of_scales(found: Sequence[Floats]) -> dict[str, Floats]:
    """Return values by time scale, (n_scales,) for each life, or with one over all, by the scale's name."""
    names = [*(f"{scale:g} s" for scale in TIME_SCALES_S), "over all"]
    return dict(zip(names, np.transpose(found), strict=False))


def _by_scale(found: Sequence[Floats], form: str = ".3g") -> str:
    return join(f"{scale} {values.mean():{form}}" for scale, values in _of_scales(found).items())


def _parts(what: str, found: Sequence[Floats], limit: Limit) -> list[Part]:
    return [Part(f"{what} {scale}".strip(), values, limit, ".0%") for scale, values in _of_scales(found).items()]


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
    found, faster = [], []
    for n, times in ((len(data.asked.scale), [life.ms for life in data.learned]), (n_many, [data.many_ms])):
        means = [ms.mean() for ms in times]
        late = [np.percentile(ms, 99) for ms in times]
        found += [
            Part(f"{n:,} predictions, mean", means, below(DEADLINE_MS), ".2f"),
            Part(f"{n:,} predictions, 99th percentile", late, below(DEADLINE_MS), ".2f"),
        ]
        faster.append(DEADLINE_MS / np.mean(means))
    return Finding(found, f"On average {join(faster, '.0f')} times faster than real time.")


@CLAIMS.add(
    "Most of the learning takes place within 30 minutes.",
    "substantial accuracy within 30 minutes",
    f"{_WHAT} Share of the improvement by time scale:",
)
def _half_an_hour(data: Data) -> Finding:
    scores = scores_of(data)
    *each, of_all = _parts("", [life.share_reached for life in scores], at_least(0.5))
    early, last = (_by_scale([life.medians(life.curve[k]) for life in scores]) for k in (EARLY - 1, -1))
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
    scores = scores_of(data)
    excess = [life.medians(life.online - life.half) for life in scores]
    ratio = [life.medians(life.online / np.maximum(life.whole, 1e-12)) for life in scores]
    frozen = [life.medians(life.frozen - life.half) for life in scores]
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
    scores, is_bit = scores_of(data), ~data.asked.is_sensor
    frozen, half = (
        _by_scale([life.below_1(is_bit, getattr(life, name)) for life in scores], ".0%") for name in ("frozen", "half")
    )
    return Finding(
        _parts("sensors", [life.below_1(~is_bit) for life in scores], BELOW_1)
        + _parts("feature bits", [life.below_1(is_bit) for life in scores], BELOW_1),
        cause=f"Of the feature bits with frozen weights {frozen}; of the off-line solution (b) {half}.",
    )


@CLAIMS.add(
    "Discounts that depend on the state are learned too.",
    "also with state-dependent discounting",
    "NMSE of six questions; each must be below 1, and at most .15 above the NMSE of ridge regression (b):",
)
def _events(data: Data) -> Finding:
    scores = scores_of(data)
    online, half, frozen = (
        np.mean([getattr(life, name)[-len(EVENTS) :] for life in scores], axis=0)
        for name in ("online", "half", "frozen")
    )
    limits = [below(1.0) if most >= 1.0 else at_most(most) for most in half + 0.15]
    return Finding(
        [Part(str(event), of, limit, ".3f") for event, of, limit in zip(EVENTS, online, limits, strict=True)],
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
    scores = scores_of(data)
    wins = [np.mean(life.of_longest < life.autoregression) for life in scores]
    online, its = np.mean([np.median([life.of_longest, life.autoregression], axis=1) for life in scores], axis=0)
    return Finding(
        [Part("share of the sensors with a lower NMSE", wins, at_least(0.5))],
        f"Median {online:.2f}, autoregression {its:.2f}.",
    )


@CLAIMS.add(
    "The real robot's log: near the off-line solution, and one representation for all.",
    "as above",
    f"Up to 2 s, with frozen weights on the last 30 % of 99.7 s after {REAL_PASSES} passes over the rest:",
)
def _real_log(data: Data) -> Finding | None:
    if data.log is None:
        return None
    log, scales = data.log, range(len(REAL_SCALES_S))
    asked = Asked(data.asked.interface, data.size.bits, REAL_SCALES_S, events=())
    excess = np.array([np.median((log.td - log.ridge)[log.varies & (asked.scale == k)]) for k in scales])
    found, offline = [Part("TD(lambda) minus off-line (b), median", np.median(excess), NEAR)], []
    for name, kind in (("sensors", asked.is_sensor), ("feature bits", ~asked.is_sensor)):
        groups = [kind & log.varies & (asked.scale == k) for k in scales]
        td, ridge = (np.array([np.mean(of[group] < 1.0) for group in groups]) for of in (log.td, log.ridge))
        found += _parts(f"share of {name} with an NMSE below 1,", [td], BELOW_1)
        offline.append(f"{name} {_by_scale([ridge], '.0%')}")
    return Finding(
        found,
        f"Minus off-line: {_by_scale([excess])}. The shares off-line: {'; '.join(offline)}.",
        "The best linear predictor of the first 70 s does not transfer to the last 30 s either.",
    )


REMARKS = (
    "This is the simulated robot (planar engine), so absolute errors are not the paper's; pen and wall follower "
    "are this program's. Timing, the order of methods and the shape of curves can be compared.",
    "An online prediction may use the return's recent past through its moving weights; frozen weights cannot.",
)
