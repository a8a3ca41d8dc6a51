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
def read_channels(channel: Integers, observation: Floats, c: Floats) -> None:
    """Write the channel that each demon sums; what has NO_CHANNEL is left as it is. Shapes (n_demons,)."""
    for i in range(c.shape[0]):
        if channel[i] != NO_CHANNEL:
            c[i] = observation[channel[i]]


@kernel
def inspect(
    ratios: Floats,
    policy: Integers,
    rho: Floats,
    gamma: Floats,
    lam: Floats,
    c: Floats,
    z: Floats,
    r_max: Floats,
    gamma_max: Floats,
) -> int:
    """Spread the policies' ratios over the groups, and return which of the findings above hold, as bits.

    Args:
        ratios: Of each policy.
        policy: Of each group.
        rho: Written, shape (n_groups,).
        gamma: Of each group.
        lam: Of each group.
        c: Of each demon.
        z: Of each demon.
        r_max: Largest |c| or |z| of each demon so far.
        gamma_max: Largest gamma of each group so far.
    """
    found = 0
    for g in range(rho.shape[0]):
        rho[g] = ratios[policy[g]]
        if not np.isfinite(rho[g]):
            found |= RHO_BROKEN
        if not np.isfinite(gamma[g]):
            found |= GAMMA_BROKEN
        elif gamma[g] > gamma_max[g]:
            found |= BOUND_RISES
        if not np.isfinite(lam[g]):
            found |= LAM_BROKEN
    for i in range(c.shape[0]):
        if abs(c[i]) > r_max[i] or abs(z[i]) > r_max[i]:
            found |= BOUND_RISES
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
