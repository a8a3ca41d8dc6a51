"""Experiment `chain`: do the online estimates of the MSPBE follow the true one, and a change?

Figures and verdicts use the mean of 100 runs, as in the paper. Source: White, Modayil & Sutton (2012), section 6.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NamedTuple

import numpy as np

from horde_agent.reproduce.chain import problem
from horde_agent.reproduce.chain.problem import (
    BEFORE,
    CHANGE_AFTER,
    CHANGED,
    GAMMAS,
    N_EPISODES,
    N_RUNS,
    OLDER,
    ONLINE,
    TAU,
    TAUS,
    Curves,
    Fit,
    fit,
    likeness,
    mean_curves,
)
from horde_agent.reproduce.result import Cell, Claim, Result, Table, mean_ci, student_t, verdict
from horde_agent.reproduce.study import Job, Study

NAME = "chain"
EPISODES_SHOWN = (1, 10, 100, 500, 1000, 1001, 1050, 1200, 2000)


def run(study: Study) -> Result:
    """Do the experiment: 100 runs for each seed and gamma, at either scale."""
    from horde_agent.reproduce.chain.figure import chain_picture

    keys = [(gamma, seed) for gamma in GAMMAS for seed in study.seeds]
    done = study.in_parallel([Job(f"gamma {g:g}, seed {s}", mean_curves, (s, g)) for g, s in keys])
    curves: dict[tuple[float, int], Curves] = dict(zip(keys, done, strict=True))
    figures = [
        chain_picture(curves[gamma, study.seeds[0]], gamma, study.folder(NAME) / f"gamma-{gamma:g}.png")
        for gamma in GAMMAS
    ]
    of_paper = [curves[GAMMAS[0], seed] for seed in study.seeds]
    return Result(
        name=NAME,
        title="The MSPBE estimates on a small chain",
        claims=claims(of_paper),
        figures=figures,
        tables=[_gammas_table(curves), _episodes_table(of_paper[0]), _seeds_table(curves), _tau_table(of_paper[0])],
        settings=_settings(study),
        remarks=[
            "The paper gives neither gamma nor the time constant tau of the estimates' traces. Judged is gamma 0.9 at "
            f"tau = {TAU} steps (an episode has {problem.steps_per_episode():.1f} steps in the mean); gamma 1 and "
            "other taus are shown too."
        ],
    )


def _settings(study: Study) -> dict[str, Cell]:
    return {
        "runs per seed": N_RUNS,
        "episodes": N_EPISODES,
        "theta := U[0, 1]^5 after episode": CHANGE_AFTER,
        "alpha": problem.ALPHA,
        "alpha_w": problem.ALPHA_W,
        "lambda": problem.LAM,
        "P(right), target": problem.TARGET_RIGHT,
        "P(right), behaviour": problem.BEHAVIOUR_RIGHT,
        "seeds": ", ".join(f"({seed}, 0..{N_RUNS - 1})" for seed in study.seeds),
    }


# ---- tables ---------------------------------------------------------------------------------------------------------


def _episodes_table(curves: Curves) -> Table:
    t = student_t(N_RUNS - 1)
    shown = [("true", TAU), *((name, tau) for tau in (10, TAU, 100) for name in ("vector", "scalar", "sample"))]
    rows = [
        [
            name if name == "true" else f"{name}, tau {tau}",
            *(
                f"{_short(1e3 * curves.at(name, tau)[k])} ± {_short(1e3 * t * curves.error_at(name, tau)[k])}"
                for k in EPISODES_SHOWN
            ),
        ]
        for name, tau in shown
    ]
    header = ("measure", *(f"{k:,}" for k in EPISODES_SHOWN))
    return Table("1000 x MSPBE by episode: means of 100 runs with 95 % intervals (gamma 0.9)", header, rows)


def _short(value: float) -> str:
    return f"{value:.2f}" if abs(value) < 10 else f"{value:.1f}" if abs(value) < 100 else f"{value:.0f}"


def _gammas_table(curves: Mapping[tuple[float, int], Curves]) -> Table:
    rows: list[list[Cell]] = []
    for gamma in GAMMAS:
        mine = [c for (g, _), c in curves.items() if g == gamma]
        for name in (*ONLINE, "sample"):
            fits = [fit(c.at(name), c.at("true")) for c in mine]
            rows.append([gamma, name, *(str(mean_ci(numbers)) for numbers in zip(*fits, strict=True))])
    return Table(f"By gamma, means over the seeds, tau {TAU}", ("gamma", "measure", *_COLUMNS), rows)


def _seeds_table(curves: Mapping[tuple[float, int], Curves]) -> Table:
    rows = [
        [gamma, seed, name, *_columns(fit(c.at(name), c.at("true")))]
        for (gamma, seed), c in curves.items()
        for name in ("vector", "scalar", "sample", "exact_w", "exact_trace")
    ]
    note = (
        "exact_w: the vector estimate with the w that belongs to theta; exact_trace: with E[delta e] in the place of "
        "its trace. Both need the exact model of the chain."
    )
    return Table(f"By gamma and seed, tau {TAU}", ("gamma", "seed", "measure", *_COLUMNS), rows, note)


def _tau_table(curves: Curves) -> Table:
    rows = [
        [tau, name, *_columns(fit(curves.at(name, tau), curves.at("true")))]
        for tau in TAUS
        for name in (*ONLINE, "sample")
    ]
    return Table("Sensitivity to tau (gamma 0.9)", ("tau", "measure", *_COLUMNS), rows)


_COLUMNS = (
    "correlation 200-1000",
    "area 200-1000",
    "area 1-199",
    "correlation 1001-2000",
    "area 1001-2000",
    "peak after change",
    "episodes to peak",
    "error 1-1000",
    "error 1001-2000",
)


def _columns(numbers: Fit) -> list[float | int]:
    return [round(value, 4) if isinstance(value, float) else value for value in numbers]


LEAST_CORRELATION, LEAST_AREA, LARGEST_AREA, LEAST_JUMP = 0.75, 0.5, 1.5, 0.5
_AREA = f"in [{LEAST_AREA}, {LARGEST_AREA}]"
_ACCEPTED = f"correlation with the true curve at least {LEAST_CORRELATION}, ratio of areas {_AREA}"


class Judged(NamedTuple):
    """The fits of all seeds, and a way to say and judge one of their numbers by its mean."""

    fits: Mapping[str, Sequence[Fit]]

    def mean(self, measure: str, number: str) -> float:
        """Return the mean of a number over the seeds."""
        return float(np.mean([getattr(fit, number) for fit in self.fits[measure]]))

    def text(self, measure: str, number: str) -> str:
        """Return the mean over the seeds, with its interval if there are several."""
        return str(mean_ci([getattr(fit, number) for fit in self.fits[measure]]))

    def follow(self, ending: str) -> list[bool]:
        """Return whether the shape and the area of both online estimates are right."""
        parts = []
        for name in ONLINE:
            parts.append(self.mean(name, f"correlation{ending}") >= LEAST_CORRELATION)
            parts.append(LEAST_AREA <= self.mean(name, f"area{ending}") <= LARGEST_AREA)
        return parts

    def likeness_text(self, measure: str, ending: str) -> str:
        """Return the measure's correlation and area."""
        correlation, area = (self.text(measure, number + ending) for number in ("correlation", "area"))
        return f"{measure}: correlation {correlation}, area {area}"


def claims(curves: Sequence[Curves]) -> list[Claim]:
    """Return the claims, judged by the means over the seeds' curves."""
    measures = ("true", "sample", *ONLINE, "exact_w", "exact_trace")
    judged = Judged({name: [fit(c.at(name), c.at("true")) for c in curves] for name in measures})
    return [
        _tracking_claim(judged),
        _change_claim(judged),
        _sample_claim(judged, curves),
        _start_claim(curves, judged),
        _scalar_claim(curves),
    ]


def _tracking_claim(judged: Judged) -> Claim:
    in_rise = [LEAST_AREA <= judged.mean(name, "area_in_rise") <= LARGEST_AREA for name in ONLINE]
    said = "; ".join(
        f"{judged.likeness_text(name, '')} of the true one (episodes 1-199: {judged.text(name, 'area_in_rise')})"
        for name in ONLINE
    )
    return Claim(
        text="Both online estimates match the profile and the magnitude of the true MSPBE.",
        source="section 6, chain figure, left",
        paper="an accurate estimate, matching profile and magnitude",
        measured=f"Episodes 200-1000. {said}.",
        verdict=verdict([*judged.follow(""), *in_rise]),
        rule=f"{_ACCEPTED}, in episodes 200-1000, and the same ratio in episodes 1-199; each for both estimates.",
        cause="Both start at 0 with w. Of the true area in episodes 1-199 the vector estimate has "
        f"{_exactly(judged, 'area_in_rise')}: it is w that is late.",
    )


def _change_claim(judged: Judged) -> Claim:
    jump = judged.mean("true", "peak")
    peaks = [judged.mean(name, "peak") >= LEAST_JUMP * jump for name in ONLINE]
    said = "; ".join(
        f"{judged.likeness_text(name, '_changed')}, peak {judged.text(name, 'peak')} after "
        f"{judged.text(name, 'peak_after')} episodes"
        for name in ONLINE
    )
    return Claim(
        text="The online estimates react to a change of theta like the true MSPBE, and track it closely.",
        source="section 6, chain figure, right",
        paper="all react similarly; the online estimates track the true and sample MSPBE closely",
        measured=f"Episodes 1001-2000. {said}; the true MSPBE jumps to {judged.text('true', 'peak')} at once.",
        verdict=verdict([*judged.follow("_changed"), *peaks]),
        rule=f"{_ACCEPTED}, in episodes 1001-2000; a peak of at least {LEAST_JUMP:g} of the true jump; each for both.",
        cause="The peak is lower since w and the trace of delta e are both late: the vector estimate peaks at "
        f"{_exactly(judged, 'peak')}; with both it is the true MSPBE.",
    )


def _exactly(judged: Judged, number: str) -> str:
    """Return a number of the vector estimate as it would be, were one of its two factors exact."""
    return (
        f"{judged.text('exact_w', number)} with the w that belongs to theta in the place of the learned one, "
        f"{judged.text('exact_trace', number)} with the exact E[delta e] in the place of its trace"
    )


def _sample_claim(judged: Judged, curves: Sequence[Curves]) -> Claim:
    numbers, names = ("error", "error_changed"), ("sample", *ONLINE)
    best = {(name, number): _best_tau(curves, name, number) for name in names for number in numbers}
    parts = [judged.mean("sample", number) <= judged.mean(name, number) for number in numbers for name in ONLINE]
    parts += [best["sample", number][0] <= best[name, number][0] for number in numbers for name in ONLINE]
    at_tau = "; ".join(
        f"{name} {judged.text(name, 'error')} and {judged.text(name, 'error_changed')}" for name in names
    )
    at_best = "; ".join(
        f"{name} {' and '.join('{:.3g} ({})'.format(*best[name, number]) for number in numbers)}" for name in names
    )
    return Claim(
        text="The online estimates cannot track the true MSPBE better than the sample MSPBE.",
        source="section 6",
        paper="the sample MSPBE represents the best possible sample-based estimate",
        measured=(
            f"Error relative to the true curve, before and after the change, at tau {TAU}: {at_tau}. "
            f"Each at its own best tau (in brackets): {at_best}."
        ),
        verdict=verdict(parts),
        rule=(
            "The sample MSPBE's relative root mean square error is no larger than either estimate's, in either half, "
            f"at tau {TAU} and at each one's best tau."
        ),
        cause=(
            "m' C^-1 m is quadratic in the noise of the trace m and so reads too high by its variance, which shrinks "
            f"only as 1/tau (area in episodes 200-1000 at tau {TAU}: {judged.text('sample', 'area')} of the true one); "
            "in m.w only the small part of the noise is squared that m and w share."
        ),
    )


def _best_tau(curves: Sequence[Curves], name: str, number: str) -> tuple[float, int]:
    """Return the smallest mean over the seeds of an error, and the tau that gives it."""
    return min((float(np.mean([getattr(fit(c.at(name, t), c.at("true")), number) for c in curves])), t) for t in TAUS)


def _start_claim(curves: Sequence[Curves], judged: Judged) -> Claim:
    lower = [judged.mean(name, "area_in_rise") < 1.0 for name in ONLINE]
    zero = all(c.starts_at_zero for c in curves)
    said = " and ".join(judged.text(name, "area_in_rise") for name in ONLINE)
    return Claim(
        text="Both estimates are zero at first, since w takes time to adapt.",
        source="section 6 (said of the robot, true of the chain)",
        paper="both MSPBE estimates are initially at zero",
        measured=f"{'Exactly 0' if zero else 'Not 0'} in all runs at first; {said} of the true area in episodes 1-199.",
        verdict=verdict([zero, *lower]),
        rule="Both are exactly 0 in every run before the first step, and below the true area in episodes 1-199.",
    )


def _scalar_claim(curves: Sequence[Curves]) -> Claim:
    windows = {"before": BEFORE, "after": CHANGED}
    like = {
        name: np.mean([likeness(c.at("scalar")[part], c.at("vector")[part]) for c in curves], axis=0)
        for name, part in windows.items()
    }
    parts = [ok for r, area in like.values() for ok in (r >= 0.9, LEAST_AREA <= area <= LARGEST_AREA)]
    said = "; ".join(f"{name} the change correlation {r:.3f}, area {area:.3f}" for name, (r, area) in like.items())
    return Claim(
        text="The scalar estimate, one number, shows the same trend as the vector estimate.",
        source="section 6",
        paper="very similar trends: the error can be estimated with minimal storage",
        measured=f"Scalar against vector: {said}.",
        verdict=verdict(parts),
        rule=f"Correlation at least 0.9, ratio of areas {_AREA}; before and after the change.",
        cause=_gap(curves),
    )


def _gap(curves: Sequence[Curves]) -> str:
    """Return what sets the estimates apart: the samples that w and the trace share, or a drift of w.

    vector_t - scalar_t is the trace of delta_k e_k.(w_t - w_k), exactly. Of E[delta e] in the place of the trace
    nothing is left but the drift.
    """
    parts = (BEFORE, CHANGED)
    areas = {
        name: np.mean([[c.at(name)[part].sum() / c.at("vector")[part].sum() for part in parts] for c in curves], axis=0)
        for name in ("exact_trace", "exact_trace_older_w")
    }
    alone, drift = areas["exact_trace"], areas["exact_trace"] - areas["exact_trace_older_w"]
    return (
        "The two differ by the trace of delta e.(w_t - w_k), by what w did after step k: it drifts, and it takes up "
        "the samples that the trace holds. Before the change, and after it: the drift of w along the exact E[delta e] "
        f"in {OLDER} episodes (tau steps) is {drift[0]:.1%} and {drift[1]:.1%} of the vector's area; with E[delta e], "
        "which shares no sample with w, in the place of the trace the vector estimate has "
        f"{alone[0]:.3f} and {alone[1]:.3f} of its area."
    )
