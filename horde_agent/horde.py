"""Horde: many demons, each learning the answer to one question, all from one stream of experience.

    horde = Horde(questions, n_features=6065, n_active=457)
    horde.begin(observation, tiles)
    while alive:
        ...take an action drawn with `probability`...
        predictions = horde.learn(action, probability, observation, tiles)

The Horde holds phi_t between calls and turns questions into numbers; an engine behind it learns. Where no prediction is
needed on each step, `mode="deferred"` learns the same for a part of the cost: steps are only noted, and taken many at a
time, or as soon as anything is asked of the Horde.

Source: Sutton et al. (2011), Horde; White, Modayil & Sutton (2012).
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from horde_agent.gvf import GVF
from horde_agent.kernels import checks
from horde_agent.kernels.gtd import Signals
from horde_agent.learner import PAPER_CONFIG, Engine, GTDLambda, LearnerConfig
from horde_agent.signals import Cumulants, PolicyTable, StateValues, identity, number
from horde_agent.span import SpanGTD

__all__ = ["Horde", "LearnerConfig", "Mode"]

Mode = Literal["eager", "deferred"]

Floats = NDArray[np.float64]
Tiles = NDArray[np.int64]

# A weight past 1e3 r_max x min(1/(1 - gamma), 1e3) is one that no answer can need (r_max: largest cumulant so far).
_BOUND_SCALE, _LONGEST_HORIZON = 1e3, 1e3
_BATCHES = {"eager": 1, "deferred": 64}  # steps


class Horde:
    """The demons that answer `questions` from shared tiles.

    Args:
        questions: The questions; their names must differ.
        n_features: Number of features.
        n_active: Number of active features in each state; `config.step_size` is divided by it.
        config: How they learn.
        mode: "eager": each step is taken when it comes. "deferred": steps are noted and taken up to 64 at a time. What
            is learned, and every answer, is the same but for rounding; only the return values of `learn` are late. A
            demon that diverges is noticed at the end of its batch. The plain engine is always eager.

    Attributes:
        questions, names, n_demons: The questions, their names, their number.

    Raises:
        ValueError: If there is no question, two have one name, or one does not fit the others or the features.
    """

    def __init__(
        self,
        questions: Sequence[GVF],
        *,
        n_features: int,
        n_active: int,
        config: LearnerConfig = PAPER_CONFIG,
        mode: Mode = "eager",
    ) -> None:
        if mode not in ("eager", "deferred"):
            raise ValueError(f'mode must be "eager" or "deferred", not {mode!r}')
        self.questions = tuple(questions)
        self.names = [gvf.name for gvf in self.questions]
        self.n_demons = len(self.questions)
        self.config, self.n_features, self.n_active = config, n_features, n_active
        self._check_construction()
        keys = [(identity(q.target_policy), identity(q.continuation), identity(q.lam)) for q in self.questions]
        self._group, firsts = number(keys)
        leaders = [self.questions[i] for i in firsts]
        self._policy, policy_firsts = number([identity(q.target_policy) for q in leaders])
        self._policies = PolicyTable([leaders[i].target_policy for i in policy_firsts], n_features)
        self._continuation = StateValues([q.continuation for q in leaders], 0.0, 1.0)
        self._lam = StateValues([q.lam for q in leaders], 0.0, 1.0)
        self._outcome = StateValues([q.outcome for q in self.questions], -np.inf, np.inf)
        self._cumulants = Cumulants(self.questions, n_features)
        alpha = config.step_size / n_active
        alpha_w = config.secondary_ratio * alpha
        # The trace rule "capped" works entry by entry: it is no sum of past feature vectors.
        self._engine: Engine = (
            GTDLambda(self._group, n_features, alpha, alpha_w, config)
            if config.engine == "plain" or config.trace_rule == "capped"
            else SpanGTD(self._group, n_features, alpha, alpha_w, config, policy=self._policy, batch=_BATCHES[mode])
        )
        self._held: tuple[NDArray[Any], Tiles] | None = None
        self._reasons: dict[str, str] = {}
        self._r_max, self._gamma_max = np.zeros(self.n_demons), np.zeros(len(leaders))
        self._rho = np.zeros(len(leaders))
        self._n_sound = np.bincount(self._group)  # demons of each group that are not set aside

    # ---- the three verbs ------------------------------------------------------------------------------------------

    def begin(self, observation: NDArray[Any], tiles: Tiles) -> Floats:
        """Start a stream, at the beginning of life and after every gap: traces are cleared, nothing is learned.

        Args:
            observation: What cumulants and functions read, shape (n_channels,), finite.
            tiles: Active features, int64 of shape (n_active,).

        Returns:
            Predictions of all demons there, float64, shape (n_demons,).

        Raises:
            ValueError: If an argument has a wrong shape or type, is NaN or out of range; the message names it.
        """
        observation, tiles = self._checked_state(observation, tiles)
        gamma, lam = self._continuation(observation, tiles), self._lam(observation, tiles)
        self._set_aside_groups(gamma, "its continuation left [0, 1]")
        self._set_aside_groups(lam, "its lam left [0, 1]")
        self._engine.begin(tiles, gamma, lam)
        self._held = (observation, tiles)
        return self._engine.latest.copy()

    def learn(
        self, action: int, probability: float, observation: NDArray[Any], tiles: Tiles, *, terminated: bool = False
    ) -> Floats:
        """Learn from one transition: from the state held since the last call, by `action`, to the state given.

        Args:
            action: The discrete action that the agent drew in the held state.
            probability: b(action), with which the behaviour policy drew it, in (0, 1].
            observation: Of the state reached, as in `begin`.
            tiles: Of the state reached, as in `begin`.
            terminated: True where the stream ended there: the continuation is 0 for all. Go on with `begin`.

        Returns:
            Predictions of the new weights at `tiles`, float64, shape (n_demons,); in deferred mode those of the latest
            step that was taken.

        Raises:
            ValueError: If an argument has a wrong shape or type, is NaN or out of range; the message names it.
            RuntimeError: If no stream was begun.
        """
        if self._held is None:
            raise RuntimeError("no stream to learn from: call begin(observation, tiles) first, and after a termination")
        action, probability = self._checked_action(action, probability)
        observation, tiles = self._checked_state(observation, tiles)
        signals = self._signals(action, probability, observation, tiles, terminated)
        self._engine.learn(tiles, signals)
        self._set_broken_aside()
        self._held = None if terminated else (observation, tiles)
        return self._engine.latest.copy()

    @property
    def n_waiting(self) -> int:
        """Steps that were only noted so far."""
        return self._engine.n_waiting

    def catch_up(self) -> None:
        """Take the steps that were only noted so far; in eager mode there are none."""
        self._engine.catch_up()
        self._set_broken_aside()

    def predict(self, tiles: Tiles) -> Floats:
        """Return the predictions of all demons at `tiles`, float64, shape (n_demons,); nothing changes.

        Raises:
            ValueError: If `tiles` has a wrong shape or type, or is out of range.
        """
        tiles = self._checked_tiles(tiles)
        self.catch_up()
        return self._engine.predict(tiles)

    def reset_weights(self, theta: NDArray[Any] | None = None) -> None:
        """Set theta of every demon, to zero unless given, (n_demons, n_features); w, traces and estimates stay.

        Raises:
            ValueError: If `theta` has another shape or is not finite.
        """
        self.catch_up()
        self._engine.reset_weights(theta)
        if self._held is not None:
            self._engine.latest = self._engine.predict(self._held[1])

    # ---- what is known --------------------------------------------------------------------------------------------

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
        return self._rho[self._group]

    @property
    def n_updated(self) -> int:
        """Demons with rho > 0 in the last step, those set aside not counted."""
        return int(self._n_sound[self._rho > 0].sum())

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
        return list(self._reasons)

    @property
    def set_aside_because(self) -> dict[str, str]:
        """Why each demon was set aside, by name."""
        self.catch_up()
        return dict(self._reasons)

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

    # ---- from a transition to numbers -----------------------------------------------------------------------------

    def _signals(
        self, action: int, probability: float, observation: NDArray[Any], tiles: Tiles, terminated: bool
    ) -> Signals:
        """Return the transition's numbers, after setting aside the demons of functions that gave nonsense."""
        assert self._held is not None
        ratios = self._policies.ratios(action, probability, *self._held)
        gamma, lam = self._continuation(observation, tiles), self._lam(observation, tiles)
        if terminated:
            self._set_aside_groups(gamma, "its continuation left [0, 1]")
            gamma = np.zeros_like(gamma)
        signals = Signals(
            rho_t=np.empty(len(gamma)),
            gamma_tp1=gamma,
            lam_tp1=lam,
            c_tp1=self._cumulants(observation, tiles, self._engine.predict_one),
            z_tp1=self._outcome(observation, tiles),
        )
        found = checks.inspect(ratios, self._policy, *signals, self._r_max, self._gamma_max)
        if found & (checks.RHO_BROKEN | checks.GAMMA_BROKEN | checks.LAM_BROKEN):
            self._set_aside_groups(signals.rho_t, "its target policy gave no probability")
            self._set_aside_groups(gamma, "its continuation left [0, 1]")
            self._set_aside_groups(lam, "its lam left [0, 1]")
        if found:
            self._renew_bounds(signals)
        self._rho = signals.rho_t
        return signals

    def _renew_bounds(self, signals: Signals) -> None:
        """Raise the bounds on |theta| where a cumulant, an outcome or a continuation is the largest so far."""
        self._r_max = np.fmax(self._r_max, np.fmax(np.abs(signals.c_tp1), np.abs(signals.z_tp1)))
        self._gamma_max = np.maximum(self._gamma_max, signals.gamma_tp1)
        horizon = 1.0 / np.maximum(1.0 - self._gamma_max, 1.0 / _LONGEST_HORIZON)
        self._engine.set_bounds(_BOUND_SCALE * self._r_max * horizon[self._group])

    # ---- demons set aside -----------------------------------------------------------------------------------------

    def _set_aside_groups(self, values: Floats, reason: str) -> None:
        """Set aside the demons of groups whose value is NaN, and put 0 in its place."""
        if not np.isfinite(values).all():
            self._set_aside(np.flatnonzero(~np.isfinite(values)[self._group]), reason)
            np.nan_to_num(values, copy=False, posinf=0.0)

    def _set_broken_aside(self) -> None:
        """Set aside the demons that the engine flagged."""
        broken = self._engine.newly_broken()
        if broken.size:
            self._set_aside(broken, "its weights passed their bound or became infinite or not a number")

    def _set_aside(self, demons: NDArray[np.int64], reason: str) -> None:
        """Freeze demons' weights at zero and note why; those set aside before keep their first reason."""
        for demon in demons:
            if self.names[demon] not in self._reasons:
                self._reasons[self.names[demon]] = reason
                self._n_sound[self._group[demon]] -= 1
                self._engine.set_aside(int(demon))

    # ---- validation -----------------------------------------------------------------------------------------------

    def _check_construction(self) -> None:
        """Raise ValueError where the constructor's arguments make no Horde."""
        if not self.questions:
            raise ValueError("questions must hold at least one question")
        if len(set(self.names)) < self.n_demons:
            twice = next(name for name in self.names if self.names.count(name) > 1)
            raise ValueError(f"questions must have different names; {twice!r} is there twice")
        if not 1 <= self.n_active <= self.n_features:
            raise ValueError(f"n_active must be in 1..n_features, not {self.n_active} of {self.n_features}")

    def _checked_state(self, observation: NDArray[Any], tiles: Tiles) -> tuple[NDArray[Any], Tiles]:
        """Return copies of an observation and its tiles."""
        observation = np.array(observation, dtype=np.float64)
        if observation.ndim != 1 or observation.size < self._cumulants.n_channels:
            needed = self._cumulants.n_channels
            raise ValueError(f"observation must be flat with at least {needed} channels, not {observation.shape}")
        tiles = self._listed_tiles(tiles).copy()
        self._check_values(checks.first_wrong(observation, tiles, self.n_features), observation, tiles)
        return observation, tiles

    def _checked_tiles(self, tiles: Tiles) -> Tiles:
        """Return the tiles as contiguous int64."""
        tiles = self._listed_tiles(tiles)
        self._check_values(checks.first_wrong(np.zeros(0), tiles, self.n_features), np.zeros(0), tiles)
        return tiles

    def _listed_tiles(self, tiles: Tiles) -> Tiles:
        """Return the tiles as contiguous int64, not yet known to be in range."""
        tiles = np.asarray(tiles)
        if tiles.shape != (self.n_active,) or tiles.dtype.kind not in "iu":
            raise ValueError(f"tiles must be integers of shape ({self.n_active},), not {tiles.dtype} {tiles.shape}")
        return np.ascontiguousarray(tiles, dtype=np.int64)

    def _check_values(self, wrong: int, observation: NDArray[Any], tiles: Tiles) -> None:
        """Raise ValueError where `checks.first_wrong` found something."""
        if wrong >= 0:
            raise ValueError(f"observation must be finite; channel {wrong} is {observation[wrong]}")
        if wrong < -1:
            outside = -2 - wrong
            raise ValueError(f"tiles must lie in 0..{self.n_features - 1}; number {outside} is {tiles[outside]}")

    def _checked_action(self, action: int, probability: float) -> tuple[int, float]:
        """Return an action and its probability as plain numbers."""
        n = self._policies.n_actions
        if isinstance(action, bool) or int(action) != action or action < 0 or (n and action >= n):
            raise ValueError(f"action must be a whole number in 0..{n - 1 if n else '...'}, not {action!r}")
        if not 0.0 < probability <= 1.0:
            raise ValueError(f"probability must be in (0, 1], not {probability!r}")
        return int(action), float(probability)
