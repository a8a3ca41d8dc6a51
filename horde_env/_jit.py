"""The one place where this package's numba options live."""

from __future__ import annotations

from numba import njit

# NaN stays visible: neither nnan nor ninf. A cache survives the process, so a second start compiles nothing.
kernel = njit(cache=True, nogil=True)
