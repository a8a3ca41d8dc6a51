"""Evaluate the parts of questions in a state: continuations, trace decays, outcomes, cumulants.

Equal parts are evaluated once. A user function's value becomes NaN if it is not a number or out of
range.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Hashable, Mapping, Sequence
from typing import Any, NamedTuple, TypeVar

import numpy as np
from numpy.typing import NDArray

from horde_agent.gvf import (
    GVF,
    Channel,
    Feature,
    Prediction,
    Reward,
    StateFunction,
    TDError,
    value_at,
)
from horde_agent.kernels import checks
from horde_agent.types import Floats, Integers, Tiles

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


class SameFactor(NamedTuple):
    """Values that are a feature each, all of them times one factor."""

    factor: float | StateFunction
    places: slice | Integers  # of the values; a slice if they follow one another
    feature: Integers  # of each place


class FeatureValues:
    """Values that are features times a factor, which is computed once in each state for all that share it.

    Args:
        features: The features, by the place of their value.
        names: Names of all questions, by place.
        n_features: Number of features.

    Raises:
        ValueError: If there is no such feature.
    """

    def __init__(
        self, features: Mapping[int, Feature], names: Sequence[str], n_features: int
    ) -> None:
        self._n_features = n_features
        places = np.array(list(features), dtype=np.int64)
        index = np.array([feature.index for feature in features.values()], dtype=np.int64)
        for place in places[index >= n_features].tolist():
            raise ValueError(
                f"question {names[place]!r}: there is no feature {features[place].index} of {n_features}"
            )
        factors = [feature.factor for feature in features.values()]
        numbers, firsts = number([identity(factor) for factor in factors])
        self._parts: list[SameFactor] = []
        for k, first in enumerate(firsts):
            members = np.flatnonzero(numbers == k)
            part = SameFactor(factors[first], _run_of(places[members]), index[members])
            self._parts.append(part)

    def __len__(self) -> int:
        """Return the number of factors."""
        return len(self._parts)

    def write(self, observation: Observation, tiles: Tiles, out: Floats) -> None:
        """Write the values at a state, an observation, (n_channels,), and its tiles; `out` is of all places."""
        if not self._parts:
            return
        phi: Floats
        if tiles.dtype.kind in "iu":
            phi = np.zeros(self._n_features)
            phi[tiles] = 1.0
        else:
            phi = np.asarray(tiles, dtype=np.float64)
        for part in self._parts:
            factor = value_at(part.factor, observation, tiles)
            # 0 in most states, where the factor is that of a stop; a missing one is unknown for all
            if factor == 0.0 or not math.isfinite(factor):
                out[part.places] = factor
            else:
                out[part.places] = factor * phi[part.feature]


def _run_of(places: Integers) -> slice | Integers:
    """Return places, (n,), as a slice if they follow one another: it is written without an index for each."""
    if places[-1] - places[0] == places.size - 1:
        return slice(int(places[0]), int(places[-1]) + 1)
    return places


class StateValues:
    """Values that are constants or functions of the state: continuations, trace decays, outcomes, interests.

    A function's value outside low..high becomes NaN.

    Args:
        values: The values, a constant or a function each; features are computed together.
        names: Names of the questions whose values they are.
        n_features: Number of features.
        low, high: Range of a value.

    Attributes:
        constant: The constants, 0 for functions, shape (n,).
        has_functions: Whether a value depends on the state.
        given: Each function's latest value outside the range, by index.

    Raises:
        ValueError: If there is no such feature.
    """

    def __init__(
        self,
        values: Sequence[float | StateFunction],
        *,
        names: Sequence[str],
        n_features: int,
        low: float,
        high: float,
    ) -> None:
        self.constant = np.array([0.0 if callable(v) else v for v in values], dtype=np.float64)
        features = {i: v for i, v in enumerate(values) if isinstance(v, Feature)}
        self._features = FeatureValues(features, names, n_features)
        self._of_features = np.array(list(features), dtype=np.int64)
        self._functions = [
            (i, v) for i, v in enumerate(values) if callable(v) and i not in features
        ]
        self.has_functions = bool(self._functions or features)
        self._low = low
        self._high = high
        self._is_bounded = math.isfinite(low) or math.isfinite(high)
        self.given: dict[int, float] = {}

    def write(self, observation: Observation, tiles: Tiles, out: Floats) -> None:
        """Write the functions' values in this state, (n_demons,), NaN if out of range; constants are not written."""
        self._features.write(observation, tiles, out)
        if self._is_bounded and self._of_features.size:
            values = out[self._of_features]
            for k in np.flatnonzero(~((self._low <= values) & (values <= self._high))).tolist():
                place = int(self._of_features[k])
                self.given[place] = float(values[k])
                out[place] = np.nan
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
        features: dict[int, Feature] = {}
        constants: dict[int, float] = {}
        self._predictions: list[tuple[int, int]] = []
        self._functions: list[tuple[int, StateFunction]] = []
        self._td_errors: list[TDErrorSource] = []
        self.channel = np.full(len(questions), checks.NO_CHANNEL)
        rewarded: list[int] = []
        for i, gvf in enumerate(questions):
            match gvf.cumulant:
                case Channel(index):
                    self.channel[i] = index
                case Feature():
                    features[i] = gvf.cumulant
                case Prediction(name) if name in demon_of:
                    self._predictions.append((i, demon_of[name]))
                case Reward():
                    rewarded.append(i)
                case TDError(name) if name in demon_of:
                    self._td_errors.append(
                        _source_of_td_error(gvf, i, questions[demon_of[name]], demon_of[name])
                    )
                case Prediction(name) | TDError(name):
                    raise ValueError(
                        f"question {gvf.name!r}: there is no demon {name!r} in this Horde"
                    )
                case cumulant if callable(cumulant):
                    self._functions.append((i, cumulant))
                case constant:
                    constants[i] = constant
        self._features = FeatureValues(features, list(demon_of), n_features)
        self._of_constant = np.array(list(constants), dtype=np.int64)
        self._constants = np.array(list(constants.values()), dtype=np.float64)
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
        is_computed = self._predictions or self._td_errors or self._functions
        return not (len(self._features) or self._constants.size or is_computed)

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
        if self._constants.size:  # written each time, as a reference is subtracted in place
            out[self._of_constant] = self._constants
        self._features.write(observation, tiles, out)
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
