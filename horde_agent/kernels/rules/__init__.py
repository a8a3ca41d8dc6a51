"""Update rules of the plain engine, one file each, selected by file name.

A rule is a module with

    VECTORS: names of its vectors in addition to theta; "e", if present, is the trace that a gap clears
    learn_all(demons, signals, phi_t, phi_tp1): an `outer_kernel` that updates every demon in place

To add a rule, copy `gtd.py` to a new file in this folder; no registration is needed.
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
        ValueError: If there is no rule of this name.
    """
    if name not in names():
        raise ValueError(f"there is no update rule {name!r}; there is {', '.join(names())}")
    return importlib.import_module(f"{__name__}.{name}")
