"""Evaluate the parts of questions in a state: continuations, trace decays, outcomes, cumulants.

Equal parts are evaluated once. A user function's value becomes NaN if it is not a number or out of
range.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Sequence
from typing import Any, NamedTuple, TypeVar

import numpy as np
from numpy.typing import NDArray

from horde_agent.gvf import GVF, Channel, Feature, Prediction, Reward, StateFunction, TDError
from horde_agent.kernels import checks
from horde_agent.types import Floats, Tiles

Observation = NDArray[Any]
PredictOne = Callable[[int, Observation, Tiles], float]
"""Returns a demon's prediction at the state with an observation, (n_channels,), and its tiles, (n_active,)."""
AgentState = tuple[Observation, Tiles]
"""An observation, float64, (n_channels,), and its tiles, (n_active,)."""
T = TypeVar("T")


def largest_decay(questions: Sequence[GVF]) -> float:
    """Return the largest possible product of a continuation and a trace decay; functions can return 1."""
    pairs = (
        [1.0 if callable(value) else float(value) for value in (q.continuation, q.lam)]
        for q in questions
    )
    return max(gamma * lam for gamma, lam in pairs)


class StateValues:
    """Values that are constants or functions of the state: continuations, trace decays, outcomes.

    A function's value outside low..high becomes NaN.

    Attributes:
        constant: The constants, 0 for functions, shape (n,).
        has_functions: Whether a value is computed in Python.
        given: Each function's latest value outside the range, by index.
    """

    def __init__(self, values: Sequence[float | StateFunction], low: float, high: float) -> None:
        self.constant = np.array([0.0 if callable(v) else v for v in values], dtype=np.float64)
        self._functions = [(i, v) for i, v in enumerate(values) if callable(v)]
        self.has_functions = bool(self._functions)
        self._low = low
        self._high = high
        self.given: dict[int, float] = {}

    def write(self, observation: Observation, tiles: Tiles, out: Floats) -> None:
        """Write the functions' values in this state, (n_demons,), NaN if out of range; constants are not written."""
        for i, function in self._functions:
            value = out[i] = float(function(observation, tiles))
            if not self._low <= value <= self._high:
                self.given[i] = value
                out[i] = np.nan


class TDErrorSource(NamedTuple):
    """A demon whose cumulant is another demon's TD error."""

    demon: int
    source: int  # the other demon


class ReturnTerms(NamedTuple):
    """What each demon's return has at a state beside its cumulant, shape (n_demons,) each."""

    gamma: Floats  # the continuation, 0 at the end of a stream
    outcome: Floats  # as its question defines it


class Cumulants:
    """The cumulants of the questions; raise ValueError if a question names an unknown feature or demon.

    Attributes:
        channel: Channel that is each question's cumulant, shape (n_demons,), or
            `checks.NO_CHANNEL`. The reward is channel `n_channels`, behind those of the observation.
        n_channels: Least number of channels of an observation.
        has_reward: True if the reward is a cumulant.
        has_td_errors: True if a demon's TD error is a cumulant.
    """

    def __init__(self, questions: Sequence[GVF], n_features: int) -> None:
        demon_of = {gvf.name: i for i, gvf in enumerate(questions)}
        features: list[tuple[int, int]] = []
        self._predictions: list[tuple[int, int]] = []
        self._functions: list[tuple[int, StateFunction]] = []
        self._td_errors: list[TDErrorSource] = []
        self.channel = np.full(len(questions), checks.NO_CHANNEL)
        rewarded: list[int] = []
        for i, gvf in enumerate(questions):
            match gvf.cumulant:
                case Channel(index):
                    self.channel[i] = index
                case Feature(index) if index < n_features:
                    features.append((i, index))
                case Prediction(name) if name in demon_of:
                    self._predictions.append((i, demon_of[name]))
                case Reward():
                    rewarded.append(i)
                case Feature(index):
                    raise ValueError(
                        f"question {gvf.name!r}: there is no feature {index} of {n_features}"
                    )
                case TDError(name) if name in demon_of:
                    self._td_errors.append(
                        _source_of_td_error(gvf, i, questions[demon_of[name]], demon_of[name])
                    )
                case Prediction(name) | TDError(name):
                    raise ValueError(
                        f"question {gvf.name!r}: there is no demon {name!r} in this Horde"
                    )
                case function:
                    self._functions.append((i, function))
        self._of_feature, self._feature = np.array(features, dtype=np.int64).reshape(-1, 2).T
        self._n_features = n_features
        self.n_channels = int(self.channel.max()) + 1
        self.has_reward = bool(rewarded)
        self.has_td_errors = bool(self._td_errors)
        self.channel[rewarded] = self.n_channels

    def channels(self, observation: Observation, reward: float) -> Observation:
        """Return what `channel` counts: the observation, (n_sensors,), or its part that is used and the reward."""
        if not self.has_reward:
            return observation
        readings = np.empty(self.n_channels + 1)
        readings[:-1] = observation[: self.n_channels]
        readings[-1] = reward
        return readings

    @property
    def is_read_off(self) -> bool:
        """True if every cumulant is a channel or the reward."""
        return not (self._feature.size or self._predictions or self._td_errors or self._functions)

    def write(
        self,
        observation: Observation,
        tiles: Tiles,
        predict_one: PredictOne,
        out: Floats,
    ) -> None:
        """Write c_{t+1} at the state reached, shape (n_demons,), except channels, which `checks.finish_signals` writes.

        `predict_one` returns a demon's prediction there, with the weights from before this step's
        update.
        """
        if self._feature.size:
            phi = tiles
            if tiles.dtype.kind in "iu":
                phi = np.bincount(tiles, minlength=self._n_features)
            out[self._of_feature] = phi[self._feature]
        for i, source in self._predictions:
            out[i] = predict_one(source, observation, tiles)
        for i, function in self._functions:
            out[i] = function(observation, tiles)

    def write_td_errors(
        self,
        channels: Observation,
        predict_one: PredictOne,
        previous_state: AgentState,
        state: AgentState,
        terms: ReturnTerms,
        out: Floats,
    ) -> None:
        """Write delta^2 as cumulants, shape (n_demons,), once the other cumulants are written.

            delta = c_{t+1} + (1 - gamma_{t+1}) z_{t+1} + gamma_{t+1} v(s_{t+1}) - v(s_t)

        Args:
            channels: Those of the state reached, from `channels`.
            predict_one: Returns a demon's prediction at a state by the weights from before this
                step's update.
            previous_state: The state left.
            state: The state reached.
            terms: Continuations and outcomes of the demons at the state reached.
            out: The cumulants.
        """
        for demon, source in self._td_errors:
            c = out[source]
            if self.channel[source] != checks.NO_CHANNEL:
                c = channels[self.channel[source]]
            gamma = terms.gamma[source]
            delta = c + (1.0 - gamma) * terms.outcome[source] - predict_one(source, *previous_state)
            if gamma > 0.0:
                delta += gamma * predict_one(source, *state)
            out[demon] = delta**2


def _source_of_td_error(
    question: GVF, demon: int, source_question: GVF, source: int
) -> TDErrorSource:
    """Return the source of a question's cumulant; raise ValueError if it is about a TD error itself."""
    if isinstance(source_question.cumulant, TDError):
        raise ValueError(
            f"question {question.name!r} is about the TD error of {source_question.name!r}, which is "
            "itself about a TD error: choose a question about a signal"
        )
    return TDErrorSource(demon, source)


def number(keys: Sequence[Hashable]) -> tuple[NDArray[np.int64], list[int]]:
    """Number distinct keys in order of appearance; return each number, (n,), and the position of each first key."""
    seen: dict[Hashable, int] = {}
    numbers = np.array([seen.setdefault(key, len(seen)) for key in keys], dtype=np.int64)
    firsts = [int(i) for i in np.unique(numbers, return_index=True)[1]]
    return numbers, firsts


def distinct(things: Sequence[T]) -> list[T]:
    """Return the first of equal objects, in order of appearance."""
    _, firsts = number([identity(thing) for thing in things])
    return [things[i] for i in firsts]


def identity(thing: object) -> Hashable:
    """Return a key that is equal for equal objects; an unhashable object equals only itself."""
    try:
        hash(thing)
    except TypeError:
        return id(thing)
    return thing
