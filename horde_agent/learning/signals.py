"""Questions to numbers: what the demons are told of each transition, and whom it is a gap for.

Questions of one (policy, continuation, trace decay) form a group; what depends on those alone is computed once per
group. A function of the user's that returns nonsense yields NaN here, and the step is a gap for its demons.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from horde_agent.gvf import GVF
from horde_agent.kernels import checks
from horde_agent.kernels.checks import Signals
from horde_agent.kernels.vectors import bind, hold
from horde_agent.learning.engine import max_finite
from horde_agent.learning.inputs import NO_TILES, InputChecker
from horde_agent.learning.layout import NEWCOMER
from horde_agent.learning.soundness import Soundness
from horde_agent.learning.values import Cumulants, Observation, PolicyTable, StateValues, identity, number
from horde_agent.policies import Gibbs
from horde_agent.saving import State, attributes, inner, nested, put_back
from horde_agent.types import Floats, Integers, Tiles

__all__ = ["SignalMaker", "Signals"]

# Of `checks.SignalArrays`, what outlives a step.
_REMEMBERED = ("rho", "gamma", "lam", "c", "z", "top", "largest", "longest", "bound", "totals", "is_known")


class SignalMaker:
    """Makes what the demons of some questions are told, in arrays that stay from step to step.

    Args:
        questions: The questions.
        cohort: When each demon came, shape (n_demons,): those that did not come together share no trace.
        n_features, n_active: Of the states.
        dtype: The engine's type, which must hold what is told.
        real_valued: Whether a state's features are all their values, instead of the tiles that are active.
        n_gibbs: As in `PolicyTable`.

    Attributes:
        group: Of each demon, shape (n_demons,).
        policy: Of each group, shape (n_groups,).
        cumulant: Which of the cumulants that are told each demon sums, shape (n_demons,): its own, or a channel.
        signals: What was told last.
        states: Takes states and actions from the caller.
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
        n_gibbs: int = 0,
    ) -> None:
        _check_names(questions)
        if real_valued and any(isinstance(q.target_policy, Gibbs) for q in questions):
            raise ValueError(
                "a Gibbs policy is one over active tiles; for real-valued features write a policy of your own"
            )
        self.cohort, self.n_features = cohort, n_features
        keys = [
            (identity(q.target_policy), identity(q.continuation), identity(q.lam), int(k))
            for q, k in zip(questions, cohort, strict=True)
        ]
        self.group, firsts = number(keys)
        leaders = [questions[i] for i in firsts]
        self.policy, policy_firsts = number([identity(q.target_policy) for q in leaders])
        self._policies = PolicyTable([leaders[i].target_policy for i in policy_firsts], n_features, n_gibbs)
        self._continuation = StateValues([q.continuation for q in leaders], 0.0, 1.0)
        self._lam = StateValues([q.lam for q in leaders], 0.0, 1.0)
        self._outcome = StateValues([q.outcome for q in questions], -np.inf, np.inf)
        self._cumulants = Cumulants(questions, n_features)
        self.states = InputChecker(
            n_features, n_active, self._cumulants.n_channels, self._policies.n_actions, real_valued=real_valued
        )
        given = (self._policies, self._continuation, self._lam, self._outcome)
        self._asks_functions = any(s.has_functions for s in given) or not self._cumulants.is_read_off
        self._arrays = self._allocate(len(questions), max_finite(dtype))
        of, is_by_channel = self._arrays, self._cumulants.is_read_off
        self.cumulant = self._cumulants.channel if is_by_channel else np.arange(len(questions))
        self.signals = Signals(of.rho, of.gamma, of.lam, of.c, of.z, is_fixed=not self._asks_functions)
        self._totals_carried = np.zeros((checks.N_TOTALS, len(questions)))
        self._complete: Any = None

    def _allocate(self, n_demons: int, max_finite: float) -> checks.SignalArrays:
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
            max_finite=max_finite,
            is_fixed=not self._asks_functions,
            is_by_channel=self._cumulants.is_read_off,
        )

    def __getstate__(self) -> dict[str, Any]:
        """Return everything but addresses."""
        return vars(self) | {"_complete": None}

    def succeed(self, before: SignalMaker, old_index: Integers) -> None:
        """Copy the state of remaining demons; `old_index`, shape (n_demons,), is that of `DemonMapping`."""
        is_new, was, of = old_index == NEWCOMER, before._arrays, self._arrays
        group_before = np.full(of.longest.size, was.longest.size)  # a new one's numbers are 0
        group_before[self.group[~is_new]] = before.group[old_index[~is_new]]
        of.longest[:] = np.append(was.longest, 0.0)[group_before]
        of.largest[:], of.bound[:] = (np.where(is_new, 0.0, values[old_index]) for values in (was.largest, was.bound))
        np.maximum.at(of.rho, self.policy, np.append(was.rho[before.policy], 0.0)[group_before])
        self._totals_carried = np.where(is_new, 0.0, before.totals()[:, old_index])

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
        """Raise the bounds for weights from elsewhere, as if a cumulant as large, (n_demons,), had been seen."""
        of = self._arrays
        np.maximum(of.largest, largest, out=of.largest)
        of.bound[:] = checks.bound(of.largest, of.longest[self.group], of.max_finite)

    def share_bounds(self, others: Sequence[SignalMaker]) -> None:
        """Let each of these know what the others have seen of cumulants and continuations, for the bounds of theta."""
        of = [maker._arrays for maker in (self, *others)]
        largest, longest = (np.maximum.reduce([getattr(a, name) for a in of]) for name in ("largest", "longest"))
        for arrays in of:
            arrays.largest[:], arrays.longest[:] = largest, longest
            with np.errstate(over="ignore"):  # the bound is then the most that there is
                arrays.bound[:] = checks.bound(largest, longest[self.group], arrays.max_finite)

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
        """Make the signals of a transition, and return the findings of `checks.finish_signals`.

        Args:
            action: The action taken.
            probability: b(action).
            before: Observation, (n_sensors,), and tiles, (n_active,), of the state in which it was taken.
            after: Of the state reached.
            predict_one: Gives a demon's prediction at some tiles, NaN where it was set aside.
            terminated: Whether the stream ends at the state reached.

        Raises:
            ValueError: If the state reached is not sound; nothing has changed.
        """
        if self._asks_functions or self.states.real_valued:
            self.states.refuse(*after)
        if self._asks_functions:
            self._ask_functions(*after, predict_one, terminated=terminated)
        self._policies.write_ratios(action, probability, *before, self._arrays.rho)
        state = (after[0], NO_TILES) if self.states.real_valued else after
        if self._complete is None:
            self._complete = bind(checks.finish_signals, hold(self._arrays), like=(*state, action, probability))
        found = self._complete(*state, action, probability)
        if found & checks.STATE_WRONG:
            self.states.refuse(*after)
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
        old_index = np.ones(group.size, dtype=bool)  # for whom a gap is counted: whoever is set aside has none
        for what, values in told.items():
            for demon in np.flatnonzero((np.abs(values) > of.max_finite) & np.isfinite(values)).tolist():
                beyond.setdefault(demon, f"its {what} was {values[demon]:.6g}")
                old_index[demon] = False
        for what, values in told.items():
            soundness.skip(~np.isfinite(values) & old_index, what, values)
        for what, of_group, values in (("continuation", of.gamma, gamma), ("lam", of.lam, lam)):
            soundness.skip(np.isnan(of_group)[group] & old_index, what, values[group])
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


def _check_names(questions: Sequence[GVF]) -> None:
    """Raise ValueError where there is no question, or two have one name."""
    if not questions:
        raise ValueError("questions must hold at least one question")
    names = [q.name for q in questions]
    if len(set(names)) < len(names):
        twice = next(name for name in names if names.count(name) > 1)
        raise ValueError(f"questions must have different names; {twice!r} is there twice")
