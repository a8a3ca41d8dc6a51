"""Experiment `measures`: do RUPEE and UDE follow the errors that they estimate?

No figure of the thesis could be read: the claims are its shapes, with limits fixed before the run.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import numpy as np

from horde_agent.reproduce.chain.problem import CHANGED, SETTLED
from horde_agent.reproduce.experiment import Claims, Experiment, Finding
from horde_agent.reproduce.figure import COLOURS, new_canvas, save, style_axes
from horde_agent.reproduce.measures import problem
from horde_agent.reproduce.measures.problem import BETA0, DEVIATIONS, TIMES, TUNING_SEED, ChainCurves, Data, Tracking
from horde_agent.reproduce.result import Cell, Figure, join, mean_ci
from horde_agent.reproduce.study import Study
from horde_agent.types import Floats

LEAST_RANK, AREA, LEAST_RANK_OF_QUESTIONS, LEAST_RISE = 0.9, (0.5, 2.0), 0.5, 1.5
CALM, SLOPE = 0.95, (0.9, 1.1)
_FOLLOWS = f"Spearman's correlation of the 100-run mean curves at least {LEAST_RANK}, ratio of areas in {list(AREA)}."
CLAIMS = Claims("chapter 7")


def rank_correlation(x: Floats, y: Floats) -> float:
    """Return Spearman's correlation of two series of shape (n,); ties are ranked in order."""
    rank_x, rank_y = (np.argsort(np.argsort(values, kind="stable")) for values in (x, y))
    return float(np.corrcoef(rank_x, rank_y)[0, 1])


def _follows(curves: Sequence[ChainCurves]) -> Finding:
    words, parts = [], []
    for name, part in (("episodes 200-1000", SETTLED), ("after the reset", CHANGED)):
        rank = mean_ci([rank_correlation(c.rupee[part], c.true[part]) for c in curves])
        area = mean_ci([c.rupee[part].sum() / c.true[part].sum() for c in curves])
        parts += [rank.mean >= LEAST_RANK, AREA[0] <= area.mean <= AREA[1]]
        words.append(f"{name}: rank correlation {rank}, ratio of areas {area}")
    return Finding(f"{'; '.join(words)}.", parts)


@CLAIMS.add("On the chain RUPEE follows the true root MSPBE.", "shape only", _FOLLOWS)
def _follows_gtd(data: Data) -> Finding:
    return _follows(data.chains["GTD(lambda)"])


@CLAIMS.add(
    "RUPEE needs no GTD: it follows the root MSPBE of TD(lambda) as well.",
    "shape only",
    _FOLLOWS,
)
def _follows_td(data: Data) -> Finding:
    return _follows(data.chains["TD(lambda)"])


def before_reset(data: Data, life: Tracking) -> int:
    """Return the index of the last look before the reset."""
    return int(np.searchsorted(life.at, data.size.reset)) - 1


@CLAIMS.add(
    "On the 795 questions RUPEE ranks the questions as the NMSRE does, and both fall.",
    "shape only",
    f"Rank correlation at least {LEAST_RANK_OF_QUESTIONS} before the reset; both medians fall.",
)
def _questions(data: Data) -> Finding:
    ranks, falls = [], []
    for life in data.tracked:
        last, first = before_reset(data, life), int(np.argmax(np.isfinite(life.nmsre[:, life.judged]).all(axis=1)))
        pairs = [(life.rupee[k, life.judged], np.sqrt(life.nmsre[k, life.judged])) for k in (first, last)]
        ranks.append(rank_correlation(*pairs[1]))
        falls.append([float(np.median(values)) for pair in pairs for values in pair])
    rupee, error, rupee_last, error_last = np.mean(falls, axis=0)
    return Finding(
        f"Rank correlation over the questions {mean_ci(ranks)}. Medians, once every question was tested and before the "
        f"reset: RUPEE over the deviation of the return {rupee:.3g} and {rupee_last:.3g}, root NMSRE {error:.3g} and "
        f"{error_last:.3g}.",
        [float(np.mean(ranks)) >= LEAST_RANK_OF_QUESTIONS, bool(rupee_last < rupee), bool(error_last < error)],
    )


@CLAIMS.add(
    "RUPEE reacts to lost weights within 1/beta0 updates.",
    "shape only",
    f"The median over the questions reaches {LEAST_RISE:g} times its level before the reset in 1/beta0 updates.",
)
def _reacts(data: Data) -> Finding:
    rises, after = [], []
    for life in data.tracked:
        last, curve = before_reset(data, life), np.median(life.rupee[:, life.judged], axis=1)
        within = curve[(life.at > data.size.reset) & (life.at <= data.size.reset + 1.0 / BETA0)]
        rises.append(float(within.max() / curve[last]))
        exceeded = np.flatnonzero(curve[last + 1 :] >= LEAST_RISE * curve[last])
        after.append(float(life.at[last + 1 + exceeded[0]] - data.size.reset) if exceeded.size else np.inf)
    return Finding(
        f"Within {1.0 / BETA0:,.0f} updates the median RUPEE rises to {mean_ci(rises)} times its level before; it "
        f"exceeds {LEAST_RISE:g} times it after {join(after, ',.0f')} updates.",
        [float(np.mean(rises)) >= LEAST_RISE],
    )


@CLAIMS.add(
    "Under pure noise UDE settles, and RUPEE has a floor proportional to the noise.",
    "shape only",
    f"UDE below its threshold (99th percentile under noise, seed {TUNING_SEED}) in {CALM:.0%} of the last quarter; "
    f"slope of log RUPEE over log deviation in {list(SLOPE)}.",
)
def _noise(data: Data) -> Finding:
    calm = [float(np.mean(found.ude < data.threshold)) for found in data.noises]
    floor = np.mean([found.floor for found in data.noises], axis=0)
    slope = float(np.polyfit(np.log(DEVIATIONS), np.log(floor), 1)[0])
    return Finding(
        f"UDE below its threshold of {data.threshold:.3g} in {mean_ci(calm)} of the steps; RUPEE over the noise's "
        f"deviation: {join(floor / DEVIATIONS, '.3f')} at deviations {join(DEVIATIONS, 'g')}, slope {slope:.2f}.",
        [float(np.mean(calm)) >= CALM, SLOPE[0] <= slope <= SLOPE[1]],
    )


@CLAIMS.add(
    "Both announce the divergence of TD on Baird's star.",
    "shape only",
    f"Each exceeds {TIMES:g} times its mean of the first 100 steps before a weight exceeds 1,000, in every run.",
)
def _announced(data: Data) -> Finding:
    parts, words = [], []
    for name in ("rupee", "ude"):
        steps = np.concatenate([getattr(found, name) for found in data.bairds])
        limit = np.concatenate([found.weight for found in data.bairds])
        in_time = (steps >= 0) & (steps < limit)
        parts.append(bool(in_time.all()))
        when = f" after {np.median(steps[in_time]):,.0f} steps (median)" if in_time.any() else ""
        words.append(f"{name.upper()} exceeds {TIMES:g} times its start in {in_time.mean():.0%} of the runs{when}")
    largest = mean_ci([found.ude_rise for found in data.bairds])
    return Finding(
        f"{'; '.join(words)}; a weight exceeds 1,000 after {np.median(limit):,.0f} steps.",
        parts,
        f"UDE is divided by the standard deviation of the whole past of rho delta, which grows with the errors: it "
        f"rises to at most {largest} times its start.",
    )


def pictures(data: Data, folder: Path) -> list[Figure]:
    """Draw RUPEE beside the true root MSPBE on the chain, and beside the root NMSRE of every question."""
    canvas, (left, right) = new_canvas(9.0, 3.2, 2)
    for colour, (rule, curves) in zip(COLOURS, data.chains.items(), strict=False):
        left.plot(np.mean([c.true for c in curves], axis=0), color=colour, label=f"{rule}: root MSPBE")
        left.plot(np.mean([c.rupee for c in curves], axis=0), ":", color=colour, label="its RUPEE")
    life = data.tracked[0]
    k = before_reset(data, life)
    right.plot(np.sqrt(life.nmsre[k, life.judged]), life.rupee[k, life.judged], ".", ms=3, color=COLOURS[0])
    style_axes(left, "chain, mean of 100 runs", legend=True, xlabel="episodes", ylim=(0.0, None))
    labels = {"xlabel": "root NMSRE", "ylabel": "RUPEE / deviation of the return"}
    style_axes(right, "the 795 questions before the reset", legend=False, yscale="log", xlim=(0.0, 3.0), **labels)
    caption = (
        "Left: RUPEE follows the true error, also after theta is replaced at episode 1,000. Right: one dot a question."
    )
    return [save(canvas, folder / "measures.png", caption)]


def settings(study: Study, data: Data) -> dict[str, Cell]:
    """Return everything needed to repeat the measurement."""
    return {
        "seeds": study.seed_list,
        "tuning seed": TUNING_SEED,
        "steps of a life": data.size.steps,
        "learning step of the reset": data.size.reset,
        "RUPEE": "alpha_h = 5 alpha, beta0 = (1 - lambda) alpha tilings / 30",
        "UDE": "trace of rho delta at 10 alpha over its standard deviation so far",
        "chain": f"gamma {problem.GAMMA:g}, lambda 0",
    }


REMARKS = (
    "Claims about the 795 questions are of the simulated robot; the small problems are exact.",
    "The form is that of White (2015); published figures could not be read, so shapes alone are compared.",
)
EXPERIMENT = Experiment(
    "measures", "RUPEE and UDE", problem.gather, CLAIMS, pictures, lambda _: [], settings, REMARKS, problem.lives
)
