"""Target policies, which questions are about, and the behaviour policy, which the robot follows.

A policy returns the probability of each action in a state; the importance sampling ratio of an
action is rho = pi(a)/b(a). A behaviour draws an action and returns it with its probability.
`Follow` is the behaviour that follows a policy; a behaviour with memory, such as `StickyRandom`,
draws actions itself.
"""

from __future__ import annotations

from collections.abc import Callable, Collection
from dataclasses import dataclass, field
from functools import cache
from typing import Any, Protocol, runtime_checkable

import numpy as np
from numpy.typing import ArrayLike, NDArray

from horde_agent.parametric import Gaussian as Gaussian
from horde_agent.parametric import Gibbs as Gibbs
from horde_agent.refusals import checked_epsilon, checked_repeat, whole_number
from horde_agent.saving import State
from horde_agent.types import Floats, Tiles, can_be_called

_SUM_TOLERANCE = 1e-6


@runtime_checkable
class Policy(Protocol):
    """Interface of a target policy: action probabilities given a state.

    A Horde checks the probabilities of the first state and raises ValueError if they are invalid.
    It checks them again every 64 steps; the demons of a policy that became invalid diverge. They
    skip a step if a probability is NaN.

    Examples:
        >>> isinstance(Uniform(2), Policy)
        True
    """

    @property
    def n_actions(self) -> int:
        """Number of actions."""

    def probabilities(self, observation: NDArray[Any], tiles: Tiles) -> Floats:
        """Return the probability of each action, shape (n_actions,), summing to 1.

        Args:
            observation: In the environment's own units, float64, shape (n_channels,).
            tiles: Its active features, int64, shape (n_active,).
        """


class BehaviourPolicy(Protocol):
    """Interface of the behaviour policy: draws actions with known probabilities, and can forget its last action.

    Examples:
        >>> class AlwaysFirst:
        ...     def draw(self, rng, observation, tiles):
        ...         return 0, 1.0
        ...
        ...     def forget(self):
        ...         pass
        >>> AlwaysFirst().draw(np.random.default_rng(0), np.zeros(1), np.array([0]))
        (0, 1.0)
    """

    def draw(
        self, rng: np.random.Generator, observation: Floats, tiles: Tiles
    ) -> tuple[int, float]:
        """Return an action and b, the probability with which it was drawn, in (0, 1].

        Args:
            rng: Source of the draw.
            observation: In the environment's own units, float64, shape (n_channels,).
            tiles: Its active features, int64, shape (n_active,).
        """

    def forget(self) -> None:
        """Make the next draw independent of earlier ones: called after a reset, a gap or a test excursion."""


def is_policy(thing: object) -> bool:
    """Return whether an object has `n_actions` and a method probabilities(observation, tiles)."""
    kind: Any = type(thing)
    if not hasattr(thing, "n_actions"):
        return False
    if hasattr(kind, "probabilities"):
        return _can_be_called(kind.probabilities, 3)
    return can_be_called(getattr(thing, "probabilities", None), 2)


_can_be_called = cache(can_be_called)  # for the methods of classes, of which there are few


@dataclass(frozen=True, slots=True)
class ConstantAction:
    """The policy that always takes one action.

    Raises:
        ValueError: If `action` is not one of the `n_actions` actions.

    Examples:
        >>> ConstantAction(1, n_actions=3).probabilities(np.zeros(1), np.array([0]))
        array([0., 1., 0.])
    """

    action: int
    n_actions: int

    def __post_init__(self) -> None:
        object.__setattr__(self, "n_actions", whole_number("n_actions", self.n_actions, 1))
        object.__setattr__(self, "action", whole_number("action", self.action, 0))
        if not 0 <= self.action < self.n_actions:
            raise ValueError(f"action must be in 0..{self.n_actions - 1}, not {self.action}")

    def probabilities(self, observation: NDArray[Any], tiles: Tiles) -> Floats:  # noqa: ARG002
        """Return 1 for the action and 0 for the others, shape (n_actions,)."""
        out = np.zeros(self.n_actions)
        out[self.action] = 1.0
        return out


@dataclass(frozen=True, slots=True)
class Uniform:
    """The policy that takes every action equally often.

    Examples:
        >>> Uniform(n_actions=4).probabilities(np.zeros(1), np.array([0]))
        array([0.25, 0.25, 0.25, 0.25])
    """

    n_actions: int

    def __post_init__(self) -> None:
        object.__setattr__(self, "n_actions", whole_number("n_actions", self.n_actions, 1))

    def probabilities(self, observation: NDArray[Any], tiles: Tiles) -> Floats:  # noqa: ARG002
        """Return 1 / n_actions for each action, shape (n_actions,)."""
        return np.full(self.n_actions, 1.0 / self.n_actions)


@dataclass(frozen=True, slots=True)
class Behaviour:
    """A sentinel for the behaviour policy itself: rho = 1 on every step (on-policy prediction).

    Examples:
        >>> from horde_agent import GVF, Channel
        >>> GVF("light over ten steps", Behaviour(), Channel(0), continuation=0.9).target_policy
        Behaviour(n_actions=0)
    """

    n_actions: int = 0

    def probabilities(self, observation: NDArray[Any], tiles: Tiles) -> Floats:  # noqa: ARG002
        """Raise TypeError for arguments of any shape: only the behaviour policy itself has probabilities."""
        raise TypeError(
            "Behaviour() stands for the behaviour policy, with rho = 1; it has no probabilities"
        )


@dataclass(frozen=True, slots=True)
class PolicyFunction:
    """A policy given by a function, which is called once per step for all demons with policies of that function.

    Args:
        function: Returns the probability of each action, shape (n_actions,), for (observation,
            tiles).
        n_actions: Number of actions.

    Raises:
        ValueError: If `n_actions` is not a whole number of at least 1, or `function` cannot be
            called.

    Examples:
        >>> PolicyFunction(lambda observation, tiles: [0.3, 0.7], n_actions=2).probabilities(np.zeros(1), np.array([0]))
        array([0.3, 0.7])
    """

    function: Callable[[NDArray[Any], Tiles], ArrayLike]
    n_actions: int

    def __post_init__(self) -> None:
        object.__setattr__(self, "n_actions", whole_number("n_actions", self.n_actions, 1))
        if not callable(self.function):
            raise ValueError(
                f"function must be callable with (observation, tiles), not {self.function!r}"
            )

    def probabilities(self, observation: NDArray[Any], tiles: Tiles) -> Floats:
        """Return the function's value, shape (n_actions,); a Horde checks it."""
        return np.asarray(self.function(observation, tiles), dtype=np.float64)


@dataclass(frozen=True, slots=True)
class Among:
    """A policy over the first actions of a body that got further ones later, which it never takes.

    Args:
        policy: The policy over the first actions.
        n_actions: Number of actions with the further ones.

    Examples:
        >>> Among(Uniform(2), n_actions=3).probabilities(np.zeros(1), np.array([0]))
        array([0.5, 0.5, 0. ])
    """

    policy: Policy
    n_actions: int

    def probabilities(self, observation: NDArray[Any], tiles: Tiles) -> Floats:
        """Return those of the policy, and 0 for further actions, shape (n_actions,)."""
        out = np.zeros(self.n_actions)
        out[: self.policy.n_actions] = self.policy.probabilities(observation, tiles)
        return out


class StickyRandom:
    """The behaviour policy of the paper: repeat the last action with probability `repeat`, else draw uniformly.

    The last action is part of its state, so its probabilities are those of the *next* draw: with
    five actions and repeat 0.5, 0.6 for the last action and 0.1 for each other; without a last
    action 0.2 each.

    Args:
        n_actions: Number of actions.
        repeat: Probability of repeating, in [0, 1).
        lost: Actions that the body has lost, which are not drawn.

    Raises:
        ValueError: If an argument is out of its range, or all actions are lost.

    Source: White, Modayil & Sutton (2012), section 5, https://arxiv.org/abs/1206.6262.

    Examples:
        >>> behaviour = StickyRandom(n_actions=5)
        >>> behaviour.draw(np.random.default_rng(0))
        (4, 0.2)
        >>> behaviour.probabilities()
        array([0.1, 0.1, 0.1, 0.1, 0.6])
    """

    def __init__(self, n_actions: int, repeat: float = 0.5, lost: Collection[int] = ()) -> None:
        n_actions = whole_number("n_actions", n_actions, 1)
        self.n_actions = n_actions
        self.repeat = checked_repeat(repeat)
        self.last_action: int | None = None
        self._present = [action for action in range(n_actions) if action not in lost]
        n_present = len(self._present)
        if not n_present:
            raise ValueError(f"all {n_actions} actions are lost: none can be drawn")
        self._fresh = 1.0 / n_present
        self._other = (1.0 - repeat) / n_present

    def probabilities(self) -> Floats:
        """Return the probability of each action at the next draw, shape (n_actions,)."""
        if self.last_action is None:
            fresh = np.zeros(self.n_actions)
            fresh[self._present] = self._fresh
            return fresh
        return np.asarray(self.transition_probabilities()[self.last_action])

    def transition_probabilities(self) -> Floats:
        """Return b(a | last action l) as a matrix with a row for each l, shape (n_actions, n_actions)."""
        drawn = np.zeros((self.n_actions, self.n_actions))
        drawn[:, self._present] = self._other
        return drawn + self.repeat * np.eye(self.n_actions)

    def draw(
        self,
        rng: np.random.Generator,
        observation: NDArray[Any] | None = None,  # noqa: ARG002  unused, and therefore optional
        tiles: Tiles | None = None,  # noqa: ARG002
    ) -> tuple[int, float]:
        """Draw and store the next action, and return it with its probability; a state, of any shape, is not used."""
        last = self.last_action
        if last is not None and rng.random() < self.repeat:
            return last, self._other + self.repeat
        action = self.last_action = self._present[int(rng.integers(len(self._present)))]
        if last is None:
            return action, self._fresh
        return action, self._other + self.repeat * (action == last)

    def state(self) -> State:
        """Return the last action, which the next draw depends on."""
        return {"last_action": np.array(-1 if self.last_action is None else self.last_action)}

    def restore(self, state: State) -> None:
        """Restore a state from `state`."""
        last = int(state["last_action"])
        self.last_action = None
        if last in self._present:
            self.last_action = last

    def forget(self) -> None:
        """Forget the last action, so that the next draw is uniform: called after a reset, a gap or an excursion."""
        self.last_action = None


def draw_from(probabilities: Floats, rng: np.random.Generator) -> tuple[int, float]:
    """Draw an action and return it with its probability.

    Args:
        probabilities: Of each action, shape (n_actions,).
        rng: Source of the draw: one number of [0, 1).

    Raises:
        ValueError: If one is negative or NaN, or their sum differs from 1 by more than 1e-6.
    """
    p = np.asarray(probabilities, dtype=np.float64)
    # Also if NaN
    if p.ndim != 1 or not ((p >= 0.0).all() and abs(p.sum() - 1.0) <= _SUM_TOLERANCE):
        raise ValueError(
            f"the probabilities of the actions must not be negative and sum to 1, not {p}"
        )
    drawn = int(np.searchsorted(np.cumsum(p), rng.random(), side="right"))
    action = min(drawn, int(np.flatnonzero(p)[-1]))  # the sum may have been rounded to below 1
    return action, float(p[action])


class Follow:
    """The behaviour that follows a policy: it draws from the policy's probabilities, which are its b.

    Args:
        policy: A policy.

    Raises:
        ValueError: If it has no probabilities.

    Examples:
        >>> Follow(Uniform(4)).draw(np.random.default_rng(0), np.zeros(1), np.zeros(1, dtype=np.int64))
        (2, 0.25)
    """

    def __init__(self, policy: Policy) -> None:
        if isinstance(policy, Behaviour) or not is_policy(policy):
            raise ValueError(
                f"policy must give probabilities(observation, tiles) and n_actions, not {policy!r}"
            )
        self.policy = policy
        self.n_actions = policy.n_actions

    def draw(
        self, rng: np.random.Generator, observation: Floats, tiles: Tiles
    ) -> tuple[int, float]:
        """Draw an action from `rng` at an observation, (n_channels,), and its tiles, (n_active,).

        Raises:
            ValueError: If the policy returns invalid probabilities.
        """
        return draw_from(self.policy.probabilities(observation, tiles), rng)

    def forget(self) -> None:
        """Do nothing: a policy depends only on the state."""


@dataclass(frozen=True, slots=True)
class EpsilonGreedy:
    """The policy that takes the action with the highest value, or with probability epsilon a random one.

    Each action has probability epsilon / n, and each of the m best ones (1 - epsilon) / m more.

    Args:
        values: Returns a value for each action, shape (n_actions,), for (observation, tiles), such
            as predictions.
        n_actions: Number of actions.
        epsilon: Probability of a random action, in [0, 1]; above 0 for a behaviour that others
            learn from off-policy.

    Raises:
        ValueError: If an argument is out of its range, or in `probabilities`, if the values are not
            n_actions numbers.

    Source: Sutton & Barto (2018), section 2.2, http://incompleteideas.net/book/the-book-2nd.html.

    Examples:
        >>> policy = EpsilonGreedy(lambda observation, tiles: [1.0, 2.0], n_actions=2, epsilon=0.1)
        >>> policy.probabilities(np.zeros(1), np.array([0]))
        array([0.05, 0.95])
    """

    values: Callable[[NDArray[Any], Tiles], ArrayLike]
    n_actions: int
    epsilon: float = 0.1

    def __post_init__(self) -> None:
        object.__setattr__(self, "n_actions", whole_number("n_actions", self.n_actions, 1))
        if not callable(self.values):
            raise ValueError(
                f"values must be callable with (observation, tiles), not {self.values!r}"
            )
        checked_epsilon(self.epsilon)

    def probabilities(self, observation: NDArray[Any], tiles: Tiles) -> Floats:
        """Return the probability of each action, shape (n_actions,)."""
        values = np.asarray(self.values(observation, tiles), dtype=np.float64)
        if values.shape != (self.n_actions,) or np.isnan(values).any():
            raise ValueError(
                f"values must be {self.n_actions} numbers, one for each action, not {values}"
            )
        is_best = values == values.max()
        return np.asarray(
            self.epsilon / self.n_actions + (1.0 - self.epsilon) * is_best / is_best.sum()
        )


@dataclass(frozen=True, slots=True)
class Greedy:
    """The policy that a control question finds: the action of the highest value; equal values share it.

    As target policy of the control question itself it needs no name; other questions about the
    found policy name it. The values are those of the weights at the time. After the demon diverged
    the policy is uniform.

    Args:
        n_actions: Number of actions.
        of: Name of the control question.
        values: Returns its action values, shape (n_actions,), from (of, tiles); the Horde sets it.

    Raises:
        ValueError: If `n_actions` is not an integer of at least 1, or `of` not a string.

    Examples:
        >>> from horde_agent import GVF, Channel
        >>> seek = GVF("seek the lamp", Greedy(5), Channel("light_0"), continuation=0.95)
        >>> seek.finds_policy, GVF("way", Greedy(5, "seek the lamp"), Channel("light_1"), 0.8).finds_policy
        (True, False)
    """

    n_actions: int
    of: str = ""
    values: Callable[[str, Tiles], Floats] | None = field(default=None, compare=False, repr=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "n_actions", whole_number("n_actions", self.n_actions, 1))
        if not isinstance(self.of, str):
            raise ValueError(f"of must be the name of a control question, not {self.of!r}")

    def probabilities(self, observation: NDArray[Any], tiles: Tiles) -> Floats:  # noqa: ARG002
        """Return the probability of each action, shape (n_actions,).

        Raises:
            RuntimeError: If no Horde learns its values.
        """
        if self.values is None:
            raise RuntimeError(
                f"the policy {self.of!r} has no values: take it from the questions of a Horde"
            )
        values = self.values(self.of, tiles)
        is_best = values == values.max()
        return np.asarray(is_best / is_best.sum())
