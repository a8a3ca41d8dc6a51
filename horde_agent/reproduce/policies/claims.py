"""Experiment `policies`: a thousand random Gibbs policies, and ten thousand, learned from one behaviour.

Progress is seen by the scalar MSPBE estimates alone: no policy is ever followed. Source: White, Modayil & Sutton
(2012), section 6.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

import numpy as np
from matplotlib.axes import Axes
from matplotlib.collections import LineCollection

from horde_agent.reproduce.experiment import Claims, Experiment, Finding
from horde_agent.reproduce.figure import COLOURS, new_canvas, save, style_axes
from horde_agent.reproduce.lives import LifeSpec
from horde_agent.reproduce.parallel import n_cores
from horde_agent.reproduce.policies.problem import FEW, GAMMAS, MANY, SIZES, Data, PolicyScores, gather
from horde_agent.reproduce.result import Cell, Figure, Table, join, mean_ci
from horde_agent.reproduce.study import Study

LAM = 0.9
FALLEN, SHARE_FALLEN = 0.5, 0.9
PAPER_CYCLE_MS, PERIOD_MS = 85.0, 100.0
W_SETTLES = 10_000
"""Learning steps after which w has moved: 1 / (alpha_w x active features) = 1 / (0.001 x 0.1)."""

# ---- what a fall is -------------------------------------------------------------------------------------------------


class Fall(NamedTuple):
    """How far estimates fell from their peaks."""

    of_mean: float  # mean over the questions in the last tenth of the course, over that mean's peak
    share: float  # share of the questions whose mean of the last tenth is nearer to 0 than half of their peak
    negative: float  # share of the questions with an estimate below 0 then, which no MSPBE is
    peak_at: int  # learning step of the mean's peak


def fall(course: PolicyScores) -> Fall:
    """Measure the fall over the questions that did not diverge; 0 if there are none."""
    curves = course.mspbe[:, course.is_sound].astype(np.float64)
    if not curves.shape[1]:
        return Fall(np.nan, 0.0, 0.0, 0)
    late = curves[-max(len(curves) // 10, 1) :].mean(axis=0)
    mean, peaks = curves.mean(axis=1), curves.max(axis=0)
    share = float((np.abs(late) < FALLEN * peaks).mean())
    negative = float((late < 0).mean())
    return Fall(float(late.mean() / mean.max()), share, negative, int(course.step[mean.argmax()]))


def _has_fallen(found: Fall) -> list[bool]:
    return [abs(found.of_mean) < FALLEN, found.share >= SHARE_FALLEN]


_FALL_RULE = (
    f"the mean over the questions ends (last tenth) nearer to 0 than {FALLEN:.0%} of its peak; at least "
    f"{SHARE_FALLEN:.0%} of the questions end nearer to 0 than half of their own peak; no question is set aside"
)


def _cause(falls: Sequence[Fall], n_steps: int) -> str:
    """Return what the estimates cannot say: nothing yet, or something below 0."""
    if n_steps < 3 * W_SETTLES:
        return f"{n_steps:,} steps are too few to judge: for some {W_SETTLES:,} the estimates still rise with w."
    negative = float(np.mean([found.negative for found in falls]))
    if negative < 0.05:
        return ""
    return (
        f"{negative:.0%} of the estimates end below 0, as no MSPBE is: the estimate takes w for settled, and w, with a "
        "thousandth of theta's step size, lags behind theta."
    )


# ---- claims ---------------------------------------------------------------------------------------------------------


def _n_diverged(course: PolicyScores) -> int:
    return int(course.n_diverged[-1].sum())


CLAIMS = Claims("section 6, last figure")


@CLAIMS.add(
    f"The estimates show learning progress for each of {FEW:,} policies.",
    "the curves provide a clear indication of learning progress for each prediction",
    f"For every seed {_FALL_RULE}.",
)
def _progress(data: Data) -> Finding:
    falls = [fall(course) for course in data.few.values()]
    n_diverged = sum(map(_n_diverged, data.few.values()))
    parts = [all(part) for part in zip(*(_has_fallen(f) for f in falls), strict=True)]
    return Finding(
        f"The mean ends at {mean_ci([f.of_mean for f in falls])} of its peak (at step "
        f"{join([f.peak_at for f in falls], ',')}); {mean_ci([100 * f.share for f in falls])} % of the questions end "
        f"nearer to 0 than half of their own; {n_diverged} set aside.",
        [*parts, n_diverged == 0],
        _cause(falls, data.size.life),
    )


@CLAIMS.add(
    f"{FEW:,} off-policy questions about as many policies are learned in real time.",
    f"a cycle of {PAPER_CYCLE_MS:g} ms on a 4-core desktop, within {PERIOD_MS:g} ms",
    f"p50 at most {PAPER_CYCLE_MS:g} ms, p99 at most {PERIOD_MS:g} ms.",
    source="section 6",
)
def _cycle(data: Data) -> Finding:
    times = data.cycles[FEW]
    return Finding(
        f"Coding the observation, learning and predicting: p50 {times['p50']:.2f} ms, p99 {times['p99']:.2f} ms, at "
        f"most {times['max']:.1f} ms, on {n_cores()} cores.",
        [times["p50"] <= PAPER_CYCLE_MS, times["p99"] <= PERIOD_MS],
    )


@CLAIMS.add(
    f"The same with {MANY:,} policies.",
    "significantly increased scaling can be obtained with more computational resources",
    f"On the first life {_FALL_RULE}; p99 of a cycle at most {PERIOD_MS:g} ms.",
    source="section 8",
)
def _many(data: Data) -> Finding:
    found, times, n_diverged = fall(data.many), data.cycles[MANY], _n_diverged(data.many)
    return Finding(
        f"The mean ends at {found.of_mean:.2f} of its peak (at step {found.peak_at:,}); {found.share:.1%} of the "
        f"questions end nearer to 0 than half of their own; {n_diverged} set aside. A cycle takes p50 "
        f"{times['p50']:.1f} ms, p99 {times['p99']:.1f} ms.",
        [*_has_fallen(found), n_diverged == 0, times["p99"] <= PERIOD_MS],
        _cause([found], data.size.many),
    )


@CLAIMS.add(
    "The pseudo-code's own trace learns them without divergence.",
    "GTD(lambda) as printed; no divergence is spoken of",
    "For each gamma no question is set aside under the trace rule plain.",
    source="sections 2 and 6",
)
def _plain(data: Data) -> Finding:
    growth = {gamma: np.median(data.growth) * (gamma * LAM) ** 2 for gamma in GAMMAS}
    plain = data.rules["plain"]
    aside, largest = plain.n_diverged[-1].tolist(), plain.max_trace[-1].tolist()
    return Finding(
        f"In {data.size.rules:,} steps, at gamma {join(GAMMAS, 'g')}: largest |e| {join(largest, ',.0f')}; set aside "
        f"{join(aside)} of {join((plain.gamma == g).sum() for g in GAMMAS)}.",
        [n == 0 for n in aside],
        "The second moment of the median policy's trace is multiplied per step by "
        + ", ".join(f"{factor:.2f} (gamma {gamma:g})" for gamma, factor in growth.items())
        + "; from 1 on its variance is infinite. clipped and capped bound the trace.",
    )


# ---- figures --------------------------------------------------------------------------------------------------------


_MOST_CURVES = 1_000


def pictures(data: Data, folder: Path) -> list[Figure]:
    """Draw all pictures into a folder and return their entries."""
    return [
        _scores(next(iter(data.few.values())), folder / "mspbe-1000.png"),
        _scores(data.many, folder / "mspbe-10000.png"),
        _draw_traces(data.rules, folder / "traces.png"),
    ]


def _scores(course: PolicyScores, path: Path) -> Figure:
    canvas, (left, right) = new_canvas(12.0, 4.2, 2, sharex=True)
    n_shown = _draw_questions(left, course)
    _draw_means(right, course)
    legend = {"frameon": True, "framealpha": 0.8, "edgecolor": "none"}
    for axes, label, has_legend in ((left, "scalar MSPBE estimate", False), (right, "mean over its own peak", legend)):
        axes.axhline(0.0, color="0.35", linewidth=0.8)
        style_axes(axes, legend=has_legend, xlim=(0, course.step[-1]), xlabel="learning steps", ylabel=label)
    left.ticklabel_format(axis="y", style="sci", scilimits=(0, 0))
    n = course.gamma.size
    shown = f"every one of {n:,} questions" if n_shown == n else f"{n_shown:,} of {n:,} questions"
    return save(
        canvas,
        path,
        f"The scalar MSPBE estimate of {shown}, each about a Gibbs policy of its own (left; black: the mean of all), "
        "and the mean of each gamma over that mean's own peak (right). The left axis leaves out a thousandth of the "
        "values at either end.",
    )


def _draw_questions(axes: Axes, course: PolicyScores) -> int:
    """Draw curves in the colour of their gamma and the mean; return how many."""
    sound = np.flatnonzero(course.is_sound)
    shown = sound[:: max(-(-sound.size // _MOST_CURVES), 1)]
    for gamma, colour in zip(GAMMAS, COLOURS, strict=False):
        mine = shown[course.gamma[shown] == gamma]
        curves = [np.column_stack([course.step, course.mspbe[:, k]]) for k in mine]
        axes.add_collection(LineCollection(curves, colors=colour, linewidths=0.5, alpha=0.18))
    low, high = np.quantile(course.mspbe[:, shown], [0.001, 0.999]) if shown.size else (0.0, 1.0)
    axes.set_ylim(min(low, 0.0), 1.05 * max(high, 1e-30))
    axes.plot(course.step, course.mspbe[:, sound].mean(axis=1), color="black", linewidth=2.6)
    return int(shown.size)


def _draw_means(axes: Axes, course: PolicyScores) -> None:
    shown = [(course.gamma == g, c, 1.3, f"gamma {g:g}") for g, c in zip(GAMMAS, COLOURS, strict=False)]
    for mine, colour, width, label in [*shown, (course.gamma >= 0, "black", 2.6, "all")]:
        chosen = course.is_sound & mine
        if chosen.any():
            mean = course.mspbe[:, chosen].mean(axis=1)
            axes.plot(course.step, mean / mean.max(), color=colour, linewidth=width, label=label)


def _draw_traces(rules: Mapping[str, PolicyScores], path: Path) -> Figure:
    canvas, panels = new_canvas(12.0, 3.2, len(GAMMAS), sharey=True)
    for k, (axes, gamma) in enumerate(zip(panels, GAMMAS, strict=True)):
        for colour, (rule, course) in zip(COLOURS, rules.items(), strict=False):
            axes.plot(course.step, course.max_trace[:, k], color=colour, linewidth=1.6, label=rule)
        style_axes(axes, f"gamma {gamma:g}", legend=k == 0, yscale="log", xlabel="learning steps")
        axes.locator_params(axis="x", nbins=4)
    panels[0].set_ylabel("largest |e| so far")
    return save(canvas, path, "The largest entry of any trace so far, under each trace rule, on the first life.")


# ---- tables ---------------------------------------------------------------------------------------------------------


def tables(data: Data) -> list[Table]:
    """Return the experiment's tables, in the order in which they are read."""
    return [_seeds(data), _cycles(data), _traces(data)]


def _seeds(data: Data) -> Table:
    rows: list[dict[str, Cell]] = []
    named = {f"{FEW:,}, seed {seed}": course for seed, course in data.few.items()}
    for name, course in {**named, f"{MANY:,}": data.many}.items():
        for gamma in (None, *GAMMAS):
            mine = course.of(np.full(course.gamma.shape, gamma is None) | (course.gamma == gamma))
            if not mine.gamma.size:
                continue
            found, sound = fall(mine), mine.mspbe[:, mine.is_sound]
            rows.append(
                {
                    "policies": name,
                    "gamma": "all" if gamma is None else f"{gamma:g}",
                    "questions": mine.gamma.size,
                    "peak of mean": float(sound.mean(axis=1).max()) if sound.size else None,
                    "at step": found.peak_at,
                    "end / peak": found.of_mean,
                    "% fallen": 100 * found.share,
                    "% below 0": 100 * found.negative,
                }
            )
    note = "Fallen: in the mean of the last tenth nearer to 0 than half of its own peak."
    return Table.of("Scalar MSPBE estimates", rows, note)


def _cycles(data: Data) -> Table:
    rows = [{"policies": n, **{key: times[key] for key in ("p50", "p99", "max")}} for n, times in data.cycles.items()]
    note = f"Measured here, on {n_cores()} cores; the paper reports {PAPER_CYCLE_MS:g} ms for {FEW:,} on 4."
    return Table.of("One cycle, in milliseconds: code the observation, learn, predict", rows, note)


def _traces(data: Data) -> Table:
    rows: list[dict[str, Cell]] = []
    for rule, course in data.rules.items():
        for k, gamma in enumerate(GAMMAS):
            mine = course.of(course.gamma == gamma)
            found = fall(mine)
            rows.append(
                {
                    "trace rule": rule,
                    "gamma": f"{gamma:g}",
                    "largest |e|": float(course.max_trace[-1, k]),
                    "set aside": int(course.n_diverged[-1, k]),
                    "questions": mine.gamma.size,
                    "end / peak": found.of_mean,
                    "% fallen": 100 * found.share,
                }
            )
    quantiles = np.quantile(data.growth, [0.05, 0.5, 0.95])
    said = "; ".join(f"gamma {g:g}: {join(quantiles * (g * LAM) ** 2, '.2f')}" for g in GAMMAS[1:])
    return Table.of(
        "Traces under each rule",
        rows,
        "Factor by which the second moment of a policy's plain trace grows per step (5 %, median, 95 % of the "
        f"policies): {said}. The last two columns as in the table of estimates; a capped trace belongs to no Bellman "
        "operator, so they do not estimate an MSPBE.",
    )


def settings(study: Study, data: Data) -> dict[str, Cell]:
    """Return everything needed to repeat the experiment."""
    return {
        "steps of each life, all of them learned from": data.size.life,
        "steps for the other trace rules": data.size.rules,
        f"steps for {MANY:,} policies": data.size.many,
        "policies": "60 of 30,325 parameters, each U[0, 1]",
        "gamma": join(GAMMAS, "g"),
        "lambda": LAM,
        "alpha": "0.1 / 457",
        "alpha_w": "0.001 alpha",
        "trace rule, w rule": "clipped, every-step",
        "tau of the estimates, in steps": 10_000,
        "seeds": study.seed_list,
    }


def _lives(study: Study) -> list[LifeSpec]:
    return [LifeSpec(seed, SIZES[study.scale].life, "behaviour") for seed in study.seeds]


REMARKS = [
    "Every question learns on every step: a Gibbs policy never gives an action no probability.",
    f"The estimates start at 0 and rise while w learns, for some {W_SETTLES:,} steps; a fall is measured from "
    "their peak. MSPBE estimates of different trace rules measure different objectives and are not compared.",
    "The trace rules are compared on the first life, over {data.size.rules:,} steps.",
]
TITLE = "A thousand policies, and ten thousand, learned from one behaviour"
EXPERIMENT = Experiment("policies", TITLE, gather, CLAIMS, pictures, tables, settings, REMARKS, _lives)
