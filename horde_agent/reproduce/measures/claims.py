"""How RUPEE and UDE follow errors, settle, and announce divergence."""

from __future__ import annotations

from functools import partial

import numpy as np

from horde_agent.reproduce import TUNING_SEED
from horde_agent.reproduce.chain.problem import CHANGED, SETTLED
from horde_agent.reproduce.claims import Claims, Finding, Part, at_least, below, parts, within
from horde_agent.reproduce.measures.problem import BETA0, DEVIATIONS, TIMES, Data, Tracking
from horde_agent.reproduce.stats import join, mean_ci, rank_correlation

CLAIMS = Claims("chapter 7")


def _follows(data: Data, rule: str) -> list[Part]:
    curves = data.chains[rule]
    parts = []
    for name, half in (("episodes 200-1000", SETTLED), ("after the reset", CHANGED)):
        ranks = [rank_correlation(c.rupee[half], c.true[half]) for c in curves]
        areas = [c.rupee[half].sum() / c.true[half].sum() for c in curves]
        parts.append(Part(f"rank correlation, {name}", ranks, at_least(0.9)))
        parts.append(Part(f"ratio of areas, {name}", areas, within(0.5, 2.0)))
    return parts


for _rule, _text in (
    ("GTD(lambda)", "On the chain RUPEE follows the true root MSPBE."),
    ("TD(lambda)", "RUPEE needs no GTD: it follows the root MSPBE of TD(lambda) as well."),
):
    CLAIMS.add(_text, "shape only", "Means of 100 runs:")(partial(_follows, rule=_rule))


def before_reset(data: Data, life: Tracking) -> int:
    """Return the index of the last look before the reset."""
    return int(np.searchsorted(life.at, data.size.reset)) - 1


@CLAIMS.add(
    "On the 795 questions RUPEE ranks the questions as the NMSRE does, and both fall.",
    "shape only",
    "Early is when every question was tested for the first time, late just before the reset:",
)
def _questions(data: Data) -> Finding:
    ranks = []
    medians = []
    for life in data.tracked:
        last = before_reset(data, life)
        first = int(np.argmax(np.isfinite(life.nmsre[:, life.judged]).all(axis=1)))
        pairs = [
            (life.rupee[k, life.judged], np.sqrt(life.nmsre[k, life.judged])) for k in (first, last)
        ]
        ranks.append(rank_correlation(*pairs[1]))
        medians.append([[np.median(values) for values in pair] for pair in pairs])
    (rupee, error), (rupee_last, error_last) = np.mean(medians, axis=0)
    falls = {
        "median RUPEE, late over early": rupee_last / rupee,
        "median root NMSRE": error_last / error,
    }
    return Finding(
        [
            Part("rank correlation over the questions, late", ranks, at_least(0.5)),
            *parts(falls, below(1.0)),
        ],
        f"Late medians {rupee_last:.3g} and {error_last:.3g}; RUPEE is divided by the deviation of the return.",
    )


@CLAIMS.add("RUPEE reacts to lost weights within 1/beta0 updates.", "shape only")
def _reacts(data: Data) -> Finding:
    rises = []
    medians_after = []
    limit = at_least(1.5)
    for life in data.tracked:
        last = before_reset(data, life)
        curve = np.median(life.rupee[:, life.judged], axis=1)
        within_reach = curve[
            (life.at > data.size.reset) & (life.at <= data.size.reset + 1.0 / BETA0)
        ]
        rises.append(within_reach.max() / curve[last])
        reached = [k for k in range(last + 1, len(curve)) if limit.test(curve[k] / curve[last])]
        medians_after.append(life.at[reached[0]] - data.size.reset if reached else np.inf)
    description = f"largest median RUPEE within {1.0 / BETA0:,.0f} updates over the median before"
    return Finding(
        [Part(description, rises, limit)],
        f"The limit is reached after {join(medians_after, ',.0f')} updates.",
    )


@CLAIMS.add(
    "Under pure noise UDE settles, and RUPEE has a floor proportional to the noise.",
    "shape only",
    f"The threshold is the 99th percentile under noise with seed {TUNING_SEED}; in the last quarter of the steps:",
)
def _noise(data: Data) -> Finding:
    calm = [np.mean(found.ude < data.threshold) for found in data.noises]
    floor = np.mean([found.floor for found in data.noises], axis=0)
    slope = np.polyfit(np.log(DEVIATIONS), np.log(floor), 1)[0]
    share = f"share of runs and steps with a UDE below the threshold of {data.threshold:.3g}"
    slope_part = Part("slope of log RUPEE over log deviation", slope, within(0.9, 1.1), ".2f")
    return Finding(
        [Part(share, calm, at_least(0.95)), slope_part],
        f"RUPEE over the noise's deviation: {join(floor / DEVIATIONS, '.3f')} at deviations {join(DEVIATIONS, 'g')}.",
    )


@CLAIMS.add(
    "Both announce the divergence of TD on Baird's star.",
    "shape only",
    f"Share of the runs in which it exceeds {TIMES:g} times its mean of the first 100 steps before a weight exceeds "
    "1,000:",
)
def _announced(data: Data) -> Finding:
    limit = np.concatenate([measured.weight for measured in data.bairds])
    measured = {}
    sentences = []
    for name in ("rupee", "ude"):
        steps = np.concatenate([getattr(of_seed, name) for of_seed in data.bairds])
        in_time = (steps >= 0) & (steps < limit)
        measured[name.upper()] = in_time.mean()
        sentences += (
            [f"{name.upper()} after {np.median(steps[in_time]):,.0f}"] if in_time.any() else []
        )
    return Finding(
        parts(measured, at_least(1.0), ".0%"),
        f"Median steps: {join([*sentences, f'a weight after {np.median(limit):,.0f}'])}.",
        "UDE is divided by the standard deviation of the whole past of rho delta, which grows with the errors: it "
        f"rises to at most {mean_ci([of_seed.ude_rise for of_seed in data.bairds])} times its start.",
    )


REMARKS = (
    "Claims about the 795 questions are of the simulated robot; the small problems are exact.",
    "The form is that of White (2015); published figures could not be read, so shapes alone are compared.",
)
