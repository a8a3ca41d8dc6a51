"""Independent runs of the update rules on a small problem, compiled: every rule's own kernel on real-valued features.

The learners of a batch share a run's trajectory and features; each has its own step size, trace
decay and question. The error of a learner is the length of a vector that is linear in its weights,
|M theta - m|, such as the root mean squared error of its values or the root MSPBE.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import numpy as np

from horde_agent.kernels import rules
from horde_agent.kernels._jit import inner_kernel, kernel
from horde_agent.kernels.plain import Demons, Phi, Step, skip
from horde_agent.kernels.rules import learn as update
from horde_agent.kernels.vectors import pack
from horde_agent.learning.plain import new_demons
from horde_agent.learning.rules import LearnerConfig, next_lambda
from horde_agent.problems.markov import Problem
from horde_agent.types import Bools, Floats, Integers

PLAIN, ADAGRAD, EXTRAGRADIENT = range(3)
"""How an update is applied.

PLAIN: as it is. ADAGRAD: with the step size alpha / (sqrt(sum of squared updates) + 1e-8) for each
    weight (Duchi, Hazan
& Singer, 2011). EXTRAGRADIENT: as the rule would make it from the weights after it (Mahadevan et
al., 2014: proximal GTD2, of `gtd2`).
"""

LARGEST_ERROR = 1e100
"""Errors above this, and those that are no numbers, count as this, so that their mean is finite."""

_EPSILON = 1e-8  # of AdaGrad


@dataclass(frozen=True)
class Variant:
    """An update rule as an experiment uses it."""

    algorithm: str  # its file in `kernels/rules`
    parameters: dict[str, float] = field(
        default_factory=dict
    )  # its parameters that differ from the defaults
    ratio: float = 1.0  # alpha_w / alpha
    mode: int = PLAIN  # `PLAIN`, `ADAGRAD` or `EXTRAGRADIENT`
    beta: float = 1.0  # decay of the follow-on trace of ETD(lambda, beta) over gamma
    # The largest psi of ABTD, whose zeta takes the place of lambda; 0 for other rules
    psi_max: float = 0.0

    def config(self, zeta: float = 0.0) -> LearnerConfig:
        """Return the learner's options.

        Args:
            zeta: ABTD's parameter; psi = 2 zeta + max(0, 2 zeta - 1) (psi_max - 2), as in `abtd`
                for psi_0 = 1.
        """
        psi = 2.0 * zeta + max(0.0, 2.0 * zeta - 1.0) * (self.psi_max - 2.0)
        options: Any = {"trace_rule": rules.rule(self.algorithm).TRACE_RULE or "plain"}
        if self.psi_max:
            options["parameters"] = {"psi": max(psi, 1e-300)}  # 0 is no valid psi
        return LearnerConfig(
            algorithm=self.algorithm, dtype="float64", vector_mspbe=False, **options
        )


class Batch(NamedTuple):
    """d learners of one variant, the same number for each question."""

    variant: Variant  # their rule
    step_size: Floats  # alpha of the learners of a question, shape (d / Q,)
    lam: Floats  # their lambda or zeta, shape (d / Q,)


class Error(NamedTuple):
    """The error |M theta - m| of each of Q questions."""

    M: Floats  # (Q, k, n)
    m: Floats  # (Q, k)


class Scores(NamedTuple):
    """Errors of a batch in each run, means over the questions: over all steps, and over the last; (d / Q, n_runs)."""

    area: Floats
    last: Floats


class Runs(NamedTuple):
    """How an experiment runs."""

    problem: Problem | Callable[[np.random.Generator], Problem]  # or what draws it for each run
    error: Callable[[Problem], Error]  # returns its error
    steps: int  # length of a run, T
    # Steps from one evaluation of the errors to the next; the first is after the first step
    every: int
    share_last: float = 0.0  # share of the evaluations that count as the last; at least one does


def value_error(problem: Problem) -> Error:
    """Return the root mean squared error of the values, weighted by the behaviour's visits."""
    weights = np.sqrt(problem.state_weights())
    return Error(weights[:, :, None] * problem.features, weights * problem.values())


def score(runs: Runs, batches: Sequence[Batch], seed: int, n_runs: int) -> list[Scores]:
    """Return each batch's scores; run k draws from the generator seeded by (seed, k).

    All batches learn from the same trajectories.
    """
    scores_of_batches = [Scores(*np.zeros((2, batch.step_size.size, n_runs))) for batch in batches]
    n_last = max(1, round(runs.share_last * runs.steps / runs.every))
    for run in range(n_runs):
        rng = np.random.default_rng([seed, run])
        if isinstance(runs.problem, Problem):
            problem = runs.problem
        else:
            problem = runs.problem(rng)
        trajectory = simulate(problem, rng, runs.steps)
        error = runs.error(problem)
        for batch, scores in zip(batches, scores_of_batches, strict=True):
            errors = learn(problem, trajectory, batch, error, runs.every).mean(axis=1)
            scores.area[:, run] = errors.mean(axis=0)
            scores.last[:, run] = errors[-n_last:].mean(axis=0)
    return scores_of_batches


# ---- one run --------------------------------------------------------------------------------------------------------


class Stream(NamedTuple):
    """What d learners of Q questions read: T transitions in S states by N actions, m features at most in each state.

    k is the number of a rule's vectors beside theta, n that of features.
    """

    state_t: Integers  # (T,)
    action_t: Integers  # (T,)
    state_tp1: Integers  # (T,): S at an end, after which the next state_t begins an episode
    feature: Integers  # (S + 1, m): those that are not 0; the value is 0 elsewhere
    value: Floats  # (S + 1, m)
    rho: Floats  # (Q, S, N)
    b: Floats  # (S, N)
    c: Floats  # (Q, N, S)
    gamma: Floats  # (Q, S + 1): at the state reached; 0 at the end
    is_defined: Bools  # (Q, S)
    lam: Floats  # (d, S, N): lambda_{t+1}, after the trace rule
    mode: int
    beta: float
    step_size: Floats  # (d,)
    signals: Floats  # (6, d), scratch, like all that follows: rho, gamma, lambda, c, z, interest
    before: Floats  # (1 + k, n): theta and the vectors before an update
    ahead: Floats  # (1 + k, n): after it
    sums: Floats  # (1 + k, d, n): of the squared updates
    has_learned: Bools  # (Q,): in the last step


def learn(problem: Problem, trajectory: Integers, batch: Batch, error: Error, every: int) -> Floats:
    """Learn from a trajectory and return the errors, shape (n_evaluations, Q, d / Q).

    A question's learners skip the steps from states where it is not defined, which clears their
    traces.
    """
    variant = batch.variant
    questions = problem.questions
    b = problem.behaviour
    n = problem.features.shape[1]
    step_size = np.tile(batch.step_size, len(questions))
    demons = new_demons(variant.config(), step_size.size, n)
    d = step_size.size
    # AdaGrad needs the updates per unit of step size.
    if variant.mode == ADAGRAD:
        demons.alpha[:] = 1.0
    else:
        demons.alpha[:] = step_size
    demons.alpha_w[:] = variant.ratio * demons.alpha
    if problem.weights is not None:
        demons.theta[:] = problem.weights
    target = np.array([question.target for question in questions])
    k = 1 + len(demons.vectors)
    rho = np.divide(target, b, out=np.zeros_like(target), where=b > 0)
    feature, value = _sparse(problem.features)
    stream = Stream(
        *(trajectory[0], trajectory[1], trajectory[2], feature, value, rho, b),
        np.array([question.reward for question in questions]),
        np.array([np.append(question.gamma, 0.0) for question in questions]),
        np.array([question.is_defined for question in questions]),
        _trace_decays(batch, rho, b),
        *(variant.mode, variant.beta, step_size),
        np.vstack([np.zeros((5, d)), np.ones((1, d))]),
        np.zeros((k, n)),
        np.zeros((k, n)),
        np.zeros((k, d, n)),
        np.zeros(len(questions), dtype=np.bool_),
    )
    errors = np.zeros((-(-stream.state_t.size // every), d))
    parameters = rules.rule(variant.algorithm).parameters(**variant.parameters)
    _learn(parameters, pack(demons), pack(stream), error, every, errors)
    return errors.reshape(len(errors), len(questions), -1)


def _trace_decays(batch: Batch, rho: Floats, b: Floats) -> Floats:
    """Return lambda_{t+1} of each learner, (d, S, N), from rho, (Q, S, N), and b, (S, N)."""
    lam = np.zeros((len(rho), batch.lam.size, *b.shape))
    for value in np.unique(batch.lam):
        at = batch.lam == value
        lam[:, at] = next_lambda(
            batch.variant.config(value), np.full_like(lam[:, at], value), rho[:, None], b
        )
    return lam.reshape(-1, *b.shape)


def _sparse(features: Floats) -> tuple[Integers, Floats]:
    """Return the numbers and values of the features, (S, n), that are not 0, each (S + 1, m); values are 0 at the end.

    Rows with fewer than m such features are padded by others.
    """
    m = int((features != 0).sum(axis=1).max())
    number = np.argsort(features == 0, axis=1, kind="stable")[:, :m]
    value = np.take_along_axis(features, number, axis=1)
    return np.vstack([number, number[:1]]), np.vstack([value, np.zeros((1, m))])


def simulate(problem: Problem, rng: np.random.Generator, n_steps: int) -> Integers:
    """Return a trajectory of the behaviour, shape (3, n_steps): states left, actions, states reached (S at an end)."""
    mdp = problem.mdp
    trajectory = np.zeros((3, n_steps), dtype=np.int64)
    upto = [np.cumsum(p, axis=-1) for p in (problem.behaviour, mdp.transition, mdp.start)]
    for cumulative in upto:
        cumulative[cumulative > 1.0 - 1e-12] = 1.0  # rounding must not end an episode
    _walk(*upto, rng.random((n_steps, 3)), trajectory)
    return trajectory


# ---- kernels --------------------------------------------------------------------------------------------------------


@kernel
def _walk(
    action: Floats, state: Floats, start: Floats, draws: Floats, trajectory: Integers
) -> None:
    """Write a trajectory from cumulative probabilities, (S, N), (N, S, S) and (S,), and uniform draws, (T, 3)."""
    s = start.shape[0]
    for t in range(draws.shape[0]):
        if s == start.shape[0]:
            s = _draw(start, draws[t, 2])
        a = _draw(action[s], draws[t, 0])
        trajectory[0, t] = s
        trajectory[1, t] = a
        s = _draw(state[a, s], draws[t, 1])
        trajectory[2, t] = s


@inner_kernel
def _draw(upto: Floats, draw: float) -> int:
    """Return the first index whose cumulative probability exceeds the draw; the array's length if none does."""
    k = 0
    while k < upto.shape[0] and upto[k] <= draw:
        k += 1
    return k


@kernel
def _learn(
    parameters: Any, demons: Demons, stream: Stream, error: Error, every: int, errors: Floats
) -> None:
    """Learn from all transitions; write the errors of d learners into `errors`, (n_evaluations, d)."""
    # Two kernels, because an inner one counts no references to the arrays of its tuples.
    _learn_all(parameters, demons, stream, error, every, errors)


@inner_kernel
def _learn_all(
    parameters: Any, demons: Demons, stream: Stream, error: Error, every: int, errors: Floats
) -> None:
    rho = stream.signals[0]
    gamma = stream.signals[1]
    lam = stream.signals[2]
    c = stream.signals[3]
    z = stream.signals[4]
    interest = stream.signals[5]
    n_asked = stream.rho.shape[0]
    n_each = errors.shape[1] // n_asked
    for t in range(stream.state_t.shape[0]):
        s = stream.state_t[t]
        a = stream.action_t[t]
        s_tp1 = stream.state_tp1[t]
        phi_t = Phi(stream.feature[s], stream.value[s])
        phi_tp1 = Phi(stream.feature[s_tp1], stream.value[s_tp1])
        step = Step(phi_t, phi_tp1, a, stream.b[s, a], rho, gamma, lam, c, z, interest)
        for q in range(n_asked):
            for i in range(q * n_each, (q + 1) * n_each):
                if stream.is_defined[q, s]:
                    rho[i] = stream.rho[q, s, a]
                    c[i] = stream.c[q, a, s]
                    gamma[i] = stream.gamma[q, s_tp1]
                    lam[i] = stream.lam[i, s, a]
                    _update(parameters, i, demons, step, stream)
                elif stream.has_learned[q]:
                    skip(i, demons)
            stream.has_learned[q] = stream.is_defined[q, s]
        if t % every == 0:
            for i in range(errors.shape[1]):
                errors[t // every, i] = _length(
                    error.M[i // n_each], error.m[i // n_each], demons.theta[i]
                )


@inner_kernel
def _length(M: Floats, m: Floats, theta: Floats) -> float:
    """Return |M theta - m| for M, (k, n), at most `LARGEST_ERROR`."""
    total = 0.0
    for j in range(m.shape[0]):
        entry = -m[j]
        for k in range(theta.shape[0]):
            entry += M[j, k] * theta[k]
        total += entry * entry
    length = np.sqrt(total)
    if length <= LARGEST_ERROR:
        return float(length)
    return LARGEST_ERROR


@inner_kernel
def _update(parameters: Any, i: int, demons: Demons, step: Step, stream: Stream) -> None:
    """Update learner i in place, as the mode says."""
    if stream.mode == PLAIN:
        update(parameters, i, demons, step)
        if stream.beta != 1.0:  # F decays by rho beta; the kernel's own factor is rho gamma
            demons.numbers[1, i] *= stream.beta
        return
    gamma_t = demons.gamma_t[i]
    lam_t = demons.lam_t[i]
    is_alive = demons.alive[i]
    _copy(i, demons, stream.before)
    update(parameters, i, demons, step)
    _copy(i, demons, stream.ahead)
    if stream.mode == EXTRAGRADIENT:
        demons.gamma_t[i] = gamma_t
        demons.lam_t[i] = lam_t
        demons.alive[i] = is_alive
        for v in range(demons.n_weights, demons.vectors.shape[0]):
            for k in range(demons.theta.shape[1]):
                demons.vectors[v, i, k] = stream.before[v + 1, k]
        update(parameters, i, demons, step)
    for v in range(1 + demons.n_weights):
        if v == 0:
            weights = demons.theta[i]
        else:
            weights = demons.vectors[v - 1, i]
        for k in range(weights.shape[0]):
            if stream.mode == EXTRAGRADIENT:
                weights[k] += stream.before[v, k] - stream.ahead[v, k]
            else:
                change = stream.ahead[v, k] - stream.before[v, k]
                stream.sums[v, i, k] += change * change
                step_size = stream.step_size[i] / (np.sqrt(stream.sums[v, i, k]) + _EPSILON)
                weights[k] = stream.before[v, k] + step_size * change


@inner_kernel
def _copy(i: int, demons: Demons, into: Floats) -> None:
    """Copy learner i's theta and other vectors, shape (1 + k, n)."""
    for k in range(demons.theta.shape[1]):
        into[0, k] = demons.theta[i, k]
        for v in range(demons.vectors.shape[0]):
            into[v + 1, k] = demons.vectors[v, i, k]
