"""Progress, speed and divergence."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from horde_agent.reproduce.claims import Claims, Finding, Part, at_least, at_most, below, parts
from horde_agent.reproduce.policies import problem
from horde_agent.reproduce.policies.problem import GAMMAS, LAM, Data, PolicyScores
from horde_agent.reproduce.runner import n_cores
from horde_agent.reproduce.stats import join

PAPER_CYCLE_MS = 85.0
PERIOD_MS = 100.0
W_SETTLES = 10_000
"""Learning steps after which w has moved: 1 / (alpha_w x active features) = 1 / (0.001 x 0.1)."""


class Fall(NamedTuple):
    """How far estimates fell from their peaks."""

    of_mean: float  # mean over the questions in the last tenth of the course, over that mean's peak
    # Share of the questions whose mean of the last tenth is nearer to 0 than half of their peak
    share: float
    negative: float  # share of the questions with an estimate below 0 then, which no MSPBE is
    peak_at: int  # learning step of the mean's peak


def fall(course: PolicyScores) -> Fall:
    """Measure the fall over the questions that did not diverge; 0 if there are none."""
    curves = course.mspbe[:, course.is_sound].astype(np.float64)
    if not curves.shape[1]:
        return Fall(np.nan, 0.0, 0.0, 0)
    late = curves[-max(len(curves) // 10, 1) :].mean(axis=0)
    mean = curves.mean(axis=1)
    peaks = curves.max(axis=0)
    share = float((np.abs(late) < 0.5 * peaks).mean())
    return Fall(
        float(late.mean() / mean.max()),
        share,
        float((late < 0).mean()),
        int(course.step[mean.argmax()]),
    )


_TERMS = "In the last tenth, by the life that is farthest from the limit:"


def _fallen(courses: Sequence[PolicyScores], n_steps: int) -> Finding:
    falls = [fall(course) for course in courses]
    cause = ""
    negative = float(np.mean([found.negative for found in falls]))
    if n_steps < 3 * W_SETTLES:
        cause = f"{n_steps:,} steps are too few to judge: for some {W_SETTLES:,} the estimates still rise with w."
    elif negative >= 0.05:
        cause = (
            f"{negative:.0%} of the estimates end below 0, as no MSPBE is: the estimate takes w for settled, and w, "
            "with a thousandth of theta's step size, lags behind theta."
        )
    return Finding(
        [
            Part(
                "|mean of the estimates| over its peak",
                np.max(np.abs([f.of_mean for f in falls])),
                below(0.5),
            ),
            Part(
                "share of questions nearer to 0 than half of their peak",
                min(f.share for f in falls),
                at_least(0.9),
            ),
            Part(
                "questions set aside",
                sum(course.n_diverged[-1].sum() for course in courses),
                at_most(0),
            ),
        ],
        f"Ends over peaks {join([f.of_mean for f in falls], '.3g')}, shares {join([f.share for f in falls], '.1%')}; "
        f"the mean's peak is at step {join([f.peak_at for f in falls], ',')}.",
        cause,
    )


CLAIMS = Claims("section 6, last figure")


@CLAIMS.add(
    f"The estimates show learning progress for each of {problem.FEW:,} policies.",
    "the curves provide a clear indication of learning progress for each prediction",
    _TERMS,
)
def _progress(data: Data) -> Finding:
    return _fallen(list(data.few.values()), data.size.life)


@CLAIMS.add(
    f"{problem.FEW:,} off-policy questions about as many policies are learned in real time.",
    f"a cycle of {PAPER_CYCLE_MS:g} ms on a 4-core desktop, within {PERIOD_MS:g} ms",
    "Coding the observation, learning and predicting, in ms:",
    source="section 6",
)
def _cycle(data: Data) -> Finding:
    times = data.cycles[problem.FEW]
    return Finding(
        [
            Part("p50", times["p50"], at_most(PAPER_CYCLE_MS)),
            Part("p99", times["p99"], at_most(PERIOD_MS)),
        ],
        f"At most {times['max']:.1f} ms, on {n_cores()} cores.",
    )


@CLAIMS.add(
    f"The same with {problem.MANY:,} policies.",
    "significantly increased scaling can be obtained with more computational resources",
    _TERMS,
    source="section 8",
)
def _many(data: Data) -> Finding:
    finding = _fallen([data.many], data.size.many)
    return finding._replace(
        parts=[
            *finding.parts,
            Part("p99 of a cycle in ms", data.cycles[problem.MANY]["p99"], at_most(PERIOD_MS)),
        ],
        also=f"{finding.also} p50 of a cycle {data.cycles[problem.MANY]['p50']:.1f} ms.",
    )


@CLAIMS.add(
    "The pseudo-code's own trace learns them without divergence.",
    "GTD(lambda) as printed; no divergence is spoken of",
    "Under the trace rule plain:",
    source="sections 2 and 6",
)
def _plain(data: Data) -> Finding:
    growth = {gamma: np.median(data.growth) * (gamma * LAM) ** 2 for gamma in GAMMAS}
    plain = data.rules["plain"]
    aside = {
        f"questions set aside at gamma {g:g}": n
        for g, n in zip(GAMMAS, plain.n_diverged[-1], strict=True)
    }
    return Finding(
        parts(aside, at_most(0), ".0f"),
        f"By gamma: {join((plain.gamma == g).sum() for g in GAMMAS)} questions, largest |e| "
        f"{join(plain.max_trace[-1], ',.0f')} in {data.size.rules:,} steps.",
        "The second moment of the median policy's trace is multiplied per step by "
        + ", ".join(f"{factor:.2f} (gamma {gamma:g})" for gamma, factor in growth.items())
        + "; from 1 on its variance is infinite. clipped and capped bound the trace.",
    )


REMARKS = [
    "Every question learns on every step: a Gibbs policy never gives an action no probability.",
    f"The estimates start at 0 and rise while w learns, for some {W_SETTLES:,} steps; a fall is measured from "
    "their peak. MSPBE estimates of different trace rules measure different objectives and are not compared.",
    "The trace rules are compared on the first life.",
]
