"""Refusals: checks of settings and arguments, with messages that name them; each component checks its own."""

from __future__ import annotations

import difflib
import numbers
import operator
from collections.abc import Collection, Iterable
from importlib import import_module
from typing import Any

Rule = tuple[bool, str]
"""Whether a rule of the settings is broken, and the sentence about it."""


class BadInput(ValueError):
    """An input of the user is invalid; the message says how to correct it."""


def check_one_of(what: str, value: Any, known: Collection[str]) -> None:
    """Raise BadInput if a value is not one of those known."""
    if value not in known:
        hint = ""
        if isinstance(value, str):
            hint = did_you_mean(value, known)
        raise BadInput(f"unknown {what} {value!r}: choose {', '.join(known)}{hint}")


def one_line(error: BaseException) -> str:
    r"""Return an error's message on one line, or the name of its type if it has none.

    Examples:
        >>> one_line(ValueError("no\n  number")), one_line(AssertionError())
        ('no number', 'AssertionError')
    """
    return " ".join(str(error).split()) or type(error).__name__


def did_you_mean(name: str, known: Iterable[str]) -> str:
    """Return the end of a message that names the nearest of the known names; "" if none is near."""
    near = difflib.get_close_matches(name, list(known), n=1)
    if near:
        return f"; did you mean {near[0]!r}?"
    return ""


def imported(module: str, advice: str) -> Any:
    """Return a module of an optional package; raise BadInput with the advice if it is not installed."""
    try:
        return import_module(module)
    except ImportError:
        raise BadInput(advice) from None


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


def real_number(argument: str, value: Any) -> float:
    """Return an argument as a plain float, which may be infinite or NaN.

    Raises:
        InvalidArgument: If it is not a number.
    """
    if type(value) is float:
        return value
    if isinstance(value, bool) or not isinstance(value, numbers.Real):
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
