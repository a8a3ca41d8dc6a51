"""States of objects as named arrays, from which they continue bit for bit.

A state is a flat dict of arrays of numbers and texts; names of nested states are joined by "/".
Nothing is pickled.

The other package has a twin of this file, as neither imports the other: change both (`tests/test_twins.py`
compares them).
"""

from __future__ import annotations

import json
from typing import Any

import numpy as np
from numpy.random import Generator
from numpy.typing import NDArray

State = dict[str, NDArray[Any]]


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


def put_back(thing: object, state: State, *names: str) -> None:
    """Restore what `attributes` returned: arrays as arrays, others as Python numbers and texts."""
    for name in names:
        value = state[name]
        if isinstance(getattr(thing, name), np.ndarray):
            setattr(thing, name, np.array(value))
        else:
            scalar = None
            if value.shape != (0,):
                scalar = value.tolist()
            setattr(thing, name, scalar)


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
