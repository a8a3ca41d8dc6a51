"""Compare two object graphs: values, types, and shared objects and arrays."""

from __future__ import annotations

from array import array
from collections import deque
from collections.abc import Iterator, Mapping, Set
from functools import cache, partial
from types import BuiltinFunctionType, FunctionType, MethodType, ModuleType
from typing import Any

import numpy as np
from numba.core.dispatcher import Dispatcher

_PLAIN = (
    bool,
    int,
    float,
    complex,
    str,
    bytes,
    range,
    slice,
    array,
    np.generic,
    np.dtype,
    np.random.SeedSequence,
    type(None),
)
_ATOMS = frozenset({bool, int, float, str, bytes, type(None)})
_GLOBAL = (type, ModuleType, BuiltinFunctionType, Dispatcher)
_IMMUTABLE = (tuple, frozenset)  # sharing one of these makes no difference


class Pairing:
    """A one-to-one relation between the objects of two graphs."""

    def __init__(self) -> None:
        self._other: dict[int, int] = {}
        self._one: dict[int, int] = {}
        self._alive: list[Any] = []  # keeps ids unique

    def has(self, a: object) -> bool:
        return id(a) in self._other

    def fits(self, a: object, b: object) -> bool:
        """Return whether a and b are a pair; two objects without a partner become one."""
        self._alive += (a, b)
        return self._other.setdefault(id(a), id(b)) == id(b) and self._one.setdefault(
            id(b), id(a)
        ) == id(a)


def differences(one: Any, other: Any, name: str, exceptions: Set[str] = frozenset()) -> list[str]:
    """Return the paths at which two object graphs differ, below the `name` of their roots.

    Ignore the `exceptions`: names of classes, and of attributes as "Class.attribute".
    """
    exceptions = frozenset(exceptions)
    found: list[str] = []
    objects = Pairing()
    memory = Pairing()
    addresses = dict[int, int]()
    pairs = [(name, one, other)]
    while pairs:
        path, a, b = pairs.pop()
        if type(a) is not type(b):
            found.append(f"{path}: {type(a).__name__} {a!r:.60} and {type(b).__name__} {b!r:.60}")
        elif type(a).__name__ in exceptions:
            continue
        elif isinstance(a, np.ndarray) and not a.dtype.hasobject:
            if (a.dtype, a.shape) != (b.dtype, b.shape) or not _are_equal(a, b):
                found.append(
                    f"{path}: {a.dtype}{a.shape} {a.ravel()[:8]} and {b.dtype}{b.shape} {b.ravel()[:8]}"
                )
            offset = _address(a) - _address(b)
            if a.size and not (
                memory.fits(_owner(a), _owner(b))
                and addresses.setdefault(id(_owner(a)), offset) == offset
            ):
                found.append(f"{path}: shares memory with other arrays here than there")
        elif isinstance(a, _PLAIN):
            if not _are_equal(a, b):
                found.append(f"{path}: {a!r:.60} and {b!r:.60}")
        elif isinstance(a, _GLOBAL) or (isinstance(a, FunctionType) and a.__closure__ is None):
            if a is not b:
                found.append(f"{path}: {a!r:.60} and {b!r:.60}")
        elif objects.has(a) and not isinstance(a, _IMMUTABLE):
            if not objects.fits(a, b):
                found.append(f"{path}: one object with other paths here than there")
        else:
            if not isinstance(a, _IMMUTABLE) and not objects.fits(a, b):
                found.append(f"{path}: one object with other paths here than there")
            parts, other_parts = (dict(_parts(x, exceptions)) for x in (a, b))
            found += [
                f"{path}{part}: in one of them only" for part in parts.keys() ^ other_parts.keys()
            ]
            for part, value in parts.items():
                if part not in other_parts:
                    continue
                other_value = other_parts[part]
                # Most parts are the same number or text, which needs no comparison
                if value is not other_value or type(value) not in _ATOMS:
                    pairs.append((path + part, value, other_value))
    return sorted(found)


def _parts(thing: Any, exceptions: Set[str]) -> Iterator[tuple[str, Any]]:
    """Yield the parts of a container or an object, with their suffix of the path."""
    if isinstance(thing, Mapping):
        for k, (key, value) in enumerate(thing.items()):
            if isinstance(key, str | int):
                shown = repr(key)
            else:
                shown = f"key {k}"
            yield from ((f"[{shown}]", value), (f"[{shown}] (key)", key))
    elif isinstance(thing, tuple) and hasattr(thing, "_fields"):
        yield from _attributes(thing, zip(thing._fields, thing, strict=True), exceptions)
    elif isinstance(thing, list | tuple | deque):
        yield from ((f"[{k}]", value) for k, value in enumerate(thing))
    elif isinstance(thing, set | frozenset):
        yield from ((f"{{{k}}}", value) for k, value in enumerate(sorted(thing, key=repr)))
    elif isinstance(thing, np.ndarray):
        yield "", thing.tolist()
    elif isinstance(thing, np.random.Generator):
        yield ".state", thing.bit_generator.state
    elif isinstance(thing, FunctionType):
        yield from (
            ("()", thing.__code__.co_code),
            *((f"()[{k}]", c) for k, c in enumerate(thing.__closure__ or ())),
        )
    elif isinstance(thing, MethodType):
        yield from ((".__func__", thing.__func__), (".__self__", thing.__self__))
    elif isinstance(thing, partial):
        yield from ((".func", thing.func), (".args", thing.args), (".keywords", thing.keywords))
    else:
        slots = _slots_of(type(thing))
        values = getattr(thing, "__dict__", {}) | {
            name: getattr(thing, name) for name in slots if hasattr(thing, name)
        }
        if not values and type(thing).__module__ == "builtins" and type(thing) is not object:
            raise TypeError(
                f"{thing!r} cannot be compared: say how, or list the attribute that holds it"
            )
        yield from _attributes(thing, values.items(), exceptions)


def _attributes(thing: Any, values: Any, exceptions: Set[str]) -> Iterator[tuple[str, Any]]:
    excepted = _excepted_attributes(type(thing), exceptions)
    for name, value in values:
        if name not in excepted:
            yield f".{name}", value


@cache
def _excepted_attributes(kind: type, exceptions: Set[str]) -> frozenset[str]:
    """Return the names of the attributes of a class that are exceptions, those of its bases too."""
    classes = {base.__name__ for base in kind.__mro__}
    names = set()
    for exception in exceptions:
        class_name, _, attribute = exception.partition(".")
        if class_name in classes:
            names.add(attribute)
    return frozenset(names)


@cache
def _slots_of(kind: type) -> tuple[str, ...]:
    return tuple(name for base in kind.__mro__ for name in getattr(base, "__slots__", ()))


def _are_equal(a: Any, b: Any) -> bool:
    if isinstance(a, np.ndarray) and a.dtype.names:  # records: array_equal finds no NaN in them
        return a.tobytes() == b.tobytes()
    if isinstance(a, np.ndarray | np.generic):
        return bool(np.array_equal(a, b, equal_nan=a.dtype.kind in "fc"))
    return bool(a == b) or (a != a and b != b)


def _owner(array: Any) -> Any:
    """Return the owner of an array's memory."""
    while isinstance(array, np.ndarray) and array.base is not None:
        array = array.base
    return array


def _address(array: Any) -> int:
    return int(array.__array_interface__["data"][0])
