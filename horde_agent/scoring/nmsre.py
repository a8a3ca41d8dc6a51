"""Normalised mean squared return error: the share of a return's variance that the predictions leave unexplained.

    NMSRE = trace of (v_t - g - share v_{t+n})^2 / Var[g + share mu]

over the test excursions of a question, with g and share as in `returns`. The trace is x <- x + (error
- x) / tau with tau = 10 excursions and starts at the first error; Var is over all excursions, so that
predicting the mean scores about 1. Returns that do not vary score 0 if they are predicted, else 1. NaN
means that an excursion did not test a demon, or that the horizon is too short for it.

After n measured terms the share prod gamma of the return is still to come. The mean predictor, mu,
expects mu of it; with it the returns are g + share mu, and mu is their mean: the mean of g over that
of 1 - share. Their variance does not depend on the zero point of the cumulants if the shares are
equal, nor if the shares depend on the time alone.

A question is nearly constant if Var[g] < step^2 / 12, the variance of the error of rounding one
reading to the quantisation step of its channel (Bennett 1948): rounding alone can then cause this
variance, and a very large NMSRE.

Source: White, Modayil & Sutton (2012), section 4; Chan, Golub & LeVeque (1979), for sums of squares of
one batch after the other.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from typing import NamedTuple

import numpy as np

from horde_agent.saving import State, attributes, put_back
from horde_agent.scoring.returns import NEGLIGIBLE_SHARE, PolicyUnderTest
from horde_agent.types import Bools, Floats, Integers

TAU = 10.0
ROUNDING = 1e-12
"""Largest deviation of returns that do not vary, as a share of their mean."""
RIGHT = 1e-6
"""Largest error of a prediction of such returns that is right, as a share of their mean."""

_STATE = ("n", "_terms", "_share", "_terms_squares", "_products", "_share_squares")


def error_trace(errors: Floats, latest: Floats | None = None) -> Floats:
    """Return the exponential trace of squared errors along the first axis, shape (n_excursions, n).

    It continues from `latest`, shape (n,), if that is given, and updates it in place. It is NaN
    before the first error, and does not change if an error is NaN.
    """
    if latest is None:
        latest = np.full(errors.shape[1:], np.nan)
    trace = np.empty_like(errors)
    if np.isnan(errors).any() or np.isnan(latest).any():
        for k, error in enumerate(errors):
            moved = np.where(np.isnan(latest), error, latest + (error - latest) / TAU)
            latest[...] = trace[k] = np.where(np.isnan(error), latest, moved)
        return trace
    for k, error in enumerate(errors):
        latest += (error - latest) / TAU
        trace[k] = latest
    return trace


class Spread(NamedTuple):
    """Mean and variance of the returns of n questions.

    Attributes:
        mean: Mean return mu, shape (n,); that of the measured terms if no return has an end.
        variance: Variance of the returns, shape (n,); NaN without two returns, or if more than 5 % of
            the return lie beyond the measured terms in the mean.
        is_constant: Whether the returns do not vary beyond rounding, shape (n,).
    """

    mean: Floats
    variance: Floats
    is_constant: Bools


def nmsre_of_constant(error: Floats, mean: Floats | float) -> Floats:
    """Return the NMSRE of returns that do not vary: 0 for a prediction that is right to 1e-6 of them, else 1.

    Args:
        error: Squared error of the prediction, shape (..., n); NaN gives 1.
        mean: The return, shape (n,).
    """
    return np.where(error <= (RIGHT * mean) ** 2, 0.0, 1.0)


class ReturnMoments:
    """Moments of the returns of n questions, which are added batch by batch.

    Attributes:
        n: Number of returns, shape (n,).
    """

    def __init__(self, n_questions: int) -> None:
        self.n: Integers = np.zeros(n_questions, dtype=np.int64)
        # Means of the measured terms and of the shares beyond, and sums of squares about them
        self._terms: Floats = np.zeros(n_questions)
        self._share: Floats = np.zeros(n_questions)
        self._terms_squares: Floats = np.zeros(n_questions)
        self._products: Floats = np.zeros(n_questions)
        self._share_squares: Floats = np.zeros(n_questions)

    def add(self, terms: Floats, share: Floats) -> None:
        """Add returns: the sums of their measured terms, NaN if there is none, and the shares beyond, (n_rows, n)."""
        is_known = ~np.isnan(terms)
        n = is_known.sum(axis=0)
        n_after = self.n + n
        terms_mean = _mean(terms, is_known, n)
        share_mean = _mean(share, is_known, n)
        terms_off = np.where(is_known, terms - terms_mean, 0.0)
        share_off = np.where(is_known, share - share_mean, 0.0)
        weight = np.divide(n, n_after, out=np.zeros(len(n)), where=n_after > 0)
        terms_away = np.where(n > 0, terms_mean - self._terms, 0.0)
        share_away = np.where(n > 0, share_mean - self._share, 0.0)
        between = self.n * weight
        self._terms_squares += (terms_off**2).sum(axis=0) + terms_away**2 * between
        self._products += (terms_off * share_off).sum(axis=0) + terms_away * share_away * between
        self._share_squares += (share_off**2).sum(axis=0) + share_away**2 * between
        self._terms = np.where(self.n == 0, terms_mean, self._terms + terms_away * weight)
        self._share = np.where(self.n == 0, share_mean, self._share + share_away * weight)
        self.n = n_after

    @property
    def share(self) -> Floats:
        """Mean share of the return beyond the measured terms, shape (n,)."""
        return self._share

    def spread(self) -> Spread:
        """Return mean and variance of the returns so far."""
        measured = 1.0 - self._share
        mean = self._terms.copy()
        np.divide(self._terms, measured, out=mean, where=measured > 0.0)
        squares = self._terms_squares + mean * (2.0 * self._products + mean * self._share_squares)
        variance: Floats = np.full(len(mean), np.nan)
        is_measured = (self.n >= 2) & (self._share <= NEGLIGIBLE_SHARE)
        np.divide(np.maximum(squares, 0.0), self.n, out=variance, where=is_measured)
        # The two parts of a return that does not vary, if its measured share does, cancel each other
        parts = (self._terms_squares + mean**2 * self._share_squares) / np.maximum(self.n, 1)
        is_constant = variance <= (ROUNDING * mean) ** 2 + ROUNDING * parts
        return Spread(mean, variance, np.asarray(is_constant))

    def normalise(self, error: Floats) -> Floats:
        """Return squared errors, of shape (..., n), over the variance: NMSRE; NaN where the variance is.

        If the returns do not vary, it is `nmsre_of_constant`.
        """
        mean, variance, is_constant = self.spread()
        nmsre = nmsre_of_constant(error, mean)
        nmsre[np.isnan(error + variance)] = np.nan
        varies = np.broadcast_to(~is_constant, error.shape)
        np.divide(error, variance, out=nmsre, where=varies)
        return nmsre

    def at(self, questions: Integers) -> ReturnMoments:
        """Return a copy of the moments of some questions, shape (m,)."""
        moments = ReturnMoments(len(self.n))
        moments.restore(self.state())
        moments.rearrange(questions)
        return moments

    def rearrange(self, old_index: Integers) -> None:
        """Continue after questions were added or removed; `old_index`, (n,), is -1 for the added ones."""
        is_old = old_index >= 0
        for name in _STATE:
            values = getattr(self, name)
            setattr(self, name, np.where(is_old, values[old_index], np.zeros_like(values[:1])))

    def state(self) -> State:
        """Return the moments."""
        return attributes(self, *_STATE)

    def restore(self, state: State) -> None:
        """Continue from what `state` returned."""
        put_back(self, state, *_STATE)


def _mean(values: Floats, is_known: Bools, n: Integers) -> Floats:
    """Return the mean over the known rows, shape (n,); 0 without one."""
    total = np.where(is_known, values, 0.0).sum(axis=0)
    return np.asarray(np.divide(total, n, out=np.zeros(len(n)), where=n > 0))


class Outcomes(NamedTuple):
    """All complete excursions of one policy, or some of them, in order.

    Attributes:
        policy: The policy with its n demons.
        step: Step at which each began, shape (n_excursions,).
        predictions, returns: The predictions and the terms measured, shape (n_excursions, n); NaN
            where an excursion did not test a demon.
        remainder: What the demons predict of the returns beyond these terms, of that shape.
        share: The share of the returns beyond them, of that shape.
        persistence: What "the present reading lasts" predicts of the terms; NaN if unknown.
    """

    policy: PolicyUnderTest
    step: Integers
    predictions: Floats
    returns: Floats
    remainder: Floats | float = 0.0
    share: Floats | float = 0.0
    persistence: Floats | float = math.nan

    def at(self, numbers: Integers) -> Outcomes:
        """Return the excursions with some numbers, shape (n,)."""
        shape = np.shape(self.returns)
        parts = (self.remainder, self.share, self.persistence)
        remainder, share, persistence = (np.broadcast_to(part, shape)[numbers] for part in parts)
        return Outcomes(
            policy=self.policy,
            step=self.step[numbers],
            predictions=self.predictions[numbers],
            returns=self.returns[numbers],
            remainder=remainder,
            share=share,
            persistence=persistence,
        )

    @property
    def errors(self) -> Floats:
        """Errors of the predictions, shape (n_excursions, n)."""
        return np.asarray(self.predictions - self.remainder - self.returns)

    def persistence_errors(self, mean: Floats) -> Floats:
        """Return the errors of "the present reading lasts", (n_excursions, n); of the mean return, (n,), if unknown."""
        of_mean = mean * (1.0 - self.share)
        predicted = np.where(np.isnan(self.persistence), of_mean, self.persistence)
        return np.asarray(predicted - self.returns)


def quantisation_steps(policies: Iterable[PolicyUnderTest], n_demons: int, steps: Floats) -> Floats:
    """Return the quantisation step of each question's channel, (n_demons,), from those of all channels, (n_channels,).

    It is in the units of the channels; NaN if a question's return is no sum of one channel, or the
    step is unknown.
    """
    step_sizes = np.full(n_demons, np.nan)
    for policy in policies:
        step_sizes[policy.demons] = np.append(steps, np.nan)[policy.channel]  # NO_CHANNEL is -1
    return step_sizes


def are_nearly_constant(variance: Floats, steps: Floats) -> Bools:
    """Return which returns varied by less than the rounding of their channel, shape (n,); False where NaN.

    `variance` and `steps`, from `quantisation_steps`, have the shape (n,).
    """
    return np.asarray(variance < steps**2 / 12.0)


def nmsre_text(nmsre: float | None) -> str:
    """Return an NMSRE as text: three decimals, or three significant digits from 1,000 on; "-" for None.

    Examples:
        >>> nmsre_text(0.17254), nmsre_text(1289246595.028), nmsre_text(None)
        ('0.173', '1.29e9', '-')
    """
    if nmsre is None:
        return "-"
    if nmsre < 999.9995:
        return f"{nmsre:.3f}"
    digits, _, exponent = f"{nmsre:.3g}".partition("e+")
    if exponent:
        return f"{digits}e{int(exponent)}"
    return f"{digits}"


def deviation_of(variance: Floats) -> Floats:
    """Return the standard deviation by a learned variance, any shape; a variance below 0 counts as 0."""
    return np.asarray(np.sqrt(np.maximum(variance, 0.0)))
