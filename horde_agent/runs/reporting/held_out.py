"""Scores on held-out rows of a data set, in the report and in comparisons of runs."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Sequence
from statistics import median
from typing import NamedTuple

from horde_agent.html import element, section, table
from horde_agent.runs.storage.question_table import HeldOutScore
from horde_agent.scoring.nmsre import nmsre_text

N_SHOWN = 12
_Z = 1.96  # of a 95 % interval

EXPLANATION = (
    "By importance sampling, per decision and weighted, on rows that the weights had not learned "
    "from: the NMSRE under the question's policy with a 95 % interval over episodes, and the effective "
    "sample size after one time scale. Persistence: the present reading lasts. A question is judged from "
    "a size of 20 on."
)


def held_out_section(scores: Sequence[HeldOutScore]) -> str:
    """Return the scores by policy and time scale, and why questions were not judged; "" without scores."""
    if not scores:
        return ""
    by_family: dict[tuple[str, str], list[HeldOutScore]] = {}
    for score in scores:
        gamma = ""
        if not math.isnan(score.gamma):
            gamma = f"{score.gamma:g}"
        by_family.setdefault((score.policy, gamma), []).append(score)
    rows = []
    for (policy, gamma), family in by_family.items():
        judged = [score for score in family if score.is_judged]
        sizes = [score.effective_size for score in family if not math.isnan(score.effective_size)]
        size = "-"
        if sizes:
            size = f"{median(sizes):,.0f}"
        nmsre = "-"
        persistence = "-"
        if judged:
            nmsre = nmsre_text(median(score.nmsre for score in judged))
            persistence = nmsre_text(median(score.nmsre_of_persistence for score in judged))
        rows.append([policy, gamma, str(len(family)), str(len(judged)), size, nmsre, persistence])
    head = ["policy", "gamma", "questions", "judged", "effective size", "median NMSRE"]
    head.append("of persistence")
    parts = [element("p", EXPLANATION), table(head, rows)]
    reasons = Counter(score.reason for score in scores if not score.is_judged)
    if reasons:
        texts = [[reason, str(n)] for reason, n in reasons.most_common(N_SHOWN)]
        parts += [element("h3", "Not judged"), table(["reason", "questions"], texts)]
    worst = sorted((score for score in scores if score.is_judged), key=lambda score: -score.nmsre)
    shown = [_cells(score) for score in worst[:N_SHOWN]]
    if shown:
        names = ["question", "NMSRE", "of persistence", "95 % from", "to", "effective size"]
        parts += [element("h3", "Worst"), table(names, shown)]
    return section("Held-out rows", *parts)


def _cells(score: HeldOutScore) -> list[str]:
    numbers = (score.nmsre, score.nmsre_of_persistence, score.low, score.high)
    return [score.question, *map(nmsre_text, numbers), f"{score.effective_size:,.0f}"]


class PairedDifference(NamedTuple):
    """The difference of a question's NMSRE in two runs on the same rows, with its 95 % interval."""

    question: str
    first: float
    second: float
    low: float
    high: float

    @property
    def difference(self) -> float:
        """The second run's NMSRE minus the first one's."""
        return self.second - self.first


def paired(first: Sequence[HeldOutScore], second: Sequence[HeldOutScore]) -> list[PairedDifference]:
    """Return the differences of the questions that both runs judged on the same stretches.

    The groups of stretches are the same, so the difference of their influences gives its error.
    """
    by_name = {score.question: score for score in first if score.is_judged}
    differences = []
    for score in second:
        score_of_first = by_name.get(score.question)
        if score_of_first is None or not score.is_judged:
            continue
        stretches = (score.n_stretches, score.effective_size, len(score.by_group))
        if stretches != (
            score_of_first.n_stretches,
            score_of_first.effective_size,
            len(score_of_first.by_group),
        ):
            continue
        changes = [a - b for a, b in zip(score.by_group, score_of_first.by_group, strict=True)]
        error = math.sqrt(sum(change**2 for change in changes)) / len(changes)
        difference = score.nmsre - score_of_first.nmsre
        differences.append(
            PairedDifference(
                question=score.question,
                first=score_of_first.nmsre,
                second=score.nmsre,
                low=difference - _Z * error,
                high=difference + _Z * error,
            )
        )
    return differences


def comparison_section(
    names: Sequence[str], first: Sequence[HeldOutScore], second: Sequence[HeldOutScore]
) -> str:
    """Return a section that compares two runs, of these names, on held-out rows; "" if none is shared."""
    differences = paired(first, second)
    if not differences:
        return ""
    better = [one for one in differences if one.high < 0.0]
    worse = [one for one in differences if one.low > 0.0]
    sentence = (
        f"Of {len(differences)} questions judged on the same held-out rows, {names[1]} answers "
        f"{len(better)} better and {len(worse)} worse than {names[0]}, by 95 % intervals of the paired "
        f"difference; the others do not differ beyond chance. The median difference of NMSRE is "
        f"{median(one.difference for one in differences):.3g}."
    )
    ordered = sorted(differences, key=lambda one: -abs(one.difference))[:N_SHOWN]
    rows = []
    for one in ordered:
        ends = f"{one.difference:.3g} ({one.low:.3g} to {one.high:.3g})"
        rows.append([one.question, nmsre_text(one.first), nmsre_text(one.second), ends])
    head = ["question", *names, "difference"]
    title = f"{names[1]} against {names[0]} on held-out rows"
    return section(title, element("p", sentence), table(head, rows))
