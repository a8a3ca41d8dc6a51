"""How the online estimates follow the true MSPBE, and react to a change."""

from __future__ import annotations

import numpy as np

from horde_agent.reproduce.chain import problem
from horde_agent.reproduce.chain.problem import ONLINE, TAU, TAUS, Curves, Data, fit, likeness
from horde_agent.reproduce.claims import (
    Claims,
    Finding,
    Part,
    at_least,
    at_most,
    below,
    parts,
    within,
)
from horde_agent.reproduce.stats import format_means, mean_ci

SHAPE = at_least(0.75)
AREA = within(0.5, 1.5)
HALVES = {"before the change": problem.BEFORE, "after it": problem.CHANGED}
CLAIMS = Claims("section 6")


def judged(data: Data) -> list[Curves]:
    """Return the curves of all seeds at the gamma that is judged."""
    return [curves for (gamma, _), curves in data.items() if gamma == problem.GAMMAS[0]]


def fits(data: Data, measure: str, number: str, tau: int = TAU) -> list[float]:
    """Return a number of a measure's `Fit`, one per seed."""
    return [getattr(fit(c.at(measure, tau), c.at("true")), number) for c in judged(data)]


def _follow(data: Data, ending: str) -> list[Part]:
    shapes = {f"correlation of {name}": fits(data, name, f"correlation{ending}") for name in ONLINE}
    areas = {
        f"area of {name} over the true one": fits(data, name, f"area{ending}") for name in ONLINE
    }
    return parts(shapes, SHAPE) + parts(areas, AREA)


def _rise(data: Data) -> dict[str, list[float]]:
    return {
        f"area of {name} in episodes 1-199": fits(data, name, "area_in_rise") for name in ONLINE
    }


def _exact(data: Data, number: str) -> str:
    """Return a number of the vector estimate as it would be, were one of its two factors exact."""
    return (
        f"{mean_ci(fits(data, 'exact_w', number))} with the w that belongs to theta in the place of the learned one, "
        f"{mean_ci(fits(data, 'exact_trace', number))} with the exact E[delta e] in the place of its trace"
    )


@CLAIMS.add(
    "Both online estimates match the profile and the magnitude of the true MSPBE.",
    "an accurate estimate, matching profile and magnitude",
    "Episodes 200-1000:",
    source="section 6, chain figure, left",
)
def _tracking(data: Data) -> Finding:
    return Finding(
        _follow(data, "") + parts(_rise(data), AREA),
        cause="Both start at 0 with w. Of the true area in episodes 1-199 the vector estimate has "
        f"{_exact(data, 'area_in_rise')}: it is w that is late.",
    )


@CLAIMS.add(
    "The online estimates react to a change of theta like the true MSPBE, and track it closely.",
    "all react similarly; the online estimates track the true and sample MSPBE closely",
    "Episodes 1001-2000:",
    source="section 6, chain figure, right",
)
def _change(data: Data) -> Finding:
    jump = np.mean(fits(data, "true", "peak"))
    peaks = {
        f"peak of {name} over the true one": np.array(fits(data, name, "peak")) / jump
        for name in ONLINE
    }
    peak_sentence = format_means({name: fits(data, name, "peak_after") for name in ONLINE})
    return Finding(
        _follow(data, "_changed") + parts(peaks, at_least(0.5)),
        f"Episodes until the peak: {peak_sentence}; the true MSPBE jumps to "
        f"{mean_ci(fits(data, 'true', 'peak'))} at once.",
        "The peak is lower since w and the trace of delta e are both late: the vector estimate peaks at "
        f"{_exact(data, 'peak')}; with both it is the true MSPBE.",
    )


@CLAIMS.add(
    "The online estimates cannot track the true MSPBE better than the sample MSPBE.",
    "the sample MSPBE represents the best possible sample-based estimate",
    f"Differences of the root mean square errors relative to the true curve, at tau {TAU} and at each one's best tau:",
)
def _sample(data: Data) -> Finding:
    measured_parts = []
    sentences = []
    for when, number in zip(HALVES, ("error", "error_changed"), strict=True):
        of_tau = {
            name: [np.mean(fits(data, name, number, tau)) for tau in TAUS]
            for name in ("sample", *ONLINE)
        }
        at_tau = {name: errors[TAUS.index(TAU)] for name, errors in of_tau.items()}
        best = {name: min(errors) for name, errors in of_tau.items()}
        for tau, each in ((f"tau {TAU}", at_tau), ("best tau", best)):
            excess = {
                f"sample minus {name} {when}, {tau}": each["sample"] - each[name] for name in ONLINE
            }
            measured_parts += parts(excess, at_most(0.0))
        sentences += [
            f"{name} {min(errors):.3g} (tau {TAUS[np.argmin(errors)]}) {when}"
            for name, errors in of_tau.items()
        ]
    return Finding(
        measured_parts,
        f"Least errors: {'; '.join(sentences)}.",
        "m' C^-1 m is quadratic in the noise of the trace m and so reads too high by its variance, which shrinks "
        f"only as 1/tau (area in episodes 200-1000 at tau {TAU}: {mean_ci(fits(data, 'sample', 'area'))} of the true "
        "one); in m.w only the small part of the noise is squared that m and w share.",
    )


@CLAIMS.add(
    "Both estimates are zero at first, since w takes time to adapt.",
    "both MSPBE estimates are initially at zero",
    source="section 6 (said of the robot, true of the chain)",
)
def _start(data: Data) -> list[Part]:
    at_zero = np.mean([curves.starts_at_zero for curves in judged(data)])
    return [
        Part("share of seeds in which both start at 0 in all runs", at_zero, at_least(1.0)),
        *parts(_rise(data), below(1.0)),
    ]


@CLAIMS.add(
    "The scalar estimate, one number, shows the same trend as the vector estimate.",
    "very similar trends: the error can be estimated with minimal storage",
    "Scalar against vector:",
)
def _scalar(data: Data) -> Finding:
    parts = []
    for when, half in HALVES.items():
        shape, area = zip(
            *(likeness(c.at("scalar")[half], c.at("vector")[half]) for c in judged(data)),
            strict=True,
        )
        parts += [
            Part(f"correlation {when}", shape, at_least(0.9)),
            Part(f"area over the vector's {when}", area, AREA),
        ]
    return Finding(parts, cause=_gap(judged(data)))


def _gap(curves: list[Curves]) -> str:
    """Return why the estimates differ: the samples that w and the trace share, or a drift of w.

    vector_t - scalar_t is the trace of delta_k e_k.(w_t - w_k), exactly. With E[delta e] in the
    place of the trace only the drift is left.
    """
    alone, older = (
        np.mean(
            [
                [c.at(name)[h].sum() / c.at("vector")[h].sum() for h in HALVES.values()]
                for c in curves
            ],
            axis=0,
        )
        for name in ("exact_trace", "exact_trace_older_w")
    )
    drift = alone - older
    return (
        "The two differ by the trace of delta e.(w_t - w_k), by what w did after step k: it drifts, and it takes up "
        "the samples that the trace holds. Before the change, and after it: the drift of w along the exact E[delta e] "
        f"in {problem.OLDER} episodes (tau steps) is {drift[0]:.1%} and {drift[1]:.1%} of the vector's area; with "
        "E[delta e], which shares no sample with w, in the place of the trace the vector estimate has "
        f"{alone[0]:.3f} and {alone[1]:.3f} of its area."
    )


REMARKS = [
    "The paper gives neither gamma nor the time constant tau of the estimates' traces. Judged is gamma 0.9 at "
    f"tau = {TAU} steps (an episode has {problem.steps_per_episode():.1f} steps in the mean); gamma 1 and "
    "other taus are shown too."
]
