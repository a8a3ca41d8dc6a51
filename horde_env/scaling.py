"""From SI values to the unit interval, once per step: a kernel, since six passes of NumPy cost a tenth of a step."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
from numpy.typing import NDArray

from horde_env._jit import kernel

EDGE = 1e-9  # a reading on the edge of its range may round past it by one ulp; that is no clip


@kernel
def scale_to_unit(values: NDArray[np.float64], low: NDArray[np.float64], span: NDArray[np.float64], out: Any) -> int:
    """Write (values - low) / span into `out`, float32, clipped to [0, 1]; return how many readings were clipped.

    A reading that is not finite counts as clipped and becomes 0. All arrays have shape (n,).
    """
    n_clipped = 0
    for i in range(values.shape[0]):
        share = (values[i] - low[i]) / span[i]
        if not math.isfinite(share):
            n_clipped += 1
            share = 0.0
        elif share < -EDGE or share > 1.0 + EDGE:
            n_clipped += 1
        out[i] = min(max(share, 0.0), 1.0)
    return n_clipped
