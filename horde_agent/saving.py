"""What a thing's future depends on, as arrays with names: enough to go on from there, bit for bit.

A state is a flat dict, whose names hold "/" where one thing has another inside. Nothing in it is pickled: numbers,
texts and arrays of them are all that there is.
"""

from __future__ import annotations

import json
from collections.abc import Collection, Mapping
from typing import Any

import numpy as np
from numpy.random import Generator
from numpy.typing import NDArray

State = dict[str, NDArray[Any]]

_PLAIN = (bool, int, float, str, np.generic)


def attributes(thing: object, *names: str) -> State:
    """Return copies of a thing's numbers, texts and arrays; None becomes an empty array."""
    found = {name: getattr(thing, name) for name in names}
    return {name: np.zeros(0) if value is None else np.array(value) for name, value in found.items()}


def put_back(thing: object, state: State, *names: str) -> None:
    """Write what `attributes` returned back: arrays as such, anything else as Python's own numbers and texts."""
    for name in names:
        value = state[name]
        if isinstance(getattr(thing, name), np.ndarray):
            setattr(thing, name, np.array(value))
        else:
            setattr(thing, name, None if value.shape == (0,) else value.tolist())


def nested(**parts: State) -> State:
    """Return the states of several things as one."""
    return {f"{name}/{key}": value for name, part in parts.items() for key, value in part.items()}


def inner(state: State, name: str) -> State:
    """Return the state of one of the things that `nested` joined.

    Example:
        >>> sorted(inner(nested(rng={"a": np.zeros(1), "b/c": np.zeros(1)}, rng2={"d": np.zeros(1)}), "rng"))
        ['a', 'b/c']
    """
    return {key[len(name) + 1 :]: value for key, value in state.items() if key.startswith(f"{name}/")}


def text(value: Any) -> NDArray[Any]:
    """Return a table of plain values as an array of one text."""
    return np.array(json.dumps(value, default=lambda array: array.tolist()))


def untext(array: NDArray[Any]) -> Any:
    """Return what `text` was given, as its array of shape (); the keys of tables are texts."""
    return json.loads(str(array))


def generator_state(rng: Generator) -> State:
    """Return where a generator stands, as a text: its numbers have 128 bits."""
    return {"text": text(rng.bit_generator.state)}


def restore_generator(rng: Generator, state: State) -> None:
    """Have a generator go on from there.

    Raises:
        ValueError: If it is one of another kind.
    """
    rng.bit_generator.state = untext(state["text"])


# ---- things with many arrays -----------------------------------------------------------------------------------------


def gathered(thing: object, without: Collection[str]) -> State:
    """Return copies of all numbers and arrays in a thing's attributes, and in the named tuples among these.

    Args:
        thing: Whose.
        without: Names of attributes, and of items of named tuples, that are left out.
    """
    out: State = {}
    _gather(vars(thing), "", out, frozenset(without))
    return out


def _gather(values: Mapping[str, Any], path: str, out: State, without: frozenset[str]) -> None:
    for name, value in values.items():
        if name in without:
            continue
        if _is_named_tuple(value):
            _gather(value._asdict(), f"{path}{name}/", out, without)
        elif isinstance(value, np.ndarray):
            out[path + name] = np.array(value)
        elif isinstance(value, _PLAIN):
            out[path + name] = np.asarray(value)


def scattered(thing: object, state: State) -> None:
    """Restore what `gathered` returned in an object that was made in the same way; its arrays are replaced."""
    for name, value in vars(thing).items():
        if _is_named_tuple(value):
            setattr(thing, name, _scattered(value, f"{name}/", state))
        elif name in state:
            setattr(thing, name, _written(value, state[name]))


def _scattered(values: Any, path: str, state: State) -> Any:
    changed = {}
    for name, value in values._asdict().items():
        if _is_named_tuple(value):
            changed[name] = _scattered(value, f"{path}{name}/", state)
        elif path + name in state:
            changed[name] = _written(value, state[path + name])
    return values._replace(**changed)


def _written(there: Any, value: NDArray[Any]) -> Any:
    return np.array(value) if isinstance(there, np.ndarray) else value.tolist()


def _is_named_tuple(value: object) -> bool:
    return isinstance(value, tuple) and hasattr(value, "_fields")
