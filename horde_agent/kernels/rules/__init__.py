"""Update rules of the plain engine, one file each, found by their names.

A rule is a module with

    VECTORS: the names of its weight vectors beside theta; "e", if it has one, is the trace that a gap clears
    learn_all(demons, told, phi_t, phi_tp1): an `outer_kernel` that lets every demon take a step, in place

`gtd.py` is the one to read, and to begin another from: a new file here is all that another rule needs.
"""

from __future__ import annotations

import functools
import importlib
import pkgutil
from types import ModuleType


def names() -> tuple[str, ...]:
    """Return the names of all rules."""
    return tuple(sorted(module.name for module in pkgutil.iter_modules(__path__)))


@functools.cache
def rule(name: str) -> ModuleType:
    """Return the module of a rule.

    Raises:
        ValueError: If there is none of this name.
    """
    if name not in names():
        raise ValueError(f"there is no update rule {name!r}; there is {', '.join(names())}")
    return importlib.import_module(f"{__name__}.{name}")
