"""Test excursions: suspend learning, follow one target policy, compare what then happened with what was predicted.

    behave ──(1/50 per step)──► excursion ──(50 steps, or a gap)──► centre ──► behave

Source: White, Modayil & Sutton (2012), section 4. The paper's return has 51 terms (k = 0..50) while its excursion of
5 s has 50 steps; here the horizon is a parameter, 50 by default: every term is measured under the target policy.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple, Protocol

import numpy as np
from numpy.typing import NDArray

from horde_agent.gvf import GVF, Channel
from horde_agent.policies import ConstantAction
from horde_agent.record import NO_ACTION, Observation, Phase

Floats = NDArray[np.float64]
Indices = NDArray[np.int64]


@dataclass(frozen=True)
class ExcursionConfig:
    """When an excursion begins and how long it lasts.

    Attributes:
        probability: Probability of an interruption before each behaviour action, in [0, 1].
        horizon: Steps of an excursion, and terms of the truncated return.

    Raises:
        ValueError: If the probability is outside [0, 1] or the horizon below 1.
    """

    probability: float = 1 / 50
    horizon: int = 50

    def __post_init__(self) -> None:
        if not 0.0 <= self.probability <= 1.0:
            raise ValueError(f"excursion probability must be in [0, 1], got {self.probability}")
        if self.horizon < 1:
            raise ValueError(f"excursion horizon must be at least 1 step, got {self.horizon}")


class Choice(NamedTuple):
    """What to do from an observation: the phase, the action (NO_ACTION for a drive) and its probability."""

    phase: Phase
    action: int
    b: float


class BehaviourPolicy(Protocol):
    """A policy that acts, knows the probability of what it drew, and can forget its last action."""

    def draw(self, rng: np.random.Generator) -> tuple[int, float]:
        """Return an action and the probability with which it was drawn."""

    def forget(self) -> None:
        """Make the next draw independent of the last action."""


class Excursions:
    """The state machine behave, excursion, centre.

    Args:
        actions: Actions whose constant policies are tested; none where there is nothing to test.
        config: When an excursion begins and how long it lasts.

    Attributes:
        phase: What is being done.
    """

    def __init__(self, actions: Sequence[int], config: ExcursionConfig | None = None) -> None:
        self.actions = tuple(actions)
        self.config = config or ExcursionConfig()
        self.phase = Phase.BEHAVE
        self._action = NO_ACTION
        self._n_taken = 0

    def choose(
        self, behaviour: BehaviourPolicy, rng: np.random.Generator, *, broken: bool, is_unfit: bool = False
    ) -> Choice:
        """Choose what to do from an observation.

        Args:
            behaviour: The behaviour policy.
            rng: Source of the interruption, of the tested policy and of the behaviour's action, in this order.
            broken: True where the observation does not follow from the one before, or the body did not do as asked:
                an excursion ends at once, and the next behaviour action is a fresh draw.
            is_unfit: True where the body is out of reach or does not obey: no excursion begins, for it would be
                discarded. The draws are the same.

        Returns:
            The choice; phase CENTRE asks for the drive back to the centre, after which `choose` is called again.
        """
        if self.phase is Phase.EXCURSION:
            if broken or self._n_taken == self.config.horizon:
                self.phase = Phase.CENTRE
                return Choice(Phase.CENTRE, NO_ACTION, np.nan)
            self._n_taken += 1
            return Choice(Phase.EXCURSION, self._action, 1.0)
        self.phase = Phase.BEHAVE
        if broken:
            behaviour.forget()
        if self.actions and rng.random() < self.config.probability and not is_unfit:
            return self._begin(self.actions[int(rng.integers(len(self.actions)))])
        return Choice(Phase.BEHAVE, *behaviour.draw(rng))

    def _begin(self, action: int) -> Choice:
        self.phase, self._action, self._n_taken = Phase.EXCURSION, action, 1
        return Choice(Phase.EXCURSION, action, 1.0)

    def cancel(self) -> None:
        """Go back to behaving: the environment was reset, so there is nowhere to drive back from."""
        self.phase = Phase.BEHAVE


class PolicyUnderTest(NamedTuple):
    """The demons that an excursion under one constant action can test.

    Attributes:
        action: The policy's only action.
        demons: Their positions in the Horde, shape (n,).
        channel: The observation channel that is each one's cumulant, shape (n,).
        gamma: Their constant continuations, shape (n,).
    """

    action: int
    demons: Indices
    channel: Indices
    gamma: Floats


def policies_under_test(questions: Sequence[GVF]) -> list[PolicyUnderTest]:
    """Return the constant-action policies of the questions, in order of appearance, with the demons they can test.

    A question can be tested where the return is known from the observations alone: a constant action, a channel as its
    cumulant, a constant continuation, no outcome.
    """
    by_action: dict[int, list[tuple[int, int, float]]] = {}
    for i, question in enumerate(questions):
        policy, cumulant, gamma = question.target_policy, question.cumulant, question.continuation
        if not isinstance(policy, ConstantAction) or not isinstance(cumulant, Channel):
            continue
        if callable(gamma) or callable(question.outcome) or question.outcome != 0:
            continue
        by_action.setdefault(policy.action, []).append((i, cumulant.index, float(gamma)))
    return [
        PolicyUnderTest(
            action,
            np.array([i for i, _, _ in tests], dtype=np.int64),
            np.array([channel for _, channel, _ in tests], dtype=np.int64),
            np.array([gamma for _, _, gamma in tests]),
        )
        for action, tests in by_action.items()
    ]


class TestExcursion:
    """One excursion: the predictions at its first observation, and the return as it comes in.

    Args:
        policy: The policy followed, with its demons.
        predictions: Predictions of all demons of the Horde at the first observation; copied. Shape (n_demons,).
        step: Step at which the excursion began.
        horizon: Terms of the return.

    Attributes:
        predictions: Of the tested demons, float64, shape (n,).
        returns: sum_{k < n_terms} gamma^k r_{t+k+1}, in units of the scaled channels, shape (n,).
        n_terms: Terms so far.
    """

    __test__ = False

    def __init__(self, policy: PolicyUnderTest, predictions: NDArray[np.floating], step: int, horizon: int) -> None:
        self.policy, self.step, self.horizon = policy, step, horizon
        self.predictions = predictions[policy.demons].astype(np.float64)
        self.returns = np.zeros(len(policy.demons))
        self.n_terms = 0
        self._discount = np.ones(len(policy.demons))

    def observe(self, observation: Observation) -> None:
        """Add the term of the next observation, shape (n_inputs,), scaled."""
        self.returns += self._discount * observation[self.policy.channel]
        self._discount *= self.policy.gamma
        self.n_terms += 1

    @property
    def is_complete(self) -> bool:
        """True once every term was seen."""
        return self.n_terms == self.horizon
