"""Option: a target policy and a stopping rule, which a question can be about and a robot can follow.

The model of option o, with the discount gamma and beta(s') the probability of stopping in the state reached:

    reward part      r.x(s) = E[sum_k gamma^(k-1) R_k]         cumulant R, outcome 0
    transition part  n_j.x(s) = E[gamma^K x_j(S_K)]            cumulant 0, outcome z'

each with the continuation gamma' = gamma (1 - beta'), until the option stops after K steps. So that
(1 - gamma') z' = gamma beta' x'_j, the outcome is z' = gamma beta' x'_j / (1 - gamma'). The gamma is easily forgotten:
with x_j alone at the stop an option of K steps counts as one of K - 1, and a plan overrates it.

A subtask asks for an option: collect reward, and stop where stopping is worth more than going on,

    z(s) = v(s) + bonus x_i(s) >= max_a q(s, a)

v is the value of the main task when the subtask was posed, the bonus what feature i was worth more at its best.

Sources: Sutton, Precup & Singh (1999), options; Sutton, Machado, Holland, Szepesvari, Timbers, Tanner & White
(2023), Reward-respecting subtasks, AIJ 324:104001, of which the printed transition part omits gamma at the stop.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from horde_agent.gvf import GVF, ActionValues, StateFunction, check_part, reading, value_at
from horde_agent.learner import Learner
from horde_agent.policies import Policy, is_policy
from horde_agent.refusals import number_in, real_number, whole_number
from horde_agent.tiles import MOST_FEATURES
from horde_agent.types import Bools, Floats, Tiles, can_be_called

ALWAYS = 1.0
"""The stopping rule of a single action: every state."""


@dataclass(frozen=True, slots=True)
class StopAt:
    """A stopping rule: stop where one of these features is active.

    Raises:
        ValueError: If there is none, or one is not a whole number from 0 to `tiles.MOST_FEATURES`.

    Examples:
        >>> StopAt((3, 4))(np.zeros(1), np.array([4, 7])), StopAt((3, 4))(np.zeros(1), np.array([5, 7]))
        (1.0, 0.0)
    """

    features: tuple[int, ...]
    is_stop: Bools = field(init=False, compare=False, repr=False)
    """Of each feature up to the last, and False for all beyond."""

    def __post_init__(self) -> None:
        if not isinstance(self.features, Iterable):
            raise ValueError(f"features of a stop must be several, not {self.features!r}")
        features = tuple(whole_number("feature of a stop", k, 0) for k in self.features)
        if not features:
            raise ValueError("a stopping rule needs at least one feature")
        if max(features) >= MOST_FEATURES:
            raise ValueError(
                f"feature of a stop must be below {MOST_FEATURES:,}, not {max(features):,}"
            )
        is_stop = np.zeros(max(features) + 2, dtype=bool)
        is_stop[list(features)] = True
        object.__setattr__(self, "features", features)
        object.__setattr__(self, "is_stop", is_stop)

    def __call__(self, observation: NDArray[Any], tiles: Tiles) -> float:  # noqa: ARG002
        """Return 1 where it stops, else 0, at an observation, (n_channels,), and its tiles, (n_active,)."""
        return float(self.is_stop.take(tiles, mode="clip").any())

    def check_features(self, n_features: int) -> None:
        """Raise ValueError if a feature is none of so many."""
        _check_rule(max(self.features) + 1, n_features, is_right=max(self.features) < n_features)


@dataclass(frozen=True, eq=False, slots=True)
class GreedyIn:
    """The greedy policy of fixed action values: those that a control question had found at one time.

    Args:
        weights: Of each action, shape (n_actions, n_features).

    Raises:
        ValueError: If they are not finite, or of another shape.

    Examples:
        >>> GreedyIn(np.eye(2)).probabilities(np.zeros(1), np.array([1]))
        array([0., 1.])
    """

    weights: Floats

    def __post_init__(self) -> None:
        weights = np.array(self.weights, dtype=np.float64)
        if weights.ndim != 2 or not np.isfinite(weights).all():
            raise ValueError(
                f"weights of a greedy policy must be finite, (n_actions, n_features), not {weights.shape}"
            )
        object.__setattr__(self, "weights", weights)

    @property
    def n_actions(self) -> int:
        """Number of actions."""
        return len(self.weights)

    def check_features(self, n_features: int) -> None:
        """Raise ValueError if its weights are those of another number of features."""
        if self.weights.shape[1] != n_features:
            raise ValueError(
                f"its policy is one of {self.weights.shape[1]:,} features, expected {n_features:,}: "
                "make it for the robot's features"
            )

    def values(self, tiles: Tiles) -> Floats:
        """Return the action values, (n_actions,), at the active features, (n_active,)."""
        return np.asarray(self.weights[:, tiles].sum(axis=1))

    def probabilities(self, observation: NDArray[Any], tiles: Tiles) -> Floats:  # noqa: ARG002
        """Return the probability of each action, (n_actions,); equal values share it."""
        values = self.values(tiles)
        is_best = values == values.max()
        return np.asarray(is_best / is_best.sum())


@dataclass(frozen=True, eq=False, slots=True)
class Subtask:
    """What an option is to reach: a feature, at the expense of as little value as possible.

    Args:
        feature: The feature, i.
        bonus: What it is worth more than in v: the highest value that its weight has had, less its weight.
        weights: Those of v, the value of the main task when the subtask is posed, (n_features,).

    Raises:
        ValueError: If an argument is out of its range.
    """

    feature: int
    bonus: float
    weights: Floats

    def __post_init__(self) -> None:
        weights = np.array(self.weights, dtype=np.float64)
        if weights.ndim != 1 or not np.isfinite(weights).all():
            raise ValueError(
                f"weights of a subtask must be finite, (n_features,), not {weights.shape}"
            )
        feature = whole_number("feature of a subtask", self.feature, 0)
        if feature >= weights.size:
            raise ValueError(
                f"feature of a subtask must be one of the {weights.size} of its weights, not {feature}"
            )
        bonus = real_number("bonus of a subtask", self.bonus)
        if not np.isfinite(bonus):
            raise ValueError(f"bonus of a subtask must be finite, not {bonus}")
        object.__setattr__(self, "weights", weights)
        object.__setattr__(self, "feature", feature)
        object.__setattr__(self, "bonus", bonus)

    def __call__(self, observation: NDArray[Any], tiles: Tiles) -> float:  # noqa: ARG002
        """Return z, the value of stopping at the active features, (n_active,), of an observation, (n_channels,)."""
        is_reached = np.count_nonzero(tiles == self.feature)
        return float(self.weights[tiles].sum() + self.bonus * is_reached)


@dataclass(frozen=True, slots=True)
class StopForSubtask:
    """The stopping rule of a subtask: stop where that is worth at least as much as the best action.

    Args:
        subtask: The subtask.
        of: Name of the control question whose action values are read, as they are at the time.
        policy: The policy whose fixed action values are read instead.
    """

    subtask: Subtask
    of: str = ""
    policy: GreedyIn | None = None
    values: ActionValues | None = field(default=None, compare=False, repr=False)

    def reading(self, action_values: ActionValues) -> StopForSubtask:
        """Return the rule that reads these action values, (n_actions,), of (name, tiles)."""
        return replace(self, values=action_values)

    def __call__(self, observation: NDArray[Any], tiles: Tiles) -> float:
        """Return 1 where it stops, else 0, at an observation, (n_channels,), and its tiles, (n_active,).

        Raises:
            RuntimeError: If it has no action values.
        """
        if self.policy is not None:
            best = self.policy.values(tiles).max()
        elif self.values is not None:
            best = self.values(self.of, tiles).max()
        else:
            raise RuntimeError(
                f"the subtask of {self.of!r} has no action values: take it from the questions of a Horde"
            )
        return float(self.subtask(observation, tiles) >= best)

    def check_features(self, n_features: int) -> None:
        """Raise ValueError if the subtask's weights are those of another number of features."""
        size = self.subtask.weights.size
        _check_rule(size, n_features, is_right=size == n_features)


def _check_rule(n_read: int, n_features: int, *, is_right: bool) -> None:
    if not is_right:
        raise ValueError(
            f"its stopping rule reads {n_read:,} features, and there are {n_features:,}: "
            "make it for the robot's features"
        )


@dataclass(frozen=True, slots=True)
class Continues:
    """The continuation of an option's questions, gamma (1 - beta)."""

    gamma: float
    stops: float | StateFunction

    def __call__(self, observation: NDArray[Any], tiles: Tiles) -> float:
        """Return it at the state reached, an observation, (n_channels,), and its tiles, (n_active,)."""
        return self.gamma * (1.0 - value_at(self.stops, observation, tiles))

    def reading(self, action_values: ActionValues) -> Continues:
        """Return it with a stopping rule that reads these action values, (n_actions,), of (name, tiles)."""
        stops = reading(self.stops, action_values)
        if stops is self.stops:
            return self
        return replace(self, stops=stops)

    def check_features(self, n_features: int) -> None:
        """Raise ValueError if the stopping rule does not fit this number of features."""
        check_part(self.stops, n_features)


@dataclass(frozen=True, slots=True)
class PaidAtStop:
    """gamma times an amount at the stop, as the outcome z': (1 - gamma') z' = gamma beta' amount."""

    gamma: float
    stops: float | StateFunction
    amount: float | StateFunction = 1.0

    def __call__(self, observation: NDArray[Any], tiles: Tiles) -> float:
        """Return it at the state reached, an observation, (n_channels,), and its tiles, (n_active,)."""
        factor = factor_at_stop(self.gamma, value_at(self.stops, observation, tiles))
        if factor == 0.0:
            return 0.0
        return factor * value_at(self.amount, observation, tiles)

    def reading(self, action_values: ActionValues) -> PaidAtStop:
        """Return it with a stopping rule that reads these action values, (n_actions,), of (name, tiles)."""
        stops = reading(self.stops, action_values)
        if stops is self.stops:
            return self
        return replace(self, stops=stops)


def factor_at_stop(gamma: float, beta: float) -> float:
    """Return gamma beta / (1 - gamma (1 - beta)): times an outcome, with which a stop pays gamma times that outcome."""
    return gamma * beta / (1.0 - gamma * (1.0 - beta))


@dataclass(frozen=True, slots=True)
class Option:
    """A way of behaving and where it ends.

    Args:
        name: Unique among the options of a Horde; its questions are "name/reward" and "name/feature_3".
        target_policy: The policy that it follows.
        stops: beta, the probability of stopping in a state that it reaches: a number in [0, 1], 1 for a
            single action, or a function of (observation, tiles), such as `StopAt` or `StopForSubtask`.
        gamma: Discount of the reward and of what follows the stop, in [0, 1).
        subtask: What it was found for, if it was.

    Raises:
        ValueError: If an argument is out of its range.

    Examples:
        >>> from horde_agent import ConstantAction
        >>> option = Option("to the wall", ConstantAction(0, n_actions=4), StopAt((7,)), gamma=0.9)
        >>> option.continuation(np.zeros(1), np.array([3])), option.continuation(np.zeros(1), np.array([7]))
        (0.9, 0.0)
    """

    name: str
    target_policy: Policy
    stops: float | StateFunction = ALWAYS
    gamma: float = 0.99
    subtask: Subtask | None = None

    def __post_init__(self) -> None:
        if not isinstance(self.name, str) or not self.name:
            raise ValueError(f"name of an option must be a text, not {self.name!r}")
        if not is_policy(self.target_policy) or self.target_policy.n_actions == 0:
            raise ValueError(
                f"option {self.name!r}: target_policy must give probabilities(observation, tiles) and "
                f"n_actions, not {self.target_policy!r}"
            )
        try:
            object.__setattr__(self, "gamma", number_in("gamma", self.gamma, "[0, 1)"))
            if not callable(self.stops):
                object.__setattr__(self, "stops", number_in("stops", self.stops, "[0, 1]"))
        except ValueError as error:
            raise ValueError(f"option {self.name!r}: {error}") from None
        if callable(self.stops) and not can_be_called(self.stops, 2):
            raise ValueError(
                f"option {self.name!r}: stops must be a function of (observation, tiles), not {self.stops!r}"
            )

    @property
    def continuation(self) -> float | StateFunction:
        """Gamma (1 - beta) of the option's questions."""
        if callable(self.stops):
            return Continues(self.gamma, self.stops)
        return self.gamma * (1.0 - self.stops)

    def paid_at_stop(self, amount: float | StateFunction = 1.0) -> float | StateFunction:
        """Return the outcome with which a question of the option receives gamma times an amount at the stop."""
        if callable(self.stops) or callable(amount):
            return PaidAtStop(self.gamma, self.stops, amount)
        return factor_at_stop(self.gamma, self.stops) * amount

    def check(self, n_actions: int, n_features: int) -> None:
        """Raise ValueError if its policy or its stopping rule does not fit these numbers of actions or features."""
        policy = self.target_policy
        if policy.n_actions != n_actions:
            raise ValueError(
                f"option {self.name!r}: its policy has {policy.n_actions} actions, expected {n_actions}: "
                "make it for the robot's actions"
            )
        try:
            check_part(policy, n_features)
            check_part(self.stops, n_features)
        except ValueError as error:
            raise ValueError(f"option {self.name!r}: {error}") from None


def found(learner: Learner, name: str) -> Option:
    """Return the option that a control question of a subtask has found so far, with fixed action values.

    Args:
        learner: The Horde.
        name: Name of the question, such as `questions.control_of` makes it.

    Raises:
        ValueError: If no such question has a subtask.
    """
    questions = {question.name: question for question in learner.questions}
    if name not in questions or not isinstance(_stops_of(questions[name]), StopForSubtask):
        raise ValueError(
            f"no question {name!r} finds an option for a subtask: add questions.control_of(...)"
        )
    question = questions[name]
    n_actions = question.target_policy.n_actions
    theta, _ = learner.weights(np.array([learner.names.index(name)]))
    policy = GreedyIn(theta.reshape(n_actions, -1))
    stops = _stops_of(question)
    assert isinstance(stops, StopForSubtask)
    assert isinstance(question.continuation, Continues)
    return Option(
        name=name,
        target_policy=policy,
        stops=StopForSubtask(stops.subtask, policy=policy),
        gamma=question.continuation.gamma,
        subtask=stops.subtask,
    )


def _stops_of(question: GVF) -> object:
    return getattr(question.continuation, "stops", None)
