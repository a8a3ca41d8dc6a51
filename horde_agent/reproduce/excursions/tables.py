"""The tables of the first experiment."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from horde_agent.reproduce.excursions.data import Data, average, carried, fifths, middle, over_lives, summary
from horde_agent.reproduce.result import Cell, Table
from horde_agent.reproduce.variants import Lesson, Variant
from horde_agent.types import Bools

N_WORST = 10


def tables(data: Data) -> list[Table]:
    """Return the experiment's tables, in the order in which they are read."""
    return [
        _by_seed(data),
        _by(data, "sensor group", data.group),
        _by(data, "policy", [data.interface.actions[a] for a in _any(data).action]),
        _worst(data),
        _rules(data),
        _steps(data),
        _offline(data, "gamma", [f"{gamma:g}" for gamma in _any(data).gamma]),
        _offline(data, "sensor group", data.group),
    ]


def _any(data: Data) -> Lesson:
    return next(iter(data.main.values()))


def _by_seed(data: Data) -> Table:
    header = (
        "life",
        "median",
        "mean",
        "below 1",
        "set aside",
        "carried most by",
        "mean without it",
        "medians of fifths",
    )
    rows: list[list[Cell]] = []
    for seed, lesson in data.main.items():
        found, most = summary(lesson, data.questions), carried(lesson, data.sensor)
        curve = fifths(lesson.curves().mean(axis=1))
        rows.append(
            [
                f"seed {seed}",
                found.median,
                found.mean,
                f"{found.below_1:.1%}",
                found.n_aside,
                f"{most.sensor}: {most.share:.0%}",
                most.mean_without,
                ", ".join(f"{value:.2g}" for value in curve),
            ]
        )
    return Table(
        "Final NMSRE of each life",
        header,
        rows,
        "The last column: the mean curve's median in each fifth of the tests.",
    )


def _by(data: Data, what: str, label: Sequence[str]) -> Table:
    """Return the final NMSRE by a label and gamma: median and mean over the questions, means over the seeds."""
    labels, gammas = list(dict.fromkeys(label)), np.unique(_any(data).gamma)
    rows: list[list[Cell]] = []
    for name in labels:
        row: list[Cell] = [name, label.count(name)]
        for gamma in gammas:
            mine = (np.array(label) == name) & (_any(data).gamma == gamma)
            row.append(over_lives([middle(lesson.nmsre[mine]) for lesson in data.main.values()]))
            row.append(float(np.mean([average(lesson.nmsre[mine]) for lesson in data.main.values()])))
        rows.append(row)
    columns = [f"{kind}, gamma {gamma:g}" for gamma in gammas for kind in ("median", "mean")]
    return Table(f"Final NMSRE by {what} and gamma", (what, "questions", *columns), rows)


def _worst(data: Data) -> Table:
    nmsre = np.array([lesson.nmsre for lesson in data.main.values()])
    variance = np.array([lesson.variance for lesson in data.main.values()]).mean(axis=0)
    worst = np.argsort(-np.nan_to_num(nmsre.mean(axis=0), nan=-1.0))[:N_WORST]
    rows = [[data.questions[i].name, *nmsre[:, i].tolist(), float(variance[i])] for i in worst]
    seeds = [f"seed {seed}" for seed in data.main]
    return Table("The worst questions: final NMSRE", ("question", *seeds, "variance of its returns"), rows)


def _rules(data: Data) -> Table:
    """Return the six pairs of rules, and how far their predictions lie from those of the paper's."""
    rows = [[variant.trace_rule, variant.w_rule, *_compared(data, variant)] for variant in data.rules]
    return Table("Trace rules and w rules", ("trace rule", "w rule", *_COMPARED), rows, _aside_note(data))


def _steps(data: Data) -> Table:
    variants = [data.paper, *data.larger_steps, *data.smaller_ratios]
    rows = [[f"{v.step_size:g}", f"{v.secondary_ratio:g}", *_compared(data, v)] for v in variants]
    note = "All under the trace rule and the w rule of the default. " + _aside_note(data)
    return Table("Larger alpha, smaller alpha_w", ("alpha x active", "alpha_w / alpha", *_COMPARED), rows, note)


_COMPARED = ("lives", "median", "mean", "below 1", "set aside (by gamma)", "max trace", "ms per update")


def _compared(data: Data, variant: Variant) -> list[Cell]:
    lessons = list(data.lessons[variant].values())
    found = [summary(lesson, data.questions) for lesson in lessons]
    below_1 = float(np.mean([s.below_1 for s in found]))
    return [
        len(lessons),
        over_lives([s.median for s in found]),
        over_lives([s.mean for s in found]),
        f"{below_1:.1%}" if np.isfinite(below_1) else "-",
        ", ".join(_aside(lesson) for lesson in lessons),
        max(lesson.max_trace for lesson in lessons),
        float(np.mean([1e3 * lesson.seconds / lesson.n_updates for lesson in lessons])),
    ]


def _aside(lesson: Lesson) -> str:
    """Return how many questions were set aside in a life, and at which gammas."""
    gammas = lesson.gamma[~lesson.sound]
    by_gamma = "; ".join(f"{gamma:g}: {(gammas == gamma).sum()}" for gamma in np.unique(gammas))
    return f"{len(gammas)} ({by_gamma})" if len(gammas) else "0"


def _aside_note(data: Data) -> str:
    seeds = ", ".join(map(str, data.main))
    return (
        f"Lives in the order of the seeds {seeds}; mean and median are of the questions that were not set aside. Times "
        "belong to the machine and its neighbours."
    )


def _offline(data: Data, what: str, label: Sequence[str]) -> Table:
    """Return the demons beside the best off-line predictors, all on the same held-out excursions."""
    first = _any(data)
    held, late = data.offline.is_held_out, _second_half(data.offline.is_held_out)
    scores = {
        "demons, as lived": first.score(held & late, last=False),
        "demons, last weights": first.score(held),
        "LSTD(lambda)": data.offline.lstd,
        "ridge regression": data.offline.ridge,
        "mean return": data.offline.mean,
    }
    rows: list[list[Cell]] = []
    for name in [*dict.fromkeys(label), "all"]:
        mine = np.array([name in (own, "all") for own in label])
        rows.append([name, *(f"{middle(s[mine]):.3g} / {average(s[mine]):.3g}" for s in scores.values())])
    note = (
        "Median / mean over the questions of mean squared error over variance, on the "
        f"{int(held.sum())} held-out excursions of the first life (30 %). "
        f"As lived: what was predicted then, on the {int((held & late).sum())} of them in the second half. Last "
        "weights: what the weights at the end of the life predict; no excursion is learned from. LSTD: the demons' own "
        "equations, solved on the whole learning stream. Ridge regression is shown the returns of the other excursions."
    )
    return Table(f"How far from the best linear predictor, by {what}", (what, *scores), rows, note)


def _second_half(which: Bools) -> Bools:
    return np.asarray(np.arange(len(which)) >= len(which) // 2)
