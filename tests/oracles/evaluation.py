"""Returns, the NMSRE of predictions of them, and the MSPBE of a small MDP.

Source: White, Modayil & Sutton (2012), sections 4 and 5.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import ArrayLike, NDArray

Floats = NDArray[np.float64]

EXCURSION_TERMS = 50
PAPER_TAU = 10.0
_NO_VARIANCE = 1e-12


def truncated_return(
    cumulants: ArrayLike, gamma: ArrayLike, n_terms: int = EXCURSION_TERMS
) -> Floats:
    """Return g = sum_{k=0..n_terms-1} gamma^k c_{t+k+1}, or fewer terms if fewer were observed.

    The paper's sum has 51 terms, but its excursions of 5 s have 50 steps.

    Args:
        cumulants: c_{t+1}, c_{t+2}, ..., shape (..., n).
        gamma: Constant continuation, a number or one per leading index.
        n_terms: Largest number of terms.
    """
    c = np.asarray(cumulants, dtype=np.float64)[..., :n_terms]
    weights = np.asarray(gamma, dtype=np.float64)[..., None] ** np.arange(c.shape[-1])
    return np.asarray((weights * c).sum(axis=-1))


def nmsre(predictions: ArrayLike, returns: ArrayLike, tau: float = PAPER_TAU) -> Floats:
    """Return the NMSRE of one question after each of its excursions, by the variance over all of them (off-line).

    The trace of squared errors starts at the first one; without variance the NMSRE is 1. `tau` is
    in excursions.
    """
    p = np.asarray(predictions, dtype=np.float64)
    g = np.asarray(returns, dtype=np.float64)
    trace = (p - g) ** 2
    for k in range(1, trace.size):
        trace[k] = trace[k - 1] + (trace[k] - trace[k - 1]) / tau
    variance = g.var() if g.size else 0.0
    if variance < _NO_VARIANCE:
        return np.ones(g.size)
    return np.asarray(trace / variance)


def true_mspbe(theta: ArrayLike, A: ArrayLike, b: ArrayLike, C: ArrayLike) -> float:
    """Return MSPBE(theta) = E[delta e]' E[phi phi']^{-1} E[delta e] of an MDP with known expectations (eq. 8).

    A is E[e (gamma phi_{t+1} - phi_t)'], (n, n), b E[c e], so that E[delta e] = A theta + b, and C
    E[phi phi'], which may be singular (Baird's star).
    """
    g = np.asarray(A) @ np.asarray(theta) + np.asarray(b)
    return float(g @ np.linalg.pinv(np.asarray(C, dtype=np.float64), hermitian=True) @ g)


class SampleMSPBE:
    """MSPBE from a stream: a trace of delta e over `tau` steps against the running mean of phi phi'; O(n^2)."""

    def __init__(self, n_features: int, tau: float) -> None:
        self._v = np.zeros(n_features)
        self._c = np.zeros((n_features, n_features))
        self._n = 0
        self._tau = tau

    def update(self, phi: Floats, delta: float, e: Floats) -> None:
        self._n += 1
        self._v += (delta * e - self._v) / self._tau
        self._c += (np.outer(phi, phi) - self._c) / self._n

    def value(self) -> float:
        return float(self._v @ np.linalg.pinv(self._c, hermitian=True) @ self._v)
