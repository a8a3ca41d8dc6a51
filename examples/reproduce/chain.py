"""Experiment `chain`: do the online estimates of the MSPBE follow the true one, and a change?

Four measures of one GTD learner, before and after its weights change; figures and verdicts use the
mean of 100 runs. Five states in a row, an absorbing end on either side (the paper counts seven), +1
on the right exit. Every episode begins in the middle.

Source: White, Modayil & Sutton (2012), section 6; inverted features: Sutton et al. (2009).
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import product
from typing import NamedTuple

import numpy as np
from matplotlib.axes import Axes

from examples.reproduce.checks import (
    Measured,
    Number,
    at_least,
    at_most,
    below,
    check,
    numbers,
    within,
)
from examples.reproduce.experiment import ExperimentContext, Table
from examples.reproduce.figures import COLOURS, Picture, new_canvas, style_axes
from examples.reproduce.runner import Job
from examples.reproduce.stats import format_means, mean_ci
from examples.reproduce.tabular_runner import Batch, NewWeights, RuleVariant, record_episodes
from horde_agent.problems.classics import features
from horde_agent.problems.markov import Expectations, Problem, SmallMDP, one_question
from horde_agent.scoring.intervals import student_t
from horde_agent.types import Floats, Integers

TITLE = "The MSPBE estimates on a small chain"
N_STATES = 5
MIDDLE = 2
TARGET_RIGHT = 0.95
BEHAVIOUR_RIGHT = 0.2
ALPHA = 0.05
ALPHA_W = 0.1
LAM = 0.0
N_RUNS = 100
N_EPISODES = 2000
CHANGE_AFTER = 1000
GAMMAS = (0.9, 1.0)
TAUS = (5, 10, 20, 50, 100, 200, 500, 1000)
TAU = 20
OLDER = 2
"""Episodes by which w is taken older where its drift is measured: TAU steps, about."""


PHI = features("inverted")
"""(5, 5): 0 at the own state and 1/2 elsewhere, so that each row has length 1."""


def chain() -> SmallMDP:
    """Return the chain; action 0 goes left, 1 right."""
    step_left = np.eye(N_STATES, k=-1)
    step_right = np.eye(N_STATES, k=1)
    reward = np.zeros((2, N_STATES))
    reward[1, -1] = 1.0
    return SmallMDP(np.stack([step_left, step_right]), reward, np.eye(N_STATES)[MIDDLE])


def going_right(probability: float) -> Floats:
    """Return the policy that goes right with this probability in every state, shape (5, 2)."""
    return np.tile([1.0 - probability, probability], (N_STATES, 1))


def problem(gamma: float) -> Problem:
    """Return the prediction on the chain at a constant gamma."""
    return Problem(
        mdp=chain(),
        actions=("left", "right"),
        behaviour=going_right(BEHAVIOUR_RIGHT),
        features=PHI,
        questions=one_question(chain(), going_right(TARGET_RIGHT), gamma),
    )


def expectations(gamma: float) -> Expectations:
    """Return A, b and C of the learner on the chain, exactly."""
    return problem(gamma).expectations()


def steps_per_episode() -> float:
    """Return how many steps an episode has in the mean under the behaviour policy."""
    P, _ = chain().under(going_right(BEHAVIOUR_RIGHT))
    return float(np.linalg.inv(np.eye(N_STATES) - P)[MIDDLE].sum())


def walk(rng: np.random.Generator, n_episodes: int) -> Integers:
    """Return episodes of the behaviour policy, simulated all at once: a trajectory as in `simulate`, shape (3, T)."""
    episode = np.arange(n_episodes)
    state = np.full(n_episodes, MIDDLE)
    episodes = []
    columns = []
    while episode.size:
        is_right = rng.random(episode.size) < BEHAVIOUR_RIGHT
        reached = state + 2 * is_right - 1
        goes_on = (reached >= 0) & (reached < N_STATES)
        episodes.append(episode)
        columns.append(np.stack([state, is_right, np.where(goes_on, reached, N_STATES)]))
        episode = episode[goes_on]
        state = reached[goes_on]
    order = np.argsort(np.concatenate(episodes), kind="stable")
    return np.asarray(np.concatenate(columns, axis=1)[:, order])


# ---- GTD(0) and its estimates ---------------------------------------------------------------------------------------


class Recorded(NamedTuple):
    """Weights and estimates after each of E episodes, K estimates with other time constants."""

    theta: Floats  # (E, n)
    w: Floats  # (E, n)
    m: Floats  # (E, K, n): traces of delta e, vector estimates
    s: Floats  # (E, K): traces of delta (e.w), scalar estimates
    mean_phi_phi: Floats  # (E, n, n): running mean of phi phi'


def record(
    trajectory: Integers, gamma: float, taus: Sequence[float], change: NewWeights
) -> Recorded:
    """Learn from a trajectory; return the records before it and after each of its episodes.

    The learner is the library's GTD(lambda), which has one time constant: it learns once for each.

    Args:
        trajectory: As `walk` returns it, shape (3, T).
        gamma: The continuation.
        taus: Time constants of the estimates, in steps.
        change: New weights, which the learner gets in the course of the trajectory.
    """
    learner = Batch(
        RuleVariant("gtd", ratio=ALPHA_W / ALPHA), step_size=np.array([ALPHA]), lam=np.array([LAM])
    )
    records = [
        record_episodes(problem(gamma), trajectory, learner, mspbe_tau=tau, change=change)
        for tau in taus
    ]
    return Recorded(
        theta=records[0].theta,
        w=records[0].w,
        m=np.stack([of_tau.m for of_tau in records], axis=1),
        s=np.stack([of_tau.s for of_tau in records], axis=1),
        mean_phi_phi=mean_products(trajectory),
    )


def mean_products(trajectory: Integers) -> Floats:
    """Return the mean of phi phi' over the steps before the first and up to each episode's end, (1 + E, n, n).

    The trajectory is that of `walk`, shape (3, T).
    """
    is_end = trajectory[2] == N_STATES
    visits = np.cumsum(np.eye(N_STATES)[trajectory[0]], axis=0)[is_end]
    frequency = np.vstack([np.zeros(N_STATES), visits / visits.sum(axis=1, keepdims=True)])
    return np.asarray(np.einsum("es,si,sj->eij", frequency, PHI, PHI))


def learn(seed: int, run: int, gamma: float) -> Recorded:
    """Learn in one run, which draws from the generator seeded by (seed, run).

    After episode 1000 theta := U[0, 1]^5, while w and the estimates are kept.
    """
    rng = np.random.default_rng([seed, run])
    before_change = walk(rng, CHANGE_AFTER)
    change = NewWeights(CHANGE_AFTER, rng.random(N_STATES))
    after_change = walk(rng, N_EPISODES - CHANGE_AFTER)
    return record(np.hstack([before_change, after_change]), gamma, TAUS, change)


MEASURES = ("true", "sample", "vector", "scalar", "exact_w", "exact_trace", "exact_trace_older_w")
"""The true MSPBE and the sample MSPBE; both estimates; the vector estimate, were w the one that belongs to theta; were
its trace E[delta e]; the same with the w of `OLDER` episodes before, 0 at first."""


def measures(curves: Recorded, known: Expectations) -> tuple[Floats, ...]:
    """Return the `MEASURES` of one run, from what its learner kept."""
    expected = curves.theta @ known.A.T + known.b
    w_of_theta = expected @ np.linalg.pinv(known.C, hermitian=True)
    older_w = np.concatenate([np.zeros((OLDER, N_STATES)), curves.w[:-OLDER]])
    return (
        np.einsum("ei,ei->e", expected, w_of_theta),
        squared_lengths(curves.m, curves.mean_phi_phi),
        np.einsum("eki,ei->ek", curves.m, curves.w),
        curves.s,
        np.einsum("eki,ei->ek", curves.m, w_of_theta),
        np.einsum("ei,ei->e", expected, curves.w),
        np.einsum("ei,ei->e", expected, older_w),
    )


def squared_lengths(m: Floats, C: Floats) -> Floats:
    """Return m' C^+ m after each of E episodes, (E, K), of K traces, (E, K, n), and C = E[phi phi'], (E, n, n)."""
    size, direction = np.linalg.eigh(C)
    is_null = size <= 1e-15 * size[:, -1:]
    along = np.einsum("eki,eij->ekj", m, direction) ** 2
    return np.asarray((along * (~is_null / np.where(is_null, 1.0, size))[:, None, :]).sum(axis=2))


# The windows in which curves are compared, in episodes: all before the change, the rise of w, after
# it, the change.
BEFORE = slice(1, CHANGE_AFTER + 1)
RISE = slice(1, 200)
SETTLED = slice(200, CHANGE_AFTER + 1)
CHANGED = slice(CHANGE_AFTER + 1, N_EPISODES + 1)
ONLINE = ("vector", "scalar")


class Curves(NamedTuple):
    """The mean of 100 runs and its standard error, by measure; (E + 1,) or, for those that have a tau, (E + 1, K)."""

    mean: dict[str, Floats]
    error: dict[str, Floats]
    starts_at_zero: bool  # both online estimates, in every run, before anything was learned

    def at(self, measure: str, tau: int = TAU, field: str = "mean") -> Floats:
        """Return a measure's mean curve, (E + 1,), or its standard error, if that is the `field`."""
        values: Floats = getattr(self, field)[measure]
        if values.ndim == 2:
            return values[:, TAUS.index(tau)]
        return values


class CurveFit(NamedTuple):
    """How a curve follows the true one."""

    correlation: float  # after the rise
    area: float  # ratio, after the rise
    area_in_rise: float  # ratio, in the first 200 episodes
    correlation_changed: float
    area_changed: float
    peak: float  # the largest value after the change
    peak_after: int  # episodes after the change
    # Root mean square difference in episodes 1 to 1000, over the root mean square of the true curve
    error: float
    error_changed: float


def fit(curve: Floats, true: Floats) -> CurveFit:
    """Compare a mean curve with the true one, both of shape (E + 1,), after 0 to E episodes."""
    changed = curve[CHANGED]
    return CurveFit(
        *likeness(curve[SETTLED], true[SETTLED]),
        likeness(curve[RISE], true[RISE])[1],
        *likeness(changed, true[CHANGED]),
        float(changed.max()),
        int(changed.argmax()) + 1,
        *(_relative_error(curve[part], true[part]) for part in (BEFORE, CHANGED)),
    )


def likeness(curve: Floats, true: Floats) -> tuple[float, float]:
    """Return the correlation of two curves, both of shape (n_episodes,), and the ratio of the areas under them."""
    return float(np.corrcoef(curve, true)[0, 1]), float(curve.sum() / true.sum())


def _relative_error(curve: Floats, true: Floats) -> float:
    return float(np.sqrt(((curve - true) ** 2).mean() / (true**2).mean()))


def mean_curves(seed: int, gamma: float) -> Curves:
    """Learn in independent runs and return their means."""
    expected = expectations(gamma)
    measures_of_runs = [measures(learn(seed, run, gamma), expected) for run in range(N_RUNS)]
    runs = {
        name: np.stack(of_runs)
        for name, of_runs in zip(MEASURES, zip(*measures_of_runs, strict=True), strict=True)
    }
    mean = {name: values.mean(axis=0) for name, values in runs.items()}
    error = {name: values.std(axis=0, ddof=1) / np.sqrt(N_RUNS) for name, values in runs.items()}
    return Curves(mean, error, not any(runs[name][:, 0].any() for name in ONLINE))


CurvesByGamma = dict[tuple[float, int], Curves]
"""The curves by gamma and seed."""


def run(context: ExperimentContext) -> tuple[CurvesByGamma, dict[str, object]]:
    """Learn in 100 runs for each seed and gamma, at either scale."""
    keys = product(GAMMAS, context.seeds)
    data = context.in_parallel(
        {(g, s): Job(f"gamma {g:g}, seed {s}", mean_curves, (s, g)) for g, s in keys}
    )
    return data, {
        "runs per seed": N_RUNS,
        "episodes": N_EPISODES,
        "theta := U[0, 1]^5 after episode": CHANGE_AFTER,
        "alpha": ALPHA,
        "alpha_w": ALPHA_W,
        "lambda": LAM,
        "P(right), target": TARGET_RIGHT,
        "P(right), behaviour": BEHAVIOUR_RIGHT,
        "seeds": [f"({seed}, 0..{N_RUNS - 1})" for seed in context.seeds],
    }


# ---- checks ---------------------------------------------------------------------------------------------------------

SHAPE = at_least(0.75)
AREA = within(0.5, 1.5)
HALVES = {"before the change": BEFORE, "after it": CHANGED}


def judged(data: CurvesByGamma) -> list[Curves]:
    """Return the curves of all seeds at the gamma that is judged."""
    return [curves for (gamma, _), curves in data.items() if gamma == GAMMAS[0]]


def fits(data: CurvesByGamma, measure: str, number: str, tau: int = TAU) -> list[float]:
    """Return a number of a measure's `Fit`, one per seed."""
    return [getattr(fit(c.at(measure, tau), c.at("true")), number) for c in judged(data)]


def _follow(data: CurvesByGamma, ending: str) -> list[Number]:
    shapes = {f"correlation of {name}": fits(data, name, f"correlation{ending}") for name in ONLINE}
    areas = {
        f"area of {name} over the true one": fits(data, name, f"area{ending}") for name in ONLINE
    }
    return numbers(shapes, SHAPE) + numbers(areas, AREA)


def _rise(data: CurvesByGamma) -> dict[str, list[float]]:
    return {
        f"area of {name} in episodes 1-199": fits(data, name, "area_in_rise") for name in ONLINE
    }


def _exact(data: CurvesByGamma, number: str) -> str:
    """Return a number of the vector estimate as it would be, were one of its two factors exact."""
    return (
        f"{mean_ci(fits(data, 'exact_w', number))} with the w that belongs to theta in the place of the learned one, "
        f"{mean_ci(fits(data, 'exact_trace', number))} with the exact E[delta e] in the place of its trace"
    )


@check(
    claim="Both online estimates match the profile and the magnitude of the true MSPBE.",
    paper="an accurate estimate, matching profile and magnitude",
    source="section 6, chain figure, left",
    terms="Episodes 200-1000:",
)
def _estimates_track_the_mspbe(data: CurvesByGamma) -> Measured:
    return Measured(
        _follow(data, "") + numbers(_rise(data), AREA),
        cause="Both start at 0 with w. Of the true area in episodes 1-199 the vector estimate has "
        f"{_exact(data, 'area_in_rise')}: it is w that is late.",
    )


@check(
    claim=(
        "The online estimates react to a change of theta like the true MSPBE, and track it closely."
    ),
    paper="all react similarly; the online estimates track the true and sample MSPBE closely",
    source="section 6, chain figure, right",
    terms="Episodes 1001-2000:",
)
def _estimates_react_to_a_change(data: CurvesByGamma) -> Measured:
    jump = np.mean(fits(data, "true", "peak"))
    peaks = {
        f"peak of {name} over the true one": np.array(fits(data, name, "peak")) / jump
        for name in ONLINE
    }
    peak_sentence = format_means({name: fits(data, name, "peak_after") for name in ONLINE})
    return Measured(
        _follow(data, "_changed") + numbers(peaks, at_least(0.5)),
        f"Episodes until the peak: {peak_sentence}; the true MSPBE jumps to "
        f"{mean_ci(fits(data, 'true', 'peak'))} at once.",
        "The peak is lower since w and the trace of delta e are both late: the vector estimate peaks at "
        f"{_exact(data, 'peak')}; with both it is the true MSPBE.",
    )


@check(
    claim="The online estimates cannot track the true MSPBE better than the sample MSPBE.",
    paper="the sample MSPBE represents the best possible sample-based estimate",
    source="section 6",
    terms=(
        f"Differences of the root mean square errors relative to the true curve, at tau {TAU} "
        "and at each one's best tau:"
    ),
    limit=at_most(0.0),
)
def _sample_mspbe_is_best(data: CurvesByGamma) -> Measured:
    excesses = {}
    sentences = []
    for when, number in zip(HALVES, ("error", "error_changed"), strict=True):
        of_tau = {
            name: [np.mean(fits(data, name, number, tau)) for tau in TAUS]
            for name in ("sample", *ONLINE)
        }
        at_tau = {name: errors[TAUS.index(TAU)] for name, errors in of_tau.items()}
        best = {name: min(errors) for name, errors in of_tau.items()}
        for tau, each in ((f"tau {TAU}", at_tau), ("best tau", best)):
            for name in ONLINE:
                excess = each["sample"] - each[name]
                excesses[f"sample minus {name} {when}, {tau}"] = excess
        sentences += [
            f"{name} {min(errors):.3g} (tau {TAUS[np.argmin(errors)]}) {when}"
            for name, errors in of_tau.items()
        ]
    return Measured(
        excesses,
        f"Least errors: {'; '.join(sentences)}.",
        "m' C^-1 m is quadratic in the noise of the trace m and so reads too high by its variance, which shrinks "
        f"only as 1/tau (area in episodes 200-1000 at tau {TAU}: {mean_ci(fits(data, 'sample', 'area'))} of the true "
        "one); in m.w only the small part of the noise is squared that m and w share.",
    )


@check(
    claim="Both estimates are zero at first, since w takes time to adapt.",
    paper="both MSPBE estimates are initially at zero",
    source="section 6 (said of the robot, true of the chain)",
)
def _estimates_start_at_zero(data: CurvesByGamma) -> list[Number]:
    at_zero = np.mean([curves.starts_at_zero for curves in judged(data)])
    return [
        Number("share of seeds in which both start at 0 in all runs", at_zero, at_least(1.0)),
        *numbers(_rise(data), below(1.0)),
    ]


@check(
    claim="The scalar estimate, one number, shows the same trend as the vector estimate.",
    paper="very similar trends: the error can be estimated with minimal storage",
    source="section 6",
    terms="Scalar against vector:",
)
def _scalar_follows_vector(data: CurvesByGamma) -> Measured:
    numbers = []
    for when, half in HALVES.items():
        shape, area = zip(
            *(likeness(c.at("scalar")[half], c.at("vector")[half]) for c in judged(data)),
            strict=True,
        )
        numbers += [
            Number(f"correlation {when}", shape, at_least(0.9)),
            Number(f"area over the vector's {when}", area, AREA),
        ]
    return Measured(numbers, cause=_gap(judged(data)))


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
        f"in {OLDER} episodes (tau steps) is {drift[0]:.1%} and {drift[1]:.1%} of the vector's area; with "
        "E[delta e], which shares no sample with w, in the place of the trace the vector estimate has "
        f"{alone[0]:.3f} and {alone[1]:.3f} of its area."
    )


REMARKS = [
    "The paper gives neither gamma nor the time constant tau of the estimates' traces. Judged is gamma 0.9 at "
    f"tau = {TAU} steps (an episode has {steps_per_episode():.1f} steps in the mean); gamma 1 and "
    "other taus are shown too."
]


# ---- figure and tables ----------------------------------------------------------------------------------------------

_LOOKS = {
    "true": ("black", 2.2),
    "sample": (COLOURS[5], 1.0),
    "vector": (COLOURS[0], 1.4),
    "scalar": (COLOURS[1], 1.4),
}
_SAMPLE_TAU = 100
EPISODES_SHOWN = (1, 10, 100, 500, 1000, 1001, 1050, 1200, 2000)


def pictures(data: CurvesByGamma) -> dict[str, Picture]:
    """Draw the first seed's curves of each gamma."""
    first = {
        gamma: next(curves for (g, _), curves in data.items() if g == gamma) for gamma in GAMMAS
    }
    return {f"gamma-{gamma:g}": _picture(curves, gamma) for gamma, curves in first.items()}


def _picture(curves: Curves, gamma: float) -> Picture:
    canvas, (left, right) = new_canvas(9.0, 4.2, 2)
    true = curves.at("true")
    _draw(left, curves, 0, CHANGE_AFTER)
    top = 1.8 * true[: CHANGE_AFTER + 1].max()
    style_axes(left, "tracking", legend=True, xlabel="episode", ylabel="MSPBE", ylim=(-0.001, top))
    _draw(right, curves, CHANGE_AFTER - 100, N_EPISODES)
    top = 1.1 * true[CHANGED].max()
    style_axes(
        right,
        f"theta := U[0, 1] after episode {CHANGE_AFTER:,}",
        xlabel="episode",
        ylim=(-0.001, top),
    )
    caption = (
        f"Means of {N_RUNS} runs at gamma {gamma:g}, bands of two standard errors. Left: the first "
        f"{CHANGE_AFTER:,} episodes. Right: theta is redrawn, w and the estimates are kept. The estimates "
        f"have tau = {TAU} steps, the sample MSPBE tau = {_SAMPLE_TAU} (at {TAU} it lies above the "
        "panels)."
    )
    return Picture(canvas, caption)


def _draw(axes: Axes, curves: Curves, first: int, last: int) -> None:
    x = np.arange(first, last + 1)
    for name, (colour, width) in _LOOKS.items():
        tau = _SAMPLE_TAU
        if name != "sample":
            tau = TAU
        mean, error = (curves.at(name, tau, field)[first : last + 1] for field in ("mean", "error"))
        axes.plot(
            x,
            mean,
            color=colour,
            linewidth=width,
            label=name if name == "true" else f"{name}, tau {tau}",
        )
        axes.fill_between(
            x, mean - 2 * error, mean + 2 * error, color=colour, alpha=0.15, linewidth=0
        )
    axes.set_xlim(first, last)


def tables(data: CurvesByGamma) -> list[Table]:
    """Return the experiment's tables, in the order in which they are read."""
    first = next(iter(data.values()))
    return [_gammas(data), _episodes(first), _taus(first)]


def _episodes(curves: Curves) -> Table:
    of_taus = ((name, tau) for tau in (10, TAU, 100) for name in ("vector", "scalar", "sample"))
    t = student_t(N_RUNS - 1)
    rows = []
    for name, tau in (("true", TAU), *of_taus):
        mean = 1e3 * curves.at(name, tau)
        error = 1e3 * t * curves.at(name, tau, "error")
        values = {f"{k:,}": f"{_short(mean[k])} ± {_short(error[k])}" for k in EPISODES_SHOWN}
        rows.append({"measure": name if name == "true" else f"{name}, tau {tau}", **values})
    return Table.of(
        "1000 x MSPBE by episode: means of 100 runs with 95 % intervals (gamma 0.9)", rows
    )


def _short(value: float) -> str:
    if abs(value) < 10:
        return f"{value:.2f}"
    if abs(value) < 100:
        return f"{value:.1f}"
    return f"{value:.0f}"


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


def _gammas(data: CurvesByGamma) -> Table:
    rows = []
    for gamma, name in product(GAMMAS, (*ONLINE, "sample", "exact_w", "exact_trace")):
        fits = [fit(c.at(name), c.at("true")) for (g, _), c in data.items() if g == gamma]
        means = map(mean_ci, zip(*fits, strict=True))
        rows.append({"gamma": gamma, "measure": name, **dict(zip(_COLUMNS, means, strict=True))})
    note = (
        "exact_w: the vector estimate with the w that belongs to theta; exact_trace: with E[delta e] in the place of "
        "its trace. Both need the exact model of the chain."
    )
    return Table.of(f"By gamma, means over the seeds, tau {TAU}", rows, note)


def _taus(curves: Curves) -> Table:
    rows = []
    for tau, name in product(TAUS, (*ONLINE, "sample")):
        fitted = fit(curves.at(name, tau), curves.at("true"))
        row: dict[str, object] = {"tau": tau, "measure": name}
        for column, value in zip(_COLUMNS, fitted, strict=True):
            row[column] = round(value, 4) if isinstance(value, float) else value
        rows.append(row)
    return Table.of("Sensitivity to tau (gamma 0.9)", rows)
