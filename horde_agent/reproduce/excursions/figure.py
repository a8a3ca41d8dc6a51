"""The NMSRE of all questions; tables of it by variant, and against the best off-line predictors."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from horde_agent.measures.two_pass_nmsre import Curve
from horde_agent.reproduce.excursions import problem
from horde_agent.reproduce.excursions.problem import Data
from horde_agent.reproduce.experiment import Table
from horde_agent.reproduce.figure import Picture
from horde_agent.reproduce.means import join, mean_ci
from horde_agent.runs.showing.pictures import nmsre_picture

N_WORST = 10


def pictures(data: Data) -> dict[str, Picture]:
    """Draw the NMSRE of each question."""
    seed, lesson = next(iter(data.main.items()))
    curves = [
        Curve(tests.policy, np.arange(1, len(tests.step) + 1), tests.nmsre())
        for tests in lesson.outcomes
    ]
    nmsre = nmsre_picture(curves, lesson.sound)
    caption = (
        f"The paper's figure 3: the NMSRE of each of {len(data.questions)} questions over the tests of its policy, in "
        f"the life of seed {seed}; bold: their mean; dashed: their median. The axis is logarithmic."
    )
    return {"nmsre": (nmsre, caption)}


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
    rows = []
    for seed, lesson in data.main.items():
        summary = problem.Summary.of(lesson.nmsre)
        most = problem.largest_contributor(lesson, data.channels)
        rows.append(
            {
                "life": f"seed {seed}",
                "median": summary.median,
                "mean": summary.mean,
                "below 1": f"{summary.below_1:.1%}",
                "set aside": lesson.n_diverged,
                "carried most by": f"{most.sensor}: {most.share:.0%}",
                "mean without it": most.mean_without,
                "medians of fifths": join(
                    problem.fifth_medians(lesson.curves().mean(axis=1)), ".2g"
                ),
            }
        )
    note = "The last column: the mean curve's median in each fifth of the tests."
    return Table.of("Final NMSRE of each life", rows, note)


def _by(data: Data, what: str, label: Sequence[str]) -> Table:
    """Return the final NMSRE by a label and gamma: median and mean over the questions, means over the seeds."""
    rows = []
    for name in dict.fromkeys(label):
        row: dict[str, object] = {what: name, "questions": label.count(name)}
        for gamma in np.unique(data.gamma):
            in_group = (np.array(label) == name) & (data.gamma == gamma)
            summaries = [
                problem.Summary.of(lesson.nmsre[in_group]) for lesson in data.main.values()
            ]
            row[f"median, gamma {gamma:g}"] = mean_ci([s.median for s in summaries])
            row[f"mean, gamma {gamma:g}"] = np.mean([s.mean for s in summaries])
        rows.append(row)
    return Table.of(f"Final NMSRE by {what} and gamma", rows)


def _worst(data: Data) -> Table:
    nmsre = np.array([lesson.nmsre for lesson in data.main.values()])
    variance = np.array([lesson.variance for lesson in data.main.values()]).mean(axis=0)
    worst = np.argsort(-np.nan_to_num(nmsre.mean(axis=0), nan=-1.0))[:N_WORST]
    rows = [
        {
            "question": data.questions[i].name,
            **{f"seed {seed}": value for seed, value in zip(data.main, nmsre[:, i], strict=True)},
            "variance of its returns": variance[i],
        }
        for i in worst
    ]
    return Table.of("The worst questions: final NMSRE", rows)


def _variants(data: Data) -> Table:
    rows = []
    for variant, by_seed in data.lessons.items():
        lessons = list(by_seed.values())
        summaries = [problem.Summary.of(lesson.nmsre) for lesson in lessons]
        below_1 = np.mean([s.below_1 for s in summaries])
        rows.append(
            {
                **variant._asdict(),
                "lives": len(lessons),
                "median": mean_ci([s.median for s in summaries]),
                "mean": mean_ci([s.mean for s in summaries]),
                "below 1": f"{below_1:.1%}" if np.isfinite(below_1) else "-",
                "set aside (by gamma)": [_aside(data, lesson) for lesson in lessons],
                "max trace": max(lesson.max_trace for lesson in lessons),
                "ms per update": np.mean([lesson.ms_per_update for lesson in lessons]),
            }
        )
    note = (
        f"Lives in the order of the seeds {join(data.main)}; mean and median are of the questions that were not set "
        "aside. Times belong to the machine and its neighbours."
    )
    return Table.of("Trace rules and w rules, offsets, larger alpha, smaller alpha_w", rows, note)


def _aside(data: Data, lesson: problem.VariantResult) -> str:
    """Return how many questions were set aside in a life, and at which gammas."""
    gammas = data.gamma[~lesson.sound]
    by_gamma = "; ".join(f"{gamma:g}: {(gammas == gamma).sum()}" for gamma in np.unique(gammas))
    if len(gammas):
        return f"{len(gammas)} ({by_gamma})"
    return "0"


def _offline(data: Data, what: str, label: Sequence[str]) -> Table:
    """Compare the demons with the best off-line predictors on the same held-out excursions."""
    is_held_out = data.offline.is_held_out
    first = data.first()
    late = is_held_out & (np.arange(len(is_held_out)) >= len(is_held_out) // 2)
    scores = {
        "demons, as lived": first.score(late, last=False),
        "demons, last weights": first.score(is_held_out),
        "LSTD(lambda)": data.offline.lstd,
        "ridge regression": data.offline.ridge,
        "mean return": data.offline.mean,
    }
    rows = []
    for name in [*dict.fromkeys(label), "all"]:
        in_group = np.array([name in (own, "all") for own in label])
        summaries = {who: problem.Summary.of(each[in_group]) for who, each in scores.items()}
        rows.append(
            {what: name, **{who: f"{s.median:.3g} / {s.mean:.3g}" for who, s in summaries.items()}}
        )
    note = (
        "Median / mean over the questions of mean squared error over variance, on the "
        f"{int(is_held_out.sum())} held-out excursions of the first life (30 %). "
        f"As lived: the predictions made then, on the {int(late.sum())} of them in the second half. Last "
        "weights: what the weights at the end of the life predict; no excursion is learned from. LSTD: the demons' own "
        "equations, solved on the whole learning stream. Ridge regression is shown the returns of the other excursions."
    )
    return Table.of(f"How far from the best linear predictor, by {what}", rows, note)
