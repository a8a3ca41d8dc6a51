"""The dense GTD(lambda) with the methods of an engine: demons come and go, diverge, and share several streams."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from horde_agent.kernels.checks import Signals
from horde_agent.learning import LearnerConfig
from horde_agent.learning.engine import DemonMapping
from tests.oracles.gtd import DenseGTD
from tests.oracles.rarity import RarityByHand

Floats = NDArray[np.float64]
Integers = NDArray[np.int64]

# What it learns in each stream, besides phi
OF_STREAM = ("e", "gamma_t", "lam_t")
LEARNED = ("theta", "w", "m", "s", "delta", "max_e", "largest_gain", "alpha", "alpha_w", *OF_STREAM)


# Numbers of each demon, by their names in engines
NUMBERS = {"td_error": "delta", "mspbe": "s", "max_trace": "max_e"}


class DenseEngine:
    """Demons that learn by `DenseGTD`. Arguments and methods as of `PlainEngine`.

    Args:
        rarity: What determines the step size of each feature; None if they are alike.
    """

    def __init__(
        self,
        group: Integers,
        n_features: int,
        alpha: Floats,
        alpha_w: Floats,
        config: LearnerConfig,
        *,
        policy: Integers,
        rarity: RarityByHand | None = None,
    ) -> None:
        self.config = config
        self._rarity = rarity
        self.n_features = n_features
        self.stream = 0
        self._other_streams: dict[int, dict[str, Any]] = {}
        self._set_demons(group, policy)
        self.gtd = self._new_gtd(group.size)
        self.gtd.is_bounded = rarity is not None
        self.gtd.alpha = np.broadcast_to(alpha, group.size)[:, None]
        self.gtd.alpha_w = np.broadcast_to(alpha_w, group.size)[:, None]
        self._is_diverged = np.zeros(group.size, dtype=bool)

    def _set_demons(self, group: Integers, policy: Integers) -> None:
        self._group = group
        self._policy = policy[group]

    def _new_gtd(self, n: int) -> DenseGTD:
        config = self.config
        gtd = DenseGTD(
            n,
            self.n_features,
            0.0,
            0.0,
            trace_rule=config.trace_rule,
            w_rule=config.w_rule,
            tau=config.mspbe_tau,
        )
        gtd.gamma_t = np.zeros(n)
        gtd.lam_t = np.zeros(n)
        return gtd

    def _phi(self, tiles: Integers) -> Floats:
        return np.bincount(tiles, minlength=self.n_features).astype(np.float64)

    # ---- the stream -------------------------------------------------------------------------------------------------

    def begin(self, tiles: Integers) -> Floats:
        n = self._group.size
        if self._rarity is not None:
            self._rarity.see(self._phi(tiles))
        return self.gtd.begin(self._phi(tiles), np.zeros(n), np.zeros(n))

    def learn(self, tiles: Integers, signals: Signals, *, is_last: bool = False) -> Floats:
        gamma = signals.gamma_tp1[self._group]
        if is_last:
            gamma = np.where(np.isfinite(gamma), 0.0, gamma)
        rho = np.where(signals.has_rho[self._group], signals.rho_t[self._policy], np.nan)
        numbers = (
            rho,
            gamma,
            signals.lam_tp1[self._group],
            signals.c_tp1,
            signals.z_tp1,
        )
        of_live_demons = [np.where(self._is_diverged, 0.0, values) for values in numbers]
        predictions = self.gtd.learn(self._phi(tiles), *of_live_demons)
        if self._rarity is not None:
            self._rarity.see(self._phi(tiles))
            if self._rarity.count_step():
                self.gtd.scale = self._rarity.scale
                self.gtd.largest_gain[:] = 0.0
        return predictions

    def catch_up(self) -> None:
        """Do nothing: no step is deferred."""

    def set_scales(self, rarity: Any) -> None:
        """Do nothing: it counts the features itself."""

    def select_stream(self, stream: int) -> None:
        gtd = self.gtd
        self._other_streams[self.stream] = {
            name: getattr(gtd, name) for name in (*OF_STREAM, "phi")
        }
        self.stream = stream
        if stream in self._other_streams:
            vars(gtd).update(self._other_streams.pop(stream))
        else:
            gtd.e = np.zeros_like(gtd.e)

    # ---- demons -----------------------------------------------------------------------------------------------------

    def rearrange(self, mapping: DemonMapping) -> None:
        old = self.gtd
        n = mapping.group.size
        is_old = ~mapping.is_new
        old_index = mapping.old_index[is_old]
        new = self._new_gtd(n)
        new.alpha = np.full((n, 1), mapping.alpha)
        new.alpha_w = np.full((n, 1), mapping.alpha_w)
        for name in LEARNED:
            getattr(new, name)[is_old] = getattr(old, name)[old_index]
        new.phi = old.phi
        new.scale = old.scale
        new.is_bounded = old.is_bounded
        for arrays in self._other_streams.values():
            for name in OF_STREAM:
                rearranged = np.zeros_like(getattr(new, name))
                rearranged[is_old] = arrays[name][old_index]
                arrays[name] = rearranged
        is_diverged = np.zeros(n, dtype=bool)
        is_diverged[is_old] = self._is_diverged[old_index]
        self._is_diverged = is_diverged
        self.gtd = new
        self._set_demons(mapping.group, mapping.policy)

    def mark_diverged(self, demon: int) -> None:
        self._is_diverged[demon] = True
        for name in ("theta", "w", "e", "m", "s", "delta", "largest_gain"):
            getattr(self.gtd, name)[demon] = 0.0
        for arrays in self._other_streams.values():
            arrays["e"][demon] = 0.0

    def reset_weights(self, theta: Floats | None = None) -> None:
        self.gtd.theta = np.zeros_like(self.gtd.theta)
        if theta is not None:
            self.gtd.theta[~self._is_diverged] = theta[~self._is_diverged]

    # ---- results ----------------------------------------------------------------------------------------------------

    def rows(self, *names: str) -> tuple[Floats, ...]:
        return tuple(getattr(self.gtd, name) for name in names)

    def numbers(self, name: str) -> Floats:
        return getattr(self.gtd, NUMBERS[name])

    def mspbe_vector(self) -> Floats:
        return (self.gtd.m * self.gtd.w).sum(axis=1)

    @property
    def latest(self) -> Floats:
        return self.gtd.theta @ self.gtd.phi

    def predict(self, tiles: Integers) -> Floats:
        return self.gtd.theta @ self._phi(tiles)
