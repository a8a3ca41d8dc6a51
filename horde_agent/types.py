"""The kinds of arrays, named once; their shapes stand in docstrings."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

Bools = NDArray[np.bool_]
Floats = NDArray[np.float64]
Integers = NDArray[np.int64]
Tiles = NDArray[np.int64]
"""Indices of the features that are on, in any order."""
Reals = NDArray[Any]
"""float32 or float64, as the learner's dtype is."""
