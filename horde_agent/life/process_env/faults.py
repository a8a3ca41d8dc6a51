"""An exception of the other process, raised again here with its names, its sentence and its traceback."""

from __future__ import annotations

import builtins
import traceback
from functools import cache
from typing import Any, NamedTuple

import gymnasium.error


class Fault(NamedTuple):
    """An exception as plain words.

    Attributes:
        names: Names of its class and of those it comes from, up to the first that every process knows.
        base: Name of that one: Python's own or Gymnasium's.
        text: What it says.
        trace: Where it came from.
    """

    names: tuple[str, ...]
    base: str
    text: str
    trace: str


def fault_of(error: BaseException) -> Fault:
    """Return an exception as plain words."""
    names: list[str] = []
    for kind in type(error).__mro__:
        if _known(kind.__name__) is kind:
            return Fault(tuple(names), kind.__name__, str(error), "".join(traceback.format_exception(error)))
        names.append(kind.__name__)
    raise AssertionError("every exception comes from BaseException")


def rebuilt(fault: Fault) -> BaseException:
    """Return the exception that a fault tells of: an instance of classes of the same names.

    Whoever imported the class itself does not meet it again: its package is not imported in this process.
    """
    error = _kind(fault.names, fault.base)(fault.text)
    error.add_note(f"In the environment's process:\n{fault.trace}")
    return error


def _known(name: str) -> Any:
    return getattr(builtins, name, None) or getattr(gymnasium.error, name, None)


@cache
def _kind(names: tuple[str, ...], base: str) -> type[BaseException]:
    kind: type[BaseException] = _known(base)
    for name in reversed(names):
        kind = type(name, (kind,), {})
    return kind
