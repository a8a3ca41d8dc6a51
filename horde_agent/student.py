"""What is learned from a stream of observations and actions, lived or recorded: one path for both.

The student decides which transitions reach the Horde and scores the test excursions. It draws nothing and knows no
environment, so that learning again from a recorded stream gives the same weights, bit for bit, as living it did.
"""

from __future__ import annotations

import time
from collections.abc import Callable

import numpy as np
from numpy.typing import NDArray

from horde_agent.excursions import ExcursionConfig, TestExcursion, policies_under_test
from horde_agent.horde import Horde
from horde_agent.interface import Interface
from horde_agent.nmsre import ReturnErrors
from horde_agent.record import BROKEN, DRIVES, NO_ACTION, Flag, Observation, Phase, Stream
from horde_agent.telemetry import Durations

Predictions = NDArray[np.floating]
Tiles = NDArray[np.int64]


def encoder(interface: Interface) -> Callable[[Observation], Tiles]:
    """Return the way from an observation to its active tiles, without the scaling where nothing is to scale.

    Where predictions are fed back, these are the tiles of a stream that begins there.
    """
    if interface.feedback is not None:
        return interface.encode
    low, high = interface.scaler.low, interface.scaler.high
    is_unit = bool((low == 0.0).all() and (high == 1.0).all())
    return interface.coder.encode if is_unit else interface.encode


class Student:
    """Feeds a stream to a Horde: what to learn, what to skip, what to score.

    Args:
        horde: Learns and predicts.
        interface: The body's, for its tile coder.
        excursions: Horizon of the returns; the rest of it is the actor's concern.

    Attributes:
        errors: Scores of the test excursions.
        learning_steps: Updates so far (each of all demons).
        n_updated: Sum over the updates of the number of demons whose rho was positive.
        learn_s: Durations of the updates with their predictions, in seconds; where the Horde takes many steps
            together, each one's share of them.
    """

    def __init__(self, horde: Horde, interface: Interface, excursions: ExcursionConfig | None = None) -> None:
        self.horde, self.interface, self.encode = horde, interface, encoder(interface)
        self.horizon = (excursions or ExcursionConfig()).horizon
        policies = policies_under_test(horde.questions)
        self.errors = ReturnErrors(policies, horde.n_demons)
        self.learning_steps = 0
        self.n_updated = 0
        self.learn_s = Durations()
        self._spent_s, self._n_unpaid = 0.0, 0  # on steps whose batch was not taken yet
        self._policies = {policy.action: policy for policy in policies}
        self._names = horde.names
        self._position = {name: i for i, name in enumerate(horde.names)}
        self._phase, self._action, self._b = Phase.END, NO_ACTION, np.nan
        self._test: TestExcursion | None = None
        self._fed_back = None if interface.feedback is None else interface.feedback.demons(horde.names)

    @property
    def predictions(self) -> Predictions:
        """Predictions of all demons at the latest observation for which they were made, shape (n_demons,)."""
        self.catch_up()
        return self.horde.predictions

    def catch_up(self) -> None:
        """Let the Horde take the steps that it only noted so far, and count the time."""
        if self._n_unpaid:
            began = time.perf_counter()
            self.horde.catch_up()
            self._spend(time.perf_counter() - began)

    def _spend(self, seconds: float) -> None:
        """Note time that learning took; when no step waits any more, share it out among the updates since."""
        self._spent_s += seconds
        if not self.horde.n_waiting:
            for _ in range(self._n_unpaid):
                self.learn_s.add(self._spent_s / self._n_unpaid)
            self._spent_s, self._n_unpaid = 0.0, 0

    def see(self, observation: Observation, flags: int) -> None:
        """Learn from the transition to `observation`, float32 of shape (n_inputs,), or score it, or begin anew there.

        Nothing is learned across a gap, from a step that the body did not carry out or that brought no new frame, or in
        an excursion.

        Raises:
            RuntimeError: If demons came or went since the student was made: its scores are of the old ones.
        """
        if self.horde.names is not self._names:
            raise RuntimeError("demons were added or removed: make a new Student for this Horde")
        broken = bool(flags & BROKEN)
        if self._phase is Phase.EXCURSION:
            self._score(observation, broken)
            return
        if broken or self._phase is not Phase.BEHAVE:
            self.catch_up()
            self.horde.begin(observation, self.encode(observation))
            return
        tiles = self.next_tiles(observation)
        began = time.perf_counter()
        self.horde.learn(self._action, self._b, observation, tiles, terminated=bool(flags & Flag.TERMINATED))
        self._n_unpaid += 1
        self._spend(time.perf_counter() - began)
        self.learning_steps += 1
        self.n_updated += self.horde.n_updated

    def next_tiles(self, observation: Observation) -> Tiles:
        """Return the tiles of an observation that follows the latest one: predictions made there are fed back."""
        if self._fed_back is None:
            return self.encode(observation)
        return self.interface.encode(observation, self.predictions[self._fed_back])

    def act(self, phase: Phase, action: int, b: float, step: int) -> None:
        """Note what is done from the observation just seen; the first step of an excursion keeps the predictions.

        Args:
            phase: What is done.
            action: The discrete action, or NO_ACTION.
            b: Probability with which the behaviour policy drew it.
            step: Number of the step, for the record.
        """
        if phase is Phase.EXCURSION and self._phase is not Phase.EXCURSION:
            self._test = TestExcursion(self._policies[action], self.predictions, step, self.horizon)
        elif phase is not Phase.EXCURSION:
            self._test = None
        self._phase, self._action, self._b = phase, action, b

    def _score(self, observation: Observation, broken: bool) -> None:
        """Add one term to the excursion's return; a broken step discards the excursion."""
        if self._test is None:
            return
        if broken:
            self.errors.n_discarded += 1
            self._test = None
            return
        self._test.observe(observation)
        if self._test.is_complete:
            self.errors.add(self._test, [self._position[name] for name in self.horde.diverged])
            self._test = None


def relearn(
    stream: Stream,
    horde: Horde,
    interface: Interface,
    *,
    excursions: ExcursionConfig | None = None,
    student: Student | None = None,
    observer: Callable[[Student, int], None] | None = None,
) -> Student:
    """Learn again from a recorded stream: the same weights and the same NMSRE as living it.

    Behaviour does not depend on what is learned, so one life can be learned from under any number of settings.

    Args:
        stream: The recorded life; a part of one begins and ends like a gap.
        horde: A fresh Horde, or one that learned before (a further pass).
        interface: The body's, for its tile coder.
        excursions: Horizon of the returns, as in the life.
        student: Goes on with a student of an earlier pass, which keeps its counts.
        observer: Called with the student and the step after each row.

    Returns:
        The student, with its scores and counts.
    """
    student = student or Student(horde, interface, excursions)
    student.act(Phase.END, NO_ACTION, np.nan, 0)
    rows = stream.rows
    columns = zip(
        rows["observation"],
        rows["action"].tolist(),
        rows["b"].tolist(),
        rows["phase"].tolist(),
        rows["flags"].tolist(),
        rows["step"].tolist(),
        strict=True,
    )
    last = Phase.END
    for observation, action, b, phase, flags, step in columns:
        # Within a drive nothing is seen: its frames are in the record for the pictures alone.
        if not (phase == last and phase in DRIVES):
            student.see(observation, flags)
            student.act(Phase(phase), action, b, step)
        last = phase
        if observer is not None:
            observer(student, step)
    return student


def predict_along(stream: Stream, horde: Horde, interface: Interface) -> NDArray[np.float64]:
    """Return the predictions at each row of a stream, by the weights as they are; nothing is learned.

    Where predictions are fed back they run through the stream as in a life, and begin anew where a row is broken off
    from the one before it.

    Returns:
        Shape (n_rows, n_demons).
    """
    out = np.empty((len(stream), horde.n_demons))
    begin, feedback = encoder(interface), interface.feedback
    fed_back = None if feedback is None else feedback.demons(horde.names)
    observations = stream.rows["observation"]
    broken = (stream.rows["flags"] & BROKEN) > 0
    for t, observation in enumerate(observations):
        begins = t == 0 or fed_back is None or broken[t]
        tiles = begin(observation) if begins else interface.encode(observation, out[t - 1, fed_back])
        out[t] = horde.predict(tiles)
    return out
