"""What it was worth to go on learning, in the report: the tests since the end of a history by two sets of weights."""

from __future__ import annotations

import math
from collections.abc import Sequence
from statistics import median

from horde_agent.html import element, section, table
from horde_agent.runs.storage.frozen import FrozenScore
from horde_agent.scoring.nmsre import nmsre_text

EXPLANATION = (
    "The tests since the end of the history: the NMSRE of the predictions as they were made, and of those by the "
    "weights as they were at that end (frozen), over the variance of the same returns. Below 1, the ratio says what "
    "going on learning is worth; the last columns have the second half of the tests alone."
)


def frozen_section(scores: Sequence[FrozenScore]) -> str:
    """Return the scores by policy and time scale; "" without scores."""
    by_family: dict[tuple[str, str], list[FrozenScore]] = {}
    for score in scores:
        if math.isnan(score.nmsre + score.nmsre_frozen):
            continue
        gamma = "a function"
        if not math.isnan(score.gamma):
            gamma = f"{score.gamma:g}"
        by_family.setdefault((score.policy, gamma), []).append(score)
    if not by_family:
        return ""
    rows = []
    for (policy, gamma), family in by_family.items():
        late = [
            (score.late_nmsre, score.late_nmsre_frozen)
            for score in family
            if not math.isnan(score.late_nmsre + score.late_nmsre_frozen)
        ]
        whole = [(score.nmsre, score.nmsre_frozen) for score in family]
        rows.append([policy, gamma, str(len(family)), *_medians(whole), *_medians(late)])
    names = ["median NMSRE", "frozen", "median ratio"]
    head = ["policy", "gamma", "questions", *names, *(f"{name}, second half" for name in names)]
    return section("Frozen against learning", element("p", EXPLANATION), table(head, rows))


def _medians(pairs: Sequence[tuple[float, float]]) -> list[str]:
    """Return the median of each score, and of the ratio of both where the second is above 0; "-" without one."""
    if not pairs:
        return ["-", "-", "-"]
    ratios = [learning / frozen for learning, frozen in pairs if frozen > 0.0]
    ratio = "-"
    if ratios:
        ratio = nmsre_text(median(ratios))
    learning_scores = [learning for learning, _ in pairs]
    frozen_scores = [frozen for _, frozen in pairs]
    return [nmsre_text(median(learning_scores)), nmsre_text(median(frozen_scores)), ratio]
