"""Learning from a recorded life, for experiments: learning steps, tests and returns are determined once.

`student.relearn` gives the same weights and the same scores but for rounding, by walking every row.
Here returns are known before anything is learned, rows of excursions are not coded, and a Horde may
defer its work until a test.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from typing import NamedTuple

import numpy as np

from examples.reproduce.scores import nmsre_after_each
from horde_agent.gvf import GVF
from horde_agent.horde import Horde
from horde_agent.interface import Interface
from horde_agent.learning.rupee import RUPEE
from horde_agent.life.excursions import ExcursionConfig
from horde_agent.life.flags import are_broken, are_learned
from horde_agent.life.learner import encoder
from horde_agent.record import DRIVES, Flag, Phase, Stream
from horde_agent.scoring.nmsre import Outcomes
from horde_agent.scoring.returns import policies_under_test
from horde_agent.types import Floats, Integers

NOTHING = 0
BEGIN = 1
LEARN = 2
"""What a Horde does at a row: nothing, begin a stream there, or learn from the transition that led there."""

HORIZON = ExcursionConfig().horizon


class TrainingData:
    """A recorded life, `stream`, split into learning steps and test excursions.

    Attributes:
        does: NOTHING, BEGIN or LEARN at each row, shape (n_rows,).
        before: Row of the previous state of each row's transition, -1 without one, shape (n_rows,).
        test_row: Row of the first observation of each complete test excursion, shape (n_tests,).
        test_action: The constant action followed in each, shape (n_tests,).
        n_learned: Updates up to and including each row, shape (n_rows,).
    """

    def __init__(self, stream: Stream) -> None:
        self.stream = stream
        phase = stream.rows["phase"].astype(np.int64)
        flags = stream.rows["flags"]
        is_broken = are_broken(flags)
        # Within a drive nothing is seen; its first row is what the step before it led to.
        is_drive = np.isin(phase, [int(p) for p in DRIVES])
        is_seen = ~(is_drive & np.concatenate([[False], phase[1:] == phase[:-1]]))
        observed_rows = np.flatnonzero(is_seen)
        self.before = np.full(len(phase), -1, dtype=np.int64)
        self.before[observed_rows[1:]] = observed_rows[:-1]
        came_by = np.full(len(phase), int(Phase.END))
        came_by[observed_rows[1:]] = phase[observed_rows[:-1]]
        in_test = came_by == Phase.EXCURSION
        learns = is_seen & are_learned(came_by, flags)
        self.does = np.where(learns, LEARN, np.where(is_seen & ~in_test, BEGIN, NOTHING))
        self.n_learned = np.cumsum(learns)
        # Excursions without a missing or broken step.
        starts = np.flatnonzero((phase == Phase.EXCURSION) & ~in_test)
        starts = starts[starts + HORIZON < len(phase)]
        steps = starts[:, None] + np.arange(HORIZON)
        is_whole = (phase[steps] == Phase.EXCURSION).all(axis=1) & ~is_broken[steps + 1].any(axis=1)
        self.test_row = starts[is_whole]
        self.test_action = stream.rows["action"][self.test_row].astype(np.int64)

    def returns(self, channel: Integers, gamma: Floats, rows: Integers) -> Floats:
        """Return sum_{k < HORIZON} gamma^k c_{t+k+1} from each of `rows`, which begin excursions, shape (n_rows, n).

        The cumulants are channels, and gamma constant continuations, both of shape (n,).
        """
        observation = self.stream.rows["observation"]
        discount = np.ones(len(channel))
        returns: Floats = np.zeros((len(rows), len(channel)))
        for k in range(HORIZON):
            returns += discount * observation[rows + k + 1][:, channel]
            discount = discount * gamma
        return returns


class LearningResult(NamedTuple):
    """Result of learning from a life."""

    predictions: Floats  # as returned by `predict_at_tests`, each made by the weights of its time
    seconds: float  # wall-clock time of the updates and the predictions
    # Duration of each update of all demons, its features included, in milliseconds, shape
    # (n_updates,)
    ms: Floats

    @property
    def n_updates(self) -> int:
        """Number of updates."""
        return len(self.ms)


def learn(
    training_data: TrainingData,
    horde: Horde,
    interface: Interface,
    *,
    rupee: RUPEE | None = None,
    after: Callable[[int], None] | None = None,
) -> LearningResult:
    """Learn from a life, and predict at the first observation of each of its test excursions.

    Args:
        training_data: The life.
        horde: A fresh Horde.
        interface: The body's, for its tile coder.
        rupee: A new one of that Horde, learned meanwhile.
        after: Called after each update with the number of updates so far.
    """
    encode = encoder(interface)
    rows = training_data.stream.rows
    observation = rows["observation"]
    action = rows["action"].tolist()
    b = rows["b"].tolist()
    does = training_data.does.tolist()
    previous_row = training_data.before.tolist()
    flags = rows["flags"].tolist()
    tested = _tested_demons(training_data, horde)
    predictions: list[Floats] = []
    ms: list[float] = []
    began = time.perf_counter()
    for i in np.flatnonzero(training_data.does != NOTHING).tolist():
        step_began = time.perf_counter()
        tiles = encode(observation[i])
        if does[i] == LEARN:
            j = previous_row[i]
            is_last = bool(flags[i] & Flag.TERMINATED)
            horde.learn(action[j], b[j], observation[i], tiles, terminated=is_last)
            ms.append(1e3 * (time.perf_counter() - step_began))
            if rupee is not None:
                rupee.learn(tiles, horde.signals, horde.td_error, is_last=is_last)
            if after is not None:
                after(len(ms))
        else:
            horde.begin(observation[i], tiles)
            if rupee is not None:
                rupee.begin(tiles)
        if i in tested:
            predictions.append(horde.predict(tiles, observation[i])[tested[i]])
    return LearningResult(
        np.array(predictions, np.float64), time.perf_counter() - began, np.array(ms)
    )


def predict_at_tests(training_data: TrainingData, horde: Horde, interface: Interface) -> Floats:
    """Return what the weights as they are now predict before each test excursion.

    Returns:
        Predictions of the demons about the policy of each excursion, shape (n_tests, n): equally
        many for each policy.
    """
    encode = encoder(interface)
    observation = training_data.stream.rows["observation"]
    tested = _tested_demons(training_data, horde).items()
    return np.array(
        [horde.predict(encode(observation[i]), observation[i])[demons] for i, demons in tested],
        np.float64,
    )


def _tested_demons(training_data: TrainingData, horde: Horde) -> dict[int, Integers]:
    """Return the demons that each test excursion tests, by its first row."""
    demons = {policy.action: policy.demons for policy in policies_under_test(horde.questions)}
    tests = zip(training_data.test_row.tolist(), training_data.test_action.tolist(), strict=True)
    return {row: demons[action] for row, action in tests}


def outcomes(
    training_data: TrainingData, questions: Sequence[GVF], predictions: Floats
) -> list[Outcomes]:
    """Return each policy's excursions with their predictions and returns; a policy without one is left out.

    Predictions are those of `predict_at_tests`, of the same shape.
    """
    outcomes_of_policies = []
    step = training_data.stream.rows["step"].astype(np.int64)
    for policy in policies_under_test(questions):
        of_policy = training_data.test_action == policy.action
        if of_policy.any():
            row = training_data.test_row[of_policy]
            returns = training_data.returns(policy.channel, policy.gamma, row)
            outcomes_of_policies.append(
                Outcomes(policy, step[row], predictions[of_policy], returns)
            )
    return outcomes_of_policies


def latest_nmsre(
    training_data: TrainingData, questions: Sequence[GVF], predictions: Floats, at: Integers
) -> Floats:
    """Return each question's NMSRE of the latest test at some learning steps, NaN before it, (n_at, n_questions).

    Predictions are those of `predict_at_tests`, of the same shape; `at` are increasing numbers of
    updates, (n_at,).
    """
    step = training_data.stream.rows["step"].astype(np.int64)
    n_learned = dict(
        zip(
            step[training_data.test_row].tolist(),
            training_data.n_learned[training_data.test_row].tolist(),
            strict=True,
        )
    )
    nmsre = np.full((len(at), len(questions)), np.nan)
    for test in outcomes(training_data, questions, predictions):
        errors = nmsre_after_each(test)
        tested_at = np.array([n_learned[s] for s in test.step.tolist()])
        latest = np.searchsorted(tested_at, at, side="right") - 1
        nmsre[np.ix_(latest >= 0, test.policy.demons)] = errors[latest[latest >= 0]]
    return nmsre
