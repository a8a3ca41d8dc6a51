"""What must hold of the numbers of a step, looked through in one pass: NumPy would need ten."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from horde_agent.kernels._jit import kernel

Floats = NDArray[np.float64]

RHO_BROKEN, GAMMA_BROKEN, LAM_BROKEN = 1, 2, 4  # not finite in some group
BOUND_RISES = 8  # a cumulant, an outcome or a continuation is larger than all before


@kernel
def inspect(rho: Floats, gamma: Floats, lam: Floats, c: Floats, z: Floats, r_max: Floats, gamma_max: Floats) -> int:
    """Return which of the four findings above hold, as bits; c, z, r_max (n_demons,), the others (n_groups,)."""
    found = 0
    for g in range(rho.shape[0]):
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
def first_not_finite(values: Floats) -> int:
    """Return the position of the first value that is infinite or not a number, or -1."""
    for i in range(values.shape[0]):
        if not np.isfinite(values[i]):
            return i
    return -1


@kernel
def first_outside(tiles: NDArray[Any], n_features: int) -> int:
    """Return the position of the first tile outside 0..n_features - 1, or -1."""
    for k in range(tiles.shape[0]):
        if tiles[k] < 0 or tiles[k] >= n_features:
            return k
    return -1
