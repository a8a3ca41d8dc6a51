"""Update rules from modules outside this package, written as `module:name`.

The name is that of a class in the module, or of a module in it, with the names of a rule's file:
`kernels/rules`. The module is looked for in the current folder, too.

Kernels are compiled once for each class of parameters. A rule's own class is exchanged for one whose
name has the digest of the module's file, so that numba's cache notices other content. Numba's
cache refers to these classes by their names here; one whose module was not imported in this process
is an empty class, which is equal to no other.
"""

from __future__ import annotations

import hashlib
import importlib
import re
import sys
from collections import namedtuple
from pathlib import Path
from types import ModuleType
from typing import Any, NamedTuple

_DIGITS = 12
_OF_ANOTHER_PROCESS = re.compile(rf".*_[0-9a-f]{{{_DIGITS}}}")


class OwnRule(NamedTuple):
    """A rule's names, and the class of its parameters."""

    definition: Any
    parameters: Any


def load(name: str) -> OwnRule:
    """Return the rule that is written as `module:name`.

    Raises:
        ValueError: If the module cannot be imported, or has no such rule.
    """
    module_name, _, rule_name = name.partition(":")
    module = _imported(name, module_name)
    definition = getattr(module, rule_name, None)
    if definition is None:
        definition = _submodule(name, module, rule_name)
    if not callable(getattr(definition, "learn", None)):
        raise ValueError(
            f"algorithm {name!r} is no update rule: {rule_name!r} must be a class, or a module, with a kernel `learn`"
        )
    return OwnRule(definition, _parameters_of(name, definition))


def _imported(name: str, module_name: str) -> ModuleType:
    """Return a module, from the current folder if it is nowhere else."""
    folder = str(Path.cwd())
    if folder not in sys.path:
        sys.path.append(folder)  # processes that this one starts inherit it
        importlib.invalidate_caches()
    try:
        return importlib.import_module(module_name)
    except ModuleNotFoundError as error:
        if error.name is None or not f"{module_name}.".startswith(f"{error.name}."):
            raise _broken(name, module_name, error) from None
        raise ValueError(
            f"algorithm {name!r}: there is no module {module_name!r}, neither installed nor in {folder}: start in its "
            "folder, or set PYTHONPATH"
        ) from None
    except (Exception, SystemExit) as error:  # whatever the module does when it is imported
        raise _broken(name, module_name, error) from error


def _broken(name: str, module_name: str, error: BaseException) -> ValueError:
    return ValueError(
        f"algorithm {name!r}: importing the module {module_name!r} failed with {type(error).__name__}: {error}"
    )


def _submodule(name: str, module: ModuleType, rule_name: str) -> Any:
    """Return a module of a package, which a file in its folder is."""
    submodule_name = f"{module.__name__}.{rule_name}"
    try:
        return importlib.import_module(submodule_name)
    except ModuleNotFoundError as error:
        if error.name not in (submodule_name, module.__name__):
            raise _broken(name, submodule_name, error) from None
    except (Exception, SystemExit) as error:
        raise _broken(name, submodule_name, error) from error
    raise ValueError(f"algorithm {name!r}: the module {module.__name__!r} has no {rule_name!r}")


def parameters_in(definition: Any, module_name: str) -> Any:
    """Return the NamedTuple that a rule's definition has of its own, None if it has none."""
    for value in vars(definition).values():
        is_own = isinstance(value, type) and value.__module__ == module_name
        if is_own and hasattr(value, "_fields"):
            return value
    return None


def _parameters_of(name: str, definition: Any) -> Any:
    """Return a class with the fields of a rule's parameters, and the digest of its file in its name."""
    module_name = definition.__name__
    if not isinstance(definition, ModuleType):
        module_name = definition.__module__
    file = getattr(sys.modules[module_name], "__file__", None)
    if file is None or not Path(file).is_file():
        raise ValueError(
            f"algorithm {name!r}: its module must be a file, which other runs can read"
        )
    own_class = parameters_in(definition, module_name)
    fields: tuple[str, ...] = ()
    defaults: dict[str, float] = {}
    if own_class is not None:
        fields = own_class._fields
        defaults = own_class._field_defaults
    missing = [field for field in fields if field not in defaults]
    if missing:
        raise ValueError(f"algorithm {name!r}: its parameter {missing[0]!r} needs a default")
    digest = hashlib.sha256(name.encode() + Path(file).read_bytes()).hexdigest()[:_DIGITS]
    class_name = f"{re.sub('[^0-9a-zA-Z]', '_', name)}_{digest}"
    parameters = _class(class_name, fields, tuple(defaults.values()))
    globals()[class_name] = parameters
    return parameters


def __getattr__(name: str) -> Any:
    if not _OF_ANOTHER_PROCESS.fullmatch(name):
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return globals().setdefault(name, _class(name, (), ()))


def _class(name: str, fields: tuple[str, ...], defaults: tuple[float, ...]) -> Any:
    return namedtuple(name, [*fields], defaults=[*defaults], module=__name__)
