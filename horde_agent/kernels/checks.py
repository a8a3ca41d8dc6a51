"""What the demons are told in a step, and what must hold of it, in one pass: NumPy would need ten."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from horde_agent.kernels._jit import inlined, kernel
from horde_agent.kernels.held import look_into

Floats = NDArray[np.float64]
Integers = NDArray[np.int64]

RHO_BROKEN, GAMMA_BROKEN, LAM_BROKEN = 1, 2, 4  # not finite in some group
BOUND_RISES = 8  # a cumulant, an outcome or a continuation is larger than all before
STATE_WRONG = 16  # nothing was written: `first_wrong` says where

ON_POLICY, UNKNOWN = -1, -2  # instead of a constant policy's action
NO_CHANNEL = -1

BOUND_SCALE, LONGEST_HORIZON = 1e3, 1e3  # a weight past BOUND_SCALE r_max min(1/(1 - gamma), LONGEST_HORIZON) is wild


class Told(NamedTuple):
    """What the demons are told about a transition, and by whom: p policies, g groups, d demons.

    Their owner writes what functions of the user's give, before `inspect` writes the rest.
    """

    action: Integers  # (p,): of policies that always take one, or as in `constant_ratios`
    ratios: Floats  # (p,): pi(a_t)/b(a_t)
    policy: Integers  # (g,): of each group
    group: Integers  # (d,): of each demon
    channel: Integers  # (d,): that each demon sums, NO_CHANNEL where its cumulant is in `c` already
    rho: Floats  # (g,): importance sampling ratios
    gamma: Floats  # (g,): continuation at the state reached
    lam: Floats  # (g,): trace decay there
    c: Floats  # (d,): cumulants
    z: Floats  # (d,): outcomes
    largest: Floats  # (d,): largest |c| or |z| so far
    longest: Floats  # (g,): largest gamma so far
    bound: Floats  # (d,): |theta| that no answer can need: BOUND_SCALE r_max min(1/(1 - gamma), LONGEST_HORIZON)


@kernel
def constant_ratios(constant_action: Integers, action: int, probability: float, ratios: Floats) -> None:
    """Write pi(action)/b(action) of the policies that always take one action, and 1 for the behaviour policy itself.

    Args:
        constant_action: The action of each policy, ON_POLICY, or UNKNOWN where nothing is written, (n_policies,).
        action: The action taken.
        probability: b(action).
        ratios: Changed in place, shape (n_policies,).
    """
    for i in range(ratios.shape[0]):
        if constant_action[i] == ON_POLICY:
            ratios[i] = 1.0
        elif constant_action[i] != UNKNOWN:
            ratios[i] = 1.0 / probability if constant_action[i] == action else 0.0


@inlined
def raise_bounds(told: Told) -> None:
    """Renew the largest numbers so far, and the bounds that follow from them."""
    c, z, largest, longest, gamma, group = told.c, told.z, told.largest, told.longest, told.gamma, told.group
    for g in range(gamma.shape[0]):
        if np.isfinite(gamma[g]) and gamma[g] > longest[g]:
            longest[g] = gamma[g]
    for i in range(c.shape[0]):
        for value in (abs(c[i]), abs(z[i])):
            if value > largest[i]:
                largest[i] = value
        horizon = 1.0 / max(1.0 - longest[group[i]], 1.0 / LONGEST_HORIZON)
        told.bound[i] = BOUND_SCALE * largest[i] * horizon


@kernel
def inspect(
    held: Told, observation: Floats, tiles: Integers, n_features: int, action: int, probability: float
) -> int:
    """Complete what the demons are told, if the state reached is sound, and return the findings as bits.

    Args:
        held: What they are told; ratios of constant policies, rho, channels and bounds are written.
        observation: Of the state reached, shape (n_channels,).
        tiles: Of the state reached, shape (n_active,).
        n_features: Tiles must lie below.
        action: The action taken.
        probability: b(action).
    """
    if first_wrong(observation, tiles, n_features) != -1:
        return STATE_WRONG
    told = look_into(held)
    constant_ratios(told.action, action, probability, told.ratios)
    rho, ratios, policy, gamma, lam, longest = told.rho, told.ratios, told.policy, told.gamma, told.lam, told.longest
    c, z, channel, largest = told.c, told.z, told.channel, told.largest
    n_rho, n_gamma, n_lam, n_longer, n_larger = 0, 0, 0, 0, 0
    for g in range(rho.shape[0]):
        rho[g] = ratios[policy[g]]
    for g in range(rho.shape[0]):  # counted, and without a branch: numba makes vectors of such loops alone
        n_rho += not np.isfinite(rho[g])
        n_gamma += not np.isfinite(gamma[g])
        n_lam += not np.isfinite(lam[g])
        n_longer += gamma[g] > longest[g]  # NaN is not
    for i in range(c.shape[0]):
        if channel[i] != NO_CHANNEL:
            c[i] = observation[channel[i]]
    for i in range(c.shape[0]):
        n_larger += (abs(c[i]) > largest[i]) | (abs(z[i]) > largest[i])
    if n_longer + n_larger > 0:
        raise_bounds(told)
    found = RHO_BROKEN * (n_rho > 0) | GAMMA_BROKEN * (n_gamma > 0) | LAM_BROKEN * (n_lam > 0)
    return int(found | BOUND_RISES * (n_longer + n_larger > 0))


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
