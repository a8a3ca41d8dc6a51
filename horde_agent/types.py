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
RNGLike = (
    int
    | Sequence[int]
    | np.random.SeedSequence
    | np.random.BitGenerator
    | np.random.Generator
    | None
)
"""What `numpy.random.default_rng` takes (Scientific Python, SPEC 7); `generator` makes a Generator of it."""


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
    """Return `rng` if it is a numpy Generator, else a new one as `numpy.random.default_rng(rng)` makes it.

    Args:
        rng: A Generator, which the caller shares, a BitGenerator, a SeedSequence, a seed of one or
            more whole numbers, or None for numbers that are different in each run.

    Raises:
        ValueError: If it is something else.

    Source: Scientific Python, SPEC 7 (seeding pseudo-random number generation).
    """
    try:
        return np.random.default_rng(rng)
    except (TypeError, ValueError) as error:
        raise ValueError(
            f"rng must be a numpy Generator or a seed of whole numbers from 0 on, not {rng!r}"
        ) from error
