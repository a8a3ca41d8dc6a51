"""What the demons are told in a step, and what must hold of it, in one pass: NumPy would need ten."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from horde_agent.kernels._jit import inlined, inner_kernel, kernel
from horde_agent.kernels.held import look_into

Floats = NDArray[np.float64]
Integers = NDArray[np.int64]

BROKEN = 1  # what somebody is told is not finite, or past what an engine's type can hold
BOUND_RISES = 8  # a cumulant, an outcome or a continuation is larger than all before
STATE_WRONG = 16  # nothing was written: `first_wrong` says where
FINDINGS = BROKEN | BOUND_RISES | STATE_WRONG

ON_POLICY, UNKNOWN, ELSEWHERE = -1, -2, -3  # instead of a constant policy's action
NO_CHANNEL = -1

# Rows of `Told.totals`: steps with rho > 0, sum of rho, sum of its squares
N_POSITIVE, SUM, SQUARES, N_TOTALS = 0, 1, 2, 3

BOUND_SCALE, LONGEST_HORIZON = 1e3, 1e3  # a weight past BOUND_SCALE r_max min(1/(1 - gamma), LONGEST_HORIZON) is wild


class Told(NamedTuple):
    """What the demons are told about a transition, and by whom: p policies, g groups, d demons.

    Their owner writes what functions of the user's give, before `inspect` writes the rest. What cannot have changed
    since the step before is not looked at: `is_fixed` says that no function is asked, `seen` that there was a step.
    Ratios that the engine itself makes (ELSEWHERE) are not looked at either, and count as 1 here.
    """

    action: Integers  # (p,): of policies that always take one, or as in `constant_ratios`; (0,) where that says nothing
    ratios: Floats  # (p,): pi(a_t)/b(a_t)
    policy: Integers  # (g,): of each group, or (0,) where the engine knows it, and `rho` is `ratios`
    group: Integers  # (d,): of each demon
    channel: Integers  # (d,): that each demon sums, NO_CHANNEL where its cumulant is in `c` already
    rho: Floats  # (g,), or (p,) where it is `ratios`: importance sampling ratios
    gamma: Floats  # (g,): continuation at the state reached
    lam: Floats  # (g,): trace decay there
    c: Floats  # (d,): cumulants; or the channels, (n_channels,), where the engine knows which channel each demon sums
    z: Floats  # (d,): outcomes
    top: Floats  # (n_channels,): largest |value| of each channel so far
    largest: Floats  # (d,): largest |c| or |z| so far
    longest: Floats  # (g,): largest gamma so far
    bound: Floats  # (d,): |theta| that no answer can need: BOUND_SCALE r_max min(1/(1 - gamma), LONGEST_HORIZON)
    seen: Integers  # (1,): 1 where all but rho and the cumulants is as in the step before
    totals: Floats  # (N_TOTALS, p): what a policy's ratios added up to so far; (N_TOTALS, 0) if the engine counts all
    most: float  # the largest number that the engine's type can hold
    n_features: int
    is_fixed: bool  # no function of the user's, and no other demon, is asked on each step
    is_by_channel: bool  # `c` holds the channels


@kernel
def constant_ratios(constant_action: Integers, action: int, probability: float, ratios: Floats) -> None:
    """Write pi(action)/b(action) of the policies that always take one action, and 1 for the behaviour policy itself.

    Args:
        constant_action: The action of each policy, ON_POLICY, or UNKNOWN or ELSEWHERE where nothing is written,
            shape (n_policies,).
        action: The action taken.
        probability: b(action).
        ratios: Changed in place, shape (n_policies,).
    """
    for i in range(ratios.shape[0]):
        if constant_action[i] == ON_POLICY:
            ratios[i] = 1.0
        elif constant_action[i] >= 0:
            ratios[i] = 1.0 / probability if constant_action[i] == action else 0.0


def bound(largest: Any, longest: Any, most: float) -> Any:
    """Return the |theta| that no answer can need, from the largest |c| or |z| and the longest gamma, of one or many."""
    horizon = 1.0 / np.maximum(1.0 - longest, 1.0 / LONGEST_HORIZON)
    return np.minimum(BOUND_SCALE * largest * horizon, most)


_bound = inlined(bound)


@inlined
def raise_bounds(told: Told, observation: Floats) -> None:
    """Renew the largest numbers so far, and the bounds that follow from them; what is broken counts for nothing."""
    z, largest, longest, gamma = told.z, told.largest, told.longest, told.gamma
    for g in range(gamma.shape[0]):
        if np.isfinite(gamma[g]) and gamma[g] > longest[g]:
            longest[g] = gamma[g]
    for i in range(largest.shape[0]):
        c = observation[told.channel[i]] if told.channel[i] != NO_CHANNEL else told.c[i]
        for value in (abs(c), abs(z[i])):
            if largest[i] < value <= told.most:
                largest[i] = value
        told.bound[i] = _bound(largest[i], longest[told.group[i]], told.most)


@inlined
def read_channels(told: Told, observation: Floats) -> int:
    """Write the channels, or each demon's, into `c`, and return the findings about them."""
    c, top, channel, n_larger, n_broken = told.c, told.top, told.channel, 0, 0
    for k in range(top.shape[0]):
        n_broken += abs(observation[k]) > told.most
        if top[k] < abs(observation[k]) <= told.most:
            top[k] = abs(observation[k])
            n_larger += 1
    if told.is_by_channel:
        for k in range(c.shape[0]):
            c[k] = observation[k]
    else:
        for i in range(c.shape[0]):
            if channel[i] != NO_CHANNEL:
                c[i] = observation[channel[i]]
    return int(BROKEN * (n_broken > 0) | BOUND_RISES * (n_larger > 0))


@inlined
def look_through(told: Told) -> int:
    """Return the findings about what functions may have given."""
    rho, gamma, lam, longest, c, z = told.rho, told.gamma, told.lam, told.longest, told.c, told.z
    n_sound, n_larger = 0, 0
    for g in range(rho.shape[0]):  # counted, and without a branch: numba makes vectors of such loops alone
        n_sound += abs(rho[g]) <= told.most  # NaN is not
    for g in range(gamma.shape[0]):
        n_sound += (abs(gamma[g]) <= told.most) & (abs(lam[g]) <= told.most)
        n_larger += gamma[g] > longest[g]
    n = rho.shape[0] + gamma.shape[0] + z.shape[0]
    if not told.is_by_channel:
        n += c.shape[0]
        for i in range(c.shape[0]):
            n_sound += abs(c[i]) <= told.most
            n_larger += abs(c[i]) > told.largest[i]
    for i in range(z.shape[0]):
        n_sound += abs(z[i]) <= told.most
        n_larger += abs(z[i]) > told.largest[i]
    return int(BROKEN * (n_sound < n) | BOUND_RISES * (n_larger > 0))


@kernel
def first_wrong(observation: Floats, tiles: Integers, n_features: int) -> int:
    """Return where a state is wrong: k for a value k that is not finite, -2 - k for a tile k out of range, else -1."""
    for i in range(observation.shape[0]):
        if not np.isfinite(observation[i]):
            return i
    for k in range(tiles.shape[0]):
        if tiles[k] < 0 or tiles[k] >= n_features:
            return -2 - k
    return -1


@inner_kernel
def add_up(told: Told) -> None:
    """Add the ratios to the totals, but for broken ones; those that an engine makes are added up there."""
    action, ratios, totals = told.action, told.ratios, told.totals
    for p in range(totals.shape[1]):
        counts = (action.shape[0] == 0 or action[p] != ELSEWHERE) and ratios[p] <= told.most
        ratio = ratios[p] if counts else 0.0
        totals[N_POSITIVE, p] += ratio > 0
        totals[SUM, p] += ratio
        totals[SQUARES, p] += ratio * ratio


@inner_kernel
def complete(told: Told, observation: Floats, tiles: Integers, action: int, probability: float) -> int:
    """Complete what the demons are told, if the state reached is sound, and return the findings: see `inspect`."""
    if first_wrong(observation, tiles, told.n_features) != -1:
        return STATE_WRONG
    if told.action.shape[0] > 0:
        constant_ratios(told.action, action, probability, told.ratios)
    rho, ratios, policy = told.rho, told.ratios, told.policy
    for g in range(policy.shape[0]):
        rho[g] = ratios[policy[g]]
    found = read_channels(told, observation)
    if not (told.is_fixed and told.seen[0]):
        found |= look_through(told)
    if found & BOUND_RISES:
        raise_bounds(told, observation)
    return int(found)


@kernel
def inspect(held: Told, observation: Floats, tiles: Integers, action: int, probability: float) -> int:
    """Complete what the demons are told, if the state reached is sound, and return the findings as bits.

    Args:
        held: What they are told; ratios of constant policies, rho, channels and bounds are written.
        observation: Of the state reached, shape (n_channels,).
        tiles: Of the state reached, shape (n_active,).
        action: The action taken.
        probability: b(action).
    """
    told = look_into(held)
    return int(complete(told, observation, tiles, action, probability))


@kernel
def take_note(held: Told) -> None:
    """Note that a step was learned from that was inspected: add up its ratios."""
    told = look_into(held)
    told.seen[0] = 1
    add_up(told)
