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

The mean is of the latest `N_MEAN` readings: over a whole life, a slow drift would pass for a signal that
stays as it is, and noise on it would be predicted to stay.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from horde_agent.kernels._jit import inlined, inner_kernel, kernel
from horde_agent.types import Floats, Integers

N_MEAN = 300.0
"""Readings that the mean is taken over."""


class ReadingArrays(NamedTuple):
    """The k cumulants with an offset that follows the reading.

    Numbers of each stream are exchanged by `learning.readings` when another one is selected.
    """

    cumulant: Integers  # (k,): index among the cumulants that the engine receives
    channel: Integers  # (k,): channel of the observation
    gamma: Floats  # (k,): continuation
    centre: Floats  # (k,): r, in the unit of the channel
    product: Floats  # (k,): sum of products of a reading and those before it, discounted
    square: Floats  # (k,): sum of their squares, discounted alike
    gain: Floats  # (k,): g
    level: Floats  # (k + 1,): g (x - r) at the current state of the stream; the last one is 0
    mean: Floats  # (k,): of the stream's latest readings, m
    n_read: Floats  # (k,): number of the stream's readings
    past: Floats  # (k,): discounted sum of the stream's deviations x - m
    weight: Floats  # (k,): discounted sum of their squares


@inlined
def gain_of(product: float, square: float, gamma: float) -> float:
    """Return g = kappa / (1 - gamma) from the sums of products and squares; 0 as long as readings are constant."""
    kappa = 0.0
    if 0.0 < product < square:
        kappa = product / square
    elif 0.0 < square <= product < np.inf:
        kappa = 1.0
    return kappa / (1.0 - gamma)


@kernel
def write_gains(of: ReadingArrays) -> None:
    """Write g from the sums of products and squares."""
    for j in range(of.gain.shape[0]):
        of.gain[j] = gain_of(of.product[j], of.square[j], of.gamma[j])


@inner_kernel
def shape(
    of: ReadingArrays, reference: Floats, before: Floats, after: Floats, is_last: bool
) -> None:
    """Write the references, (n_cumulants,), of a transition between two observations, (n_channels,) each.

    At the end of a stream, `is_last`, gamma' is 0.
    """
    for j in range(of.cumulant.shape[0]):
        r = of.centre[j]
        y_t = before[of.channel[j]] - r
        y_tp1 = after[of.channel[j]] - r
        gamma_tp1 = of.gamma[j]
        if is_last:
            gamma_tp1 = 0.0
        reference[of.cumulant[j]] = r - of.gain[j] * (gamma_tp1 * y_tp1 - y_t)


@inner_kernel
def follow(of: ReadingArrays, before: Floats, after: Floats) -> None:
    """Learn g from a transition between two observations, (n_channels,) each, and write the levels after it."""
    for j in range(of.cumulant.shape[0]):
        x_t = before[of.channel[j]]
        x_tp1 = after[of.channel[j]]
        gamma = of.gamma[j]
        if of.n_read[j] == 0.0:
            of.mean[j] = x_t
            of.n_read[j] = 1.0
        deviation = x_t - of.mean[j]
        of.past[j] = gamma * of.past[j] + deviation
        of.weight[j] = gamma * of.weight[j] + deviation * deviation
        of.product[j] += (x_tp1 - of.mean[j]) * of.past[j]
        of.square[j] += of.weight[j]
        of.n_read[j] += 1.0
        of.mean[j] += (x_tp1 - of.mean[j]) / min(of.n_read[j], N_MEAN)
        of.gain[j] = gain_of(of.product[j], of.square[j], gamma)
        of.level[j] = of.gain[j] * (x_tp1 - of.centre[j])


@kernel
def add_offsets(
    predictions: Floats, offset: Floats, level: Floats, place: Integers, out: Floats
) -> None:
    """Write predictions with their offsets, (n_demons,); `place` is each demon's in `ReadingArrays.level`."""
    for i in range(out.shape[0]):
        out[i] = predictions[i] + offset[i] + level[place[i]]
