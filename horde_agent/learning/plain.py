"""PlainEngine: the textbook algorithm. Every demon stores full weights and a full trace and updates them on each step.

It is the reference for tests of the span engine, and replaces it for the trace rule "capped", for
very long traces, and for other update rules (`kernels/rules`).

If step sizes have factors S (`learning/rarity.py`), it learns from the features sqrt(S) phi as any
rule does from phi, which is the same: with theta = sqrt(S) theta', w likewise, and e' = sqrt(S) e,

    theta' += alpha delta e'   is   theta += alpha S delta e,   and theta'.sqrt(S) phi = theta.phi

It stores theta', w', e' and m' = sqrt(S) m. If S changes, weights and traces stay, and these change.
"""

from __future__ import annotations

import copy
from collections.abc import Sequence
from typing import Any, ClassVar, Self

import numpy as np
from numpy.typing import NDArray

from horde_agent.kernels import control, plain
from horde_agent.kernels.checks import DEMON_DIVERGED, Signals
from horde_agent.kernels.plain import Demons, Phi
from horde_agent.kernels.rules import Rule, learn_all, rule
from horde_agent.kernels.trace_rules import next_lambda
from horde_agent.kernels.vectors import pack
from horde_agent.learning.engine import (
    LARGEST_STEP,
    NO_TILES,
    NO_VECTOR_ESTIMATE,
    SMALLEST_SHARED_WORK,
    DemonMapping,
    NumberName,
    WeightsName,
    check_weights,
    fault,
    max_finite,
    no_stream,
)
from horde_agent.learning.rarity import Rarity
from horde_agent.learning.rules import PAPER_CONFIG, LearnerConfig
from horde_agent.learning.span_storage import prefault
from horde_agent.learning.stored import DEMON, Field, Fields, Stored, Streams, fill
from horde_agent.saving import State
from horde_agent.types import Floats, Integers, Reals

_NUMBERS = (
    "prediction",
    "td_error",
    "error_sum",
    "error_square",
    "mspbe",
    "max_trace",
    "largest_gain",
    "gamma_t",
    "lam_t",
    "alpha",
    "alpha_w",
    "bound",
)  # of each


def new_demons(config: LearnerConfig, n_demons: int, n_weights: int, n_actions: int = 1) -> Demons:
    """Return demons of the config's rule with zero weights, traces and step sizes; arrays in the config's dtype."""
    update_rule = rule(config.algorithm)
    dtype = np.dtype(config.dtype)
    has_m = config.vector_mspbe and "w" in update_rule.vectors
    cap = np.inf
    if config.trace_rule == "capped":
        cap = 1.0
    return Demons(
        theta=np.zeros((n_demons, n_weights), dtype=dtype),
        vectors=np.zeros((len(update_rule.vectors), n_demons, n_weights), dtype=dtype),
        numbers=np.zeros((len(update_rule.numbers), n_demons)),
        m=np.zeros((n_demons * has_m, n_weights), dtype=dtype),
        average=np.zeros((n_demons * (config.average > 0.0), n_weights), dtype=dtype),
        alive=np.zeros(n_demons, dtype=bool),
        **{name: np.zeros(n_demons) for name in _NUMBERS},
        flagged=np.zeros(n_demons, dtype=bool),
        root=np.ones(n_weights * bool(config.rarity)),
        n_weights=len(update_rule.WEIGHTS),
        n_numbers=len(update_rule.NUMBERS),
        n_actions=n_actions,
        cap=cap,
        every_step=config.w_rule == "every-step",
        one_over_tau=1.0 / config.mspbe_tau,
        largest_step=LARGEST_STEP[config.dtype],
        max_finite=max_finite(dtype),
    )


class PlainEngine(Stored):
    """The plain engine: demons learn independently from one stream of features.

    Args:
        group: Trace group of each demon, shape (n_demons,), numbered from 0: the index of its gamma
            and lambda.
        n_features: Length n of the weight vectors.
        alpha, alpha_w: Primary and secondary step sizes, already divided by the number of active
            tiles: a number, or one per demon.
        config: The update rule and its options. Its step sizes are ignored.
        policy: Policy of each trace group, shape (n_groups,); by default one each.
        cumulant: Index of each demon's cumulant in the signals, shape (n_demons,); by default one
            each.
        n_actions: Number of actions if the rule finds policies: a demon then has n_actions n
            weights, and predicts the highest action value.

    Attributes:
        latest: theta.phi at the latest state, float64, shape (n_demons,).
        latest_averaged: theta_bar.phi there; 0 without averages.
        streams: What belongs to the other streams.

    Source: Maei (2011); White, Modayil & Sutton (2012). The equations: `kernels/rules/gtd.py`.
    """

    FIELDS: ClassVar[Fields] = {
        "_demons/theta": Field(DEMON, diverged=0.0, merge=np.mean),
        "_demons/vectors": Field(DEMON, at=1, diverged=0.0),  # each stream has its traces
        "_demons/numbers": Field(DEMON, at=1, diverged=0.0),  # and numbers of the trace
        "_weights": Field(is_carried=False, is_saved=False, merge=np.mean),
        "_kept_numbers": Field(is_carried=False, is_saved=False, merge=np.mean),
        "_demons/m": Field(DEMON, diverged=0.0, merge=np.mean),
        "_demons/average": Field(DEMON, diverged=0.0, merge=np.mean),
        "_demons/alive": Field(DEMON, diverged=False, of_stream=True),
        "_demons/prediction": Field(DEMON, diverged=0.0),
        "_demons/td_error": Field(DEMON, diverged=0.0),
        "_demons/error_sum": Field(DEMON, diverged=0.0, is_optional=True),
        "_demons/error_square": Field(DEMON, diverged=0.0, is_optional=True),
        "_demons/mspbe": Field(DEMON, diverged=0.0, merge=np.mean),
        "_demons/max_trace": Field(DEMON),
        "_demons/largest_gain": Field(DEMON, diverged=0.0),
        "_demons/gamma_t": Field(DEMON, of_stream=True),
        "_demons/lam_t": Field(DEMON, of_stream=True),
        "_demons/alpha": Field(DEMON, diverged=0.0),
        "_demons/alpha_w": Field(DEMON, diverged=0.0),
        "_demons/bound": Field(DEMON),
        "_demons/flagged": Field(DEMON),
        "_demons/root": Field(),
        "_is_diverged": Field(DEMON, diverged=True),
        "latest": Field(DEMON, diverged=0.0),
        "latest_averaged": Field(DEMON, diverged=0.0),
        "_tiles": Field(),  # each stream has its own
        "_n_steps": Field(),
    }
    streams: Streams
    n_waiting = 0
    can_merge = True

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
        n_actions: int = 1,
    ) -> None:
        group = np.asarray(group, dtype=np.int64)
        self._n_actions = n_actions
        self.config = config
        self.n_features = n_features
        self.dtype = np.dtype(config.dtype)
        self._parameters = config.rule_parameters
        self._n_steps = 0
        if policy is None:
            policy = np.arange(int(group.max()) + 1)
        if cumulant is None:
            cumulant = np.arange(group.size)
        self._packed: Any = None  # the arrays `_packed_of` in native form
        self._packed_of: Demons | None = None
        self._tiles: NDArray[Any] = NO_TILES  # of the current state
        self.streams = Streams()
        self._set_demons(group, policy, cumulant, alpha, alpha_w)
        self._phi = self._features(self._tiles)
        prefault(*(a.ravel() for a in (self._demons.theta, self._demons.vectors, self._demons.m)))

    def __getstate__(self) -> dict[str, Any]:
        """Return all attributes except addresses, which are invalid in a copy or another process."""
        return vars(self) | {"_packed": None, "_packed_of": None}

    @property
    def _native(self) -> Any:
        """The demons' arrays in native form."""
        if self._packed_of is not self._demons:
            self._packed = pack(self._demons)
            self._packed_of = self._demons
        return self._packed

    @property
    def _rule(self) -> Rule:
        """The update rule; not an attribute, because modules cannot be copied."""
        return rule(self.config.algorithm)

    @property
    def _n_threads(self) -> int:
        """Number of threads of a pass over all weights: one for few weights, otherwise all (0)."""
        return int(self._demons.theta.size < SMALLEST_SHARED_WORK)

    @property
    def stream(self) -> int:
        """Number of the selected stream."""
        return self.streams.selected

    def _set_demons(
        self,
        group: Integers,
        policy: Integers,
        cumulant: Integers,
        alpha: float | Floats,
        alpha_w: float | Floats,
    ) -> None:
        """Make new demons, with zero weights and traces."""
        self._group = group
        self._policy = policy
        self._cumulant = cumulant
        self.n_demons = group.size
        n_weights = self._n_actions * self.n_features
        self._demons = new_demons(self.config, self.n_demons, n_weights, self._n_actions)
        self._demons.alpha[:] = alpha
        self._demons.alpha_w[:] = alpha_w
        self._demons.bound[:] = max_finite(self.dtype)
        self._is_diverged = np.zeros(self.n_demons, dtype=bool)
        self.latest: Floats = np.zeros(self.n_demons)
        self.latest_averaged: Floats = np.zeros(self.n_demons)

    def _features(self, tiles: NDArray[Any]) -> Phi:
        """Return a feature vector from active features, integers, or from all values, shape (n_features,)."""
        if tiles.dtype.kind in "iu":
            feature = np.array(tiles, dtype=np.int64)
            value = np.ones(tiles.size)
            if self.config.rarity:
                value = self._demons.root[feature]
            return Phi(feature, value)
        return Phi(np.arange(self.n_features), np.array(tiles, dtype=np.float64))

    # ---- the stream -----------------------------------------------------------------------------

    def begin(self, tiles: NDArray[Any]) -> Floats:
        """Begin a stream: clear all traces, keep the weights, and return the predictions.

        Args:
            tiles: Active features, all different, int64, shape (n_active,), with a fixed n_active;
                or all feature values, float, shape (n_features,).
        """
        demons = self._demons
        demons.vectors[demons.n_weights :] = 0
        demons.numbers[demons.n_numbers :] = 0
        demons.alive[:] = False
        return self._move_to(tiles, self._features(tiles))

    def learn(self, tiles: NDArray[Any], signals: Signals, *, is_last: bool = False) -> Floats:
        """Learn from a transition, and return the predictions theta_{t+1}.phi_{t+1} at the latest completed step.

        A demon without a ratio, or with a signal that is not finite or exceeds the engine's dtype,
        skips the step: its trace is cleared, theta and w do not change, its estimates decay as if
        rho = 0, and its TD error is 0.

        Args:
            tiles: The state reached, as in `begin`, shape (n_active,).
            signals: The signals of the transition.
            is_last: True if the stream ends here: all continuations are then 0.

        Raises:
            RuntimeError: If the selected stream has not begun.
        """
        if not self._phi.feature.size:
            raise no_stream()
        phi = self._features(tiles)
        group = self._group
        n = self.n_demons
        b = float(signals.b_t[0])
        rho = signals.rho_t[self._policy[group]]
        lam = signals.lam_tp1[group]
        gamma = float(not is_last) * signals.gamma_tp1[group]
        values = (
            signals.c_tp1[self._cumulant],
            signals.z_tp1,
            np.full(n, signals.interest_t),
        )
        is_finite = np.logical_and.reduce(
            [np.abs(x) <= self._demons.max_finite for x in (gamma, lam, *values)]
        )
        has_rho = signals.has_rho
        if has_rho.size > 1:
            has_rho = has_rho[group]
        skips = ~(has_rho & is_finite) | self._is_diverged
        next_lam = next_lambda(self.config.trace_rule, self.config.trace_bound, lam, rho, b)
        of_demons = (rho, gamma, next_lam, *values)
        parts = (int(signals.action_t[0]), b, *of_demons)
        learn_all(
            self._parameters, self._native, self._phi, phi, skips, parts, n_threads=self._n_threads
        )
        self._check_some_demons()
        return self._move_to(tiles, phi)

    def _move_to(self, tiles: NDArray[Any], phi: Phi) -> Floats:
        """Make `tiles`, as in `begin`, with features `phi` the current state, and return the predictions there."""
        self._tiles = np.array(tiles)
        self._phi = phi
        return self._read_again()

    def _read_again(self) -> Floats:
        """Compute the predictions at the current state again, and return them."""
        self.latest = self._values(self._phi, self._demons.theta)
        self._demons.prediction[:] = self.latest
        if self._demons.average.size:
            self.latest_averaged = self._values(self._phi, self._demons.average)
        return self.latest

    def _check_some_demons(self) -> None:
        """Check the weights of n_demons / check_every demons, so that each is checked once in `check_every` steps."""
        step = self._n_steps % self.config.check_every
        n_steps = self.config.check_every
        first, last = (self.n_demons * k // n_steps for k in (step, step + 1))
        plain.look_for_unbounded(self._native, first, last, n_threads=self._n_threads)
        self._n_steps += 1

    def catch_up(self) -> None:
        """Do nothing: the plain engine queues no steps."""

    def work_ahead(self) -> None:
        """Do nothing: the plain engine writes each update in its own step."""

    def set_scales(self, rarity: Rarity) -> None:
        """Set the factors of the features' step sizes, and begin the largest gains again: `learning/rarity.py`."""
        if not self.config.rarity:
            return
        self.rescale(np.sqrt(rarity.scale_of[rarity.class_of]))
        self._demons.largest_gain[:] = 0.0

    def rescale(self, root: Floats) -> None:
        """Set sqrt(S), shape (n_features,); weights, traces and largest gains stay as they are."""
        demons = self._demons
        ratio = demons.root / root
        for weights in (demons.theta, demons.average, *self._weights):
            weights *= ratio.astype(self.dtype)
        stream_traces = [others["_demons/vectors"] for others in self.streams.others.values()]
        for traces in (demons.m, *demons.vectors[demons.n_weights :], *stream_traces):
            traces /= ratio.astype(self.dtype)
        demons.root[:] = root
        self._phi = self._features(self._tiles)

    def _of_features(self, weights: Reals) -> Reals:
        """Return weights, (..., n_features), from their stored form."""
        if not self.config.rarity:
            return weights
        return weights * self._demons.root.astype(self.dtype)

    def _trace_of_features(self, traces: Reals) -> Reals:
        """Return traces, (..., n_features), from their stored form."""
        if not self.config.rarity:
            return traces
        return traces / self._demons.root.astype(self.dtype)

    # ---- reading: nothing here changes what is learned ------------------------------------------

    def predict(self, tiles: NDArray[Any], weights: WeightsName = "theta") -> Floats:
        """Return theta.phi or average.phi of all demons at `tiles`, float64, shape (n_demons,)."""
        return self._values(self._features(tiles), getattr(self._demons, weights))

    def _values(self, phi: Phi, theta: Reals) -> Floats:
        """Return the predictions of some weights, (n_demons, n_weights), float64, shape (n_demons,)."""
        out = np.empty(self.n_demons)
        control.predict(theta, self._n_actions, phi, out, n_threads=self._n_threads)
        return out

    def predict_one(self, demon: int, tiles: NDArray[Any], weights: WeightsName = "theta") -> float:
        """Return one demon's theta.phi or average.phi at `tiles`, (n_active,)."""
        if self._n_actions > 1:
            return float(self.predict(tiles, weights)[demon])
        phi = self._features(tiles)
        of_demon = getattr(self._demons, weights)[demon]
        return float(of_demon[phi.feature].astype(np.float64) @ phi.value)

    def action_values(self, demon: int, tiles: NDArray[Any]) -> Floats:
        """Return one demon's theta.phi(s, a) at `tiles`, (n_active,), for each action, shape (n_actions,)."""
        out = np.empty(self._n_actions)
        control.action_values(self._demons.theta[demon], self._features(tiles), out)
        return out

    # ---- averaged weights -----------------------------------------------------------------------

    def move_averages(self, rates: Floats) -> None:
        """Move the averaged weights toward theta, by a rate for each demon, shape (n_demons,)."""
        average = self._demons.average
        change = self._demons.theta - average
        change *= rates.astype(self.dtype)[:, None]
        average += change
        self._read_again()

    def numbers(self, name: NumberName) -> Floats:
        """Return a number of each demon, shape (n_demons,): `EngineResults.numbers`."""
        if name == "mspbe" and "w" not in self._rule.vectors:
            return np.full(self.n_demons, np.nan)
        return np.array(getattr(self._demons, name))

    def pop_errors(self) -> Floats:
        """Return the sums of rho delta and rho delta^2, shape (2, n_demons), and set them to 0: `Engine.pop_errors`."""
        sums = np.stack([self._demons.error_sum, self._demons.error_square])
        self._demons.error_sum[:] = 0.0
        self._demons.error_square[:] = 0.0
        return sums

    def rows(self, *names: str, demons: Integers | None = None) -> tuple[Reals, ...]:
        """Return copies of arrays, each (n, n_features), of demons (n,) or all: `EngineResults.rows`."""
        arrays = [self._row(name) for name in names]
        if demons is not None:
            arrays = [array[demons] for array in arrays]
        return tuple(arrays)

    def _row(self, name: str) -> Reals:
        """Return a copy of an array of all demons, (n_demons, n_features)."""
        demons = self._demons
        if name in ("theta", "average"):
            return self._of_features(getattr(demons, name).copy())
        if name == "m":
            if not demons.m.size:
                raise ValueError(NO_VECTOR_ESTIMATE)
            return self._trace_of_features(demons.m.copy())
        vectors = self._rule.vectors
        if name == "w" and name not in vectors:
            return np.zeros_like(demons.theta)
        if name not in vectors:
            raise ValueError(f"algorithm {self.config.algorithm!r} has no vector {name!r}")
        number = vectors.index(name)
        values = np.asarray(demons.vectors[number]).copy()
        if number < demons.n_weights:
            return self._of_features(values)
        return self._trace_of_features(values)

    def mspbe_vector(self) -> Floats:
        """Return the vector MSPBE estimate m.w, shape (n_demons,): NaN without w; raise ValueError without m."""
        if "w" not in self._rule.vectors:
            return np.full(self.n_demons, np.nan)
        return np.asarray(np.einsum("df,df->d", *self.rows("m", "w"), dtype=np.float64))

    # ---- diverged demons ------------------------------------------------------------------------

    @property
    def flags(self) -> int:
        """DEMON_DIVERGED if a demon diverged, otherwise 0."""
        return DEMON_DIVERGED * bool(self._demons.flagged.any())

    def pop_diverged(self) -> dict[int, str]:
        """Return the demons that diverged since the last call, with the reason: not finite, or above a bound."""
        arrays = self._demons
        reasons = dict[int, str]()
        for i in np.flatnonzero(arrays.flagged & ~self._is_diverged).tolist():
            numbers = (
                float(a[i])
                for a in (arrays.prediction, arrays.mspbe, arrays.td_error, arrays.bound)
            )
            m = arrays.m
            if arrays.m.size:
                m = arrays.m[i]
            theta = self._of_features(arrays.theta[i])
            reasons[i] = fault(theta, arrays.vectors[:, i].ravel(), m, *numbers)
        arrays.flagged[:] = False
        return reasons

    def set_bounds(self, bound: Floats) -> None:
        """Set the |theta| above which a demon has diverged, shape (n_demons,)."""
        self._demons.bound[:] = np.minimum(bound, self._demons.max_finite)

    def reset_weights(self, theta: Reals | None = None) -> None:
        """Set theta, (n_demons, n_features), by default to zero, to measure recovery; w and traces do not change.

        Raises:
            ValueError: If `theta` has another shape, or exceeds the range of the engine's dtype.

        Source: White, Modayil & Sutton (2012), section 6: theta := 0 after 40,000 steps.
        """
        self._demons.theta[:] = 0
        if theta is not None:
            check_weights(theta, self._demons.theta.shape, self.dtype)
            self._demons.theta[:] = np.where(self._is_diverged[:, None], 0.0, theta)
            if self.config.rarity:
                self._demons.theta[:] /= self._demons.root
        if self._demons.average.size:
            self._demons.average[:] = self._demons.theta
        self._read_again()

    # ---- several streams ------------------------------------------------------------------------

    def select_stream(self, stream: int) -> None:
        """Learn from another stream from now on, by its number from 0; at its first selection it has not begun.

        Each stream has its own traces and current state. Weights, MSPBE estimates, and numbers of
        the rule that a gap keeps belong to all: learning continues from the weights that the other
        streams have left.
        """
        if stream == self.stream:
            return
        arrays = self.of_stream()
        entering = self.streams.exchange(stream, arrays | {"_tiles": self._tiles})
        fill(arrays, entering)
        tiles = entering.get("_tiles", NO_TILES)
        self._move_to(tiles, self._features(tiles))

    def of_stream(self) -> State:
        """Return views of the arrays that belong to the selected stream; tiles are of any number, and not here."""
        demons = self._demons
        traces = {
            "_demons/vectors": demons.vectors[demons.n_weights :],
            "_demons/numbers": demons.numbers[demons.n_numbers :],
        }
        return super().of_stream() | traces

    @property
    def _weights(self) -> Reals:
        """The rule's weights beside theta, shape (k, n_demons, n_weights): a part of the vectors."""
        return self._demons.vectors[: self._demons.n_weights]

    @property
    def _kept_numbers(self) -> Floats:
        """The rule's numbers that a gap keeps, shape (j, n_demons): a part of the numbers."""
        return self._demons.numbers[: self._demons.n_numbers]

    def merge(self, others: Sequence[Self]) -> None:
        """Give several engines the mean of their weights and MSPBE estimates; traces stay separate."""
        if self.config.rarity:
            for engine in others:
                engine.rescale(self._demons.root)
        super().merge(others)
        for engine in (self, *others):
            engine._read_again()

    # ---- adding and removing demons -------------------------------------------------------------

    def rearrange(self, mapping: DemonMapping) -> None:
        """Add and remove demons. Remaining demons keep their weights, traces and estimates.

        New demons start at the current state with zero weights and traces.
        """
        earlier_engine = copy.copy(self)
        cumulant = mapping.cumulant
        if cumulant is None:
            cumulant = np.arange(mapping.group.size)
        self._set_demons(mapping.group, mapping.policy, cumulant, mapping.alpha, mapping.alpha_w)
        self.carry_over(earlier_engine, {DEMON: mapping.old_index})

    # ---- state ----------------------------------------------------------------------------------

    def restore(self, state: State) -> None:
        """Restore a state from an engine with the same arguments and the same calls of `rearrange`."""
        super().restore(state)
        self._phi = self._features(self._tiles)

    def to_plain(self) -> PlainEngine:
        """Return this engine: it stores traces of any length."""
        return self

    def take_over(
        self, learned: dict[str, Reals], is_diverged: NDArray[np.bool_], tiles: Integers
    ) -> None:
        """Continue at `tiles`, (n_active,), from another engine's arrays, by name: `SpanEngine.to_plain`."""
        demons = self._demons
        names = self._rule.vectors
        for name, numbers in learned.items():
            if name in names:
                array = demons.vectors[names.index(name)]
            else:
                array = getattr(demons, name)
            if array.size:
                array[:] = numbers
                if self.config.rarity and name in ("theta", "average", *self._rule.WEIGHTS):
                    array /= demons.root.astype(self.dtype)
                elif self.config.rarity and name in ("m", *self._rule.TRACES):
                    array *= demons.root.astype(self.dtype)
        demons.alive[:] = learned["e"].any(axis=1)
        self._is_diverged[:] = is_diverged
        self._tiles = tiles
        self._phi = self._features(tiles)
        self.latest = demons.prediction.copy()
        if demons.average.size:
            self.latest_averaged = self._values(self._phi, demons.average)
