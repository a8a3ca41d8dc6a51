"""SpanGTD: the fast engine. It learns what `GTDLambda` learns, without stored traces and without dense passes.

Each demon keeps a few numbers per step instead of writing its weights; every K steps they are written, tile by tile, at
different times. Predictions, TD errors and estimates are those of every step all the same. The algebra is in
`kernels/span.py`. The trace rule "capped" is not in it: for that, take `GTDLambda`.
"""

from __future__ import annotations

from typing import Any

import numba
import numpy as np
from numpy.typing import NDArray

from horde_agent.history import SharedHistory
from horde_agent.kernels import history as past
from horde_agent.kernels import lanes as of_lane
from horde_agent.kernels import span
from horde_agent.kernels.gtd import Signals
from horde_agent.learner import PAPER_CONFIG, LearnerConfig

Floats = NDArray[np.float64]
Tiles = NDArray[np.int64]
Reals = NDArray[Any]

_LANE_UNIT = 16  # lanes come in multiples of a cache line of float32
_WIDEST_TILE = 128
_SMALLEST_SHARED_WORK = 50_000  # weights read per step, below which one thread does it all
# What is dropped of a trace, beside the 1 of an active feature: as in the plain engine.
_DROP_BELOW = {"float32": 1e-8, "float64": 1e-16}
_SMALLEST_SCALE = 1e-12  # m is kept over a common scale that decays instead of it


class Arrangement:
    """Which lane each demon has: the demons of a policy side by side, in tiles of even width.

    A tile in which nobody's rho is above 0 has little to do, so that a policy with many demons gets tiles of its own.

    Args:
        group: Group of each demon, shape (n_demons,), numbered from 0.
        policy: Policy of each group, shape (n_groups,).
        widest: Most lanes of a tile.

    Attributes:
        lane: Lane of each demon, shape (n_demons,).
        group, demon: Of each lane, -1 where it is empty, shape (n_lanes,).
        start: Tile b is the lanes start[b]..start[b + 1], shape (n_tiles + 1,).
    """

    def __init__(self, group: NDArray[np.int64], policy: NDArray[np.int64], widest: int = _WIDEST_TILE) -> None:
        policy_of = policy[group]
        sizes = np.bincount(policy_of)[policy_of]
        is_small = sizes < min(widest, 3 * _LANE_UNIT)
        order = np.lexsort((group, policy_of))
        pieces = [m for p in np.unique(policy_of[~is_small]) for m in _even(order[policy_of[order] == p], widest)]
        pieces += _even(order[is_small[order]], widest)
        widths = [-(-members.size // _LANE_UNIT) * _LANE_UNIT for members in pieces]
        self.start = np.concatenate([[0], np.cumsum(widths)]).astype(np.int64)
        self.n_lanes, self.n_tiles = int(self.start[-1]), len(pieces)
        self.lane = np.empty(group.size, dtype=np.int64)
        self.group, self.demon = np.full((2, self.n_lanes), -1, dtype=np.int64)
        for members, first in zip(pieces, self.start, strict=False):
            self.lane[members] = np.arange(first, first + members.size)
        self.group[self.lane], self.demon[self.lane] = group, np.arange(group.size)


def _even(members: NDArray[np.int64], widest: int) -> list[NDArray[np.int64]]:
    """Cut demons into pieces of at most `widest`, as even as can be."""
    return np.array_split(members, -(-members.size // widest)) if members.size else []


class SpanGTD:
    """GTD(lambda) for many demons that share one stream of tiles: the fast engine.

    Args:
        group: Group of each demon, shape (n_demons,), numbered from 0. The demons of a group have the same policy,
            continuation and trace decay.
        n_features: Length n of the weight vectors.
        alpha, alpha_w: Primary and secondary step sizes, already divided by the number of active tiles: a number, or
            one per demon.
        config: The other rules. Its step sizes are not read here.
        policy: Policy of each group, shape (n_groups,): groups of one policy have the same rho on every step, and are
            laid side by side. Results do not depend on it.
        period: Steps K after which what is owed is written.
        tail: Steps beyond those that a trace may reach back before it is carried in rows of its own.
        widest: Most lanes of a tile.

    Raises:
        ValueError: If the trace rule is "capped".
    """

    def __init__(
        self,
        group: NDArray[np.int64],
        n_features: int,
        alpha: float | Floats,
        alpha_w: float | Floats,
        config: LearnerConfig = PAPER_CONFIG,
        *,
        policy: NDArray[np.int64] | None = None,
        period: int = 64,
        tail: int = 192,
        widest: int = _WIDEST_TILE,
    ) -> None:
        if config.trace_rule == "capped":
            raise ValueError('the trace rule "capped" is no sum of past feature vectors: use GTDLambda for it')
        group = np.asarray(group, dtype=np.int64)
        self.config, self.n_features, self.n_demons = config, n_features, len(group)
        self.dtype = np.dtype(config.dtype)
        self.period, self.tail = period, tail
        self.layout = Arrangement(group, np.arange(group.max() + 1) if policy is None else policy, widest)
        self.history = SharedHistory(n_features)
        self._places = span.Tiles(self.layout.group, self.layout.demon, self.layout.start)
        self._memory, self._past, self._lanes, self._work = self._allocate()
        self._lanes[of_lane.ALPHA, self.layout.lane] = alpha
        self._lanes[of_lane.ALPHA_W, self.layout.lane] = alpha_w
        self._lanes[of_lane.BOUND] = np.inf
        self._m_scale, self._next_row = 1.0, 0
        self._is_sick = False
        self._last_rules: span.Rules | None = None
        self._n_places = 0  # of carried traces in use

    def _allocate(self) -> tuple[span.Memory, span.Past, Reals, span.Work]:
        """Make the arrays, all zero but the books."""
        n, lanes, tiles = self.n_features, self.layout.n_lanes, self.layout.n_tiles
        kept, hands = self.period + self.tail, int(numba.config.NUMBA_NUM_THREADS)  # type: ignore[attr-defined]
        most_times, widest = 2 * kept + self.period + 1, span.LANES_AT_ONCE

        def zeros(*shape: int) -> Reals:
            return np.zeros(shape, dtype=self.dtype)

        def integers(*shape: int) -> NDArray[np.int64]:
            return np.zeros(shape, dtype=np.int64)

        memory = span.Memory(
            theta=zeros(n * lanes),
            w=zeros(n * lanes),
            m=zeros(n * lanes if self.config.vector_mspbe else 0),
            carried=zeros(0, n * int(np.diff(self.layout.start).max())),
            is_alive=np.zeros((0, n), dtype=np.uint8),
        )
        past_ = span.Past(
            trace=zeros(2 * kept * lanes),
            owed=zeros(2 * self.period * lanes),
            spent=zeros(self.period * lanes),
            times=integers(tiles, 2, kept),
            m_steps=np.zeros((tiles, self.period)),
            book=integers(tiles, span.N_COLUMNS),
        )
        past_.book[:, span.LIMIT] = 1 + np.arange(tiles) * self.period // tiles  # so that they write in turn
        past_.book[:, span.W_AT], past_.book[:, span.CARRIES] = -9, -1
        work = span.Work(
            is_aside=np.zeros(lanes, dtype=np.uint8),
            scratch=zeros(hands, 7, max(kept, widest, of_lane.N_NUMBERS)),
            table=zeros(hands, 4 * widest * (most_times + 1)),
            paper=integers(hands, 4, max(n + 1, 2)),
            runs=np.zeros((hands, 0), dtype=np.int32),
        )
        return memory, past_, zeros(of_lane.N_ROWS, lanes), work

    def _observe(self, tiles: Tiles) -> None:
        """Move the present on to `tiles`, and make room for what that may bring."""
        self.history.observe(tiles)
        arrays, work = self.history.arrays, self._work
        n_hands, n_times = work.paper.shape[0], arrays.overlap.size + 2
        n_runs = (arrays.log.shape[0] + tiles.size) * int(arrays.clock[past.MOST])
        if work.paper.shape[2] < n_times:
            self._work = work = work._replace(paper=np.zeros((n_hands, 4, n_times), dtype=np.int64))
        if work.runs.shape[1] < 2 * n_runs:
            self._work = work._replace(runs=np.zeros((n_hands, 2 * n_runs), dtype=np.int32))

    def _of_demons(self, lanes: Reals) -> Floats:
        """Return one number per demon, float64, shape (n_demons,)."""
        return lanes[self.layout.lane].astype(np.float64)

    # ---- the stream -----------------------------------------------------------------------------------------------

    def begin(self, tiles: Tiles, gamma: Floats, lam: Floats) -> Floats:
        """Start a stream at `tiles` with every trace at zero; weights and estimates stay.

        Args:
            tiles: Active features, shape (n_active,).
            gamma: Continuation at this state, shape (n_groups,).
            lam: Trace decay at this state, shape (n_groups,).

        Returns:
            Predictions of all demons there, float64, shape (n_demons,).
        """
        for b in np.flatnonzero(self._past.book[:, span.IS_CARRYING]):
            self._settle(int(b))
            self._clear_carried(int(b))
        self._observe(tiles)
        predictions = np.zeros(self.n_demons)
        span.begin(
            self._places,
            self._memory,
            self._past,
            self._lanes,
            self._work,
            self.history.arrays,
            self.history.tiles,
            predictions,
        )
        self._lanes[of_lane.GAMMA_T] = np.append(gamma, 0.0)[self.layout.group]
        self._lanes[of_lane.LAM_T] = np.append(lam, 0.0)[self.layout.group]
        return predictions

    def learn(self, tiles: Tiles, signals: Signals) -> Floats:
        """Learn from the transition to `tiles`.

        Returns:
            Predictions theta_{t+1}.phi_{t+1} of all demons, float64, shape (n_demons,).
        """
        predictions, before = np.empty(self.n_demons), self.history.tiles
        self._observe(tiles)
        self._age_m()
        rules = self._rules()
        found = (span.learn_alone if rules.n_hands == 1 else span.learn)(
            self._places,
            signals,
            self._memory,
            self._past,
            self._lanes,
            self._work,
            self.history.arrays,
            rules,
            1.0 / (self.config.mspbe_tau * self._m_scale),
            self._next_row,
            before,
            self.history.tiles,
            predictions,
        )
        self._next_row += rules.n_rows
        if self._next_row >= self.n_features:
            self._next_row = 0
        if found:
            self._is_sick |= bool(found & span.SOMEBODY_IS_SICK)
            for b in np.flatnonzero(self._past.book[:, span.WANTS_CARRY]):
                self._carry(int(b))
        return predictions

    def _age_m(self) -> None:
        """Let the common scale of m decay by a step; far from overflow, the two are multiplied out."""
        self._m_scale *= 1.0 - 1.0 / self.config.mspbe_tau
        if self._m_scale < _SMALLEST_SCALE:
            self._memory.m[...] *= self.dtype.type(self._m_scale)
            self._past.m_steps[...] *= self._m_scale
            self._m_scale = 1.0

    def _rules(self) -> span.Rules:
        """Return the rules, for as many threads as there are now."""
        n_hands = self._n_hands()
        if self._last_rules is None or self._last_rules.n_hands != n_hands:
            drop_below, clips = _DROP_BELOW[self.config.dtype], self.config.trace_rule == "clipped"
            self._last_rules = span.Rules(
                every_step=self.config.w_rule == "every-step",
                clip_lambda=clips,
                drop_below=drop_below if clips else 0.0,
                drop_carried=drop_below,
                one_over_tau=1.0 / self.config.mspbe_tau,
                keep_at_most=self.tail,
                period=self.period,
                longest_wait=3 * self.period,
                n_rows=-(-self.n_features // self.config.check_every),
                n_hands=n_hands,
            )
        return self._last_rules

    def _n_hands(self) -> int:
        """Return how many threads share the work: one where a step reads few numbers."""
        is_small = self.layout.n_lanes * max(self.history.tiles.size, 1) < _SMALLEST_SHARED_WORK
        return 1 if is_small else numba.get_num_threads()

    # ---- writing, carrying ------------------------------------------------------------------------------------------

    def _settle(self, b: int) -> None:
        """Write what a tile owes."""
        span.settle_tile(
            b,
            self._places,
            self._memory,
            self._past,
            self._lanes,
            self._work,
            self.history.arrays,
            self._rules(),
            self.history.tiles,
        )

    def _carry(self, b: int) -> None:
        """Give a tile rows for its trace, and write its tail there."""
        memory, place = self._memory, self._n_places
        if place == memory.carried.shape[0]:
            more = max(1, place)
            self._memory = memory._replace(
                carried=np.concatenate([memory.carried, np.zeros((more, memory.carried.shape[1]), self.dtype)]),
                is_alive=np.concatenate([memory.is_alive, np.zeros((more, self.n_features), np.uint8)]),
            )
        self._n_places += 1
        self._past.book[b, span.CARRIES] = place
        self._past.book[b, span.WANTS_CARRY] = 0
        self._settle(b)

    def _clear_carried(self, b: int) -> None:
        """Set a tile's carried trace to zero."""
        place = self._past.book[b, span.CARRIES]
        self._memory.carried[place], self._memory.is_alive[place] = 0, 0
        self._past.book[b, span.IS_CARRYING] = 0

    # ---- predictions ------------------------------------------------------------------------------------------------

    def predict(self, tiles: Tiles) -> Floats:
        """Return theta.phi of all demons at `tiles`, float64, shape (n_demons,); nothing changes."""
        return self._of_demons(self._predict(tiles, 0, self.layout.n_tiles))

    def predict_one(self, demon: int, tiles: Tiles) -> float:
        """Return one demon's prediction at `tiles`."""
        lane = int(self.layout.lane[demon])
        b = int(np.searchsorted(self.layout.start, lane, side="right")) - 1
        return float(self._predict(tiles, b, b + 1)[lane])

    def _predict(self, tiles: Tiles, first: int, last: int) -> Reals:
        """Return theta.phi of every lane of some tiles."""
        sums = np.empty((5, self.layout.n_lanes), dtype=self.dtype)
        span.predict(
            self._places,
            self._memory,
            self._past,
            self._lanes,
            self._work,
            self.history.arrays,
            self.history.overlaps_with(tiles),
            tiles,
            first,
            last,
            sums,
        )
        return np.asarray(sums[4])

    # ---- demons set aside -------------------------------------------------------------------------------------------

    def newly_broken(self) -> NDArray[np.int64]:
        """Return the demons flagged since they were last asked for: not finite, or |theta| past its bound."""
        if not self._is_sick:
            return np.zeros(0, dtype=np.int64)
        sick, self._is_sick = self._lanes[of_lane.SICK], False
        is_new = (sick != 0) & (self._work.is_aside == 0)
        sick.fill(0)
        return np.flatnonzero(is_new[self.layout.lane])

    def set_aside(self, demon: int) -> None:
        """Freeze one demon's weights at zero for good; its siblings are not touched."""
        lane = int(self.layout.lane[demon])
        b = int(np.searchsorted(self.layout.start, lane, side="right")) - 1
        kept = [of_lane.ALPHA, of_lane.ALPHA_W, of_lane.BOUND, of_lane.MAX_E]
        keep = self._lanes[kept, lane].copy()
        for rows in (*self._rows(b), self._past_rows(self._past.trace, b), self._past_rows(self._past.owed, b)):
            rows[:, lane - int(self.layout.start[b])] = 0
        self._past_rows(self._past.spent, b)[:, lane - int(self.layout.start[b])] = 0
        self._lanes[:, lane] = 0
        self._lanes[kept[2:], lane] = keep[2:]
        self._work.is_aside[lane] = 1

    def set_bounds(self, bound: Floats) -> None:
        """Set the |theta| past which a demon is flagged, shape (n_demons,)."""
        self._lanes[of_lane.BOUND, self.layout.lane] = bound

    # ---- what is known ----------------------------------------------------------------------------------------------

    @property
    def td_error(self) -> Floats:
        """TD errors of the last step, shape (n_demons,)."""
        return self._of_demons(self._lanes[of_lane.DELTA])

    @property
    def mspbe_scalar(self) -> Floats:
        """Scalar MSPBE estimate s, signed, shape (n_demons,)."""
        return self._of_demons(self._lanes[of_lane.S])

    @property
    def max_trace(self) -> Floats:
        """A number that no |e| has passed so far, shape (n_demons,).

        It is the sum of the trace's coefficients, and so the largest |e| itself where a feature is always on (a bias).
        """
        return self._of_demons(self._lanes[of_lane.MAX_E])

    def mspbe_vector(self) -> Floats:
        """Return the vector MSPBE estimate m.w, shape (n_demons,).

        Raises:
            ValueError: If the engine does not keep m.
        """
        if not self.config.vector_mspbe:
            raise ValueError("this learner keeps no vector MSPBE estimate: set vector_mspbe=True in its LearnerConfig")
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

    def _by_demon(self, which: int) -> Reals:
        """Return theta, w or m as (n_demons, n_features)."""
        out = np.empty((self.layout.n_lanes, self.n_features), dtype=self.dtype)
        for b in range(self.layout.n_tiles):
            out[self.layout.start[b] : self.layout.start[b + 1]] = self._read(b)[which].T
        return np.ascontiguousarray(out[self.layout.lane])

    def _rows(self, b: int) -> list[Reals]:
        """Return a tile's rows of theta, w, m and the carried trace, those that there are, as (n, lanes)."""
        start, stop, n = int(self.layout.start[b]), int(self.layout.start[b + 1]), self.n_features
        rows = [a[n * start : n * stop].reshape(n, -1) for a in self._memory[:3] if a.size]
        place = int(self._past.book[b, span.CARRIES])
        return rows + ([self._memory.carried[place, : n * (stop - start)].reshape(n, -1)] if place >= 0 else [])

    def _past_rows(self, numbers: Reals, b: int) -> Reals:
        """Return a tile's part of `trace`, `owed` or `spent`, as (rows, lanes)."""
        start, stop = int(self.layout.start[b]), int(self.layout.start[b + 1])
        per_lane = numbers.size // self.layout.n_lanes
        return numbers[per_lane * start : per_lane * stop].reshape(per_lane, stop - start)

    def _read(self, b: int) -> tuple[Reals, Reals, Reals]:
        """Return what a tile's theta, w and m would be if all were written now, as (n, lanes)."""
        width, place = int(np.diff(self.layout.start)[b]), int(self._past.book[b, span.CARRIES])
        rows = [r.copy() for r in self._rows(b)]
        if not self.config.vector_mspbe:
            rows.insert(2, np.zeros((0, width), dtype=self.dtype))
        if place < 0:
            rows.append(np.zeros((0, width), dtype=self.dtype))
        is_alive = self._memory.is_alive[place] if place >= 0 else np.zeros(0, dtype=np.uint8)
        flat = [r.ravel() for r in rows]  # views
        span.read_tile(
            b,
            self._places,
            self._past,
            self._lanes,
            self._work,
            self.history.arrays,
            self.history.tiles,
            *flat,
            is_alive,
        )
        return rows[0], rows[1], rows[2]

    def reset_weights(self, theta: Reals | None = None) -> None:
        """Set theta, to zero unless given, for measuring how learning recovers; w, traces and estimates stay.

        Args:
            theta: Shape (n_demons, n_features).

        Raises:
            ValueError: If `theta` has another shape or is not finite.

        Source: White, Modayil & Sutton (2012), section 6: theta := 0 after 40,000 steps.
        """
        if theta is not None and (np.shape(theta) != (self.n_demons, self.n_features) or not np.isfinite(theta).all()):
            raise ValueError(f"theta must be finite, of shape ({self.n_demons}, {self.n_features})")
        lanes = np.zeros((self.layout.n_lanes, self.n_features), dtype=self.dtype)
        if theta is not None:
            lanes[self.layout.lane] = np.where(self._work.is_aside[self.layout.lane, None], 0.0, theta)
        for b in range(self.layout.n_tiles):
            start, stop = int(self.layout.start[b]), int(self.layout.start[b + 1])
            self._settle(b)
            self._rows(b)[0][:] = lanes[start:stop].T
            base = lanes[start:stop][:, self.history.tiles].sum(axis=1)
            self._lanes[of_lane.BASE, start:stop] = self._lanes[of_lane.V, start:stop] = base
