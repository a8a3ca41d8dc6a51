"""Offsets that follow a reading, v(s) = o + g (x(s) - r) + theta.phi(s): shape the cumulants, and estimate g.

The engine learns theta from the cumulant less a reference. With x the channel that is the cumulant,
r its constant part of the reference, and y = x - r,

    delta = c' - r + g (gamma' y' - y) + gamma' theta.phi' - theta.phi

so the reference of a transition is r - g (gamma' y' - y). This holds for every g: rewards are shaped
by the potential g y, which changes no answer (Ng, Harada & Russell, 1999; Wiewiora, 2003: it is an
initial value).

g = kappa / (1 - gamma), where kappa is the share of a deviation that lasts for the time scale of the
question: the least-squares slope of the return on the reading it begins at, over the one of a reading
that stays as it is. Each new reading belongs to the returns from all states before it, gamma^k of it
to that of k + 1 steps ago. With m a mean of the latest readings,

    past := gamma past + (x - m)            weight := gamma weight + (x - m)^2
    product := product + (x' - m) past      square := square + weight
    kappa = product / square, within [0, 1]

Where a reading is missing (NaN), the deviation y of the last one stands for it, and the sums begin again
as at the beginning of a stream.

The mean is of the latest `N_MEAN` readings: over a whole life, a slow drift would pass for a signal that
stays as it is, and noise on it would be predicted to stay. Product and square are halved when they are of
`N_SUMMED` readings, so that kappa follows a changed signal in the same time at any age.
"""

from __future__ import annotations

from typing import Any, NamedTuple, TypeAlias

import numpy as np
from numpy.typing import NDArray

from horde_agent.kernels._jit import inlined, inner_kernel, kernel
from horde_agent.types import Bools, Floats, Integers

N_MEAN = 300.0
"""Readings that the mean is taken over."""
N_SUMMED = 262_144.0
"""Readings that products and squares reach back, about: 7.3 hours at 10 Hz."""

FOLLOWER = np.dtype(
    [
        ("cumulant", np.int64),  # index among the cumulants that the engine receives
        ("channel", np.int64),  # channel of the observation
        ("gamma", np.float64),  # continuation
        ("offset", np.float64),  # o
        ("centre", np.float64),  # r, in the unit of the channel
        ("gain", np.float64),  # g
        ("product", np.float64),  # sum of products of a reading and those before it, discounted
        ("square", np.float64),  # sum of their squares, discounted alike
        # Of the stream; `learning.readings` exchanges them when another one is selected
        ("level", np.float64),  # g (x - r) at the current state
        ("recent_mean", np.float64),  # of the latest readings, m
        ("n_read", np.float64),  # number of readings
        ("past", np.float64),  # discounted sum of the deviations x - m
        ("weight", np.float64),  # discounted sum of their squares
    ]
)
"""A cumulant with an offset that follows the reading. One record, since a step finds them in no cache."""
Followers: TypeAlias = "np.recarray[Any, Any]"


class ReadingArrays(NamedTuple):
    """The k cumulants with an offset that follows the reading, and the additions to predictions.

    Attributes:
        follower: Records `FOLLOWER`, shape (k,).
        leader: A demon of each of these cumulants, shape (k,).
        steady: Demons with an offset that does not follow a reading, shape (n_steady,).
        added: First o + g (x - r) of each of them at the current state of the stream, then other
            offsets, then 0 for demons without one, shape (k + n_steady + 1,).
    """

    follower: Followers
    leader: Integers
    steady: Integers
    added: Floats


@inlined
def gain_of(product: float, square: float, gamma: float) -> float:
    """Return g = kappa / (1 - gamma) from the sums of products and squares; 0 as long as readings are constant."""
    kappa = 0.0
    if 0.0 < product < square:
        kappa = product / square
    elif 0.0 < square <= product < np.inf:
        kappa = 1.0
    return kappa / (1.0 - gamma)


@inlined
def held_deviation(level: float, gain: float) -> float:
    """Return the deviation y that a level g y was made of; 0 without one."""
    if gain > 0.0:
        return level / gain
    return 0.0


@kernel
def write_gains(follower: Followers) -> None:
    """Write g from the sums of products and squares, (k,)."""
    for j in range(follower.shape[0]):
        one = follower[j]
        one.gain = gain_of(one.product, one.square, one.gamma)


@inner_kernel
def follow(
    of: ReadingArrays, reference: Floats, before: Floats, after: Floats, is_last: bool
) -> None:
    """Write what a transition between two observations, (n_channels,) each, subtracts from cumulants; learn g from it.

    References are of shape (n_cumulants,). At the end of a stream, `is_last`, gamma' is 0.
    """
    for j in range(of.follower.shape[0]):
        one = of.follower[j]
        x_t = before[one.channel]
        x_tp1 = after[one.channel]
        y_t = x_t - one.centre
        y_tp1 = x_tp1 - one.centre
        is_missing = np.isnan(y_t) or np.isnan(y_tp1)
        if is_missing:
            if np.isnan(y_t):
                y_t = held_deviation(one.level, one.gain)
            if np.isnan(y_tp1):
                y_tp1 = y_t
        gamma_tp1 = one.gamma
        if is_last:
            gamma_tp1 = 0.0
        reference[one.cumulant] = one.centre - one.gain * (gamma_tp1 * y_tp1 - y_t)

        if is_missing:
            one.past = 0.0
            one.weight = 0.0
        else:
            if one.n_read == 0.0:
                one.recent_mean = x_t
                one.n_read = 1.0
            deviation = x_t - one.recent_mean
            one.past = one.gamma * one.past + deviation
            one.weight = one.gamma * one.weight + deviation * deviation
            one.product += (x_tp1 - one.recent_mean) * one.past
            one.square += one.weight
            one.n_read += 1.0
            if one.n_read > N_SUMMED:
                one.n_read *= 0.5
                one.product *= 0.5
                one.square *= 0.5
            one.recent_mean += (x_tp1 - one.recent_mean) / min(one.n_read, N_MEAN)
            one.gain = gain_of(one.product, one.square, one.gamma)
        one.level = one.gain * y_tp1
        of.added[j] = one.offset + one.level


@kernel
def add_up(
    latest: Floats,
    averaged: Floats,
    has_average: Bools,
    shift: Floats,
    added: Floats,
    place: NDArray[np.int32],
    out: Floats,
) -> None:
    """Write predictions, (n_demons,), from theta.phi and theta_bar.phi: see `learning/readout.py`.

    Demons without an average have theta.phi. `place` is each demon's in `ReadingArrays.added`.
    """
    for i in range(out.shape[0]):
        value = latest[i]
        if has_average[i]:
            value = averaged[i] + shift[i]
        out[i] = value + added[place[i]]
