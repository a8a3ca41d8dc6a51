"""Experiment `chain`: do the online estimates of the MSPBE follow the true one, and a change?

What is drawn and judged is the mean of 100 runs, as in the paper. Source: White, Modayil & Sutton (2012), section 6.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from horde_agent.reproduce import chain_learning as world
from horde_agent.reproduce.chain_learning import CHANGE_AFTER, GAMMAS, N_EPISODES, N_RUNS, TAU, TAUS
from horde_agent.reproduce.parallel import Tell
from horde_agent.reproduce.result import Claim, Result, Table, mean_ci, student_t, verdict
from horde_agent.reproduce.study import Job, Study

Floats = NDArray[np.float64]

NAME = "chain"
# The windows in which curves are compared, in episodes: the rise of w, after it, and after the change.
RISE, SETTLED, CHANGED = (slice(1, 200), slice(200, CHANGE_AFTER + 1), slice(CHANGE_AFTER + 1, N_EPISODES + 1))
EPISODES_SHOWN = (1, 10, 100, 500, 1000, 1001, 1050, 1200, 2000)
LEAST_CORRELATION, LEAST_AREA, LARGEST_AREA, LEAST_JUMP = 0.75, 0.5, 1.5, 0.5
ONLINE = ("vector", "scalar")
_ACCEPTED = (
    f"correlation with the true curve at least {LEAST_CORRELATION}, area in [{LEAST_AREA}, {LARGEST_AREA}] of it"
)


class Curves(NamedTuple):
    """The mean of 100 runs and its standard error, by measure; (E + 1,) or, for those that have a tau, (E + 1, K)."""

    mean: dict[str, Floats]
    error: dict[str, Floats]
    starts_at_zero: bool  # both online estimates, in every run, before anything was learned

    def at(self, measure: str, tau: int = TAU) -> Floats:
        """Return a measure's mean curve, (E + 1,)."""
        return _of_tau(self.mean[measure], tau)

    def error_at(self, measure: str, tau: int = TAU) -> Floats:
        """Return the standard error of a measure's mean curve, (E + 1,)."""
        return _of_tau(self.error[measure], tau)


def _of_tau(values: Floats, tau: int) -> Floats:
    return values[:, TAUS.index(tau)] if values.ndim == 2 else values


class Fit(NamedTuple):
    """How a curve follows the true one."""

    correlation: float  # after the rise
    area: float  # ratio, after the rise
    area_in_rise: float  # ratio, in the first 200 episodes
    correlation_changed: float
    area_changed: float
    peak: float  # the largest value after the change
    peak_after: int  # episodes after the change
    error: float  # root mean square difference in episodes 1 to 1000, over the root mean square of the true curve
    error_changed: float


def fit(curve: Floats, true: Floats) -> Fit:
    """Compare a mean curve with the true one, both (E + 1,)."""
    changed = curve[CHANGED]
    return Fit(
        *_likeness(curve[SETTLED], true[SETTLED]),
        _likeness(curve[RISE], true[RISE])[1],
        *_likeness(changed, true[CHANGED]),
        float(changed.max()),
        int(changed.argmax()) + 1,
        *(_relative_error(curve[part], true[part]) for part in (slice(1, CHANGE_AFTER + 1), CHANGED)),
    )


def _likeness(curve: Floats, true: Floats) -> tuple[float, float]:
    """Return the correlation and the ratio of the areas."""
    return float(np.corrcoef(curve, true)[0, 1]), float(curve.sum() / true.sum())


def _relative_error(curve: Floats, true: Floats) -> float:
    return float(np.sqrt(((curve - true) ** 2).mean() / (true**2).mean()))


def mean_curves(tell: Tell, seed: int, gamma: float, n_runs: int = N_RUNS) -> Curves:
    """Learn in independent runs and return their means; a job for a process of its own."""
    del tell  # it takes seconds
    runs = world.learn(seed, gamma, n_runs)
    mean = {name: values.mean(axis=0) for name, values in runs._asdict().items()}
    error = {name: values.std(axis=0, ddof=1) / np.sqrt(n_runs) for name, values in runs._asdict().items()}
    return Curves(mean, error, not any(getattr(runs, name)[:, 0].any() for name in ONLINE))


def run(study: Study) -> Result:
    """Do the experiment: 100 runs for each seed and gamma, at either scale."""
    from horde_agent.reproduce.chain_pictures import chain_picture

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
        claims=_claims(of_paper),
        figures=figures,
        tables=[_episodes_table(of_paper[0]), _seeds_table(curves), _tau_table(of_paper[0])],
        settings=_settings(study),
        remarks=[
            "The paper gives neither gamma nor the time constant tau of the estimates' traces. Judged is gamma 0.9 at "
            f"tau = {TAU} steps (an episode has {world.steps_per_episode():.1f} steps in the mean); gamma 1 and other "
            "taus stand beside it."
        ],
    )


def _settings(study: Study) -> dict[str, str | int | float | None]:
    return {
        "runs per seed": N_RUNS,
        "episodes": N_EPISODES,
        "theta := U[0, 1]^5 after episode": CHANGE_AFTER,
        "alpha": world.ALPHA,
        "alpha_w": world.ALPHA_W,
        "lambda": world.LAM,
        "P(right), target": world.TARGET_RIGHT,
        "P(right), behaviour": world.BEHAVIOUR_RIGHT,
        "seeds": ", ".join(f"({seed}, 0..{N_RUNS - 1})" for seed in study.seeds),
    }


# ---- verdicts -------------------------------------------------------------------------------------------------------


class Judged(NamedTuple):
    """The fits of all seeds, and a way to say and judge one of their numbers by its mean."""

    fits: Mapping[str, Sequence[Fit]]

    def mean(self, measure: str, number: str) -> float:
        """Return the mean of a number over the seeds."""
        return float(np.mean([getattr(fit, number) for fit in self.fits[measure]]))

    def said(self, measure: str, number: str) -> str:
        """Return the mean over the seeds with its interval where there are several."""
        values = [getattr(fit, number) for fit in self.fits[measure]]
        return f"{values[0]:.3g}" if len(values) == 1 else str(mean_ci(values))

    def follows(self, measure: str, ending: str) -> list[bool]:
        """Return whether the shape and the area are right."""
        area = self.mean(measure, f"area{ending}")
        return [
            self.mean(measure, f"correlation{ending}") >= LEAST_CORRELATION,
            LEAST_AREA <= area <= LARGEST_AREA,
        ]


def _claims(curves: Sequence[Curves]) -> list[Claim]:
    measures = ("true", "sample", *ONLINE, "exact_w", "exact_trace")
    judged = Judged({name: [fit(c.at(name), c.at("true")) for c in curves] for name in measures})
    return [
        _tracking_claim(judged),
        _change_claim(judged),
        _sample_claim(judged, curves),
        _start_claim(curves, judged),
        _scalar_claim(curves),
    ]


_ACCEPTED = (
    f"correlation with the true curve at least {LEAST_CORRELATION}, ratio of areas in [{LEAST_AREA}, {LARGEST_AREA}]"
)


def _tracking_claim(judged: Judged) -> Claim:
    parts = [part for name in ONLINE for part in judged.follows(name, "")]
    parts += [LEAST_AREA <= judged.mean(name, "area_in_rise") <= LARGEST_AREA for name in ONLINE]
    said = "; ".join(
        f"{name}: correlation {judged.said(name, 'correlation')}, area {judged.said(name, 'area')} of the true one "
        f"(episodes 1-199: {judged.said(name, 'area_in_rise')})"
        for name in ONLINE
    )
    return Claim(
        text="Both online estimates match the profile and the magnitude of the true MSPBE.",
        source="section 6, chain figure, left",
        paper="an accurate estimate, matching profile and magnitude",
        measured=f"Episodes 200-1000. {said}.",
        verdict=verdict(parts),
        rule=f"{_ACCEPTED}, in episodes 200-1000, and the same ratio in episodes 1-199; each for both estimates.",
        cause=(
            "Both start at 0 with w. With the w that belongs to theta in the place of the learned one, the vector "
            f"estimate has {judged.said('exact_w', 'area_in_rise')} of the true area in episodes 1-199, with the exact "
            f"E[delta e] in the place of its trace {judged.said('exact_trace', 'area_in_rise')}: it is w that is late."
        ),
    )


def _change_claim(judged: Judged) -> Claim:
    jump = judged.mean("true", "peak")
    parts = [part for name in ONLINE for part in judged.follows(name, "_changed")]
    parts += [judged.mean(name, "peak") >= LEAST_JUMP * jump for name in ONLINE]
    said = "; ".join(
        f"{name}: correlation {judged.said(name, 'correlation_changed')}, area {judged.said(name, 'area_changed')}, "
        f"peak {judged.said(name, 'peak')} after {judged.said(name, 'peak_after')} episodes"
        for name in ONLINE
    )
    return Claim(
        text="The online estimates react to a change of theta like the true MSPBE, and track it closely.",
        source="section 6, chain figure, right",
        paper="all react similarly; the online estimates track the true and sample MSPBE closely",
        measured=f"Episodes 1001-2000. {said}; the true MSPBE jumps to {judged.said('true', 'peak')} at once.",
        verdict=verdict(parts),
        rule=f"{_ACCEPTED}, in episodes 1001-2000; a peak of at least {LEAST_JUMP:g} of the true jump; each for both.",
        cause=(
            "The peak is lower since the trace of delta e and w are both late: with the w that belongs to theta the "
            f"vector estimate peaks at {judged.said('exact_w', 'peak')}, with the exact E[delta e] at "
            f"{judged.said('exact_trace', 'peak')}, with both it is the true MSPBE."
        ),
    )


def _sample_claim(judged: Judged, curves: Sequence[Curves]) -> Claim:
    parts = [
        judged.mean("sample", number) <= judged.mean(name, number)
        for number in ("error", "error_changed")
        for name in ONLINE
    ]
    said = "; ".join(
        f"{name} {judged.said(name, 'error')} and {judged.said(name, 'error_changed')}" for name in ("sample", *ONLINE)
    )
    longest = fit(curves[0].at("sample", TAUS[-1]), curves[0].at("true"))
    return Claim(
        text="The online estimates cannot track the true MSPBE better than the sample MSPBE.",
        source="section 6",
        paper="the sample MSPBE represents the best possible sample-based estimate",
        measured=f"Error relative to the true curve, before and after the change, at tau {TAU}: {said}.",
        verdict=verdict(parts),
        rule="The sample MSPBE's relative root mean square error is no larger than either estimate's, in either half.",
        cause=(
            "m' C^-1 m is quadratic in the noise of the trace m and so reads too high by its variance, which shrinks "
            f"as 1/tau (error at tau {TAUS[-1]}: {longest.error:.3g} and {longest.error_changed:.3g}); m.w is a "
            "product of two numbers whose noises are nearly independent."
        ),
    )


def _start_claim(curves: Sequence[Curves], judged: Judged) -> Claim:
    lower = [judged.mean(name, "area_in_rise") < 1.0 for name in ONLINE]
    zero = all(c.starts_at_zero for c in curves)
    said = " and ".join(judged.said(name, "area_in_rise") for name in ONLINE)
    return Claim(
        text="Both estimates are zero at first, since w takes time to adapt.",
        source="section 6 (said of the robot, true of the chain)",
        paper="both MSPBE estimates are initially at zero",
        measured=f"{'Exactly 0' if zero else 'Not 0'} in all runs at first; {said} of the true area in episodes 1-199.",
        verdict=verdict([zero, *lower]),
        rule="Both are exactly 0 in every run before the first step, and below the true area in episodes 1-199.",
    )


def _scalar_claim(curves: Sequence[Curves]) -> Claim:
    windows = {"before": slice(1, CHANGE_AFTER + 1), "after": CHANGED}
    like = {
        name: np.mean([_likeness(c.at("scalar")[part], c.at("vector")[part]) for c in curves], axis=0)
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
        rule=f"Correlation at least 0.9, ratio of areas in [{LEAST_AREA}, {LARGEST_AREA}]; before and after the change.",
    )


# ---- tables ---------------------------------------------------------------------------------------------------------


def _episodes_table(curves: Curves) -> Table:
    t = student_t(N_RUNS - 1)
    shown = [("true", TAU), *((name, tau) for tau in (10, TAU, 100) for name in ("vector", "scalar", "sample"))]
    rows = [
        [
            name if name == "true" else f"{name}, tau {tau}",
            *(
                f"{1e3 * curves.at(name, tau)[k]:.2f} ± {1e3 * t * curves.error_at(name, tau)[k]:.2f}"
                for k in EPISODES_SHOWN
            ),
        ]
        for name, tau in shown
    ]
    header = ("1000 x MSPBE", *(f"episode {k:,}" for k in EPISODES_SHOWN))
    return Table("Means of 100 runs with 95 % intervals (gamma 0.9)", header, rows)


def _seeds_table(curves: Mapping[tuple[float, int], Curves]) -> Table:
    rows = [
        [gamma, seed, name, *_columns(fit(c.at(name), c.at("true")))]
        for (gamma, seed), c in curves.items()
        for name in ("vector", "scalar", "sample", "exact_w", "exact_trace")
    ]
    note = (
        "exact_w: the vector estimate with the w that belongs to theta; exact_trace: with E[delta e] in the place of "
        "its trace. Only somebody who knows the chain can compute these."
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
