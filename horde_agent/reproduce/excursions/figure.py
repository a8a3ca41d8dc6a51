"""The NMSRE of all questions, by variant, and against the best off-line predictors."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
from matplotlib.axes import Axes

from horde_agent.measures.passes import Curve
from horde_agent.reproduce.claims import join, mean_ci
from horde_agent.reproduce.excursions import problem
from horde_agent.reproduce.excursions.problem import Data
from horde_agent.reproduce.experiment import Cell, Figure, Table
from horde_agent.reproduce.figure import new_canvas, save, style_axes
from horde_agent.runs.showing.pictures import COLOURS, nmsre_picture
from horde_agent.types import Floats

N_WORST = 10
_CEILING = 1e3  # upper limit of logarithmic axes
_AT_1: Any = {"color": "0.35", "linewidth": 0.9, "linestyle": ":"}


def pictures(data: Data, folder: Path) -> list[Figure]:
    """Draw all pictures into a folder and return their entries."""
    return [_questions(data, folder / "nmsre.png"), _draw_offline(data, folder / "offline.png")]


def _questions(data: Data, path: Path) -> Figure:
    seed, lesson = next(iter(data.main.items()))
    curves = [Curve(tests.policy, np.arange(1, len(tests.step) + 1), tests.nmsre()) for tests in lesson.outcomes]
    nmsre_picture(curves, lesson.sound, path)
    return Figure(
        path.name,
        f"The paper's figure 3: the NMSRE of each of {len(data.questions)} questions over the tests of its policy, in "
        f"the life of seed {seed}; bold: their mean; dashed: their median. The axis is logarithmic.",
    )


def _draw_offline(data: Data, path: Path) -> Figure:
    demons = data.first().score(data.offline.is_held_out)
    canvas, panels = new_canvas(9.0, 4.4, 2, sharey=True)
    predictors = (("LSTD(lambda)", data.offline.lstd), ("ridge regression", data.offline.ridge))
    for axes, (name, scores) in zip(panels, predictors, strict=True):
        _scatter(axes, data, scores, demons)
        axes.set_xlabel(f"{name}, off-line")
    panels[0].set_ylabel("demon, last weights")
    panels[1].legend(frameon=False, fontsize=8, loc="lower right")
    canvas.suptitle("mean squared error over variance, held-out excursions", fontsize=10)
    return save(
        canvas,
        path,
        "Each question's demon against the best off-line linear predictors with the same features, on the same "
        "held-out excursions of the first life. Above the diagonal the off-line predictor is better; dotted: the mean "
        "return.",
    )


def _scatter(axes: Axes, data: Data, x: Floats, y: Floats) -> None:
    shown = np.isfinite(x) & np.isfinite(y) & (x > 0) & (y > 0)
    low, high = float(min(x[shown].min(), y[shown].min())), float(max(x[shown].max(), y[shown].max()))
    for colour, gamma in zip(COLOURS, np.unique(data.gamma), strict=False):
        mine = shown & (data.gamma == gamma)
        axes.scatter(x[mine], y[mine], s=8, color=colour, alpha=0.55, linewidths=0, label=f"gamma {gamma:g}")
    limits = (low / 1.3, min(high * 1.3, _CEILING))
    axes.plot(limits, limits, color="0.4", linewidth=0.9)
    axes.axhline(1.0, **_AT_1)
    axes.axvline(1.0, **_AT_1)
    style_axes(axes, xscale="log", yscale="log", xlim=limits, ylim=limits, aspect="equal")


def tables(data: Data) -> list[Table]:
    """Return the experiment's tables, in the order in which they are read."""
    gammas = [f"{gamma:g}" for gamma in data.gamma]
    return [
        _by_seed(data),
        _by(data, "sensor group", [channel.group for channel in data.channels]),
        _by(data, "policy", [data.interface.actions[a] for a in data.action]),
        _worst(data),
        _variants(data),
        _offline(data, "gamma", gammas),
        _offline(data, "sensor group", [channel.group for channel in data.channels]),
    ]


def _by_seed(data: Data) -> Table:
    rows: list[dict[str, Cell]] = []
    for seed, lesson in data.main.items():
        found, most = problem.Summary.of(lesson.nmsre), problem.largest_contributor(lesson, data.channels)
        rows.append(
            {
                "life": f"seed {seed}",
                "median": found.median,
                "mean": found.mean,
                "below 1": f"{found.below_1:.1%}",
                "set aside": lesson.n_diverged,
                "carried most by": f"{most.sensor}: {most.share:.0%}",
                "mean without it": most.mean_without,
                "medians of fifths": join(problem.fifth_medians(lesson.curves().mean(axis=1)), ".2g"),
            }
        )
    note = "The last column: the mean curve's median in each fifth of the tests."
    return Table.of("Final NMSRE of each life", rows, note)


def _by(data: Data, what: str, label: Sequence[str]) -> Table:
    """Return the final NMSRE by a label and gamma: median and mean over the questions, means over the seeds."""
    rows: list[dict[str, Cell]] = []
    for name in dict.fromkeys(label):
        row: dict[str, Cell] = {what: name, "questions": label.count(name)}
        for gamma in np.unique(data.gamma):
            mine = (np.array(label) == name) & (data.gamma == gamma)
            found = [problem.Summary.of(lesson.nmsre[mine]) for lesson in data.main.values()]
            row[f"median, gamma {gamma:g}"] = str(mean_ci([s.median for s in found]))
            row[f"mean, gamma {gamma:g}"] = float(np.mean([s.mean for s in found]))
        rows.append(row)
    return Table.of(f"Final NMSRE by {what} and gamma", rows)


def _worst(data: Data) -> Table:
    nmsre = np.array([lesson.nmsre for lesson in data.main.values()])
    variance = np.array([lesson.variance for lesson in data.main.values()]).mean(axis=0)
    worst = np.argsort(-np.nan_to_num(nmsre.mean(axis=0), nan=-1.0))[:N_WORST]
    rows: list[dict[str, Cell]] = [
        {
            "question": data.questions[i].name,
            **{f"seed {seed}": float(value) for seed, value in zip(data.main, nmsre[:, i], strict=True)},
            "variance of its returns": float(variance[i]),
        }
        for i in worst
    ]
    return Table.of("The worst questions: final NMSRE", rows)


def _variants(data: Data) -> Table:
    rows = [{**variant._asdict(), **_compared(data, variant)} for variant in data.lessons]
    note = (
        f"Lives in the order of the seeds {join(data.main)}; mean and median are of the questions that were not set "
        "aside. Times belong to the machine and its neighbours."
    )
    return Table.of("Trace rules and w rules, larger alpha, smaller alpha_w", rows, note)


def _compared(data: Data, variant: problem.Variant) -> dict[str, Cell]:
    lessons = list(data.lessons[variant].values())
    found = [problem.Summary.of(lesson.nmsre) for lesson in lessons]
    below_1 = float(np.mean([s.below_1 for s in found]))
    return {
        "lives": len(lessons),
        "median": str(mean_ci([s.median for s in found])),
        "mean": str(mean_ci([s.mean for s in found])),
        "below 1": f"{below_1:.1%}" if np.isfinite(below_1) else "-",
        "set aside (by gamma)": join(_aside(data, lesson) for lesson in lessons),
        "max trace": max(lesson.max_trace for lesson in lessons),
        "ms per update": float(np.mean([lesson.ms_per_update for lesson in lessons])),
    }


def _aside(data: Data, lesson: problem.VariantResult) -> str:
    """Return how many questions were set aside in a life, and at which gammas."""
    gammas = data.gamma[~lesson.sound]
    by_gamma = "; ".join(f"{gamma:g}: {(gammas == gamma).sum()}" for gamma in np.unique(gammas))
    return f"{len(gammas)} ({by_gamma})" if len(gammas) else "0"


def _offline(data: Data, what: str, label: Sequence[str]) -> Table:
    """Compare the demons with the best off-line predictors on the same held-out excursions."""
    held, first = data.offline.is_held_out, data.first()
    late = held & (np.arange(len(held)) >= len(held) // 2)
    scores = {
        "demons, as lived": first.score(late, last=False),
        "demons, last weights": first.score(held),
        "LSTD(lambda)": data.offline.lstd,
        "ridge regression": data.offline.ridge,
        "mean return": data.offline.mean,
    }
    rows: list[dict[str, Cell]] = []
    for name in [*dict.fromkeys(label), "all"]:
        mine = np.array([name in (own, "all") for own in label])
        found = {who: problem.Summary.of(each[mine]) for who, each in scores.items()}
        rows.append({what: name, **{who: f"{s.median:.3g} / {s.mean:.3g}" for who, s in found.items()}})
    note = (
        "Median / mean over the questions of mean squared error over variance, on the "
        f"{int(held.sum())} held-out excursions of the first life (30 %). "
        f"As lived: the predictions made then, on the {int(late.sum())} of them in the second half. Last "
        "weights: what the weights at the end of the life predict; no excursion is learned from. LSTD: the demons' own "
        "equations, solved on the whole learning stream. Ridge regression is shown the returns of the other excursions."
    )
    return Table.of(f"How far from the best linear predictor, by {what}", rows, note)
