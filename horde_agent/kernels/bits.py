# ruff: noqa: ARG001, D103 - numba counts an intrinsic's arguments; its docstring is its plain twin's
"""Counting bits by their place, 32 times of the past at once, in LLVM's vectors beside a plain twin.

A feature's past is a row of bits. An overlap of feature vectors is a sum over features, so that moving on to the next
vector adds the rows of the features that went on, and takes those of the ones that went off. A bit that is spread to a
mask adds to sixteen sums in one instruction where the processor has masks; LLVM finds other ways where it has none.
"""

from __future__ import annotations

from typing import Any

import numba
import numpy as np
from llvmlite import ir  # type: ignore[import-untyped,unused-ignore]
from numba import types
from numba.core import cgutils
from numba.extending import intrinsic
from numpy.typing import NDArray

from horde_agent.kernels.vectors import data_of, in_steps, item, llvm_function

Integers = NDArray[np.int64]

_INT16, _INT32, _INT64 = ir.IntType(16), ir.IntType(32), ir.IntType(64)
_LANES = 16
_variable: Any = cgutils.alloca_once
_MASK, _VECTOR = ir.VectorType(ir.IntType(1), _LANES), ir.VectorType(_INT32, _LANES)


def add_bits_plain(
    bits: NDArray[np.uint32],
    first_word: int,
    last_word: int,
    features: Integers,
    n: int,
    weight: int,
    sums: NDArray[np.int32],
) -> None:
    """Add `weight` to sums[i] for each of the first n `features` whose bit i is set.

    Args:
        bits: Shape (n_features, n_words); bit i is bit i % 32 of word i // 32.
        first_word: First of the words whose bits are looked at.
        last_word: The one after the last of them.
        features: Features; one may be there more than once.
        n: How many of them.
        weight: What a bit counts.
        sums: Shape (32 n_words,), changed in place.
    """
    places = np.arange(32 * first_word, 32 * last_word)
    for k in range(n):
        row = bits[features[k]].astype(np.int64)
        sums[places] += (weight * ((row[places // 32] >> (places % 32)) & 1)).astype(np.int32)


def lowest_bit_plain(word: int) -> int:
    """Return the place of the lowest bit that is set in a 32-bit word; one must be."""
    return (int(word) & -int(word)).bit_length() - 1


if numba.config.DISABLE_JIT:  # type: ignore[attr-defined]
    add_bits: Any = add_bits_plain
    lowest_bit: Any = lowest_bit_plain
else:

    @intrinsic
    def lowest_bit(typing_context: Any, word: Any) -> Any:
        def generate(context: Any, b: Any, signature: Any, arguments: Any) -> Any:
            of_type = ir.FunctionType(_INT32, [_INT32, ir.IntType(1)])
            count = llvm_function(b.module, of_type, "llvm.cttz.i32")
            return b.zext(b.call(count, [arguments[0], ir.IntType(1)(1)]), _INT64)

        return types.intp(types.uint32), generate

    @intrinsic
    def add_bits(
        typing_context: Any, bits: Any, first_word: Any, last_word: Any, features: Any, n: Any, weight: Any, sums: Any
    ) -> Any:
        intp = types.intp

        def generate(context: Any, b: Any, signature: Any, arguments: Any) -> Any:
            bits_, first, last, features_, n_, weight_, sums_ = arguments
            words, names = data_of(context, b, bits, bits_), data_of(context, b, features, features_)
            totals = data_of(context, b, sums, sums_)
            n_words = b.extract_value(context.make_array(bits)(context, b, bits_).shape, 1)
            nothing = ir.Constant(_VECTOR, ir.Undefined)
            start = b.insert_element(nothing, b.trunc(weight_, _INT32), _INT32(0))
            amount = b.shuffle_vector(start, nothing, ir.Constant(_VECTOR, [0] * _LANES))
            zero = ir.Constant(_VECTOR, [0] * _LANES)
            with in_steps(b, first, last, 1) as word:
                at = [
                    b.bitcast(b.gep(totals, [b.add(b.mul(word, _INT64(32)), _INT64(16 * i))]), _VECTOR.as_pointer())
                    for i in range(2)
                ]
                sums_here = [_variable(b, _VECTOR) for _ in at]
                for variable, place in zip(sums_here, at, strict=True):
                    value = b.load(place)
                    value.align = 4
                    b.store(value, variable)
                with in_steps(b, _INT64(0), n_, 1) as k:
                    row = b.mul(item(b, names, k), n_words)
                    here = b.load(b.gep(words, [b.add(row, word)]))
                    halves = b.trunc(here, _INT16), b.trunc(b.lshr(here, _INT32(16)), _INT16)
                    for variable, half in zip(sums_here, halves, strict=True):
                        gain = b.select(b.bitcast(half, _MASK), amount, zero)
                        b.store(b.add(b.load(variable), gain), variable)
                for variable, place in zip(sums_here, at, strict=True):
                    b.store(b.load(variable), place).align = 4
            return context.get_dummy_value()

        return types.void(bits, intp, intp, features, intp, intp, sums), generate
