"""Measured returns, and the target policies under test with the demons they test.

    G_t = g_t + share_t G_{t+n},    g_t = sum_{k < n} (gamma_{t+1} ... gamma_{t+k}) c_{t+k+1},
                                    share_t = gamma_{t+1} ... gamma_{t+n}

The n terms of g are measured. The rest is not, so a predictor v fills it in itself: its error is
v_t - g_t - share_t v_{t+n}. A constant added to the cumulants adds the same to v_t as to the
others, and a prediction that fulfils its Bellman equation along the way has no error. Variances
take the mean return for the rest (`nmsre`). A question is scored if at most 5 % of its return
lie beyond the measured terms.

`TestExcursion` adds the terms up one by one; `returns_along` computes returns for every row of a
recorded stream, backwards. A question with an outcome z adds (1 - gamma) z to c, and gamma may be a
function of the state; after a terminal state nothing follows, and the share is 0.

Policies other than the behaviour are tested by excursions, the behaviour itself while it acts and
learns: every `horizon` learning steps the predictions are stored, and the return over the following
steps is measured.

Source: White, Modayil & Sutton (2012), section 4. The paper's return has 51 terms (k = 0..50) while
its excursion of 5 s has 50 steps; here the horizon is a parameter, 50 by default: every term is
measured under the target policy.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Hashable, Mapping, Sequence
from itertools import count
from typing import Any, NamedTuple
from zlib import crc32

import numpy as np
from numpy.typing import NDArray

from horde_agent.gvf import GVF, Channel, Prediction, Reward, TDError, value_at
from horde_agent.learning.values import identity
from horde_agent.policies import Among, Behaviour, ConstantAction, Policy, draw_from
from horde_agent.record import NO_ACTION
from horde_agent.saving import State, attributes, inner, nested, put_back
from horde_agent.types import Bools, Floats, Integers, Tiles

PredictOne = Callable[[str, NDArray[Any], Tiles], float]

NO_CHANNEL = -1
BEHAVIOUR = "behaviour"
"""Name of the behaviour itself among the tested policies."""

MOST_REPEATED = 0.05
"""Largest share of a return's weight that stale frames, which repeat a reading, may have."""

NEGLIGIBLE_SHARE = 0.05
"""Largest share of a return beyond the measured terms, in the mean, with which a question is scored."""

_OF_DEMONS = ("demons", "predictions", "_channel", "_gamma")
_TEST_STATE = ("step", "n_terms", *_OF_DEMONS)
_SUMS = ("returns", "share", "remainder", "_weight", "_repeated_weight", "_first", "_last")


def n_terms_needed(gamma: float) -> float:
    """Return the number of terms beyond which at most 5 % of a return at `gamma` lie, at least 1; inf from 1 on.

    Examples:
        >>> n_terms_needed(0.0), n_terms_needed(0.8), n_terms_needed(0.99), n_terms_needed(1.0)
        (1, 14, 299, inf)
    """
    if gamma <= 0.0:
        return 1
    if gamma >= 1.0:
        return math.inf
    return max(1, math.ceil(math.log(NEGLIGIBLE_SHARE) / math.log(gamma)))


def horizon_needed(share: float, horizon: int) -> float:
    """Return the terms needed if `share` of a return lies beyond `horizon`, rounded up to two digits; inf for 1.

    Examples:
        >>> horizon_needed(0.99**50, 50), horizon_needed(0.95**50, 50), horizon_needed(1.0, 50)
        (300.0, 59, inf)
    """
    n = n_terms_needed(float(share ** (1.0 / horizon)))
    if n >= 100 and math.isfinite(n):
        unit = 10 ** (len(str(n)) - 2)
        return float(math.ceil(n / unit) * unit)
    return n


def persistent(readings: Floats, gamma: Floats | float) -> Floats:
    """Return what "the present reading lasts" predicts, x / (1 - gamma); NaN from gamma 1 on.

    Args:
        readings: x, shape (..., n).
        gamma: Constant continuations, a number or of shape (n,); NaN gives NaN.
    """
    termination = 1.0 - np.broadcast_to(gamma, readings.shape)
    unknown: Floats = np.full(readings.shape, np.nan)
    return np.divide(readings, termination, out=unknown, where=termination > 0.0)


def returns_along(
    cumulants: Floats,
    gamma: Floats | float,
    follows: Bools | None = None,
    last: Floats | float = 0.0,
) -> Floats:
    """Return the return from each row of a stream, (n_rows, ...), measured up to the next gap or the end.

    Args:
        cumulants: c_t on reaching each row, shape (n_rows, ...).
        gamma: Constant continuations, a number or of shape (...); or those on reaching each row,
            shape (n_rows, ...).
        follows: True if the next row follows, shape (n_rows,), or (n_rows, ...) if the reading of some is
            missing there; None if all but the last do.
        last: Return from each row that no row follows: a number, or of shape (...) or (n_rows, ...).
    """
    returns = np.array(np.broadcast_to(last, cumulants.shape), dtype=cumulants.dtype)
    gamma = np.broadcast_to(gamma, cumulants.shape)
    for t in range(len(cumulants) - 2, -1, -1):
        if follows is None or follows[t].all():
            returns[t] = cumulants[t + 1] + gamma[t + 1] * returns[t + 1]
        elif follows[t].any():
            measured = cumulants[t + 1] + gamma[t + 1] * returns[t + 1]
            returns[t] = np.where(follows[t], measured, returns[t])
    return returns


class MeasuredReturns(NamedTuple):
    """Returns of the rows of a stream, in parts that add up in the same way along the rows.

    Attributes:
        parts: The terms up to the next gap or the end, the share of the return beyond them, and what
            each predictor says of the return beyond, shape (n_rows, 2 + n_predictors, ...).
    """

    parts: Floats

    @property
    def terms(self) -> Floats:
        """The measured terms, shape (n_rows, ...)."""
        return self.parts[:, 0]

    @property
    def share(self) -> Floats:
        """Share of the return beyond them, shape (n_rows, ...)."""
        return self.parts[:, 1]

    def beyond(self, predictor: int) -> Floats:
        """Return what a predictor, by its number, says of the return beyond, shape (n_rows, ...)."""
        return self.parts[:, 2 + predictor]


def are_read_next(follows: Bools, readings: Floats) -> Bools:
    """Return which rows are followed by one with a reading, shape (n_rows, n): a return ends before a missing one.

    Args:
        follows: Which rows a next row follows, shape (n_rows,).
        readings: NaN where one is missing, shape (n_rows, n).
    """
    is_read = np.isfinite(readings)
    are_read = np.zeros_like(is_read)
    are_read[:-1] = is_read[1:]
    return np.asarray(follows[:, None] & are_read)


def unmeasured(is_terminal: Bools, *predictions: Floats) -> MeasuredReturns:
    """Return the returns of rows that no row follows: no terms, and all of the return beyond, unless it is terminal.

    Args:
        is_terminal: Whether nothing follows the state of each row, shape (n_rows,).
        predictions: Of each predictor in each row, shape (n_rows, ...).
    """
    nothing = np.zeros_like(predictions[0])
    parts = np.stack([nothing, nothing + 1.0, *predictions], axis=1)
    parts[is_terminal] = 0.0
    return MeasuredReturns(parts)


def measured_along(
    cumulants: Floats, gamma: Floats | float, follows: Bools, ends: MeasuredReturns
) -> MeasuredReturns:
    """Return the returns of the rows of a stream, measured up to the next gap or the end.

    Args:
        cumulants: c_t on reaching each row, shape (n_rows, ...).
        gamma: Constant continuations, a number or of shape (...).
        follows: As in `returns_along`, shape (n_rows,).
        ends: The returns of rows that no row follows, as of `unmeasured`.
    """
    of_parts = np.zeros_like(ends.parts)
    of_parts[:, 0] = cumulants
    return MeasuredReturns(returns_along(of_parts, gamma, follows, ends.parts))


# ---- policies under test ---------------------------------------------------------------------------------------------


class PolicyUnderTest(NamedTuple):
    """A target policy that excursions follow, and the demons that they test.

    Attributes:
        action: The policy's only action, or NO_ACTION.
        demons: Their positions in the Horde, shape (n,).
        channel: The observation channel that is each one's cumulant, shape (n,); NO_CHANNEL where
            its return is not the discounted sum of one channel's readings.
        gamma: Their constant continuations, shape (n,); NaN for NO_CHANNEL.
        name: What records call the policy.
        target: The policy; None if it was read from a file.
        others: Those with NO_CHANNEL: their indices in `demons`, and their questions.
    """

    action: int
    demons: Integers
    channel: Integers
    gamma: Floats
    name: str = ""
    target: Policy | None = None
    others: tuple[tuple[int, GVF], ...] = ()

    @property
    def is_behaviour(self) -> bool:
        """True for the behaviour itself: it is tested while the agent acts and learns, without excursions."""
        return self.name == BEHAVIOUR

    def may_take(self, actions: Collection[int]) -> bool:
        """Return whether it may take one of these actions."""
        target = self.target
        if isinstance(target, ConstantAction):
            return target.action in actions
        n_chosen = math.inf
        if isinstance(target, Among):
            n_chosen = target.policy.n_actions
        return any(action < n_chosen for action in actions)

    @property
    def tag(self) -> int:
        """The CRC-32 of the name, which identifies the policy in recorded steps."""
        return crc32(self.name.encode())

    def label(self, actions: Sequence[str]) -> str:
        """Return what tables and pictures call the policy: its only action, or its name."""
        if self.action == NO_ACTION:
            return self.name
        return actions[self.action]

    def draw(
        self, rng: np.random.Generator, observation: Floats, tiles: Tiles
    ) -> tuple[int, float]:
        """Return an action of the policy, and the probability with which it was drawn.

        The observation is in the environment's own units, shape (n_channels,); `tiles` are its
        features, (n_active,).
        """
        if self.action != NO_ACTION:
            return self.action, 1.0
        assert self.target is not None, "a policy that was read from a record cannot be followed"
        return draw_from(self.target.probabilities(observation, tiles), rng)


def policies_under_test(
    questions: Sequence[GVF], names: Mapping[Hashable, str] | None = None
) -> list[PolicyUnderTest]:
    """Return the target policies of the questions, in order of appearance, with the demons that can be tested by each.

    All but the behaviour itself, and questions that are not to be tested (`GVF.tested`). Policies
    keep the `names` that they had before, by identity.
    """
    by_policy: dict[Hashable, list[int]] = {}
    for i, question in enumerate(questions):
        if question.tested and not isinstance(question.target_policy, Behaviour):
            by_policy.setdefault(identity(question.target_policy), []).append(i)
    found: list[PolicyUnderTest] = []
    used_names = {BEHAVIOUR, *(names or {}).values()}
    for key, demons in by_policy.items():
        policy_questions = [questions[i] for i in demons]
        name = (names or {}).get(key) or _new_name(policy_questions, used_names)
        used_names.add(name)
        found.append(_policy_under_test(name, demons, policy_questions))
    return found


def behaviour_under_test(questions: Sequence[GVF]) -> list[PolicyUnderTest]:
    """Return the behaviour itself with the demons that on-policy returns test; an empty list if there are none.

    Left out are questions with `tested=False`, and those about another demon's prediction: that
    prediction would have to be computed at each step, which ends batches of deferred steps.
    """
    demons = [
        i
        for i, question in enumerate(questions)
        if question.tested
        and isinstance(question.target_policy, Behaviour)
        and not isinstance(question.cumulant, Prediction)
    ]
    if demons:
        return [_policy_under_test(BEHAVIOUR, demons, [questions[i] for i in demons])]
    return []


def _policy_under_test(
    name: str, demons: Sequence[int], questions: Sequence[GVF]
) -> PolicyUnderTest:
    """Return one policy with the questions about it."""
    target = questions[0].target_policy
    action = NO_ACTION
    if isinstance(target, ConstantAction):
        action = target.action
    channels = np.full(len(questions), NO_CHANNEL, dtype=np.int64)
    continuations: list[Any] = [np.nan] * len(questions)
    other_questions = []
    for index, question in enumerate(questions):
        if is_sum_of_channel(question) and isinstance(question.cumulant, Channel):
            channels[index] = question.cumulant.index
            continuations[index] = question.continuation
        else:
            other_questions.append((index, question))
    return PolicyUnderTest(
        action,
        np.array(demons, dtype=np.int64),
        channels,
        np.array(continuations, dtype=np.float64),
        name,
        target,
        tuple(other_questions),
    )


def is_sum_of_channel(question: GVF) -> bool:
    """Return whether a question's return is the discounted sum of a channel: constant continuation, no outcome."""
    z = question.outcome
    return (
        isinstance(question.cumulant, Channel)
        and not callable(question.continuation)
        and not callable(z)
        and z == 0
    )


def _new_name(questions: Sequence[GVF], used_names: set[str]) -> str:
    """Return a name for a policy, by which records identify it.

    Its action, else the one that its questions have for it. Without one: what the names of its
    questions begin with, if they agree, else its class.
    """
    target = questions[0].target_policy
    if isinstance(target, ConstantAction):
        return f"action {target.action}"
    first, slash, _ = questions[0].name.partition("/")
    name = questions[0].policy_name.partition("/")[0]
    if not name:
        name = type(target).__name__
        if slash and all(question.name.startswith(first + slash) for question in questions):
            name = first
    candidate = name
    for number in count(2):
        if candidate not in used_names:
            break
        candidate = f"{name} {number}"
    return candidate


# ---- one excursion's return ------------------------------------------------------------------------------------------


class TestExcursion:
    """One excursion: the predictions at its first observation, and the return as it comes in.

    A stale frame repeats the reading before, c_{t+k} instead of c_{t+k+1}, so its term is wrong by
    gamma^k |c_{t+k+1} - c_{t+k}|. The excursion continues, and at its end the questions are not
    tested for which such terms have more than `MOST_REPEATED` of the weight sum_k gamma^k of the
    return: at gamma 0 those whose first frame was stale, at .9 those with a stale frame among the
    first seven.

    Args:
        policy: The policy followed, with its demons.
        predictions: Of all demons of the Horde at the first observation, shape (n_demons,).
        step: Step at which the excursion began.
        horizon: Terms to measure.
        first: The first observation, in the environment's units, shape (n_inputs,); None if
            it is unknown, and with it what "the present reading lasts" predicts.

    Attributes:
        demons: Positions in the Horde of those tested, shape (n,).
        predictions: Of the tested demons, float64, shape (n,).
        returns: The terms measured so far, in the units of the cumulants, with c_{t+k+1} + (1 -
            gamma_{t+k+1}) z_{t+k+1} as its terms, shape (n,); NaN where a question's function gave
            no number, or a continuation outside [0, 1], and at the end where `is_repeated`.
        share: Share of each return beyond these terms, the product of the continuations, shape (n,).
        remainder: What the demons predict of the return beyond, share v_{t+n}, shape (n,); set by
            `complete`.
        n_terms: Terms so far.
    """

    __test__ = False

    def __init__(
        self,
        policy: PolicyUnderTest,
        predictions: NDArray[np.floating],
        step: int,
        horizon: int,
        first: NDArray[Any] | None = None,
    ) -> None:
        self.policy_name = policy.name
        self.step = step
        self.horizon = horizon
        self.demons = policy.demons.copy()
        self.predictions = predictions[policy.demons].astype(np.float64)
        self.n_terms = 0
        n = len(policy.demons)
        self.returns: Floats = np.zeros(n)
        self.share: Floats = np.ones(n)
        self.remainder: Floats = np.zeros(n)
        self._weight: Floats = np.zeros(n)  # sum of the shares over the terms
        self._repeated_weight: Floats = np.zeros(n)  # over the terms of stale frames
        self._channel = policy.channel.copy()
        self._gamma = policy.gamma.copy()
        self._others = policy.others
        self._first: Floats = np.full(n, np.nan)
        if first is not None:
            self._first = first[self._channel].astype(np.float64)
        self._last = self._first.copy()

    @property
    def persistence(self) -> Floats:
        """What "the present reading lasts" predicts of the measured terms, shape (n,); NaN for no sum of a channel."""
        return np.asarray(
            persistent(self._first, self._gamma) - self.share * persistent(self._last, self._gamma)
        )

    def complete(self, predictions: NDArray[np.floating]) -> None:
        """Set `remainder` by the predictions of all demons of the Horde at the newest observation, (n_demons,)."""
        last = predictions[self.demons].astype(np.float64)
        self.remainder = np.where(self.share == 0.0, 0.0, self.share * last)

    def observe(
        self,
        observation: NDArray[Any],
        tiles: Any = None,
        predict_one: PredictOne | None = None,
        *,
        terminated: bool = False,
        reward: float = np.nan,
        stale: bool = False,
    ) -> bool:
        """Add the term of the next observation, in the environment's units, (n_inputs,); return whether it is the last.

        Questions that are not plain sums of channels read its features, `tiles`, and `predict_one`,
        which returns another demon's prediction there by its name, or the `reward` of the step. If
        the stream `terminated` there, no further term can come. `stale` is whether the observation
        repeats the one before.
        """
        terms = observation[self._channel]
        self._last = terms.astype(np.float64)
        gamma = self._gamma
        if self._others:
            terms = terms.astype(np.float64)
            gamma = gamma.copy()
            for k, question in self._others:
                if terminated:
                    gamma[k] = 0.0
                else:
                    gamma[k] = value_at(question.continuation, observation, tiles)
                if not 0.0 <= gamma[k] <= 1.0:
                    gamma[k] = np.nan
                z = value_at(question.outcome, observation, tiles)
                cumulant = reward
                if not isinstance(question.cumulant, Reward):
                    cumulant = _cumulant_of(question, observation, tiles, predict_one)
                terms[k] = cumulant + (1.0 - gamma[k]) * z
        self.returns = self.returns + self.share * terms
        self._weight = self._weight + self.share
        if stale:
            self._repeated_weight = self._repeated_weight + self.share
        self.share = self.share * gamma
        if terminated:
            self.share = np.zeros_like(self.share)
            self.n_terms = self.horizon
        else:
            self.n_terms = self.n_terms + 1
        is_complete = self.n_terms == self.horizon
        if is_complete:
            self.returns = np.where(self.is_repeated, np.nan, self.returns)
        return is_complete

    @property
    def is_repeated(self) -> Bools:
        """Whether stale frames have more than `MOST_REPEATED` of the weight of each return so far, shape (n,)."""
        return np.asarray(self._repeated_weight > MOST_REPEATED * self._weight)

    def state(self) -> State:
        """Return the predictions and the return so far."""
        fields = attributes(self, *_TEST_STATE) | {"policy": np.array(self.policy_name)}
        return nested(test=fields, sums=attributes(self, *_SUMS))

    @classmethod
    def restored(
        cls,
        state: State,
        policies: Sequence[PolicyUnderTest],
        questions: Sequence[GVF],
        horizon: int,
    ) -> TestExcursion:
        """Return the excursion with a state, of these policies under test and the questions of the Horde."""
        fields = inner(state, "test")
        policy = next(policy for policy in policies if policy.name == str(fields["policy"]))
        test = cls(policy, np.zeros(len(questions)), 0, horizon)
        put_back(test, fields, *_TEST_STATE)
        put_back(test, inner(state, "sums"), *_SUMS)
        other_columns = np.flatnonzero(test._channel == NO_CHANNEL).tolist()
        test._others = tuple((k, questions[test.demons[k]]) for k in other_columns)
        return test

    def rearrange(self, place: Integers) -> None:
        """Continue after demons were added or removed; removed ones are no longer tested.

        `place` is the new position of each former demon of the Horde, -1 if it was removed, shape
        (n_before,).
        """
        stays = np.flatnonzero(place[self.demons] >= 0)
        for name in (*_OF_DEMONS, *_SUMS):
            setattr(self, name, getattr(self, name)[stays])
        self.demons = place[self.demons]
        new_index = {int(k): i for i, k in enumerate(stays)}
        self._others = tuple(
            (new_index[k], question) for k, question in self._others if k in new_index
        )


def _cumulant_of(
    question: GVF, observation: NDArray[Any], tiles: Any, predict_one: PredictOne | None
) -> float:
    match question.cumulant:
        case Channel(int(index)):
            return float(observation[index])
        case Prediction(name):
            assert predict_one is not None, "a question about a prediction needs one"
            return predict_one(name, observation, tiles)
        case TDError():
            raise ValueError(f"question {question.name!r} is about a TD error and is not tested")
        case Channel(name):
            raise ValueError(
                f"question {question.name!r}: the index of channel {name!r} is unknown; use Channel(index)"
            )
        case Reward():
            raise ValueError(f"question {question.name!r}: the reward is not in the observation")
    return value_at(question.cumulant, observation, tiles)
