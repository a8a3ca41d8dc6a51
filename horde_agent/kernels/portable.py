"""Fallback for `native.py` that uses only documented features of numba: vectors of one lane.

`native.py` has the same names for many lanes at a time, and explains their purpose. This file is
its reference in tests, runs if numba is disabled, and replaces it under HORDE_PLAIN_KERNELS=1 if
`native.py` fails with an untested version of numba. Results are equal except for rounding:
`multiply_add` rounds twice here.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import NDArray

from horde_agent.kernels._jit import inner_kernel, kernel


def pack(parts: Any) -> Any:
    """Return the kernel argument for a named tuple of arrays and numbers: here, the tuple itself."""
    return parts


def generalise(packed: Any) -> Any:
    """Return packed arrays of a type that depends neither on their constants nor on their tuples: here, the same."""
    return packed


def bind(function: Any, *given: Any, like: tuple[Any, ...]) -> Callable[..., Any]:  # noqa: ARG001
    """Return a kernel with its first arguments bound; the other arguments have the types of `like`."""
    return functools.partial(function, *given)


@inner_kernel
def narrow_zeros(array: NDArray[Any]) -> Any:  # noqa: ARG001
    """Return a narrow vector of zeros for an array of any shape.

    Lanes are float64 whatever the dtype of the array: numba would make a float32 plus 1.0 a float64,
    and refuse a tuple that has both in turn.
    """
    return 0.0


wide_zeros = wider_zeros = row_zeros = narrow_zeros


def by_most_lanes(wide: Any, narrow: Any) -> Any:  # noqa: ARG001
    """Return a kernel (packed, b, how): here `narrow`, otherwise `wide` unless `packed.most_lanes` is 16."""
    return narrow


@inner_kernel
def lanes_of(zero: Any) -> int:  # noqa: ARG001
    """Return the number of lanes of a vector."""
    return 1


@inner_kernel
def load(array: NDArray[Any], i: int, zero: Any) -> Any:  # noqa: ARG001
    """Return a vector like `zero`, read from an array, shape (n,), from index `i` on."""
    return np.float64(array[i])


@inner_kernel
def store(array: NDArray[Any], i: int, x: Any) -> None:
    """Write a vector to an array, shape (n,), from index `i` on."""
    array[i] = x


@inner_kernel
def prefetch(array: NDArray[Any], i: int, zero: Any) -> None:
    """Prefetch a vector like `zero` of an array, shape (n,), from index `i` on."""


@inner_kernel
def multiply_add(a: Any, b: Any, c: Any) -> Any:
    """Return a b + c."""
    return a * b + c


@inner_kernel
def choose(mask: Any, a: Any, b: Any) -> Any:
    """Return a in the lanes in which the mask is true, else b."""
    return a if mask else b


@inner_kernel
def absolute(x: Any) -> Any:
    """Return |x|."""
    return abs(x)


@inner_kernel
def square_root(x: Any) -> Any:
    """Return the square root of x, which is not negative."""
    return x**0.5


@inner_kernel
def any_true(mask: Any) -> bool:
    """Return True if a mask is true in any lane."""
    return bool(mask)


@functools.cache
def _compiled(function: Any) -> Any:
    return inner_kernel(function)


def entry_of(function: Any, packed: Any) -> Any:  # noqa: ARG001
    """Return the `entry` with which `on_threads` calls a function of (packed, thread, task) that returns 0."""
    return _compiled(function)


@kernel
def on_threads(entry: Any, packed: Any, n_threads: int, task: int) -> None:
    """Call the kernel at `entry` with (packed, thread, task) for each thread, in turn.

    Numba's parallel loops take no tuple within a tuple, as the rule's parameters in `SpanArrays`
    are.
    """
    for thread in range(n_threads):
        entry(packed, np.int64(thread), task)
