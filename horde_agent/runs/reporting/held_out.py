"""Scores on held-out rows of a data set, in the report and in comparisons of runs."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from statistics import median
from typing import NamedTuple

from horde_agent.html import element, section, table
from horde_agent.scoring.nmsre import nmsre_text

N_SHOWN = 12
_Z = 1.96  # of a 95 % interval
_SHOWN = ("nmsre", "nmsre_of_persistence", "low", "high")
_Line = Mapping[str, str]

EXPLANATION = (
    "By importance sampling, per decision and weighted, on rows that the weights had not learned "
    "from: the NMSRE under the question's policy with a 95 % interval over episodes, and the effective "
    "sample size after one time scale. Persistence: the present reading lasts. A question is judged from "
    "a size of 20 on."
)


def held_out_section(lines: Sequence[_Line]) -> str:
    """Return the scores by policy and time scale, and why questions were not judged; "" without lines."""
    if not lines:
        return ""
    by_family: dict[tuple[str, str], list[_Line]] = {}
    for line in lines:
        by_family.setdefault((line["policy"], line["gamma"]), []).append(line)
    rows = []
    for (policy, gamma), family in by_family.items():
        judged = [line for line in family if line["is_judged"] == "1"]
        sizes = [float(line["effective_size"]) for line in family if line["effective_size"]]
        size = "-"
        if sizes:
            size = f"{median(sizes):,.0f}"
        score = "-"
        persistence = "-"
        if judged:
            score = nmsre_text(median(float(line["nmsre"]) for line in judged))
            persistence = nmsre_text(median(float(line["nmsre_of_persistence"]) for line in judged))
        rows.append([policy, gamma, str(len(family)), str(len(judged)), size, score, persistence])
    head = ["policy", "gamma", "questions", "judged", "effective size", "median NMSRE"]
    head.append("of persistence")
    parts = [element("p", EXPLANATION), table(head, rows)]
    reasons: dict[str, int] = {}
    for line in lines:
        if line["reason"]:
            reasons[line["reason"]] = reasons.get(line["reason"], 0) + 1
    if reasons:
        most = sorted(reasons.items(), key=lambda item: -item[1])[:N_SHOWN]
        texts = [[reason, str(n)] for reason, n in most]
        parts += [element("h3", "Not judged"), table(["reason", "questions"], texts)]
    worst = [line for line in lines if line["is_judged"] == "1"]
    worst.sort(key=lambda line: -float(line["nmsre"]))
    shown = [_cells(line) for line in worst[:N_SHOWN]]
    if shown:
        names = ["question", "NMSRE", "of persistence", "95 % from", "to", "effective size"]
        parts += [element("h3", "Worst"), table(names, shown)]
    return section("Held-out rows", *parts)


def _cells(line: _Line) -> list[str]:
    numbers = [nmsre_text(float(line[key])) for key in _SHOWN]
    return [line["question"], *numbers, f"{float(line['effective_size']):,.0f}"]


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


def paired(first: Sequence[_Line], second: Sequence[_Line]) -> list[PairedDifference]:
    """Return the differences of the questions that both runs judged on the same stretches.

    The groups of stretches are the same, so the difference of their influences gives its error.
    """
    by_name = {line["question"]: line for line in first if line["is_judged"] == "1"}
    differences = []
    for line in second:
        line_of_first = by_name.get(line["question"])
        if line_of_first is None or line["is_judged"] != "1":
            continue
        psi = [float(text) for text in line["by_group"].split()]
        psi_of_other = [float(text) for text in line_of_first["by_group"].split()]
        is_same = all(line[key] == line_of_first[key] for key in ("n_stretches", "effective_size"))
        if not is_same or len(psi) != len(psi_of_other):
            continue
        changes = [a - b for a, b in zip(psi, psi_of_other, strict=True)]
        error = math.sqrt(sum(change**2 for change in changes)) / len(changes)
        difference = float(line["nmsre"]) - float(line_of_first["nmsre"])
        differences.append(
            PairedDifference(
                question=line["question"],
                first=float(line_of_first["nmsre"]),
                second=float(line["nmsre"]),
                low=difference - _Z * error,
                high=difference + _Z * error,
            )
        )
    return differences


def comparison_section(
    names: Sequence[str], first: Sequence[_Line], second: Sequence[_Line]
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
