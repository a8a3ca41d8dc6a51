"""States of objects as named arrays, enough to continue bit for bit.

A state is a flat dict with "/" in the names of nested objects' arrays. Values are arrays of numbers
or texts, never pickled.
"""

from __future__ import annotations

import json
from typing import Any

import numpy as np
from numpy.random import Generator
from numpy.typing import NDArray

from horde_env.backend import State


def attributes(thing: object, *names: str) -> State:
    """Return copies of an object's numbers, texts, lists of numbers and arrays; None becomes an empty array."""
    values = {name: getattr(thing, name) for name in names}
    return {
        name: np.zeros(0) if value is None else np.array(value) for name, value in values.items()
    }


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
            setattr(thing, name, None if value.shape == (0,) else value.tolist())


def number_of(array: str, at: int, kind: type) -> Any:
    """Return a property for a number at an index of the attribute `array`: numbers changed by kernels have names."""

    def read(thing: object) -> Any:
        return kind(getattr(thing, array)[at])

    def write(thing: object, value: Any) -> None:
        getattr(thing, array)[at] = value

    return property(read, write)


def nested(**parts: State) -> State:
    """Return the states of several objects as one."""
    return {f"{name}/{key}": value for name, part in parts.items() for key, value in part.items()}


def inner(state: State, name: str) -> State:
    """Return the state of one of the objects joined by `nested`."""
    return {
        key[len(name) + 1 :]: value for key, value in state.items() if key.startswith(f"{name}/")
    }


def text(value: Any) -> NDArray[Any]:
    """Return a JSON value as an array of one text; numbers that are not finite are kept."""
    return np.array(json.dumps(value, default=lambda array: array.tolist()))


def untext(array: NDArray[Any]) -> Any:
    """Return the value given to `text`; tuples come back as lists."""
    return json.loads(str(array))


def generator_state(rng: Generator) -> State:
    """Return a generator's state as a text, since its numbers have 128 bits."""
    return {"text": text(rng.bit_generator.state)}


def restore_generator(rng: Generator, state: State) -> None:
    """Restore a state from `generator_state`.

    Raises:
        ValueError: If the generator is of another kind.
    """
    rng.bit_generator.state = untext(state["text"])
