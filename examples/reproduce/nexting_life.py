"""A life of nexting: a robot circles its pen along the wall, and thousands of predictions are learned meanwhile.

Targets are the sensors and drawn feature bits, each at four time scales, plus questions that end at
an event. Source: Modayil, White & Sutton (2014), Multi-timescale nexting in a reinforcement
learning robot, Adaptive Behavior 22(2).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from typing import Any, NamedTuple

import numpy as np

from examples.reproduce.lives import new_horde
from examples.reproduce.offline import LifeRows, LiveFeatures, terms_needed
from examples.reproduce.training_data import LEARN, TrainingData, learn
from horde_agent.gvf import GVF, Channel, Feature
from horde_agent.horde import Horde, LearnerConfig
from horde_agent.interface import Interface
from horde_agent.life.flags import are_followed
from horde_agent.life.observers import sound_demons
from horde_agent.policies import Behaviour, BehaviourPolicy, Follow, PolicyFunction
from horde_agent.record import Stream
from horde_agent.scoring.returns import returns_along
from horde_agent.types import Bools, Floats, Integers

TIME_SCALES_S = (0.1, 0.5, 2.0, 8.0)
N_WINDOWS = 20
"""Windows of a life, ten minutes each at the paper's scale."""
BITS_SEED = 2014
"""Seed of the drawn feature bits; the wall follower and the events were chosen on the life of `TUNING_SEED`."""
FROZEN_EVERY = 4
"""Rows from one prediction of frozen weights to the next."""


def _constant(value: float, *_state: Any) -> float:
    """Return the value, whatever the state."""
    return value


# ---- the behaviour --------------------------------------------------------------------------------------------------

NOISE = 0.01
FORWARD = 0
CLOCKWISE = 2
COUNTERCLOCKWISE = 3


def wall_follower(interface: Interface) -> BehaviourPolicy:
    """Return the behaviour, which keeps a wall on the left.

    It turns from a wall ahead, drives along a wall, and turns towards one that falls behind. Each
    action has `NOISE`, and the rest of the probability depends on the four reflections ahead and on
    the left.
    """
    sensors = [
        interface.index(f"ir_distance_{i}") for i in range(4)
    ]  # at 0, 45, 90 and 135 degrees left

    def probabilities(observation: Any, _tiles: Any) -> Floats:
        ahead, ahead_left, left_side, behind_left = observation[sensors]
        p = np.full(5, NOISE)
        remaining = 1.0 - 5 * NOISE
        if max(ahead, ahead_left) > 0.5:
            p[CLOCKWISE] += remaining
        elif left_side < 0.4 and behind_left > 0.1:
            p[[FORWARD, COUNTERCLOCKWISE]] += 0.25 * remaining, 0.75 * remaining
        else:
            p[FORWARD] += remaining
        return p

    return Follow(PolicyFunction(probabilities, 5))


# ---- the questions --------------------------------------------------------------------------------------------------


class Moments:
    """Mean and variance of rows that are added in batches. Source: Chan, Golub & LeVeque (1979)."""

    def __init__(self, n: int) -> None:
        self.n = 0
        self.mean = np.zeros(n)
        self._squares = np.zeros(n)

    def add(self, values: Floats) -> None:
        """Add values, shape (n_rows, n)."""
        if not len(values):
            return
        mean = values.mean(axis=0)
        n = self.n + len(values)
        away = mean - self.mean
        self._squares += ((values - mean) ** 2).sum(axis=0) + away**2 * (self.n * len(values) / n)
        if self.n:
            mean = self.mean + away * (len(values) / n)
        self.mean = mean
        self.n = n

    def variance(self) -> Floats:
        """Return the variance of the rows so far, shape (n,)."""
        return self._squares / self.n


@dataclass(frozen=True)
class Until:
    """A question that ends at an event: gamma is 0 where a channel reaches a threshold, that of 8 s elsewhere."""

    target: str  # the channel that is summed, or "time", in seconds
    channel: str  # the channel of the event
    threshold: float  # its reading from which the event takes place

    def __str__(self) -> str:
        return f"{self.target} until {self.channel} >= {self.threshold:g}"

    def gamma(self, reading: Any, period_s: float) -> Any:
        """Return the continuation where the channel has some reading, a number or an array."""
        return np.where(reading >= self.threshold, 0.0, 1.0 - period_s / TIME_SCALES_S[-1])

    def question(self, interface: Interface) -> GVF:
        """Return the question of a robot."""
        place = interface.index(self.channel)
        period_s = interface.period_s
        target: Channel | Callable[..., float]
        if self.target == "time":
            target = partial(_constant, period_s)
        else:
            target = Channel(interface.index(self.target))
        return GVF(
            str(self),
            Behaviour(),
            target,
            lambda o, _: float(self.gamma(o[place], period_s)),
            tested=False,
        )


EVENTS = (
    Until("light_0", "light_0", 0.35),
    Until("light_3", "light_3", 0.245),
    Until("time", "light_0", 0.35),
    Until("time", "ir_distance_0", 0.6),
    Until("time", "ir_distance_1", 0.85),
    Until("motor_current_220", "ir_distance_0", 0.6),
)


@dataclass(frozen=True)
class NextingQuestions:
    """The questions: by time scale, first the sensors, then the feature bits; those about events last."""

    interface: Interface  # of the robot
    n_bits: int  # number of feature bits drawn, of all features
    scales_s: tuple[float, ...] = TIME_SCALES_S  # time scales, in seconds
    events: tuple[Until, ...] = EVENTS  # questions that end at an event

    @property
    def bits(self) -> Integers:
        """The drawn features, shape (n_bits,); a larger draw holds a smaller one."""
        return np.random.default_rng(BITS_SEED).permutation(self.interface.coder.n_features)[
            : self.n_bits
        ]

    @property
    def gammas(self) -> list[float]:
        """The continuation of each time scale."""
        return [1.0 - self.interface.period_s / scale for scale in self.scales_s]

    @property
    def scale(self) -> Integers:
        """Number of each question's time scale, -1 for an event, shape (n_questions,)."""
        n = len(self.interface.sensors) + self.n_bits
        return np.append(np.repeat(np.arange(len(self.scales_s)), n), np.full(len(self.events), -1))

    @property
    def is_sensor(self) -> Bools:
        """Which questions are about a sensor at a time scale, shape (n_questions,)."""
        n = len(self.interface.sensors)
        is_sensor = np.repeat([True, False], [n, self.n_bits])
        return np.append(
            np.tile(is_sensor, len(self.scales_s)), np.zeros(len(self.events), np.bool_)
        )

    @property
    def of_longest(self) -> Bools:
        """Which questions are about a sensor at the longest time scale, shape (n_questions,)."""
        return np.asarray(self.is_sensor & (self.scale == len(self.scales_s) - 1))

    def questions(self) -> list[GVF]:
        """Return the questions."""
        names = self.interface.names
        sensors = self.interface.sensors
        targets: list[tuple[str, Channel | Feature]] = [(names[i], Channel(i)) for i in sensors]
        targets += [(f"feature_{i}", Feature(i)) for i in self.bits.tolist()]
        scales = zip(self.scales_s, self.gammas, strict=True)
        constant = [
            GVF(f"{scale:g}s/{name}", Behaviour(), target, gamma, tested=False)
            for scale, gamma in scales
            for name, target in targets
        ]
        return constant + [event.question(self.interface) for event in self.events]

    def horde(self, config: LearnerConfig) -> Horde:
        """Return a Horde of the questions."""
        return new_horde(self.interface, self.questions(), config=config)

    @property
    def horizon(self) -> int:
        """Terms of the longest return."""
        return terms_needed(max(self.gammas))


# ---- a life ---------------------------------------------------------------------------------------------------------

CHUNK = 6_000  # rows of which the returns are held at a time


class NextingLife:
    """A recorded life with its active features and returns."""

    def __init__(self, stream: Stream, asked: NextingQuestions) -> None:
        self.asked = asked
        self.training_data = TrainingData(stream)
        self.rows = LifeRows(self.training_data, asked.interface)
        self.live = LiveFeatures(self.rows.tiles, asked.interface.coder.n_features)
        self._follows = are_followed(stream.rows["flags"])
        self._n_broken = np.concatenate([[0], np.cumsum(~self._follows)])

    def chunks(self, part: range) -> Iterator[tuple[Integers, Floats]]:
        """Yield rows of a part of the life and their returns, (n_rows, n_questions), without those before a gap.

        A return at a constant gamma has the terms up to gamma^k < .001; one until an event, all
        that were computed.
        """
        horizon = self.asked.horizon
        stop = min(part.stop, len(self._follows) - horizon)
        for first in range(part.start, stop, CHUNK):
            rows = np.arange(first, min(first + CHUNK, stop))
            is_whole = self._n_broken[rows + horizon] == self._n_broken[rows]
            yield rows[is_whole], self._returns(first, len(rows))[is_whole]

    def _returns(self, first: int, n: int) -> Floats:
        """Return the returns from n rows."""
        question_set = self.asked
        interface = self.asked.interface
        reached = slice(first, first + n + self.asked.horizon)
        follows = self._follows[reached]
        observation = self.training_data.stream.rows["observation"][reached].astype(np.float64)
        is_active = np.zeros((len(observation), interface.coder.n_features), np.bool_)
        np.put_along_axis(is_active, self.rows.tiles[reached].astype(np.int64), True, axis=1)
        targets = np.column_stack(
            [observation[:, interface.sensors], is_active[:, question_set.bits]]
        )
        parts = []
        for gamma in question_set.gammas:
            k = terms_needed(gamma)
            all_terms = returns_along(targets, gamma, follows)
            parts.append(all_terms[:n] - gamma**k * all_terms[k : n + k])
        for event in question_set.events:
            summed = np.full(len(observation), interface.period_s)
            if event.target != "time":
                summed = observation[:, interface.index(event.target)]
            gamma_at = event.gamma(
                observation[:, interface.index(event.channel)], interface.period_s
            )
            parts.append(returns_along(summed, gamma_at, follows)[:n, None])
        return np.concatenate(parts, axis=1)


def window(number: int, size: int) -> range:
    """Return the rows of a window; nothing is predicted at row 0."""
    return range(1 + number * size, 1 + (number + 1) * size)


# ---- learning on-line -----------------------------------------------------------------------------------------------


class OnlineErrors(NamedTuple):
    """Result of learning from a life."""

    # Mean squared error of each prediction when it was made, shape (n_windows, n_questions)
    online: Floats
    frozen: Floats  # the same with the weights of the start of the window
    zero: Floats  # mean squared return: the error of weights 0
    variance: Floats  # of the returns in the whole life, shape (n_questions,)
    # Duration of each step in milliseconds, features and predictions included, shape (n_steps,)
    ms: Floats
    sound: Bools  # which demons did not diverge, shape (n_questions,)


def learn_life(
    life: NextingLife, horde: Horde, size: int, n_windows: int = N_WINDOWS
) -> OnlineErrors:
    """Make a new Horde learn from a life once, and score its predictions in windows of `size` rows."""
    row = np.flatnonzero(life.training_data.does == LEARN)
    n_demons = horde.n_demons
    predictions = np.zeros((size, n_demons), np.float32)
    is_made = np.zeros(size, np.bool_)
    moments = Moments(n_demons)
    errors: list[Floats] = []

    def weights() -> Any:
        return horde.weights()[0][:, life.live.index].T

    theta = weights()

    def score() -> None:
        nonlocal theta
        part = window(len(errors), size)
        sums = np.zeros((3, n_demons))
        n = 0
        n_frozen = 0
        for rows, returns in life.chunks(part):
            is_predicted = is_made[rows - part.start]
            rows = rows[is_predicted]
            returns = returns[is_predicted]
            moments.add(returns)
            phi = life.live.dense(life.rows.tiles[rows[::FROZEN_EVERY]])
            sums[0] += ((predictions[rows - part.start] - returns) ** 2).sum(axis=0)
            sums[1] += ((phi @ theta - returns[::FROZEN_EVERY]) ** 2).sum(axis=0)
            sums[2] += (returns**2).sum(axis=0)
            n = n + len(rows)
            n_frozen = n_frozen + len(phi)
        errors.append(sums / np.maximum([[n], [n_frozen], [n]], 1))
        is_made[:] = False
        theta = weights()

    def after(n: int) -> None:
        """Store the predictions after update number `n`; score those of the window that ended before."""
        number, place = divmod(int(row[n - 1]) - 1, size)
        if len(errors) < min(number, n_windows):
            score()
        if number < n_windows:
            predictions[place] = horde.predictions
            is_made[place] = True

    ms = learn(life.training_data, horde, life.asked.interface, after=after).ms
    if len(errors) < n_windows:
        score()
    online, frozen, zero = np.reshape(errors, (-1, 3, n_demons)).swapaxes(0, 1)
    return OnlineErrors(online, frozen, zero, moments.variance(), ms, sound_demons(horde))
