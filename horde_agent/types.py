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


class InvalidArgument(ValueError):
    """An argument has a value that it cannot have; the sentence begins with its name.

    Attributes:
        argument: The name.
        problem: The rest of the sentence, for a program that has another name for it, such as a flag.
    """

    def __init__(self, argument: str, problem: str) -> None:
        super().__init__(argument, problem)  # both, so that it can be pickled
        self.argument = argument
        self.problem = problem

    def __str__(self) -> str:
        return f"{self.argument} {self.problem}"


def whole_number(argument: str, value: Any, least: int) -> int:
    """Return an argument as a plain int.

    Raises:
        InvalidArgument: If it is not a whole number of at least `least`.
    """
    if hasattr(value, "__index__") and not isinstance(value, bool):
        number = operator.index(value)
        if number >= least:
            return number
    raise InvalidArgument(argument, f"must be a whole number of at least {least}, not {value!r}")


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
        InvalidArgument: If it is not a number.
    """
    if type(value) is float:
        return value
    if isinstance(value, bool | np.bool_) or not isinstance(value, numbers.Real):
        raise InvalidArgument(argument, f"must be a number, not {value!r}")
    try:
        return float(value)
    except OverflowError:
        raise InvalidArgument(argument, "is a number of more than 300 digits") from None


def is_in(interval: str, value: float) -> bool:
    """Return True if a value lies in an interval such as "(0, 1]"; NaN lies in none."""
    low, high = (float(end) for end in interval[1:-1].split(","))
    return (low < value or (interval[0] == "[" and low == value)) and (
        value < high or (interval[-1] == "]" and value == high)
    )


def number_in(argument: str, value: Any, interval: str) -> float:
    """Return an argument as a plain float in an interval, as `is_in` reads it.

    Raises:
        InvalidArgument: If it is not a number, or lies outside.
    """
    number = real_number(argument, value)
    if not is_in(interval, number):
        raise InvalidArgument(argument, f"must be in {interval}, not {value}")
    return number


def checked_repeat(repeat: Any) -> float:
    """Return the probability of repeating an action as a float; raise InvalidArgument if it is not in [0, 1)."""
    return number_in("repeat", repeat, "[0, 1)")


def checked_epsilon(epsilon: Any) -> float:
    """Return the probability of a random action as a float; raise InvalidArgument if it is not in [0, 1]."""
    return number_in("epsilon", epsilon, "[0, 1]")


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
