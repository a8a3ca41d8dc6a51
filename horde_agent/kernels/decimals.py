"""Numbers as text for another program, thousands at once.

    |x| = d.dddddddd x 10^exponent, rounded to nine digits, as by C's format %.9g

The digits are those of x times a power of ten, which float64 holds exactly up to 10^22. So they equal those
of %.9g, unless the tenth and later digits are within some millionths of a half.
"""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import NDArray

from horde_agent.kernels._jit import inner_kernel, kernel
from horde_agent.types import Floats

Bytes = NDArray[np.uint8]

MOST_BYTES = 16
"""A number has a sign, nine digits, a point, and an exponent of five bytes."""

_N_DIGITS = 9
_LEAST_DIGITS = 10 ** (_N_DIGITS - 1)
_LEAST_PLAIN = -4
"""The least exponent of a number that is written without it."""
_POWERS = np.array([float(10**k) for k in range(23)])
_LARGEST_POWER = 22
_LEAST_SCALED = 1e-13
"""From here on, a power of `_POWERS` gives the digits."""

_ZERO = ord("0")
_MINUS = ord("-")
_PLUS = ord("+")
_POINT = ord(".")
_E = ord("e")
_NULL = np.array([ord(letter) for letter in "null"], dtype=np.uint8)
_N_NULL = 4


@inner_kernel
def _write_digits(digits: int, n_whole: int, text: Bytes, at: int) -> int:
    """Write nine digits with a point behind the first `n_whole`, and without zeros at the end; return the end."""
    base = np.uint32(10)
    quotient = np.uint32(digits)
    end = at + _N_DIGITS + 1
    for i in range(end - 1, at - 1, -1):
        if i == at + n_whole:
            text[i] = _POINT
            continue
        shorter = np.uint32(quotient // base)
        text[i] = np.uint8(_ZERO) + np.uint8(quotient - shorter * base)
        quotient = shorter
    while text[end - 1] == _ZERO:
        end -= 1
    if text[end - 1] == _POINT:
        end -= 1
    return end


@inner_kernel
def _write_exponent(exponent: int, text: Bytes, at: int) -> int:
    """Write an exponent with its sign and at least two digits; return the end."""
    text[at] = _E
    text[at + 1] = _PLUS
    if exponent < 0:
        text[at + 1] = _MINUS
        exponent = -exponent
    at += 2
    if exponent >= 100:
        text[at] = _ZERO + exponent // 100
        exponent %= 100
        at += 1
    text[at] = _ZERO + exponent // 10
    text[at + 1] = _ZERO + exponent % 10
    return at + 2


@inner_kernel
def _write_number(x: float, text: Bytes, at: int) -> int:
    """Write a number from byte `at` on, "null" if it is not finite; return the end."""
    if not math.isfinite(x):
        for i in range(_N_NULL):
            text[at + i] = _NULL[i]
        return at + _N_NULL
    if math.copysign(1.0, x) < 0.0:
        text[at] = _MINUS
        at += 1
        x = -x
    if x == 0.0:
        text[at] = _ZERO
        return at + 1

    scale = 0
    while x >= _POWERS[_LARGEST_POWER]:
        x /= _POWERS[_LARGEST_POWER]
        scale += _LARGEST_POWER
    while x < _LEAST_SCALED:
        x *= _POWERS[_LARGEST_POWER]
        scale -= _LARGEST_POWER
    # Comparisons take a fifth of the time of a logarithm: most predictions are near 1
    exponent = 0
    while x >= _POWERS[exponent + 1]:
        exponent += 1
    while exponent <= 0 and x * _POWERS[-exponent] < 1.0:
        exponent -= 1
    power = _N_DIGITS - 1 - exponent
    if power >= 0:
        digits = int(np.rint(x * _POWERS[power]))
    else:
        digits = int(np.rint(x / _POWERS[-power]))
    exponent += scale
    if digits == 10 * _LEAST_DIGITS:
        digits = _LEAST_DIGITS
        exponent += 1

    if exponent < _LEAST_PLAIN or exponent >= _N_DIGITS:
        at = _write_digits(digits, 1, text, at)
        return int(_write_exponent(exponent, text, at))
    if exponent >= 0:
        return int(_write_digits(digits, exponent + 1, text, at))
    for _ in range(exponent, 0):
        text[at] = _ZERO
        at += 1
    end = _write_digits(digits, 0, text, at)
    if exponent < -1:  # the point is behind the first zero
        text[at] = _ZERO
        text[at + exponent + 1] = _POINT
    return int(end)


@kernel
def write_numbers(
    values: Floats,
    places: NDArray[np.int64],
    labels: Bytes,
    label_ends: NDArray[np.int64],
    text: Bytes,
    at: int,
) -> int:
    """Write labels, each with a value behind it, into a text from byte `at` on; return the end.

    Value i is `values[places[i]]`, "null" if it is not finite. `labels` has all labels, of which label
    i ends before byte `label_ends[i]`. The text has room for them, and for `MOST_BYTES` a value.
    Shapes: values (n_questions,), places and label_ends (n_shown,), labels and text (n_bytes,) of each.
    """
    first = 0
    for i in range(places.shape[0]):
        for j in range(first, label_ends[i]):
            text[at] = labels[j]
            at += 1
        first = label_ends[i]
        at = _write_number(values[places[i]], text, at)
    return at
