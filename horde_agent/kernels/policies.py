"""Action probabilities of many Gibbs policies at once, from an index of who looks at which feature.

    pi_u(a) = exp(-u_a.phi) / sum_a' exp(-u_a'.phi)

A policy has few parameters that are not zero (60 of 30,325 in the paper), so the sums -u_a.phi of all policies are
built from the entries of the active features alone: about 4.5 of 60 per policy.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from horde_agent.kernels._jit import kernel

Floats = NDArray[np.float64]


class GibbsIndex(NamedTuple):
    """The policies' parameters in the order of the features (compressed sparse columns)."""

    start: NDArray[np.int64]  # (n_features + 1,): entries start[f]..start[f + 1] belong to feature f
    policy: NDArray[np.int32]  # (n_entries,)
    action: NDArray[np.int32]  # (n_entries,)
    value: Floats  # (n_entries,)


@kernel
def gibbs_probabilities(index: GibbsIndex, tiles: NDArray[np.int64], out: Floats) -> None:
    """Write pi_u(a) of every policy into `out`, shape (n_policies, n_actions)."""
    out[:] = 0.0
    for k in range(tiles.shape[0]):
        for entry in range(index.start[tiles[k]], index.start[tiles[k] + 1]):
            out[index.policy[entry], index.action[entry]] -= index.value[entry]
    for i in range(out.shape[0]):
        top = out[i, 0]
        for a in range(1, out.shape[1]):
            top = max(top, out[i, a])
        total = 0.0
        for a in range(out.shape[1]):
            out[i, a] = np.exp(out[i, a] - top)
            total += out[i, a]
        for a in range(out.shape[1]):
            out[i, a] /= total
