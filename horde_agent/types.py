"""Types of arrays, with shapes in the docstrings, and checks of other objects that a program passes."""

from __future__ import annotations

import inspect
from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

_MOST_LISTED = 6

Bools = NDArray[np.bool_]
Floats = NDArray[np.float64]
Integers = NDArray[np.int64]
Tiles = NDArray[np.int64]
"""Indices of the active features, in any order."""
Reals = NDArray[Any]
"""float32 or float64, as the dtype of the learner."""


def listed(names: Sequence[str]) -> str:
    """Return the names, or the first two, "..." and the last, for a `repr`."""
    if len(names) <= _MOST_LISTED:
        return ", ".join(names)
    return f"{names[0]}, {names[1]}, ..., {names[-1]}"


def can_be_called(function: Any, n_arguments: int) -> bool:
    """Return whether an object can be called with this number of positional arguments."""
    try:
        return (
            callable(function)
            and inspect.signature(function).bind(*[None] * n_arguments) is not None
        )
    except TypeError:  # another number of arguments
        return False


def generator(rng: Any) -> np.random.Generator:
    """Return `rng` if it is a numpy Generator; raise ValueError if it is something else, for example a seed."""
    if not isinstance(rng, np.random.Generator):
        raise ValueError(
            f"rng must be a numpy Generator, such as numpy.random.default_rng(0), not {rng!r}"
        )
    return rng
