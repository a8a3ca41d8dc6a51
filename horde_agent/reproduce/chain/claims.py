"""Experiment `chain`: do the online estimates of the MSPBE follow the true one, and a change?

Figures and verdicts use the mean of 100 runs, as in the paper. Source: White, Modayil & Sutton (2012), section 6.
"""

from __future__ import annotations

from pathlib import Path

import numpy as np
from matplotlib.axes import Axes

from horde_agent.reproduce.chain import problem
from horde_agent.reproduce.chain.problem import (
    BEFORE,
    CHANGE_AFTER,
    CHANGED,
    GAMMAS,
    N_EPISODES,
    N_RUNS,
    ONLINE,
    TAU,
    TAUS,
    Curves,
    Data,
    fit,
    likeness,
)
from horde_agent.reproduce.experiment import Claims, Experiment, Finding
from horde_agent.reproduce.figure import COLOURS, new_canvas, save, style_axes
from horde_agent.reproduce.result import Cell, Figure, Table, join, mean_ci, student_t
from horde_agent.reproduce.study import Study

EPISODES_SHOWN = (1, 10, 100, 500, 1000, 1001, 1050, 1200, 2000)
LEAST_CORRELATION, LEAST_AREA, LARGEST_AREA, LEAST_JUMP = 0.75, 0.5, 1.5, 0.5
_AREA = f"in [{LEAST_AREA}, {LARGEST_AREA}]"
_ACCEPTED = f"correlation with the true curve at least {LEAST_CORRELATION}, ratio of areas {_AREA}"


class Judged:
    """The fits of all seeds at the paper's gamma, and a way to say and judge one of their numbers by its mean."""

    def __init__(self, data: Data) -> None:
        self.curves = [curves for (gamma, _), curves in data.items() if gamma == GAMMAS[0]]

    def values(self, measure: str, number: str, tau: int = TAU) -> list[float]:
        """Return a number of a measure's fit, one per seed."""
        return [getattr(fit(c.at(measure, tau), c.at("true")), number) for c in self.curves]

    def mean(self, measure: str, number: str, tau: int = TAU) -> float:
        """Return the mean of a number over the seeds."""
        return float(np.mean(self.values(measure, number, tau)))

    def text(self, measure: str, number: str) -> str:
        """Return the mean over the seeds, with its interval if there are several."""
        return str(mean_ci(self.values(measure, number)))

    def is_area_right(self, measure: str, number: str) -> bool:
        """Return whether a ratio of areas is accepted."""
        return LEAST_AREA <= self.mean(measure, number) <= LARGEST_AREA

    def follow(self, ending: str) -> list[bool]:
        """Return whether the shape and the area of both online estimates are right."""
        parts = []
        for name in ONLINE:
            parts.append(self.mean(name, f"correlation{ending}") >= LEAST_CORRELATION)
            parts.append(self.is_area_right(name, f"area{ending}"))
        return parts

    def likeness_text(self, measure: str, ending: str) -> str:
        """Return the measure's correlation and area."""
        correlation, area = (self.text(measure, number + ending) for number in ("correlation", "area"))
        return f"{measure}: correlation {correlation}, area {area}"

    def exact_text(self, number: str) -> str:
        """Return a number of the vector estimate as it would be, were one of its two factors exact."""
        return (
            f"{self.text('exact_w', number)} with the w that belongs to theta in the place of the learned one, "
            f"{self.text('exact_trace', number)} with the exact E[delta e] in the place of its trace"
        )


CLAIMS = Claims("section 6")


@CLAIMS.add(
    "Both online estimates match the profile and the magnitude of the true MSPBE.",
    "an accurate estimate, matching profile and magnitude",
    f"{_ACCEPTED}, in episodes 200-1000, and the same ratio in episodes 1-199; each for both estimates.",
    source="section 6, chain figure, left",
)
def _tracking(data: Data) -> Finding:
    judged = Judged(data)
    said = "; ".join(
        f"{judged.likeness_text(name, '')} of the true one (episodes 1-199: {judged.text(name, 'area_in_rise')})"
        for name in ONLINE
    )
    return Finding(
        f"Episodes 200-1000. {said}.",
        [*judged.follow(""), *(judged.is_area_right(name, "area_in_rise") for name in ONLINE)],
        "Both start at 0 with w. Of the true area in episodes 1-199 the vector estimate has "
        f"{judged.exact_text('area_in_rise')}: it is w that is late.",
    )


@CLAIMS.add(
    "The online estimates react to a change of theta like the true MSPBE, and track it closely.",
    "all react similarly; the online estimates track the true and sample MSPBE closely",
    f"{_ACCEPTED}, in episodes 1001-2000; a peak of at least {LEAST_JUMP:g} of the true jump; each for both.",
    source="section 6, chain figure, right",
)
def _change(data: Data) -> Finding:
    judged = Judged(data)
    jump = judged.mean("true", "peak")
    said = "; ".join(
        f"{judged.likeness_text(name, '_changed')}, peak {judged.text(name, 'peak')} after "
        f"{judged.text(name, 'peak_after')} episodes"
        for name in ONLINE
    )
    return Finding(
        f"Episodes 1001-2000. {said}; the true MSPBE jumps to {judged.text('true', 'peak')} at once.",
        [*judged.follow("_changed"), *(judged.mean(name, "peak") >= LEAST_JUMP * jump for name in ONLINE)],
        "The peak is lower since w and the trace of delta e are both late: the vector estimate peaks at "
        f"{judged.exact_text('peak')}; with both it is the true MSPBE.",
    )


@CLAIMS.add(
    "The online estimates cannot track the true MSPBE better than the sample MSPBE.",
    "the sample MSPBE represents the best possible sample-based estimate",
    "The sample MSPBE's relative root mean square error is no larger than either estimate's, in either half, "
    f"at tau {TAU} and at each one's best tau.",
)
def _sample(data: Data) -> Finding:
    judged, numbers, names = Judged(data), ("error", "error_changed"), ("sample", *ONLINE)
    best = {
        (name, number): min((judged.mean(name, number, t), t) for t in TAUS) for name in names for number in numbers
    }
    parts = [judged.mean("sample", number) <= judged.mean(name, number) for number in numbers for name in ONLINE]
    parts += [best["sample", number][0] <= best[name, number][0] for number in numbers for name in ONLINE]
    at_tau = "; ".join(
        f"{name} {judged.text(name, 'error')} and {judged.text(name, 'error_changed')}" for name in names
    )
    at_best = "; ".join(
        f"{name} {' and '.join('{:.3g} ({})'.format(*best[name, number]) for number in numbers)}" for name in names
    )
    return Finding(
        f"Error relative to the true curve, before and after the change, at tau {TAU}: {at_tau}. "
        f"Each at its own best tau (in brackets): {at_best}.",
        parts,
        "m' C^-1 m is quadratic in the noise of the trace m and so reads too high by its variance, which shrinks "
        f"only as 1/tau (area in episodes 200-1000 at tau {TAU}: {judged.text('sample', 'area')} of the true one); "
        "in m.w only the small part of the noise is squared that m and w share.",
    )


@CLAIMS.add(
    "Both estimates are zero at first, since w takes time to adapt.",
    "both MSPBE estimates are initially at zero",
    "Both are exactly 0 in every run before the first step, and below the true area in episodes 1-199.",
    source="section 6 (said of the robot, true of the chain)",
)
def _start(data: Data) -> Finding:
    judged = Judged(data)
    zero = all(c.starts_at_zero for c in judged.curves)
    said = " and ".join(judged.text(name, "area_in_rise") for name in ONLINE)
    return Finding(
        f"{'Exactly 0' if zero else 'Not 0'} in all runs at first; {said} of the true area in episodes 1-199.",
        [zero, *(judged.mean(name, "area_in_rise") < 1.0 for name in ONLINE)],
    )


@CLAIMS.add(
    "The scalar estimate, one number, shows the same trend as the vector estimate.",
    "very similar trends: the error can be estimated with minimal storage",
    f"Correlation at least 0.9, ratio of areas {_AREA}; before and after the change.",
)
def _scalar(data: Data) -> Finding:
    curves = Judged(data).curves
    like = {
        name: np.mean([likeness(c.at("scalar")[part], c.at("vector")[part]) for c in curves], axis=0)
        for name, part in (("before", BEFORE), ("after", CHANGED))
    }
    said = "; ".join(f"{name} the change correlation {r:.3f}, area {area:.3f}" for name, (r, area) in like.items())
    return Finding(
        f"Scalar against vector: {said}.",
        [ok for r, area in like.values() for ok in (r >= 0.9, LEAST_AREA <= area <= LARGEST_AREA)],
        _gap(curves),
    )


def _gap(curves: list[Curves]) -> str:
    """Return why the estimates differ: the samples that w and the trace share, or a drift of w.

    vector_t - scalar_t is the trace of delta_k e_k.(w_t - w_k), exactly. With E[delta e] in the place of the trace only
    the drift is left.
    """
    parts = (BEFORE, CHANGED)
    alone, older = (
        np.mean([[c.at(name)[part].sum() / c.at("vector")[part].sum() for part in parts] for c in curves], axis=0)
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


# ---- figures --------------------------------------------------------------------------------------------------------


_LOOKS = {
    "true": ("black", 2.2),
    "sample": (COLOURS[5], 1.0),
    "vector": (COLOURS[0], 1.4),
    "scalar": (COLOURS[1], 1.4),
}
_SAMPLE_TAU = 100


def pictures(data: Data, folder: Path) -> list[Figure]:
    """Draw the first seed's curves of each gamma and return the figures' entries."""
    first = {gamma: next(curves for (g, _), curves in data.items() if g == gamma) for gamma in GAMMAS}
    return [_picture(curves, gamma, folder / f"gamma-{gamma:g}.png") for gamma, curves in first.items()]


def _picture(curves: Curves, gamma: float, path: Path) -> Figure:
    canvas, (left, middle, right) = new_canvas(13.0, 4.2, 3)
    true = curves.at("true")
    _draw(left, curves, 0, CHANGE_AFTER)
    top = 1.8 * true[: CHANGE_AFTER + 1].max()
    style_axes(left, "tracking", legend=True, xlabel="episode", ylabel="MSPBE", ylim=(-0.001, top))
    _draw(middle, curves, CHANGE_AFTER - 100, N_EPISODES)
    top = 1.1 * true[CHANGED].max()
    style_axes(middle, f"theta := U[0, 1] after episode {CHANGE_AFTER:,}", xlabel="episode", ylim=(-0.001, top))
    _draw_taus(right, curves)
    return save(
        canvas,
        path,
        f"Means of {N_RUNS} runs at gamma {gamma:g}, bands of two standard errors. Left: the first {CHANGE_AFTER:,} "
        "episodes. Middle: theta is drawn anew, w and the estimates are kept. The estimates have tau = "
        f"{TAU} steps, the sample MSPBE tau = {_SAMPLE_TAU} (at {TAU} it lies above the panels). Right: root mean "
        "square difference from the true curve, relative to it, against tau; before the change and, dashed, after it.",
    )


def _draw(axes: Axes, curves: Curves, first: int, last: int) -> None:
    x = np.arange(first, last + 1)
    for name, (colour, width) in _LOOKS.items():
        tau = _SAMPLE_TAU if name == "sample" else TAU
        mean, error = (values[first : last + 1] for values in (curves.at(name, tau), curves.error_at(name, tau)))
        axes.plot(x, mean, color=colour, linewidth=width, label=name if name == "true" else f"{name}, tau {tau}")
        axes.fill_between(x, mean - 2 * error, mean + 2 * error, color=colour, alpha=0.15, linewidth=0)
    axes.set_xlim(first, last)


def _draw_taus(axes: Axes, curves: Curves) -> None:
    for name in ("sample", "vector", "scalar"):
        fits = [fit(curves.at(name, tau), curves.at("true")) for tau in TAUS]
        colour = _LOOKS[name][0]
        axes.plot(TAUS, [f.error for f in fits], "o-", color=colour, markersize=3, label=name)
        axes.plot(TAUS, [f.error_changed for f in fits], "o--", color=colour, markersize=3)
    axes.plot([], [], "k--", linewidth=1.0, label="after the change")
    axes.axvline(TAU, color="0.6", linewidth=0.9, linestyle=":")
    labels = {"xlabel": "tau (steps)", "ylabel": "error relative to the true curve"}
    style_axes(axes, "sensitivity to tau", legend=True, xscale="log", yscale="log", **labels)


# ---- tables ---------------------------------------------------------------------------------------------------------


def tables(data: Data) -> list[Table]:
    """Return the experiment's tables, in the order in which they are read."""
    first = next(iter(data.values()))
    return [_gammas(data), _episodes(first), _seeds(data), _taus(first)]


def _episodes(curves: Curves) -> Table:
    t = student_t(problem.N_RUNS - 1)
    shown = [("true", TAU), *((name, tau) for tau in (10, TAU, 100) for name in ("vector", "scalar", "sample"))]
    rows: list[dict[str, Cell]] = []
    for name, tau in shown:
        mean, error = 1e3 * curves.at(name, tau), 1e3 * t * curves.error_at(name, tau)
        values = {f"{k:,}": f"{_short(mean[k])} ± {_short(error[k])}" for k in EPISODES_SHOWN}
        rows.append({"measure": name if name == "true" else f"{name}, tau {tau}", **values})
    return Table.of("1000 x MSPBE by episode: means of 100 runs with 95 % intervals (gamma 0.9)", rows)


def _short(value: float) -> str:
    return f"{value:.2f}" if abs(value) < 10 else f"{value:.1f}" if abs(value) < 100 else f"{value:.0f}"


def _gammas(data: Data) -> Table:
    rows: list[dict[str, Cell]] = []
    for gamma in GAMMAS:
        mine = [c for (g, _), c in data.items() if g == gamma]
        for name in (*ONLINE, "sample"):
            fits = zip(*(fit(c.at(name), c.at("true")) for c in mine), strict=True)
            means = [str(mean_ci(numbers)) for numbers in fits]
            rows.append({"gamma": gamma, "measure": name, **dict(zip(_COLUMNS, means, strict=True))})
    return Table.of(f"By gamma, means over the seeds, tau {TAU}", rows)


def _seeds(data: Data) -> Table:
    rows: list[dict[str, Cell]] = [
        {"gamma": gamma, "seed": seed, "measure": name, **_fit(c, name)}
        for (gamma, seed), c in data.items()
        for name in ("vector", "scalar", "sample", "exact_w", "exact_trace")
    ]
    note = (
        "exact_w: the vector estimate with the w that belongs to theta; exact_trace: with E[delta e] in the place of "
        "its trace. Both need the exact model of the chain."
    )
    return Table.of(f"By gamma and seed, tau {TAU}", rows, note)


def _taus(curves: Curves) -> Table:
    names = (*ONLINE, "sample")
    rows = [{"tau": tau, "measure": name, **_fit(curves, name, tau)} for tau in TAUS for name in names]
    return Table.of("Sensitivity to tau (gamma 0.9)", rows)


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


def _fit(curves: Curves, name: str, tau: int = TAU) -> dict[str, Cell]:
    numbers = fit(curves.at(name, tau), curves.at("true"))
    return {c: round(n, 4) if isinstance(n, float) else n for c, n in zip(_COLUMNS, numbers, strict=True)}


def settings(study: Study, _data: Data) -> dict[str, Cell]:
    """Return everything needed to repeat the experiment."""
    return {
        "runs per seed": problem.N_RUNS,
        "episodes": problem.N_EPISODES,
        "theta := U[0, 1]^5 after episode": problem.CHANGE_AFTER,
        "alpha": problem.ALPHA,
        "alpha_w": problem.ALPHA_W,
        "lambda": problem.LAM,
        "P(right), target": problem.TARGET_RIGHT,
        "P(right), behaviour": problem.BEHAVIOUR_RIGHT,
        "seeds": join(f"({seed}, 0..{problem.N_RUNS - 1})" for seed in study.seeds),
    }


REMARKS = [
    "The paper gives neither gamma nor the time constant tau of the estimates' traces. Judged is gamma 0.9 at "
    f"tau = {TAU} steps (an episode has {problem.steps_per_episode():.1f} steps in the mean); gamma 1 and "
    "other taus are shown too."
]
EXPERIMENT = Experiment(
    "chain", "The MSPBE estimates on a small chain", problem.gather, CLAIMS, pictures, tables, settings, REMARKS
)
