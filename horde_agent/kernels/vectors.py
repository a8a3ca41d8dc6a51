# ruff: noqa: ARG001, D103 - numba counts an intrinsic's arguments; its docstring is its plain twin's
"""Loops of the span engine in LLVM's vectors, each beside its plain twin: all that is so written is in this file.

A loop over 64 lanes is too short for numba's own: before each it checks whether its arrays overlap, and its sums go
through memory. Here a piece of 64 lanes (then of 16) stays in registers while the rows pass: 3 to 4 times as fast. The
overlaps of feature vectors are counted likewise, sixteen at a time: a feature's past is a row of bits, and a bit that
is spread to a mask adds to sixteen sums in one instruction where the processor has masks; LLVM finds other ways where
it has none. Where numba is switched off, the plain twins take over.
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

from horde_agent.kernels import bounds
from horde_agent.kernels import lanes as formulas
from horde_agent.kernels.lanes import N_NUMBERS
from horde_agent.kernels.llvm import (
    INT16,
    INT32,
    INT64,
    SECOND_CACHE,
    Piece,
    ahead,
    data_of,
    in_pieces,
    in_steps,
    item,
    items,
    length,
    llvm_function,
    rows_of,
    variable,
    write_step,
)

Reals = NDArray[Any]
Integers = NDArray[np.int64]

# Bytes that pass at once: as much as the registers hold with all that goes with it.
_ROWS_AT_ONCE, _FOLLOWED_AT_ONCE, _WRITTEN_AT_ONCE, _SWITCHED_AT_ONCE = 512, 256, 256, 256
_SUMS = 16  # overlaps that are counted at once
_MASK, _COUNTS = ir.VectorType(ir.IntType(1), _SUMS), ir.VectorType(INT32, _SUMS)


# ---- plain twins --------------------------------------------------------------------------------------------------


def move_rows_plain(
    rows: Reals,
    origin: int,
    stride: int,
    features: Integers,
    n: int,
    lost: Integers,
    n_lost: int,
    soon: int,
    out: Reals,
) -> None:
    """Add the rows of the first n `features` to `out`, and subtract those of the first n_lost `lost`.

    What lies `soon` numbers further than each is asked for, without waiting: the same features' rows of another tile.
    """
    width = out.shape[0]
    for k in range(n):
        at = origin + features[k] * stride
        out += rows[at : at + width]
    for k in range(n_lost):
        at = origin + lost[k] * stride
        out -= rows[at : at + width]


def follow_plain(
    trace: Reals, first: int, owed: Reals, first_owed: int, overlaps: Reals, n: int, n_owed: int, v: Reals, total: Reals
) -> None:
    """Follow u_k = G_k + v_{k-1}, v_k = c_k u_k, and write the sum of d_k u_k over the last `n_owed`."""
    width = v.shape[0]
    total[:] = 0
    for k in range(n):
        u = overlaps[k] + v
        if k >= n - n_owed:
            at = first_owed + 2 * (k - n + n_owed) * width
            total += owed[at : at + width] * u
        at = first + k * width
        v[:] = trace[at : at + width] * u


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
    bound: Reals,
    sick: Reals,
) -> None:
    """Add to each feature's row of each kind what the table, (times, n_kinds, width), gained over its runs.

    Where there are several kinds, a lane of the first that is then past its bound, or of another infinite, or of any
    NaN, is flagged in `sick`.
    """
    largest = np.finfo(table.dtype).max
    for j in range(n_features):
        at = origin + features[j] * stride
        for kind in range(len(kinds)):
            row = kinds[kind][at : at + width]
            for r in range(first_run[j], first_run[j + 1]):
                since = (runs[2 * r] * n_kinds + first_kind + kind) * width
                until = (runs[2 * r + 1] * n_kinds + first_kind + kind) * width
                row += table[until : until + width] - table[since : since + width]
            if len(kinds) > 1:
                with np.errstate(invalid="ignore"):
                    sick[~(np.abs(row) <= (bound if kind == 0 else largest))] = 1


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
    ratios: Reals,
) -> None:
    """Let `width` lanes take a step (`lanes.py`), which leaves its rows behind at the places given.

    Those of `ratios` are where those of `owed` are.
    """
    rows = [row[start : start + width] for row in lanes]
    places = ((trace, to_trace), (owed, to_owed), (owed, to_owed + width), (spent, to_spent))
    for array, at in (*places, (ratios, to_owed), (ratios, to_owed + width)):
        rows.append(array[at : at + width])
    with np.errstate(all="ignore"):
        formulas.busy_step(_PlainLanes(rows), numbers)


def take_idle_step_plain(lanes: Reals, start: int, width: int, numbers: Reals, spent: Reals, to_spent: int) -> None:
    """Let `width` lanes pass a step in which they learn nothing."""
    rows = [row[start : start + width] for row in lanes]
    rows += [np.empty(width, lanes.dtype)] * 3
    with np.errstate(all="ignore"):
        formulas.idle_step(_PlainLanes([*rows, spent[to_spent : to_spent + width]]), numbers)


def move_bounds_plain(
    dropped: NDArray[np.float64],
    start: int,
    rho: Reals,
    decay: Reals,
    d: Reals,
    spent: Reals,
    alpha: Reals,
    alpha_w: Reals,
    most: int,
    norm: int,
) -> None:
    """Move the bounds of some lanes on by one step (`bounds.py`)."""
    rows = [row[start : start + rho.shape[0]] for row in dropped[: bounds.RHO]]
    rows += [row.astype(np.float64) for row in (rho, decay, d, spent, alpha, alpha_w)]
    with np.errstate(all="ignore"):
        bounds.bounds_step(_PlainLanes(rows), (float(most), float(norm)))


def add_switched_rows_plain(
    rows: Reals,
    origin: int,
    stride: int,
    features: Integers,
    n_features: int,
    first: Integers,
    steps: NDArray[np.int32],
    width: int,
    gains: Reals,
) -> None:
    """Add each feature's row to the gains of the steps at which it went on, and take it from those where it went off.

    Args:
        rows: Flat; feature f's row begins at origin + f stride.
        origin: See `rows`.
        stride: See `rows`.
        features: Features that switched.
        n_features: How many of them.
        first: Feature j went on at steps[first[2j]:first[2j + 1]], and off at steps[first[2j + 1]:first[2j + 2]].
        steps: Places in `gains`.
        width: Lanes.
        gains: Flat, (steps, width), changed in place.
    """
    for j in range(n_features):
        row = rows[origin + features[j] * stride : origin + features[j] * stride + width]
        for sign, k in ((1, 2 * j), (-1, 2 * j + 1)):
            for step in steps[first[k] : first[k + 1]]:
                gains[step * width : (step + 1) * width] += sign * row


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
    """Return the place of the lowest bit that is set in a 64-bit word; one must be."""
    return (int(word) & -int(word)).bit_length() - 1


# ---- the same in vectors ------------------------------------------------------------------------------------------


if numba.config.DISABLE_JIT:  # type: ignore[attr-defined]
    move_rows: Any = move_rows_plain
    follow: Any = follow_plain
    weigh: Any = weigh_plain
    write_runs: Any = write_runs_plain
    take_busy_step: Any = take_busy_step_plain
    take_idle_step: Any = take_idle_step_plain
    move_bounds: Any = move_bounds_plain
    add_switched_rows: Any = add_switched_rows_plain
    add_bits: Any = add_bits_plain
    lowest_bit: Any = lowest_bit_plain
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
        soon: Any,
        out: Any,
    ) -> Any:
        intp = types.intp

        def generate(context: Any, b: Any, signature: Any, arguments: Any) -> Any:
            rows_, origin_, stride_, gained_, n_gained_, lost_, n_lost_, soon_, out_ = arguments
            data, target = data_of(context, b, rows, rows_), data_of(context, b, out, out_)

            def body(piece: Piece, lane: Any) -> None:
                sums = piece.variables(piece.load(target, lane))
                base = b.add(origin_, lane)
                for names, count, combine in (
                    (data_of(context, b, features, gained_), n_gained_, b.fadd),
                    (data_of(context, b, lost, lost_), n_lost_, b.fsub),
                ):
                    with cgutils.for_range_slice(b, INT64(0), count, INT64(1), intp=INT64) as (k, _):
                        at = b.add(base, b.mul(item(b, names, k), stride_))
                        piece.prefetch(data, b.add(at, soon_), SECOND_CACHE)
                        row = piece.load(data, at)
                        for total, vector in zip(sums, row, strict=True):
                            b.store(combine(b.load(total), vector), total)
                piece.store(piece.values(sums), target, lane)

            in_pieces(context, b, rows.dtype, length(context, b, out, out_), _ROWS_AT_ONCE, body)
            return context.get_dummy_value()

        return types.void(rows, intp, intp, features, intp, lost, intp, intp, out), generate

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
        v: Any,
        total: Any,
    ) -> Any:
        intp = types.intp

        def generate(context: Any, b: Any, signature: Any, arguments: Any) -> Any:
            trace_, first_, owed_, first_owed_, overlaps_, n_, n_owed_, v_, total_ = arguments
            past, debts = data_of(context, b, trace, trace_), data_of(context, b, owed, owed_)
            g, width_ = data_of(context, b, overlaps, overlaps_), length(context, b, v, v_)
            v_data, total_data = data_of(context, b, v, v_), data_of(context, b, total, total_)
            n_tail, pair = b.sub(n_, n_owed_), b.mul(width_, INT64(2))

            def body(piece: Piece, lane: Any) -> None:
                vs, sums = piece.variables(piece.load(v_data, lane)), piece.variables()
                for start, stop, is_owed in ((INT64(0), n_tail, False), (n_tail, n_, True)):
                    with cgutils.for_range_slice(b, start, stop, INT64(1), intp=INT64) as (k, _):
                        overlap = piece.spread(item(b, g, k))
                        kept = piece.load(past, b.add(b.add(first_, lane), b.mul(k, width_)))
                        at = b.add(b.add(first_owed_, lane), b.mul(b.sub(k, n_tail), pair))
                        delta = piece.load(debts, at) if is_owed else [None] * piece.n
                        for i in range(piece.n):
                            u = b.fadd(overlap, b.load(vs[i]))
                            if is_owed:
                                b.store(piece.multiply_add(delta[i], u, b.load(sums[i])), sums[i])
                            b.store(b.fmul(kept[i], u), vs[i])
                piece.store(piece.values(vs), v_data, lane)
                piece.store(piece.values(sums), total_data, lane)

            in_pieces(context, b, trace.dtype, width_, _FOLLOWED_AT_ONCE, body)
            return context.get_dummy_value()

        return types.void(trace, intp, owed, intp, overlaps, intp, intp, v, total), generate

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
                with cgutils.for_range_slice(b, INT64(0), n_, INT64(1), intp=INT64) as (k, _):
                    weight = piece.spread(item(b, w, k))
                    row = piece.load(data, b.add(b.add(origin_, lane), b.mul(k, stride_)))
                    for total, vector in zip(sums, row, strict=True):
                        b.store(piece.multiply_add(weight, vector, b.load(total)), total)
                piece.store(piece.values(sums), target, lane)

            in_pieces(context, b, rows.dtype, length(context, b, out, out_), _ROWS_AT_ONCE, body)
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
        bound: Any,
        sick: Any,
    ) -> Any:
        intp = types.intp

        def generate(context: Any, b: Any, signature: Any, arguments: Any) -> Any:
            kinds_, origin_, stride_, table_, first_kind_, n_kinds_, width_, features_, first_run_, n_, *more_ = (
                arguments
            )
            runs_, bound_, sick_ = more_
            limits, flags = data_of(context, b, bound, bound_), data_of(context, b, sick, sick_)
            arrays = [data_of(context, b, kinds.dtype, b.extract_value(kinds_, i)) for i in range(kinds.count)]
            sums, names, firsts, ends = (
                data_of(context, b, t, a)
                for t, a in ((table, table_), (features, features_), (first_run, first_run_), (runs, runs_))
            )

            def body(piece: Piece, lane: Any) -> None:
                def places(k: Any) -> list[Any]:
                    rows = [b.add(b.add(b.mul(k, n_kinds_), first_kind_), INT64(i)) for i in range(kinds.count)]
                    return [b.add(b.mul(row, width_), lane) for row in rows]

                most, flagged = piece.load(limits, lane), piece.variables(piece.load(flags, lane))
                with cgutils.for_range_slice(b, INT64(0), n_, INT64(1), intp=INT64) as (j, _):
                    at = b.add(b.add(origin_, lane), b.mul(item(b, names, j), stride_))
                    soon = b.add(b.add(origin_, lane), b.mul(item(b, names, ahead(b, j, n_)), stride_))
                    for array in arrays:
                        piece.prefetch(array, soon)
                    gains = [piece.variables() for _ in arrays]
                    stop = item(b, firsts, b.add(j, INT64(1)))
                    with cgutils.for_range_slice(b, item(b, firsts, j), stop, INT64(1), intp=INT64) as (r, _):
                        since = places(item(b, ends, b.mul(r, INT64(2))))
                        until = places(item(b, ends, b.add(b.mul(r, INT64(2)), INT64(1))))
                        for i in range(kinds.count):
                            for gain, high, low in zip(
                                gains[i], piece.load(sums, until[i]), piece.load(sums, since[i]), strict=True
                            ):
                                b.store(b.fadd(b.load(gain), b.fsub(high, low)), gain)
                    for kind, (array, gain) in enumerate(zip(arrays, gains, strict=True)):
                        row = [b.fadd(v, g) for v, g in zip(piece.load(array, at), piece.values(gain), strict=True)]
                        piece.store(row, array, at)
                        if len(arrays) > 1:
                            within = most if kind == 0 else [piece.largest] * piece.n
                            for value, limit, flag in zip(row, within, flagged, strict=True):
                                is_within = b.fcmp_ordered("<=", piece.absolute(value), limit)  # NaN is not
                                b.store(b.select(is_within, b.load(flag), piece.one), flag)
                piece.store(piece.values(flagged), flags, lane)

            in_pieces(context, b, table.dtype, width_, _WRITTEN_AT_ONCE, body)
            return context.get_dummy_value()

        whole = intp, intp, table, intp, intp, intp, features, first_run, intp, runs, bound, sick
        return types.void(kinds, *whole), generate

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
        ratios: Any,
    ) -> Any:
        intp = types.intp

        def generate(context: Any, b: Any, signature: Any, arguments: Any) -> Any:
            lanes_, start_, width_, numbers_, trace_, to_trace_, owed_, to_owed_, spent_, to_spent_, ratios_ = arguments
            past, debts, q, known = (
                data_of(context, b, t, a)
                for t, a in ((trace, trace_), (owed, owed_), (spent, spent_), (ratios, ratios_))
            )
            second = b.add(to_owed_, width_)
            rows = rows_of(context, b, lanes, lanes_, start_)
            rows += [(past, to_trace_), (debts, to_owed_), (debts, second), (q, to_spent_)]
            rows += [(known, to_owed_), (known, second)]
            real = ir.FloatType() if lanes.dtype == types.float32 else ir.DoubleType()
            write_step(b, real, width_, rows, items(context, b, numbers, numbers_, N_NUMBERS), formulas.busy_step)
            return context.get_dummy_value()

        return types.void(lanes, intp, intp, numbers, trace, intp, owed, intp, spent, intp, ratios), generate

    @intrinsic
    def take_idle_step(
        typing_context: Any, lanes: Any, start: Any, width: Any, numbers: Any, spent: Any, to_spent: Any
    ) -> Any:
        intp = types.intp

        def generate(context: Any, b: Any, signature: Any, arguments: Any) -> Any:
            lanes_, start_, width_, numbers_, spent_, to_spent_ = arguments
            rows = rows_of(context, b, lanes, lanes_, start_)
            rows += [(None, None)] * 3 + [(data_of(context, b, spent, spent_), to_spent_)]
            real = ir.FloatType() if lanes.dtype == types.float32 else ir.DoubleType()
            write_step(b, real, width_, rows, items(context, b, numbers, numbers_, N_NUMBERS), formulas.idle_step)
            return context.get_dummy_value()

        return types.void(lanes, intp, intp, numbers, spent, intp), generate

    @intrinsic
    def move_bounds(
        typing_context: Any,
        dropped: Any,
        start: Any,
        rho: Any,
        decay: Any,
        d: Any,
        spent: Any,
        alpha: Any,
        alpha_w: Any,
        most: Any,
        norm: Any,
    ) -> Any:
        intp, of_lanes = types.intp, (rho, decay, d, spent, alpha, alpha_w)

        def generate(context: Any, b: Any, signature: Any, arguments: Any) -> Any:
            dropped_, start_, *rows_, most_, norm_ = arguments
            rows = rows_of(context, b, dropped, dropped_, start_)[: bounds.RHO]
            rows += [(data_of(context, b, t, a), INT64(0)) for t, a in zip(of_lanes, rows_, strict=True)]
            numbers = [b.sitofp(number, ir.DoubleType()) for number in (most_, norm_)]
            write_step(b, ir.DoubleType(), length(context, b, rho, rows_[0]), rows, numbers, bounds.bounds_step)
            return context.get_dummy_value()

        return types.void(dropped, intp, *of_lanes, intp, intp), generate

    @intrinsic
    def add_switched_rows(
        typing_context: Any,
        rows: Any,
        origin: Any,
        stride: Any,
        features: Any,
        n_features: Any,
        first: Any,
        steps: Any,
        width: Any,
        gains: Any,
    ) -> Any:
        intp = types.intp

        def generate(context: Any, b: Any, signature: Any, arguments: Any) -> Any:
            rows_, origin_, stride_, features_, n_, first_, steps_, width_, gains_ = arguments
            data, names, firsts, places, sums = (
                data_of(context, b, t, a)
                for t, a in ((rows, rows_), (features, features_), (first, first_), (steps, steps_), (gains, gains_))
            )

            def body(piece: Piece, lane: Any) -> None:
                base = b.add(origin_, lane)
                with cgutils.for_range_slice(b, INT64(0), n_, INT64(1), intp=INT64) as (j, _):
                    piece.prefetch(data, b.add(base, b.mul(item(b, names, ahead(b, j, n_)), stride_)))
                    row = piece.load(data, b.add(base, b.mul(item(b, names, j), stride_)))
                    k = b.mul(j, INT64(2))
                    for combine in (b.fadd, b.fsub):
                        stop = item(b, firsts, b.add(k, INT64(1)))
                        with cgutils.for_range_slice(b, item(b, firsts, k), stop, INT64(1), intp=INT64) as (i, _):
                            at = b.add(b.mul(item(b, places, i), width_), lane)
                            gain = [combine(g, v) for g, v in zip(piece.load(sums, at), row, strict=True)]
                            piece.store(gain, sums, at)
                        k = b.add(k, INT64(1))

            in_pieces(context, b, rows.dtype, width_, _SWITCHED_AT_ONCE, body)
            return context.get_dummy_value()

        return types.void(rows, intp, intp, features, intp, first, steps, intp, gains), generate

    @intrinsic
    def lowest_bit(typing_context: Any, word: Any) -> Any:
        def generate(context: Any, b: Any, signature: Any, arguments: Any) -> Any:
            of_type = ir.FunctionType(INT64, [INT64, ir.IntType(1)])
            count = llvm_function(b.module, of_type, "llvm.cttz.i64")
            return b.call(count, [arguments[0], ir.IntType(1)(1)])

        return types.intp(types.uint64), generate

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
            nothing = ir.Constant(_COUNTS, ir.Undefined)
            start = b.insert_element(nothing, b.trunc(weight_, INT32), INT32(0))
            amount = b.shuffle_vector(start, nothing, ir.Constant(_COUNTS, [0] * _SUMS))
            zero = ir.Constant(_COUNTS, [0] * _SUMS)
            with in_steps(b, first, last, 1) as word:
                at = [
                    b.bitcast(b.gep(totals, [b.add(b.mul(word, INT64(32)), INT64(16 * i))]), _COUNTS.as_pointer())
                    for i in range(2)
                ]
                sums_here = [variable(b, _COUNTS) for _ in at]
                for total, place in zip(sums_here, at, strict=True):
                    value = b.load(place)
                    value.align = 4
                    b.store(value, total)
                with in_steps(b, INT64(0), n_, 1) as k:
                    row = b.mul(item(b, names, k), n_words)
                    here = b.load(b.gep(words, [b.add(row, word)]))
                    halves = b.trunc(here, INT16), b.trunc(b.lshr(here, INT32(16)), INT16)
                    for total, half in zip(sums_here, halves, strict=True):
                        gain = b.select(b.bitcast(half, _MASK), amount, zero)
                        b.store(b.add(b.load(total), gain), total)
                for total, place in zip(sums_here, at, strict=True):
                    b.store(b.load(total), place).align = 4
            return context.get_dummy_value()

        return types.void(bits, intp, intp, features, intp, intp, sums), generate
