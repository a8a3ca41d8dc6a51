"""What a thing's future depends on, as arrays with names: enough to go on from there, bit for bit.

A state is a flat dict, whose names hold "/" where one thing has another inside. Nothing in it is pickled: numbers,
texts and arrays of them are all that there is.
"""

from __future__ import annotations

import json
from typing import Any

import numpy as np
from numpy.random import Generator

from horde_env.backend import State


def attributes(thing: object, *names: str) -> State:
    """Return copies of a thing's numbers, texts, lists of numbers and arrays; None becomes an empty array."""
    found = {name: getattr(thing, name) for name in names}
    return {name: np.zeros(0) if value is None else np.array(value) for name, value in found.items()}


def put_back(thing: object, state: State, *names: str) -> None:
    """Write what `attributes` returned back: into arrays and lists that are there, else in the attribute's place."""
    for name in names:
        there, value = getattr(thing, name), state[name]
        if isinstance(there, np.ndarray):
            there[...] = value
        elif isinstance(there, list):
            there[:] = value.tolist()
        else:
            setattr(thing, name, None if value.shape == (0,) else value.tolist())


def number_of(array: str, at: int, kind: type) -> Any:
    """Return an attribute that is one number of an array of the thing: what kernels change in place has a name so.

    Args:
        array: The thing's attribute that is the array.
        at: Which of its numbers.
        kind: bool, int or float: what the attribute reads as.
    """

    def read(thing: object) -> Any:
        return kind(getattr(thing, array)[at])

    def write(thing: object, value: Any) -> None:
        getattr(thing, array)[at] = value

    return property(read, write)


def nested(**parts: State) -> State:
    """Return the states of several things as one."""
    return {f"{name}/{key}": value for name, part in parts.items() for key, value in part.items()}


def inner(state: State, name: str) -> State:
    """Return the state of one of the things that `nested` joined."""
    return {key[len(name) + 1 :]: value for key, value in state.items() if key.startswith(f"{name}/")}


def generator_state(rng: Generator) -> State:
    """Return where a generator stands, as a text: its numbers have 128 bits."""
    return {"text": np.array(json.dumps(rng.bit_generator.state, default=lambda array: array.tolist()))}


def restore_generator(rng: Generator, state: State) -> None:
    """Have a generator go on from there.

    Raises:
        ValueError: If it is one of another kind.
    """
    rng.bit_generator.state = json.loads(str(state["text"]))
