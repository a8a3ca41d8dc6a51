"""Offsets o of the demons' predictions: their estimates from the first readings, and the signals that depend on them.

A transition with cumulant c', continuation gamma' and outcome z' moves an automatic offset to

    total := total + c' + (1 - gamma') z'       ends := ends + 1 - gamma'        o = total / ends

and the engine receives, with the constant gamma and z of a centred demon,

    c' - r,  r = (1 - gamma) (o - z)            z' := 0, and gamma (z - o) at the end of a stream

and from another demon with an offset, z' := z - o. `learning.offsets` derives both.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from horde_agent.kernels._jit import kernel
from horde_agent.kernels.checks import NO_CHANNEL, SignalArrays
from horde_agent.kernels.readings import ReadingArrays
from horde_agent.types import Bools, Floats, Integers

N_READINGS = 500
"""Transitions from which an automatic offset is estimated, from the first state on."""

NO_SOURCE = -1
"""In place of the demon that predicts the cumulant."""

ROUNDING = 1e-12
"""Largest relative difference between equal readings and a reference computed from them."""

# What remains to be read, as bits
IS_MOVING = 1  # an automatic offset is estimated from further readings
IS_UNREAD = 2  # one has had none
IS_COMPLETE = 4  # one has had its last reading in this transition


class OffsetArrays(NamedTuple):
    """The offsets of d demons, shape (d,) each."""

    is_automatic: Bools  # estimated from readings
    is_centred: Bools  # the engine receives the cumulant less a reference
    is_shifted: Bools  # the engine receives the outcome less the offset
    is_frozen: Bools  # diverged: nothing is added to its predictions
    source: Integers  # demon that predicts the cumulant, or NO_SOURCE
    gamma: Floats  # constant continuation; 0 for a function
    outcome: Floats  # latest outcome z, as the question defines it
    value: Floats  # o
    added: Floats  # the addition to theta.phi: o, 0 if the demon diverged
    n_readings: Integers
    total: Floats  # sum of c + (1 - gamma) z
    ends: Floats  # sum of 1 - gamma
    lowest: Floats  # smallest cumulant
    highest: Floats  # largest cumulant
    is_rounded: Bools  # float32 holds every cumulant
    is_due: Bools  # the latest reading counts


@kernel
def read(
    of: OffsetArrays, signals: SignalArrays, channels: Floats, is_first: bool, is_last: bool
) -> int:
    """Move the automatic offsets by a reading of the `channels`, (n_channels,), and return what remains, as bits.

    `signals` have the cumulants of functions and predictions, and gamma of each trace group. The
    reading is of a transition, or of the first state of a stream, `is_first`. The latter counts for
    demons without a reading, unless another demon predicts their cumulant. At the end of a stream,
    `is_last`, gamma is 0. Another demon's prediction is a reading once that demon has had one.
    """
    for i in range(of.value.shape[0]):
        is_due = of.is_automatic[i] and of.n_readings[i] < N_READINGS
        source = of.source[i]
        if is_due and source == NO_SOURCE:
            is_due = not is_first or of.n_readings[i] == 0
        elif is_due:
            is_ready = not of.is_automatic[source] or of.n_readings[source] > 0
            is_due = is_ready and not is_first
        of.is_due[i] = is_due

    remaining = 0
    for i in range(of.value.shape[0]):
        if of.is_due[i]:
            channel = signals.channel[signals.cumulant[i]]
            if channel == NO_CHANNEL:
                cumulant = signals.c[signals.cumulant[i]]
            else:
                cumulant = channels[channel]
            end = 1.0
            if not is_last:
                end = 1.0 - signals.gamma[signals.group[i]]
            term = cumulant + end * of.outcome[i]
            of.is_due[i] = abs(term) <= signals.max_finite and abs(end) <= 1.0
        if of.is_due[i]:
            of.n_readings[i] += 1
            of.total[i] += term
            of.ends[i] += end
            of.lowest[i] = min(of.lowest[i], cumulant)
            of.highest[i] = max(of.highest[i], cumulant)
            of.is_rounded[i] = of.is_rounded[i] and np.float32(cumulant) == cumulant
            if of.ends[i] > 0.0:
                of.value[i] = of.total[i] / of.ends[i]
            if not of.is_frozen[i]:
                of.added[i] = of.value[i]
            if of.n_readings[i] == N_READINGS:
                remaining |= IS_COMPLETE
        if of.is_automatic[i]:
            if of.n_readings[i] < N_READINGS:
                remaining |= IS_MOVING
            if of.n_readings[i] == 0:
                remaining |= IS_UNREAD
    return remaining


@kernel
def write(of: OffsetArrays, signals: SignalArrays, followers: ReadingArrays, is_last: bool) -> None:
    """Write references, outcomes and additions to predictions from the offsets; `is_last` as in `read`.

    A constant reading is subtracted to the last bit, so that nothing remains to be learned from its
    rounding.
    """
    for i in range(of.value.shape[0]):
        outcome = of.outcome[i]
        if of.is_centred[i]:
            reference = (1.0 - of.gamma[i]) * (of.value[i] - outcome)
            lowest = of.lowest[i]
            if lowest == of.highest[i] and abs(reference - lowest) <= ROUNDING * abs(lowest):
                reference = lowest
            signals.reference[signals.cumulant[i]] = reference
            outcome = 0.0
            if is_last:
                outcome = of.gamma[i] * (of.outcome[i] - of.value[i])
        elif of.is_shifted[i]:
            outcome -= of.value[i]
        signals.z[i] = outcome
    signals.is_known[0] = 0  # these outcomes are not checked yet

    n_followers = followers.follower.shape[0]
    for j in range(n_followers):
        one = followers.follower[j]
        one.offset = of.value[followers.leader[j]]
        one.centre = signals.reference[one.cumulant]
        followers.added[j] = one.offset + one.level
    for j in range(followers.steady.shape[0]):
        followers.added[n_followers + j] = of.added[followers.steady[j]]
