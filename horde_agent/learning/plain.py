"""PlainEngine: the textbook. Every demon has its weights and its trace in full, and takes each step by its rule.

It is the reference that the span engine is held against, and what learns where that cannot: under the trace rule
"capped", with traces that reach back very far, and by any other update rule (`kernels/rules`). A step costs some passes
over all features of each demon that learns.
"""

from __future__ import annotations

from collections.abc import Sequence
from types import ModuleType
from typing import Any

import numpy as np
from numpy.typing import NDArray

from horde_agent.kernels import plain
from horde_agent.kernels.checks import SOMEBODY_IS_FLAGGED, Signals
from horde_agent.kernels.plain import Demons, DemonSignals, Phi
from horde_agent.kernels.rules import rule
from horde_agent.learning.engine import LARGEST_STEP, SMALLEST_SHARED_WORK, Patient, check_weights, max_finite
from horde_agent.learning.layout import DemonMapping, touch
from horde_agent.learning.rules import PAPER_CONFIG, LearnerConfig
from horde_agent.saving import State, gathered, scattered
from horde_agent.types import Floats, Integers, Reals

_NUMBERS = ["prediction", "td_error", "mspbe", "max_trace", "gamma_t", "lam_t", "alpha", "alpha_w", "bound"]  # of each


class PlainEngine:
    """Demons that share one stream of features, each learning by itself: the plain engine.

    Args:
        group: Trace group of each demon, shape (n_demons,), numbered from 0: whose gamma and lambda it is told.
        n_features: Length n of the weight vectors.
        alpha, alpha_w: Primary and secondary step sizes, already divided by the number of active tiles: a number, or
            one per demon.
        config: The update rule, and its choices. Its step sizes are not read here.
        policy: Policy of each trace group, shape (n_groups,); its own unless given.
        cumulant: Which of the cumulants that are told each demon sums, shape (n_demons,); its own unless given.

    Attributes:
        latest: Predictions at the latest state, float64, shape (n_demons,).

    Source: Maei (2011); White, Modayil & Sutton (2012). The equations: `kernels/rules/gtd.py`.
    """

    n_waiting = 0

    def __init__(
        self,
        group: Integers,
        n_features: int,
        alpha: float | Floats,
        alpha_w: float | Floats,
        config: LearnerConfig = PAPER_CONFIG,
        *,
        policy: Integers | None = None,
        cumulant: Integers | None = None,
    ) -> None:
        group = np.asarray(group, dtype=np.int64)
        self.config, self.n_features, self.dtype = config, n_features, np.dtype(config.dtype)
        self._n_steps = 0
        policy = np.arange(int(group.max()) + 1) if policy is None else policy
        self._seat(group, policy, np.arange(group.size) if cumulant is None else cumulant)
        self._demons = self._allocate(self.n_demons)
        touch(*(a.ravel() for a in (self._demons.theta, self._demons.vectors, self._demons.m)))
        self._demons.alpha[:], self._demons.alpha_w[:], self._demons.bound[:] = alpha, alpha_w, max_finite(self.dtype)
        self._is_aside = np.zeros(self.n_demons, dtype=bool)
        self._phi = self._features(np.zeros(0, dtype=np.int64))
        self.latest: Floats = np.zeros(self.n_demons)

    @property
    def _rule(self) -> ModuleType:
        """The update rule: a module, which would go into no copy."""
        return rule(self.config.algorithm)

    @property
    def _n_threads(self) -> int:
        """Threads that share a pass over all weights: one where they are few, else all (0)."""
        return int(self._demons.theta.size < SMALLEST_SHARED_WORK)

    def _seat(self, group: Integers, policy: Integers, cumulant: Integers) -> None:
        """Note who is told what."""
        self.n_demons, self._group, self._policy, self._cumulant = group.size, group, policy, cumulant

    def _allocate(self, n_demons: int) -> Demons:
        """Return demons that know nothing."""
        n, config = self.n_features, self.config
        return Demons(
            theta=np.zeros((n_demons, n), dtype=self.dtype),
            vectors=np.zeros((len(self._rule.VECTORS), n_demons, n), dtype=self.dtype),
            m=np.zeros((n_demons if config.vector_mspbe else 0, n), dtype=self.dtype),
            alive=np.zeros(n_demons, dtype=bool),
            **{name: np.zeros(n_demons) for name in _NUMBERS},
            flagged=np.zeros(n_demons, dtype=bool),
            clips=config.trace_rule == "clipped",
            cap=1.0 if config.trace_rule == "capped" else np.inf,
            every_step=config.w_rule == "every-step",
            one_over_tau=1.0 / config.mspbe_tau,
            largest_step=LARGEST_STEP[config.dtype],
            max_finite=max_finite(self.dtype),
        )

    def _features(self, tiles: NDArray[Any]) -> Phi:
        """Return a feature vector: from the features that are 1, whole numbers, or from all values, (n_features,)."""
        if tiles.dtype.kind in "iu":
            return Phi(np.array(tiles, dtype=np.int64), np.ones(tiles.size))
        return Phi(np.arange(self.n_features), np.array(tiles, dtype=np.float64))

    # ---- the stream -------------------------------------------------------------------------------------------------

    def begin(self, tiles: NDArray[Any], gamma: Any = None, lam: Any = None) -> Floats:  # noqa: ARG002 - decay nothing
        """Start a stream at `tiles`, (n_active,), with every trace at zero: `Engine.begin`."""
        demons = self._demons
        if "e" in self._rule.VECTORS:
            demons.vectors[self._rule.VECTORS.index("e"), demons.alive] = 0
        demons.alive[:] = False
        return self._arrive(self._features(tiles))

    def learn(self, tiles: NDArray[Any], signals: Signals, *, is_last: bool = False) -> Floats:
        """Learn from the transition to `tiles`, (n_active,): `Engine.learn`."""
        phi, group = self._features(tiles), self._group
        told = (
            signals.rho_t[self._policy[group]],
            (0.0 if is_last else 1.0) * signals.gamma_tp1[group],
            signals.lam_tp1[group],
            signals.c_tp1[self._cumulant],
            signals.z_tp1,
        )
        is_finite = np.logical_and.reduce([np.abs(numbers) <= self._demons.max_finite for numbers in told])
        skips = ~is_finite | self._is_aside
        self._rule.learn_all(self._demons, DemonSignals(*told, skips), self._phi, phi, n_threads=self._n_threads)
        self._look_after()
        return self._arrive(phi)

    def _arrive(self, phi: Phi) -> Floats:
        """Make `phi` the present feature vector, and predict there."""
        self._phi, self.latest = phi, np.empty(self.n_demons)
        plain.predict(self._demons.theta, phi, self.latest, n_threads=self._n_threads)
        self._demons.prediction[:] = self.latest
        return self.latest

    def _look_after(self) -> None:
        """Look a few demons over on each step: each once in `check_every` steps."""
        at, every = self._n_steps % self.config.check_every, self.config.check_every
        first, last = (self.n_demons * k // every for k in (at, at + 1))
        plain.look_for_unbounded(self._demons, first, last, n_threads=self._n_threads)
        self._n_steps += 1

    def catch_up(self) -> None:
        """Do nothing: each step is taken when it comes."""

    # ---- what it is asked: nothing of it changes what is learned ----------------------------------------------------

    def predict(self, tiles: NDArray[Any]) -> Floats:
        """Return theta.phi of all demons at `tiles`, float64, shape (n_demons,)."""
        out = np.empty(self.n_demons)
        plain.predict(self._demons.theta, self._features(tiles), out, n_threads=self._n_threads)
        return out

    def predict_one(self, demon: int, tiles: NDArray[Any]) -> float:
        """Return one demon's prediction at `tiles`, (n_active,)."""
        phi = self._features(tiles)
        return float(self._demons.theta[demon, phi.feature].astype(np.float64) @ phi.value)

    @property
    def td_error(self) -> Floats:
        """TD errors of the last step, shape (n_demons,)."""
        return self._demons.td_error.copy()

    @property
    def mspbe_scalar(self) -> Floats:
        """Scalar MSPBE estimate, signed, shape (n_demons,)."""
        return self._demons.mspbe.copy()

    @property
    def max_trace(self) -> Floats:
        """Largest |e| so far, shape (n_demons,)."""
        return self._demons.max_trace.copy()

    def mspbe_vector(self) -> Floats:
        """Return the vector MSPBE estimate m.w, shape (n_demons,); ValueError where m or w is not kept."""
        return np.asarray(np.einsum("df,df->d", self.mspbe_trace(), self._vector("w"), dtype=np.float64))

    def mspbe_trace(self) -> Reals:
        """Return a copy of m, shape (n_demons, n_features)."""
        if not self.config.vector_mspbe:
            raise ValueError("this learner keeps no vector MSPBE estimate: set vector_mspbe=True in its LearnerConfig")
        return self._demons.m.copy()

    def weights(self, demons: Integers | None = None) -> tuple[Reals, Reals]:
        """Return copies of theta and w of some demons, (n,), or all, each (n, n_features), in the engine's dtype."""
        theta, w = self._demons.theta.copy(), self._vector("w")
        return (theta, w) if demons is None else (theta[demons], w[demons])

    def traces(self) -> Reals:
        """Return a copy of every demon's e, shape (n_demons, n_features)."""
        return self._vector("e")

    def _vector(self, name: str) -> Reals:
        """Return a copy of one of the rule's vectors."""
        if name not in self._rule.VECTORS:
            raise ValueError(f"the update rule {self.config.algorithm!r} keeps no {name}")
        return np.asarray(self._demons.vectors[self._rule.VECTORS.index(name)]).copy()

    # ---- demons set aside -------------------------------------------------------------------------------------------

    @property
    def flags(self) -> int:
        """SOMEBODY_IS_FLAGGED where demons are flagged, else 0."""
        return SOMEBODY_IS_FLAGGED * bool(self._demons.flagged.any())

    def newly_broken(self) -> dict[int, str]:
        """Return the demons flagged since they were last asked for, and what is wrong: not finite, or past a bound."""
        flagged = np.flatnonzero(self._demons.flagged & ~self._is_aside)
        self._demons.flagged[:] = False
        return {demon: self._ailment(demon) for demon in flagged.tolist()}

    def _ailment(self, i: int) -> str:
        """Say what is wrong with a demon that was flagged."""
        of = self._demons
        m = of.m[i] if of.m.size else np.zeros(0)
        numbers = (float(a[i]) for a in (of.prediction, of.mspbe, of.td_error, of.bound))
        return Patient(of.theta[i], of.vectors[0, i], m, *numbers).ailment()

    def set_aside(self, demon: int) -> None:
        """Freeze one demon's weights at zero for good; its siblings are not touched."""
        of = self._demons
        of.theta[demon], of.vectors[:, demon] = 0, 0
        if of.m.size:
            of.m[demon] = 0
        for numbers in (of.prediction, of.td_error, of.mspbe, of.alpha, of.alpha_w):
            numbers[demon] = 0.0
        self._is_aside[demon], of.alive[demon], self.latest[demon] = True, False, 0.0

    def set_bounds(self, bound: Floats) -> None:
        """Set the |theta| past which a demon is flagged, shape (n_demons,)."""
        self._demons.bound[:] = np.minimum(bound, self._demons.max_finite)

    def reset_weights(self, theta: Reals | None = None) -> None:
        """Set theta, (n_demons, n_features), to zero unless given: `Engine.reset_weights`."""
        self._demons.theta[:] = 0
        if theta is not None:
            check_weights(theta, self._demons.theta.shape, self.dtype)
            self._demons.theta[:] = np.where(self._is_aside[:, None], 0.0, theta)
        self._arrive(self._phi)

    # ---- several streams ----------------------------------------------------------------------------------------

    def merge(self, others: Sequence[PlainEngine]) -> None:
        """Set theta, the rule's other weights and the MSPBE estimates of all of these engines to their mean.

        Traces, and what decays them, stay each one's own.
        """
        engines = (self, *others)
        for alike in zip(*(engine._learned() for engine in engines), strict=True):
            mean = np.add.reduce(alike) / len(engines)
            for array in alike:
                array[:] = mean
        for engine in engines:
            engine._arrive(engine._phi)

    def know(self, other: PlainEngine) -> None:
        """Know what another engine of the same demons does; traces stay."""
        for own, learned in zip(self._learned(), other._learned(), strict=True):
            own[:] = learned

    def _learned(self) -> list[NDArray[Any]]:
        """Return the arrays of what was learned, which are all but traces and what was last seen."""
        of, names = self._demons, self._rule.VECTORS
        return [of.theta, of.m, of.mspbe, *(of.vectors[k] for k in range(len(names)) if names[k] != "e")]

    # ---- demons that come and go ------------------------------------------------------------------------------------

    def rearrange(self, mapping: DemonMapping) -> None:
        """Go on with other demons. What those that stay have learned, their traces and their estimates go with them.

        Newcomers begin at the present with nothing learned and no trace.
        """
        before, old_index, is_new = self._demons, mapping.old_index[~mapping.is_new], mapping.is_new
        cumulant = np.arange(mapping.group.size) if mapping.cumulant is None else mapping.cumulant
        self._seat(mapping.group, mapping.policy, cumulant)
        self._demons = after = self._allocate(self.n_demons)
        after.vectors[:, ~is_new] = before.vectors[:, old_index]
        for name in ("theta", "m", "alive", "flagged", *_NUMBERS):
            if getattr(after, name).size:
                getattr(after, name)[~is_new] = getattr(before, name)[old_index]
        after.alpha[is_new], after.alpha_w[is_new], after.bound[is_new] = (
            mapping.alpha,
            mapping.alpha_w,
            max_finite(self.dtype),
        )
        self._is_aside = ~is_new & self._is_aside[mapping.old_index]
        self.latest = np.where(is_new, 0.0, self.latest[mapping.old_index])

    # ---- stopping, and going on from there --------------------------------------------------------------------------

    def state(self) -> State:
        """Return copies of all that this engine's future depends on, by name."""
        return gathered(self, ("_group", "_policy", "_cumulant"))

    def restore(self, state: State) -> None:
        """Go on from what `state` returned, of an engine that was made, and rearranged, in the same way."""
        scattered(self, state)

    def take_over(self, learned: dict[str, Reals], is_aside: NDArray[np.bool_], tiles: Integers) -> None:
        """Go on at `tiles`, (n_active,), from what another engine has learned, by name: see `SpanEngine.in_full`."""
        of, names = self._demons, self._rule.VECTORS
        for name, numbers in learned.items():
            into = of.vectors[names.index(name)] if name in names else getattr(of, name)
            if into.size:
                into[:] = numbers
        of.gamma_t[:], of.lam_t[:], of.alive[:] = 1.0, 1.0, learned["e"].any(axis=1)
        self._is_aside[:], self._phi, self.latest = is_aside, self._features(tiles), of.prediction.copy()
