"""The MSPBE estimates of every policy, and the traces under each rule."""

from __future__ import annotations

from itertools import product

import numpy as np
from matplotlib.axes import Axes
from matplotlib.collections import LineCollection

from horde_agent.reproduce.experiment import Table
from horde_agent.reproduce.figures import COLOURS, Picture, new_canvas, style_axes
from horde_agent.reproduce.policies import problem
from horde_agent.reproduce.policies.claims import PAPER_CYCLE_MS, fall
from horde_agent.reproduce.policies.problem import GAMMAS, LAM, Data, PolicyScores
from horde_agent.reproduce.runner import n_cores
from horde_agent.reproduce.stats import join

_MOST_CURVES = 1_000


def pictures(data: Data) -> dict[str, Picture]:
    """Draw the estimates of the first life's questions, and of the many."""
    return {"mspbe-1000": _scores(next(iter(data.few.values()))), "mspbe-10000": _scores(data.many)}


def _scores(course: PolicyScores) -> Picture:
    canvas, (left, right) = new_canvas(12.0, 4.2, 2, sharex=True)
    n_shown = _draw_questions(left, course)
    _draw_means(right, course)
    legend = {"frameon": True, "framealpha": 0.8, "edgecolor": "none"}
    for axes, label, has_legend in (
        (left, "scalar MSPBE estimate", False),
        (right, "mean over its own peak", legend),
    ):
        axes.axhline(0.0, color="0.35", linewidth=0.8)
        style_axes(
            axes,
            legend=has_legend,
            xlim=(0, course.step[-1]),
            xlabel="learning steps",
            ylabel=label,
        )
    left.ticklabel_format(axis="y", style="sci", scilimits=(0, 0))
    n = course.gamma.size
    if n_shown == n:
        shown = f"every one of {n:,} questions"
    else:
        shown = f"{n_shown:,} of {n:,} questions"
    caption = (
        f"The scalar MSPBE estimate of {shown}, each about a Gibbs policy of its own (left; black: the mean of all), "
        "and the mean of each gamma over that mean's own peak (right). The left axis leaves out a thousandth of the "
        "values at either end."
    )
    return canvas, caption


def _draw_questions(axes: Axes, course: PolicyScores) -> int:
    """Draw curves in the colour of their gamma and the mean; return how many."""
    sound = np.flatnonzero(course.is_sound)
    shown = sound[:: max(-(-sound.size // _MOST_CURVES), 1)]
    for gamma, colour in zip(GAMMAS, COLOURS, strict=False):
        demons = shown[course.gamma[shown] == gamma]
        curves = [np.column_stack([course.step, course.mspbe[:, k]]) for k in demons]
        axes.add_collection(LineCollection(curves, colors=colour, linewidths=0.5, alpha=0.18))
    low, high = np.quantile(course.mspbe[:, shown], [0.001, 0.999]) if shown.size else (0.0, 1.0)
    axes.set_ylim(min(low, 0.0), 1.05 * max(high, 1e-30))
    axes.plot(course.step, course.mspbe[:, sound].mean(axis=1), color="black", linewidth=2.6)
    return int(shown.size)


def _draw_means(axes: Axes, course: PolicyScores) -> None:
    shown = [
        (course.gamma == g, c, 1.3, f"gamma {g:g}") for g, c in zip(GAMMAS, COLOURS, strict=False)
    ]
    for mine, colour, width, label in [*shown, (course.gamma >= 0, "black", 2.6, "all")]:
        chosen = course.is_sound & mine
        if chosen.any():
            mean = course.mspbe[:, chosen].mean(axis=1)
            axes.plot(course.step, mean / mean.max(), color=colour, linewidth=width, label=label)


def tables(data: Data) -> list[Table]:
    """Return the experiment's tables, in the order in which they are read."""
    return [_seeds(data), _cycles(data), _traces(data)]


def _seeds(data: Data) -> Table:
    rows = []
    named = {f"{problem.FEW:,}, seed {seed}": course for seed, course in data.few.items()}
    for (name, course), gamma in product(
        {**named, f"{problem.MANY:,}": data.many}.items(), (None, *GAMMAS)
    ):
        group = course.of(np.full(course.gamma.shape, gamma is None) | (course.gamma == gamma))
        if not group.gamma.size:
            continue
        falls = fall(group)
        sound = group.mspbe[:, group.is_sound]
        rows.append(
            {
                "policies": name,
                "gamma": "all" if gamma is None else f"{gamma:g}",
                "questions": group.gamma.size,
                "peak of mean": sound.mean(axis=1).max() if sound.size else None,
                "at step": falls.peak_at,
                "end / peak": falls.of_mean,
                "% fallen": 100 * falls.share,
                "% below 0": 100 * falls.negative,
            }
        )
    note = "Fallen: in the mean of the last tenth nearer to 0 than half of its peak."
    return Table.of("Scalar MSPBE estimates", rows, note)


def _cycles(data: Data) -> Table:
    rows = [
        {"policies": n, **{key: times[key] for key in ("p50", "p99", "max")}}
        for n, times in data.cycles.items()
    ]
    note = f"Measured here, on {n_cores()} cores; the paper reports {PAPER_CYCLE_MS:g} ms for {problem.FEW:,} on 4."
    return Table.of("One cycle, in milliseconds: code the observation, learn, predict", rows, note)


def _traces(data: Data) -> Table:
    rows = []
    for (rule, course), (k, gamma) in product(data.rules.items(), enumerate(GAMMAS)):
        group = course.of(course.gamma == gamma)
        falls = fall(group)
        rows.append(
            {
                "trace rule": rule,
                "gamma": f"{gamma:g}",
                "largest |e|": course.max_trace[-1, k],
                "set aside": course.n_diverged[-1, k],
                "questions": group.gamma.size,
                "end / peak": falls.of_mean,
                "% fallen": 100 * falls.share,
            }
        )
    quantiles = np.quantile(data.growth, [0.05, 0.5, 0.95])
    factors = "; ".join(
        f"gamma {g:g}: {join(quantiles * (g * LAM) ** 2, '.2f')}" for g in GAMMAS[1:]
    )
    note = (
        "Factor by which the second moment of a policy's plain trace grows per step (5 %, median, 95 % of the "
        f"policies): {factors}. The last two columns as in the table of estimates; a capped trace belongs "
        "to no Bellman operator, so they do not estimate an MSPBE."
    )
    return Table.of("Traces under each rule", rows, note)
