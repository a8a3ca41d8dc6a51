"""Experiment `chain`: do the online estimates of the MSPBE follow the true one, and a change?

Four measures of one GTD learner, before and after its weights change; figures and verdicts use the mean of 100 runs.
Five states in a row, an absorbing end on either side (the paper counts seven), +1 on the right exit. Every episode
begins in the middle. Source: White, Modayil & Sutton (2012), section 6; inverted features: Sutton et al. (2009).
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from matplotlib.axes import Axes

from horde_agent.problems.classics import features
from horde_agent.problems.markov import Expectations, SmallMDP
from horde_agent.reproduce.experiment import Cell, Claims, Experiment, Figure, Finding, Table, join, mean_ci, student_t
from horde_agent.reproduce.figure import COLOURS, new_canvas, save, style_axes
from horde_agent.reproduce.study import Job, OnProgress, Study
from horde_agent.types import Floats, Integers

N_STATES, MIDDLE = 5, 2
TARGET_RIGHT, BEHAVIOUR_RIGHT = 0.95, 0.2
ALPHA, ALPHA_W, LAM = 0.05, 0.1, 0.0
N_RUNS, N_EPISODES, CHANGE_AFTER = 100, 2000, 1000
GAMMAS = (0.9, 1.0)
TAUS = (5, 10, 20, 50, 100, 200, 500, 1000)
TAU = 20
OLDER = 2
"""Episodes by which w is taken older where its drift is measured: TAU steps, about."""


PHI = features("inverted")
"""(5, 5): 0 at the own state and 1/2 elsewhere, so that each row has length 1."""


def chain() -> SmallMDP:
    """Return the chain; action 0 goes left, 1 right."""
    left, right = np.eye(N_STATES, k=-1), np.eye(N_STATES, k=1)
    reward = np.zeros((2, N_STATES))
    reward[1, -1] = 1.0
    return SmallMDP(np.stack([left, right]), reward, np.eye(N_STATES)[MIDDLE])


def going_right(probability: float) -> Floats:
    """Return the policy that goes right with this probability in every state, shape (5, 2)."""
    return np.tile([1.0 - probability, probability], (N_STATES, 1))


def expectations(gamma: float) -> Expectations:
    """Return A, b and C of the learner on the chain, exactly."""
    target, behaviour = going_right(TARGET_RIGHT), going_right(BEHAVIOUR_RIGHT)
    return chain().expectations(target, behaviour, PHI, gamma, LAM)


def steps_per_episode() -> float:
    """Return how many steps an episode has in the mean under the behaviour policy."""
    P, _ = chain().under(going_right(BEHAVIOUR_RIGHT))
    return float(np.linalg.inv(np.eye(N_STATES) - P)[MIDDLE].sum())


def walk(rng: np.random.Generator, n_episodes: int, gamma: float) -> Stream:
    """Simulate episodes of the behaviour policy, all at once; state 5 stands for either end."""
    episode, state = np.arange(n_episodes), np.full(n_episodes, MIDDLE)
    steps = []
    while episode.size:
        is_right = rng.random(episode.size) < BEHAVIOUR_RIGHT
        steps.append((episode, state, is_right))
        state = state + 2 * is_right - 1
        goes_on = (state >= 0) & (state < N_STATES)
        episode, state = episode[goes_on], state[goes_on]
    episode, state, is_right = (np.concatenate(column) for column in zip(*steps, strict=True))
    order = np.argsort(episode, kind="stable")
    state, is_right = state[order], is_right[order]
    reached = state + 2 * is_right - 1
    is_over = (reached < 0) | (reached == N_STATES)
    return Stream(
        state_t=state,
        state_tp1=np.where(is_over, N_STATES, reached),
        rho_t=np.where(is_right, TARGET_RIGHT / BEHAVIOUR_RIGHT, (1 - TARGET_RIGHT) / (1 - BEHAVIOUR_RIGHT)),
        c_tp1=(reached == N_STATES).astype(np.float64),
        gamma_tp1=np.where(is_over, 0.0, gamma),
    )


class Stream(NamedTuple):
    """T transitions of whole episodes, or those of R runs, (R, T)."""

    state_t: Integers  # (T,): rows of Phi
    state_tp1: Integers  # (T,)
    rho_t: Floats  # (T,): pi(a_t) / b(a_t)
    c_tp1: Floats  # (T,)
    gamma_tp1: Floats  # (T,): 0 where the episode ends


# ---- GTD(0) with real-valued features: a state is a row of Phi, whose last row, all zero, is the end -----------------


class Runs:
    """Independent runs of GTD(0), one per row.

    Args:
        theta: First weights, shape (n_runs, n).
        alpha: Step size.
        alpha_w: Secondary step size; 0 makes the learner TD(0).

    Source: White, Modayil & Sutton (2012), pseudo-code of GTD(lambda).
    """

    def __init__(self, theta: Floats, alpha: float, alpha_w: float) -> None:
        self.theta, self.w, self.alpha, self.alpha_w = theta.copy(), np.zeros(theta.shape), alpha, alpha_w

    def learn(self, phi: Floats, phi_tp1: Floats, c: Any, gamma_tp1: Any, rho: Any) -> tuple[Floats, Floats, Floats]:
        """Learn from a transition of each run and return delta, delta e, and e.w before this step.

        phi and phi_tp1 are of shape (n_runs, n); c, gamma and rho of (n_runs,).
        """
        delta = c + gamma_tp1 * dot(self.theta, phi_tp1) - dot(self.theta, phi)
        error, e_w = (rho * delta)[:, None] * phi, rho * dot(self.w, phi)
        self.theta += self.alpha * (error - (gamma_tp1 * e_w)[:, None] * phi_tp1)
        self.w += self.alpha_w * (error - dot(self.w, phi)[:, None] * phi)
        return delta, error, e_w


def dot(a: Floats, b: Floats) -> Floats:
    """Return the scalar products of the rows of two arrays, (n_runs, n), shape (n_runs,)."""
    return np.asarray(np.einsum("ij,ij->i", a, b))


class EstimatingRuns(Runs):
    """Runs with the MSPBE estimates of K time constants.

    Args:
        theta, alpha, alpha_w: As in `Runs`.
        taus: Time constants of the estimates, in steps.

    Source: White, Modayil & Sutton (2012), eq. 9; rho is in e and nowhere else.
    """

    def __init__(self, theta: Floats, alpha: float, alpha_w: float, taus: Sequence[float]) -> None:
        super().__init__(theta, alpha, alpha_w)
        self._rate, self._n_steps, (n_runs, n) = 1.0 / np.array(taus, dtype=np.float64), 0, theta.shape
        self._m, self._s = np.zeros((n_runs, len(taus), n)), np.zeros((n_runs, len(taus)))
        self._mean_phi_phi = np.zeros((n_runs, n, n))

    def learn(self, phi: Floats, phi_tp1: Floats, c: Any, gamma_tp1: Any, rho: Any) -> tuple[Floats, Floats, Floats]:
        """Learn from a transition of each run, as in `Runs`: features (n_runs, n), all else (n_runs,)."""
        delta, error, e_w = super().learn(phi, phi_tp1, c, gamma_tp1, rho)
        self._n_steps += 1
        self._mean_phi_phi += (phi[:, :, None] * phi[:, None] - self._mean_phi_phi) / self._n_steps
        self._m += self._rate[:, None] * (error[:, None] - self._m)
        self._s += self._rate * ((delta * e_w)[:, None] - self._s)
        return delta, error, e_w

    @property
    def numbers(self) -> Recorded:
        """Weights and estimates now, with an axis of runs in the place of the episodes."""
        return Recorded(self.theta, self.w, self._m, self._s, self._mean_phi_phi)


class Recorded(NamedTuple):
    """Weights and estimates after each of E episodes."""

    theta: Floats  # (E, n)
    w: Floats  # (E, n)
    m: Floats  # (E, K, n): traces of delta e, vector estimates
    s: Floats  # (E, K): traces of delta (e.w), scalar estimates
    mean_phi_phi: Floats  # (E, n, n): running mean of phi phi'


def learn(seed: int, gamma: float) -> Recorded:
    """Learn in all runs, and return their weights and estimates, with a first axis of runs.

    After episode 1000 theta := U[0, 1]^5, while w and the estimates are kept. Run k draws from the generator seeded by
    (seed, k).
    """
    streams, fresh, phi = [], np.zeros((N_RUNS, N_STATES)), np.vstack([PHI, np.zeros(N_STATES)])
    for k in range(N_RUNS):
        rng = np.random.default_rng([seed, k])
        before, fresh[k] = walk(rng, CHANGE_AFTER, gamma), rng.random(N_STATES)
        after = walk(rng, N_EPISODES - CHANGE_AFTER, gamma)
        streams.append([np.concatenate(halves) for halves in zip(before, after, strict=True)])
    longest = max(len(stream[0]) for stream in streams)
    columns = zip(*streams, strict=True)
    steps = Stream(*(np.stack([np.pad(x, (0, longest - len(x))) for x in column], axis=1) for column in columns))
    runs, episode = EstimatingRuns(np.zeros((N_RUNS, N_STATES)), ALPHA, ALPHA_W, TAUS), np.zeros(N_RUNS, dtype=np.int64)
    curves = Recorded(*(np.zeros((N_RUNS, N_EPISODES + 1, *now.shape[1:])) for now in runs.numbers))
    for t in range(longest):
        step = Stream(*(column[t] for column in steps))
        runs.learn(phi[step.state_t], phi[step.state_tp1], step.c_tp1, step.gamma_tp1, step.rho_t)
        ended = np.flatnonzero((step.gamma_tp1 == 0.0) & (episode < N_EPISODES))
        episode[ended] += 1
        for curve, now in zip(curves, runs.numbers, strict=True):
            curve[ended, episode[ended]] = now[ended]
        changed = ended[episode[ended] == CHANGE_AFTER]
        runs.theta[changed] = fresh[changed]
    return curves


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
    """Return m' C^+ m after each of E episodes, shape (E, K).

    Args:
        m: K traces of delta e, shape (E, K, n).
        C: E[phi phi'] by then, shape (E, n, n); its null space counts as nothing.
    """
    size, direction = np.linalg.eigh(C)
    is_null = size <= 1e-15 * size[:, -1:]
    along = np.einsum("eki,eij->ekj", m, direction) ** 2
    return np.asarray((along * (~is_null / np.where(is_null, 1.0, size))[:, None, :]).sum(axis=2))


# The windows in which curves are compared, in episodes: all before the change, the rise of w, after it, the change.
BEFORE, RISE, SETTLED = slice(1, CHANGE_AFTER + 1), slice(1, 200), slice(200, CHANGE_AFTER + 1)
CHANGED = slice(CHANGE_AFTER + 1, N_EPISODES + 1)
ONLINE = ("vector", "scalar")


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
    """Compare a mean curve with the true one, both of shape (E + 1,), after 0 to E episodes."""
    changed = curve[CHANGED]
    return Fit(
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


def mean_curves(_on_progress: OnProgress, seed: int, gamma: float) -> Curves:
    """Learn in independent runs and return their means; a job for a worker process."""
    known, curves = expectations(gamma), learn(seed, gamma)
    each = [measures(Recorded(*of_run), known) for of_run in zip(*curves, strict=True)]
    runs = {name: np.stack(parts) for name, parts in zip(MEASURES, zip(*each, strict=True), strict=True)}
    mean = {name: values.mean(axis=0) for name, values in runs.items()}
    error = {name: values.std(axis=0, ddof=1) / np.sqrt(N_RUNS) for name, values in runs.items()}
    return Curves(mean, error, not any(runs[name][:, 0].any() for name in ONLINE))


Data = dict[tuple[float, int], Curves]
"""The curves by gamma and seed."""


def gather(study: Study) -> Data:
    """Learn in 100 runs for each seed and gamma, at either scale."""
    keys = [(gamma, seed) for gamma in GAMMAS for seed in study.seeds]
    done = study.in_parallel([Job(f"gamma {g:g}, seed {s}", mean_curves, (s, g)) for g, s in keys])
    return dict(zip(keys, done, strict=True))


# ---- claims ----------------------------------------------------------------------------------------------------------


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
        f"in {OLDER} episodes (tau steps) is {drift[0]:.1%} and {drift[1]:.1%} of the vector's area; with "
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
    t = student_t(N_RUNS - 1)
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
        "runs per seed": N_RUNS,
        "episodes": N_EPISODES,
        "theta := U[0, 1]^5 after episode": CHANGE_AFTER,
        "alpha": ALPHA,
        "alpha_w": ALPHA_W,
        "lambda": LAM,
        "P(right), target": TARGET_RIGHT,
        "P(right), behaviour": BEHAVIOUR_RIGHT,
        "seeds": join(f"({seed}, 0..{N_RUNS - 1})" for seed in study.seeds),
    }


REMARKS = [
    "The paper gives neither gamma nor the time constant tau of the estimates' traces. Judged is gamma 0.9 at "
    f"tau = {TAU} steps (an episode has {steps_per_episode():.1f} steps in the mean); gamma 1 and "
    "other taus are shown too."
]
EXPERIMENT = Experiment(
    "chain", "The MSPBE estimates on a small chain", gather, CLAIMS, pictures, tables, settings, REMARKS
)
