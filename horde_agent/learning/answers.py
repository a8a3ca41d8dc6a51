"""What a Horde can be asked: predictions, errors, estimates, weights, who was set aside. Nothing is learned by asking.

Where steps were only noted, they are taken first, so that every answer is that of the latest step.
"""

from __future__ import annotations

import hashlib
from abc import ABC, abstractmethod
from typing import Any

import numpy as np
from numpy.typing import NDArray

from horde_agent.kernels import checks
from horde_agent.learning.engine import Engine, TailBounds
from horde_agent.learning.gibbs import GibbsTable
from horde_agent.learning.rules import LearnerConfig
from horde_agent.learning.soundness import Soundness
from horde_agent.measures.rupee import RUPEE

Floats = NDArray[np.float64]
Integers = NDArray[np.int64]


class Answers(ABC):
    """The half of `Horde` that is asked."""

    config: LearnerConfig
    _engine: Engine
    _rupee: RUPEE | None
    _table: GibbsTable | None  # the policies that the engine asks itself
    _told: checks.Told
    _group: Integers  # of each demon
    _policy: Integers  # of each group
    _n_sound: Integers  # demons of each group that are not set aside
    _soundness: Soundness
    _n_steps: int  # since the demons were told anew
    _totals_before: Floats  # of each policy, since demons came or went, but for what the arrays told count
    _totals_carried: Floats  # of each demon, from before demons came or went

    @abstractmethod
    def catch_up(self) -> None:
        """Take the steps that were only noted so far; in eager mode there are none."""

    @property
    def predictions(self) -> Floats:
        """Predictions of all demons at the latest state, float64, shape (n_demons,)."""
        self.catch_up()
        return self._engine.latest

    @property
    def td_error(self) -> Floats:
        """TD errors of the last step, shape (n_demons,)."""
        self.catch_up()
        return self._engine.td_error

    @property
    def rho(self) -> Floats:
        """Importance sampling ratios of the last step, shape (n_demons,)."""
        self.catch_up()
        return self._ratios[self._policy[self._group]]

    @property
    def _ratios(self) -> Floats:
        """Those of each policy, shape (n_policies,)."""
        ratios = self._told.ratios.copy()
        if self._table is not None and self._n_steps:
            ratios[self._table.position] = self._table.latest
        return ratios

    def ratio_totals(self) -> Floats:
        """Return what each demon's ratios added up to since it came, shape (3, n_demons).

        The rows are the number of steps with rho > 0, the sum of rho and the sum of its squares.
        """
        self.catch_up()
        return self._totals_carried + self._totals[:, self._policy[self._group]]

    @property
    def _totals(self) -> Floats:
        """Those of each policy, shape (3, n_policies)."""
        totals, counted = self._totals_before.copy(), self._told.totals
        totals[:, : counted.shape[1]] += counted
        if self._table is not None:
            totals[checks.N_POSITIVE, self._table.position] += self._n_steps
            totals[checks.SUM :, self._table.position] += self._table.totals
        return totals

    @property
    def n_updated(self) -> int:
        """Demons that learned in the last step: those with rho > 0 that are not set aside, and for whom it was no gap.

        A Gibbs policy's rho always is above 0.
        """
        is_positive, sound = self._told.ratios[self._policy] > 0, self._soundness
        n = int(self._n_sound[is_positive].sum())
        return n - int(np.count_nonzero(is_positive[self._group] & sound.is_skipping)) if sound.somebody_skips else n

    @property
    def max_trace(self) -> float:
        """Largest |e| so far, of all demons."""
        return float(self.max_traces.max())

    @property
    def max_traces(self) -> Floats:
        """Largest |e| so far of each demon, shape (n_demons,)."""
        self.catch_up()
        return self._engine.max_trace

    @property
    def diverged(self) -> list[str]:
        """Names of the demons that were set aside."""
        self.catch_up()
        return list(self._soundness.reasons)

    @property
    def set_aside_because(self) -> dict[str, str]:
        """Why each demon was set aside and at which learning step that was noticed, by name."""
        self.catch_up()
        return dict(self._soundness.reasons)

    @property
    def n_skipped(self) -> Integers:
        """Steps that each demon skipped, shape (n_demons,): of the ones told so far, those that were gaps for it alone.

        That is a step on which its cumulant, outcome, continuation, trace decay or rho was not a number, or a
        continuation or trace decay outside [0, 1]. Its trace is cleared and its weights stand. However many these are,
        it is not set aside for them. The cumulant of a demon about one that was set aside is none either.
        """
        return self._soundness.n_skipped.copy()

    @property
    def skipped_because(self) -> dict[str, str]:
        """How often each demon skipped a step, and why the first time, by name; those that never did are left out."""
        return self._soundness.skipped_because()

    @property
    def mspbe_scalar(self) -> Floats:
        """Scalar MSPBE estimates s, signed, shape (n_demons,): s += (delta (e.w) - s) / tau."""
        self.catch_up()
        return self._engine.mspbe_scalar

    def mspbe_vector(self) -> Floats:
        """Return the vector MSPBE estimates m.w, shape (n_demons,): m += (delta e - m) / tau.

        Raises:
            ValueError: If `config.vector_mspbe` is False.
        """
        self.catch_up()
        return self._engine.mspbe_vector()

    def mspbe_trace(self) -> NDArray[Any]:
        """Return a copy of m, the trace of delta e in the vector estimate, (n_demons, n_features), the learner's dtype.

        Raises:
            ValueError: If `config.vector_mspbe` is False.
        """
        if not self.config.vector_mspbe:
            raise ValueError("this Horde keeps no vector MSPBE estimate: set vector_mspbe=True in its LearnerConfig")
        self.catch_up()
        return self._engine.mspbe_trace()

    def tail_bounds(self) -> TailBounds:
        """Return what dropping the tails of traces may have changed so far, three bounds for each demon."""
        self.catch_up()
        return self._engine.tail_bounds()

    def rupee(self) -> Floats:
        """Return the RUPEE of each demon, an error estimate made without w, shape (n_demons,); see `measures.RUPEE`.

        It is as in White (2015): alpha_h = 5 alpha. Its engine is told every TD error, so that a deferred Horde that
        keeps RUPEE takes each step when it comes.

        Raises:
            ValueError: If `config.rupee_beta0` is 0.
        """
        if self._rupee is None:
            raise ValueError("this Horde keeps no RUPEE: set rupee_beta0 in its LearnerConfig")
        self.catch_up()
        return self._rupee.value()

    def weights(self) -> tuple[NDArray[Any], NDArray[Any]]:
        """Return copies of theta and w, each (n_demons, n_features), in the learner's dtype."""
        self.catch_up()
        return self._engine.weights()

    def weights_sha256(self) -> str:
        """Return the SHA-256 of theta, then w: little-endian, C order (demon, feature), in the learner's dtype."""
        digest = hashlib.sha256()
        for array in self.weights():
            digest.update(np.ascontiguousarray(array, dtype=array.dtype.newbyteorder("<")).tobytes())
        return digest.hexdigest()
