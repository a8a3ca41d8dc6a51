"""Learning from a stream of observations and actions, live or recorded.

The learner draws no random numbers and uses no environment, so learning from the recorded stream
gives the same weights, to the bit, as the life.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Hashable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from horde_agent.gvf import GVF, Channel, named
from horde_agent.interface import HeldReadings, Interface
from horde_agent.learner import Learner
from horde_agent.learning.stored import NEWCOMER, restored_streams, streams_state
from horde_agent.learning.values import identity
from horde_agent.life.counts import Durations
from horde_agent.life.excursions import ExcursionConfig
from horde_agent.life.flags import are_broken
from horde_agent.life.lost_sensors import LostSensors
from horde_agent.record import (
    BROKEN,
    DRIVES,
    ENDS_TEST,
    NO_ACTION,
    NO_POLICY,
    Flag,
    Observation,
    Phase,
    Row,
    Stream,
    rows_in,
)
from horde_agent.saving import State, attributes, inner, nested, put_back
from horde_agent.scoring.excursion_table import new_positions
from horde_agent.scoring.return_errors import Discard, ReturnErrors
from horde_agent.scoring.returns import (
    PolicyUnderTest,
    TestExcursion,
    behaviour_under_test,
    policies_under_test,
)
from horde_agent.scoring.surprise import Surprise
from horde_agent.types import Bools, Floats, Integers, Tiles

_STATE = (
    "learning_steps",
    "_n_untimed",
    "_n_updates_before",
    "_predicted",
    "_latest",
)
_OF_POSITION = ("action", "b", "is_observed")

Predictions = NDArray[np.floating]


def encoder(interface: Interface) -> Callable[[Observation], Tiles]:
    """Return the function from an observation to its active tiles; it skips scaling if all bounds are 0 and 1.

    If predictions are fed back, it returns the tiles of the first observation of a stream.
    """
    if interface.feedback is not None:
        return interface.encode
    low = interface.scaler.low
    high = interface.scaler.high
    is_unit = bool((low == 0.0).all() and (high == 1.0).all())
    if is_unit:
        return interface.coder.encode
    return interface.encode


def check_fit(horde: Learner, interface: Interface) -> None:
    """Raise ValueError if a Horde's features or questions do not fit an interface."""
    coder = interface.coder
    features = (horde.n_features, horde.n_active)
    if features != (coder.n_features, coder.n_active):
        raise ValueError(
            f"the Horde expects {features[0]} features, {features[1]} of them active, but the interface's tile coder "
            f"makes {coder.n_features}, {coder.n_active} of them active: make the Horde from interface.coder"
        )
    check_questions(horde.questions, interface)


def check_questions(questions: Iterable[GVF], interface: Interface) -> None:
    """Raise ValueError if a question has other actions than the interface, or an unknown channel."""
    n_actions = len(interface.actions)
    n_channels = len(interface.channels)
    for question in questions:
        n_asked = question.target_policy.n_actions
        if n_asked not in (0, n_actions):  # 0: the behaviour itself
            raise ValueError(
                f"question {question.name!r} is about a policy with {n_asked} actions, but the body has {n_actions}: "
                f"{', '.join(interface.actions)}"
            )
        match question.cumulant:
            case Channel(int(index)) if index >= n_channels:
                raise ValueError(
                    f"question {question.name!r} is about channel {index}, but the body has only 0..{n_channels - 1}"
                )


def refuse_fed_back(interface: Interface, names: Sequence[str]) -> None:
    """Raise ValueError if the prediction of one of these questions is a feature."""
    if interface.feedback is None:
        return
    for name in interface.feedback.names:
        if name in names:
            raise ValueError(
                f"the prediction of {name!r} is fed back as a feature; it cannot be removed"
            )


class MissingReadings(NamedTuple):
    """How long a channel had no reading.

    Attributes:
        channel: Its name.
        missing_s: Time without a reading in all, in seconds.
        since_step: Step since which it has none; None if it has one.
    """

    channel: str
    missing_s: float
    since_step: int | None


@dataclass
class StreamPosition:
    """How far the stream of a robot was learned from.

    Attributes:
        held: The last reading of each channel, which stands for a missing one in the features.
        phase: That of the newest row.
        action: The action taken there.
        b: The probability with which it was drawn.
        test: The test under way, of an excursion or of the behaviour itself.
        is_observed: Whether the observation of the next row was passed to `observe` before the row
            was complete, as at the end of a life's run.
    """

    held: HeldReadings
    phase: Phase = Phase.END
    action: int = NO_ACTION
    b: float = np.nan
    test: TestExcursion | None = None
    is_observed: bool = False

    def state(self) -> State:
        """Return the fields, by name."""
        test: State = {}
        if self.test is not None:
            test = self.test.state()
        fields = attributes(self, *_OF_POSITION)
        parts = nested(test=test, held=self.held.state())
        return fields | {"phase": np.array(int(self.phase))} | parts


class StreamLearner:
    """Passes a stream to a Horde: what to learn, what to skip, what to score.

    `excursions` sets only the horizon of the returns. `is_tested` is whether excursions and
    stretches of the behaviour are scored.

    Attributes:
        errors: Scores of the test excursions.
        learning_steps: Updates so far (each of all demons).
        learn_s: Durations of the updates with their predictions, in seconds; of a batch, the mean.
        surprise: Watches the errors, after `watch`; None before.
        lost_sensors: Watches for sensors without a reading; None without.
        robot: Number of the robot whose stream is learned from.
        position: How far it was learned from.

    Raises:
        ValueError: If the Horde does not fit the interface.
    """

    def __init__(
        self,
        horde: Learner,
        interface: Interface,
        excursions: ExcursionConfig | None = None,
        *,
        is_tested: bool = True,
    ) -> None:
        check_fit(horde, interface)
        self.horde = horde
        self.interface = interface
        self._is_tested = is_tested
        self._tested_behaviour: PolicyUnderTest | None = None
        self._encode_first = encoder(interface)
        self.horizon = (excursions or ExcursionConfig()).horizon
        self._policy_names: dict[Hashable, str] = {}
        self.errors = ReturnErrors(self._policies_under_test(), horde.n_demons, self.horizon)
        self.surprise: Surprise | None = None
        self.lost_sensors: LostSensors | None = None
        self.learning_steps = 0
        self._n_updates_before = horde.n_updates
        self.learn_s = Durations()
        # Of deferred steps
        self._untimed_s = 0.0
        self._n_untimed = 0
        self._latest: Observation = np.zeros(len(interface.channels), dtype=np.float32)
        # At the latest observation of an excursion
        self._predicted: Predictions = np.zeros(horde.n_demons)
        self.robot = 0
        self.position = self._new_position()
        self._positions = {0: self.position}  # by number of the robot
        self._index_demons()

    def _new_position(self) -> StreamPosition:
        return StreamPosition(HeldReadings(self.interface))

    def _policies_under_test(self) -> list[PolicyUnderTest]:
        """Return the policies that are tested, with the names that they had before; the behaviour last."""
        self._tested_behaviour = None
        if not self._is_tested:
            return []
        policies = policies_under_test(self.horde.questions, self._policy_names)
        self._policy_names = {identity(policy.target): policy.name for policy in policies}
        of_behaviour = behaviour_under_test(self.horde.questions)
        self._tested_behaviour = next(iter(of_behaviour), None)
        return [*policies, *of_behaviour]

    def _index_demons(self) -> None:
        self._names = self.horde.names
        self._index = {name: i for i, name in enumerate(self._names)}
        feedback = self.interface.feedback
        self._fed_back = None
        if feedback is not None:
            self._fed_back = feedback.demons(self._names)

    def rearrange(self, old_index: Integers) -> None:
        """Continue after demons were added or removed; `old_index`, (n_demons,), is as in `DemonMapping`."""
        new_index = new_positions(old_index, self.errors.n_demons)
        for position in self._positions.values():
            position.test = _rearranged(position.test, new_index)
        self._predicted = np.where(old_index >= 0, self._predicted[old_index], 0.0)
        self.errors.rearrange(old_index, self._policies_under_test())
        self._index_demons()
        if self.surprise is not None:
            self.surprise.rearrange()

    def watch(self, rate: str, seed: int = 0) -> Surprise:
        """Watch the errors of the predictions, with so many false alarms per time, as "1/month"; return what does.

        Raises:
            BadInput: If the rate is invalid, or no question can be surprised.
        """
        self.surprise = Surprise(self.horde, self.interface, rate, seed)
        return self.surprise

    def begin_tests(self) -> None:
        """Score stretches of the behaviour, and excursions, from now on."""
        self._is_tested = True
        self.rearrange(np.arange(self.horde.n_demons))

    def add(self, questions: Sequence[GVF]) -> Integers:
        """Add questions to the Horde; return the former position of each demon, as `rearrange` takes it.

        Raises:
            ValueError: As of `Life.add`.
        """
        new = named(questions, self.interface.names)
        check_questions(new, self.interface)
        previous_names = self.horde.names
        self.horde.add(new)
        return self._rearranged_from(previous_names)

    def remove(self, names: Sequence[str]) -> Integers:
        """Remove questions from the Horde; return the former position of each demon, as `rearrange` takes it.

        Raises:
            ValueError: As of `Life.remove`.
        """
        if not isinstance(names, str):
            names = list(names)
        refuse_fed_back(self.interface, names)
        previous_names = self.horde.names
        self.horde.remove(names)
        return self._rearranged_from(previous_names)

    def _rearranged_from(self, previous_names: Sequence[str]) -> Integers:
        index = {name: i for i, name in enumerate(previous_names)}
        old_index = np.array(
            [index.get(name, NEWCOMER) for name in self.horde.names], dtype=np.int64
        )
        self.rearrange(old_index)
        return old_index

    @property
    def phase(self) -> Phase:
        """The phase of the newest observation."""
        return self.position.phase

    def state(self) -> State:
        """Return everything that later learning and scores depend on, the Horde's state included."""
        streams = {robot: position.state() for robot, position in self._positions.items()}
        surprise: State = {}
        if self.surprise is not None:
            surprise = self.surprise.state()
        return nested(
            surprise=surprise,
            horde=self.horde.state(),
            errors=self.errors.state(),
            counts=attributes(self, *_STATE),
            streams=streams_state(self.robot, streams),
        )

    def restore(self, state: State) -> None:
        """Continue from what `state` returned, with a new Horde of the same demons in the same order."""
        self.horde.restore(inner(state, "horde"))
        self.errors.restore(inner(state, "errors"))
        surprise = inner(state, "surprise")
        if self.surprise is not None and surprise:
            self.surprise.restore(surprise)
        put_back(self, inner(state, "counts"), *_STATE)
        self.robot, streams = restored_streams(inner(state, "streams"))
        for robot, fields in streams.items():
            position = self._new_position()
            position.phase = Phase(int(fields["phase"]))
            position.held.restore(inner(fields, "held"))
            put_back(position, fields, *_OF_POSITION)
            test = inner(fields, "test")
            if test:
                position.test = TestExcursion.restored(
                    test, self.errors.policies, self.horde.questions, self.horizon
                )
            self._positions[robot] = position
        self.position = self._positions[self.robot]

    @property
    def n_updated(self) -> int:
        """Sum over the updates of the number of demons with rho > 0; it lags with shards."""
        return self.horde.n_updates - self._n_updates_before

    @property
    def predictions(self) -> Predictions:
        """Predictions of all demons at the latest observation for which they were made, shape (n_demons,)."""
        self.catch_up()
        return self.horde.predictions

    def catch_up(self) -> None:
        """Learn from the Horde's deferred steps now, and count the time."""
        if self._n_untimed:
            began = time.perf_counter()
            self.horde.catch_up()
            self._share_time(time.perf_counter() - began)

    def _share_time(self, seconds: float) -> None:
        """Add learning time; once no step is deferred, divide it among the updates since."""
        self._untimed_s += seconds
        if not self.horde.n_waiting:
            for _ in range(self._n_untimed):
                self.learn_s.add(self._untimed_s / self._n_untimed)
            self._untimed_s = 0.0
            self._n_untimed = 0

    def missing_readings(self) -> list[MissingReadings]:
        """Return the channels that lacked a reading, of all robots together."""
        missing: list[MissingReadings] = []
        streams = [position.held for position in self._positions.values()]
        for i, name in enumerate(self.interface.names):
            n_missing = sum(int(held.n_missing[i]) for held in streams)
            since_steps = [int(held.since_step[i]) for held in streams if held.since_step[i] >= 0]
            if n_missing:
                missing.append(
                    MissingReadings(
                        channel=name,
                        missing_s=round(n_missing * self.interface.period_s, 6),
                        since_step=min(since_steps, default=None),
                    )
                )
        return missing

    def encode(self, observation: Observation, flags: int) -> Tiles:
        """Return the tiles of the next observation, float32, (n_inputs,), for the policies and for learning.

        For a missing reading (NaN) the last one is held (`HeldReadings`). Predictions that are fed back
        are those of the observation before, by the weights of that time. In an excursion weights do not
        change, and the predictions are made here. Call it once for each observation, before `observe`.
        """
        is_moving = self.position.phase in (Phase.BEHAVE, Phase.EXCURSION)
        begins = not is_moving or bool(flags & Flag.GAP)
        filled = self.position.held.fill(observation, begins=begins)
        if self._fed_back is None or flags & ENDS_TEST or not is_moving:
            return self._encode_first(filled)
        if self.position.phase is Phase.BEHAVE:
            if flags & BROKEN:
                return self._encode_first(filled)
            return self.interface.encode(filled, self.predictions[self._fed_back])
        tiles = self.interface.encode(filled, self._predicted[self._fed_back])
        self._predicted = self.horde.predict(tiles, self.position.held.known(observation))
        return tiles

    def observe(
        self,
        observation: Observation,
        flags: int,
        tiles: Tiles | None = None,
        *,
        reward: float = np.nan,
    ) -> None:
        """Learn from the transition to `observation`, float32, (n_inputs,), score it, or begin a stream there.

        Nothing is learned across a gap, from a step that was not applied or has a stale frame, or
        in an excursion. A test continues at a stale frame (ENDS_TEST). A reading may be missing (NaN):
        the Horde's questions that need it skip the step, and its returns are not measured. `tiles` are from `encode`;
        None to encode it here. `reward` is that of the transition, NaN if unknown. Raise
        RuntimeError if demons were added or removed without `rearrange`.
        """
        self.position.is_observed = True
        if self.horde.names is not self._names:
            raise RuntimeError(
                "demons were added or removed: use Life.add and Life.remove, or make a new StreamLearner for this Horde"
            )
        if tiles is None:
            tiles = self.encode(observation, flags)
        self._latest[:] = observation
        if self.position.phase is Phase.EXCURSION:
            if flags & Flag.GAP:
                self._discard_test(Discard.GAP)
            elif flags & ENDS_TEST:
                self._discard_test(Discard.NOT_APPLIED)
            self._continue_test(observation, tiles, flags, reward)
            if flags & Flag.TRUNCATED:
                self._discard_test(Discard.TRUNCATED)
            return
        if self.position.phase is not Phase.BEHAVE or flags & BROKEN:
            self.catch_up()
            self.horde.begin(observation, tiles)
            if flags & ENDS_TEST:
                self._discard_test(Discard.BEHAVIOUR)
            if self.position.phase is not Phase.BEHAVE:
                self.position.test = None
            self._continue_test(observation, tiles, flags, reward)
            return
        began = time.perf_counter()
        self.horde.learn(
            self.position.action,
            self.position.b,
            observation,
            tiles,
            terminated=bool(flags & Flag.TERMINATED),
            reward=reward,
        )
        self._n_untimed += 1
        self._share_time(time.perf_counter() - began)
        self.learning_steps += 1
        if self.surprise is not None:
            self.surprise.note_reading(observation)
        self._continue_test(observation, tiles, flags, reward)

    def set_action(
        self, phase: Phase, action: int, b: float, step: int, policy: int = NO_POLICY
    ) -> None:
        """Set the phase, and the action chosen with probability `b` at the newest observation, before `step`.

        The first step of an excursion stores the predictions, and so does every `horizon`-th
        learning step of the behaviour, for its on-policy test. `policy` is the tag of the policy
        that an excursion follows; without one its constant action identifies it.
        """
        position = self.position
        if phase is not position.phase:
            is_excursion = position.phase is Phase.EXCURSION
            if phase is Phase.DOCK and is_excursion:
                self._discard_test(Discard.DOCKING)
            elif phase is Phase.END and is_excursion:
                self._discard_test(Discard.END)
            elif phase is Phase.END:
                self._discard_test(Discard.BEHAVIOUR)
            position.test = None
            if phase is Phase.DOCK and self.surprise is not None:
                self.surprise.begin_present()
            if phase is Phase.EXCURSION:
                self._predicted = self.predictions.copy()
                followed = self._followed(policy, action)
                position.test = followed and TestExcursion(
                    followed, self._predicted, step, self.horizon, self._latest
                )
        is_test_due = position.test is None and self.learning_steps % self.horizon == 0
        if phase is Phase.BEHAVE and is_test_due and self._tested_behaviour is not None:
            position.test = TestExcursion(
                self._tested_behaviour, self.predictions, step, self.horizon, self._latest
            )
        position.phase = phase
        position.action = action
        position.b = b
        position.is_observed = False
        if self.surprise is not None:
            self.surprise.update(step, self.learning_steps)

    def select_robot(self, robot: int) -> None:
        """Continue the stream of another robot, by its number from 0; call it between two excursions.

        Raises:
            ValueError: If the demons are in shards, which learn from one stream.
        """
        if robot == self.robot:
            return
        began = time.perf_counter()
        self.horde.select_stream(robot)
        if self._n_untimed:
            self._share_time(time.perf_counter() - began)
        self.robot = robot
        self.position = self._positions.setdefault(robot, self._new_position())

    def take_row(self, row: Row, tiles: Tiles | None = None) -> None:
        """Learn from the transition to a row, unless that was done (`is_observed`), and store its action.

        Every row of any stream comes here, of a life as of a recording. Frames within a drive are
        skipped. `tiles` are those of its observation, (n_active,), from `encode`; None to encode it.
        """
        if row.robot != self.robot:
            self.select_robot(row.robot)
        if row.phase == self.position.phase and row.phase in DRIVES:
            self.position.is_observed = False
            return
        if not self.position.is_observed:
            self.observe(row.observation, row.flags, tiles, reward=row.reward)
        has_missing = self.position.held.note_step(row.step, row.t)
        if has_missing and self.lost_sensors is not None:
            self.lost_sensors.update(self.position.held, row)
        self.set_action(Phase(row.phase), row.action, row.b, row.step, row.policy)

    def _followed(self, tag: int, action: int) -> PolicyUnderTest | None:
        """Return the policy that an excursion follows; None if no question of this Horde has it."""
        for policy in self.errors.policies:
            if policy.tag == tag if tag != NO_POLICY else policy.action == action:
                return policy
        return None

    def _predict_one(self, name: str, observation: Observation, tiles: Tiles) -> float:
        predictions = self.horde.predict(tiles, self.position.held.known(observation))
        return float(predictions[self._index[name]])

    def _continue_test(
        self, observation: Observation, tiles: Tiles, flags: int, reward: float
    ) -> None:
        """Add one term to the return of the current test, if there is one, and score it if that was the last.

        The predictions of the rest need no batch of deferred steps of their own: unless a frame was
        stale, a test of the behaviour ends where the next one begins, and nothing is deferred in an
        excursion.
        """
        test = self.position.test
        if test is None:
            return
        # As a Horde passes observations to the functions of questions
        exact = observation.astype(np.float64)
        is_complete = test.observe(
            exact,
            tiles,
            self._predict_one,
            terminated=bool(flags & Flag.TERMINATED),
            reward=reward,
            stale=bool(flags & Flag.STALE),
        )
        if not is_complete:
            return
        if test.share.any():
            test.complete(self._predictions_at(observation, tiles))
        self.errors.add(test, [self._index[name] for name in self.horde.diverged])
        if self.position.phase is Phase.EXCURSION and test.is_repeated.all():
            self.errors.discard(Discard.STALE, test.n_terms)
        self.position.test = None

    def _discard_test(self, reason: Discard) -> None:
        """Discard the test under way, if there is one."""
        test = self.position.test
        if test is not None:
            self.errors.discard(reason, test.n_terms)
            self.position.test = None

    def _predictions_at(self, observation: Observation, tiles: Tiles) -> Predictions:
        """Return the predictions of all demons at the newest observation, shape (n_demons,)."""
        if self.position.phase is not Phase.EXCURSION:
            return self.predictions
        if self._fed_back is not None:
            return self._predicted
        return self.horde.predict(tiles, self.position.held.known(observation))


def _rearranged(test: TestExcursion | None, new_index: Integers) -> TestExcursion | None:
    """Return a test of the demons that stay, given their new positions; None if it tests none of them."""
    if test is not None:
        test.rearrange(new_index)
    if test is not None and len(test.demons):
        return test
    return None


def relearn(
    stream: Stream | Iterable[Stream],
    horde: Learner,
    interface: Interface,
    *,
    excursions: ExcursionConfig | None = None,
    student: StreamLearner | None = None,
    observer: Callable[[StreamLearner, int], None] | None = None,
) -> StreamLearner:
    """Learn from a recorded stream, with the same weights and the same NMSRE as in the life, or with other settings.

    Args:
        stream: The recorded life, whole or in consecutive parts; it begins and ends with a gap.
        horde: A new Horde, or one that learned before (a further pass).
        interface: Its tile coder is used.
        excursions: Horizon of the returns, as in the life.
        student: Of an earlier pass, to continue its counts.
        observer: Called with the student and the step after each row.

    Returns:
        The student, with its scores and counts.

    Examples:
        >>> import tempfile
        >>> from pathlib import Path
        >>> from horde_agent import GVF, Channel, ConstantAction, Horde, learn_from, relearn
        >>> from horde_agent.record import read
        >>> question = GVF("next", ConstantAction(0, n_actions=1), Channel(0), continuation=0.0)
        >>> data = np.tile([[0.0], [1.0]], (200, 1)), np.zeros(400, dtype=int)
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     learned = learn_from(*data, b=np.ones(400), questions=[question], out=f"{folder}/run")
        ...     recorded = read(Path(folder, "run", "log", "life.rec"))
        >>> coder = learned.interface.coder
        >>> horde = Horde([question], n_features=coder.n_features, n_active=coder.n_active)
        >>> student = relearn(recorded, horde, learned.interface)
        >>> zero = np.zeros(1)
        >>> horde.predict(coder.encode(zero), zero).round(1)  # after 0 comes 1
        array([1.])
    """
    student = student or StreamLearner(horde, interface, excursions)
    student.set_action(Phase.END, NO_ACTION, np.nan, 0)
    if isinstance(stream, Stream):
        stream = [stream]
    for row in rows_of(stream):
        student.take_row(row)
        if observer is not None:
            observer(student, row.step)
    return student


def rows_of(parts: Iterable[Stream]) -> Iterator[Row]:
    """Yield each row."""
    for part in parts:
        yield from rows_in(part.rows)


class PredictorAlong:
    """Predicts along consecutive parts of a stream by `predict_along`, as if they were one.

    Args:
        horde: Its present weights predict.
        interface: Encodes the observations.
    """

    def __init__(self, horde: Learner, interface: Interface) -> None:
        self._horde = horde
        self._interface = interface
        self._last_readings = HeldReadings(interface)
        self._previous: Floats | None = None

    def __call__(self, part: Stream, is_wanted: Bools | None = None) -> Floats:
        """Return the predictions at each row of the next part, shape (n_rows, n_demons); as of `predict_along`."""
        predictions = predict_along(
            part,
            self._horde,
            self._interface,
            before=self._previous,
            last_readings=self._last_readings,
            is_wanted=is_wanted,
        )
        # A view would keep the whole array in memory
        self._previous = predictions[-1].copy()
        return predictions


def predict_along(
    stream: Stream,
    horde: Learner,
    interface: Interface,
    before: Floats | None = None,
    last_readings: HeldReadings | None = None,
    is_wanted: Bools | None = None,
) -> Floats:
    """Return the predictions at each row of a stream, (n_rows, n_demons), by the present weights; nothing is learned.

    Predictions that are fed back begin again after each gap, as in a life. `before` are those at
    the row before the first one, (n_demons,), if there is one, and `last_readings` has the readings up to there.
    Rows that are not wanted, shape (n_rows,), may be NaN.
    """
    if last_readings is None:
        last_readings = HeldReadings(interface)
    out = np.empty((len(stream), horde.n_demons))
    begin = encoder(interface)
    feedback = interface.feedback
    fed_back = None
    if feedback is not None:
        fed_back = feedback.demons(horde.names)
    observations = stream.rows["observation"]
    flags = stream.rows["flags"]
    broken = are_broken(flags)
    for t, observation in enumerate(observations):
        begins = before is None or fed_back is None or broken[t]
        filled = last_readings.fill(observation, begins=bool(flags[t] & Flag.GAP))
        if is_wanted is not None and fed_back is None and not is_wanted[t]:
            out[t] = np.nan
            continue
        if begins:
            tiles = begin(filled)
        else:
            tiles = interface.encode(filled, before[fed_back])  # type: ignore[index]
        out[t] = horde.predict(tiles, last_readings.known(observation))
        before = out[t]
    return out
