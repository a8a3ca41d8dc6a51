"""Claims about errors in the end, and the variance of the ratios."""

from __future__ import annotations

import numpy as np

from horde_agent.reproduce.claims import Claims, Finding, Part, above, at_most, parts
from horde_agent.reproduce.rooms.problem import EVEN, HIGH, VARIANTS, Data
from horde_agent.reproduce.stats import join

CLIPPING = ("Tree Backup", "V-trace", "ABTD")
UNCLIPPED = ("TD", "GTD", "TDRC", "HTD")
CLAIMS = Claims("abstract")


@CLAIMS.add(
    "Emphatic TD has the lowest error in the end.",
    "ETD tends to the lowest asymptotic error, and may be slower",
    "Mean error of the last 1 % at each rule's best alpha and lambda for it, ETD's over the lowest:",
)
def _lowest_in_the_end(data: Data) -> Finding:
    over_lowest = {}
    sentences = []
    for task, found in data.items():
        last = {rule: found.best(rule, kind="last").mean for rule in VARIANTS}
        over_lowest[task] = last["ETD"] / min(last.values())
        sentences.append(f"{task}: {join(f'{rule} {value:.3f}' for rule, value in last.items())}")
    medians = [
        np.median(data[HIGH].errors["last"][:, v], axis=(0, -1)).min() for v in range(len(VARIANTS))
    ]
    etd_median = medians.pop(list(VARIANTS).index("ETD"))
    cause = (
        "Few runs carry the means in High Variance Rooms: the lowest median over the runs, of any setting, is "
        f"{etd_median:.3f} for ETD and {min(medians):.3f} for the others."
    )
    return Finding(parts(over_lowest, at_most(1.05)), f"{'; '.join(sentences)}.", cause)


@CLAIMS.add(
    "Rules that clip the ratios lose least where these vary most.",
    "Tree Backup, V-trace and ABTD suffer less from the variance of the ratios",
    "Best area in High Variance Rooms over the one in Rooms:",
)
def _clipping_loses_least(data: Data) -> list[Part]:
    ratios = {
        rule: data[HIGH].best(rule).of_seeds / data[EVEN].best(rule).of_seeds
        for rule in (*CLIPPING, *UNCLIPPED)
    }
    largest = max(ratios[rule].mean() for rule in CLIPPING)
    more = {
        f"{rule} over the largest of those that clip": ratios[rule] / largest for rule in UNCLIPPED
    }
    return parts({rule: ratios[rule] for rule in CLIPPING}, at_most(1.28)) + parts(more, above(1.0))


REMARKS = (
    "The grid is reduced: the authors' has thousands of settings.",
    "A question's traces restart when its policy is defined again; only HTD's second trace could differ.",
)
