"""The chain of the paper's first MSPBE figure: four measures of one GTD learner, before and after its weights change.

Five states in a row, an absorbing end on either side (the paper counts seven), +1 on the right exit. Every episode
begins in the middle. Source: White, Modayil & Sutton (2012), section 6; inverted features: Sutton et al. (2009).
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from horde_agent.kernels._jit import inner_kernel, kernel
from horde_agent.problems.markov import Expectations, SmallMDP
from horde_agent.reproduce.parallel import Job, OnProgress
from horde_agent.reproduce.study import Study
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


def inverted_features() -> Floats:
    """Return Phi, (5, 5): 0 at the own state and 1/2 elsewhere, so that each row has length 1."""
    return 0.5 * (1.0 - np.eye(N_STATES))


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
    return chain().expectations(target, behaviour, inverted_features(), gamma, LAM)


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
        end=np.cumsum(np.bincount(episode)),
    )


# ---- GTD(lambda) with real-valued features: a state is a row of Phi, whose last row, all zero, is the end ------------


class Stream(NamedTuple):
    """T transitions of whole episodes."""

    state_t: Integers  # (T,): rows of Phi
    state_tp1: Integers  # (T,)
    rho_t: Floats  # (T,): pi(a_t) / b(a_t)
    c_tp1: Floats  # (T,)
    gamma_tp1: Floats  # (T,): 0 where the episode ends
    end: Integers  # (E,): each episode's last step, plus 1


class Rates(NamedTuple):
    """Step sizes, the trace decay, and the traces of the estimates."""

    alpha: float
    alpha_w: float
    lam: float
    one_over_tau: Floats  # (K,): one for each pair of estimates


class Memory(NamedTuple):
    """Weights and estimates over n features."""

    theta: Floats  # (n,)
    w: Floats  # (n,)
    m: Floats  # (K, n): traces of delta e, vector estimates
    s: Floats  # (K,): traces of delta (e.w), scalar estimates
    mean_phi_phi: Floats  # (n, n): running mean of phi phi'
    n_steps: Integers  # (1,): how many it is the mean of


class Recorded(NamedTuple):
    """Weights and estimates after each of E episodes."""

    theta: Floats  # (E, n)
    w: Floats  # (E, n)
    m: Floats  # (E, K, n)
    s: Floats  # (E, K)
    mean_phi_phi: Floats  # (E, n, n)


def new_memory(n: int, n_taus: int) -> Memory:
    """Return a memory of zeros, K = n_taus."""
    return Memory(
        np.zeros(n), np.zeros(n), np.zeros((n_taus, n)), np.zeros(n_taus), np.zeros((n, n)), np.zeros(1, np.int64)
    )


def new_recorded(n_episodes: int, n: int, n_taus: int) -> Recorded:
    """Return curves of zeros, E = n_episodes and K = n_taus."""
    shapes = ((n,), (n,), (n_taus, n), (n_taus,), (n, n))
    return Recorded(*(np.zeros((n_episodes, *shape)) for shape in shapes))


@inner_kernel
def estimate(delta: float, phi: Floats, e: Floats, rates: Rates, memory: Memory) -> None:
    """Take delta_t e_t into the estimates; w_t is the one before this step's update.

    phi, the features of the state left, and e, its trace, are of shape (n,).

    Source: White, Modayil & Sutton (2012), eq. 9; rho is in e and nowhere else.
    """
    memory.n_steps[0] += 1
    e_w = 0.0
    for i in range(e.shape[0]):
        e_w += e[i] * memory.w[i]
        for j in range(e.shape[0]):
            memory.mean_phi_phi[i, j] += (phi[i] * phi[j] - memory.mean_phi_phi[i, j]) / memory.n_steps[0]
    for k in range(rates.one_over_tau.shape[0]):
        for i in range(e.shape[0]):
            memory.m[k, i] += rates.one_over_tau[k] * (delta * e[i] - memory.m[k, i])
        memory.s[k] += rates.one_over_tau[k] * (delta * e_w - memory.s[k])


@inner_kernel
def update(
    delta: float, gamma_tp1: float, phi: Floats, phi_tp1: Floats, e: Floats, rates: Rates, memory: Memory
) -> None:
    """Change theta and w in place.

    phi and phi_tp1, the features of the state left and of the one reached, and the trace e are of shape (n,).

    Source: White, Modayil & Sutton (2012), pseudo-code of GTD(lambda).
    """
    e_w, phi_w = 0.0, 0.0
    for i in range(e.shape[0]):
        e_w += e[i] * memory.w[i]
        phi_w += phi[i] * memory.w[i]
    for i in range(e.shape[0]):
        memory.theta[i] += rates.alpha * (delta * e[i] - gamma_tp1 * (1.0 - rates.lam) * e_w * phi_tp1[i])
        memory.w[i] += rates.alpha_w * (delta * e[i] - phi_w * phi[i])


@kernel
def learn_episodes(stream: Stream, phi: Floats, rates: Rates, memory: Memory, e: Floats, curves: Recorded) -> None:
    """Learn from all episodes in turn; `phi` is Phi with a last row of zeros, (n_states + 1, n); `e` is scratch, (n,).

    Each episode begins with e = 0.
    """
    t = 0
    for episode in range(stream.end.shape[0]):
        e[:] = 0.0
        gamma_t = 0.0
        while t < stream.end[episode]:
            phi_t, phi_tp1 = phi[stream.state_t[t]], phi[stream.state_tp1[t]]
            gamma_tp1, delta = stream.gamma_tp1[t], stream.c_tp1[t]
            for i in range(e.shape[0]):
                e[i] = stream.rho_t[t] * (phi_t[i] + gamma_t * rates.lam * e[i])
                delta += memory.theta[i] * (gamma_tp1 * phi_tp1[i] - phi_t[i])
            estimate(delta, phi_t, e, rates, memory)
            update(delta, gamma_tp1, phi_t, phi_tp1, e, rates, memory)
            gamma_t = gamma_tp1
            t += 1
        curves.theta[episode], curves.w[episode] = memory.theta, memory.w
        curves.m[episode], curves.s[episode] = memory.m, memory.s
        curves.mean_phi_phi[episode] = memory.mean_phi_phi


# ---- runs -----------------------------------------------------------------------------------------------------------

MEASURES = ("true", "sample", "vector", "scalar", "exact_w", "exact_trace", "exact_trace_older_w")
"""The true MSPBE and the sample MSPBE; both estimates; the vector estimate, were w the one that belongs to theta; were
its trace E[delta e]; the same with the w of `OLDER` episodes before, 0 at first."""


def learn(seed: int, gamma: float, n_runs: int = N_RUNS, n_episodes: int = N_EPISODES) -> dict[str, Floats]:
    """Learn in independent runs; after episode 1000 theta := U[0, 1]^5, while w and the estimates are kept.

    Args:
        seed: Run k draws from the generator seeded by (seed, k).
        gamma: Continuation.
        n_runs: Number of runs.
        n_episodes: Episodes of a run, E.

    Returns:
        Each of `MEASURES` at the start and after each episode, shape (n_runs, E + 1), or (n_runs, E + 1, n_taus).
    """
    known = expectations(gamma)
    runs = [_run(np.random.default_rng([seed, k]), known, gamma, n_episodes) for k in range(n_runs)]
    return {name: np.stack(parts) for name, parts in zip(MEASURES, zip(*runs, strict=True), strict=True)}


def _run(rng: np.random.Generator, known: Expectations, gamma: float, n_episodes: int) -> tuple[Floats, ...]:
    phi = np.vstack([inverted_features(), np.zeros(N_STATES)])
    kept = n_episodes + 1
    rates = Rates(ALPHA, ALPHA_W, LAM, 1.0 / np.array(TAUS, dtype=np.float64))
    memory, curves = new_memory(N_STATES, len(TAUS)), new_recorded(kept, N_STATES, len(TAUS))
    for first, last in ((1, min(CHANGE_AFTER + 1, kept)), (CHANGE_AFTER + 1, kept)):
        if first < last:
            part = Recorded(*(array[first:last] for array in curves))
            learn_episodes(walk(rng, last - first, gamma), phi, rates, memory, np.zeros(N_STATES), part)
        memory.theta[:] = rng.random(N_STATES)
    return measures(curves, known)


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
    runs = learn(seed, gamma)
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
