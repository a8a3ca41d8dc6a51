"""Questions to numbers: what the demons are told of each transition, and whom it is a gap for.

Questions of one (policy, continuation, trace decay) form a group; what depends on those alone is computed once per
group. A function of the user's that returns nonsense yields NaN here, and the step is a gap for its demons.
"""

from __future__ import annotations

import math
import numbers
from collections.abc import Callable, Hashable, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from horde_agent.gvf import GVF, Channel, Feature, Prediction, StateFunction
from horde_agent.kernels import checks
from horde_agent.kernels.checks import Signals
from horde_agent.kernels.policies import LARGEST
from horde_agent.kernels.vectors import bind, hold
from horde_agent.learning.engine import most
from horde_agent.learning.gibbs import GibbsTable, largest_logit
from horde_agent.learning.layout import NEWCOMER
from horde_agent.learning.soundness import Soundness
from horde_agent.policies import Behaviour, ConstantAction, Gibbs, Policy
from horde_agent.saving import State, attributes, inner, nested, put_back
from horde_agent.types import Floats, Integers, Tiles

__all__ = ["SignalMaker", "Signals", "identity"]

Observation = NDArray[Any]

_FEW_POLICIES = 32  # Gibbs policies for which sums in float64, from scratch on each step, are quick enough
_CHECKED_EVERY = 64  # steps after which all that a policy gives is looked at, beside the action taken
_ROUNDING = 1e-4  # by which probabilities may miss 1, all added: those of a float32 softmax do by 1e-7
# Of `checks.SignalArrays`, what outlives a step.
_REMEMBERED = ("rho", "gamma", "lam", "c", "z", "top", "largest", "longest", "bound", "totals", "is_known")
_NO_TILES = np.zeros(0, dtype=np.int64)
_RAREST = 1e-30  # probability with which an action may have been drawn: 1 / it is a number in float32, too


class SignalMaker:
    """Makes what the demons of some questions are told, in arrays that stay from step to step.

    Args:
        questions: The questions.
        cohort: When each demon came, shape (n_demons,): those that did not come together share no trace.
        n_features, n_active: Of the states.
        dtype: The engine's type, which must hold what is told.
        real_valued: Whether a state's features are all their values, instead of the tiles that are active.

    Attributes:
        group: Of each demon, shape (n_demons,).
        policy: Of each group, shape (n_groups,).
        cumulant: Which of the cumulants that are told each demon sums, shape (n_demons,): its own, or a channel.
        signals: What was told last.
        bound: |theta| that no answer of a demon can need, shape (n_demons,).
        longest_decay: The largest product of a continuation and a trace decay that can come.

    Raises:
        ValueError: If two questions have one name, or they do not fit each other or the features.
    """

    def __init__(
        self,
        questions: Sequence[GVF],
        cohort: Integers,
        n_features: int,
        n_active: int,
        dtype: np.dtype[Any],
        *,
        real_valued: bool = False,
    ) -> None:
        _check_names(questions)
        if real_valued and any(isinstance(q.target_policy, Gibbs) for q in questions):
            raise ValueError(
                "a Gibbs policy is one over active tiles; for real-valued features write a policy of your own"
            )
        self.real_valued, self.cohort, self.n_active, self.n_features = real_valued, cohort, n_active, n_features
        keys = [
            (identity(q.target_policy), identity(q.continuation), identity(q.lam), int(k))
            for q, k in zip(questions, cohort, strict=True)
        ]
        self.group, firsts = number(keys)
        leaders = [questions[i] for i in firsts]
        self.policy, policy_firsts = number([identity(q.target_policy) for q in leaders])
        self._policies = PolicyTable([leaders[i].target_policy for i in policy_firsts], n_features)
        self._continuation = StateValues([q.continuation for q in leaders], 0.0, 1.0)
        self._lam = StateValues([q.lam for q in leaders], 0.0, 1.0)
        self._outcome = StateValues([q.outcome for q in questions], -np.inf, np.inf)
        self._cumulants = Cumulants(questions, n_features)
        states = (self._policies, self._continuation, self._lam, self._outcome)
        self._asks_functions = any(s.has_functions for s in states) or not self._cumulants.is_read_off
        self._arrays = self._allocate(len(questions), most(dtype))
        of, is_by_channel = self._arrays, self._cumulants.is_read_off
        self.cumulant = self._cumulants.channel if is_by_channel else np.arange(len(questions))
        self.signals = Signals(of.rho, of.gamma, of.lam, of.c, of.z, is_fixed=not self._asks_functions)
        self._totals_carried = np.zeros((checks.N_TOTALS, len(questions)))
        self._complete: Any = None

    def _allocate(self, n_demons: int, most: float) -> checks.SignalArrays:
        """Return the arrays of demons that were told nothing yet."""
        n_groups, n_policies, n_channels = self.policy.size, self._policies.n_policies, self._cumulants.n_channels
        return checks.SignalArrays(
            action=self._policies.constant_action,
            rho=np.zeros(n_policies),
            gamma=self._continuation.constant.copy(),
            lam=self._lam.constant.copy(),
            c=np.zeros(n_channels if self._cumulants.is_read_off else n_demons),
            z=self._outcome.constant.copy(),
            group=self.group,
            channel=self._cumulants.channel,
            top=np.zeros(n_channels),
            largest=np.zeros(n_demons),
            longest=np.zeros(n_groups),
            bound=np.zeros(n_demons),
            totals=np.zeros((checks.N_TOTALS, n_policies)),
            seen=np.zeros(self.n_features + 1, dtype=np.int64),
            is_known=np.zeros(1, dtype=np.int64),
            most=most,
            is_fixed=not self._asks_functions,
            is_by_channel=self._cumulants.is_read_off,
        )

    def __getstate__(self) -> dict[str, Any]:
        """Return everything but addresses."""
        return vars(self) | {"_complete": None}

    def succeed(self, before: SignalMaker, stays: Integers) -> None:
        """Take over what is remembered of the demons that stay; `stays` is as in `layout.Roster`."""
        is_new, was, of = stays == NEWCOMER, before._arrays, self._arrays
        group_before = np.full(of.longest.size, was.longest.size)  # a new one's numbers are 0
        group_before[self.group[~is_new]] = before.group[stays[~is_new]]
        of.longest[:] = np.append(was.longest, 0.0)[group_before]
        of.largest[:], of.bound[:] = (np.where(is_new, 0.0, values[stays]) for values in (was.largest, was.bound))
        np.maximum.at(of.rho, self.policy, np.append(was.rho[before.policy], 0.0)[group_before])
        self._totals_carried = np.where(is_new, 0.0, before.totals()[:, stays])

    def state(self) -> State:
        """Return copies of what the coming signals depend on beside the questions."""
        arrays = attributes(self._arrays, *_REMEMBERED)
        return nested(arrays=arrays, policies=self._policies.state(), own=attributes(self, "_totals_carried"))

    def restore(self, state: State) -> None:
        """Go on from what `state` returned, of a maker for the same questions."""
        for name, values in inner(state, "arrays").items():
            getattr(self._arrays, name)[...] = values
        self._policies.restore(inner(state, "policies"))
        put_back(self, inner(state, "own"), "_totals_carried")

    # ---- what is asked of it --------------------------------------------------------------------------------------

    @property
    def bound(self) -> Floats:
        """|theta| that no answer of a demon can need, shape (n_demons,)."""
        return self._arrays.bound

    @property
    def policy_of(self) -> Integers:
        """Policy of each demon, shape (n_demons,)."""
        return np.asarray(self.policy[self.group])

    @property
    def largest_decay(self) -> float:
        """The largest product of a continuation and a trace decay that can come."""
        gamma, lam = (np.where(of.is_function, 1.0, of.constant) for of in (self._continuation, self._lam))
        return float((gamma * lam).max())

    def totals(self) -> Floats:
        """Return what each demon's ratios added up to since it came, shape (3, n_demons)."""
        return np.asarray(self._totals_carried + self._arrays.totals[:, self.policy_of])

    def see_weights(self, largest: Floats) -> None:
        """Raise the bounds for weights that come from elsewhere: as if a cumulant as large had been seen."""
        of = self._arrays
        np.maximum(of.largest, largest, out=of.largest)
        of.bound[:] = checks.bound(of.largest, of.longest[self.group], of.most)

    def share_bounds(self, others: Sequence[SignalMaker]) -> None:
        """Let each of these know what the others have seen of cumulants and continuations, for the bounds of theta."""
        of = [maker._arrays for maker in (self, *others)]
        largest, longest = (np.maximum.reduce([getattr(a, name) for a in of]) for name in ("largest", "longest"))
        for arrays in of:
            arrays.largest[:], arrays.longest[:] = largest, longest
            with np.errstate(over="ignore"):  # the bound is then the most that there is
                arrays.bound[:] = checks.bound(largest, longest[self.group], arrays.most)

    # ---- what is taken from the caller ----------------------------------------------------------------------------

    def action(self, action: Any, probability: Any) -> tuple[int, float]:
        """Return an action and its probability as plain numbers; arrays of one element will do."""
        n, a, b = self._policies.n_actions, _the_one(action), _the_one(probability)
        if isinstance(action, bool) or not (a >= 0 and a == math.floor(a)) or (n and a >= n):
            raise ValueError(f"action must be a whole number in 0..{n - 1 if n else '...'}, not {action!r}")
        if not _RAREST <= b <= 1.0:
            raise ValueError(f"probability must be in (0, 1], and at least {_RAREST:g}, not {probability!r}")
        return int(a), b

    def checked_state(self, observation: Observation, tiles: Tiles) -> tuple[Observation, Tiles]:
        """Return copies of an observation, float64, and its tiles, int64, that are sound."""
        state = self.copied_state(observation, tiles)
        self.refuse_state(*state)
        return state

    def copied_state(self, observation: Observation, tiles: Tiles) -> tuple[Observation, Tiles]:
        """Return copies of an observation and its tiles, whose values are not yet looked at."""
        observation = np.array(observation, dtype=np.float64)
        n = self._cumulants.n_channels
        if observation.ndim != 1 or observation.size < n:
            raise ValueError(f"observation must be flat with at least {n} channels, not {observation.shape}")
        return observation, self._copied_tiles(tiles)

    def tiles(self, tiles: Tiles) -> Tiles:
        """Return a copy of the tiles as int64."""
        tiles = self._copied_tiles(tiles)
        self.refuse_state(np.zeros(0), tiles)
        return tiles

    def _copied_tiles(self, tiles: Tiles) -> Tiles:
        """Return a copy of the tiles as int64, not yet known to be in range; of real-valued features as float64."""
        tiles = np.asarray(tiles)
        if self.real_valued:
            if tiles.shape != (self.n_features,) or tiles.dtype.kind != "f":
                raise ValueError(f"phi must be floats of shape ({self.n_features},), not {tiles.dtype} {tiles.shape}")
            return np.array(tiles, dtype=np.float64)
        if tiles.shape != (self.n_active,) or tiles.dtype.kind not in "iu":
            raise ValueError(f"tiles must be integers of shape ({self.n_active},), not {tiles.dtype} {tiles.shape}")
        return np.array(tiles, dtype=np.int64)

    def refuse_state(self, observation: Observation, tiles: Tiles) -> None:
        """Raise ValueError where a state is not sound."""
        if self.real_valued:
            if not np.isfinite(tiles).all():
                raise ValueError(f"phi must be finite; feature {np.flatnonzero(~np.isfinite(tiles))[0]} is not")
            tiles = _NO_TILES
        wrong = checks.first_wrong(observation, tiles, self._arrays.seen)
        if wrong >= 0:
            raise ValueError(f"observation must be finite; channel {wrong} is {observation[wrong]}")
        if wrong <= -2 - tiles.size:
            twice = tiles[-2 - tiles.size - wrong]
            raise ValueError(f"tiles must be different features; {twice} is there more than once")
        if wrong < -1:
            raise ValueError(f"tiles must lie in 0..{self.n_features - 1}; number {-2 - wrong} is {tiles[-2 - wrong]}")

    # ---- what is told ---------------------------------------------------------------------------------------------

    def make(
        self,
        action: int,
        probability: float,
        before: tuple[Observation, Tiles],
        after: tuple[Observation, Tiles],
        predict_one: Callable[[int, Tiles], float],
        *,
        terminated: bool,
    ) -> int:
        """Make the signals of a transition, and return the findings of `checks.complete`.

        Args:
            action: The action taken.
            probability: b(action).
            before: Observation and tiles of the state in which it was taken.
            after: Of the state reached.
            predict_one: Gives a demon's prediction at some tiles, NaN where it was set aside.
            terminated: Whether the stream ends at the state reached.

        Raises:
            ValueError: If the state reached is not sound; nothing has changed.
        """
        if self._asks_functions or self.real_valued:
            self.refuse_state(*after)
        if self._asks_functions:
            self._ask_functions(*after, predict_one, terminated=terminated)
        self._policies.write_ratios(action, probability, *before, self._arrays.rho)
        state = (after[0], _NO_TILES) if self.real_valued else after
        if self._complete is None:
            self._complete = bind(checks.complete, hold(self._arrays), like=(*state, action, probability))
        found = self._complete(*state, action, probability)
        if found & checks.STATE_WRONG:
            self.refuse_state(*after)
        return int(found)

    def _ask_functions(
        self, observation: Observation, tiles: Tiles, predict_one: Callable[[int, Tiles], float], *, terminated: bool
    ) -> None:
        """Write what functions give, and other demons predict, at the state reached."""
        of = self._arrays
        self._continuation.write(observation, tiles, of.gamma)
        self._lam.write(observation, tiles, of.lam)
        if terminated:  # nothing goes on there, whatever they gave
            np.nan_to_num(of.gamma, copy=False)
            np.nan_to_num(of.lam, copy=False)
        self._cumulants.write(observation, tiles, predict_one, of.c)
        self._outcome.write(observation, tiles, of.z)

    def note_broken(self, soundness: Soundness) -> dict[int, str]:
        """Note for whom the step is a gap, and return who was told a number that the engine's type cannot hold."""
        of, group = self._arrays, self.group
        beyond: dict[int, str] = {}
        gamma, lam = of.gamma.copy(), of.lam.copy()
        for values, given in ((gamma, self._continuation.given), (lam, self._lam.given)):
            for g in np.flatnonzero(np.isnan(values)):
                values[g] = given[int(g)]  # what it was when it left [0, 1]
        told = {"cumulant": of.c[self.cumulant], "outcome": of.z, "rho = pi(a)/b(a)": of.rho[self.policy_of]}
        stays = np.ones(group.size, dtype=bool)  # for whom a gap is counted: whoever is set aside has none
        for what, values in told.items():
            for demon in np.flatnonzero((np.abs(values) > of.most) & np.isfinite(values)).tolist():
                beyond.setdefault(demon, f"its {what} was {values[demon]:.6g}")
                stays[demon] = False
        for what, values in told.items():
            soundness.skip(~np.isfinite(values) & stays, what, values)
        for what, of_group, values in (("continuation", of.gamma, gamma), ("lam", of.lam, lam)):
            soundness.skip(np.isnan(of_group)[group] & stays, what, values[group])
        return beyond

    def forget_broken(self) -> None:
        """Have ratios that were no numbers be 0 from now on, for whoever asks."""
        np.nan_to_num(self._arrays.rho, copy=False, posinf=0.0)

    def misfits(self) -> dict[int, str]:
        """Return the demons whose policies gave no probabilities, with what they gave; these are asked no more."""
        if not self._policies.misfits:
            return {}
        found: dict[int, str] = {}
        policy_of = self.policy_of
        for policy, misfit in self._policies.misfits.items():
            found |= dict.fromkeys(np.flatnonzero(policy_of == policy).tolist(), f"its target policy {misfit}")
            self._policies.forget(policy)
            self._arrays.rho[policy] = 0.0
        self._policies.misfits.clear()
        return found


def _the_one(value: Any) -> float:
    """Return a finite number, also where an array holds it alone, as vector environments give actions; else NaN."""
    if type(value) is int or type(value) is float:  # what it nearly always is: a robot's step looks here twice
        return value if math.isfinite(value) else math.nan
    if isinstance(value, np.ndarray) and value.size == 1:
        value = value.item()
    is_finite = isinstance(value, numbers.Real) and math.isfinite(value)
    return float(value) if is_finite else math.nan


def _check_names(questions: Sequence[GVF]) -> None:
    """Raise ValueError where there is no question, or two have one name."""
    if not questions:
        raise ValueError("questions must hold at least one question")
    names = [q.name for q in questions]
    if len(set(names)) < len(names):
        twice = next(name for name in names if names.count(name) > 1)
        raise ValueError(f"questions must have different names; {twice!r} is there twice")


class PolicyTable:
    """The distinct target policies of a Horde: how likely each would have taken the action that was taken.

    Args:
        policies: Distinct policies.
        n_features: Number of features, which a Gibbs policy must agree with.

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

    def __init__(self, policies: Sequence[Policy], n_features: int) -> None:
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
        self._tables = _gibbs_tables(gibbs, at[2])

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
    """Ask each target policy once, and refuse one that gives no probabilities.

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


def _gibbs_tables(policies: Sequence[Gibbs], position: NDArray[np.int64]) -> list[GibbsTable]:
    """Return a table of whole numbers, and one of floats for a few policies or those that need the range."""
    in_floats = np.array([largest_logit([p]) > LARGEST for p in policies], dtype=bool)
    in_floats |= len(policies) < _FEW_POLICIES
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
        """Write the functions' values in this state, NaN where one is out of range; the constants are left alone."""
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
