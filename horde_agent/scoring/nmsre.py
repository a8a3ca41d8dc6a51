"""Normalised mean squared return error: the share of a return's variance that the predictions leave unexplained.

    NMSRE = trace of (v_t - g - share v_{t+n})^2 / Var[g + share mu]

over the test excursions of a question, with g, share and mu as in `returns` and `moments`. The
trace is x <- x + (error - x) / tau with tau = 10 excursions and starts at the first error; Var is
over all excursions, so that predicting the mean scores about 1. Returns that do not vary score 0 if
they are predicted, else 1. NaN means that an excursion did not test a demon, or that the horizon is
too short for it.

A question is nearly constant if Var[g] < step^2 / 12, the variance of the error of rounding one
reading to the quantisation step of its channel (Bennett 1948): rounding alone can then cause this
variance, and a very large NMSRE.

Source: White, Modayil & Sutton (2012), section 4.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from typing import NamedTuple

import numpy as np

from horde_agent.scoring.returns import PolicyUnderTest
from horde_agent.types import Bools, Floats, Integers

TAU = 10.0


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

    @property
    def errors(self) -> Floats:
        """Errors of the predictions, shape (n_excursions, n)."""
        return np.asarray(self.predictions - self.remainder - self.returns)

    def persistence_errors(self, mean: Floats) -> Floats:
        """Return the errors of "the present reading lasts", (n_excursions, n); of the mean return, (n,), if unknown."""
        of_mean = mean * (1.0 - self.share)
        predicted = np.where(np.isnan(self.persistence), of_mean, self.persistence)
        return np.asarray(predicted - self.returns)
