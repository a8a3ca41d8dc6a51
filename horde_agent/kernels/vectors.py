# ruff: noqa: ARG001, D103 - numba counts an intrinsic's arguments; its docstring is its plain twin's
"""Sums over rows of lanes, written in LLVM's vectors, each beside its plain twin.

A loop over 64 lanes is too short for numba's own: before each it checks whether its arrays overlap, and its sums go
through memory. Here a piece of 64 lanes (then of 16) stays in registers while the rows pass: 3 to 4 times as fast. LLVM
splits the vectors as the processor needs it. Arrays are flat, places in them are whole numbers, and widths are
multiples of 16 lanes. Where numba is switched off, the plain twins take over.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import numba
import numpy as np
from llvmlite import ir  # type: ignore[import-untyped,unused-ignore]
from numba import types
from numba.core import cgutils
from numba.extending import intrinsic
from numpy.typing import NDArray

from horde_agent.kernels import lanes as formulas

Reals = NDArray[Any]
Integers = NDArray[np.int64]

AHEAD = 6  # rows that are asked for before they are needed
# Lanes; widths are multiples of the last. 80 is half of a policy's 159 questions: a second pass over their rows for the
# last 16 lanes would cost as much as the first, but each size costs time to compile.
_PIECES = (128, 80, 64, 32, 16)
# Bytes that pass at once: as much as the registers hold with all that goes with it.
_ROWS_AT_ONCE, _FOLLOWED_AT_ONCE, _WRITTEN_AT_ONCE = 512, 256, 128
_INT64, _INT32, _INT8 = ir.IntType(64), ir.IntType(32), ir.IntType(8)
llvm_function: Any = cgutils.get_or_insert_function


# ---- plain twins --------------------------------------------------------------------------------------------------


def move_rows_plain(
    rows: Reals, origin: int, stride: int, features: Integers, n: int, lost: Integers, n_lost: int, out: Reals
) -> None:
    """Add the rows of the first n `features` to `out`, and subtract those of the first n_lost `lost`."""
    width = out.shape[0]
    for k in range(n):
        at = origin + features[k] * stride
        out += rows[at : at + width]
    for k in range(n_lost):
        at = origin + lost[k] * stride
        out -= rows[at : at + width]


def follow_plain(
    trace: Reals, first: int, owed: Reals, first_owed: int, overlaps: Reals, n: int, n_owed: int, x: Reals, total: Reals
) -> None:
    """Follow x_k = rho_k (G_k + g_k x_{k-1}), and write the sum of delta_k x_k over the last `n_owed`."""
    width = x.shape[0]
    total[:] = 0
    for k in range(n):
        at = first + 2 * k * width
        x[:] = trace[at : at + width] * (overlaps[k] + trace[at + width : at + 2 * width] * x)
        if k >= n - n_owed:
            at = first_owed + 2 * (k - n + n_owed) * width
            total += owed[at : at + width] * x


def weigh_plain(rows: Reals, origin: int, stride: int, weights: Reals, n: int, out: Reals) -> None:
    """Write the weighted sum of n rows."""
    out[:] = 0
    for k in range(n):
        at = origin + k * stride
        out += weights[k] * rows[at : at + out.shape[0]]


def write_runs_plain(
    kinds: tuple[Reals, ...],
    origin: int,
    stride: int,
    table: Reals,
    first_kind: int,
    n_kinds: int,
    width: int,
    features: Integers,
    first_run: Integers,
    n_features: int,
    runs: NDArray[np.int32],
) -> None:
    """Add to each feature's row of each kind what the table, (times, n_kinds, width), gained over its runs."""
    for j in range(n_features):
        at = origin + features[j] * stride
        for kind in range(len(kinds)):
            row = kinds[kind][at : at + width]
            for r in range(first_run[j], first_run[j + 1]):
                since = (runs[2 * r] * n_kinds + first_kind + kind) * width
                until = (runs[2 * r + 1] * n_kinds + first_kind + kind) * width
                row += table[until : until + width] - table[since : since + width]


class _PlainLanes:
    """Numbers of lanes as NumPy rows."""

    maximum, choose, is_finite = staticmethod(np.maximum), staticmethod(np.where), staticmethod(np.isfinite)

    def __init__(self, rows: list[Reals]) -> None:
        self._rows = rows

    def __getitem__(self, row: int) -> Reals:
        return self._rows[row].copy()

    def __setitem__(self, row: int, values: Any) -> None:
        self._rows[row][:] = values


def take_busy_step_plain(
    lanes: Reals,
    start: int,
    width: int,
    numbers: Reals,
    trace: Reals,
    to_trace: int,
    owed: Reals,
    to_owed: int,
    spent: Reals,
    to_spent: int,
) -> None:
    """Let `width` lanes take a step (`lanes.py`), which leaves its rows behind at the places given."""
    rows = [row[start : start + width] for row in lanes]
    for array, at in ((trace, to_trace), (trace, to_trace + width), (owed, to_owed), (owed, to_owed + width)):
        rows.append(array[at : at + width])
    with np.errstate(all="ignore"):
        formulas.busy_step(_PlainLanes([*rows, spent[to_spent : to_spent + width]]), numbers)


def take_idle_step_plain(lanes: Reals, start: int, width: int, numbers: Reals, spent: Reals, to_spent: int) -> None:
    """Let `width` lanes pass a step in which they learn nothing."""
    rows = [row[start : start + width] for row in lanes]
    rows += [np.empty(width, lanes.dtype)] * 4
    with np.errstate(all="ignore"):
        formulas.idle_step(_PlainLanes([*rows, spent[to_spent : to_spent + width]]), numbers)


# ---- the same in vectors ------------------------------------------------------------------------------------------


class Piece:
    """Writes LLVM code for some lanes at a time: lists of vectors that fill a processor's registers."""

    def __init__(self, context: Any, builder: Any, dtype: Any, lanes: int) -> None:
        self.context, self.builder = context, builder
        self.real = ir.FloatType() if dtype == types.float32 else ir.DoubleType()
        self.size = 4 if dtype == types.float32 else 8
        self.per_vector = 64 // self.size
        self.n = lanes // self.per_vector
        self.vector = ir.VectorType(self.real, self.per_vector)
        self.zero = ir.Constant(self.vector, [0.0] * self.per_vector)

    def load(self, data: Any, at: Any) -> list[Any]:
        """Return the lanes that begin at an element of an array."""
        return [self._aligned(self.builder.load(self._pointer(data, at, i))) for i in range(self.n)]

    def store(self, vectors: list[Any], data: Any, at: Any) -> None:
        """Write lanes."""
        for i, vector in enumerate(vectors):
            self._aligned(self.builder.store(vector, self._pointer(data, at, i)))

    def _pointer(self, data: Any, at: Any, i: int) -> Any:
        place = self.builder.add(at, _INT64(i * self.per_vector))
        return self.builder.bitcast(self.builder.gep(data, [place]), self.vector.as_pointer())

    def _aligned(self, instruction: Any) -> Any:
        instruction.align = self.size  # rows may begin anywhere; on this architecture that costs nothing
        return instruction

    def variables(self, vectors: list[Any] | None = None) -> list[Any]:
        """Return variables, which LLVM keeps in registers, with a first value each, zero unless given."""
        make: Any = cgutils.alloca_once
        out = [make(self.builder, self.vector) for _ in range(self.n)]
        for variable, vector in zip(out, vectors or [self.zero] * self.n, strict=True):
            self.builder.store(vector, variable)
        return out

    def values(self, variables: list[Any]) -> list[Any]:
        """Return what variables hold."""
        return [self.builder.load(v) for v in variables]

    def spread(self, number: Any) -> Any:
        """Return a vector with one number in all lanes."""
        nothing = ir.Constant(self.vector, ir.Undefined)
        first = self.builder.insert_element(nothing, number, _INT32(0))
        return self.builder.shuffle_vector(
            first, nothing, ir.Constant(ir.VectorType(_INT32, self.per_vector), [0] * self.per_vector)
        )

    def multiply_add(self, a: Any, b: Any, c: Any) -> Any:
        """Return a b + c, rounded once."""
        name = f"llvm.fma.v{self.per_vector}f{8 * self.size}"
        of_type = ir.FunctionType(self.vector, [self.vector] * 3)
        return self.builder.call(llvm_function(self.builder.module, of_type, name), [a, b, c])

    def prefetch(self, data: Any, at: Any) -> None:
        """Ask for the cache lines of some lanes, without waiting for them."""
        of_type = ir.FunctionType(ir.VoidType(), [_INT8.as_pointer(), _INT32, _INT32, _INT32])
        ask = llvm_function(self.builder.module, of_type, "llvm.prefetch.p0")
        for i in range(self.n):
            place = self.builder.bitcast(self._pointer(data, at, i), _INT8.as_pointer())
            self.builder.call(ask, [place, _INT32(0), _INT32(3), _INT32(1)])


def data_of(context: Any, builder: Any, array_type: Any, array: Any) -> Any:
    """Return the pointer to an array's first element."""
    return context.make_array(array_type)(context, builder, array).data


@contextmanager
def in_steps(builder: Any, start: Any, stop: Any, step: int) -> Iterator[Any]:
    """Write a loop whose counter takes the values start, start + step, ... below stop."""
    with cgutils.for_range_slice(builder, start, stop, _INT64(step), intp=_INT64) as (i, _):
        yield i


def _length(context: Any, builder: Any, array_type: Any, array: Any) -> Any:
    """Return the length of an array of one dimension."""
    return builder.extract_value(context.make_array(array_type)(context, builder, array).shape, 0)


def ahead(builder: Any, k: Any, n: Any) -> Any:
    """Return k + AHEAD, or the last of n where that is past the end."""
    later = builder.add(k, _INT64(AHEAD))
    return builder.select(builder.icmp_signed("<", later, n), later, builder.sub(n, _INT64(1)))


def item(builder: Any, data: Any, i: Any) -> Any:
    """Return an element of an array; a whole number as 64 bits."""
    value = builder.load(builder.gep(data, [i]))
    return builder.sext(value, _INT64) if isinstance(value.type, ir.IntType) and value.type.width < 64 else value


def in_pieces(context: Any, builder: Any, dtype: Any, width: Any, at_once: int, body: Any) -> None:
    """Write the code of `body(piece, first lane)` for the wide pieces of a width, then for its narrower ones."""
    widest = at_once // (4 if dtype == types.float32 else 8)
    start = _INT64(0)
    for lanes in (n for n in _PIECES if n <= widest):
        whole = builder.mul(builder.sdiv(builder.sub(width, start), _INT64(lanes)), _INT64(lanes))
        stop = builder.add(start, whole)
        with cgutils.for_range_slice(builder, start, stop, _INT64(lanes), intp=_INT64) as (lane, _):
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

    def _new(self, operation: Any, left: Any, right: Any) -> _Number:
        return _Number(self.builder, operation(left, right, flags=["contract"]))

    def __add__(self, other: Any) -> _Number:
        return self._new(self.builder.fadd, self.value, self._with(other))

    def __sub__(self, other: Any) -> _Number:
        return self._new(self.builder.fsub, self.value, self._with(other))

    def __rsub__(self, other: Any) -> _Number:
        return self._new(self.builder.fsub, self._with(other), self.value)

    def __mul__(self, other: Any) -> _Number:
        return self._new(self.builder.fmul, self.value, self._with(other))

    def __truediv__(self, other: Any) -> _Number:
        return self._new(self.builder.fdiv, self.value, self._with(other))

    def __gt__(self, other: Any) -> _Number:
        return _Number(self.builder, self.builder.fcmp_ordered(">", self.value, self._with(other)))


class _VectorLanes:
    """Numbers of lanes as LLVM vectors: `places` are the pointer and the element at which each row begins."""

    def __init__(self, builder: Any, real: Any, places: list[tuple[Any, Any]]) -> None:
        self._builder, self._places, self._vector = builder, places, ir.VectorType(real, _Number.N)
        self._size = 4 if isinstance(real, ir.FloatType) else 8

    def _pointer(self, row: int) -> Any:
        data, at = self._places[row]
        return self._builder.bitcast(self._builder.gep(data, [at]), self._vector.as_pointer())

    def __getitem__(self, row: int) -> _Number:
        value = self._builder.load(self._pointer(row))
        value.align = self._size
        return _Number(self._builder, value)

    def __setitem__(self, row: int, number: Any) -> None:
        value = number.value if isinstance(number, _Number) else ir.Constant(self._vector, [number] * _Number.N)
        self._builder.store(value, self._pointer(row)).align = self._size

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


def _write_step(
    builder: Any, real: Any, start: Any, width: Any, rows: list[tuple[Any, Any]], numbers: Any, formula: Any
) -> None:
    """Write the code of a formula, over `width` lanes: the first lane of each row is given."""
    zero = _INT32(0)
    nothing = ir.Constant(ir.VectorType(real, _Number.N), ir.Undefined)
    spread = ir.Constant(ir.VectorType(_INT32, _Number.N), [0] * _Number.N)
    everywhere = []
    for i in range(formulas.N_NUMBERS):
        first = builder.insert_element(nothing, item(builder, numbers, _INT64(i)), zero)
        everywhere.append(_Number(builder, builder.shuffle_vector(first, nothing, spread)))
    with cgutils.for_range_slice(builder, _INT64(0), width, _INT64(_Number.N), intp=_INT64) as (lane, _):
        places = [(data, builder.add(at, lane)) if data else (None, None) for data, at in rows]
        formula(_VectorLanes(builder, real, places), everywhere)


def _rows_of(context: Any, builder: Any, lanes_type: Any, lanes: Any, start: Any) -> list[tuple[Any, Any]]:
    """Return where each row of `lanes`, (N_ROWS, L), has the lane `start`."""
    array = context.make_array(lanes_type)(context, builder, lanes)
    n_lanes = builder.extract_value(array.shape, 1)
    return [(array.data, builder.add(builder.mul(_INT64(r), n_lanes), start)) for r in range(formulas.N_ROWS)]


if numba.config.DISABLE_JIT:  # type: ignore[attr-defined]
    move_rows: Any = move_rows_plain
    follow: Any = follow_plain
    weigh: Any = weigh_plain
    write_runs: Any = write_runs_plain
    take_busy_step: Any = take_busy_step_plain
    take_idle_step: Any = take_idle_step_plain
else:

    @intrinsic
    def move_rows(
        typing_context: Any,
        rows: Any,
        origin: Any,
        stride: Any,
        features: Any,
        n: Any,
        lost: Any,
        n_lost: Any,
        out: Any,
    ) -> Any:
        intp = types.intp

        def generate(context: Any, b: Any, signature: Any, arguments: Any) -> Any:
            rows_, origin_, stride_, gained_, n_gained_, lost_, n_lost_, out_ = arguments
            data, target = data_of(context, b, rows, rows_), data_of(context, b, out, out_)

            def body(piece: Piece, lane: Any) -> None:
                sums = piece.variables(piece.load(target, lane))
                base = b.add(origin_, lane)
                for names, count, combine in (
                    (data_of(context, b, features, gained_), n_gained_, b.fadd),
                    (data_of(context, b, lost, lost_), n_lost_, b.fsub),
                ):
                    with cgutils.for_range_slice(b, _INT64(0), count, _INT64(1), intp=_INT64) as (k, _):
                        row = piece.load(data, b.add(base, b.mul(item(b, names, k), stride_)))
                        for total, vector in zip(sums, row, strict=True):
                            b.store(combine(b.load(total), vector), total)
                piece.store(piece.values(sums), target, lane)

            in_pieces(context, b, rows.dtype, _length(context, b, out, out_), _ROWS_AT_ONCE, body)
            return context.get_dummy_value()

        return types.void(rows, intp, intp, features, intp, lost, intp, out), generate

    @intrinsic
    def follow(
        typing_context: Any,
        trace: Any,
        first: Any,
        owed: Any,
        first_owed: Any,
        overlaps: Any,
        n: Any,
        n_owed: Any,
        x: Any,
        total: Any,
    ) -> Any:
        intp = types.intp

        def generate(context: Any, b: Any, signature: Any, arguments: Any) -> Any:
            trace_, first_, owed_, first_owed_, overlaps_, n_, n_owed_, x_, total_ = arguments
            past, debts = data_of(context, b, trace, trace_), data_of(context, b, owed, owed_)
            g, width_ = data_of(context, b, overlaps, overlaps_), _length(context, b, x, x_)
            x_data, total_data = data_of(context, b, x, x_), data_of(context, b, total, total_)
            n_tail, pair = b.sub(n_, n_owed_), b.mul(width_, _INT64(2))

            def body(piece: Piece, lane: Any) -> None:
                xs, sums = piece.variables(piece.load(x_data, lane)), piece.variables()
                for start, stop, is_owed in ((_INT64(0), n_tail, False), (n_tail, n_, True)):
                    with cgutils.for_range_slice(b, start, stop, _INT64(1), intp=_INT64) as (k, _):
                        overlap = piece.spread(item(b, g, k))
                        at = b.add(b.add(first_, lane), b.mul(k, pair))
                        rho, decay = piece.load(past, at), piece.load(past, b.add(at, width_))
                        at = b.add(b.add(first_owed_, lane), b.mul(b.sub(k, n_tail), pair))
                        delta = piece.load(debts, at) if is_owed else [None] * piece.n
                        for i in range(piece.n):
                            value = b.fmul(rho[i], piece.multiply_add(decay[i], b.load(xs[i]), overlap))
                            b.store(value, xs[i])
                            if is_owed:
                                b.store(piece.multiply_add(delta[i], value, b.load(sums[i])), sums[i])
                piece.store(piece.values(xs), x_data, lane)
                piece.store(piece.values(sums), total_data, lane)

            in_pieces(context, b, trace.dtype, width_, _FOLLOWED_AT_ONCE, body)
            return context.get_dummy_value()

        return types.void(trace, intp, owed, intp, overlaps, intp, intp, x, total), generate

    @intrinsic
    def weigh(
        typing_context: Any,
        rows: Any,
        origin: Any,
        stride: Any,
        weights: Any,
        n: Any,
        out: Any,
    ) -> Any:
        intp = types.intp

        def generate(context: Any, b: Any, signature: Any, arguments: Any) -> Any:
            rows_, origin_, stride_, weights_, n_, out_ = arguments
            data, w, target = (data_of(context, b, t, a) for t, a in ((rows, rows_), (weights, weights_), (out, out_)))

            def body(piece: Piece, lane: Any) -> None:
                sums = piece.variables()
                with cgutils.for_range_slice(b, _INT64(0), n_, _INT64(1), intp=_INT64) as (k, _):
                    weight = piece.spread(item(b, w, k))
                    row = piece.load(data, b.add(b.add(origin_, lane), b.mul(k, stride_)))
                    for total, vector in zip(sums, row, strict=True):
                        b.store(piece.multiply_add(weight, vector, b.load(total)), total)
                piece.store(piece.values(sums), target, lane)

            in_pieces(context, b, rows.dtype, _length(context, b, out, out_), _ROWS_AT_ONCE, body)
            return context.get_dummy_value()

        return types.void(rows, intp, intp, weights, intp, out), generate

    @intrinsic
    def write_runs(
        typing_context: Any,
        kinds: Any,
        origin: Any,
        stride: Any,
        table: Any,
        first_kind: Any,
        n_kinds: Any,
        width: Any,
        features: Any,
        first_run: Any,
        n_features: Any,
        runs: Any,
    ) -> Any:
        intp = types.intp

        def generate(context: Any, b: Any, signature: Any, arguments: Any) -> Any:
            kinds_, origin_, stride_, table_, first_kind_, n_kinds_, width_, features_, first_run_, n_, runs_ = (
                arguments
            )
            arrays = [data_of(context, b, kinds.dtype, b.extract_value(kinds_, i)) for i in range(kinds.count)]
            sums, names, firsts, ends = (
                data_of(context, b, t, a)
                for t, a in ((table, table_), (features, features_), (first_run, first_run_), (runs, runs_))
            )

            def body(piece: Piece, lane: Any) -> None:
                def places(k: Any) -> list[Any]:
                    rows = [b.add(b.add(b.mul(k, n_kinds_), first_kind_), _INT64(i)) for i in range(kinds.count)]
                    return [b.add(b.mul(row, width_), lane) for row in rows]

                with cgutils.for_range_slice(b, _INT64(0), n_, _INT64(1), intp=_INT64) as (j, _):
                    at = b.add(b.add(origin_, lane), b.mul(item(b, names, j), stride_))
                    soon = b.add(b.add(origin_, lane), b.mul(item(b, names, ahead(b, j, n_)), stride_))
                    for array in arrays:
                        piece.prefetch(array, soon)
                    gains = [piece.variables() for _ in arrays]
                    stop = item(b, firsts, b.add(j, _INT64(1)))
                    with cgutils.for_range_slice(b, item(b, firsts, j), stop, _INT64(1), intp=_INT64) as (r, _):
                        since = places(item(b, ends, b.mul(r, _INT64(2))))
                        until = places(item(b, ends, b.add(b.mul(r, _INT64(2)), _INT64(1))))
                        for i in range(kinds.count):
                            for gain, high, low in zip(
                                gains[i], piece.load(sums, until[i]), piece.load(sums, since[i]), strict=True
                            ):
                                b.store(b.fadd(b.load(gain), b.fsub(high, low)), gain)
                    for array, gain in zip(arrays, gains, strict=True):
                        row = [b.fadd(v, g) for v, g in zip(piece.load(array, at), piece.values(gain), strict=True)]
                        piece.store(row, array, at)

            in_pieces(context, b, table.dtype, width_, _WRITTEN_AT_ONCE, body)
            return context.get_dummy_value()

        return types.void(kinds, intp, intp, table, intp, intp, intp, features, first_run, intp, runs), generate

    @intrinsic
    def take_busy_step(
        typing_context: Any,
        lanes: Any,
        start: Any,
        width: Any,
        numbers: Any,
        trace: Any,
        to_trace: Any,
        owed: Any,
        to_owed: Any,
        spent: Any,
        to_spent: Any,
    ) -> Any:
        intp = types.intp

        def generate(context: Any, b: Any, signature: Any, arguments: Any) -> Any:
            lanes_, start_, width_, numbers_, trace_, to_trace_, owed_, to_owed_, spent_, to_spent_ = arguments
            past, debts, q = (data_of(context, b, t, a) for t, a in ((trace, trace_), (owed, owed_), (spent, spent_)))
            rows = _rows_of(context, b, lanes, lanes_, start_)
            rows += [(past, to_trace_), (past, b.add(to_trace_, width_))]
            rows += [(debts, to_owed_), (debts, b.add(to_owed_, width_)), (q, to_spent_)]
            real = ir.FloatType() if lanes.dtype == types.float32 else ir.DoubleType()
            _write_step(b, real, start_, width_, rows, data_of(context, b, numbers, numbers_), formulas.busy_step)
            return context.get_dummy_value()

        return types.void(lanes, intp, intp, numbers, trace, intp, owed, intp, spent, intp), generate

    @intrinsic
    def take_idle_step(
        typing_context: Any, lanes: Any, start: Any, width: Any, numbers: Any, spent: Any, to_spent: Any
    ) -> Any:
        intp = types.intp

        def generate(context: Any, b: Any, signature: Any, arguments: Any) -> Any:
            lanes_, start_, width_, numbers_, spent_, to_spent_ = arguments
            rows = _rows_of(context, b, lanes, lanes_, start_)
            rows += [(None, None)] * 4 + [(data_of(context, b, spent, spent_), to_spent_)]
            real = ir.FloatType() if lanes.dtype == types.float32 else ir.DoubleType()
            _write_step(b, real, start_, width_, rows, data_of(context, b, numbers, numbers_), formulas.idle_step)
            return context.get_dummy_value()

        return types.void(lanes, intp, intp, numbers, spent, intp), generate
