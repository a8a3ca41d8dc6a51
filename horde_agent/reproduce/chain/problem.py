"""The chain, GTD(0) with the MSPBE estimates in 100 runs at once, and their mean curves."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import product, zip_longest
from typing import Any, NamedTuple

import numpy as np

from horde_agent.problems.classics import features
from horde_agent.problems.markov import Expectations, SmallMDP
from horde_agent.reproduce.experiment import ExperimentContext
from horde_agent.reproduce.runner import Job
from horde_agent.types import Bools, Floats, Integers

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
RHO = np.array([(1 - TARGET_RIGHT) / (1 - BEHAVIOUR_RIGHT), TARGET_RIGHT / BEHAVIOUR_RIGHT])
"""pi / b of going left and right."""
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


def expectations(gamma: float) -> Expectations:
    """Return A, b and C of the learner on the chain, exactly."""
    target = going_right(TARGET_RIGHT)
    behaviour = going_right(BEHAVIOUR_RIGHT)
    return chain().expectations(target, behaviour, PHI, gamma, LAM)


def steps_per_episode() -> float:
    """Return how many steps an episode has in the mean under the behaviour policy."""
    P, _ = chain().under(going_right(BEHAVIOUR_RIGHT))
    return float(np.linalg.inv(np.eye(N_STATES) - P)[MIDDLE].sum())


def walk(rng: np.random.Generator, n_episodes: int) -> Bools:
    """Return the actions of episodes of the behaviour policy, simulated all at once: True for right, shape (T,)."""
    episode = np.arange(n_episodes)
    state = np.full(n_episodes, MIDDLE)
    steps = []
    while episode.size:
        is_right = rng.random(episode.size) < BEHAVIOUR_RIGHT
        steps.append((episode, is_right))
        state = state + 2 * is_right - 1
        goes_on = (state >= 0) & (state < N_STATES)
        episode = episode[goes_on]
        state = state[goes_on]
    episode, is_right = (np.concatenate(column) for column in zip(*steps, strict=True))
    return np.asarray(is_right[np.argsort(episode, kind="stable")])


# ---- GTD(0) with real-valued features --------------------------------------------------------------------------------


class Runs:
    """Independent runs of GTD(0), one per row, from weights of shape (n_runs, n); with alpha_w = 0 of TD(0).

    Source: White, Modayil & Sutton (2012), pseudo-code of GTD(lambda).
    """

    def __init__(self, theta: Floats, alpha: float, alpha_w: float) -> None:
        self.theta = theta.copy()
        self.w = np.zeros(theta.shape)
        self.alpha = alpha
        self.alpha_w = alpha_w

    def learn(
        self, phi: Floats, phi_tp1: Floats, c: Any, gamma_tp1: Any, rho: Any
    ) -> tuple[Floats, Floats, Floats]:
        """Learn from a transition of each run and return delta, delta e, and e.w before this step.

        phi and phi_tp1 are of shape (n_runs, n); c, gamma and rho of (n_runs,).
        """
        delta = c + gamma_tp1 * dot(self.theta, phi_tp1) - dot(self.theta, phi)
        error = (rho * delta)[:, None] * phi
        e_w = rho * dot(self.w, phi)
        self.theta += self.alpha * (error - (gamma_tp1 * e_w)[:, None] * phi_tp1)
        self.w += self.alpha_w * (error - dot(self.w, phi)[:, None] * phi)
        return delta, error, e_w

    @property
    def numbers(self) -> tuple[Floats, ...]:
        """Numbers that are recorded after each episode, each (n_runs, ...)."""
        return (self.theta,)


def dot(a: Floats, b: Floats) -> Floats:
    """Return the scalar products of the rows of two arrays, (n_runs, n), shape (n_runs,)."""
    return np.asarray(np.einsum("ij,ij->i", a, b))


class EstimatingRuns(Runs):
    """Runs with the MSPBE estimates of K time constants, in steps.

    Source: White, Modayil & Sutton (2012), eq. 9; rho is in e and nowhere else.
    """

    def __init__(self, theta: Floats, alpha: float, alpha_w: float, taus: Sequence[float]) -> None:
        super().__init__(theta, alpha, alpha_w)
        self._rate = 1.0 / np.array(taus, dtype=np.float64)
        self._n_steps = 0
        (n_runs, n) = theta.shape
        self._m = np.zeros((n_runs, len(taus), n))
        self._s = np.zeros((n_runs, len(taus)))
        self._mean_phi_phi = np.zeros((n_runs, n, n))

    def learn(
        self, phi: Floats, phi_tp1: Floats, c: Any, gamma_tp1: Any, rho: Any
    ) -> tuple[Floats, Floats, Floats]:
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


def live(
    runs: Runs, gamma: float, act: Callable[[], Bools], new_theta: Callable[[Integers], Floats]
) -> list[Floats]:
    """Learn on the chain and return the runs' numbers after each episode, each (n_runs, N_EPISODES + 1, ...).

    Args:
        runs: Changed in place.
        gamma: The continuation.
        act: Returns the next actions: True for right, shape (n_runs,).
        new_theta: Returns what theta becomes after episode 1000, (n, 5), in runs by their numbers,
            (n,).
    """
    # The last row is the end
    phi = np.vstack([PHI, np.zeros(N_STATES)])
    n_runs = len(runs.theta)
    curves = [np.zeros((n_runs, N_EPISODES + 1, *now.shape[1:])) for now in runs.numbers]
    state = np.full(n_runs, MIDDLE)
    episode = np.zeros(n_runs, dtype=np.int64)
    while episode.min() < N_EPISODES:
        is_right = act()
        reached = state + 2 * is_right - 1
        is_over = (reached < 0) | (reached == N_STATES)
        next_phi = phi[np.where(is_over, N_STATES, reached)]
        rho = RHO[is_right.astype(int)]
        runs.learn(phi[state], next_phi, reached == N_STATES, np.where(is_over, 0.0, gamma), rho)
        state = np.where(is_over, MIDDLE, reached)
        episode = episode + is_over
        ended = np.flatnonzero(is_over & (episode <= N_EPISODES))
        for curve, now in zip(curves, runs.numbers, strict=True):
            curve[ended, episode[ended]] = now[ended]
        changed = ended[episode[ended] == CHANGE_AFTER]
        runs.theta[changed] = new_theta(changed)
    return curves


def learn(seed: int, gamma: float) -> Recorded:
    """Learn in all runs, and return their weights and estimates, with a first axis of runs.

    After episode 1000 theta := U[0, 1]^5, while w and the estimates are kept. Run k draws from the
    generator seeded by (seed, k).
    """
    actions = []
    fresh = np.zeros((N_RUNS, N_STATES))
    for k in range(N_RUNS):
        rng = np.random.default_rng([seed, k])
        first_walk = walk(rng, CHANGE_AFTER)
        fresh[k] = rng.random(N_STATES)
        actions.append(np.concatenate([first_walk, walk(rng, N_EPISODES - CHANGE_AFTER)]))
    steps = zip_longest(*actions, fillvalue=False)
    runs = EstimatingRuns(np.zeros((N_RUNS, N_STATES)), ALPHA, ALPHA_W, TAUS)
    return Recorded(
        *live(runs, gamma, lambda: np.array(next(steps)), lambda changed: fresh[changed])
    )


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


class Fit(NamedTuple):
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


def mean_curves(seed: int, gamma: float) -> Curves:
    """Learn in independent runs and return their means."""
    expected = expectations(gamma)
    curves = learn(seed, gamma)
    runs_measured = [measures(Recorded(*of_run), expected) for of_run in zip(*curves, strict=True)]
    runs = {
        name: np.stack(parts)
        for name, parts in zip(MEASURES, zip(*runs_measured, strict=True), strict=True)
    }
    mean = {name: values.mean(axis=0) for name, values in runs.items()}
    error = {name: values.std(axis=0, ddof=1) / np.sqrt(N_RUNS) for name, values in runs.items()}
    return Curves(mean, error, not any(runs[name][:, 0].any() for name in ONLINE))


Data = dict[tuple[float, int], Curves]
"""The curves by gamma and seed."""


def gather(context: ExperimentContext) -> tuple[Data, dict[str, object]]:
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
