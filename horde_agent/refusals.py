"""Refusals of settings: each component checks its own, and `runs.config` composes them."""

from __future__ import annotations

import difflib
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
