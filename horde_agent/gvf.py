"""GVF: a question about the future, asked as a value function. This module learns nothing.

    V(s) = E_pi[ sum_k (product of gammas) (C_{t+k+1} + (1 - gamma_{t+k+1}) z_{t+k+1}) | S_t = s ]

Source: Sutton et al. (2011), Horde; White, Modayil & Sutton (2012), section 3.
"""

from __future__ import annotations

import math
import numbers
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from horde_agent.policies import Greedy, Policy, is_policy
from horde_agent.refusals import real_number, whole_number
from horde_agent.types import Floats, Tiles

MEAN: Literal["mean"] = "mean"
READING: Literal["reading"] = "reading"
AutomaticOffset = Literal["mean", "reading"]
"""How a demon finds its offset from its first transitions, see `learning.offsets`."""

StateFunction = Callable[[NDArray[Any], Tiles], float]
ActionValues = Callable[[str, Tiles], Floats]
"""Returns the action values, (n_actions,), of the control question with a name, at active features, (n_active,)."""


@dataclass(frozen=True, slots=True)
class Channel:
    """A cumulant: the reading of one channel of the observation, in the observation's own units.

    Args:
        index: Its index in the observation, or its name, such as "light_0"; with names, pass the
            channels' names to the Horde, `Horde(..., channels=interface.names)`.

    Raises:
        ValueError: If `index` is neither a name nor a whole number of at least 0.

    Examples:
        >>> Channel("light_0"), Channel(41)
        (Channel(index='light_0'), Channel(index=41))
    """

    index: int | str

    def __post_init__(self) -> None:
        if not isinstance(self.index, str):
            object.__setattr__(self, "index", whole_number("index of a channel", self.index, 0))


@dataclass(frozen=True, slots=True)
class Feature:
    """A cumulant, an outcome or another function of the state: `factor` if a feature is active, else 0.

    A Horde computes those of all its questions at once, without a call of Python for each demon.

    Args:
        index: The feature.
        factor: A number, or a function of (observation, tiles), which is called once in each state
            for all features with this factor.

    Raises:
        ValueError: If `index` is not a whole number of at least 0, or `factor` neither a finite
            number nor a function.

    Examples:
        >>> Feature(3)(np.zeros(1), np.array([3, 5])), Feature(4, factor=0.9)(np.zeros(1), np.array([3, 5]))
        (1.0, 0.0)
    """

    index: int
    factor: float | StateFunction = 1.0

    def __post_init__(self) -> None:
        object.__setattr__(self, "index", whole_number("index of a feature", self.index, 0))
        if not _is_function(self.factor):
            factor = real_number("factor of a feature", self.factor)
            if not math.isfinite(factor):
                raise ValueError(f"factor of a feature must be finite, not {factor!r}")
            object.__setattr__(self, "factor", factor)

    def __call__(self, observation: NDArray[Any], tiles: Tiles) -> float:
        """Return the value at a state, an observation, (n_channels,), and its tiles, or real-valued features."""
        if tiles.dtype.kind in "iu":
            phi = float(np.count_nonzero(tiles == self.index))
        else:
            phi = float(tiles[self.index])
        return phi * value_at(self.factor, observation, tiles)


def value_at(part: float | StateFunction, observation: NDArray[Any], tiles: Tiles) -> float:
    """Return a number, or the value of a function at a state, (n_channels,) and (n_active,)."""
    if callable(part):
        return float(part(observation, tiles))
    return part


def reading(part: float | StateFunction, action_values: ActionValues) -> Any:
    """Return a number or a function of the state; one with a method `reading` reads these action values."""
    if isinstance(part, Feature):
        factor = reading(part.factor, action_values)
        if factor is part.factor:
            return part
        return replace(part, factor=factor)
    bound = getattr(part, "reading", None)
    if bound is not None:
        return bound(action_values)
    return part


def check_part(part: object, n_features: int) -> None:
    """Let a policy or a function of the state that has a method `check_features` check a number of features."""
    check = getattr(part, "check_features", None)
    if check is not None:
        check(n_features)


@dataclass(frozen=True, slots=True)
class Prediction:
    """A cumulant: another demon's prediction at the next state, theta_t.phi_{t+1}, before this step's update.

    Raises:
        ValueError: If `name` is not a string.

    Source: Sutton & Tanner (2005), TD networks: compositional predictions.

    Examples:
        >>> from horde_agent import Uniform
        >>> GVF("light ahead, later", Uniform(2), Prediction("light ahead"), continuation=0.8).cumulant
        Prediction(name='light ahead')
    """

    name: str

    def __post_init__(self) -> None:
        if not isinstance(self.name, str):
            raise ValueError(f"name of the question predicted must be a string, not {self.name!r}")


@dataclass(frozen=True, slots=True)
class Reward:
    """A cumulant: the reward of the environment for the transition.

    With it a question asks for the value function of its target policy. A demon skips transitions
    whose reward is unknown (NaN).

    Source: Sutton & Barto (2018), section 3.5.

    Examples:
        >>> from horde_agent import Behaviour
        >>> GVF("value", Behaviour(), Reward(), continuation=0.99).cumulant
        Reward()
    """


@dataclass(frozen=True, slots=True)
class TDError:
    """A cumulant: the squared TD error of another demon, delta^2, by the weights from before this step's update.

    With the other question's policy, gamma^2 as continuation and no outcome, the answer is the
    variance of the other question's return: `variance_of`. Test excursions do not test it.

    Raises:
        ValueError: If `name` is not a string.

    Source: Sherstan, Ashley, Bennett, Young, White, White & Sutton (2018), Comparing direct and
        indirect temporal-difference methods for estimating the variance of the return: "direct".

    Examples:
        >>> TDError("light ahead")
        TDError(name='light ahead')
    """

    name: str

    def __post_init__(self) -> None:
        if not isinstance(self.name, str):
            raise ValueError(f"name of the question must be a string, not {self.name!r}")


Cumulant = Channel | Feature | Prediction | Reward | TDError | StateFunction | float
_CUMULANTS = (Channel, Feature, Prediction, Reward, TDError)


@dataclass(frozen=True, slots=True)
class GVF:
    """A question: what happens if the robot follows a policy, over a time scale.

    Args:
        name: Unique within a Horde, such as "forward/g0.8/light_0".
        target_policy: The policy that the question is about; `Greedy(n_actions)` for one that its
            demon finds.
        cumulant: The signal that is summed: Channel, Feature, Prediction, Reward, TDError, a number,
            or a function of (observation, tiles).
        continuation: gamma, the probability of continuing: a number in [0, 1), or a function of
            (observation, tiles).
        outcome: z, received at termination: a number, a Feature, or a function of (observation,
            tiles).
        lam: Trace decay lambda: a number in [0, 1], or a function of (observation, tiles).
        ends: True if the stream itself ends, which allows a constant continuation of 1.
        tested: False if no test excursion should follow the target policy, for example with
            thousands of policies.
        interest: Interest i(s) >= 0 of a state in an accurate answer, for algorithm "etd": a
            number, or a function of (observation, tiles).
        algorithm: Update rule of its demon, such as "td" or "tdrc:beta=0.5"; None is that of the
            Horde.
        offset: What its demon adds to theta.phi, a number, "mean" or "reading", as in
            `LearnerConfig`; None is that of the Horde, 0 with a TDError as cumulant: the first errors are not typical.
        family: Name of the family of questions to which it belongs, such as "nexting"; for tables.
        policy_name: What tables and reports call the target policy; "" for a name by its kind.

    Raises:
        ValueError: If an argument is invalid; the message names the question and the argument.

    Its answer is the expected return G_t = C_{t+1} + (1 - gamma_{t+1}) z_{t+1} + gamma_{t+1}
    G_{t+1} under the policy.

    Source: Sutton et al. (2011), Horde, section 3; White, Modayil & Sutton (2012),
        https://arxiv.org/abs/1206.6262.

    Examples:
        >>> from horde_agent import ConstantAction
        >>> question = GVF("light ahead", ConstantAction(0, n_actions=5), Channel("light_0"), continuation=0.8)
        >>> question.lam, question.outcome
        (0.9, 0.0)
    """

    name: str
    target_policy: Policy
    cumulant: Cumulant
    continuation: float | StateFunction
    outcome: float | StateFunction = 0.0
    lam: float | StateFunction = 0.9
    ends: bool = False
    tested: bool = True
    interest: float | StateFunction = 1.0
    algorithm: str | None = None
    offset: float | AutomaticOffset | None = None
    # Labels: without them it is the same question
    family: str = field(default="", compare=False)
    policy_name: str = field(default="", compare=False)

    def __post_init__(self) -> None:
        if not isinstance(self.name, str):
            raise ValueError(f"name of a question must be a string, not {self.name!r}")
        cumulant = self.cumulant
        z = self.outcome
        if isinstance(self.target_policy, Greedy) and not self.target_policy.of:
            object.__setattr__(self, "target_policy", replace(self.target_policy, of=self.name))
        if not is_policy(self.target_policy):
            raise self._refused(
                f"target_policy must give probabilities(observation, tiles) and n_actions, not {self.target_policy!r}"
            )
        is_number = _is_number(cumulant)
        if not isinstance(cumulant, _CUMULANTS) and not _is_function(cumulant) and not is_number:
            raise self._refused(
                "cumulant must be a Channel, a Feature, a Prediction, Reward(), a TDError, a number or a "
                f"function of (observation, tiles), not {cumulant!r}"
            )
        if is_number:
            constant = self._number("cumulant", cumulant)
            if not math.isfinite(constant):
                raise self._refused(f"cumulant must be finite, not {cumulant!r}")
            object.__setattr__(self, "cumulant", constant)
        if isinstance(cumulant, TDError):
            object.__setattr__(self, "tested", False)
            if self.offset is None:
                object.__setattr__(self, "offset", 0.0)
            if self.offset in (MEAN, READING):
                raise self._refused("the offset of a question about a TD error must be a number")
        for argument in ("continuation", "lam"):
            value = getattr(self, argument)
            if not _is_function(value) and not 0.0 <= self._number(argument, value) <= 1.0:
                raise self._refused(f"{argument} must be in [0, 1], not {value!r}")
        if not callable(self.continuation) and self.continuation == 1.0 and not self.ends:
            raise self._refused(
                "a continuation of 1 never ends; use one below 1, or ends=True if the stream ends"
            )
        if not _is_function(z) and not math.isfinite(self._number("outcome", z)):
            raise self._refused(f"outcome must be finite, not {z!r}")
        if not isinstance(self.algorithm, str | None):
            raise self._refused(
                f"algorithm must be the name of an update rule, not {self.algorithm!r}"
            )
        if self.offset not in (None, MEAN, READING) and not math.isfinite(
            self._number("offset", self.offset)
        ):
            raise self._refused(
                f"offset must be finite, {MEAN!r} or {READING!r}, not {self.offset!r}"
            )
        i = self.interest
        if not _is_function(i) and not 0.0 <= self._number("interest", i) < math.inf:
            raise self._refused(f"interest must be finite and at least 0, not {i!r}")

    @property
    def finds_policy(self) -> bool:
        """True for a control question: its target policy is greedy in its own action values."""
        return isinstance(self.target_policy, Greedy) and self.target_policy.of == self.name

    def _number(self, argument: str, value: Any) -> float:
        try:
            return real_number(argument, value)
        except ValueError as error:
            raise self._refused(str(error)) from None

    def _refused(self, why: str) -> ValueError:
        return ValueError(f"question {self.name!r}: {why}")


def variance_of(question: GVF, name: str = "") -> GVF:
    """Return the question about the variance of a question's return.

    Args:
        question: A question whose continuation is a number.
        name: Name of the new question; by default the other's name with "/variance".

    Raises:
        ValueError: If the continuation is a function.

    Examples:
        >>> from horde_agent import Behaviour
        >>> question = variance_of(GVF("light", Behaviour(), Channel(0), continuation=0.8))
        >>> question.name, question.cumulant, round(question.continuation, 2)
        ('light/variance', TDError(name='light'), 0.64)
    """
    gamma = question.continuation
    if callable(gamma):
        raise ValueError(
            f"the continuation of {question.name!r} must be a number for its variance, not a function"
        )
    return replace(
        question,
        name=name or f"{question.name}/variance",
        cumulant=TDError(question.name),
        continuation=gamma**2,
        outcome=0.0,
        offset=None,
    )


def _is_function(value: object) -> bool:
    return callable(value) and not isinstance(value, type)  # a class is probably a mistake


def _is_number(value: object) -> bool:
    return isinstance(value, numbers.Real) and not isinstance(value, bool)


def named(questions: Iterable[GVF], channels: Sequence[str]) -> tuple[GVF, ...]:
    """Return the questions with names of channels replaced by indices.

    Args:
        questions: The questions.
        channels: Names of the observation's channels, in order; empty if unknown.

    Raises:
        ValueError: If one of them is not a GVF, or its channel is unknown.
    """
    if isinstance(questions, GVF) or not isinstance(questions, Iterable):
        raise ValueError(f"questions must be a list of GVFs, not {questions!r}")
    index = {name: i for i, name in enumerate(channels)}
    resolved = []
    for number, question in enumerate(questions):
        if not isinstance(question, GVF):
            raise ValueError(f"questions must be GVFs; number {number} is {question!r}")
        match question.cumulant:
            case Channel(str(name)) if name in index:
                question = replace(question, cumulant=Channel(index[name]))
            case Channel(str(name)) if index:
                raise ValueError(
                    f"question {question.name!r}: unknown channel {name!r}; there are {', '.join(index)}"
                )
            case Channel(str(name)):
                raise ValueError(
                    f"question {question.name!r}: the names of the channels are unknown; pass channels=interface.names "
                    f"with the questions, or use Channel(interface.index({name!r}))"
                )
        resolved.append(question)
    return tuple(resolved)
