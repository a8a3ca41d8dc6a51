"""Questions to signals: each transition's cumulants, gamma, lambda, outcomes and interests, and who skips it.

Values that depend only on a trace group's continuation and trace decay are computed once for it. If
a user function returns an invalid value, the signal is NaN and its demons skip the step. Ratios are
made by `learning.ratios`.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, ClassVar, Self

import numpy as np

from horde_agent.gvf import GVF, check_part
from horde_agent.kernels import checks
from horde_agent.kernels.vectors import bind, pack
from horde_agent.learning.divergence import DivergenceMonitor
from horde_agent.learning.groups import TraceGroups
from horde_agent.learning.readout import Readout
from horde_agent.learning.stored import DEMON, GROUP, Field, Fields, Stored
from horde_agent.learning.values import (
    AgentState,
    Cumulants,
    Observation,
    PredictOne,
    ReturnTerms,
    StateValues,
)
from horde_agent.types import Bools, Floats, Tiles


class SignalMaker(Stored):
    """Computes each transition's cumulants, continuations, trace decays, outcomes and interests, in reused arrays.

    Args:
        questions: The questions.
        groups: Their trace groups.
        cumulants: Their cumulants.
        readout: What an offset changes in the signals.
        max_finite: Largest finite number of the engine's dtype; a larger signal makes a demon
            diverge.
        n_features: Number of features.

    Attributes:
        arrays: The latest signals, and what persists of the earlier ones.
        interest: Interest of the state left, (n_demons,).
    """

    FIELDS: ClassVar[Fields] = {
        "arrays/gamma": Field(is_carried=False),
        "arrays/lam": Field(is_carried=False),
        "arrays/c": Field(is_carried=False),
        "arrays/z": Field(is_carried=False),
        "arrays/reference": Field(is_carried=False),
        "arrays/top": Field(is_carried=False),
        "arrays/largest": Field(DEMON, merge=np.max),
        "arrays/longest": Field(GROUP, merge=np.max),
        "arrays/bound": Field(DEMON),
        "arrays/is_known": Field(is_carried=False),
        "interest": Field(is_carried=False),
    }

    def __init__(
        self,
        questions: Sequence[GVF],
        groups: TraceGroups,
        cumulants: Cumulants,
        readout: Readout,
        max_finite: float,
        n_features: int,
    ) -> None:
        self._groups = groups
        leaders = groups.leaders
        names = [q.name for q in questions]
        leading = [q.name for q in leaders]
        continuations = [q.continuation for q in leaders]
        decays = [q.lam for q in leaders]
        outcomes = [q.outcome for q in questions]
        interests = [q.interest for q in questions]
        self._continuation = StateValues(
            continuations, names=leading, n_features=n_features, low=0.0, high=1.0
        )
        self._lam = StateValues(decays, names=leading, n_features=n_features, low=0.0, high=1.0)
        self._outcome = StateValues(
            outcomes, names=names, n_features=n_features, low=-np.inf, high=np.inf
        )
        self._interest = StateValues(
            interests, names=names, n_features=n_features, low=0.0, high=np.inf
        )
        self._cumulants = cumulants
        self._readout = readout
        values = (self._continuation, self._lam, self._outcome, self._interest)
        self._has_functions = not self._cumulants.is_read_off or any(
            value.has_functions for value in values
        )
        self.arrays = self._allocate(len(questions), max_finite)
        self.interest = self._interest.constant.copy()
        self._outcomes = self.arrays.z  # as the questions define them
        if readout.offsets.is_on:
            self._outcomes = readout.offsets.arrays.outcome
        self._finish: Any = None
        readout.attach(self.arrays)

    def _allocate(self, n_demons: int, max_finite: float) -> checks.SignalArrays:
        """Return initial signal arrays."""
        slots = self._readout.slots
        n_cumulants = slots.channel.size
        n_sources = self._cumulants.n_channels
        if self._cumulants.is_read_off:
            n_sources = n_cumulants
        return checks.SignalArrays(
            gamma=self._continuation.constant.copy(),
            lam=self._lam.constant.copy(),
            c=np.zeros(n_cumulants),
            z=self._outcome.constant.copy(),
            group=self._groups.group,
            channel=slots.channel,
            reference=np.zeros(n_cumulants),
            cumulant=slots.cumulant,
            top=np.zeros(n_sources),
            largest=np.zeros(n_demons),
            longest=np.zeros(self._groups.policy.size),
            bound=np.zeros(n_demons),
            is_known=np.zeros(1, dtype=np.int64),
            max_finite=max_finite,
            is_fixed=not self._has_functions and self._readout.offsets.is_fixed,
            is_by_channel=self._cumulants.is_read_off,
        )

    def __getstate__(self) -> dict[str, Any]:
        """Return all attributes except addresses."""
        return vars(self) | {"_finish": None}

    # ---- bounds of theta --------------------------------------------------------------------------------------------

    def raise_bounds(self, largest: Floats) -> None:
        """Raise the bounds for imported weights, as if a cumulant of this size, (n_demons,), had occurred."""
        np.maximum(self.arrays.largest, largest, out=self.arrays.largest)
        self._write_bounds()

    def merge(self, others: Sequence[Self]) -> None:
        """Give several Hordes the largest of their cumulants and continuations, and the bounds from these."""
        super().merge(others)
        for maker in (self, *others):
            maker._write_bounds()

    def _write_bounds(self) -> None:
        arrays = self.arrays
        with np.errstate(over="ignore"):  # the bound is then max_finite
            arrays.bound[:] = checks.bound(
                arrays.largest, arrays.longest[self._groups.group], arrays.max_finite
            )

    # ---- signals of a transition ------------------------------------------------------------------------------------

    def begin(self, observation: Observation, tiles: Tiles) -> None:
        """Begin a stream at its first state, an observation, (n_sensors,), and its tiles: estimate offsets there."""
        self._readout.following.begin()
        self.join(observation, tiles)
        if self._readout.lstd is not None:
            self._readout.lstd.begin()
        self._readout.mark_processed()

    def join(self, observation: Observation, tiles: Tiles) -> None:
        """Estimate offsets of demons without a reading; shapes are (n_sensors,) and (n_active,)."""
        readout = self._readout
        if readout.offsets.is_unread:
            if self._has_functions:
                self._write_values(observation, tiles, _nothing_predicted, terminated=False)
            channels = self._cumulants.channels(observation, reward=np.nan)
            readout.read(channels, is_first=True, is_last=False)
            readout.write_references()
        if readout.following.is_on:
            readout.following.join(observation)
        if readout.lstd is not None:
            readout.lstd.join(observation)

    def make(
        self,
        previous_state: AgentState,
        state: AgentState,
        predict_one: PredictOne,
        *,
        terminated: bool,
        reward: float = np.nan,
    ) -> int:
        """Compute the signals of a transition between two valid states, and return `finish_signals`' findings.

        `predict_one` returns a demon's prediction at a state, NaN if the demon diverged. Demons
        about a channel or the reward skip the step if its reading is missing (NaN).
        """
        channels = state[0]
        if self._cumulants.has_reward:
            channels = self._cumulants.channels(channels, reward)
        if self._has_functions:
            self._interest.write(*previous_state, self.interest)
            self._write_values(*state, predict_one, terminated=terminated)
            if self._cumulants.has_td_errors:
                self._write_td_errors(
                    previous_state, state, channels, predict_one, terminated=terminated
                )
        readout = self._readout
        offsets = readout.offsets
        is_end = offsets.is_on and (terminated or offsets.at_end)
        if is_end or offsets.is_moving or offsets.has_functions:
            readout.move(channels, terminated=terminated)
        inputs = (channels, previous_state[0], terminated)
        if self._finish is None:
            self._finish = bind(
                checks.finish_signals,
                pack(self.arrays),
                pack(readout.following.arrays),
                like=inputs,
            )
        findings = self._finish(*inputs)
        if self._interest.has_functions and not np.isfinite(self.interest).all():
            findings |= checks.BROKEN
        return int(findings)

    def _write_values(
        self,
        observation: Observation,
        tiles: Tiles,
        predict_one: PredictOne,
        *,
        terminated: bool,
    ) -> None:
        """Write the values of user functions and of other demons' predictions at the state reached."""
        arrays = self.arrays
        self._continuation.write(observation, tiles, arrays.gamma)
        self._lam.write(observation, tiles, arrays.lam)
        if terminated:  # continuations do not matter at the end of a stream
            np.nan_to_num(arrays.gamma, copy=False)
            np.nan_to_num(arrays.lam, copy=False)
        self._cumulants.write(observation, tiles, predict_one, arrays.c)
        self._outcome.write(observation, tiles, self._outcomes)

    def _write_td_errors(
        self,
        previous_state: AgentState,
        state: AgentState,
        channels: Observation,
        predict_one: PredictOne,
        *,
        terminated: bool,
    ) -> None:
        """Write the cumulants that are other demons' squared TD errors."""
        gamma = self.arrays.gamma[self._groups.group]
        if terminated:
            gamma = np.zeros(gamma.size)
        self._cumulants.write_td_errors(
            channels=channels,
            predict_one=predict_one,
            previous_state=previous_state,
            state=state,
            terms=ReturnTerms(gamma, self._outcomes),
            out=self.arrays.c,
        )

    def mark_skips(self, divergence: DivergenceMonitor, rho: Floats | None) -> dict[int, str]:
        """Mark demons with invalid signals as skipping; return those whose signals exceed the dtype's range.

        `rho` are the demons' ratios, (n_demons,), if one of them is invalid.
        """
        arrays = self.arrays
        group = self._groups.group
        numbers = {
            "cumulant": (arrays.c + arrays.reference)[arrays.cumulant],
            "outcome": self._outcomes,
        }
        if rho is not None:
            numbers["rho = pi(a)/b(a)"] = rho
        if self._interest.has_functions:
            numbers["interest"] = self.interest
        # Most of them are sound in most steps: also while a sensor is dead for months
        unsound: dict[str, Bools] = {}
        for what, values in numbers.items():
            is_unsound = ~(np.abs(values) <= arrays.max_finite)  # NaN is
            if is_unsound.any():
                unsound[what] = is_unsound
        beyond: dict[int, str] = {}
        in_range = np.ones(group.size, dtype=bool)  # a demon that diverges counts no gap
        for what, is_unsound in unsound.items():
            values = numbers[what]
            for demon in np.flatnonzero(is_unsound & np.isfinite(values)).tolist():
                beyond.setdefault(demon, f"its {what} was {values[demon]:.6g}")
                in_range[demon] = False
        for what, is_unsound in unsound.items():
            divergence.skip(is_unsound & in_range, what, numbers[what])
        for what, of_group, part in (
            ("continuation", arrays.gamma, self._continuation),
            ("lam", arrays.lam, self._lam),
        ):
            is_unknown = np.isnan(of_group)
            if is_unknown.any():
                values = of_group.copy()
                for g in np.flatnonzero(is_unknown):
                    values[g] = part.given[int(g)]  # the value outside [0, 1]
                divergence.skip(is_unknown[group] & in_range, what, values[group])
        return beyond


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


def check_features(questions: Sequence[GVF], n_features: int) -> None:
    """Raise ValueError if a policy or a continuation is made for another number of features than there are."""
    first_questions = {
        (id(question.target_policy), id(question.continuation)): question
        for question in reversed(questions)
    }
    for question in reversed(first_questions.values()):
        try:
            check_part(question.target_policy, n_features)
            check_part(question.continuation, n_features)
        except ValueError as error:
            raise ValueError(f"question {question.name!r}: {error}") from None
