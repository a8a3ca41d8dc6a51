"""Kernels written in LLVM's vectors give what their plain twins give, at widths that need pieces of every size."""

from __future__ import annotations

import itertools
from typing import Any

import numba
import numpy as np
import pytest
from horde_agent.kernels.arrays import Switched
from horde_agent.learning.history import SharedHistory
from numba import njit

from horde_agent.kernels import batch, lanes, vectors
from horde_agent.kernels import history as past
from horde_agent.kernels._jit import multiply_add

pytestmark = [
    pytest.mark.kernels,
    pytest.mark.skipif(numba.config.DISABLE_JIT, reason="interpreted, the twins stand in for the vectors"),
]
DTYPES = pytest.mark.parametrize("dtype", [np.float32, np.float64])
WIDTHS = pytest.mark.parametrize("width", [16, 48, 240])


@njit
def _move(rows: Any, origin: Any, stride: Any, gained: Any, n: Any, lost: Any, n_lost: Any, out: Any) -> None:
    vectors.move_rows(rows, origin, stride, gained, n, lost, n_lost, stride, out)


@njit
def _follow(trace: Any, first: Any, owed: Any, at: Any, g: Any, n: Any, n_owed: Any, v: Any, total: Any) -> None:
    vectors.follow(trace, first, owed, at, g, n, n_owed, v, total)


@njit
def _weigh(rows: Any, origin: Any, stride: Any, weights: Any, n: Any, out: Any) -> None:
    vectors.weigh(rows, origin, stride, weights, n, out)


@njit
def _write(
    a: Any,
    b: Any,
    origin: Any,
    stride: Any,
    table: Any,
    width: Any,
    f: Any,
    first: Any,
    runs: Any,
    bound: Any,
    sick: Any,
) -> None:
    vectors.write_runs((a, b), origin, stride, table, 1, 3, width, f, first, f.shape[0], runs, bound, sick)


@njit
def _add_switched(rows: Any, origin: Any, stride: Any, f: Any, first: Any, steps: Any, width: Any, gains: Any) -> None:
    vectors.add_switched_rows(rows, origin, stride, f, f.shape[0], first, steps, width, gains)


@njit
def _sum(rows: Any, origin: Any, width: Any, switched: Any, n_steps: Any, now: Any, sums: Any) -> None:
    batch.sum_rows(rows, origin, width, switched, switched.features.shape[0], n_steps, now, sums)


@njit
def _observe(history: Any, tiles: Any) -> None:
    past.receive(history, tiles)
    past.observe(history)


@njit
def _list(history: Any, since: Any, switched: Any) -> Any:
    return batch.list_switched(history, since, switched)


@njit
def _busy(rows: Any, start: Any, width: Any, number: Any, trace: Any, owed: Any, spent: Any, ratios: Any) -> None:
    vectors.take_busy_step(rows, start, width, number, trace, 32, owed, 16, spent, 48, ratios)


@njit
def _idle(rows: Any, start: Any, width: Any, number: Any, spent: Any) -> None:
    vectors.take_idle_step(rows, start, width, number, spent, 48)


@njit
def _add_bits(words: Any, first: Any, last: Any, features: Any, n: Any, weight: Any, sums: Any) -> None:
    vectors.add_bits(words, first, last, features, n, weight, sums)


@njit
def _lowest(word: Any) -> Any:
    return vectors.lowest_bit(word)


@njit
def _fused(a: Any, b: Any, c: Any) -> Any:
    return multiply_add(a, b, c)


@njit
def _apart(a: Any, b: Any, c: Any) -> Any:
    return a * b + c


def assert_close(got: np.ndarray, want: np.ndarray) -> None:
    """Within the rounding of a few hundred terms; NaN where there is NaN."""
    tolerance = 3e-5 if got.dtype == np.float32 else 1e-13
    scale = np.nanmax(np.abs(want[np.isfinite(want)]), initial=1.0)
    np.testing.assert_allclose(got, want, rtol=tolerance, atol=tolerance * scale)


@DTYPES
@WIDTHS
def test_rows_are_added_and_subtracted(dtype: Any, width: int) -> None:
    rng, n, stride, origin = np.random.default_rng(0), 30, width + 16, 5
    rows = rng.normal(size=origin + n * stride).astype(dtype)
    gained, lost = rng.permutation(n)[:11], rng.permutation(n)[:8]
    got, want = (np.ones(width, dtype=dtype) for _ in range(2))
    _move(rows, origin, stride, gained, 9, lost, 8, got)
    vectors.move_rows_plain(rows, origin, stride, gained, 9, lost, 8, 0, want)
    assert_close(got, want)


@DTYPES
@WIDTHS
def test_the_past_is_followed_and_weighed(dtype: Any, width: int) -> None:
    """Four steps of tail, then seven that are owed."""
    rng, n, n_owed = np.random.default_rng(1), 11, 7
    trace, owed = (rng.uniform(0, 1, 7 + 2 * k * width).astype(dtype) for k in (n, n_owed))
    overlaps, v0 = rng.integers(0, 9, n).astype(dtype), rng.normal(size=width).astype(dtype)
    found = []
    for follow, weigh in ((_follow, _weigh), (vectors.follow_plain, vectors.weigh_plain)):
        v, total, out = v0.copy(), np.ones(width, dtype=dtype), np.ones(width, dtype=dtype)
        follow(trace, 7, owed, 3, overlaps, n, n_owed, v, total)
        weigh(owed, 3 + width, 2 * width, overlaps, 6, out)
        found.append((v, total, out))
    for got, want in zip(*found, strict=True):
        assert_close(got, want)


@DTYPES
@WIDTHS
def test_runs_are_written_as_differences_of_a_table(dtype: Any, width: int) -> None:
    """Features with none, one and three runs; two kinds of rows, the second and third of the table."""
    rng, stride, origin = np.random.default_rng(2), width + 32, 4
    table = rng.normal(size=12 * 3 * width).astype(dtype)
    features, first = np.array([7, 2, 5]), np.array([0, 1, 1, 4])
    runs = np.array([0, 3, 2, 11, 4, 5, 6, 9], dtype=np.int32)
    rows = [rng.normal(size=origin + 9 * stride).astype(dtype) for _ in range(2)]
    got, want = [[r.copy() for r in rows] for _ in range(2)]
    bound, found, wanted = np.full(width, 2.5, dtype), np.zeros(width, dtype), np.zeros(width, dtype)
    table[5 * width], bound[2] = np.nan, np.inf
    table[2 * width + 3], bound[3] = np.inf, np.inf  # a w that is lost, though theta is not
    _write(*got, origin, stride, table, width, features, first, runs, bound, found)
    vectors.write_runs_plain(tuple(want), origin, stride, table, 1, 3, width, features, first, 3, runs, bound, wanted)
    np.testing.assert_array_equal(found, wanted)
    assert 0 < found.sum() < width
    assert found[2] == 0
    assert found[3] == 1
    for a, b, before in zip(got, want, rows, strict=True):
        assert_close(a, b)
        np.testing.assert_array_equal(a[origin + 2 * stride :][:width], before[origin + 2 * stride :][:width])


@DTYPES
@WIDTHS
def test_a_row_is_added_at_each_step_at_which_its_feature_switched(dtype: Any, width: int) -> None:
    """Features that only went on, only off, and both, several times; the sums begin where they were."""
    rng, stride, origin, n_steps = np.random.default_rng(5), width, 4, 9
    rows = rng.normal(size=origin + 9 * stride).astype(dtype)
    features, first = np.array([7, 2, 5]), np.array([0, 2, 2, 2, 3, 5, 7])
    steps, now = np.array([0, 4, 8, 1, 3, 2, 5], dtype=np.int32), rng.normal(size=width).astype(dtype)
    gains, sums = np.ones(n_steps * width, dtype=dtype), np.empty((n_steps + 2) * width, dtype=dtype)
    want = gains.copy()
    _add_switched(rows, origin, stride, features, first, steps, width, gains)
    vectors.add_switched_rows_plain(rows, origin, stride, features, 3, first, steps, width, want)
    assert_close(gains, want)
    _sum(rows, origin, width, Switched(features, first, steps), n_steps, now, sums)
    rows_of = {f: rows[origin + f * stride :][:width] for f in features}
    assert_close(sums[:width], now + rows_of[7])
    at_five = now + rows_of[7] * 2 - rows_of[2] * 0 + rows_of[5] * (1 + 1 - 1 - 1)
    assert_close(sums[5 * width : 6 * width], at_five)
    assert_close(sums[8 * width : 9 * width], at_five - rows_of[2])


def test_what_switches_in_a_batch_is_listed_by_feature() -> None:
    rng, n, n_steps = np.random.default_rng(6), 40, 12
    history = SharedHistory(n, n_slots=n_steps + 2)
    states = [rng.choice(n, 9, replace=False) for _ in range(30)]
    history.make_room(9)
    for tiles in states:
        _observe(history.arrays, tiles)
    switched = Switched(np.zeros(n, dtype=np.int64), np.zeros(2 * n + 2, dtype=np.int64), np.zeros(999, dtype=np.int32))
    n_features = _list(history.arrays, len(states) - 1 - n_steps, switched)
    want: dict[int, tuple[list[int], list[int]]] = {f: ([], []) for f in range(n)}
    for k, (old, new) in enumerate(itertools.pairwise(states[-1 - n_steps :])):
        for f in set(new) - set(old):
            want[f][0].append(k)
        for f in set(old) - set(new):
            want[f][1].append(k)
    first, steps = switched.first, switched.steps
    for j, f in enumerate(switched.features[:n_features]):
        on, off = steps[first[2 * j] : first[2 * j + 1]], steps[first[2 * j + 1] : first[2 * j + 2]]
        assert (list(on), list(off)) == want.pop(int(f))
    assert not any(on or off for on, off in want.values())


@DTYPES
@pytest.mark.parametrize("numbers", [(3, 4, 1, 2, 1, 0, 1, 0.1, 1e10), (3, 4, 1, 2, 0, 1, 0, 0.1, 1e10)])
def test_lanes_take_their_steps(dtype: Any, numbers: tuple[float, ...]) -> None:
    """One lane is told no number: a gap. Lanes of a huge or infinite delta, or a lost y, are flagged; others are not.

    Where rho is 0 nothing is learned from a delta, however large.
    """
    rng, width, start = np.random.default_rng(3), 48, 16
    rows = rng.uniform(0.1, 2, (lanes.N_ROWS, 80)).astype(dtype)
    rows[lanes.C_TP1, [start + 5, start + 6, start + 7]], rows[lanes.SICK] = [np.nan, 1e11, 1e12], 0
    rows[lanes.RHO_T, start + 7], rows[lanes.V, start + 8], rows[lanes.Y, start + 20] = 0, np.inf, np.nan
    rows[lanes.SPENT, start + 30] = np.nan  # of no matter to the prediction
    number = np.array(numbers, dtype=dtype)
    found = []
    for busy, idle in ((_busy, _idle), (None, None)):
        arrays = [rows.copy(), rows.copy(), *(np.zeros(200, dtype=dtype) for _ in range(5))]
        learning, resting, trace, owed, spent, ratios, decayed = arrays
        if busy is not None and idle is not None:
            busy(learning, start, width, number, trace, owed, spent, ratios)
            idle(resting, start, width, number, decayed)
        else:
            vectors.take_busy_step_plain(learning, start, width, number, trace, 32, owed, 16, spent, 48, ratios)
            vectors.take_idle_step_plain(resting, start, width, number, decayed, 48)
        found.append(arrays)
    for got, want in zip(*found, strict=True):
        assert_close(got, want)
    busy, idle = found[0][:2]
    assert busy[lanes.SICK].tolist() == [float(i in (start + 6, start + 8, start + 20)) for i in range(80)]
    assert not idle[lanes.SICK].any()
    for taken in (busy, idle):
        assert (taken[[lanes.X, lanes.Y, lanes.Z, lanes.TOP, lanes.DELTA], start + 5] == 0).all()
        before = rows[:, start + 5]
        v = before[lanes.BASE] + before[lanes.ALPHA] * (before[lanes.SUM] - before[lanes.TURNED])
        assert taken[lanes.V, start + 5] == pytest.approx(v, rel=1e-6)
        assert taken[lanes.SPENT, start + 5] == before[lanes.SPENT]


@pytest.mark.parametrize("weight", [1, -1, 4])
def test_bits_are_counted_by_their_place(weight: int) -> None:
    """Between two words of five, one feature twice; what lies outside is not touched."""
    rng = np.random.default_rng(4)
    words = rng.integers(0, 2**32, (20, 5), dtype=np.uint32)
    features = np.array([3, 19, 3, 0])
    got, want = (np.arange(160, dtype=np.int32) for _ in range(2))
    _add_bits(words, 1, 4, features, 3, weight, got)
    vectors.add_bits_plain(words, 1, 4, features, 3, weight, want)
    np.testing.assert_array_equal(got, want)
    for i in (32, 77, 127):
        n_set = sum(int(words[f, i // 32]) >> (i % 32) & 1 for f in (3, 19, 3))
        assert got[i] == i + weight * n_set
    np.testing.assert_array_equal(got[[*range(32), *range(128, 160)]], [*range(32), *range(128, 160)])


@pytest.mark.parametrize("word", [1, 2, 1 << 63, 0x00F00000_00000000, 0xFFFFFFFF])
def test_the_lowest_bit_is_found(word: int) -> None:
    place = next(i for i in range(64) if word >> i & 1)
    assert _lowest(np.uint64(word)) == vectors.lowest_bit_plain(word) == place


@pytest.mark.parametrize(("dtype", "half"), [(np.float32, 12), (np.float64, 27)])
def test_a_sum_of_a_product_is_rounded_once_where_it_is_written_and_twice_elsewhere(dtype: Any, half: int) -> None:
    """(1 + 2^-k)^2 - (1 + 2^-(k-1)) is 2^-2k, which a product that is rounded first has lost."""
    a, c = dtype(1 + 2.0**-half), dtype(-1 - 2.0 ** (1 - half))
    assert _fused(a, a, c) == 2.0 ** (-2 * half)
    assert _apart(a, a, c) == 0.0


def test_a_sum_of_a_product_is_of_the_wider_type() -> None:
    tenth = np.float32(0.1)
    assert _fused(tenth, 3.0, np.float32(0)) == float(tenth) * 3.0
