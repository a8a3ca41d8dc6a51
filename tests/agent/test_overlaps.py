"""Active features of past states, stored as bits, against a loop over the times."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from horde_agent.kernels._jit import kernel
from horde_agent.kernels.span import overlaps
from horde_agent.kernels.span.arrays import BATCH, DECAYS, FLUSH, IDLE, LEARNS, N_PLACES, N_ROWS, NOW, OLDEST
from horde_agent.learning import SpanEngine

pytestmark = pytest.mark.kernels

N_FEATURES, N_ACTIVE = 150, 20  # in three words of bits


@kernel
def _number(span: Any, g: int, first: int, last: int) -> Any:
    return overlaps.number_times(span, g, first, last)


@kernel
def _list(span: Any, which: int, n_places: int) -> None:
    overlaps.list_runs(span, which, n_places)


@kernel
def _overlaps(span: Any, last: int, time: int, out: Any) -> None:
    overlaps.write_overlaps(span, last, span.bits[time % span.bits.shape[0]], out)


class Past:
    """An engine after `n_times` states that change slowly, and the active rows at each time."""

    def __init__(self, n_times: int, seed: int = 0, n_changed: int = 5) -> None:
        self.rng = rng = np.random.default_rng(seed)
        self.engine = SpanEngine(np.arange(2), N_FEATURES, 0.1, 0.1, period=16, largest_decay=0.2)
        now, states = rng.choice(N_FEATURES, N_ACTIVE, replace=False), []
        for _ in range(n_times):
            stays = rng.choice(now, N_ACTIVE - n_changed, replace=False)
            now = np.r_[stays, rng.choice(np.setdiff1d(np.arange(N_FEATURES), stays), n_changed, replace=False)]
            self.engine.begin(now)
            states.append(now)
        self.span, self.native = self.engine._span, self.engine._native
        self.is_on = np.zeros((n_times, N_FEATURES), dtype=bool)
        for t, state in enumerate(states):
            self.is_on[t, self.engine._row_of[state]] = True

    def runs(self, which: int) -> dict[int, list[int]]:
        """Return the ends of the listed runs, by row."""
        span, n = self.span, int(self.span.n_runs[which])
        listed = zip(span.run_row[which, :n], span.run_first[which], span.run_last[which], strict=False)
        return {int(row): span.run_ends[which, first:last].tolist() for row, first, last in listed}


def walked(is_on: NDArray[np.bool_], has_coefficient: NDArray[np.bool_]) -> list[int]:
    """Return the ends of the runs among the times with a coefficient."""
    ends, was_on = [], False
    values = is_on[has_coefficient]
    for number, on in enumerate(values):
        if on != was_on:
            ends.append(number)
        was_on = on
    return [*ends, len(values)] if was_on else ends


def test_features_are_rows_in_the_order_in_which_they_are_first_on() -> None:
    past = Past(90)
    rows = past.engine._row_of
    n = int(past.span.clock[N_ROWS])
    assert past.span.clock[NOW] == 89
    assert sorted(rows[rows >= 0]) == list(range(n))
    np.testing.assert_array_equal(rows[past.engine._feature_of[:n]], np.arange(n))
    first_on = past.is_on[:, :n].argmax(axis=0)
    assert (np.diff(first_on) >= 0).all()


@pytest.mark.parametrize("n_times", [1, 20, 90])
@pytest.mark.parametrize("n_changed", [0, 3, N_ACTIVE])
def test_changed_features_and_overlaps_of_states(n_times: int, n_changed: int) -> None:
    """At the first time every active feature is new; 90 times exceed the ring."""
    past, last = Past(n_times, 1, n_changed), n_times - 1
    assert len(past.span.bits) == 64
    span, slot = past.span, last & 1
    now, before = past.is_on[-1], past.is_on[-2] if n_times > 1 else np.zeros(N_FEATURES, dtype=bool)
    for kind, want in enumerate((now & ~before, before & ~now)):
        got = span.changed[slot, kind, : span.n_changed[slot, kind]]
        assert got.tolist() == np.flatnonzero(want).tolist()
    assert sorted(span.active[last % 2]) == np.flatnonzero(now).tolist()
    oldest = max(0, last - 60)
    span.clock[OLDEST] = oldest
    out = np.full(span.overlap.shape[1], -1.0, dtype=span.overlap.dtype)
    _overlaps(past.native, last, last - last // 3, out)
    want = (past.is_on[oldest:] & past.is_on[last - last // 3]).sum(axis=1)
    assert out[: n_times - oldest].tolist() == want.tolist()
    assert (out[n_times - oldest :] == -1).all()


@pytest.mark.parametrize("busy", [0.02, 0.3, 1.0])
@pytest.mark.parametrize(("n_tail", "n"), [(0, 50), (0, 1), (7, 0), (20, 35), (1, 2)])
def test_runs_are_those_of_the_times_with_a_coefficient(n_tail: int, n: int, busy: float) -> None:
    """A tail, then pending steps, some of them idle; the present is the last time."""
    past, last = Past(90, n), 89
    for _ in range(5):
        first, since = last - n - n_tail, last - n
        kinds = np.where(past.rng.random(90) < busy, past.rng.choice([DECAYS, LEARNS], 90), IDLE)
        for t in range(first, last):
            past.span.kind[0, t % past.span.kind.shape[1]] = kinds[t]
        past.span.flushed_at[0] = since
        times = np.arange(first, last + 1)
        after_learning = (times > since) & (kinds[times - 1] == LEARNS)
        has_coefficient = (times < since) | after_learning | ((times < last) & (kinds[times] != IDLE))
        n_places = _number(past.native, 0, first, last)
        place = np.concatenate([[0], np.cumsum(has_coefficient)])
        assert n_places == past.span.clock[N_PLACES] == place[-1]
        assert past.span.run_place[: place.size].tolist() == place.tolist()
        assert past.span.run_time[FLUSH, :n_places].tolist() == times[has_coefficient].tolist()
        _list(past.native, FLUSH, n_places)
        want = {row: walked(past.is_on[times, row], has_coefficient) for row in range(N_FEATURES)}
        assert past.runs(FLUSH) == {row: ends for row, ends in want.items() if ends}


def test_the_runs_of_a_batch_are_those_of_all_its_times() -> None:
    past, first, last = Past(80, 5), 65, 79
    past.span.run_time[BATCH, : last - first + 1] = np.arange(first, last + 1)
    _list(past.native, BATCH, last - first + 1)
    every = np.ones(last - first + 1, dtype=bool)
    want = {row: walked(past.is_on[first : last + 1, row], every) for row in range(N_FEATURES)}
    assert past.runs(BATCH) == {row: ends for row, ends in want.items() if ends}
