"""What must hold of the numbers of a step, looked through in one pass: NumPy would need ten."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from horde_agent.kernels._jit import kernel

Floats = NDArray[np.float64]
Integers = NDArray[np.int64]

RHO_BROKEN, GAMMA_BROKEN, LAM_BROKEN = 1, 2, 4  # not finite in some group
BOUND_RISES = 8  # a cumulant, an outcome or a continuation is larger than all before

ON_POLICY, UNKNOWN = -1, -2  # instead of a constant policy's action
NO_CHANNEL = -1

BOUND_SCALE, LONGEST_HORIZON = 1e3, 1e3  # a weight past BOUND_SCALE r_max min(1/(1 - gamma), LONGEST_HORIZON) is wild


@kernel
def constant_ratios(constant_action: Integers, action: int, probability: float, rho: Floats) -> None:
    """Write pi(action)/b(action) of the policies that always take one action, and 1 for the behaviour policy itself.

    Args:
        constant_action: The action of each policy, ON_POLICY, or UNKNOWN where rho is left as it is, (n_policies,).
        action: The action taken.
        probability: b(action).
        rho: Changed in place, shape (n_policies,).
    """
    for i in range(rho.shape[0]):
        if constant_action[i] == ON_POLICY:
            rho[i] = 1.0
        elif constant_action[i] != UNKNOWN:
            rho[i] = 1.0 / probability if constant_action[i] == action else 0.0


@kernel
def inspect(
    ratios: Floats,
    policy: Integers,
    group: Integers,
    channel: Integers,
    observation: Floats,
    rho: Floats,
    gamma: Floats,
    lam: Floats,
    c: Floats,
    z: Floats,
    largest: Floats,
    longest: Floats,
    bound: Floats,
) -> int:
    """Spread the policies' ratios over the groups, read the channels, and return which of the findings hold, as bits.

    Args:
        ratios: Of each policy.
        policy: Of each group.
        group: Of each demon.
        channel: That each demon sums, NO_CHANNEL where its cumulant is in `c` already.
        observation: Shape (n_channels,).
        rho: Written, shape (n_groups,).
        gamma: Of each group.
        lam: Of each group.
        c: Written where there is a channel, shape (n_demons,).
        z: Of each demon.
        largest: Largest |c| or |z| of each demon so far, raised here.
        longest: Largest gamma of each group so far, raised here.
        bound: |theta| that no answer of a demon can need, renewed here where one of these is raised:
            BOUND_SCALE r_max min(1/(1 - gamma), LONGEST_HORIZON).
    """
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
    if n_longer > 0:
        for g in range(rho.shape[0]):
            if np.isfinite(gamma[g]) and gamma[g] > longest[g]:
                longest[g] = gamma[g]
    if n_larger > 0:
        for i in range(c.shape[0]):
            for value in (abs(c[i]), abs(z[i])):
                if value > largest[i]:
                    largest[i] = value
    found = RHO_BROKEN * (n_rho > 0) | GAMMA_BROKEN * (n_gamma > 0) | LAM_BROKEN * (n_lam > 0)
    found |= BOUND_RISES * (n_longer + n_larger > 0)
    if found & BOUND_RISES:
        for i in range(c.shape[0]):
            horizon = 1.0 / max(1.0 - longest[group[i]], 1.0 / LONGEST_HORIZON)
            bound[i] = BOUND_SCALE * largest[i] * horizon
    return found


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
