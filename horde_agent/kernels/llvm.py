"""Tools for writing LLVM code over vectors of lanes, with which `vectors.py` is written.

Arrays are flat, places in them are whole numbers, and widths are multiples of 16 lanes. LLVM splits the vectors as the
processor needs it.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np
from llvmlite import ir  # type: ignore[import-untyped,unused-ignore]
from numba import types
from numba.core import cgutils

from horde_agent.kernels import lanes as formulas

_NEAREST, SECOND_CACHE = 3, 2  # how near LLVM's prefetch brings a line
AHEAD = 6  # rows that are asked for before they are needed
# Lanes; widths are multiples of the last. 80 is half of a policy's 159 questions: a second pass over their rows for the
# last 16 lanes would cost as much as the first, but each size costs time to compile.
_PIECES = (128, 80, 64, 32, 16)
INT64, INT32, INT16, INT8 = ir.IntType(64), ir.IntType(32), ir.IntType(16), ir.IntType(8)
llvm_function: Any = cgutils.get_or_insert_function
variable: Any = cgutils.alloca_once


class Piece:
    """Writes LLVM code for some lanes at a time: lists of vectors that fill a processor's registers."""

    def __init__(self, context: Any, builder: Any, dtype: Any, lanes: int) -> None:
        self.context, self.builder = context, builder
        self.real = ir.FloatType() if dtype == types.float32 else ir.DoubleType()
        self.size = 4 if dtype == types.float32 else 8
        self.per_vector = 64 // self.size
        self.n = lanes // self.per_vector
        self.vector = ir.VectorType(self.real, self.per_vector)
        largest = float(np.finfo(np.float32 if self.size == 4 else np.float64).max)
        self.zero, self.one, self.largest = (
            ir.Constant(self.vector, [x] * self.per_vector) for x in (0.0, 1.0, largest)
        )

    def load(self, data: Any, at: Any) -> list[Any]:
        """Return the lanes that begin at an element of an array."""
        return [self._aligned(self.builder.load(self._pointer(data, at, i))) for i in range(self.n)]

    def store(self, vectors: list[Any], data: Any, at: Any) -> None:
        """Write lanes."""
        for i, vector in enumerate(vectors):
            self._aligned(self.builder.store(vector, self._pointer(data, at, i)))

    def _pointer(self, data: Any, at: Any, i: int) -> Any:
        place = self.builder.add(at, INT64(i * self.per_vector))
        return self.builder.bitcast(self.builder.gep(data, [place]), self.vector.as_pointer())

    def _aligned(self, instruction: Any) -> Any:
        instruction.align = self.size  # rows may begin anywhere; on this architecture that costs nothing
        return instruction

    def variables(self, vectors: list[Any] | None = None) -> list[Any]:
        """Return variables, which LLVM keeps in registers, with a first value each, zero unless given."""
        out = [variable(self.builder, self.vector) for _ in range(self.n)]
        for place, vector in zip(out, vectors or [self.zero] * self.n, strict=True):
            self.builder.store(vector, place)
        return out

    def values(self, variables: list[Any]) -> list[Any]:
        """Return what variables hold."""
        return [self.builder.load(v) for v in variables]

    def spread(self, number: Any) -> Any:
        """Return a vector with one number in all lanes."""
        nothing = ir.Constant(self.vector, ir.Undefined)
        first = self.builder.insert_element(nothing, number, INT32(0))
        return self.builder.shuffle_vector(
            first, nothing, ir.Constant(ir.VectorType(INT32, self.per_vector), [0] * self.per_vector)
        )

    def multiply_add(self, a: Any, b: Any, c: Any) -> Any:
        """Return a b + c, rounded once."""
        return fused(self.builder, a, b, c)

    def absolute(self, a: Any) -> Any:
        """Return |a|."""
        of_type = ir.FunctionType(self.vector, [self.vector])
        return self.builder.call(
            llvm_function(self.builder.module, of_type, f"llvm.fabs.v{self.per_vector}f{8 * self.size}"), [a]
        )

    def prefetch(self, data: Any, at: Any, near: int = _NEAREST) -> None:
        """Ask for the cache lines of some lanes, without waiting: into all caches, or those that are no nearer."""
        of_type = ir.FunctionType(ir.VoidType(), [INT8.as_pointer(), INT32, INT32, INT32])
        ask = llvm_function(self.builder.module, of_type, "llvm.prefetch.p0")
        for i in range(self.n):
            place = self.builder.bitcast(self._pointer(data, at, i), INT8.as_pointer())
            self.builder.call(ask, [place, INT32(0), INT32(near), INT32(1)])


def fused(builder: Any, a: Any, b: Any, c: Any) -> Any:
    """Return a b + c of vectors, rounded once."""
    vector = a.type
    name = f"llvm.fma.v{vector.count}f{32 if isinstance(vector.element, ir.FloatType) else 64}"
    return builder.call(llvm_function(builder.module, ir.FunctionType(vector, [vector] * 3), name), [a, b, c])


def data_of(context: Any, builder: Any, array_type: Any, array: Any) -> Any:
    """Return the pointer to an array's first element."""
    return context.make_array(array_type)(context, builder, array).data


@contextmanager
def in_steps(builder: Any, start: Any, stop: Any, step: int) -> Iterator[Any]:
    """Write a loop whose counter takes the values start, start + step, ... below stop."""
    with cgutils.for_range_slice(builder, start, stop, INT64(step), intp=INT64) as (i, _):
        yield i


def length(context: Any, builder: Any, array_type: Any, array: Any) -> Any:
    """Return the length of an array of one dimension."""
    return builder.extract_value(context.make_array(array_type)(context, builder, array).shape, 0)


def ahead(builder: Any, k: Any, n: Any) -> Any:
    """Return k + AHEAD, or the last of n where that is past the end."""
    later = builder.add(k, INT64(AHEAD))
    return builder.select(builder.icmp_signed("<", later, n), later, builder.sub(n, INT64(1)))


def item(builder: Any, data: Any, i: Any) -> Any:
    """Return an element of an array; a whole number as 64 bits."""
    value = builder.load(builder.gep(data, [i]))
    return builder.sext(value, INT64) if isinstance(value.type, ir.IntType) and value.type.width < 64 else value


def items(context: Any, builder: Any, array_type: Any, array: Any, n: int) -> list[Any]:
    """Return the first n elements of an array."""
    data = data_of(context, builder, array_type, array)
    return [item(builder, data, INT64(i)) for i in range(n)]


def in_pieces(context: Any, builder: Any, dtype: Any, width: Any, at_once: int, body: Any) -> None:
    """Write the code of `body(piece, first lane)` for the wide pieces of a width, then for its narrower ones."""
    widest = at_once // (4 if dtype == types.float32 else 8)
    start = INT64(0)
    for lanes in (n for n in _PIECES if n <= widest):
        whole = builder.mul(builder.sdiv(builder.sub(width, start), INT64(lanes)), INT64(lanes))
        stop = builder.add(start, whole)
        with cgutils.for_range_slice(builder, start, stop, INT64(lanes), intp=INT64) as (lane, _):
            body(Piece(context, builder, dtype, lanes), lane)
        start = stop


class _Number:
    """Sixteen lanes' numbers, as an LLVM vector that can be reckoned with."""

    N = 16

    def __init__(self, builder: Any, value: Any) -> None:
        self.builder, self.value = builder, value

    def _with(self, other: Any) -> Any:
        if isinstance(other, _Number):
            return other.value
        return ir.Constant(self.value.type, [float(other)] * self.N)

    def __add__(self, other: Any) -> _Number:
        if isinstance(other, _Product):
            return other.plus(self.value)
        return _Number(self.builder, self.builder.fadd(self.value, self._with(other)))

    def __sub__(self, other: Any) -> _Number:
        if isinstance(other, _Product):
            return other.negative().plus(self.value)
        return _Number(self.builder, self.builder.fsub(self.value, self._with(other)))

    def __rsub__(self, other: Any) -> _Number:
        return _Number(self.builder, self.builder.fsub(self._with(other), self.value))

    def __mul__(self, other: Any) -> _Product:
        return _Product(self.builder, self.value, self._with(other))

    def __truediv__(self, other: Any) -> _Number:
        return _Number(self.builder, self.builder.fdiv(self.value, self._with(other)))

    def __gt__(self, other: Any) -> _Number:
        return _Number(self.builder, self.builder.fcmp_ordered(">", self.value, self._with(other)))


class _Product(_Number):
    """A product of two numbers. Added to a third, it is not rounded before: where, this file says, not a compiler."""

    def __init__(self, builder: Any, left: Any, right: Any) -> None:
        super().__init__(builder, builder.fmul(left, right))
        self._factors = left, right

    def negative(self) -> _Product:
        """Return the product with its sign turned."""
        left, right = self._factors
        return _Product(self.builder, self.builder.fneg(left), right)

    def plus(self, value: Any) -> _Number:
        """Return the product plus a vector, rounded once."""
        return _Number(self.builder, fused(self.builder, *self._factors, value))

    def __add__(self, other: Any) -> _Number:
        return super().__add__(other) if isinstance(other, _Product) else self.plus(self._with(other))

    def __sub__(self, other: Any) -> _Number:
        if isinstance(other, _Product):
            return super().__sub__(other)
        return self.plus(self.builder.fneg(self._with(other)))


class _VectorLanes:
    """Numbers of lanes as LLVM vectors: `places` are the pointer and the element at which each row begins."""

    def __init__(self, builder: Any, real: Any, places: list[tuple[Any, Any]]) -> None:
        self._builder, self._places, self._vector = builder, places, ir.VectorType(real, _Number.N)

    def _pointer(self, row: int) -> tuple[Any, int]:
        """Return where a row's vector is, and the bytes of one of its numbers."""
        data, at = self._places[row]
        real = data.type.pointee
        place = self._builder.bitcast(self._builder.gep(data, [at]), ir.VectorType(real, _Number.N).as_pointer())
        return place, 4 if isinstance(real, ir.FloatType) else 8

    def __getitem__(self, row: int) -> _Number:
        pointer, size = self._pointer(row)
        value = self._builder.load(pointer)
        value.align = size
        return _Number(self._builder, value if value.type == self._vector else self._builder.fpext(value, self._vector))

    def __setitem__(self, row: int, number: Any) -> None:
        value = number.value if isinstance(number, _Number) else ir.Constant(self._vector, [number] * _Number.N)
        pointer, size = self._pointer(row)
        self._builder.store(value, pointer).align = size

    def maximum(self, a: _Number, b: Any) -> _Number:
        """Return the larger of both; `b` where `a` is not a number."""
        return self.choose(a > b, a, b)

    def choose(self, condition: _Number, a: Any, b: Any) -> _Number:
        """Return `a` where the condition holds, else `b`."""
        number = a if isinstance(a, _Number) else b
        return _Number(self._builder, self._builder.select(condition.value, number._with(a), number._with(b)))

    def is_finite(self, a: _Number) -> _Number:
        """Return where a number is neither infinite nor NaN: a - a is then 0."""
        zero = self._builder.fsub(a.value, a.value)
        return _Number(self._builder, self._builder.fcmp_ordered("==", zero, zero))


def write_step(
    builder: Any, real: Any, width: Any, rows: list[tuple[Any, Any]], numbers: list[Any], formula: Any
) -> None:
    """Write the code of a formula, over `width` lanes: the first lane of each row is given."""
    zero = INT32(0)
    nothing = ir.Constant(ir.VectorType(real, _Number.N), ir.Undefined)
    spread = ir.Constant(ir.VectorType(INT32, _Number.N), [0] * _Number.N)
    everywhere = []
    for number in numbers:
        first = builder.insert_element(nothing, number, zero)
        everywhere.append(_Number(builder, builder.shuffle_vector(first, nothing, spread)))
    with cgutils.for_range_slice(builder, INT64(0), width, INT64(_Number.N), intp=INT64) as (lane, _):
        places = [(data, builder.add(at, lane)) if data else (None, None) for data, at in rows]
        formula(_VectorLanes(builder, real, places), everywhere)


def rows_of(context: Any, builder: Any, lanes_type: Any, lanes: Any, start: Any) -> list[tuple[Any, Any]]:
    """Return where each row of `lanes`, (N_ROWS, L), has the lane `start`."""
    array = context.make_array(lanes_type)(context, builder, lanes)
    n_lanes = builder.extract_value(array.shape, 1)
    return [(array.data, builder.add(builder.mul(INT64(r), n_lanes), start)) for r in range(formulas.N_ROWS)]
