"""What the parts of questions give in a state, as arrays: ratios of policies, continuations, trace decays, cumulants.

Equal parts are asked once. What a function of the user's gives that is no number, or out of range, is NaN here.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from horde_agent.gvf import GVF, Channel, Feature, Prediction, StateFunction
from horde_agent.kernels import checks
from horde_agent.kernels.policies import LARGEST
from horde_agent.learning.gibbs import GibbsTable, largest_logit
from horde_agent.policies import Behaviour, ConstantAction, Gibbs, Policy
from horde_agent.saving import State, attributes, put_back
from horde_agent.types import Floats, Tiles

Observation = NDArray[Any]

_FEW_POLICIES = 32  # Gibbs policies for which sums in float64, from scratch on each step, are quick enough
_CHECKED_EVERY = 64  # steps after which all that a policy gives is looked at, beside the action taken
_ROUNDING = 1e-4  # by which probabilities may miss 1, all added: those of a float32 softmax do by 1e-7


class PolicyTable:
    """The distinct target policies of a Horde: how likely each would have taken the action that was taken.

    Args:
        policies: Distinct policies.
        n_features: Number of features, which a Gibbs policy must agree with.
        n_gibbs: Gibbs policies of the larger Horde that these are a part of, if they are.

    Attributes:
        n_actions: Number of actions, 0 where no policy says.
        n_policies: Number of policies.
        constant_action: The action that each policy always takes, `checks.ON_POLICY` of the behaviour policy itself,
            or `checks.ELSEWHERE`, shape (n_policies,).
        has_functions: Whether a policy is asked in Python.
        misfits: What policies gave that is no probabilities, by policy, since somebody last looked and cleared it.

    Raises:
        ValueError: If the policies disagree about the number of actions or features.
    """

    def __init__(self, policies: Sequence[Policy], n_features: int, n_gibbs: int = 0) -> None:
        counts = {p.n_actions for p in policies if not isinstance(p, Behaviour)}
        if len(counts) > 1:
            raise ValueError(f"the target policies have different numbers of actions: {sorted(counts)}")
        self.n_actions = counts.pop() if counts else 0
        self.n_policies = len(policies)
        kinds = (Behaviour, ConstantAction, Gibbs)
        at = [np.array([i for i, p in enumerate(policies) if isinstance(p, kind)], dtype=np.int64) for kind in kinds]
        self.constant_action = np.full(self.n_policies, checks.ELSEWHERE)
        self.constant_action[at[0]] = checks.ON_POLICY
        self.constant_action[at[1]] = [p.action for p in policies if isinstance(p, ConstantAction)]
        self._others = [(i, p) for i, p in enumerate(policies) if not isinstance(p, kinds)]
        self.misfits: dict[int, str] = {}
        self._n_asked = 0
        gibbs = [p for p in policies if isinstance(p, Gibbs)]
        if any(p.n_features != n_features for p in gibbs):
            raise ValueError(f"n_features of a Gibbs policy differs from the Horde's {n_features}")
        self._tables = _gibbs_tables(gibbs, at[2], are_few=max(len(gibbs), n_gibbs) < _FEW_POLICIES)

    @property
    def has_functions(self) -> bool:
        """Whether a policy is asked in Python."""
        return bool(self._others)

    def state(self) -> State:
        """Return what coming ratios depend on: the logits of Gibbs policies follow from the tiles alone."""
        return attributes(self, "_n_asked") | {"others": np.array([i for i, _ in self._others], dtype=np.int64)}

    def restore(self, state: State) -> None:
        """Go on from what `state` returned: policies that were forgotten are asked no more."""
        put_back(self, state, "_n_asked")
        for i in {i for i, _ in self._others} - set(state["others"].tolist()):
            self.forget(i)

    def write_ratios(
        self, action: int, probability: float, observation: Observation, tiles: Tiles, out: Floats
    ) -> None:
        """Write rho = pi(a)/b(a) of each policy but the constant ones, NaN where a policy gives no probability.

        Args:
            action: The action taken.
            probability: b(a), the probability with which the behaviour policy took it.
            observation: Of the state in which it was taken.
            tiles: Of that state.
            out: Changed in place, shape (n_policies,).
        """
        for table in self._tables:
            table.ratios(tiles, action, probability, out)
        is_due = self._n_asked % _CHECKED_EVERY == 0
        self._n_asked += 1
        for i, policy in self._others:
            out[i] = self._probability(i, policy.probabilities(observation, tiles), action, is_due) / probability

    def _probability(self, i: int, given: Any, action: int, is_due: bool) -> float:
        """Return one policy's pi(a) from all that it gave, NaN where that is no probabilities, which is then noted."""
        try:
            p = float(given[action]) if len(given) == self.n_actions else np.nan
        except (TypeError, ValueError):
            p = np.nan
        if is_due or not 0.0 <= p <= 1.0:
            misfit = misfit_of(given, self.n_actions)
            if misfit:
                self.misfits[i] = misfit
                return np.nan
            p = min(max(p, 0.0), 1.0) if np.isfinite(p) else p
        return p

    def forget(self, i: int) -> None:
        """Ask a policy no more."""
        self._others = [(k, policy) for k, policy in self._others if k != i]


def misfit_of(given: Any, n_actions: int, *, is_first: bool = False) -> str:
    """Say what was given instead of the probabilities of n actions, "" where nothing is wrong.

    That one is not a number (NaN, infinite) is wrong in a policy's first answer alone: later it may be a broken
    reading's fault, and the next answer may be right.
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
        return f"gave {shown}, not {n_actions} probabilities" if is_first else ""
    return "" if abs(values.sum() - 1.0) <= _ROUNDING else f"gave {shown}, which add up to {values.sum():.6g}, not 1"


def refuse_misfits(questions: Sequence[GVF], observation: Observation, tiles: Tiles) -> None:
    """Ask each target policy once, at an observation, (n_sensors,), and tiles, and refuse one that is no policy.

    Raises:
        ValueError: If so; the message names a question about it, what was given and what was expected.
    """
    right_by_construction = (Behaviour, ConstantAction, Gibbs)
    asked = {identity(q.target_policy): q for q in reversed(questions)}
    for q in reversed(asked.values()):
        if not isinstance(q.target_policy, right_by_construction):
            given = q.target_policy.probabilities(observation, tiles)
            misfit = misfit_of(given, q.target_policy.n_actions, is_first=True)
            if misfit:
                raise ValueError(f"question {q.name!r}: its target policy {misfit}")


def _gibbs_tables(policies: Sequence[Gibbs], position: NDArray[np.int64], *, are_few: bool) -> list[GibbsTable]:
    """Return a table of whole numbers, and one of floats for a few policies or those that need the range."""
    in_floats = np.array([are_few or largest_logit([p]) > LARGEST for p in policies], dtype=bool)
    return [
        GibbsTable([p for p, chosen in zip(policies, mask, strict=True) if chosen], position[mask], in_floats=floats)
        for floats, mask in ((False, ~in_floats), (True, in_floats))
        if mask.any()
    ]


class StateValues:
    """Numbers that are constant or a function of the state: continuations, trace decays, outcomes.

    Args:
        values: A number or a function of (observation, tiles) each.
        low, high: Range outside which a function's value becomes NaN.

    Attributes:
        constant: Those that are constant, 0 for the others, shape (n,).
        is_function: Which are functions, shape (n,).
        given: What functions gave when they last gave a value outside the range, by place.
    """

    def __init__(self, values: Sequence[float | StateFunction], low: float, high: float) -> None:
        self.constant = np.array([0.0 if callable(v) else v for v in values], dtype=np.float64)
        self._functions = [(i, v) for i, v in enumerate(values) if callable(v)]
        self.is_function = np.array([callable(v) for v in values])
        self._low, self._high = low, high
        self.given: dict[int, float] = {}

    @property
    def has_functions(self) -> bool:
        """Whether a value is asked for in Python."""
        return bool(self._functions)

    def write(self, observation: Observation, tiles: Tiles, out: Floats) -> None:
        """Write the functions' values in this state, (n_demons,), NaN where one is out of range; not the constants."""
        for i, function in self._functions:
            value = out[i] = float(function(observation, tiles))
            if not self._low <= value <= self._high:
                self.given[i], out[i] = value, np.nan


class Cumulants:
    """The signals that the questions sum.

    Args:
        questions: The questions.
        n_features: Number of features.

    Attributes:
        channel: That each question sums, shape (n_demons,), or `checks.NO_CHANNEL`.
        n_channels: An observation must have at least so many channels.
        needs_predictions: Whether a question's cumulant is another demon's prediction.

    Raises:
        ValueError: If a question names a feature or a demon that is not there.
    """

    def __init__(self, questions: Sequence[GVF], n_features: int) -> None:
        demon_of = {gvf.name: i for i, gvf in enumerate(questions)}
        self._features: list[tuple[int, int]] = []
        self._predictions: list[tuple[int, int]] = []
        self._functions: list[tuple[int, StateFunction]] = []
        self.channel = np.full(len(questions), checks.NO_CHANNEL)
        for i, gvf in enumerate(questions):
            match gvf.cumulant:
                case Channel(index):
                    self.channel[i] = index
                case Feature(index) if index < n_features:
                    self._features.append((i, index))
                case Prediction(name) if name in demon_of:
                    self._predictions.append((i, demon_of[name]))
                case Feature(index):
                    raise ValueError(f"question {gvf.name!r}: there is no feature {index} of {n_features}")
                case Prediction(name):
                    raise ValueError(f"question {gvf.name!r}: there is no demon {name!r} in this Horde")
                case function:
                    self._functions.append((i, function))
        self.n_channels = int(self.channel.max()) + 1
        self.needs_predictions = bool(self._predictions)

    @property
    def is_read_off(self) -> bool:
        """Whether every cumulant is a channel."""
        return not (self._features or self._predictions or self._functions)

    def write(
        self, observation: Observation, tiles: Tiles, predict_one: Callable[[int, Tiles], float], out: Floats
    ) -> None:
        """Write c_{t+1} at the state reached, shape (n_demons,), but for the channels, which `checks.complete` reads.

        Args:
            observation: Of the state reached.
            tiles: Of the state reached.
            predict_one: Gives a demon's prediction there, by the weights from before this step's update.
            out: Changed in place.
        """
        for i, feature in self._features:
            out[i] = np.count_nonzero(tiles == feature) if tiles.dtype.kind in "iu" else tiles[feature]
        for i, source in self._predictions:
            out[i] = predict_one(source, tiles)
        for i, function in self._functions:
            out[i] = function(observation, tiles)


def number(keys: Sequence[Hashable]) -> tuple[NDArray[np.int64], list[int]]:
    """Number equal keys alike, in order of appearance.

    Returns:
        The number of each key, shape (n,), and the position at which each number appeared first.
    """
    seen: dict[Hashable, int] = {}
    numbers = np.array([seen.setdefault(key, len(seen)) for key in keys], dtype=np.int64)
    firsts = [int(i) for i in np.unique(numbers, return_index=True)[1]]
    return numbers, firsts


def identity(thing: object) -> Hashable:
    """Return a key by which equal things are equal, and an unhashable one equals itself alone."""
    return thing if isinstance(thing, Hashable) and _is_hashable(thing) else id(thing)


def _is_hashable(thing: Hashable) -> bool:
    """Say whether hash() works: a tuple or dataclass may hold a list."""
    try:
        hash(thing)
    except TypeError:
        return False
    return True
