"""What a careful NumPy user would write: GTD(lambda) for all demons at once, float32, in the two memory layouts.

Same rules as the benchmark's Horde: trace rule "clipped", w rule "every-step", scalar MSPBE estimate, predictions of
all demons. Traces are shared within a group, and groups with rho = 0 are skipped but for the decay of w. These are the
yardstick of `bench_learning.py`, and are themselves held against the Horde in the tests.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

Reals = NDArray[Any]
Tiles = NDArray[np.int64]


class _Common:
    """Groups are runs of demons: demons start[g]..start[g + 1] share a trace."""

    def __init__(self, start: Tiles, n_features: int, gamma: Reals, lam: float, alpha: float, alpha_w: float) -> None:
        self.start, self.n_features = start, n_features
        self.gamma, self.lam_t = gamma.astype(np.float32), np.full(gamma.size, lam, dtype=np.float32)
        self.gamma_demon = np.repeat(self.gamma, np.diff(start))
        self.lam, self.alpha, self.alpha_w = np.float32(lam), np.float32(alpha), np.float32(alpha_w)
        self.n_demons = int(start[-1])
        self.e = np.zeros((gamma.size, n_features), dtype=np.float32)
        self.v, self.s = np.zeros(self.n_demons, dtype=np.float32), np.zeros(self.n_demons, dtype=np.float32)
        self.tau = np.float32(10_000.0)

    def _renew_traces(self, tiles_t: Tiles, rho: Reals) -> None:
        """Renew the traces: e = rho (phi + gamma lambda_t e), then lambda_{t+1} = lambda min(1, 1/rho)."""
        self.e *= (self.gamma * self.lam_t)[:, None]
        self.e[:, tiles_t] += 1
        self.e *= rho[:, None]
        self.lam_t = np.where(rho > 1, self.lam / np.maximum(rho, 1), self.lam).astype(np.float32)


class LearnerMajor(_Common):
    """theta and w are (n_demons, n_features)."""

    def __init__(self, *args: Any) -> None:
        super().__init__(*args)
        self.theta, self.w = np.zeros((2, self.n_demons, self.n_features), dtype=np.float32)

    def learn(self, tiles_t: Tiles, tiles_tp1: Tiles, rho: Reals, c: Reals) -> Reals:
        """Learn from one transition; rho is per group, c per demon. Returns the predictions at tiles_tp1."""
        v_tp1 = self.theta[:, tiles_tp1].sum(1)
        delta = c + self.gamma_demon * v_tp1 - self.v
        q = self.w[:, tiles_t].sum(1)
        self._renew_traces(tiles_t, rho)
        self.s -= self.s / self.tau
        for g in np.flatnonzero(rho):
            of = slice(self.start[g], self.start[g + 1])
            e, step = self.e[g], delta[of, None] * self.e[g]
            y = self.w[of] @ e
            self.theta[of] += self.alpha * step
            self.theta[of, tiles_tp1] -= (self.alpha * self.gamma[g] * (1 - self.lam_t[g]) * y)[:, None]
            self.w[of] += self.alpha_w * step
            self.s[of] += delta[of] * y / self.tau
            v_tp1[of] = self.theta[of][:, tiles_tp1].sum(1)
        self.w[:, tiles_t] -= self.alpha_w * q[:, None]
        self.v = v_tp1
        return v_tp1


class FeatureMajor(_Common):
    """theta and w are (n_features, n_demons)."""

    def __init__(self, *args: Any) -> None:
        super().__init__(*args)
        self.theta, self.w = np.zeros((2, self.n_features, self.n_demons), dtype=np.float32)

    def learn(self, tiles_t: Tiles, tiles_tp1: Tiles, rho: Reals, c: Reals) -> Reals:
        """Learn from one transition; rho is per group, c per demon. Returns the predictions at tiles_tp1."""
        v_tp1 = self.theta[tiles_tp1].sum(0)
        delta = c + self.gamma_demon * v_tp1 - self.v
        q = self.w[tiles_t].sum(0)
        self._renew_traces(tiles_t, rho)
        self.s -= self.s / self.tau
        for g in np.flatnonzero(rho):
            of = slice(self.start[g], self.start[g + 1])
            e, step = self.e[g], self.e[g][:, None] * delta[of]
            y = e @ self.w[:, of]
            self.theta[:, of] += self.alpha * step
            self.theta[tiles_tp1, of] -= self.alpha * self.gamma[g] * (1 - self.lam_t[g]) * y
            self.w[:, of] += self.alpha_w * step
            self.s[of] += delta[of] * y / self.tau
            v_tp1[of] = self.theta[tiles_tp1, of].sum(0)
        self.w[tiles_t] -= self.alpha_w * q
        self.v = v_tp1
        return v_tp1
