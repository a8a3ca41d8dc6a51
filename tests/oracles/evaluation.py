"""Returns, the NMSRE of predictions of them, and the MSPBE of a small MDP.

Source: White, Modayil & Sutton (2012), sections 4 and 5.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

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


class PartialReturns(NamedTuple):
    """Returns of the rows of a stream, shape (n_rows, n), and what lies beyond the terms measured."""

    terms: Floats
    share: Floats  # of the return beyond the terms
    end: NDArray[np.int64]  # the last row of each row's unbroken stretch, shape (n_rows,)

    def mean(self, rows: NDArray[np.bool_]) -> Floats:
        """Return mu = mean of (terms + share mu) over some rows of each question, shape (n,)."""
        terms = np.where(rows, self.terms, 0.0).sum(axis=0)
        measured = np.where(rows, 1.0 - self.share, 0.0).sum(axis=0)
        return np.asarray(terms / measured)

    def variance(self, rows: NDArray[np.bool_]) -> Floats:
        """Return the variance of terms + share mu over some rows of each question, shape (n,)."""
        returns = self.terms + self.share * self.mean(rows)
        return np.array([returns[rows[:, i], i].var() for i in range(returns.shape[1])])

    def errors(self, predictions: Floats) -> Floats:
        """Return the errors of predictions, shape (n_rows, n), which fill in the rest themselves."""
        return np.asarray(predictions - self.terms - self.share * predictions[self.end])


def partial_returns(
    cumulants: ArrayLike, gamma: ArrayLike, follows: ArrayLike, is_terminal: ArrayLike
) -> PartialReturns:
    """Return the returns of the rows of a stream up to the next row that no row follows, term by term.

    Args:
        cumulants: On reaching each row, shape (n_rows, n).
        gamma: Constant continuations, shape (n,).
        follows: Whether the next row follows, shape (n_rows,).
        is_terminal: Whether a row is terminal, so that nothing comes after it, shape (n_rows,).
    """
    c = np.asarray(cumulants, dtype=np.float64)
    g = np.asarray(gamma, dtype=np.float64)
    terms = np.zeros_like(c)
    share = np.ones_like(c)
    end = np.arange(len(c))
    for t in range(len(c)):
        while np.asarray(follows)[end[t]]:
            end[t] += 1
            terms[t] += share[t] * c[end[t]]
            share[t] *= g
        if np.asarray(is_terminal)[end[t]]:
            share[t] = 0.0
    return PartialReturns(terms, share, end)


class HeldOutEpisode(NamedTuple):
    """A stretch of consecutive recorded rows: n actions, n + 1 states."""

    prediction: Floats  # in each state, shape (n + 1,)
    reading: Floats  # the cumulant on reaching each state, shape (n + 1,)
    ratio: Floats  # pi(a) / b(a) of each action, shape (n,)
    is_terminal: bool  # whether the last state is terminal


class HeldOutScore(NamedTuple):
    """A score by importance sampling."""

    n_stretches: int
    effective_size: float
    nmsre: float


def held_out_nmsre(
    episodes: Sequence[HeldOutEpisode], gamma: float, n_terms: int, stride: int
) -> HeldOutScore:
    """Return the NMSRE of a question by per-decision weighted importance sampling, term by term.

    A stretch of `n_terms` steps begins in the first state of each episode, and in every `stride`-th
    after it from which enough steps, or the terminal state, follow. Its error after k steps is
    v_0 - S_k - gamma^k v_k; the mean of the last one's square is the sum over k of the weighted means
    of the changes of the square. Variances are those of the error of a constant, the mean reading
    over 1 - gamma.
    """
    weights = []
    errors = []
    deviations = []
    starts = []
    for episode in episodes:
        n = len(episode.ratio)
        previous = -stride
        for t in range(n):
            if t - previous >= stride and (t + n_terms <= n or episode.is_terminal):
                starts.append((episode, t))
                previous = t
    reached = [
        episode.reading[min(t + k, len(episode.ratio))]
        for episode, t in starts
        for k in range(n_terms + 1)
    ]
    constant = float(np.mean(reached)) / (1.0 - gamma)
    for episode, t in starts:
        n = len(episode.ratio)
        weight = 1.0
        total = 0.0
        rows = []
        for k in range(1, n_terms + 1):
            if t + k <= n:
                weight *= episode.ratio[t + k - 1]
                total += gamma ** (k - 1) * episode.reading[t + k]
            share = gamma**k
            if episode.is_terminal and t + k >= n:
                share = 0.0
            last = episode.prediction[min(t + k, n)]
            error = episode.prediction[t] - total - share * last
            rows.append((weight, error, constant - total - share * constant))
        by_kind = np.array(rows).T
        weights.append(by_kind[0])
        errors.append(by_kind[1])
        deviations.append(by_kind[2])
    w = np.array(weights)

    def mean_of(paths: Floats) -> float:
        value = 0.0
        for k in range(n_terms):
            change = paths[:, k] - (paths[:, k - 1] if k else 0.0)
            if w[:, k].sum() > 0.0:
                value += float((w[:, k] * change).sum() / w[:, k].sum())
        return value

    deviation = np.array(deviations)
    variance = mean_of(deviation**2) - mean_of(deviation) ** 2
    at = w[:, min(stride, n_terms) - 1]
    size = float(at.sum() ** 2 / (at**2).sum())
    return HeldOutScore(len(starts), size, mean_of(np.array(errors) ** 2) / variance)


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
