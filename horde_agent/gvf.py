"""GVF: a question about the future, posed in the language of value functions. Nothing here is learned.

    V(s) = E_pi[ sum_k (product of gammas) (C_{t+k+1} + (1 - gamma_{t+k+1}) z_{t+k+1}) | S_t = s ]

Source: Sutton et al. (2011), Horde; White, Modayil & Sutton (2012), section 3.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Any

from numpy.typing import NDArray

from horde_agent.policies import Policy, is_policy, real_number, whole_number
from horde_agent.types import Tiles

StateFunction = Callable[[NDArray[Any], Tiles], float]


@dataclass(frozen=True, slots=True)
class Channel:
    """A cumulant: the reading of one channel of the observation, in the observation's own units.

    Args:
        index: Its place in the observation, or its name, such as "light_0": then a Horde must be told the names of the
            channels, `Horde(..., channels=interface.names)`.

    Raises:
        ValueError: If `index` is neither a name nor a whole number of at least 0.

    Example:
        >>> Channel("light_0"), Channel(41)
        (Channel(index='light_0'), Channel(index=41))
    """

    index: int | str

    def __post_init__(self) -> None:
        if not isinstance(self.index, str):
            object.__setattr__(self, "index", whole_number("index of a channel", self.index, 0))


@dataclass(frozen=True, slots=True)
class Feature:
    """A cumulant: 1 where a feature is active, else 0.

    Raises:
        ValueError: If `index` is not a whole number of at least 0.

    Example:
        >>> Feature(3)
        Feature(index=3)
    """

    index: int

    def __post_init__(self) -> None:
        object.__setattr__(self, "index", whole_number("index of a feature", self.index, 0))


@dataclass(frozen=True, slots=True)
class Prediction:
    """A cumulant: what another demon predicts at the state reached, theta_t.phi_{t+1}, before this step's update.

    Raises:
        ValueError: If `name` is no text.

    Source: Sutton & Tanner (2005), TD networks: compositional predictions.

    Example:
        >>> from horde_agent import Uniform
        >>> GVF("what light ahead will be", Uniform(2), Prediction("light ahead"), continuation=0.8).cumulant
        Prediction(name='light ahead')
    """

    name: str

    def __post_init__(self) -> None:
        if not isinstance(self.name, str):
            raise ValueError(f"name of the question predicted must be a text, not {self.name!r}")


Cumulant = Channel | Feature | Prediction | StateFunction
_CUMULANTS = (Channel, Feature, Prediction)


@dataclass(frozen=True, slots=True)
class GVF:
    """A question: what happens if the robot follows a policy, over a time scale.

    Args:
        name: Unique within a Horde, such as "forward/g0.8/light_0".
        target_policy: The policy asked about.
        cumulant: The signal that is summed: Channel, Feature, Prediction, or a function of (observation, tiles).
        continuation: gamma, the probability of going on: a number in [0, 1), or a function of (observation, tiles).
        outcome: z, collected on stopping: a number or a function of (observation, tiles).
        lam: Trace decay lambda: a number in [0, 1], or a function of (observation, tiles).
        ends: True where the stream itself ends, which allows a constant continuation of 1.
        tested: False where no test excursion is to follow the target policy, as for policies by the thousand.

    Raises:
        ValueError: If an argument is not what it must be; the message names the question and the argument.

    Its answer is the expected return G_t = C_{t+1} + (1 - gamma_{t+1}) z_{t+1} + gamma_{t+1} G_{t+1} under the policy.

    Source: Sutton et al. (2011), Horde, section 3; White, Modayil & Sutton (2012), https://arxiv.org/abs/1206.6262.

    Example:
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

    def __post_init__(self) -> None:
        if not isinstance(self.name, str):
            raise ValueError(f"name of a question must be a text, not {self.name!r}")
        cumulant, z = self.cumulant, self.outcome
        if not is_policy(self.target_policy):
            raise self._refused(
                f"target_policy must give probabilities(observation, tiles) and n_actions, not {self.target_policy!r}"
            )
        if not isinstance(cumulant, _CUMULANTS) and not _is_function(cumulant):
            raise self._refused(
                f"cumulant must be a Channel, a Feature, a Prediction or a function of (observation, tiles), not "
                f"{cumulant!r}"
            )
        for argument in ("continuation", "lam"):
            value = getattr(self, argument)
            if not _is_function(value) and not 0.0 <= self._number(argument, value) <= 1.0:
                raise self._refused(f"{argument} must be in [0, 1], not {value!r}")
        if not callable(self.continuation) and self.continuation == 1.0 and not self.ends:
            raise self._refused(
                "a continuation of 1 sums for ever; use one below 1, or ends=True where the stream ends"
            )
        if not _is_function(z) and not math.isfinite(self._number("outcome", z)):
            raise self._refused(f"outcome must be finite, not {z!r}")

    def _number(self, argument: str, value: Any) -> float:
        """Return an argument that must be a number."""
        try:
            return real_number(argument, value)
        except ValueError as error:
            raise self._refused(str(error)) from None

    def _refused(self, why: str) -> ValueError:
        """Return the error that names the question."""
        return ValueError(f"question {self.name!r}: {why}")


def _is_function(value: object) -> bool:
    """Return whether a value may be called with (observation, tiles): a class is not meant."""
    return callable(value) and not isinstance(value, type)


def named(questions: Iterable[GVF], channels: Sequence[str]) -> tuple[GVF, ...]:
    """Return questions whose channels are places in the observation, also where a name was given.

    Args:
        questions: The questions.
        channels: Names of the observation's channels, in order; none where they are not known.

    Raises:
        ValueError: If one of them is no question, or names a channel that is not there.
    """
    if isinstance(questions, GVF) or not isinstance(questions, Iterable):
        raise ValueError(f"questions must be a list of GVFs, not {questions!r}")
    place = {name: i for i, name in enumerate(channels)}
    found = []
    for number, question in enumerate(questions):
        if not isinstance(question, GVF):
            raise ValueError(f"questions must be GVFs; number {number} is {question!r}")
        cumulant = question.cumulant
        if isinstance(cumulant, Channel) and isinstance(cumulant.index, str):
            question = replace(question, cumulant=Channel(_place(question.name, cumulant.index, place)))
        found.append(question)
    return tuple(found)


def _place(question: str, name: str, place: dict[str, int]) -> int:
    """Return where a channel is in the observation."""
    if not place:
        raise ValueError(
            f"question {question!r}: nobody told which channel is {name!r}; give channels=interface.names beside the "
            f"questions, or Channel(interface.index({name!r}))"
        )
    if name not in place:
        raise ValueError(f"question {question!r}: unknown channel {name!r}; there are {', '.join(place)}")
    return place[name]
