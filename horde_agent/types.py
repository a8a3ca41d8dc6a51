"""Types of arrays; docstrings give the shapes."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

Bools = NDArray[np.bool_]
Floats = NDArray[np.float64]
Integers = NDArray[np.int64]
Tiles = NDArray[np.int64]
"""Indices of the active features, in any order."""
Reals = NDArray[Any]
"""float32 or float64, as the dtype of the learner."""
