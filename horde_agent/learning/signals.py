"""Compute each transition's signals (rho, gamma, lambda, cumulant, outcome) and the demons that must skip it.

Questions with the same policy, continuation and trace decay form a group; values that depend only
on these are computed once per group. If a user function returns an invalid value, the signal is NaN
and its demons skip the step.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from horde_agent.gvf import GVF
from horde_agent.kernels import checks
from horde_agent.kernels.checks import Signals
from horde_agent.kernels.vectors import bind, pack
from horde_agent.learning.divergence import DivergenceMonitor
from horde_agent.learning.engine import NEWCOMER, max_finite
from horde_agent.learning.inputs import NO_TILES, InputChecker
from horde_agent.learning.readout import Readout
from horde_agent.learning.values import (
    Cumulants,
    Observation,
    PolicyTable,
    PredictOne,
    ReturnTerms,
    StateValues,
    Transition,
    distinct,
    identity,
    number,
)
from horde_agent.policies import Gibbs
from horde_agent.saving import State, attributes, inner, nested, put_back
from horde_agent.types import Floats, Integers, Tiles

__all__ = ["SignalMaker", "Signals"]

# Fields of `checks.SignalArrays` that persist between steps.
_PERSISTENT = (
    "rho",
    "gamma",
    "lam",
    "c",
    "z",
    "top",
    "largest",
    "longest",
    "bound",
    "totals",
    "is_known",
)


class SignalMaker:
    """Computes the signals of each transition, in arrays that are reused.

    Args:
        questions: The questions.
        cohort: Number of the addition of each demon, shape (n_demons,); different cohorts share no
            trace.
        cumulants: The questions' cumulants.
        readout: What an offset changes in the signals.
        n_features, n_active, real_valued: As of `InputChecker`.
        dtype: The engine's dtype; signals that exceed its range make a demon diverge.
        n_gibbs: As of `PolicyTable`.

    Attributes:
        group: Trace group of each demon, shape (n_demons,).
        policy: Policy of each group, shape (n_groups,).
        cumulant: Index of each demon's cumulant in the signals, shape (n_demons,).
        signals: The latest signals.
        states: Checks and copies states and actions from the caller.

    Raises:
        ValueError: If two questions have the same name, or are incompatible with each other or the
            features.
    """

    def __init__(
        self,
        questions: Sequence[GVF],
        cohort: Integers,
        cumulants: Cumulants,
        readout: Readout,
        n_features: int,
        n_active: int,
        dtype: np.dtype[Any],
        *,
        real_valued: bool = False,
        n_gibbs: int = 0,
    ) -> None:
        if real_valued and any(isinstance(q.target_policy, Gibbs) for q in questions):
            raise ValueError(
                "a Gibbs policy is one over active tiles; for real-valued features write a policy of your own"
            )
        self.cohort = cohort
        self.n_features = n_features
        leaders = self._set_groups(questions)
        self._policies = PolicyTable(
            distinct([q.target_policy for q in leaders]), n_features, max_finite(dtype), n_gibbs
        )
        self._continuation = StateValues([q.continuation for q in leaders], 0.0, 1.0)
        self._lam = StateValues([q.lam for q in leaders], 0.0, 1.0)
        self._outcome = StateValues([q.outcome for q in questions], -np.inf, np.inf)
        self._interest = StateValues([q.interest for q in questions], 0.0, np.inf)
        self._cumulants = cumulants
        self._readout = readout
        self.states = InputChecker(
            n_features,
            n_active,
            self._cumulants.n_channels,
            self._policies.n_actions,
            real_valued=real_valued,
        )
        self._asks_functions = self._has_functions()
        self._slots = readout.slots
        self._is_reward = np.zeros(self._slots.channel.size, dtype=bool)
        if self._cumulants.has_reward:
            self._is_reward = self._slots.channel == self._cumulants.n_channels
        self.cumulant = self._slots.cumulant
        self._arrays = self._allocate(len(questions), max_finite(dtype))
        self._outcomes = self._arrays.z  # as the questions define them
        self.signals = self._new_signals()
        self._totals_carried = np.zeros((checks.N_TOTALS, len(questions)))
        self._finish: Any = None
        if readout.offsets.is_on:
            self._outcomes = readout.offsets.arrays.outcome
        readout.attach(self._arrays)

    def _set_groups(self, questions: Sequence[GVF]) -> list[GVF]:
        """Set the trace group of each demon and the policy of each group; return the first question of each group."""
        keys = []
        for question, cohort in zip(questions, self.cohort.tolist(), strict=True):
            policy = identity(question.target_policy)
            keys.append((policy, identity(question.continuation), identity(question.lam), cohort))
        self.group, firsts = number(keys)
        leaders = [questions[i] for i in firsts]
        self.policy, _ = number([identity(q.target_policy) for q in leaders])
        return leaders

    def _has_functions(self) -> bool:
        """Return True if a value is computed in Python."""
        sources = (
            self._policies,
            self._continuation,
            self._lam,
            self._outcome,
            self._interest,
        )
        return not self._cumulants.is_read_off or any(s.has_functions for s in sources)

    def _new_signals(self) -> Signals:
        """Return the signals, which share arrays with `_arrays`."""
        arrays = self._arrays
        return Signals(
            rho_t=arrays.rho,
            gamma_tp1=arrays.gamma,
            lam_tp1=arrays.lam,
            c_tp1=arrays.c,
            z_tp1=arrays.z,
            b_t=np.ones(1),
            action_t=np.zeros(1, dtype=np.int64),
            interest_t=self._interest.constant.copy(),
            has_rho=np.ones(self.policy.size, dtype=np.bool_),
            is_fixed=arrays.is_fixed,
        )

    def _allocate(self, n_demons: int, max_finite: float) -> checks.SignalArrays:
        """Return initial signal arrays."""
        n_groups = self.policy.size
        n_policies = self._policies.n_policies
        n_channels = self._cumulants.n_channels
        return checks.SignalArrays(
            action=self._policies.constant_action,
            rho=np.zeros(n_policies),
            gamma=self._continuation.constant.copy(),
            lam=self._lam.constant.copy(),
            c=np.zeros(self._slots.channel.size),
            z=self._outcome.constant.copy(),
            group=self.group,
            channel=self._slots.channel,
            reference=np.zeros(self._slots.channel.size),
            cumulant=self._slots.cumulant,
            top=np.zeros(self._slots.channel.size if self._cumulants.is_read_off else n_channels),
            largest=np.zeros(n_demons),
            longest=np.zeros(n_groups),
            bound=np.zeros(n_demons),
            totals=np.zeros((checks.N_TOTALS, n_policies)),
            seen=np.zeros(self.n_features + 1, dtype=np.int64),
            is_known=np.zeros(1, dtype=np.int64),
            max_finite=max_finite,
            is_fixed=not self._asks_functions and self._readout.offsets.is_fixed,
            is_by_channel=self._cumulants.is_read_off,
        )

    def __getstate__(self) -> dict[str, Any]:
        """Return all attributes except addresses."""
        return vars(self) | {"_finish": None}

    def copy_state_from(self, before: SignalMaker, old_index: Integers) -> None:
        """Copy the state of remaining demons; `old_index`, shape (n_demons,), is as in `DemonMapping`."""
        is_new = old_index == NEWCOMER
        was = before._arrays
        arrays = self._arrays
        # The last entry, 0, is for new demons
        group_before = np.full(arrays.longest.size, was.longest.size)
        group_before[self.group[~is_new]] = before.group[old_index[~is_new]]
        arrays.longest[:] = np.append(was.longest, 0.0)[group_before]
        arrays.largest[:], arrays.bound[:] = (
            np.where(is_new, 0.0, values[old_index]) for values in (was.largest, was.bound)
        )
        np.maximum.at(arrays.rho, self.policy, np.append(was.rho[before.policy], 0.0)[group_before])
        self._totals_carried = np.where(is_new, 0.0, before.totals()[:, old_index])

    def state(self) -> State:
        """Return copies of the state on which later signals depend."""
        arrays = attributes(self._arrays, *_PERSISTENT)
        totals = attributes(self, "_totals_carried")
        action_signals = attributes(self.signals, "b_t", "action_t", "interest_t")
        return nested(
            arrays=arrays, policies=self._policies.state(), own=totals, taken=action_signals
        )

    def restore(self, state: State) -> None:
        """Restore a state from a SignalMaker of the same questions."""
        for name, values in inner(state, "arrays").items():
            getattr(self._arrays, name)[...] = values
        self._policies.restore(inner(state, "policies"))
        put_back(self, inner(state, "own"), "_totals_carried")
        for name, values in inner(state, "taken").items():
            getattr(self.signals, name)[...] = values

    # ---- properties -------------------------------------------------------------------------------------------------

    @property
    def bound(self) -> Floats:
        """Largest plausible |theta| of each demon, shape (n_demons,)."""
        return self._arrays.bound

    @property
    def policy_of(self) -> Integers:
        """Policy of each demon, shape (n_demons,)."""
        return np.asarray(self.policy[self.group])

    def totals(self) -> Floats:
        """Return sums over each demon's ratios since it was added, shape (3, n_demons)."""
        return np.asarray(self._totals_carried + self._arrays.totals[:, self.policy_of])

    def raise_bounds(self, largest: Floats) -> None:
        """Raise the bounds for imported weights, as if a cumulant of this size, (n_demons,), had occurred."""
        arrays = self._arrays
        np.maximum(arrays.largest, largest, out=arrays.largest)
        arrays.bound[:] = checks.bound(
            arrays.largest, arrays.longest[self.group], arrays.max_finite
        )

    def share_bounds(self, others: Sequence[SignalMaker]) -> None:
        """Combine the largest cumulants and continuations of several SignalMakers, and update all bounds of theta."""
        array_sets = [maker._arrays for maker in (self, *others)]
        largest, longest = (
            np.maximum.reduce([getattr(a, name) for a in array_sets])
            for name in ("largest", "longest")
        )
        for arrays in array_sets:
            arrays.largest[:] = largest
            arrays.longest[:] = longest
            with np.errstate(over="ignore"):  # the bound is then max_finite
                arrays.bound[:] = checks.bound(largest, longest[self.group], arrays.max_finite)

    # ---- signals of a transition ------------------------------------------------------------------------------------

    def begin(self, observation: Observation, tiles: Tiles) -> None:
        """Begin a stream at its first state, an observation, (n_sensors,), and its tiles: estimate offsets there."""
        self._readout.following.begin()
        self.join(observation, tiles)
        self._readout.mark_processed()

    def join(self, observation: Observation, tiles: Tiles) -> None:
        """Estimate offsets of demons without a reading; shapes are (n_sensors,) and (n_active,)."""
        readout = self._readout
        if readout.offsets.is_unread:
            if self._asks_functions:
                self._ask_functions(observation, tiles, _nothing_predicted, terminated=False)
            channels = self._cumulants.channels(observation, reward=np.nan)
            readout.read(channels, is_first=True, is_last=False)
            readout.write_references()
        if readout.following.is_on:
            readout.following.join(observation)

    def make(
        self,
        action: int,
        probability: float,
        before: tuple[Observation, Tiles],
        after: tuple[Observation, Tiles],
        predict_one: PredictOne,
        *,
        terminated: bool,
        reward: float = np.nan,
    ) -> int:
        """Compute the signals of a transition by `action`, and return the findings of `checks.finish_signals`.

        States are an observation, (n_sensors,), and its tiles, (n_active,): `before` the transition
        and `after` it. `predict_one` returns a demon's prediction at a state, NaN if the demon
        diverged. Demons about the reward skip the step if it is not finite. Raise ValueError if the
        state reached is invalid; nothing has changed.
        """
        has_reward = self._cumulants.has_reward
        if self._asks_functions or self.states.real_valued or has_reward:
            self.states.validate(*after)
        channels = after[0]
        if has_reward:
            channels = self._cumulants.channels(after[0], reward)
        if self._asks_functions:
            self._ask_functions(*after, predict_one, terminated=terminated)
        if self._cumulants.has_td_errors:
            self._write_td_errors(
                Transition(before, after), channels, predict_one, terminated=terminated
            )
        if self._readout.is_changed_by(terminated=terminated):
            self.states.validate(*after)
            self._readout.move(channels, terminated=terminated)
        self.signals.b_t[0] = probability
        self.signals.action_t[0] = action
        if self._interest.has_functions:
            self._interest.write(*before, self.signals.interest_t)
        self._policies.write_ratios(action, probability, *before, self._arrays.rho)
        if self._asks_functions:
            self.signals.has_rho[:] = self._policies.has_ratio[self.policy]
        is_unknown = has_reward and not math.isfinite(reward)
        if is_unknown:
            channels[-1] = 0.0
        state = (channels, after[1])
        if self.states.real_valued:
            state = (channels, NO_TILES)
        inputs = (*state, before[0], action, probability, terminated)
        if self._finish is None:
            self._finish = bind(
                checks.finish_signals,
                pack(self._arrays),
                pack(self._readout.following.arrays),
                like=inputs,
            )
        findings = self._finish(*inputs)
        if findings & checks.STATE_WRONG:
            self.states.validate(*after)
        if is_unknown:
            self._arrays.c[self._is_reward] = reward
            findings |= checks.BROKEN
        if self._is_broken_by_functions():
            findings |= checks.BROKEN
        return int(findings)

    def _is_broken_by_functions(self) -> bool:
        """Return whether an interest of the latest transition is not finite, or a policy's function gave no ratio."""
        if self._policies.given:
            return True
        has_interest = self._interest.has_functions
        return has_interest and not np.isfinite(self.signals.interest_t).all()

    def _ask_functions(
        self,
        observation: Observation,
        tiles: Tiles,
        predict_one: PredictOne,
        *,
        terminated: bool,
    ) -> None:
        """Write the values of user functions and of other demons' predictions at the state reached."""
        arrays = self._arrays
        self._continuation.write(observation, tiles, arrays.gamma)
        self._lam.write(observation, tiles, arrays.lam)
        if terminated:  # continuations do not matter at the end of a stream
            np.nan_to_num(arrays.gamma, copy=False)
            np.nan_to_num(arrays.lam, copy=False)
        self._cumulants.write(observation, tiles, predict_one, arrays.c)
        self._outcome.write(observation, tiles, self._outcomes)

    def _write_td_errors(
        self,
        states: Transition,
        channels: Observation,
        predict_one: PredictOne,
        *,
        terminated: bool,
    ) -> None:
        """Write the cumulants that are other demons' squared TD errors."""
        gamma = self._arrays.gamma[self.group]
        if terminated:
            gamma = np.zeros(gamma.size)
        self._cumulants.write_td_errors(
            channels,
            predict_one,
            states,
            ReturnTerms(gamma, self._outcomes),
            self._arrays.c,
        )

    def mark_skips(self, divergence: DivergenceMonitor) -> dict[int, str]:
        """Mark demons with invalid signals as skipping; return those whose signals exceed the dtype's range."""
        arrays = self._arrays
        group = self.group
        beyond: dict[int, str] = {}
        gamma = arrays.gamma.copy()
        lam = arrays.lam.copy()
        for values, given in ((gamma, self._continuation.given), (lam, self._lam.given)):
            for g in np.flatnonzero(np.isnan(values)):
                values[g] = given[int(g)]  # the value outside [0, 1]
        rho = arrays.rho.copy()
        for policy, value in self._policies.given.items():
            rho[policy] = value
        cumulants = (arrays.c + arrays.reference)[self.cumulant]
        numbers = {
            "cumulant": cumulants,
            "outcome": self._outcomes,
            "rho = pi(a)/b(a)": rho[self.policy_of],
        }
        numbers["interest"] = self.signals.interest_t
        in_range = np.ones(group.size, dtype=bool)  # a demon that diverges counts no gap
        for what, values in numbers.items():
            for demon in np.flatnonzero(
                (np.abs(values) > arrays.max_finite) & np.isfinite(values)
            ).tolist():
                beyond.setdefault(demon, f"its {what} was {values[demon]:.6g}")
                in_range[demon] = False
        for what, values in numbers.items():
            divergence.skip(~np.isfinite(values) & in_range, what, values)
        for what, of_group, values in (
            ("continuation", arrays.gamma, gamma),
            ("lam", arrays.lam, lam),
        ):
            divergence.skip(np.isnan(of_group)[group] & in_range, what, values[group])
        return beyond

    def misfits(self) -> dict[int, str]:
        """Return the demons with invalid target policies, with the returned value; these policies are disabled."""
        if not self._policies.misfits:
            return {}
        found: dict[int, str] = {}
        policy_of = self.policy_of
        for policy, misfit in self._policies.misfits.items():
            found |= dict.fromkeys(
                np.flatnonzero(policy_of == policy).tolist(), f"its target policy {misfit}"
            )
            self._policies.disable(policy)
        self._policies.misfits.clear()
        return found


def _nothing_predicted(_demon: int, _observation: Observation, _tiles: Tiles) -> float:
    """Return NaN in the place of a prediction: before the first transition there is none to read."""
    return np.nan


def check_names(questions: Sequence[GVF]) -> None:
    """Raise ValueError if there is no question, or two have the same name."""
    if not questions:
        raise ValueError("questions must hold at least one question")
    names = [q.name for q in questions]
    if len(set(names)) < len(names):
        twice = next(name for name in names if names.count(name) > 1)
        raise ValueError(f"questions must have different names; {twice!r} is there twice")
