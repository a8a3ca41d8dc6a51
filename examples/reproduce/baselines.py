"""Baselines: predictions at a life's test excursions by means that need no Horde, and what nothing can beat.

* `persistence`: the present reading lasts.
* `lstd`: LSTD(0) on the readings, and on the readings times the last action, solved anew on the way;
  what a good engineer would write in an afternoon.
* `kernel_lstd`: LSTD(0) with an RBF kernel of the readings and the last action, solved alike.
* `offline_kernel_lstd`: the same off-line, with the best settings. What the readings allow.
* `floor`: the mean return of further excursions from the same state of the simulator, with other
  noise. What the whole state allows.

Each returns predictions as `training_data.predict_at_tests` does: at the first observation of each
test excursion, shape (n_tests, n), equally many for each policy. So `training_data.outcomes` scores
all of them, and the Horde's, on the same excursions. Questions are about constant actions, with
channels as cumulants and constant continuations.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple, Protocol

import gymnasium
import numpy as np

from examples.reproduce.experiment import ExperimentContext
from examples.reproduce.lives import LifeSpec, body_of, repeat_life
from examples.reproduce.offline import blocks
from examples.reproduce.training_data import HORIZON, LEARN, TrainingData
from horde_agent.gvf import GVF
from horde_agent.interface import Interface
from horde_agent.life.life import Life, LifeHooks, StepEvent
from horde_agent.life.robot import RobotBody
from horde_agent.record import NO_ACTION, Flag, Phase
from horde_agent.scoring.returns import PolicyUnderTest, persistent, policies_under_test
from horde_agent.types import Bools, Floats, Integers


def _unknown_predictions(
    training_data: TrainingData, policies: Sequence[PolicyUnderTest]
) -> Floats:
    """Return NaN for each prediction."""
    return np.full((len(training_data.test_row), len(policies[0].demons)), np.nan)


# ---- persistence ----------------------------------------------------------------------------------------------------


def persistence(training_data: TrainingData, questions: Sequence[GVF]) -> Floats:
    """Return what "the present reading lasts" predicts, x / (1 - gamma), shape (n_tests, n)."""
    policies = policies_under_test(questions)
    predictions = _unknown_predictions(training_data, policies)
    observation = training_data.stream.rows["observation"]
    for policy in policies:
        of_policy = training_data.test_action == policy.action
        readings = observation[training_data.test_row[of_policy]][:, policy.channel]
        predictions[of_policy] = persistent(readings.astype(np.float64), policy.gamma)
    return predictions


# ---- LSTD on readings -----------------------------------------------------------------------------------------------

RIDGE_SAMPLES = 10.0
FIRST_SOLUTION = 200
"""Transitions before the first solution; until then the present reading lasts."""
GROWTH = 1.0 + 1.0 / 16.0
"""Number of transitions at a solution over that at the one before it."""


class LSTD:
    """LSTD(0) of one policy: the linear values z'w whose mean TD error along every feature is 0.

        w = (M0 - gamma M1 + P)^-1 M_c,    M0 = sum rho z_t z_t',    M1 = sum rho z_t z_{t+1}',
        M_c = sum rho z_t c_{t+1}'

    The sums serve every gamma, and their columns all cumulants. rho = pi(a)/b. P is diagonal.

    Args:
        n_features: Length of z.
        n_cumulants: Number of cumulants.

    Source: Bradtke & Barto (1996); Boyan (2002).
    """

    def __init__(self, n_features: int, n_cumulants: int) -> None:
        self._M0 = np.zeros((n_features, n_features))
        self._M1 = np.zeros((n_features, n_features))
        self._Mc = np.zeros((n_features, n_cumulants))
        self._sum_of_rho = 0.0

    def add(
        self, rho: Floats, z_t: Floats, z_tp1: Floats, cumulants: Floats, goes_on: Bools
    ) -> None:
        """Add k transitions.

        Args:
            rho: pi(a)/b of each action, shape (k,).
            z_t: Features of the state left, shape (k, n_features).
            z_tp1: Features of the state reached, shape (k, n_features).
            cumulants: Cumulants on reaching it, shape (k, n_cumulants).
            goes_on: False if it is terminal, shape (k,).
        """
        weighted = rho[:, None] * z_t
        self._M0 += weighted.T @ z_t
        self._M1 += weighted.T @ (goes_on[:, None] * z_tp1)
        self._Mc += weighted.T @ cumulants
        self._sum_of_rho += float(rho.sum())

    @property
    def mean_squares(self) -> Floats:
        """Mean square of each feature, shape (n_features,); 1 for one that was always 0."""
        squares = np.diag(self._M0) / max(self._sum_of_rho, 1.0)
        return np.where(squares > 0.0, squares, 1.0)

    def weights(self, gamma: float, penalty: Floats) -> Floats:
        """Return w at one gamma, shape (n_features, n_cumulants); `penalty` is the diagonal of P, (n_features,).

        Raises:
            numpy.linalg.LinAlgError: Without a transition, if a penalty is 0.
        """
        A = self._M0 - gamma * self._M1 + np.diag(penalty)
        return np.asarray(np.linalg.solve(A, self._Mc))

    def predict(self, z: Floats, policy: PolicyUnderTest, penalty: Floats) -> Floats:
        """Return the values of k states, whose features are z, (k, n_features), for a policy's questions, (k, n)."""
        values = np.empty((len(z), len(policy.channel)))
        for gamma in np.unique(policy.gamma).tolist():
            of_gamma = policy.gamma == gamma
            values[:, of_gamma] = z @ self.weights(gamma, penalty)[:, policy.channel[of_gamma]]
        return values


class Transitions(NamedTuple):
    """Learned transitions."""

    departed: Integers  # row of each state left, shape (k,)
    arrived: Integers  # row of each state reached, shape (k,)

    def by(self, training_data: TrainingData, action: int) -> Transitions:
        """Return those that an action made: rho of the others is 0."""
        is_made = training_data.stream.rows["action"][self.departed] == action
        return Transitions(self.departed[is_made], self.arrived[is_made])

    def part(self, index: slice) -> Transitions:
        """Return a part of them."""
        return Transitions(self.departed[index], self.arrived[index])


class ReadingFeatures:
    """Linear features of rows: 1, the readings, and for each last action but one, 1 and the sensors' readings.

    Readings are less the mean of the first transitions: the ridge draws predictions to what is
    usual. `n` is their number, 274 for the Critterbot.
    """

    def __init__(self, training_data: TrainingData, interface: Interface) -> None:
        self._observation = training_data.stream.rows["observation"]
        first_learned = np.flatnonzero(training_data.does == LEARN)[:FIRST_SOLUTION]
        self._usual = np.zeros(len(interface.channels))
        if len(first_learned):
            self._usual = self._observation[first_learned].mean(axis=0, dtype=np.float64)
        self._sensors = list(interface.sensors)
        self._last_action = last_actions(training_data)
        self._n_actions = len(interface.actions)
        self.n = self.at(np.zeros(0, dtype=np.int64)).shape[1]

    def at(self, row: Integers) -> Floats:
        """Return the features of k rows, (k,), shape (k, n)."""
        one = np.ones((len(row), 1))
        x = self._observation[row] - self._usual
        of_action = np.hstack([one, x[:, self._sensors]])
        parts = [one, x]
        for action in range(self._n_actions - 1):
            was_taken = self._last_action[row] == action
            parts.append(was_taken[:, None] * of_action)
        return np.hstack(parts)

    def penalty(self, solver: LSTD) -> Floats:
        """Return a ridge of 10 samples of each feature at its root mean square with the value 0; none of 1, (n,)."""
        penalty = RIDGE_SAMPLES * solver.mean_squares
        penalty[0] = 0.0
        return penalty


def last_actions(training_data: TrainingData) -> Integers:
    """Return the action that led to each row, NO_ACTION if none did, shape (n_rows,)."""
    return np.append(NO_ACTION, training_data.stream.rows["action"][:-1])


class Features(Protocol):
    """Features of LSTD: a function of a life's rows."""

    @property
    def n(self) -> int:
        """Number of features."""

    def at(self, row: Integers) -> Floats:
        """Return the features of k rows, (k,), shape (k, n)."""

    def penalty(self, solver: LSTD) -> Floats:
        """Return the diagonal of P for the sums of a solver, shape (n,)."""


def lstd(training_data: TrainingData, questions: Sequence[GVF], interface: Interface) -> Floats:
    """Return the predictions of LSTD on readings, shape (n_tests, n), each by the latest solution of its time."""
    features = ReadingFeatures(training_data, interface)
    return _solved_on_the_way(training_data, questions, features, FIRST_SOLUTION)


def _solved_on_the_way(
    training_data: TrainingData, questions: Sequence[GVF], features: Features, first: int
) -> Floats:
    """Return predictions, (n_tests, n), solved for after `first` transitions and again whenever 1/16 is new.

    Until then the present reading lasts.
    """
    policies = policies_under_test(questions)
    predictions = persistence(training_data, questions)
    n_channels = training_data.stream.rows["observation"].shape[1]
    solvers = [LSTD(features.n, n_channels) for _ in policies]
    learned = _learned_transitions(training_data)
    n_learned = training_data.n_learned[training_data.test_row]
    for begin, end, n_at_next in _solutions(first, len(learned.arrived)):
        for policy, solver in zip(policies, solvers, strict=True):
            transitions = learned.part(slice(begin, end)).by(training_data, policy.action)
            _add(solver, training_data, transitions, features)
            is_due = (n_learned >= end) & (n_learned < n_at_next)
            is_due &= training_data.test_action == policy.action
            if is_due.any():
                z = features.at(training_data.test_row[is_due])
                predictions[is_due] = solver.predict(z, policy, features.penalty(solver))
    return predictions


def _learned_transitions(training_data: TrainingData) -> Transitions:
    arrived = np.flatnonzero(training_data.does == LEARN)
    return Transitions(training_data.before[arrived], arrived)


def _solutions(first: int, n: int) -> Iterator[tuple[int, int, int]]:
    """Yield the transitions at the solution before each solution, at this one, and at the next one, of `n`."""
    n_before = 0
    n_now = first
    while n_now <= n:
        n_next = int(GROWTH * n_now) + 1
        yield n_before, n_now, n_next
        n_before = n_now
        n_now = n_next


def _add(
    solver: LSTD, training_data: TrainingData, transitions: Transitions, features: Features
) -> None:
    """Add transitions to the sums."""
    rows = training_data.stream.rows
    solver.add(
        rho=1.0 / rows["b"][transitions.departed],
        z_t=features.at(transitions.departed),
        z_tp1=features.at(transitions.arrived),
        cumulants=rows["observation"][transitions.arrived].astype(np.float64),
        goes_on=(rows["flags"][transitions.arrived] & Flag.TERMINATED) == 0,
    )


# ---- LSTD on kernels of the readings --------------------------------------------------------------------------------

WIDTH = 2.0
KERNEL_RIDGE = 0.02
FIRST_KERNELS = 1_000
"""Transitions before the first solution, from which the centres are drawn."""
N_CENTRES = 500
LAST_ACTION = 3.0
"""What an action counts beside readings in units of their standard deviation."""
LEAST_DEVIATION = 0.1
"""Least unit of a reading in [0, 1]: what has hardly changed so far may change later."""

OFFLINE_WIDTHS = (1.0, 2.0, 4.0)
OFFLINE_RIDGES = (5e-4, 5e-3, 5e-2, 5e-1)
N_OFFLINE_CENTRES = 1_000
N_FOLDS = 5


class KernelFeatures:
    """Nystroem features of an RBF kernel: 1, and phi with phi(x).phi(y) = k(x, y) for every x if y is a centre.

        k(x, y) = exp(-|x - y|^2 / (2 n_inputs width^2))

    A ridge on phi is that of kernel ridge regression, and of kernel LSTD.

    Args:
        centres: Shape (n_centres, n_inputs).
        width: Of the kernel.

    Attributes:
        n: Number of features.

    Source: Williams & Seeger (2001); Xu, Hu & Lu (2007), kernel LSTD.
    """

    def __init__(self, centres: Floats, width: float) -> None:
        self._centres = centres
        self._scale = 1.0 / (2.0 * centres.shape[1] * width**2)
        values, vectors = np.linalg.eigh(self._kernel(centres))
        is_kept = values > 1e-10 * values[-1]
        self._whitening = vectors[:, is_kept] / np.sqrt(values[is_kept])
        self.n = 1 + self._whitening.shape[1]

    def at(self, x: Floats) -> Floats:
        """Return the features of k points, (k, n_inputs), shape (k, n)."""
        return np.hstack([np.ones((len(x), 1)), self._kernel(x) @ self._whitening])

    def _kernel(self, x: Floats) -> Floats:
        squares = (x**2).sum(axis=1)[:, None] + (self._centres**2).sum(axis=1)
        distances = np.maximum(squares - 2.0 * x @ self._centres.T, 0.0)
        return np.asarray(np.exp(-self._scale * distances))


class KernelInputs:
    """Points of rows: readings over their standard deviations in the first transitions, and the last action."""

    def __init__(self, training_data: TrainingData, n_actions: int, n_first: int) -> None:
        self._observation = training_data.stream.rows["observation"]
        self._last_action = last_actions(training_data)
        self._n_actions = n_actions
        first_learned = np.flatnonzero(training_data.does == LEARN)[:n_first]
        deviation = np.zeros(self._observation.shape[1])
        if len(first_learned):
            deviation = self._observation[first_learned].std(axis=0, dtype=np.float64)
        self._unit = np.maximum(deviation, LEAST_DEVIATION)

    def at(self, row: Integers) -> Floats:
        """Return the points of k rows, (k,), shape (k, n_inputs)."""
        was_taken = self._last_action[row][:, None] == np.arange(self._n_actions)
        return np.hstack([self._observation[row] / self._unit, LAST_ACTION * was_taken])


class KernelRows:
    """Kernel features of rows.

    Args:
        inputs: Their points.
        centres: Rows of the centres, shape (n_centres,).
        width: Of the kernel.
    """

    def __init__(self, inputs: KernelInputs, centres: Integers, width: float) -> None:
        self._inputs = inputs
        self._features = KernelFeatures(inputs.at(centres), width)
        self.n = self._features.n

    def at(self, row: Integers) -> Floats:
        """Return the features of k rows, (k,), shape (k, n)."""
        return self._features.at(self._inputs.at(row))

    def penalty(self, solver: LSTD) -> Floats:
        """Return the ridge of predictions on the way, shape (n,)."""
        return self.penalty_of(KERNEL_RIDGE)

    def penalty_of(self, ridge: float) -> Floats:
        """Return a ridge of the weights, without that of the first feature, 1, shape (n,)."""
        penalty = np.full(self.n, ridge)
        penalty[0] = 0.0
        return penalty


def kernel_lstd(
    training_data: TrainingData,
    questions: Sequence[GVF],
    interface: Interface,
    rng: np.random.Generator,
) -> Floats:
    """Return the predictions of LSTD on kernels, shape (n_tests, n), each by the latest solution of its time.

    `rng` draws the centres, the same for all policies, from the states of the first transitions.
    """
    learned = _learned_transitions(training_data)
    first = learned.departed[:FIRST_KERNELS]
    if len(first) < FIRST_KERNELS:
        return persistence(training_data, questions)
    inputs = KernelInputs(training_data, len(interface.actions), FIRST_KERNELS)
    centres = rng.choice(first, N_CENTRES, replace=False)
    features = KernelRows(inputs, centres, WIDTH)
    return _solved_on_the_way(training_data, questions, features, FIRST_KERNELS)


def offline_kernel_lstd(
    training_data: TrainingData,
    questions: Sequence[GVF],
    interface: Interface,
    rng: np.random.Generator,
) -> Floats:
    """Return the predictions of LSTD on kernels, off-line, shape (n_tests, n).

    It is solved for all transitions that the Horde learns from, of which tests are no part. Width
    and ridge are chosen for each question: for a fifth of the tests by the errors in the others.

    Args:
        training_data: The life.
        questions: The questions.
        interface: Of the robot.
        rng: Draws the centres, for each policy from the states in which its action was taken.
    """
    policies = policies_under_test(questions)
    predictions = _unknown_predictions(training_data, policies)
    learned = _learned_transitions(training_data)
    inputs = KernelInputs(training_data, len(interface.actions), len(learned.departed))
    for policy in policies:
        is_tested = training_data.test_action == policy.action
        transitions = learned.by(training_data, policy.action)
        n_transitions = len(transitions.arrived)
        if not is_tested.any() or n_transitions == 0:
            continue
        test_row = training_data.test_row[is_tested]
        n_centres = min(N_OFFLINE_CENTRES, n_transitions)
        centres = rng.choice(transitions.departed, n_centres, replace=False)
        candidates: list[Floats] = []
        for width in OFFLINE_WIDTHS:
            features = KernelRows(inputs, centres, width)
            solver = LSTD(features.n, len(interface.channels))
            for block in blocks(n_transitions):
                _add(solver, training_data, transitions.part(block), features)
            z = features.at(test_row)
            for ridge in OFFLINE_RIDGES:
                penalty = features.penalty_of(ridge)
                candidates.append(solver.predict(z, policy, penalty))
        returns = training_data.returns(policy.channel, policy.gamma, test_row)
        predictions[is_tested] = best_of(np.array(candidates), returns)
    return predictions


def best_of(candidates: Floats, returns: Floats) -> Floats:
    """Return for each fifth of the tests, and each question, the candidate with the least error in the others.

    Args:
        candidates: Shape (n_candidates, n_tests, n).
        returns: Shape (n_tests, n).
    """
    errors = (candidates - returns) ** 2
    fold = np.arange(len(returns)) % N_FOLDS
    predictions = np.empty_like(returns)
    for number in range(N_FOLDS):
        is_held_out = fold == number
        best = errors[:, ~is_held_out].sum(axis=1).argmin(axis=0)
        held_out = candidates[:, is_held_out]
        predictions[is_held_out] = np.take_along_axis(held_out, best[None, None, :], axis=0)[0]
    return predictions


# ---- the floor ------------------------------------------------------------------------------------------------------

N_ROLLOUTS = 32


class Rollouts(LifeHooks):
    """Follows each test excursion's policy again from the state in which it began, with other noise.

    Args:
        env: Another body of the same kind as the life's, which is reset here.
        starts: Step at which each test excursion begins.
        rng: The other noise.
        n: Number of excursions from each state.

    Attributes:
        readings: Their mean readings, by the step of the beginning, shape (HORIZON, n_channels) each.
    """

    def __init__(
        self,
        env: gymnasium.Env[Any, Any],
        starts: Integers,
        rng: np.random.Generator,
        n: int = N_ROLLOUTS,
    ) -> None:
        env.reset(seed=0)  # opens the body; its state is replaced
        self._env = env
        self._body = RobotBody(env)
        self._starts = set(starts.tolist())
        self._rng = rng
        self._n = n
        self._state: dict[str, Any] = {}
        self.readings: dict[int, Floats] = {}

    def before_step(self, life: Life) -> None:
        """Save the state in which an excursion may begin."""
        if life.steps in self._starts:
            self._state = life.body.save_state()

    def after_step(self, event: StepEvent) -> None:
        """Follow the policy of an excursion that began with this step."""
        row = event.row
        if row.step in self._starts and row.phase is Phase.EXCURSION:
            self.readings[row.step] = self._mean_readings(row.action)

    def _mean_readings(self, action: int) -> Floats:
        total: Floats = np.zeros((HORIZON, *self._env.observation_space.shape))  # type: ignore[misc]
        for _ in range(self._n):
            self._body.restore_state(self._state)
            noise = np.random.PCG64(self._rng.integers(2**63))
            self._env.unwrapped.np_random.bit_generator.state = noise.state
            for k in range(HORIZON):
                observation, *_ = self._env.step(action)
                total[k] += observation
        return total / self._n


def floor(
    context: ExperimentContext,
    spec: LifeSpec,
    training_data: TrainingData,
    questions: Sequence[GVF],
) -> Floats:
    """Return the mean return of further excursions from the state in which each test began, shape (n_tests, n).

    The mean of n returns has 1 + 1/n times the error of the expected return. All is NaN if the body
    cannot be put back to a state.

    Args:
        context: Of the experiment.
        spec: The life, which is simulated again.
        training_data: The life's recording.
        questions: The questions.
    """
    policies = policies_under_test(questions)
    predictions = _unknown_predictions(training_data, policies)
    env = body_of(context, spec)
    try:
        if not RobotBody(env).is_restorable:
            return predictions
        step = training_data.stream.rows["step"][training_data.test_row]
        rollouts = Rollouts(env, step, np.random.default_rng([spec.seed, 4]))
        repeat_life(context, spec, rollouts)
    finally:
        env.close()
    for policy in policies:
        discount = policy.gamma ** np.arange(HORIZON)[:, None]
        for k in np.flatnonzero(training_data.test_action == policy.action).tolist():
            readings = rollouts.readings[int(step[k])]
            predictions[k] = (discount * readings[:, policy.channel]).sum(axis=0)
    return predictions
