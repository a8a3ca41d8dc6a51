"""The other yardstick: GTD(lambda) in one pass over e, theta and w of each demon, compiled, on all threads.

It is bound by the bandwidth of memory: 24 bytes per feature and step, read and written, in float32.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numba
import numpy as np
from numba import prange

from horde_agent.kernels._jit import parallel_kernel
from horde_agent.types import Reals, Tiles

# The sum e.w in one pass needs another order of its terms than was written, or it would not be a sum of vectors.
_fused: Any = numba.njit(nogil=True, cache=True, fastmath={"contract", "reassoc"})


class DenseState(NamedTuple):
    """Rows of demons, and one number per demon."""

    theta: Reals  # (n_demons, n_features)
    w: Reals
    e: Reals
    v: Reals  # (n_demons,): the prediction at the present
    s: Reals
    lam_t: Reals
    gamma: Reals


class DenseRates(NamedTuple):
    """Numbers that all demons share."""

    alpha: np.float32
    alpha_w: np.float32
    lam: np.float32
    tau: np.float32


@_fused  # type: ignore[untyped-decorator]
def dense_one(
    i: int, state: DenseState, rates: DenseRates, tiles_t: Tiles, tiles_tp1: Tiles, rho: Reals, c: Reals
) -> None:
    """Update demon `i` from one transition; the active features' own part is added after the pass.

    Args:
        i: The demon.
        state: Of all demons; changed in place.
        rates: Step sizes, trace decay, and the time constant of the estimate.
        tiles_t: Active features of the state left, shape (n_active,).
        tiles_tp1: Of the state reached, shape (n_active,).
        rho: pi(a)/b(a) of each demon, shape (n_demons,).
        c: Cumulant of each demon, shape (n_demons,), float32.
    """
    theta, w, e = state.theta[i], state.w[i], state.e[i]
    v_tp1, q = np.float32(0.0), np.float32(0.0)
    for k in range(tiles_t.shape[0]):
        v_tp1 += theta[tiles_tp1[k]]
        q += w[tiles_t[k]]
    delta = c[i] + state.gamma[i] * v_tp1 - state.v[i]
    decay, y = rho[i] * state.gamma[i] * state.lam_t[i], rho[i] * q
    step, step_w = rates.alpha * delta, rates.alpha_w * delta
    for j in range(e.shape[0]):
        trace = decay * e[j]
        y += trace * w[j]
        theta[j] += step * trace
        w[j] += step_w * trace
        e[j] = trace
    for k in range(tiles_t.shape[0]):
        j = tiles_t[k]
        e[j] += rho[i]
        theta[j] += step * rho[i]
        w[j] += step_w * rho[i] - rates.alpha_w * rho[i] * q
    state.lam_t[i] = rates.lam / max(rho[i], np.float32(1.0))
    turned = rates.alpha * state.gamma[i] * (np.float32(1.0) - state.lam_t[i]) * y
    v_tp1 = np.float32(0.0)
    for k in range(tiles_tp1.shape[0]):
        theta[tiles_tp1[k]] -= turned
        v_tp1 += theta[tiles_tp1[k]]
    state.s[i] += (delta * y - state.s[i]) / rates.tau
    state.v[i] = v_tp1


@parallel_kernel  # type: ignore[untyped-decorator]
def dense_step(state: DenseState, rates: DenseRates, tiles_t: Tiles, tiles_tp1: Tiles, rho: Reals, c: Reals) -> None:
    """Update every demon from one transition; the shapes are those of `dense_one`."""
    for i in prange(rho.shape[0]):
        dense_one(i, state, rates, tiles_t, tiles_tp1, rho, c)


class DenseFused:
    """A trace for each demon; w rule "importance-weighted", float32. Arguments as of `numpy_horde.OwnTraces`."""

    def __init__(self, gamma: Reals, n_features: int, lam: float, alpha: float, alpha_w: float) -> None:
        n = gamma.size
        theta, w, e = (np.zeros((n, n_features), dtype=np.float32) for _ in range(3))
        v, s = np.zeros((2, n), dtype=np.float32)
        self.state = DenseState(theta, w, e, v, s, np.full(n, lam, dtype=np.float32), gamma.astype(np.float32))
        self.rates = DenseRates(np.float32(alpha), np.float32(alpha_w), np.float32(lam), np.float32(10_000.0))

    def learn(self, tiles_t: Tiles, tiles_tp1: Tiles, rho: Reals, c: Reals) -> Reals:
        """Learn from one transition.

        Args:
            tiles_t: Active features of the state left, shape (n_active,).
            tiles_tp1: Of the state reached, shape (n_active,).
            rho: pi(a)/b(a) of each demon, shape (n_demons,), float32.
            c: Cumulant of each demon, shape (n_demons,), float32.

        Returns:
            Predictions at tiles_tp1, shape (n_demons,).
        """
        dense_step(self.state, self.rates, tiles_t, tiles_tp1, rho, c)
        return self.state.v.copy()
