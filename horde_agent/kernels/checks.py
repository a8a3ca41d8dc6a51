"""Check and complete the signals of a transition in one pass; NumPy would need ten."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from horde_agent.kernels import readings
from horde_agent.kernels._jit import inlined, inner_kernel, kernel
from horde_agent.kernels.readings import ReadingArrays
from horde_agent.types import Bools, Floats, Integers

# Findings, as bits.
BROKEN = 1  # a signal is not finite, or exceeds the range of the engine's dtype
BOUND_RISES = 2  # a cumulant, an outcome or a continuation is larger than all before

# Flags of an engine after a step, as bits.
DEMON_DIVERGED = 1
TAIL_TOO_LONG = 2

# in place of a constant policy's action: rho is 1, or is computed elsewhere
ON_POLICY = -1
ELSEWHERE = -2
NO_CHANNEL = -1

# Rows of `RatioArrays.totals`: steps with rho > 0, sum of rho, sum of its squares
N_POSITIVE = 0
SUM = 1
SQUARES = 2
N_TOTALS = 3

# |theta| above BOUND_SCALE r_max min(1/(1 - gamma), LONGEST_HORIZON) diverged
BOUND_SCALE = 1e3
LONGEST_HORIZON = 1e3


class Signals(NamedTuple):
    """The signals of one transition.

    Attributes:
        rho_t: Importance sampling ratios pi(a_t)/b(a_t), finite, (n_policies,).
        gamma_tp1, lam_tp1: Continuation and trace decay at the state reached, the latter before any
            clipping by rho,
            (n_groups,).
        c_tp1: Cumulants, less the reference of `learning.offsets`, (n_cumulants,).
        z_tp1: Outcomes, as `learning.offsets` shifts them, (n_demons,).
        b_t, action_t: b(a_t) and a_t, each (1,); rules and trace rules that need them say so.
        interest_t: Interest of the state left, (n_demons,), or (1,) for all demons.
        has_rho: False for trace groups whose policy has no ratio in this step: their demons skip
            it; (n_groups,), or (1,) for all groups.
        is_fixed: True if only rho and c change from step to step.
    """

    rho_t: Floats
    gamma_tp1: Floats
    lam_tp1: Floats
    c_tp1: Floats
    z_tp1: Floats
    b_t: Floats = np.full(1, np.nan)
    action_t: Integers = np.zeros(1, dtype=np.int64)
    interest_t: Floats = np.ones(1)
    has_rho: Bools = np.ones(1, dtype=np.bool_)
    is_fixed: bool = False


class RatioArrays(NamedTuple):
    """Importance sampling ratios of p policies, and their sums."""

    action: Integers  # (p,): action of a constant policy; ON_POLICY or ELSEWHERE for others
    rho: Floats  # (p,)
    totals: Floats  # (N_TOTALS, p): sums over each policy's ratios so far


class SignalArrays(NamedTuple):
    """The signals' arrays and their running maxima: g groups, d demons.

    The owner writes the values of user functions before `finish_signals` writes the rest.
    """

    gamma: Floats  # (g,)
    lam: Floats  # (g,)
    c: Floats  # (n_cumulants,): cumulants less their reference: of each channel, or of each demon
    z: Floats  # (d,): outcomes, shifted by the offsets
    group: Integers  # (d,): of each demon
    channel: Integers  # (n_cumulants,): channel that is each cumulant; NO_CHANNEL for a function or a prediction
    reference: Floats  # (n_cumulants,): subtracted from each cumulant, 0 without an offset; see `kernels.readings`
    cumulant: Integers  # (d,): index of each demon's cumulant in `c`
    top: Floats  # (n_cumulants,): largest |c| so far, or (0,) unless all cumulants are channels
    largest: Floats  # (d,): largest |c| or |z| so far
    longest: Floats  # (g,): largest gamma so far
    bound: Floats  # (d,): largest plausible |theta|: BOUND_SCALE r_max min(1/(1 - gamma), LONGEST_HORIZON)
    is_known: Integers  # (1,): 1 once the constant signals passed the check
    max_finite: float  # largest finite number of the engine's dtype
    is_fixed: bool  # no user function and no other demon's prediction is evaluated on each step
    is_by_channel: bool  # every cumulant is a channel


@kernel
def first_wrong(observation: Floats, tiles: Integers, seen: Integers) -> int:
    """Return the place of the first error in an observation, (n_channels,), and its tiles, (n_active,); -1 if none.

    It is k if value k is infinite, -2 - k if tile k is out of range, -2 - n_active - k if tile k
    is a duplicate; NaN is a missing reading. `seen`, shape (n_features + 1,), has the number of the
    check that last saw each feature, and last the number of checks.
    """
    for i in range(observation.shape[0]):
        if np.isinf(observation[i]):
            return i
    n_features = seen.shape[0] - 1
    seen[n_features] += 1
    for k in range(tiles.shape[0]):
        if tiles[k] < 0 or tiles[k] >= n_features:
            return -2 - k
        if seen[tiles[k]] == seen[n_features]:
            return int(-2 - tiles.shape[0] - k)
        seen[tiles[k]] = seen[n_features]
    return -1


@inner_kernel
def constant_ratios(of: RatioArrays, action: int, probability: float) -> None:
    """Write pi(action)/b(action) of constant policies, and 1 for the behaviour policy itself."""
    for i in range(of.rho.shape[0]):
        if of.action[i] == ON_POLICY:
            of.rho[i] = 1.0
        elif of.action[i] >= 0:
            of.rho[i] = 0.0
            if of.action[i] == action:
                of.rho[i] = 1.0 / probability


def bound(largest: Any, longest: Any, max_finite: float) -> Any:
    """Return the largest plausible |theta|, given the largest |c| or |z| and the largest gamma; numbers or arrays."""
    horizon = 1.0 / np.maximum(1.0 - longest, 1.0 / LONGEST_HORIZON)
    return np.minimum(BOUND_SCALE * largest * horizon, max_finite)


_bound = inlined(bound)


@inner_kernel
def raise_bounds(of: SignalArrays) -> None:
    """Update the running maxima and the bounds from the signals; NaN is ignored."""
    for g in range(of.gamma.shape[0]):
        if np.isfinite(of.gamma[g]) and of.gamma[g] > of.longest[g]:
            of.longest[g] = of.gamma[g]
    for i in range(of.largest.shape[0]):
        for value in (abs(of.c[of.cumulant[i]]), abs(of.z[i])):
            if of.largest[i] < value <= of.max_finite:
                of.largest[i] = value
        of.bound[i] = _bound(of.largest[i], of.longest[of.group[i]], of.max_finite)


@inner_kernel
def read_channels(of: SignalArrays, observation: Floats) -> int:
    """Write the channels of an observation, shape (n_sensors,), into `c`, subtract the references; return findings."""
    n_larger = 0
    n_broken = 0
    if of.is_by_channel:
        for k in range(of.c.shape[0]):
            reading = observation[of.channel[k]]
            of.c[k] = reading - of.reference[k]
            n_broken += not abs(reading) <= of.max_finite  # also if it is missing, NaN
            if of.top[k] < abs(of.c[k]) <= of.max_finite:
                of.top[k] = abs(of.c[k])
                n_larger += 1
    else:
        for i in range(of.c.shape[0]):
            if of.channel[i] != NO_CHANNEL:
                of.c[i] = observation[of.channel[i]]
            n_broken += not abs(of.c[i]) <= of.max_finite
            of.c[i] -= of.reference[i]
    return int(BROKEN * (n_broken > 0) | BOUND_RISES * (n_larger > 0))


@inner_kernel
def check_signals(of: SignalArrays) -> int:
    """Return findings about the signals that user functions may have computed."""
    n_sound = 0
    n_larger = 0
    n = of.gamma.shape[0] + of.z.shape[0]
    for g in range(of.gamma.shape[0]):  # a count without a branch: numba vectorises only such loops
        # NaN is not sound
        n_sound += (abs(of.gamma[g]) <= of.max_finite) & (abs(of.lam[g]) <= of.max_finite)
        n_larger += of.gamma[g] > of.longest[g]
    if not of.is_by_channel:
        n += of.c.shape[0]
        for i in range(of.c.shape[0]):
            n_sound += abs(of.c[i]) <= of.max_finite
            n_larger += abs(of.c[i]) > of.largest[i]
    for i in range(of.z.shape[0]):
        n_sound += abs(of.z[i]) <= of.max_finite
        n_larger += abs(of.z[i]) > of.largest[i]
    return int(BROKEN * (n_sound < n) | BOUND_RISES * (n_larger > 0))


@kernel
def count_updated(
    rho: Floats, policy: Integers, group: Integers, is_diverged: Bools, is_skipping: Bools
) -> int:
    """Return the number of demons that learn in a step: with rho > 0, not diverged, and not skipping it.

    `rho` is of each policy, shape (p,); `policy` of each group, (g,); the others of each demon, (d,).
    """
    n_updated = 0
    for i in range(group.shape[0]):
        is_idle = is_diverged[i] | is_skipping[i]
        n_updated += (rho[policy[group[i]]] > 0.0) & (not is_idle)
    return n_updated


@inner_kernel
def add_up(of: RatioArrays) -> None:
    """Add the ratios to the totals."""
    for p in range(of.rho.shape[0]):
        ratio = of.rho[p]
        of.totals[N_POSITIVE, p] += ratio > 0
        of.totals[SUM, p] += ratio
        of.totals[SQUARES, p] += ratio * ratio


@kernel
def finish_ratios(of: RatioArrays, action: int, probability: float) -> None:
    """Write the ratios of constant policies, and add all ratios to the totals."""
    constant_ratios(of, action, probability)
    add_up(of)


@kernel
def finish_signals(
    of: SignalArrays,
    following: ReadingArrays,
    observation: Floats,
    before: Floats,
    is_last: bool,
) -> int:
    """Complete the signals of a transition between two valid observations, (n_channels,); return findings as bits.

    Channels and bounds are written. `observation` is of the state reached, `before` of the state
    left; `is_last` at the end of a stream.
    """
    readings.follow(following, of.reference, before, observation, is_last)
    findings = read_channels(of, observation)
    if not (of.is_fixed and of.is_known[0]):
        signal_findings = check_signals(of)
        of.is_known[0] = not signal_findings & BROKEN
        findings |= signal_findings
    if findings & BOUND_RISES:
        raise_bounds(of)
    return int(findings)
