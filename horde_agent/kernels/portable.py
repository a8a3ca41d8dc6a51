"""What kernels need beside numba's documented features, written with these alone: vectors of one lane.

`native.py` has the same names, for many lanes at a time, and says what they are for. This file is what they are held
against, what runs where numba is switched off, and what HORDE_PLAIN_KERNELS=1 compiles instead, should `native.py` fail
with a numba that it does not know. It learns the same but for rounding: `multiply_add` rounds twice here.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import numpy as np
from numba import prange
from numpy.typing import NDArray

from horde_agent.kernels._jit import inner_kernel, kernel, parallel_kernel


def hold(parts: Any) -> Any:
    """Return what a kernel is given so that it can read a named tuple of arrays and numbers: here, the tuple."""
    return parts


def bind(function: Any, *given: Any, like: tuple[Any, ...]) -> Callable[..., Any]:  # noqa: ARG001
    """Return a kernel whose first arguments are given, and whose others have the types of `like`."""
    return functools.partial(function, *given)


@inner_kernel
def narrow_zeros(array: NDArray[Any]) -> Any:
    """Return a narrow vector of zeros, of the type of an array of any shape; others have more lanes."""
    return array.dtype.type(0)


wide_zeros = wider_zeros = row_zeros = narrow_zeros


@inner_kernel
def lanes_of(zero: Any) -> int:  # noqa: ARG001
    """Return how many numbers a vector has."""
    return 1


@inner_kernel
def load(array: NDArray[Any], i: int, zero: Any) -> Any:  # noqa: ARG001
    """Return as many numbers of an array, shape (n,), from `i` on, as `zero` has."""
    return array[i]


@inner_kernel
def store(array: NDArray[Any], i: int, x: Any) -> None:
    """Write a vector to an array, shape (n,), from `i` on."""
    array[i] = x


@inner_kernel
def prefetch(array: NDArray[Any], i: int, zero: Any) -> None:
    """Ask for as many numbers of an array, shape (n,), from `i` on, as `zero` has, without waiting: they come soon."""


@inner_kernel
def prefetch_far(array: NDArray[Any], i: int, zero: Any) -> None:
    """Ask for numbers of an array, shape (n,), that come later, into the second cache."""


@inner_kernel
def multiply_add(a: Any, b: Any, c: Any) -> Any:
    """Return a b + c."""
    return a * b + c


@inner_kernel
def choose(mask: Any, a: Any, b: Any) -> Any:
    """Return a where the mask is true, else b."""
    return a if mask else b


@inner_kernel
def absolute(x: Any) -> Any:
    """Return |x|."""
    return abs(x)


@inner_kernel
def any_true(mask: Any) -> bool:
    """Say whether a mask is true in any lane."""
    return bool(mask)


@inner_kernel
def popcount(word: np.uint64) -> int:
    """Return how many bits of a word are set: by pairs, nibbles, bytes, then all of them."""
    word = word - ((word >> np.uint64(1)) & np.uint64(0x5555555555555555))
    word = (word & np.uint64(0x3333333333333333)) + ((word >> np.uint64(2)) & np.uint64(0x3333333333333333))
    word = (word + (word >> np.uint64(4))) & np.uint64(0x0F0F0F0F0F0F0F0F)
    word = word + (word >> np.uint64(8))
    word = word + (word >> np.uint64(16))
    return int((word + (word >> np.uint64(32))) & np.uint64(127))


@inner_kernel
def lowest_bit(word: np.uint64) -> int:
    """Return the place of the lowest bit that is set in a word; one must be."""
    return int(popcount(~word & (word - np.uint64(1))))


@functools.cache
def _compiled(function: Any) -> Any:
    return inner_kernel(function)


def entry_of(function: Any, held: Any) -> Any:  # noqa: ARG001
    """Return what `on_threads` needs to call a function of (held, thread, task), which returns 0."""
    return _compiled(function)


@kernel
def on_threads(entry: Any, held: Any, n_threads: int, task: int) -> None:
    """Let each thread call the kernel at `entry` with (held, thread, task); one does without a parallel region."""
    if n_threads == 1:
        entry(held, np.int64(0), task)
    else:
        _side_by_side(entry, held, n_threads, task)


@parallel_kernel
def _side_by_side(entry: Any, held: Any, n_threads: int, task: int) -> None:
    for thread in prange(n_threads):
        entry(held, np.int64(thread), task)
