"""What a careful NumPy user would write: GTD(lambda) for all demons at once, in the two memory layouts.

Same rules as the benchmark's Horde: trace rule "clipped", scalar MSPBE estimate, predictions of all demons.
`LearnerMajor` and `FeatureMajor` share traces within a group, and groups with rho = 0 are skipped but for the decay of
w; `OwnTraces` is for demons that all have policies of their own. These are the yardsticks of `horde bench`, and are
themselves held against the Horde in the tests.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from horde_agent.types import Reals, Tiles


class _Common:
    """Groups are runs of demons: demons start[g]..start[g + 1] share a trace."""

    def __init__(
        self,
        start: Tiles,
        n_features: int,
        gamma: Reals,
        lam: float,
        alpha: float,
        alpha_w: float,
        *,
        every_step: bool = True,
        dtype: str = "float32",
    ) -> None:
        self.start, self.n_features, self.every_step, self.dtype = start, n_features, every_step, np.dtype(dtype)
        number = self.dtype.type
        self.gamma, self.lam_t = gamma.astype(dtype), np.full(gamma.size, lam, dtype=dtype)
        self.gamma_demon = np.repeat(self.gamma, np.diff(start))
        self.lam, self.alpha, self.alpha_w, self.tau = number(lam), number(alpha), number(alpha_w), number(10_000)
        self.n_demons = int(start[-1])
        self.e = np.zeros((gamma.size, n_features), dtype=dtype)
        self.v, self.s = np.zeros((2, self.n_demons), dtype=dtype)

    def _renew_traces(self, tiles_t: Tiles, rho: Reals) -> None:
        """Renew the traces: e = rho (phi + gamma lambda_t e), then lambda_{t+1} = lambda min(1, 1/rho)."""
        self.e *= (self.gamma * self.lam_t)[:, None]
        self.e[:, tiles_t] += 1
        self.e *= rho[:, None]
        self.lam_t = np.where(rho > 1, self.lam / np.maximum(rho, 1), self.lam).astype(self.dtype)


class LearnerMajor(_Common):
    """theta and w are (n_demons, n_features)."""

    def __init__(self, *args: Any, **options: Any) -> None:
        super().__init__(*args, **options)
        self.theta, self.w = np.zeros((2, self.n_demons, self.n_features), dtype=self.dtype)

    def learn(self, tiles_t: Tiles, tiles_tp1: Tiles, rho: Reals, c: Reals) -> Reals:
        """Learn from one transition.

        Args:
            tiles_t: Active features of the state left, shape (n_active,).
            tiles_tp1: Of the state reached, shape (n_active,).
            rho: pi(a)/b(a) of each group, shape (n_groups,).
            c: Cumulant of each demon, shape (n_demons,).

        Returns:
            Predictions at tiles_tp1, shape (n_demons,).
        """
        v_tp1: Reals = self.theta[:, tiles_tp1].sum(1)
        delta = c + self.gamma_demon * v_tp1 - self.v
        q = self.w[:, tiles_t].sum(1) if self.every_step else None
        self._renew_traces(tiles_t, rho)
        self.s -= self.s / self.tau
        for g in np.flatnonzero(rho):
            of = slice(self.start[g], self.start[g + 1])
            e, step = self.e[g], delta[of, None] * self.e[g]
            y = self.w[of] @ e
            decay = None if self.every_step else rho[g] * self.w[of][:, tiles_t].sum(1)
            self.theta[of] += self.alpha * step
            self.theta[of, tiles_tp1] -= (self.alpha * self.gamma[g] * (1 - self.lam_t[g]) * y)[:, None]
            self.w[of] += self.alpha_w * step
            if decay is not None:
                self.w[of, tiles_t] -= self.alpha_w * decay[:, None]
            self.s[of] += delta[of] * y / self.tau
            v_tp1[of] = self.theta[of][:, tiles_tp1].sum(1)
        if q is not None:
            self.w[:, tiles_t] -= self.alpha_w * q[:, None]
        self.v = v_tp1
        return v_tp1


class FeatureMajor(_Common):
    """theta and w are (n_features, n_demons)."""

    def __init__(self, *args: Any, **options: Any) -> None:
        super().__init__(*args, **options)
        self.theta, self.w = np.zeros((2, self.n_features, self.n_demons), dtype=self.dtype)

    def learn(self, tiles_t: Tiles, tiles_tp1: Tiles, rho: Reals, c: Reals) -> Reals:
        """Learn from one transition.

        Args:
            tiles_t: Active features of the state left, shape (n_active,).
            tiles_tp1: Of the state reached, shape (n_active,).
            rho: pi(a)/b(a) of each group, shape (n_groups,).
            c: Cumulant of each demon, shape (n_demons,).

        Returns:
            Predictions at tiles_tp1, shape (n_demons,).
        """
        v_tp1: Reals = self.theta[tiles_tp1].sum(0)
        delta = c + self.gamma_demon * v_tp1 - self.v
        q = self.w[tiles_t].sum(0) if self.every_step else None
        self._renew_traces(tiles_t, rho)
        self.s -= self.s / self.tau
        for g in np.flatnonzero(rho):
            of = slice(self.start[g], self.start[g + 1])
            e, step = self.e[g], self.e[g][:, None] * delta[of]
            y = e @ self.w[:, of]
            decay = None if self.every_step else rho[g] * self.w[tiles_t, of].sum(0)
            self.theta[:, of] += self.alpha * step
            self.theta[tiles_tp1, of] -= self.alpha * self.gamma[g] * (1 - self.lam_t[g]) * y
            self.w[:, of] += self.alpha_w * step
            if decay is not None:
                self.w[tiles_t, of] -= self.alpha_w * decay
            self.s[of] += delta[of] * y / self.tau
            v_tp1[of] = self.theta[tiles_tp1, of].sum(0)
        if q is not None:
            self.w[tiles_t] -= self.alpha_w * q
        self.v = v_tp1
        return v_tp1


class OwnTraces:
    """A trace for each demon; w rule "importance-weighted". Weights are (n_demons, n_features), or the other way round.

    Args:
        gamma: Shape (n_demons,).
        n_features: Number of features.
        lam: Trace decay.
        alpha: Primary step size.
        alpha_w: Secondary step size.
        by_feature: Whether rows are features.
        dtype: "float32" or "float64".
    """

    def __init__(
        self,
        gamma: Reals,
        n_features: int,
        lam: float,
        alpha: float,
        alpha_w: float,
        *,
        by_feature: bool,
        dtype: str = "float32",
    ) -> None:
        self.by_feature, self.dtype = by_feature, np.dtype(dtype)
        number = self.dtype.type
        self.gamma, self.lam_t = gamma.astype(dtype), np.full(gamma.size, lam, dtype=dtype)
        self.lam, self.alpha, self.alpha_w, self.tau = number(lam), number(alpha), number(alpha_w), number(10_000)
        shape = (n_features, gamma.size) if by_feature else (gamma.size, n_features)
        self.theta, self.w, self.e, self._step = np.zeros((4, *shape), dtype=dtype)
        self.v, self.s = np.zeros((2, gamma.size), dtype=dtype)

    def _total(self, rows: Reals, tiles: Tiles) -> Reals:
        """Return the sum of each demon's weights at `tiles`."""
        return np.asarray(rows[tiles].sum(0) if self.by_feature else rows[:, tiles].sum(1))

    def _add(self, rows: Reals, tiles: Tiles, amount: Reals) -> None:
        """Add a number of each demon to its weights at `tiles`."""
        if self.by_feature:
            rows[tiles] += amount
        else:
            rows[:, tiles] += amount[:, None]

    def learn(self, tiles_t: Tiles, tiles_tp1: Tiles, rho: Reals, c: Reals) -> Reals:
        """Learn from one transition.

        Args:
            tiles_t: Active features of the state left, shape (n_active,).
            tiles_tp1: Of the state reached, shape (n_active,).
            rho: pi(a)/b(a) of each demon, shape (n_demons,).
            c: Cumulant of each demon, shape (n_demons,).

        Returns:
            Predictions at tiles_tp1, shape (n_demons,).
        """
        delta = c + self.gamma * self._total(self.theta, tiles_tp1) - self.v
        q = self._total(self.w, tiles_t)
        decay = rho * self.gamma * self.lam_t
        self.e *= decay if self.by_feature else decay[:, None]
        self._add(self.e, tiles_t, rho)
        self.lam_t = np.where(rho > 1, self.lam / np.maximum(rho, 1), self.lam).astype(self.dtype)
        y = np.einsum("ij,ij->j" if self.by_feature else "ij,ij->i", self.e, self.w)
        amount = self.alpha * delta
        np.multiply(self.e, amount if self.by_feature else amount[:, None], out=self._step)
        self.theta += self._step
        self._add(self.theta, tiles_tp1, -self.alpha * self.gamma * (1 - self.lam_t) * y)
        self._step *= self.alpha_w / self.alpha
        self.w += self._step
        self._add(self.w, tiles_t, -self.alpha_w * rho * q)
        self.s += (delta * y - self.s) / self.tau
        self.v = self._total(self.theta, tiles_tp1)
        return self.v
