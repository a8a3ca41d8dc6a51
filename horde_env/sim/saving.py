"""States of objects as named arrays, enough to continue bit for bit.

A state is a flat dict of arrays of numbers and texts; names of nested states are joined by "/".
Nothing is pickled.

The other package has a twin of this file, as neither imports the other: change both (`tests/test_twins.py`
compares them).
"""

from __future__ import annotations

import json
from typing import Any, ClassVar

import numpy as np
from numpy.random import Generator
from numpy.typing import NDArray

from horde_env.backend import State


def attributes(thing: object, *names: str) -> State:
    """Return copies of attributes that are numbers, texts, lists of numbers or arrays; None becomes an empty array."""
    state = {}
    for name in names:
        value = getattr(thing, name)
        if value is None:
            state[name] = np.zeros(0)
        else:
            state[name] = np.array(value)
    return state


def restore_attributes(thing: object, state: State, *names: str) -> None:
    """Restore a state from `attributes`: in place for arrays and lists, else by assignment."""
    for name in names:
        current = getattr(thing, name)
        value = state[name]
        if isinstance(current, np.ndarray):
            current[...] = value
        elif isinstance(current, list):
            current[:] = value.tolist()
        else:
            scalar = None
            if value.shape != (0,):
                scalar = value.tolist()
            setattr(thing, name, scalar)


class Saved:
    """A part of a robot whose state is the attributes that it names: see `attributes`."""

    saved: ClassVar[tuple[str, ...]]

    def save(self) -> State:
        """Return everything that later steps depend on."""
        return attributes(self, *self.saved)

    def restore(self, state: State) -> None:
        """Restore a state from `save`."""
        restore_attributes(self, state, *self.saved)


def number_of(array: str, at: int, kind: type) -> Any:
    """Return a property for a number at an index of the attribute `array`: numbers changed by kernels have names."""

    def read(thing: object) -> Any:
        return kind(getattr(thing, array)[at])

    def write(thing: object, value: Any) -> None:
        getattr(thing, array)[at] = value

    return property(read, write)


def nested(**parts: State) -> State:
    """Join several states into one."""
    return {f"{name}/{key}": value for name, part in parts.items() for key, value in part.items()}


def inner(state: State, name: str) -> State:
    """Return one of the states that `nested` joined.

    Examples:
        >>> sorted(inner(nested(rng={"a": np.zeros(1), "b/c": np.zeros(1)}, rng2={"d": np.zeros(1)}), "rng"))
        ['a', 'b/c']
    """
    return {
        key[len(name) + 1 :]: value for key, value in state.items() if key.startswith(f"{name}/")
    }


def text(value: Any) -> NDArray[Any]:
    """Return a JSON value as an array of one text."""
    return np.array(json.dumps(value, default=lambda array: array.tolist()))


def untext(array: NDArray[Any]) -> Any:
    """Return the value given to `text`, from its array of shape (); keys of tables are texts."""
    return json.loads(str(array))


def generator_state(rng: Generator) -> State:
    """Return the state of a generator as a text: its numbers have 128 bits."""
    return {"text": text(rng.bit_generator.state)}


def restore_generator(rng: Generator, state: State) -> None:
    """Restore a state from `generator_state`; raise ValueError if the generator is of another kind."""
    rng.bit_generator.state = untext(state["text"])
