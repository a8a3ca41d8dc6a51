"""Independent runs of the update rules on a small problem, compiled: every rule's own kernel on real-valued features.

The learners of a batch share a run's trajectory and features; each has its own step size, trace
decay and question. The error of a learner is the length of a vector that is linear in its weights,
|M theta - m|, such as the root mean squared error of its values or the root MSPBE.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, NamedTuple

import numpy as np

from horde_agent.kernels import rules
from horde_agent.kernels._jit import inner_kernel, kernel
from horde_agent.kernels.plain import Demons, Phi, Step, skip
from horde_agent.kernels.rules import learn as update
from horde_agent.kernels.trace_rules import next_lambda
from horde_agent.kernels.vectors import pack
from horde_agent.learning.plain import new_demons
from horde_agent.learning.rules import LearnerConfig
from horde_agent.problems.markov import Problem
from horde_agent.types import Bools, Floats, Integers

PLAIN, ADAGRAD, EXTRAGRADIENT = range(3)
"""How an update is applied.

PLAIN: as it is. ADAGRAD: with the step size alpha / (sqrt(sum of squared updates) + 1e-8) for each
weight (Duchi, Hazan & Singer, 2011). EXTRAGRADIENT: as the rule would make it from the weights
after it (Mahadevan et al., 2014: proximal GTD2, of `gtd2`).
"""

LARGEST_ERROR = 1e100
"""Errors above this, and those that are no numbers, count as this, so that their mean is finite."""

_EPSILON = 1e-8  # of AdaGrad


@dataclass(frozen=True)
class RuleVariant:
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
        return LearnerConfig.paper(
            algorithm=self.algorithm, dtype="float64", vector_mspbe=False, **options
        )

    def rule_parameters(self) -> Any:
        """Return the parameters of the rule's kernel."""
        return rules.rule(self.algorithm).parameters(**self.parameters)


class Batch(NamedTuple):
    """d learners of one variant, the same number for each question."""

    variant: RuleVariant  # their rule
    step_size: Floats  # alpha of the learners of a question, shape (d / Q,)
    lam: Floats  # their lambda or zeta, shape (d / Q,)


class Error(NamedTuple):
    """The error |M theta - m| of each of Q questions."""

    M: Floats  # (Q, k, n)
    m: Floats  # (Q, k)


class BatchScores(NamedTuple):
    """Errors of a batch in each run, means over the questions: over all steps, and over the last; (d / Q, n_runs)."""

    area: Floats
    last: Floats


class RunSettings(NamedTuple):
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


def score(runs: RunSettings, batches: Sequence[Batch], seed: int, n_runs: int) -> list[BatchScores]:
    """Return each batch's scores; run k draws from the generator seeded by (seed, k).

    All batches learn from the same trajectories.
    """
    scores_of_batches = [
        BatchScores(*np.zeros((2, batch.step_size.size, n_runs))) for batch in batches
    ]
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


class LearnerInputs(NamedTuple):
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
    demons = _new_learners(problem, batch, batch.variant.config())
    inputs = _inputs_of(problem, trajectory, batch, demons)
    errors = np.zeros((-(-inputs.state_t.size // every), demons.alpha.size))
    _learn(batch.variant.rule_parameters(), pack(demons), pack(inputs), error, every, errors)
    return errors.reshape(len(errors), len(problem.questions), -1)


class EpisodeRecord(NamedTuple):
    """Weights and MSPBE estimates of a learner after each of E episodes; row 0 is before the first."""

    theta: Floats  # (E + 1, n)
    w: Floats  # (E + 1, n)
    m: Floats  # (E + 1, n): trace of delta e; m.w is the vector estimate
    s: Floats  # (E + 1,): trace of delta (e.w), the scalar estimate


class NewWeights(NamedTuple):
    """Weights that replace theta, shape (n,), after an episode; episodes are numbered from 1."""

    episode: int
    theta: Floats


def record_episodes(
    problem: Problem, trajectory: Integers, batch: Batch, mspbe_tau: float, change: NewWeights
) -> EpisodeRecord:
    """Learn one question by one learner with secondary weights, and record it after each episode.

    Args:
        problem: The problem.
        trajectory: States left, actions and states reached, shape (3, T), as in `simulate`.
        batch: The learner, a batch of one.
        mspbe_tau: Time constant of the MSPBE estimates, in steps.
        change: New weights, which the learner gets in the course of the trajectory; w, the traces
            and the estimates stay.
    """
    config = replace(batch.variant.config(), vector_mspbe=True, mspbe_tau=mspbe_tau)
    demons = _new_learners(problem, batch, config)
    inputs = _inputs_of(problem, trajectory, batch, demons)
    n_rows = 1 + int((inputs.state_tp1 == len(problem.features)).sum())
    n = problem.features.shape[1]
    record = EpisodeRecord(
        theta=np.zeros((n_rows, n)),
        w=np.zeros((n_rows, n)),
        m=np.zeros((n_rows, n)),
        s=np.zeros(n_rows),
    )
    record.theta[0] = demons.theta[0]
    _record(batch.variant.rule_parameters(), pack(demons), pack(inputs), change, record)
    return record


def _new_learners(problem: Problem, batch: Batch, config: LearnerConfig) -> Demons:
    """Return the learners of a batch that have learned nothing, equally many for each question."""
    variant = batch.variant
    step_size = np.tile(batch.step_size, len(problem.questions))
    demons = new_demons(config, step_size.size, problem.features.shape[1])
    # AdaGrad needs the updates per unit of step size.
    if variant.mode == ADAGRAD:
        demons.alpha[:] = 1.0
    else:
        demons.alpha[:] = step_size
    demons.alpha_w[:] = variant.ratio * demons.alpha
    if problem.weights is not None:
        demons.theta[:] = problem.weights
    return demons


def _inputs_of(
    problem: Problem, trajectory: Integers, batch: Batch, demons: Demons
) -> LearnerInputs:
    """Return what the learners of a batch read along a trajectory, shape (3, T)."""
    questions = problem.questions
    b = problem.behaviour
    target = np.array([question.target for question in questions])
    rho = np.divide(target, b, out=np.zeros_like(target), where=b > 0)
    feature, value = _sparse(problem.features)
    d, n = demons.theta.shape
    k = 1 + len(demons.vectors)
    state_t, action_t, state_tp1 = np.ascontiguousarray(trajectory)  # kernels read plain memory
    return LearnerInputs(
        state_t=state_t,
        action_t=action_t,
        state_tp1=state_tp1,
        feature=feature,
        value=value,
        rho=rho,
        b=b,
        c=np.array([question.reward for question in questions]),
        gamma=np.array([np.append(question.gamma, 0.0) for question in questions]),
        is_defined=np.array([question.is_defined for question in questions]),
        lam=_trace_decays(batch, rho, b),
        mode=batch.variant.mode,
        beta=batch.variant.beta,
        step_size=np.tile(batch.step_size, len(questions)),
        signals=np.vstack([np.zeros((5, d)), np.ones((1, d))]),
        before=np.zeros((k, n)),
        ahead=np.zeros((k, n)),
        sums=np.zeros((k, d, n)),
        has_learned=np.zeros(len(questions), dtype=np.bool_),
    )


def _trace_decays(batch: Batch, rho: Floats, b: Floats) -> Floats:
    """Return lambda_{t+1} of each learner, (d, S, N), from rho, (Q, S, N), and b, (S, N)."""
    lam = np.zeros((len(rho), batch.lam.size, *b.shape))
    for value in np.unique(batch.lam):
        at = batch.lam == value
        config = batch.variant.config(value)
        lam[:, at] = next_lambda(
            config.trace_rule,
            config.trace_bound,
            np.full_like(lam[:, at], value),
            rho[:, None],
            b,
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
    parameters: Any, demons: Demons, inputs: LearnerInputs, error: Error, every: int, errors: Floats
) -> None:
    """Learn from all transitions; write the errors of d learners into `errors`, (n_evaluations, d)."""
    # Two kernels, because an inner one counts no references to the arrays of its tuples.
    _learn_all(parameters, demons, inputs, error, every, errors)


@inner_kernel
def _learn_all(
    parameters: Any,
    demons: Demons,
    inputs: LearnerInputs,
    error: Error,
    every: int,
    errors: Floats,
) -> None:
    n_each = errors.shape[1] // inputs.rho.shape[0]
    for t in range(inputs.state_t.shape[0]):
        _learn_step(parameters, demons, inputs, t)
        if t % every == 0:
            for i in range(errors.shape[1]):
                errors[t // every, i] = _length(
                    error.M[i // n_each], error.m[i // n_each], demons.theta[i]
                )


@kernel
def _record(
    parameters: Any,
    demons: Demons,
    inputs: LearnerInputs,
    change: NewWeights,
    record: EpisodeRecord,
) -> None:
    """Learn from all transitions by one learner; write it into `record` after each episode."""
    _record_all(parameters, demons, inputs, change, record)


@inner_kernel
def _record_all(
    parameters: Any,
    demons: Demons,
    inputs: LearnerInputs,
    change: NewWeights,
    record: EpisodeRecord,
) -> None:
    episode = 0
    for t in range(inputs.state_t.shape[0]):
        _learn_step(parameters, demons, inputs, t)
        if inputs.state_tp1[t] == inputs.b.shape[0]:
            episode += 1
            for k in range(demons.theta.shape[1]):
                record.theta[episode, k] = demons.theta[0, k]
                record.w[episode, k] = demons.vectors[0, 0, k]
                record.m[episode, k] = demons.m[0, k]
            record.s[episode] = demons.mspbe[0]
            if episode == change.episode:
                for k in range(demons.theta.shape[1]):
                    demons.theta[0, k] = change.theta[k]


@inner_kernel
def _learn_step(parameters: Any, demons: Demons, inputs: LearnerInputs, t: int) -> None:
    """Learn from transition t by all learners; skip those of questions that are not defined there."""
    rho = inputs.signals[0]
    gamma = inputs.signals[1]
    lam = inputs.signals[2]
    c = inputs.signals[3]
    z = inputs.signals[4]
    interest = inputs.signals[5]
    n_questions = inputs.rho.shape[0]
    n_each = demons.theta.shape[0] // n_questions
    s = inputs.state_t[t]
    a = inputs.action_t[t]
    s_tp1 = inputs.state_tp1[t]
    phi_t = Phi(inputs.feature[s], inputs.value[s])
    phi_tp1 = Phi(inputs.feature[s_tp1], inputs.value[s_tp1])
    step = Step(phi_t, phi_tp1, a, inputs.b[s, a], rho, gamma, lam, c, z, interest)
    for q in range(n_questions):
        for i in range(q * n_each, (q + 1) * n_each):
            if inputs.is_defined[q, s]:
                rho[i] = inputs.rho[q, s, a]
                c[i] = inputs.c[q, a, s]
                gamma[i] = inputs.gamma[q, s_tp1]
                lam[i] = inputs.lam[i, s, a]
                _update(parameters, i, demons, step, inputs)
            elif inputs.has_learned[q]:
                skip(i, demons)
        inputs.has_learned[q] = inputs.is_defined[q, s]


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
def _update(parameters: Any, i: int, demons: Demons, step: Step, inputs: LearnerInputs) -> None:
    """Update learner i in place, as the mode says."""
    if inputs.mode == PLAIN:
        update(parameters, i, demons, step)
        if inputs.beta != 1.0:  # F decays by rho beta; the kernel's own factor is rho gamma
            demons.numbers[1, i] *= inputs.beta
        return
    gamma_t = demons.gamma_t[i]
    lam_t = demons.lam_t[i]
    is_alive = demons.alive[i]
    _copy(i, demons, inputs.before)
    update(parameters, i, demons, step)
    _copy(i, demons, inputs.ahead)
    if inputs.mode == EXTRAGRADIENT:
        demons.gamma_t[i] = gamma_t
        demons.lam_t[i] = lam_t
        demons.alive[i] = is_alive
        for v in range(demons.n_weights, demons.vectors.shape[0]):
            for k in range(demons.theta.shape[1]):
                demons.vectors[v, i, k] = inputs.before[v + 1, k]
        update(parameters, i, demons, step)
    for v in range(1 + demons.n_weights):
        if v == 0:
            weights = demons.theta[i]
        else:
            weights = demons.vectors[v - 1, i]
        for k in range(weights.shape[0]):
            if inputs.mode == EXTRAGRADIENT:
                weights[k] += inputs.before[v, k] - inputs.ahead[v, k]
            else:
                change = inputs.ahead[v, k] - inputs.before[v, k]
                inputs.sums[v, i, k] += change * change
                step_size = inputs.step_size[i] / (np.sqrt(inputs.sums[v, i, k]) + _EPSILON)
                weights[k] = inputs.before[v, k] + step_size * change


@inner_kernel
def _copy(i: int, demons: Demons, into: Floats) -> None:
    """Copy learner i's theta and other vectors, shape (1 + k, n)."""
    for k in range(demons.theta.shape[1]):
        into[0, k] = demons.theta[i, k]
        for v in range(demons.vectors.shape[0]):
            into[v + 1, k] = demons.vectors[v, i, k]
