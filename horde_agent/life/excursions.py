"""Test excursions: suspend learning, follow one target policy, compare what then happened with what was predicted.

    behave ──(1/50 per step)──► excursion ──(50 steps, or a gap)──► centre ──► behave

Any policy can be followed: its actions are drawn from its own probabilities. Learning is suspended meanwhile, so that
the b of an excursion's steps, which is pi itself, enters no importance sampling ratio; it is recorded as it was.

Source: White, Modayil & Sutton (2012), section 4. The paper's return has 51 terms (k = 0..50) while its excursion of
5 s has 50 steps; here the horizon is a parameter, 50 by default: every term is measured under the target policy.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple
from zlib import crc32

import numpy as np
from numpy.typing import NDArray

from horde_agent.gvf import GVF, Channel, Feature, Prediction
from horde_agent.learning.signals import identity
from horde_agent.policies import (
    Behaviour,
    BehaviourPolicy,
    ConstantAction,
    Policy,
    draw_from,
    real_number,
    whole_number,
)
from horde_agent.record import NO_ACTION, NO_POLICY, Phase
from horde_agent.saving import State, attributes, put_back

Floats = NDArray[np.float64]
Indices = NDArray[np.int64]
Tiles = NDArray[np.int64]
PredictOne = Callable[[str, Tiles], float]

NO_CHANNEL = -1
_TEST_STATE = ("step", "demons", "predictions", "returns", "n_terms", "_discount", "_channel", "_gamma")

__all__ = ["BehaviourPolicy", "Choice", "ExcursionConfig", "Excursions", "PolicyUnderTest", "TestExcursion"]


@dataclass(frozen=True)
class ExcursionConfig:
    """When an excursion begins and how long it lasts.

    Attributes:
        probability: Probability of an interruption before each behaviour action, in [0, 1].
        horizon: Steps of an excursion, and terms of the truncated return.

    Raises:
        ValueError: If the probability is no number in [0, 1], or the horizon no whole number of at least 1.
    """

    probability: float = 1 / 50
    horizon: int = 50

    def __post_init__(self) -> None:
        if not 0.0 <= real_number("excursion probability", self.probability) <= 1.0:
            raise ValueError(f"excursion probability must be in [0, 1], got {self.probability}")
        whole_number("excursion horizon", self.horizon, 1)


class Choice(NamedTuple):
    """What to do from an observation.

    Attributes:
        phase: Of the life.
        action: The discrete action, NO_ACTION for a drive.
        b: Probability with which it was drawn.
        policy: Tag of the policy that an excursion follows, NO_POLICY elsewhere.
    """

    phase: Phase
    action: int
    b: float
    policy: int = NO_POLICY


class PolicyUnderTest(NamedTuple):
    """A target policy that excursions follow, and the demons that they test.

    Attributes:
        action: The policy's only action, or NO_ACTION.
        demons: Their positions in the Horde, shape (n,).
        channel: The observation channel that is each one's cumulant, shape (n,); NO_CHANNEL where its return is not
            the discounted sum of one channel's readings.
        gamma: Their constant continuations, shape (n,); NaN beside NO_CHANNEL.
        name: What records call the policy.
        target: The policy; None where it was read from a record.
        others: Those beside NO_CHANNEL: their places in `demons`, and their questions.
    """

    action: int
    demons: Indices
    channel: Indices
    gamma: Floats
    name: str = ""
    target: Policy | None = None
    others: tuple[tuple[int, GVF], ...] = ()

    @property
    def tag(self) -> int:
        """The CRC-32 of the name, by which a recorded step tells which policy was followed."""
        return crc32(self.name.encode())

    def label(self, actions: Sequence[str]) -> str:
        """Return what tables and pictures call the policy: its only action, or its name."""
        return self.name if self.action == NO_ACTION else actions[self.action]

    def draw(self, rng: np.random.Generator, observation: Floats, tiles: Tiles) -> tuple[int, float]:
        """Return an action of the policy, and the probability with which it was drawn.

        Raises:
            ValueError: If the policy gives no probabilities.
        """
        if self.action != NO_ACTION:
            return self.action, 1.0
        assert self.target is not None, "a policy that was read from a record cannot be followed"
        return draw_from(self.target.probabilities(observation, tiles), rng)


class Excursions:
    """The state machine behave, excursion, centre.

    Args:
        policies: The policies that are tested; none where there is nothing to test. May be changed at any time.
        config: When an excursion begins and how long it lasts.

    Attributes:
        phase: What is being done.
    """

    def __init__(self, policies: Sequence[PolicyUnderTest], config: ExcursionConfig | None = None) -> None:
        self.policies = list(policies)
        self.config = config or ExcursionConfig()
        self.phase = Phase.BEHAVE
        self._followed: PolicyUnderTest | None = None
        self._n_taken = 0

    def choose(
        self,
        behaviour: BehaviourPolicy,
        rng: np.random.Generator,
        observation: Floats,
        tiles: Tiles,
        *,
        broken: bool,
        is_unfit: bool = False,
    ) -> Choice:
        """Choose what to do from an observation.

        Args:
            behaviour: The behaviour policy.
            rng: Source of the interruption, of the tested policy and of the action, in this order.
            observation: In the environment's own units, float64, shape (n_inputs,).
            tiles: Its active features, shape (n_active,).
            broken: True where the observation does not follow from the one before, or the body did not do as asked:
                an excursion ends at once, and the next behaviour action is a fresh draw.
            is_unfit: True where the body is out of reach or does not obey: no excursion begins, for it would be
                discarded. The draws are the same.

        Returns:
            The choice; phase CENTRE asks for the drive back to the centre, after which `choose` is called again.
        """
        if self._followed is not None:
            if self.is_over(broken=broken):
                self.phase, self._followed = Phase.CENTRE, None
                return Choice(Phase.CENTRE, NO_ACTION, np.nan)
            return self._follow(self._followed, rng, observation, tiles)
        self.phase = Phase.BEHAVE
        if broken:
            behaviour.forget()
        if self.policies and rng.random() < self.config.probability and not is_unfit:
            self.phase, self._n_taken = Phase.EXCURSION, 0
            self._followed = self.policies[int(rng.integers(len(self.policies)))]
            return self._follow(self._followed, rng, observation, tiles)
        return Choice(Phase.BEHAVE, *behaviour.draw(rng, observation, tiles))

    def is_over(self, *, broken: bool) -> bool:
        """Whether an excursion that is under way ends now, by a drive back to the centre."""
        return self._followed is not None and (broken or self._n_taken == self.config.horizon)

    def _follow(self, policy: PolicyUnderTest, rng: np.random.Generator, observation: Floats, tiles: Tiles) -> Choice:
        self._n_taken += 1
        return Choice(Phase.EXCURSION, *policy.draw(rng, observation, tiles), policy.tag)

    def state(self) -> State:
        """Return where the machine stands."""
        followed = "" if self._followed is None else self._followed.name
        return attributes(self, "_n_taken") | {"phase": np.array(int(self.phase)), "followed": np.array(followed)}

    def restore(self, state: State) -> None:
        """Go on from what `state` returned, with the same policies."""
        put_back(self, state, "_n_taken")
        self.phase = Phase(int(state["phase"]))
        by_name = {policy.name: policy for policy in self.policies}
        self._followed = by_name[str(state["followed"])] if str(state["followed"]) else None

    def cancel(self) -> None:
        """Go back to behaving: the environment was reset, so there is nowhere to drive back from."""
        self.phase, self._followed = Phase.BEHAVE, None


# ---- what is tested --------------------------------------------------------------------------------------------------


def policies_under_test(questions: Sequence[GVF], names: Mapping[Hashable, str] | None = None) -> list[PolicyUnderTest]:
    """Return the target policies of the questions, in order of appearance, with the demons that can be tested by each.

    All but the behaviour itself (it is followed anyway), and questions that are not to be tested (`GVF.tested`).

    Args:
        questions: Of the Horde, in its order; channels by their places.
        names: Names that policies had before, by identity; they keep them.
    """
    by_policy: dict[Hashable, list[int]] = {}
    for i, question in enumerate(questions):
        if question.tested and not isinstance(question.target_policy, Behaviour):
            by_policy.setdefault(identity(question.target_policy), []).append(i)
    found: list[PolicyUnderTest] = []
    taken = set((names or {}).values())
    for key, demons in by_policy.items():
        asked = [questions[i] for i in demons]
        name = (names or {}).get(key) or _new_name(asked, taken)
        taken.add(name)
        found.append(_under_test(name, demons, asked))
    return found


def _under_test(name: str, demons: Sequence[int], asked: Sequence[GVF]) -> PolicyUnderTest:
    """Return one policy with the questions asked about it."""
    target = asked[0].target_policy
    is_plain = [_is_plain(question) for question in asked]
    return PolicyUnderTest(
        target.action if isinstance(target, ConstantAction) else NO_ACTION,
        np.array(demons, dtype=np.int64),
        np.array([q.cumulant.index if p else NO_CHANNEL for q, p in zip(asked, is_plain, strict=True)], np.int64),  # type: ignore[union-attr]
        np.array([q.continuation if p else np.nan for q, p in zip(asked, is_plain, strict=True)], np.float64),
        name,
        target,
        tuple((k, q) for k, (q, p) in enumerate(zip(asked, is_plain, strict=True)) if not p),
    )


def _is_plain(question: GVF) -> bool:
    """Return whether the return is the discounted sum of a channel: a constant continuation and no outcome."""
    z = question.outcome
    return isinstance(question.cumulant, Channel) and not callable(question.continuation) and not callable(z) and z == 0


def name_of_action(action: int) -> str:
    """Return the name of the policy that always takes an action."""
    return f"action {action}"


def _new_name(asked: Sequence[GVF], taken: set[str]) -> str:
    """Return a name for a policy: its action, else what its questions' names begin with, else that of its class."""
    target = asked[0].target_policy
    first, slash, _ = asked[0].name.partition("/")
    if isinstance(target, ConstantAction):
        return name_of_action(target.action)
    is_family = slash and all(q.name.startswith(first + slash) for q in asked)
    name = first if is_family else type(target).__name__
    unique, n = name, 1
    while unique in taken:
        n += 1
        unique = f"{name} {n}"
    return unique


# ---- the return ------------------------------------------------------------------------------------------------------


class TestExcursion:
    """One excursion: the predictions at its first observation, and the return as it comes in.

    Args:
        policy: The policy followed, with its demons.
        predictions: Predictions of all demons of the Horde at the first observation; copied. Shape (n_demons,).
        step: Step at which the excursion began.
        horizon: Terms of the return.

    Attributes:
        demons: Positions in the Horde of those tested, shape (n,).
        predictions: Of the tested demons, float64, shape (n,).
        returns: sum_{k < n_terms} (product of gammas) (c_{t+k+1} + (1 - gamma_{t+k+1}) z_{t+k+1}), in the units of the
            cumulants, shape (n,). NaN where a question's function gave no number, or a continuation outside [0, 1].
        n_terms: Terms so far.
    """

    __test__ = False

    def __init__(self, policy: PolicyUnderTest, predictions: NDArray[np.floating], step: int, horizon: int) -> None:
        self.policy, self.step, self.horizon = policy, step, horizon
        self.demons = policy.demons
        self.predictions = predictions[policy.demons].astype(np.float64)
        self.returns = np.zeros(len(policy.demons))
        self.n_terms = 0
        self._discount = np.ones(len(policy.demons))
        self._channel, self._gamma, self._others = policy.channel, policy.gamma, policy.others

    def observe(
        self,
        observation: NDArray[Any],
        tiles: Tiles | None = None,
        predict_one: PredictOne | None = None,
        *,
        terminated: bool = False,
    ) -> None:
        """Add the term of the next observation.

        Args:
            observation: What was reached, in the environment's own units, shape (n_inputs,).
            tiles: Its active features, for questions that are not plain sums of channels.
            predict_one: Gives another demon's prediction there, by its name, for questions about predictions.
            terminated: True where the stream ended there: no further term can come.
        """
        terms, gamma = observation[self._channel], self._gamma
        if self._others:
            terms, gamma = terms.astype(np.float64), gamma.copy()
            for k, question in self._others:
                gamma[k] = 0.0 if terminated else _gamma_of(question, observation, tiles)
                z = _outcome_of(question, observation, tiles)
                terms[k] = _cumulant_of(question, observation, tiles, predict_one) + (1.0 - gamma[k]) * z
        self.returns += self._discount * terms
        self._discount *= gamma
        self.n_terms = self.horizon if terminated else self.n_terms + 1

    def state(self) -> State:
        """Return what was predicted and what came in so far."""
        return attributes(self, *_TEST_STATE) | {"policy": np.array(self.policy.name)}

    @classmethod
    def restored(
        cls, state: State, policies: Sequence[PolicyUnderTest], questions: Sequence[GVF], horizon: int
    ) -> TestExcursion:
        """Return the excursion that `state` told of.

        Args:
            state: What `state` returned.
            policies: Those under test.
            questions: Of the Horde, in its order.
            horizon: Terms of the return.
        """
        policy = next(policy for policy in policies if policy.name == str(state["policy"]))
        test = cls(policy, np.zeros(len(questions)), 0, horizon)
        put_back(test, state, *_TEST_STATE)
        others = np.flatnonzero(test._channel == NO_CHANNEL).tolist()
        test._others = tuple((k, questions[test.demons[k]]) for k in others)
        return test

    @property
    def is_complete(self) -> bool:
        """True once every term was seen."""
        return self.n_terms == self.horizon

    def rearrange(self, place: Indices) -> None:
        """Go on where demons came or went; those that are gone are not tested any more.

        Args:
            place: Where each former demon of the Horde is now, -1 where it is gone.
        """
        stays = np.flatnonzero(place[self.demons] >= 0)
        self.demons, self.predictions = place[self.demons[stays]], self.predictions[stays]
        self.returns, self._discount = self.returns[stays], self._discount[stays]
        self._channel, self._gamma = self._channel[stays], self._gamma[stays]
        now = {int(k): i for i, k in enumerate(stays)}
        self._others = tuple((now[k], question) for k, question in self._others if k in now)


def _gamma_of(question: GVF, observation: NDArray[Any], tiles: Any) -> float:
    """Return a question's continuation in a state, NaN where its function gives none."""
    gamma = question.continuation
    value = float(gamma(observation, tiles)) if callable(gamma) else gamma
    return value if 0.0 <= value <= 1.0 else np.nan


def _outcome_of(question: GVF, observation: NDArray[Any], tiles: Any) -> float:
    """Return what a question pays on ending in a state."""
    z = question.outcome
    return float(z(observation, tiles)) if callable(z) else z


def _cumulant_of(question: GVF, observation: NDArray[Any], tiles: Any, predict_one: PredictOne | None) -> float:
    """Return a question's cumulant on reaching a state."""
    match question.cumulant:
        case Channel(int(index)):
            return float(observation[index])
        case Feature(index):
            return float(np.count_nonzero(tiles == index))
        case Prediction(name):
            assert predict_one is not None, "a question about a prediction needs one"
            return predict_one(name, tiles)
        case Channel(name):
            raise ValueError(f"question {question.name!r}: nobody told which channel is {name!r}")
    return float(question.cumulant(observation, tiles))  # a function
