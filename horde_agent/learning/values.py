"""Evaluate the parts of questions in a state: policy ratios, continuations, trace decays, outcomes, cumulants.

Equal parts are evaluated once. A user function's value becomes NaN if it is not a number or out of
range.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable, Sequence
from typing import Any, NamedTuple, TypeVar

import numpy as np
from numpy.typing import NDArray

from horde_agent.gvf import GVF, Channel, Feature, Prediction, Reward, StateFunction, TDError
from horde_agent.kernels import checks
from horde_agent.kernels.policies import LARGEST
from horde_agent.learning.gibbs import GibbsTable, largest_logit
from horde_agent.policies import Behaviour, ConstantAction, Gaussian, Gibbs, Greedy, Policy
from horde_agent.saving import State, attributes, put_back
from horde_agent.types import Floats, Tiles

Observation = NDArray[Any]
PredictOne = Callable[[int, Observation, Tiles], float]
"""Returns a demon's prediction at the state with an observation, (n_channels,), and its tiles, (n_active,)."""
T = TypeVar("T")

# Gibbs policies below which float64 sums from scratch on each step are fast enough
_FEW_POLICIES = 32
# Steps between two checks of all probabilities of a policy; pi(a) is checked on each step
_CHECKED_EVERY = 64
_ROUNDING = 1e-4  # tolerance of a sum of probabilities; a float32 softmax needs 1e-7


def largest_decay(questions: Sequence[GVF]) -> float:
    """Return the largest possible product of a continuation and a trace decay; functions can return 1."""
    pairs = (
        [1.0 if callable(value) else float(value) for value in (q.continuation, q.lam)]
        for q in questions
    )
    return max(gamma * lam for gamma, lam in pairs)


def n_actions_of(policies: Iterable[Policy]) -> int:
    """Return the policies' number of actions, 0 if none defines it; raise ValueError if they disagree."""
    counts = {policy.n_actions for policy in policies if not isinstance(policy, Behaviour)}
    if len(counts) > 1:
        raise ValueError(f"the target policies have different numbers of actions: {sorted(counts)}")
    return counts.pop() if counts else 0


class PolicyTable:
    """The distinct target policies of a Horde and their importance sampling ratios.

    Args:
        policies: The policies.
        n_features: Number of features.
        max_finite: Largest ratio; a policy with a larger one, or none, has no ratio in the step.
        n_gibbs: Number of Gibbs policies of the whole Horde, if this is a shard.

    Attributes:
        n_actions: Number of actions, 0 if no policy defines it.
        n_policies: Number of policies.
        constant_action: Action of each constant policy, `checks.ON_POLICY` for the behaviour policy
            itself, or `checks.ELSEWHERE`, shape (n_policies,).
        has_ratio: False for policies without a ratio in the latest step, shape (n_policies,).
        given: The values in place of these ratios, by policy: NaN, infinite or too large.
        misfits: Descriptions of invalid probabilities, by policy; the caller clears them.

    Raises:
        ValueError: If the policies disagree about the number of actions or features.
    """

    def __init__(
        self, policies: Sequence[Policy], n_features: int, max_finite: float, n_gibbs: int = 0
    ) -> None:
        self._max_finite = max_finite
        self.n_actions = n_actions_of(policies)
        self.n_policies = len(policies)
        self.constant_action = np.full(self.n_policies, checks.ELSEWHERE)
        self._others: list[tuple[int, Policy]] = []
        self.has_ratio = np.ones(self.n_policies, dtype=np.bool_)
        self.given: dict[int, float] = {}
        self.misfits: dict[int, str] = {}
        self._n_asked = 0
        gibbs = dict[int, Gibbs]()
        for i, policy in enumerate(policies):
            match policy:
                case Behaviour():
                    self.constant_action[i] = checks.ON_POLICY
                case ConstantAction(action):
                    self.constant_action[i] = action
                case Gibbs():
                    gibbs[i] = policy
                case _:
                    self._others.append((i, policy))
        if any(p.n_features != n_features for p in gibbs.values()):
            raise ValueError(f"n_features of a Gibbs policy differs from the Horde's {n_features}")
        are_few = max(len(gibbs), n_gibbs) < _FEW_POLICIES
        # Integer logits; float64 for few or large ones
        tables: dict[bool, dict[int, Gibbs]] = {False: {}, True: {}}
        for i, p in gibbs.items():
            tables[are_few or largest_logit([p]) > LARGEST][i] = p
        self._tables = [
            GibbsTable(
                list(part.values()), np.array(list(part), dtype=np.int64), in_floats=in_floats
            )
            for in_floats, part in tables.items()
            if part
        ]

    @property
    def has_functions(self) -> bool:
        """True if a policy is evaluated in Python."""
        return bool(self._others)

    def state(self) -> State:
        """Return the state on which later ratios depend; Gibbs logits depend only on the tiles."""
        return attributes(self, "_n_asked") | {
            "others": np.array([i for i, _ in self._others], dtype=np.int64)
        }

    def restore(self, state: State) -> None:
        """Restore a state; policies that were disabled stay disabled."""
        put_back(self, state, "_n_asked")
        for i in {i for i, _ in self._others} - set(state["others"].tolist()):
            self.disable(i)

    def write_ratios(
        self, action: int, probability: float, observation: Observation, tiles: Tiles, out: Floats
    ) -> None:
        """Write rho = pi(a)/b(a) of all policies except constant ones, (n_policies,), and set `has_ratio`.

        rho is finite: 0 for a policy without a ratio. `observation` and `tiles` are those of the
        state in which `action` was taken with `probability` b(a).
        """
        for table in self._tables:
            table.ratios(tiles, action, probability, out)
        is_due = self._n_asked % _CHECKED_EVERY == 0
        self._n_asked += 1
        if self.given:
            self.given.clear()
            self.has_ratio[:] = True
        for i, policy in self._others:
            if isinstance(policy, Gaussian):
                ratio = policy.ratio(observation, tiles)
            else:
                probabilities = policy.probabilities(observation, tiles)
                ratio = self._probability(i, probabilities, action, is_due) / probability
            if not abs(ratio) <= self._max_finite:  # NaN is not
                self.given[i] = ratio
                self.has_ratio[i] = False
                ratio = 0.0
            out[i] = ratio

    def _probability(self, i: int, given: Any, action: int, is_due: bool) -> float:
        """Return pi(a) from a policy's probabilities; NaN and an entry in `misfits` if they are invalid."""
        try:
            if len(given) == self.n_actions:
                p = float(given[action])
            else:
                p = np.nan
        except (TypeError, ValueError):
            p = np.nan
        if is_due or not 0.0 <= p <= 1.0:
            misfit = misfit_of(given, self.n_actions)
            if misfit:
                self.misfits[i] = misfit
                return np.nan
            if np.isfinite(p):
                p = min(max(p, 0.0), 1.0)
        return p

    def disable(self, i: int) -> None:
        """Stop evaluating a policy."""
        self._others = [(k, policy) for k, policy in self._others if k != i]


def misfit_of(given: Any, n_actions: int, *, is_first: bool = False) -> str:
    """Describe why a value is not a distribution over n actions; return "" if it is one.

    NaN or infinity is an error only in a policy's first value: later it may come from a broken
    sensor reading, and the next value may be valid.
    """
    try:
        values = np.asarray(given, dtype=np.float64)
    except (TypeError, ValueError):
        return f"gave {given!r}, not {n_actions} probabilities"
    if values.shape != (n_actions,):
        return f"gave an array of shape {values.shape}, not {n_actions} probabilities"
    shown = np.array2string(values, precision=4, threshold=10)
    if (values < -_ROUNDING).any():
        return f"gave {shown}, with {values.min():.4g} for action {values.argmin()}, not probabilities in [0, 1]"
    if not np.isfinite(values).all():
        if is_first:
            return f"gave {shown}, not {n_actions} probabilities"
        return ""
    if abs(values.sum() - 1.0) <= _ROUNDING:
        return ""
    return f"gave {shown}, which add up to {values.sum():.6g}, not 1"


def refuse_misfits(questions: Sequence[GVF], observation: Observation, tiles: Tiles) -> None:
    """Check each target policy's probabilities at an observation, (n_sensors,), and tiles.

    Raises:
        ValueError: If they are invalid; the message names a question, the value and the expected
            value.
    """
    right_by_construction = (Behaviour, ConstantAction, Gibbs, Greedy)
    first_question = {identity(q.target_policy): q for q in reversed(questions)}
    for q in reversed(first_question.values()):
        if not isinstance(q.target_policy, right_by_construction):
            probabilities = q.target_policy.probabilities(observation, tiles)
            misfit = misfit_of(probabilities, q.target_policy.n_actions, is_first=True)
            if misfit:
                raise ValueError(f"question {q.name!r}: its target policy {misfit}")


class StateValues:
    """Values that are constants or functions of the state: continuations, trace decays, outcomes.

    A function's value outside low..high becomes NaN.

    Attributes:
        constant: The constants, 0 for functions, shape (n,).
        given: Each function's latest value outside the range, by index.
    """

    def __init__(self, values: Sequence[float | StateFunction], low: float, high: float) -> None:
        self.constant = np.array([0.0 if callable(v) else v for v in values], dtype=np.float64)
        self._functions = [(i, v) for i, v in enumerate(values) if callable(v)]
        self._low = low
        self._high = high
        self.given: dict[int, float] = {}

    @property
    def has_functions(self) -> bool:
        """True if a value is computed in Python."""
        return bool(self._functions)

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


class Transition(NamedTuple):
    """The two states of a transition: an observation, float64, (n_channels,), and its tiles, (n_active,), each."""

    before: tuple[Observation, Tiles]
    after: tuple[Observation, Tiles]


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
        states: Transition,
        terms: ReturnTerms,
        out: Floats,
    ) -> None:
        """Write delta^2 as cumulants, shape (n_demons,), once the other cumulants are written.

            delta = c_{t+1} + (1 - gamma_{t+1}) z_{t+1} + gamma_{t+1} v(s_{t+1}) - v(s_t)

        Args:
            channels: Those of the state reached, from `channels`.
            predict_one: Returns a demon's prediction at a state by the weights from before this
                step's update.
            states: Both states.
            terms: Continuations and outcomes of the demons at the state reached.
            out: The cumulants.
        """
        for demon, source in self._td_errors:
            c = out[source]
            if self.channel[source] != checks.NO_CHANNEL:
                c = channels[self.channel[source]]
            gamma = terms.gamma[source]
            delta = c + (1.0 - gamma) * terms.outcome[source] - predict_one(source, *states.before)
            if gamma > 0.0:
                delta += gamma * predict_one(source, *states.after)
            out[demon] = delta**2

    @property
    def has_td_errors(self) -> bool:
        """True if a demon's TD error is a cumulant."""
        return bool(self._td_errors)


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
