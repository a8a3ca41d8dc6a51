"""Types of arrays, whose shapes docstrings give, and checks of other inputs, whose messages name the argument."""

from __future__ import annotations

import inspect
import numbers
import operator
import re
import tomllib
from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

OPTION_DRIVES = ("ude", "change", "variance", "alike")
"""Drives of a curious behaviour (`life.curious`), the default first."""

_MOST_LISTED = 6

Bools = NDArray[np.bool_]
Floats = NDArray[np.float64]
Integers = NDArray[np.int64]
Tiles = NDArray[np.int64]
"""Indices of the active features, in any order."""
Reals = NDArray[Any]
"""float32 or float64, as the dtype of the learner."""

_MOST_DOTS = 32
_KEY_AND_DOT = r"""(?:[\w-]++|"[^"\n]*+"|'[^'\n]*+')[ \t]*+\.[ \t]*+"""
_LONG_KEY = re.compile(rf"(?<![\w\"'-])(?:{_KEY_AND_DOT}){{{_MOST_DOTS + 1}}}")
"""A key of more than 32 dots: the standard library takes time proportional to the square of their number."""


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


def whole_number(argument: str, value: Any, least: int) -> int:
    """Return an argument as a plain int.

    Raises:
        ValueError: If it is not a whole number of at least `least`; the message names the argument.
    """
    if hasattr(value, "__index__") and not isinstance(value, bool):
        number = operator.index(value)
        if number >= least:
            return number
    raise ValueError(f"{argument} must be a whole number of at least {least}, not {value!r}")


def generator(rng: Any) -> np.random.Generator:
    """Return `rng` if it is a numpy Generator; raise ValueError if it is something else, for example a seed."""
    if not isinstance(rng, np.random.Generator):
        raise ValueError(
            f"rng must be a numpy Generator, such as numpy.random.default_rng(0), not {rng!r}"
        )
    return rng


def real_number(argument: str, value: Any) -> float:
    """Return an argument as a plain float, which may be infinite or NaN.

    Raises:
        ValueError: If it is not a number; the message names the argument.
    """
    if type(value) is float:
        return value
    if isinstance(value, bool | np.bool_) or not isinstance(value, numbers.Real):
        raise ValueError(f"{argument} must be a number, not {value!r}")
    try:
        return float(value)
    except OverflowError:
        raise ValueError(f"{argument} is a number of more than 300 digits") from None


def parsed_toml(text: str) -> dict[str, Any]:
    """Return a TOML text as a table; raise ValueError if it is none, or its tables or lists are nested too deeply."""
    long_key = _LONG_KEY.search(text)
    if long_key is not None:
        line = text.count("\n", 0, long_key.start()) + 1
        raise ValueError(f"line {line}: a key has more than {_MOST_DOTS} dots")
    try:
        return tomllib.loads(text)
    except RecursionError:
        raise ValueError("its tables or lists are nested too deeply") from None
