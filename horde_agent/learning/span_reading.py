"""What can be read of a span engine: predictions, weights, estimates, bounds. Nothing of it changes what is learned.

What is owed to the weights is added to copies of them, so that reading writes nothing.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import Any

import numpy as np
from numpy.typing import NDArray

from horde_agent.kernels import arrays, bounds, dropped, span
from horde_agent.kernels import lanes as of_lane
from horde_agent.kernels.entry import Holder
from horde_agent.learning.arrangement import Arrangement
from horde_agent.learning.engine import TailBounds
from horde_agent.learning.history import SharedHistory
from horde_agent.learning.roster import rows_of
from horde_agent.learning.rules import LearnerConfig

Floats = NDArray[np.float64]
Tiles = NDArray[np.int64]
Reals = NDArray[Any]


class Readable(Holder, ABC):
    """The half of `SpanGTD` that is asked."""

    config: LearnerConfig
    n_features: int
    dtype: np.dtype[Any]
    layout: Arrangement
    history: SharedHistory
    _arrays: arrays.Span
    _m_scale: float

    @abstractmethod
    def catch_up(self) -> None:
        """Take the steps that were only noted so far."""

    @abstractmethod
    def _hold(self) -> Any:
        """Hold all that a step needs in native form."""

    @property
    def _span(self) -> arrays.Span:
        """All arrays that kernels read and write."""
        return self._arrays

    @_span.setter
    def _span(self, replaced: arrays.Span) -> None:
        self._arrays, self._held = replaced, None

    def predict(self, tiles: Tiles) -> Floats:
        """Return theta.phi of all demons at `tiles`, float64, shape (n_demons,); nothing changes."""
        self.catch_up()
        return self._of_demons(self._predict(tiles, 0, self.layout.n_tiles))

    def predict_one(self, demon: int, tiles: Tiles) -> float:
        """Return one demon's prediction at `tiles`."""
        self.catch_up()
        lane = int(self.layout.lane[demon])
        b = int(np.searchsorted(self.layout.start, lane, side="right")) - 1
        return float(self._predict(tiles, b, b + 1)[lane])

    @property
    def td_error(self) -> Floats:
        """TD errors of the last step, shape (n_demons,)."""
        self.catch_up()
        return self._of_demons(self._span.lanes[of_lane.DELTA])

    @property
    def mspbe_scalar(self) -> Floats:
        """Scalar MSPBE estimate s, signed, shape (n_demons,)."""
        self.catch_up()
        return self._of_demons(self._span.lanes[of_lane.S])

    @property
    def max_trace(self) -> Floats:
        """A number that no |e| has passed so far, shape (n_demons,).

        It is the sum of the trace's coefficients, and so the largest |e| itself where a feature is always on (a bias).
        """
        self.catch_up()
        return self._of_demons(self._span.lanes[of_lane.MAX_E])

    @property
    def n_numbers_kept(self) -> float:
        """Numbers of its past that a demon's step looks at: c of each step kept, d and h owed, q spent."""
        n_kept, n_owed, n_spent = self._span.past.book[:, [arrays.N_KEPT, arrays.N_OWED, arrays.N_SPENT]].T
        return float(np.average(n_kept + 2 * n_owed + n_spent, weights=np.diff(self.layout.start)))

    def tail_bounds(self) -> TailBounds:
        """Return what dropping the tails of traces may have changed so far; nothing changes."""
        self.catch_up()
        sums = self._span.past.dropped.copy()
        most, norm = dropped.read_bounds(self._held or self._hold(), sums)
        rates = self._of_demons(self._span.lanes[of_lane.ALPHA]), self._of_demons(self._span.lanes[of_lane.ALPHA_W])
        return TailBounds.of(sums[bounds.MOVED : bounds.GROWTH + 1, self.layout.lane], *rates, most, norm)

    def mspbe_vector(self) -> Floats:
        """Return the vector MSPBE estimate m.w, shape (n_demons,).

        Raises:
            ValueError: If the engine does not keep m.
        """
        if not self.config.vector_mspbe:
            raise ValueError("this learner keeps no vector MSPBE estimate: set vector_mspbe=True in its LearnerConfig")
        self.catch_up()
        estimate = np.empty(self.layout.n_lanes)
        for b in range(self.layout.n_tiles):
            _, w, m = self._read(b)
            estimate[self.layout.start[b] : self.layout.start[b + 1]] = np.einsum("fl,fl->l", m, w, dtype=np.float64)
        return self._of_demons(estimate * self._m_scale)

    def weights(self) -> tuple[Reals, Reals]:
        """Return copies of theta and w, each (n_demons, n_features), in the engine's dtype; nothing is written."""
        theta, w = self._by_demon(0), self._by_demon(1)
        return theta, w

    def mspbe_trace(self) -> Reals:
        """Return a copy of m, shape (n_demons, n_features)."""
        return np.asarray(self._by_demon(2) * self.dtype.type(self._m_scale))

    # ---- how it is read ---------------------------------------------------------------------------------------------

    def _of_demons(self, lanes: Reals) -> Floats:
        """Return one number per demon, float64, shape (n_demons,)."""
        return lanes[self.layout.lane].astype(np.float64)

    def _predict(self, tiles: Tiles, first: int, last: int) -> Reals:
        """Return theta.phi of every lane of some tiles."""
        sums = np.empty((5, self.layout.n_lanes), dtype=self.dtype)
        span.predict(self._held or self._hold(), self.history.overlaps_with(tiles), tiles, first, last, sums)
        return np.asarray(sums[4])

    def _by_demon(self, which: int) -> Reals:
        """Return theta, w or m as (n_demons, n_features)."""
        self.catch_up()
        out = np.empty((self.layout.n_lanes, self.n_features), dtype=self.dtype)
        for b in range(self.layout.n_tiles):
            out[self.layout.start[b] : self.layout.start[b + 1]] = self._read(b)[which].T
        return np.ascontiguousarray(out[self.layout.lane])

    def _rows(self, b: int) -> list[Reals]:
        """Return a tile's rows of theta, w, m and the carried trace, those that there are, as (n, lanes)."""
        start, stop, n = int(self.layout.start[b]), int(self.layout.start[b + 1]), self.n_features
        rows = [rows_of(a, self.layout, b) for a in self._span.memory[:3] if a.size]
        place = int(self._span.past.book[b, arrays.CARRIES])
        return rows + ([self._span.memory.carried[place, : n * (stop - start)].reshape(n, -1)] if place >= 0 else [])

    def _read(self, b: int) -> tuple[Reals, Reals, Reals]:
        """Return what a tile's theta, w and m would be if all were written now, as (n, lanes)."""
        width, place = int(np.diff(self.layout.start)[b]), int(self._span.past.book[b, arrays.CARRIES])
        rows = [r.copy() for r in self._rows(b)]
        if not self.config.vector_mspbe:
            rows.insert(2, np.zeros((0, width), dtype=self.dtype))
        if place < 0:
            rows.append(np.zeros((0, width), dtype=self.dtype))
        is_alive = self._span.memory.is_alive[place] if place >= 0 else np.zeros(0, dtype=np.uint8)
        flat = [r.ravel() for r in rows]  # views
        if self.history.now >= 0:  # else nothing is owed
            no_bound, nobody = np.full(width, np.inf, self.dtype), np.zeros(width, self.dtype)
            span.read_tile(b, self._held or self._hold(), tuple(flat), is_alive, no_bound, nobody)
        return rows[0], rows[1], rows[2]
