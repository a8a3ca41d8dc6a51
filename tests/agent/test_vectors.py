"""Vectors of lanes, packed arrays and entries: native and portable versions of `kernels/vectors` agree with NumPy."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any, NamedTuple

import numba
import numpy as np
import pytest
from numba import njit
from numpy.typing import NDArray

from horde_agent.kernels import portable, vectors
from horde_agent.kernels._jit import Constant
from horde_agent.kernels.span.overlaps import lowest_bit, popcount

MODULES: dict[str, Any] = {"portable": portable}
if not numba.config.DISABLE_JIT:
    from horde_agent.kernels import native

    MODULES["native"] = native

pytestmark = pytest.mark.kernels
IN_BOTH = pytest.mark.parametrize("module", MODULES)
DTYPES = pytest.mark.parametrize("dtype", [np.float32, np.float64])
WIDTHS = {"narrow_zeros": 16, "wide_zeros": 64, "wider_zeros": 80, "row_zeros": 128}
# One part of 16 lanes, and several; the portable module has one lane for all widths.
SETUPS = [(module, zeros) for module in MODULES for zeros in ("narrow_zeros", "wider_zeros")]
SETUPS.remove(("portable", "wider_zeros"))
IN_SETUPS = pytest.mark.parametrize(("module", "zeros"), SETUPS)
N = 640  # a multiple of all widths


@functools.cache
def arithmetic(of: Any, name: str) -> Callable[..., None]:
    """Return a kernel that uses every operation on vectors of some width, with a row of results for each."""
    zeros = getattr(of, name)
    load = of.load
    store = of.store
    lanes_of = of.lanes_of
    fuse = of.multiply_add
    choose = of.choose
    absolute = of.absolute
    any_true = of.any_true
    prefetch = of.prefetch

    @njit
    def run(a: Any, b: Any, c: Any, first: Any, out: Any, n_true: Any) -> None:
        zero = zeros(a)
        n = lanes_of(zero)
        for i in range(first, first + N, n):
            prefetch(a, i, zero)
            x = load(a, i, zero)
            y = load(b, i, zero)
            z = load(c, i, zero)
            store(out[0], i, x + y)
            store(out[1], i, x - y)
            store(out[2], i, x * y)
            store(out[3], i, x / y)
            store(out[4], i, 2.0 * x - 1.0)
            store(out[5], i, 1.0 / y)
            store(out[6], i, fuse(x, y, z))
            store(out[7], i, fuse(x, 3.0, z))
            store(out[8], i, choose(x < y, x, y))
            store(out[9], i, choose(x <= z, x, zero))
            store(out[10], i, choose(x > y, 1.0 + zero, z))
            store(out[11], i, choose(absolute(x) <= 1.0, x, zero))
            n_true[0] += n * any_true(x > y)
            n_true[1] += n

    return run


@DTYPES
@IN_SETUPS
def test_vectors_compute_what_numpy_does(module: str, zeros: str, dtype: Any) -> None:
    """From an address that is not aligned, and with NaN, which compares as neither less nor greater."""
    implementation = MODULES[module]
    first = 3
    rng = np.random.default_rng(0)
    a, b, c = (rng.normal(size=N + 8).astype(dtype) for _ in range(3))
    b[41] = np.nan
    c[7] = a[7]
    a[40] = np.nan
    a[100] = np.inf
    out = np.full((12, N + 8), 7.0, dtype=dtype)
    n_true = np.zeros(2, dtype=np.int64)
    inputs = (a.copy(), b.copy())
    arithmetic(implementation, zeros)(a, b, c, first, out, n_true)
    x, y, z = (v[first : first + N] for v in (a, b, c))
    with np.errstate(all="ignore"):
        want = [x + y, x - y, x * y, x / y, 2 * x - 1, 1 / y, x * y + z, 3 * x + z]
        want += [
            np.where(x < y, x, y),
            np.where(x <= z, x, 0),
            np.where(x > y, 1, z),
            np.where(np.abs(x) <= 1, x, 0),
        ]
    tolerance = 4 * np.finfo(dtype).eps
    np.testing.assert_allclose(out[:, first : first + N], want, rtol=tolerance, atol=4 * tolerance)
    assert (out[:, :first] == 7).all()
    assert (out[:, first + N :] == 7).all()
    np.testing.assert_array_equal((a, b), inputs)
    assert n_true[1] == N
    assert (x > y).sum() <= n_true[0] <= N


@IN_SETUPS
def test_any_true_finds_a_lane_at_any_place(module: str, zeros: str) -> None:
    implementation = MODULES[module]
    run = arithmetic(implementation, zeros)
    for place in (None, 0, 15, 16, 63, 130, N - 1):
        a = np.zeros(N)
        b = np.zeros(N)
        n_true = np.zeros(2, dtype=np.int64)
        if place is not None:
            a[place] = 1.0
        run(a, b + 0.5, b, 0, np.zeros((12, N)), n_true)
        width = lanes(implementation, zeros, np.float64)
        assert n_true.tolist() == [0 if place is None else width, N]


@functools.cache
def lanes(of: Any, zeros: str, dtype: Any) -> int:
    make = getattr(of, zeros)
    lanes_of = of.lanes_of

    @njit
    def count(a: Any) -> Any:
        return lanes_of(make(a))

    return int(count(np.zeros(1, dtype)))


@IN_BOTH
def test_widths_are_multiples_of_16_lanes(module: str) -> None:
    widths = {zeros: lanes(MODULES[module], zeros, np.float64) for zeros in WIDTHS}
    assert widths == (dict.fromkeys(WIDTHS, 1) if module == "portable" else WIDTHS)


class Width(NamedTuple):
    """What `by_most_lanes` reads."""

    most_lanes: Constant


@pytest.mark.skipif(numba.config.DISABLE_JIT, reason="interpreted, vectors have one lane")
@pytest.mark.parametrize("most_lanes", [16, 128])
def test_kernels_take_16_lanes_at_a_time_only_if_no_block_is_wide(most_lanes: int) -> None:
    """They are then compiled for one width instead of four."""

    @njit
    def wide(packed: Any, b: int, how: Any) -> None:
        how[b] = 128

    @njit
    def narrow(packed: Any, b: int, how: Any) -> None:
        how[b] = 16

    chosen = native.by_most_lanes(wide, narrow)

    @njit
    def call(packed: Any, how: Any) -> None:
        chosen(packed, 1, how)

    widths = np.zeros(2)
    call(native.pack(Width(Constant(most_lanes))), widths)
    assert widths.tolist() == [0, most_lanes]


@pytest.mark.skipif(numba.config.DISABLE_JIT, reason="interpreted, nothing fuses")
@pytest.mark.parametrize(("dtype", "half"), [(np.float32, 12), (np.float64, 27)])
def test_multiply_add_rounds_once_and_a_product_with_a_sum_twice(dtype: Any, half: int) -> None:
    """(1 + 2^-k)^2 - (1 + 2^-(k-1)) is 2^-2k, which rounding of the product loses. Scalars and vectors.

    Portable lanes are float64, in which the product of two float32 is exact.
    """
    a = dtype(1 + 2.0**-half)
    c = dtype(-1 - 2.0 ** (1 - half))
    fuse = native.multiply_add
    exact = 2.0 ** (-2 * half)
    out = np.zeros((12, N), dtype)

    @njit
    def fused(a: Any, c: Any) -> Any:
        return fuse(a, a, c)

    @njit
    def apart(a: Any, c: Any) -> Any:
        return a * a + c

    assert fused(a, c) == exact
    assert apart(a, c) == 0.0
    row = np.full(N, a, dtype)
    portable_result = 0.0
    if dtype is np.float32:
        portable_result = exact
    for of, want in ((native, exact), (portable, portable_result)):
        arithmetic(of, "narrow_zeros")(
            row, row, np.full(N, c, dtype), 0, out, np.zeros(2, dtype=np.int64)
        )
        assert (out[6] == want).all()


def test_bits_are_counted_and_the_lowest_is_found() -> None:
    @njit
    def look(word: Any) -> Any:
        return popcount(word), lowest_bit(word), popcount(word ^ word)

    for word in (
        1,
        2,
        1 << 63,
        0x00F00000_00000000,
        0xFFFFFFFF,
        (1 << 64) - 1,
        0x9249_2492_4924_9249,
    ):
        with np.errstate(over="ignore"):
            assert look(np.uint64(word)) == (word.bit_count(), (word & -word).bit_length() - 1, 0)


# ---- arrays by address, kernels by address --------------------------------------------------------------------------


class Parts(NamedTuple):
    """Items of different types."""

    first: NDArray[np.int64]
    rows: NDArray[np.float32]
    is_odd: bool
    factor: float
    count: int
    visits: NDArray[np.int64]


def some(is_odd: bool = True) -> Parts:
    rows = np.arange(24, dtype=np.float32).reshape(2, 3, 4)
    return Parts(np.arange(5) + 100, rows, is_odd, 0.5, -7, np.zeros((4, 3), dtype=np.int64))


@njit
def read(packed: Any, out: NDArray[np.float64]) -> None:
    out[0] = packed.first[4]
    out[1] = packed.rows[1, 2, 1]
    out[2] = packed.factor
    out[3] = packed.is_odd
    out[4] = packed.count
    out[5] = packed.rows.shape[1]
    out[6] = packed.rows[1, 0].sum()


@IN_BOTH
@pytest.mark.parametrize("is_odd", [False, True])
def test_a_held_tuple_is_read_like_the_tuple(module: str, is_odd: bool) -> None:
    """Its arrays are packed, not copied, and stay alive with it."""
    parts = some(is_odd)
    handle = MODULES[module].pack(parts)
    out = np.zeros(7)
    rows = parts.rows
    del parts
    _ = [np.full(64, 9.0) for _ in range(100)]  # would overwrite memory that was freed too early
    read(handle, out)
    assert out.tolist() == [104, 21, 0.5, is_odd, -7, 3, 54]
    rows[1, 2, 1] = -7
    read(handle, out)
    assert out[1] == -7


class Setting(NamedTuple):
    """What a rule has: a constant that kernels are compiled for, and parameters."""

    has_w: Constant
    parameters: tuple[float, ...]
    rows: NDArray[np.float64]


@IN_BOTH
def test_generalised_arrays_are_those_of_the_tuple_and_their_constants_are_numbers(
    module: str,
) -> None:
    """A kernel that reads no parameters is compiled once for rules that differ in both."""
    implementation = MODULES[module]

    @njit
    def call(packed: Any, out: NDArray[np.float64]) -> None:
        out[0] = packed.has_w
        packed.rows[1] += 1.0

    for has_w, parameters in ((0, ()), (1, (0.5,)), (1, (0.5, 2.0))):
        rows = np.arange(3.0)
        out = np.zeros(1)
        packed = implementation.pack(Setting(Constant(has_w), parameters, rows))
        call(implementation.generalise(packed), out)
        assert out[0] == has_w
        assert rows.tolist() == [0.0, 2.0, 2.0]
    if module == "native":
        assert len(call.signatures) == 1


def record_visit(packed: Parts, thread: int, task: int) -> int:
    packed.visits[thread, 0] += 1
    packed.visits[thread, 1] = thread
    packed.visits[thread, 2] = task
    return 0


@IN_BOTH
@pytest.mark.parametrize("n_threads", [1, 2, 4])
def test_each_thread_is_called_once_with_its_number(module: str, n_threads: int) -> None:
    parts = some()
    implementation = MODULES[module]
    handle = implementation.pack(parts)
    implementation.on_threads(implementation.entry_of(record_visit, handle), handle, n_threads, -8)
    np.testing.assert_array_equal(
        parts.visits, [[1, t, -8] for t in range(n_threads)] + [[0] * 3] * (4 - n_threads)
    )


def test_both_modules_have_every_name() -> None:
    """`vectors` exports one of them as a whole."""
    names = [
        n
        for n in vars(vectors)
        if hasattr(portable, n) and callable(getattr(portable, n)) and n[0] != "_"
    ]
    assert len(names) >= 16
    for of in MODULES.values():
        assert all(hasattr(of, name) for name in names)
    chosen = vectors.pack.__module__.split(".")[-1]
    assert chosen == ("native" if "native" in MODULES else "portable")
    assert all(getattr(vectors, name) is getattr(MODULES[chosen], name) for name in names)
