"""Memory for arrays that kernels go through row by row."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

_CACHE_LINE = 64  # bytes


def aligned_zeros(shape: tuple[int, ...], dtype: np.dtype[Any]) -> NDArray[Any]:
    """Return zeros that begin with a cache line: a row that does not takes one more of them, and each vector two."""
    n_bytes = int(np.prod(shape)) * dtype.itemsize
    raw = np.zeros(n_bytes + _CACHE_LINE, dtype=np.uint8)
    skipped = -raw.ctypes.data % _CACHE_LINE
    return raw[skipped : skipped + n_bytes].view(dtype).reshape(shape)
