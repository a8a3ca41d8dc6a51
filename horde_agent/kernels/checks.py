"""What the demons are told of a transition, and what must hold of it, in one pass: NumPy would need ten."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from horde_agent.kernels._jit import inlined, inner_kernel, kernel
from horde_agent.types import Floats, Integers

# Findings, as bits.
BROKEN = 1  # what somebody is told is not finite, or past what an engine's type can hold
BOUND_RISES = 2  # a cumulant, an outcome or a continuation is larger than all before
STATE_WRONG = 4  # nothing was written: `first_wrong` says where

# What an engine says after a step, as bits.
SOMEBODY_IS_FLAGGED, A_TAIL_IS_TOO_LONG = 1, 2

ON_POLICY, ELSEWHERE = -1, -2  # instead of a constant policy's action: rho is 1, or was written by somebody else
NO_CHANNEL = -1

# Rows of `SignalArrays.totals`: steps with rho > 0, sum of rho, sum of its squares
N_POSITIVE, SUM, SQUARES, N_TOTALS = 0, 1, 2, 3

BOUND_SCALE, LONGEST_HORIZON = 1e3, 1e3  # a weight past BOUND_SCALE r_max min(1/(1 - gamma), LONGEST_HORIZON) is wild


class Signals(NamedTuple):
    """What the demons are told of a transition.

    Attributes:
        rho_t: Importance sampling ratios pi(a_t)/b(a_t), (n_policies,).
        gamma_tp1, lam_tp1: Continuation and trace decay at the state reached, the latter before any clipping by rho,
            (n_groups,).
        c_tp1: Cumulants, (n_cumulants,).
        z_tp1: Outcomes, (n_demons,).
        is_fixed: Says that only rho and c differ from step to step.
    """

    rho_t: Floats
    gamma_tp1: Floats
    lam_tp1: Floats
    c_tp1: Floats
    z_tp1: Floats
    is_fixed: bool = False


class SignalArrays(NamedTuple):
    """The arrays behind the signals, and what is remembered of them: p policies, g groups, d demons, n features.

    Their owner writes what functions of the user's give, before `finish_signals` writes the rest.
    """

    action: Integers  # (p,): of policies that always take one; ON_POLICY or ELSEWHERE of others
    rho: Floats  # (p,)
    gamma: Floats  # (g,)
    lam: Floats  # (g,)
    c: Floats  # (d,): cumulants, or the channels, (n_channels,)
    z: Floats  # (d,)
    group: Integers  # (d,): of each demon
    channel: Integers  # (d,): that each demon sums, NO_CHANNEL where a function or a prediction gives its cumulant
    top: Floats  # (n_channels,): largest |value| of each channel so far
    largest: Floats  # (d,): largest |c| or |z| so far
    longest: Floats  # (g,): largest gamma so far
    bound: Floats  # (d,): |theta| that no answer can need: BOUND_SCALE r_max min(1/(1 - gamma), LONGEST_HORIZON)
    totals: Floats  # (N_TOTALS, p): what each policy's ratios added up to so far
    seen: Integers  # (n + 1,): when each feature was seen last; how often a state was looked at
    is_known: Integers  # (1,): 1 once all that never changes was looked through
    max_finite: float  # the largest number that the engine's type can hold
    is_fixed: bool  # no function of the user's, and no other demon, is asked on each step
    is_by_channel: bool  # `c` holds the channels


@kernel
def first_wrong(observation: Floats, tiles: Integers, seen: Integers) -> int:
    """Return where a state is wrong, -1 where it is not.

    Args:
        observation: Shape (n_channels,).
        tiles: Active features, shape (n_active,).
        seen: As in `SignalArrays`, shape (n_features + 1,).

    Returns:
        k for a value k that is not finite, -2 - k for a tile k that is no feature, -2 - n_active - k for one that is
        there already.
    """
    for i in range(observation.shape[0]):
        if not np.isfinite(observation[i]):
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
def constant_ratios(of: SignalArrays, action: int, probability: float) -> None:
    """Write pi(action)/b(action) of the policies that always take one action, and 1 of the behaviour policy itself."""
    for i in range(of.rho.shape[0]):
        if of.action[i] == ON_POLICY:
            of.rho[i] = 1.0
        elif of.action[i] >= 0:
            of.rho[i] = 1.0 / probability if of.action[i] == action else 0.0


def bound(largest: Any, longest: Any, max_finite: float) -> Any:
    """Return the |theta| that no answer can need, from the largest |c| or |z| and the longest gamma, of one or many."""
    horizon = 1.0 / np.maximum(1.0 - longest, 1.0 / LONGEST_HORIZON)
    return np.minimum(BOUND_SCALE * largest * horizon, max_finite)


_bound = inlined(bound)


@inner_kernel
def raise_bounds(of: SignalArrays, observation: Floats) -> None:
    """Renew the largest numbers so far, and the bounds, by an observation, (n_sensors,); NaN counts for nothing."""
    for g in range(of.gamma.shape[0]):
        if np.isfinite(of.gamma[g]) and of.gamma[g] > of.longest[g]:
            of.longest[g] = of.gamma[g]
    for i in range(of.largest.shape[0]):
        c = observation[of.channel[i]] if of.channel[i] != NO_CHANNEL else of.c[i]
        for value in (abs(c), abs(of.z[i])):
            if of.largest[i] < value <= of.max_finite:
                of.largest[i] = value
        of.bound[i] = _bound(of.largest[i], of.longest[of.group[i]], of.max_finite)


@inner_kernel
def read_channels(of: SignalArrays, observation: Floats) -> int:
    """Write the channels of an observation, (n_sensors,), or each demon's, into `c`, and return what was found."""
    n_larger, n_broken = 0, 0
    for k in range(of.top.shape[0]):
        n_broken += abs(observation[k]) > of.max_finite
        if of.top[k] < abs(observation[k]) <= of.max_finite:
            of.top[k] = abs(observation[k])
            n_larger += 1
    if of.is_by_channel:
        for k in range(of.c.shape[0]):
            of.c[k] = observation[k]
    else:
        for i in range(of.c.shape[0]):
            if of.channel[i] != NO_CHANNEL:
                of.c[i] = observation[of.channel[i]]
    return int(BROKEN * (n_broken > 0) | BOUND_RISES * (n_larger > 0))


@inner_kernel
def check_signals(of: SignalArrays) -> int:
    """Return the findings about what functions may have given."""
    n_sound, n_larger, n = 0, 0, of.rho.shape[0] + of.gamma.shape[0] + of.z.shape[0]
    for p in range(of.rho.shape[0]):  # counted, and without a branch: numba makes vectors of such loops alone
        n_sound += abs(of.rho[p]) <= of.max_finite  # NaN is not
    for g in range(of.gamma.shape[0]):
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


@inner_kernel
def add_up(of: SignalArrays) -> None:
    """Add the ratios to the totals, but for broken ones."""
    for p in range(of.rho.shape[0]):
        ratio = of.rho[p] if of.rho[p] <= of.max_finite else 0.0
        of.totals[N_POSITIVE, p] += ratio > 0
        of.totals[SUM, p] += ratio
        of.totals[SQUARES, p] += ratio * ratio


@kernel
def finish_signals(of: SignalArrays, observation: Floats, tiles: Integers, action: int, probability: float) -> int:
    """Complete what the demons are told, if the state reached is sound, and return the findings as bits.

    Args:
        of: Ratios of constant policies, channels, bounds and totals are written.
        observation: Of the state reached, shape (n_channels,).
        tiles: Of the state reached, shape (n_active,).
        action: The action taken.
        probability: b(action).
    """
    if first_wrong(observation, tiles, of.seen) != -1:
        return STATE_WRONG
    constant_ratios(of, action, probability)
    found = read_channels(of, observation)
    if not (of.is_fixed and of.is_known[0]):
        found_there = check_signals(of)
        of.is_known[0] = not found_there & BROKEN
        found |= found_there
    if found & BOUND_RISES:
        raise_bounds(of, observation)
    add_up(of)
    return int(found)
