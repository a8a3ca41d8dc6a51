"""SpanEngine: the fast engine. It learns what `PlainEngine` learns, without stored traces and without dense passes.

A demon keeps a few numbers of each step instead of writing its weights; what is pending is written every K steps, a
flush group at a time. Predictions, TD errors and estimates are those of every step all the same. With a `batch` of more
than one step, steps are only noted, and taken together when so many have come or somebody asks: the same numbers, later
and for less. The algebra is in `kernels/span/step.py`. The trace rule "capped" is not in it, nor a trace that reaches
back further than LARGEST_TAIL steps: for these, take `PlainEngine`.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, TypedDict, Unpack

import numba
import numpy as np
from numpy.typing import NDArray

from horde_agent.kernels._jit import threads_here
from horde_agent.kernels.checks import SOMEBODY_IS_FLAGGED, Signals
from horde_agent.kernels.span import transition
from horde_agent.kernels.span.arrays import CHUNK, IS_KNOWN, N_CLOCKS, N_ROWS, NO_TIME, NOW, SpanArrays
from horde_agent.kernels.vectors import bind, entry_of, hold
from horde_agent.learning.engine import (
    DROP_BELOW,
    LARGEST_STEP,
    SMALLEST_SCALE,
    SMALLEST_SHARED_WORK,
    Patient,
    check_weights,
    max_finite,
)
from horde_agent.learning.layout import (
    DemonMapping,
    Layout,
    Move,
    ShardContext,
    aligned_zeros,
    assign_lanes,
    moves,
    rows_of,
    touch,
)
from horde_agent.learning.rules import PAPER_CONFIG, LearnerConfig
from horde_agent.saving import State, attributes, put_back
from horde_agent.types import Floats, Integers, Reals

LARGEST_TAIL = 1_000  # steps beyond those that are pending: what reaches further learns on the plain engine

_PERIODS = {False: 64, True: 128}  # steps between two flushes, eager and deferred
_WIDEST, _MANY, _WIDEST_OF_MANY = 128, 8_192, 512  # lanes; of many demons rows are long: they come from memory
_FIRST_ROWS = 4 * CHUNK  # behind which there is memory before the first step
_PARTS, _LEAST_TOUCHED = 128, 1 << 19  # steps that share the touching of a chunk, and numbers that one touches
_WAIT = 3  # periods after which little is written too
_VECTOR = 80  # lanes of scratch paper
_OF_PROCESS = ("_held", "_entry", "_signals", "_step")  # addresses
_FIELDS = SpanArrays._fields
OF_LANES = _FIELDS[_FIELDS.index("prediction") : _FIELDS.index("w_at")]  # one number per lane
_ROWS = ("theta", "w", "m")  # of which those in use lie first
# What a state leaves out: who sits where, which follows from the demons, and scratch paper.
_NOT_SAVED = (
    *("demon", "start", "flush_group", "first_block", "only_policy", "overlap", "table", "foreseen"),
    *("run_row", "run_first", "run_last", "run_ends", "run_time", "run_place", "n_runs", *_ROWS),
)
_OWN_STATE = ("_is_aside", "_m_scale", "flags", "n_waiting", "latest")
_IN_FULL = ["prediction", "td_error", "mspbe", "max_trace", "alpha", "alpha_w", "bound"]


def trace_length(decay: float, drop_below: float) -> int:
    """Return how many steps a trace reaches back that decays by no less than `decay`, gamma lambda, on each."""
    if decay <= 0.0:
        return 0
    if decay >= 1.0 or drop_below <= 0.0:
        return LARGEST_TAIL + 1
    return int(np.ceil(np.log(drop_below * (1.0 - decay)) / np.log(decay)))


def widest(n_demons: int, *, is_deferred: bool) -> int:
    """Return the most lanes that a block has of so many demons."""
    return _WIDEST_OF_MANY if n_demons >= _MANY and not is_deferred else _WIDEST


class BatchOptions(TypedDict, total=False):
    """How the fast engine takes steps together; what is learned is the same but for rounding.

    Attributes:
        batch: Steps that are noted before they are taken; 1, at once, unless given.
        period: Steps K after which what is pending is written, at least `batch`; 64, or 128 in batches, unless given.
        widest: Most lanes of a block; chosen unless given.
        share: Says how the whole would take them, where these demons are a part of a larger Horde.
    """

    batch: int
    period: int
    widest: int
    share: ShardContext | None


class SpanEngine:
    """GTD(lambda) for many demons that share one stream of tiles: the fast engine.

    Args:
        group: Trace group of each demon, shape (n_demons,), numbered from 0. The demons of a group have the same
            policy, continuation and trace decay.
        n_features: Length n of the weight vectors.
        alpha, alpha_w: Primary and secondary step sizes, already divided by the number of active tiles: a number, or
            one per demon.
        config: The other rules. Its step sizes are not read here.
        policy: Policy of each trace group, shape (n_groups,): groups of one policy have the same rho on every step, and
            are laid side by side. Each group has its own unless given.
        cumulant: Which of the cumulants that are told each demon sums, shape (n_demons,); its own unless given.
        largest_decay: No product of gamma and lambda will be larger; how far traces may reach follows from it.
        pace: How steps are taken together, see `BatchOptions`.

    Attributes:
        latest: Predictions at the latest step that was taken, float64, shape (n_demons,).
        n_waiting: Steps that were only noted so far.
        flags: Not 0 where demons are flagged (`newly_broken`) or a trace reaches back too far to go on.

    Raises:
        ValueError: If the trace rule is "capped".
    """

    def __init__(
        self,
        group: Integers,
        n_features: int,
        alpha: float | Floats,
        alpha_w: float | Floats,
        config: LearnerConfig = PAPER_CONFIG,
        *,
        policy: Integers | None = None,
        cumulant: Integers | None = None,
        largest_decay: float = 1.0,
        **pace: Unpack[BatchOptions],
    ) -> None:
        if config.trace_rule == "capped":
            raise ValueError('the trace rule "capped" is no sum of past feature vectors: use PlainEngine for it')
        self.config, self.n_features, self.n_demons, self.dtype = config, n_features, len(group), np.dtype(config.dtype)
        self.batch = batch = pace.get("batch", 1)
        self.period = max(pace.get("period", _PERIODS[batch > 1]), batch)
        self._widest, self._clips = pace.get("widest", 0), config.trace_rule == "clipped"
        self._share = pace.get("share")
        self._drop_below = DROP_BELOW[config.dtype] if self._clips else 0.0
        self._tail = min(LARGEST_TAIL, trace_length(largest_decay, self._drop_below))
        self._n_times = _power_of_two(self._tail + _WAIT * self.period + batch + 2)
        self._n_threads = int(numba.config.NUMBA_NUM_THREADS)  # type: ignore[attr-defined]
        self._row_of, self._clock = np.full(n_features, -1), np.zeros(N_CLOCKS, dtype=np.int64)
        self._feature_of, self._clock[NOW] = np.zeros(n_features, dtype=np.int64), -1
        self._lay_out(
            np.asarray(group, dtype=np.int64),
            np.arange(int(np.max(group)) + 1) if policy is None else policy,
            np.arange(len(group)) if cumulant is None else cumulant,
            self._shared(0),
        )
        self._span.alpha[self.layout.lane], self._span.alpha_w[self.layout.lane] = alpha, alpha_w
        self._m_scale, self._m_decay = 1.0, 1.0 - 1.0 / config.mspbe_tau
        self.flags = self.n_waiting = 0
        self.latest: Floats = np.zeros(self.n_demons)

    # ---- arrays -----------------------------------------------------------------------------------------------------

    def _lay_out(self, group: Integers, policy: Integers, cumulant: Integers, shared: dict[str, Any]) -> None:
        """Give each demon a lane, and make the arrays, all zero, but for what all demons share."""
        self._group, self._policy, self._cumulant = group, policy, cumulant
        most_lanes = self._widest or widest(group.size, is_deferred=self.batch > 1)
        seating = self._share.seating if self._share else assign_lanes(group, policy, most_lanes)
        self.layout = Layout(policy[group], seating)
        self._is_aside = np.zeros(self.layout.n_lanes, dtype=bool)
        parts = {**self._seats(), **self._weights(), **self._past(), **self._noted(), **self._rules(), **shared}
        self._span = SpanArrays(**parts)
        self._span.bound[:] = max_finite(self.dtype)
        self._n_ready = self._n_touched = 0  # rows behind which there is memory, and numbers of the next chunk of them
        self._forget_process()
        self._put_memory_behind()

    def _forget_process(self) -> None:
        """Begin without the addresses of another process, or of what this one is a copy of."""
        self._held: Any = None
        self._entry: Any = None
        self._step: Any = None
        self._signals: Signals | None = None

    def __getstate__(self) -> dict[str, Any]:
        """Return everything but addresses."""
        return {name: value for name, value in vars(self).items() if name not in _OF_PROCESS}

    def __setstate__(self, state: dict[str, Any]) -> None:
        """Take over a state."""
        vars(self).update(state)
        self._forget_process()

    def _put_memory_behind(self) -> None:
        """Have memory put behind what the first steps write to: no step is to wait for it."""
        span, widths = self._span, np.diff(self.layout.start)
        places = span.d.size // self.layout.n_lanes
        used = np.where(span.only_policy[span.flush_group] >= 0, places, self.period) * widths
        parts = [a[places * s :][:n] for a in (span.d, span.h, span.q) for s, n in zip(span.start, used, strict=False)]
        touch(span.c, *parts, n_threads=self._n_threads)
        self._make_ready(min(self.n_features, max(int(self._clock[N_ROWS]), _FIRST_ROWS)))

    def _zeros(self, *shape: int) -> Reals:
        """Return zeros of the demons' type, which begin with a cache line."""
        return aligned_zeros(shape, self.dtype)

    def _seats(self) -> dict[str, Any]:
        """Return who sits where."""
        layout = self.layout
        of_lane = np.append(self._group, -1)[layout.demon]
        return {
            "policy": np.append(self._policy, -1)[of_lane],
            "trace_group": of_lane,
            "cumulant": np.append(self._cumulant, -1)[layout.demon],
            "outcome": layout.demon.copy(),
            "demon": layout.demon,
            "start": layout.start,
            "flush_group": layout.flush_group,
            "first_block": layout.first_block,
            "only_policy": layout.only_policy,
        }

    def _weights(self) -> dict[str, Any]:
        """Return rows of weights, and one number per lane."""
        n_rows, n_lanes = -(-self.n_features // CHUNK) * CHUNK, self.layout.n_lanes
        return {
            "theta": self._zeros(n_rows * n_lanes),
            "w": self._zeros(n_rows * n_lanes),
            "m": self._zeros(n_rows * n_lanes if self.config.vector_mspbe else 0),
            **{name: self._zeros(n_lanes) for name in OF_LANES},
        }

    def _past(self) -> dict[str, Any]:
        """Return each demon's past, and the books of the flush groups."""
        layout, n_lanes = self.layout, self.layout.n_lanes
        n_groups, n_blocks = layout.only_policy.size, layout.n_blocks
        places = self._places
        first, n_in_turn = (self._share.first_group, self._share.n_groups) if self._share else (0, n_groups)
        turns = 1 + (first + np.arange(n_groups)) * self.period // n_in_turn
        limit = turns if self.batch == 1 else np.full(n_groups, self.period)
        return {
            "c": self._zeros(_power_of_two(self._tail + places) * n_lanes),
            **{name: self._zeros(places * n_lanes) for name in ("d", "h", "q")},
            "m_step": np.zeros(self._n_times),
            "kind": np.zeros((n_groups, self._n_times), dtype=np.uint8),
            **{name: np.zeros(n_groups, np.int64) for name in ("flushed_at", "tail_from", "n_pending")},
            "limit": limit.astype(np.int64),
            **{name: np.zeros(n_blocks, dtype=np.int64) for name in ("tail_needed", "w_at")},
        }

    @property
    def _places(self) -> int:
        """Steps after which what is pending is written, however little it is: who rests can wait for longer."""
        may_rest = self._share.may_rest if self._share else (self.layout.only_policy >= 0).any()
        return _WAIT * self.period if may_rest and self.config.w_rule != "every-step" else self.period

    def _noted(self) -> dict[str, Any]:
        """Return what is told of the steps that wait; the last column of each is for empty lanes, and stays 0."""
        batch, n_groups = self.batch, self._policy.size
        told = {
            "signal_rho": self._zeros(batch, int(self._policy.max()) + 2),
            "signal_c": self._zeros(batch, int(self._cumulant.max()) + 2),
            "signal_gamma": self._zeros(batch + 1, n_groups + 1),
            "signal_lam": self._zeros(batch + 1, n_groups + 1),
            "signal_z": self._zeros(batch, self.n_demons + 1),
            "signal_changes": np.zeros((batch, 2), dtype=np.int64),
            "predictions": np.zeros(self.n_demons),
        }
        told["signal_gamma"][-1, :-1] = np.nan  # so that the first transition's differ
        return told

    def _rules(self) -> dict[str, Any]:
        """Return what distinguishes this engine from another."""
        return {
            "every_step": self.config.w_rule == "every-step",
            "clips": self._clips,
            "drop_below": self._drop_below,
            "largest_tail": self._tail,
            "one_over_tau": 1.0 / self.config.mspbe_tau,
            "largest_step": LARGEST_STEP[self.config.dtype],
            "max_finite": max_finite(self.dtype),
            "period": self.period,
            "longest_wait": self._places,
            "n_threads": 1,
            "row_of": self._row_of,
            "feature_of": self._feature_of,
            "clock": self._clock,
        }

    def _shared(self, n_active: int) -> dict[str, Any]:
        """Return what all demons share of the past, and scratch paper, for so many active features."""
        n, batch, n_times = self.n_features, self.batch, self._n_times
        n_kinds, longest = 2 + self.config.vector_mspbe, self._tail + _WAIT * self.period + 2
        lists = {f"run_{name}": np.zeros((2, n), dtype=np.int32) for name in ("row", "first", "last")}
        return {
            "bits": np.zeros((n_times, -(-n // 64)), dtype=np.uint64),
            "active": np.zeros((batch + 1, n_active), dtype=np.int64),
            "changed": np.zeros((2, 2, n_active), dtype=np.int64),
            "n_changed": np.zeros((2, 2), dtype=np.int64),
            "overlap": self._zeros(batch + 1, n_times),
            **lists,
            "run_ends": np.zeros((2, 2 * n_active * longest), dtype=np.int32),
            "run_time": np.zeros((2, n_times + 2), dtype=np.int64),
            "run_place": np.zeros(n_times + 2, dtype=np.int32),
            "n_runs": np.zeros(2, dtype=np.int64),
            "table": self._zeros(self._n_threads, (n_times + 2) * n_kinds * _VECTOR),
            "foreseen": self._zeros(self._n_threads, 2, (batch + 1) * _VECTOR),
            "n_active": n_active,
        }

    def _make_ready(self, n_rows: int) -> None:
        """Have memory put behind the chunks of so many rows of weights."""
        while self._n_ready < n_rows:
            self._touch_on(CHUNK * self.layout.n_lanes)

    def _touch_on(self, n: int) -> None:
        """Have memory put behind so many more numbers of the next chunk, of each kind of weight."""
        chunk, span = CHUNK * self.layout.n_lanes, self._span
        first = self._n_ready // CHUNK * chunk + self._n_touched
        self._n_touched = min(self._n_touched + n, chunk)
        last = self._n_ready // CHUNK * chunk + self._n_touched
        touch(*(a[first:last] for a in (span.theta, span.w, span.m)), n_threads=self._n_threads)
        if self._n_touched == chunk:
            self._n_ready, self._n_touched = self._n_ready + CHUNK, 0

    def _look_ahead(self, n_active: int) -> None:
        """Have memory put behind rows in good time, a part of a chunk in each step; else, all that a step may need."""
        needed = min(self.n_features, int(self._clock[N_ROWS]) + n_active)
        if self._n_ready < needed:
            self._make_ready(needed)
        elif self._n_ready < min(self.n_features, needed + CHUNK):
            self._touch_on(max(_LEAST_TOUCHED, CHUNK * self.layout.n_lanes // _PARTS))

    # ---- the stream -----------------------------------------------------------------------------------------------

    def begin(self, tiles: Integers, gamma: Any = None, lam: Any = None) -> Floats:  # noqa: ARG002 - decay nothing
        """Start a stream at `tiles`, (n_active,), with every trace at zero: `Engine.begin`."""
        self.catch_up()
        self._check_size(tiles)
        self._look_ahead(tiles.size)
        transition.begin(self._native, self._entry, tiles)
        self.latest = self._span.predictions.copy()
        return self.latest

    def _check_size(self, tiles: Integers) -> None:
        """Fix the number of active features the first time, and refuse another one later."""
        if self._clock[NOW] < 0:
            self._span = self._span._replace(**self._shared(tiles.size))
            self._held = None
        elif tiles.size != self._span.n_active:
            raise ValueError(f"tiles must be {self._span.n_active} as in the first state, not {tiles.size}")

    def learn(self, tiles: Integers, signals: Signals, *, is_last: bool = False) -> Floats:
        """Learn from the transition to `tiles`, (n_active,), or note it until a batch is full: `Engine.learn`."""
        if signals is not self._signals:
            self._check(signals)
            self._signals, self._step = signals, None
            self._clock[IS_KNOWN] = 0
        self._look_ahead(tiles.size)
        self._m_scale *= self._m_decay
        self.n_waiting += 1
        n_steps = self.n_waiting if self.n_waiting >= self.batch else 0
        m_step = 1.0 / (self.config.mspbe_tau * self._m_scale)
        how = (np.ascontiguousarray(tiles, dtype=np.int64), m_step, is_last, n_steps)
        native = self._native
        if self._step is None:
            self._step = bind(transition.step, native, self._entry, hold(signals), like=how)
        found = self._step(*how)
        if n_steps:
            self._taken(found)
        return self.latest

    def _check(self, signals: Signals) -> None:
        """Raise ValueError where signals do not fit: kernels write as many as they are given."""
        of = self._span
        told = (of.signal_rho, of.signal_gamma, of.signal_lam, of.signal_c, of.signal_z)
        for name, numbers in zip(("rho_t", "gamma_tp1", "lam_tp1", "c_tp1", "z_tp1"), told, strict=True):
            shape, expected = np.shape(getattr(signals, name)), (numbers.shape[1] - 1,)
            if shape != expected:
                raise ValueError(f"{name} must have the shape {expected}, not {shape}")

    def catch_up(self) -> None:
        """Take the steps that were only noted so far."""
        if self.n_waiting:
            self._taken(transition.take(self._native, self._entry, self.n_waiting))

    def _taken(self, found: int) -> None:
        """Take note that all steps that were noted are taken."""
        self.flags, self.n_waiting = self.flags | int(found), 0
        self.latest = self._span.predictions.copy()
        if self._m_scale < SMALLEST_SCALE:  # multiply out, far from overflow
            for numbers in (self._span.m, self._span.m_step):
                numbers *= numbers.dtype.type(self._m_scale)
            self._m_scale = 1.0

    @property
    def _native(self) -> Any:
        """All that a step needs in native form; in a forked process, which has no other threads, for one."""
        n_read = self.layout.n_lanes * self._span.n_active * self.batch  # numbers in a step, more or less
        n_threads = 1 if n_read < SMALLEST_SHARED_WORK else threads_here(self._n_threads)
        if self._held is None or n_threads != self._span.n_threads:
            self._span = self._span._replace(n_threads=n_threads)
            self._held = hold(self._span)
            self._entry, self._step = entry_of(transition.do_task, self._held), None
        return self._held

    def _flush(self) -> None:
        """Write all pending updates."""
        self.catch_up()
        if self._clock[NOW] >= 0:
            self.flags |= int(transition.flush(self._native, self._entry))

    # ---- what it is asked: nothing of it changes what is learned ----------------------------------------------------

    def predict(self, tiles: Integers) -> Floats:
        """Return theta.phi of all demons at `tiles`, float64, shape (n_demons,); nothing changes."""
        return self._of_demons(self._predict(tiles, 0, self.layout.n_blocks))

    def predict_one(self, demon: int, tiles: Integers) -> float:
        """Return one demon's prediction at `tiles`, (n_active,)."""
        lane = int(self.layout.lane[demon])
        b = self.layout.block_of(lane)
        return float(self._predict(tiles, b, b + 1)[lane])

    def _predict(self, tiles: Integers, first: int, last: int) -> Reals:
        """Return theta.phi of every lane of some blocks."""
        self.catch_up()
        bits, rows = np.zeros(self._span.bits.shape[1], dtype=np.uint64), np.zeros(tiles.size, dtype=np.int64)
        overlap, sums = self._zeros(self._n_times), self._zeros(self.layout.n_lanes)
        transition.predict(self._native, tiles, np.array([first, last]), bits, rows, overlap, sums)
        return sums

    def _of_demons(self, lanes: Reals) -> Floats:
        """Return one number per demon, float64, shape (n_demons,)."""
        return lanes[self.layout.lane].astype(np.float64)

    @property
    def td_error(self) -> Floats:
        """TD errors of the last step, shape (n_demons,)."""
        self.catch_up()
        return self._of_demons(self._span.td_error)

    @property
    def mspbe_scalar(self) -> Floats:
        """Scalar MSPBE estimate, signed, shape (n_demons,)."""
        self.catch_up()
        return self._of_demons(self._span.mspbe)

    @property
    def max_trace(self) -> Floats:
        """A number that no |e| has passed so far, shape (n_demons,).

        It is the sum of the trace's factors, and so the largest |e| itself where a feature is always on (a bias).
        """
        self.catch_up()
        return self._of_demons(self._span.max_trace)

    def mspbe_vector(self) -> Floats:
        """Return the vector MSPBE estimate m.w, shape (n_demons,); ValueError where m is not kept."""
        if not self.config.vector_mspbe:
            raise ValueError("this learner keeps no vector MSPBE estimate: set vector_mspbe=True in its LearnerConfig")
        estimate = np.zeros(self.layout.n_lanes)
        for b, (_, w, m) in self._read():
            lanes = slice(self.layout.start[b], self.layout.start[b + 1])
            estimate[lanes] = np.einsum("fl,fl->l", m, w, dtype=np.float64)
        return self._of_demons(estimate * self._m_scale)

    def weights(self, demons: Integers | None = None) -> tuple[Reals, Reals]:
        """Return copies of theta and w of some demons, (n,), or all, each (n, n_features), in the engine's dtype."""
        theta, w = self._by_feature(("theta", "w"), demons)
        return theta, w

    def mspbe_trace(self) -> Reals:
        """Return a copy of m, shape (n_demons, n_features)."""
        (m,) = self._by_feature(("m",))
        return np.asarray(m * self.dtype.type(self._m_scale))

    def _by_feature(self, names: tuple[str, ...], demons: Integers | None = None) -> Reals:
        """Return theta, w or m of some demons, (n,), or all: (names, n, n_features); only their blocks are read."""
        asked = np.arange(self.n_demons) if demons is None else demons
        out = np.zeros((len(names), asked.size, self.n_features), dtype=self.dtype)
        features, lanes = self._feature_of[: self._clock[N_ROWS]], self.layout.lane[asked]
        of_block = np.searchsorted(self.layout.start, lanes, side="right") - 1
        for b, rows in self._read(np.unique(of_block)):
            here = np.flatnonzero(of_block == b)
            for of_name, name in zip(out, names, strict=True):
                of_kind = rows[_ROWS.index(name)][:, lanes[here] - self.layout.start[b]]
                of_name[np.ix_(here, features)] = of_kind.T
        return out

    def _read(self, blocks: Integers | None = None) -> Iterator[tuple[int, tuple[Reals, Reals, Reals]]]:
        """Yield what theta, w and m of blocks would be if all were written now, as (rows in use, lanes)."""
        self.catch_up()
        n, flags, listed = int(self._clock[N_ROWS]), self._span.is_flagged.copy(), -1
        for b in range(self.layout.n_blocks) if blocks is None else blocks.tolist():
            width, g = int(np.diff(self.layout.start)[b]), int(self.layout.flush_group[b])
            theta, w, m = (self._rows(name, b).reshape(-1)[: n * width].copy() for name in _ROWS)
            if self._clock[NOW] >= 0:
                if g != listed:
                    transition.list_group(self._native, g)
                transition.read_block(self._native, b, theta, w, m)
                listed = g
            yield b, tuple(a.reshape(-1, width) for a in (theta, w, m))  # type: ignore[misc]
        self._span.is_flagged[:] = flags

    def _rows(self, name: str, b: int) -> Reals:
        """Return a view of a block's rows of theta, w or m that are in use, (chunks, CHUNK, lanes)."""
        return rows_of(getattr(self._span, name)[: self._n_in_use], self.layout, b, CHUNK)

    def in_full(self) -> tuple[dict[str, Reals], NDArray[np.bool_], Integers]:
        """Return what is learned, by name and demon, with traces in full; who was set aside; and the present tiles.

        `e` is gamma_t lambda_t e_{t-1} of the present step.
        """
        self._flush()
        theta, w = self.weights()
        numbers = {name: self._of_demons(getattr(self._span, name)) for name in _IN_FULL}
        m = self.mspbe_trace() if self.config.vector_mspbe else np.zeros((0, 0), dtype=self.dtype)
        learned = {"theta": theta, "w": w, "m": m, "e": self._traces(), **numbers}
        tiles = self._feature_of[self._span.active[self._clock[NOW] % (self.batch + 1)]]
        return learned, self._is_aside[self.layout.lane], tiles

    def _traces(self) -> Reals:
        """Return v_t = c_t (phi_t + v_{t-1}), which is gamma_{t+1} lambda_{t+1} e_t, of the latest step, by demon."""
        span, now = self._span, int(self._clock[NOW])
        e = np.zeros((self.n_demons, self.n_features), dtype=self.dtype)
        for b in range(self.layout.n_blocks):
            times = np.arange(span.tail_from[self.layout.flush_group[b]], now)
            (c,) = rows_of(span.c, self.layout, b, span.c.size // self.layout.n_lanes)
            factor = np.cumprod(c[times % len(c)][::-1], axis=0)[::-1]
            bits = span.bits[times % len(span.bits)].view(np.uint8)
            phi = np.unpackbits(bits, axis=1, bitorder="little")[:, : self._clock[N_ROWS]]
            demon = self.layout.demon[self.layout.start[b] : self.layout.start[b + 1]]
            of_rows = factor.T[demon >= 0] @ phi.astype(self.dtype)
            e[np.ix_(demon[demon >= 0], self._feature_of[: self._clock[N_ROWS]])] = of_rows
        return e

    # ---- demons set aside -------------------------------------------------------------------------------------------

    def newly_broken(self) -> dict[int, str]:
        """Return the demons flagged since they were last asked for, and what is wrong: not finite, or past a bound.

        Steps that are only noted so far can have flagged nobody yet.
        """
        if not self.flags & SOMEBODY_IS_FLAGGED:
            return {}
        self.flags &= ~SOMEBODY_IS_FLAGGED
        is_new = (self._span.is_flagged != 0) & ~self._is_aside & (self.layout.demon >= 0)
        self._span.is_flagged[:] = 0
        return dict(sorted(self._ailments(np.flatnonzero(is_new))))

    def _ailments(self, lanes: Integers) -> Iterator[tuple[int, str]]:
        """Yield the demons on some lanes and what is wrong with them."""
        of_block, span = np.searchsorted(self.layout.start, lanes, side="right") - 1, self._span
        for b, rows in self._read(np.unique(of_block)):
            for lane in lanes[of_block == b].tolist():
                numbers = (float(a[lane]) for a in (span.prediction, span.mspbe, span.td_error, span.bound))
                theta, w, m = (of_kind[:, lane - self.layout.start[b]] for of_kind in rows)
                yield int(self.layout.demon[lane]), Patient(theta, w, m, *numbers).ailment()

    def set_aside(self, demon: int) -> None:
        """Freeze one demon's weights at zero for good; its siblings are not touched."""
        self.catch_up()
        lane, span = int(self.layout.lane[demon]), self._span
        b = self.layout.block_of(lane)
        own = [self._rows(name, b) for name in _ROWS]
        own += [rows_of(a, self.layout, b, a.size // self.layout.n_lanes) for a in (span.c, span.d, span.h, span.q)]
        for rows in own:
            rows[..., lane - self.layout.start[b]] = 0
        for name in OF_LANES:
            if name not in ("bound", "max_trace"):
                getattr(span, name)[lane] = 0
        for told in (span.policy, span.trace_group, span.cumulant, span.outcome):
            told[lane] = -1
        self._is_aside[lane], span.predictions[demon], self.latest[demon] = True, 0.0, 0.0

    def set_bounds(self, bound: Floats) -> None:
        """Set the |theta| past which a demon is flagged, shape (n_demons,), in the steps only noted so far too."""
        self._span.bound[self.layout.lane] = np.minimum(bound, max_finite(self.dtype))

    def reset_weights(self, theta: Reals | None = None) -> None:
        """Set theta, (n_demons, n_features), to zero unless given: `Engine.reset_weights`."""
        if theta is not None:
            check_weights(theta, (self.n_demons, self.n_features), self.dtype)
            self._number_features(np.flatnonzero((theta != 0).any(axis=0)))
        self._flush()
        features = self._feature_of[: self._clock[N_ROWS]]
        for b in range(self.layout.n_blocks):
            start, stop = int(self.layout.start[b]), int(self.layout.start[b + 1])
            demon, rows = self.layout.demon[start:stop], self._rows("theta", b)
            sits, into = (
                (demon >= 0) & ~self._is_aside[start:stop],
                np.zeros((rows.size // (stop - start), stop - start)),
            )
            if theta is not None:
                into[: features.size, sits] = theta[np.ix_(demon[sits], features)].T
            rows[:] = into.reshape(rows.shape)
        self._sum_bases()

    def _number_features(self, features: Integers) -> None:
        """Give features rows that were never on yet."""
        self.catch_up()
        new = features[self._row_of[features] < 0]
        n = int(self._clock[N_ROWS])
        self._row_of[new], self._feature_of[n : n + new.size] = np.arange(n, n + new.size), new
        self._look_ahead(new.size)
        self._clock[N_ROWS] += new.size

    def _sum_bases(self) -> None:
        """Write what is known of the present state anew, by the weights as written; nothing is pending."""
        if self._clock[NOW] < 0:
            return
        active = self._span.active[self._clock[NOW] % (self.batch + 1)]
        transition.sum_bases(self._native, active)
        self._span.prediction[:] = self._span.base
        self._span.predictions[:] = self._of_demons(self._span.prediction)
        self.latest = self._span.predictions.copy()

    # ---- stopping, and going on from there --------------------------------------------------------------------------

    @property
    def arrays(self) -> SpanArrays:
        """What kernels read and write."""
        return self._span

    def state(self) -> State:
        """Return copies of everything this engine's future depends on, by name; waiting steps keep waiting.

        Of the weights it has the rows in use. Nothing in it depends on the number of threads.
        """
        arrays = {name: a for name, a in self._span._asdict().items() if isinstance(a, np.ndarray)}
        kept = {name: a.copy() for name, a in arrays.items() if name not in _NOT_SAVED}
        rows = {name: arrays[name][: self._n_in_use].copy() for name in _ROWS}
        return {**kept, **rows, "n_active": np.array(self._span.n_active), **attributes(self, *_OWN_STATE)}

    def restore(self, state: State) -> None:
        """Go on from what `state` returned, of an engine that was made, and rearranged, in the same way.

        Rows that the state does not have become zero.

        Raises:
            ValueError: If the state was copied over several steps, as version 0.1.0 copied large Hordes.
        """
        if "put_in_at" in state:
            raise ValueError(
                "its state was copied over several steps, a format that this version no longer reads: learn from the "
                "record again (horde learn --backend replay --log RUN)"
            )
        self._forget_process()
        if int(state["n_active"]) != self._span.n_active:
            self._span = self._span._replace(**self._shared(int(state["n_active"])))
        for name in _ROWS:
            getattr(self._span, name)[: self._n_in_use] = 0
        for name in SpanArrays._fields:
            if name in _ROWS:
                getattr(self._span, name)[: state[name].size] = state[name]
            elif name in state and name != "n_active":
                getattr(self._span, name)[...] = state[name]
        put_back(self, state, *_OWN_STATE)
        self._make_ready(int(self._clock[N_ROWS]))

    @property
    def _n_in_use(self) -> int:
        """Numbers in the chunks of rows that are in use."""
        return -(-int(self._clock[N_ROWS]) // CHUNK) * CHUNK * self.layout.n_lanes

    # ---- demons that come and go ------------------------------------------------------------------------------------

    def rearrange(self, mapping: DemonMapping) -> None:
        """Go on with other demons. What those that stay have learned, their traces and their estimates go with them.

        What is pending is written, so that they go on as if nobody had come or gone but for rounding. Newcomers begin
        at the present with nothing learned and no trace. While the weights move, there are two copies of one of them.
        """
        self._flush()
        old, before, latest, was_aside = self.layout, self._span, self.latest, self._is_aside
        self._forget_process()
        self.n_demons, self._share = mapping.group.size, None
        cumulant = np.arange(self.n_demons) if mapping.cumulant is None else mapping.cumulant
        self._lay_out(
            mapping.group, mapping.policy, cumulant, {name: getattr(before, name) for name in self._shared(0)}
        )
        moved = moves(old, self.layout, mapping.old_index)
        rows = {name: getattr(before, name) for name in ("theta", "w", "m")}
        nothing: Any = np.zeros(0, dtype=self.dtype)
        before = before._replace(**dict.fromkeys(rows, nothing))
        for name in tuple(rows):
            self._take_rows(rows.pop(name), old, getattr(self._span, name), moved)
        self._take_tails(before, old, moved)
        self._take_numbers(mapping, before, old, was_aside)
        self.latest = np.where(mapping.is_new, 0.0, latest[mapping.old_index])
        self._span.predictions[:] = self.latest

    def _take_rows(self, numbers: Reals, old: Layout, into: Reals, moved: list[Move]) -> None:
        """Take whole columns of weights along."""
        n = self._n_in_use // self.layout.n_lanes if into.size else 0
        for move in moved if n else ():
            came_from = rows_of(numbers[: n * old.n_lanes], old, move.source, CHUNK)
            rows_of(into[: n * self.layout.n_lanes], self.layout, move.block, CHUNK)[..., move.here] = came_from[
                ..., move.there
            ]

    def _take_tails(self, before: SpanArrays, old: Layout, moved: list[Move]) -> None:
        """Take along what is left of the traces: a flush group keeps as much as the longest that comes to it."""
        span, now = self._span, max(int(self._clock[NOW]), 0)
        span.flushed_at[:], span.tail_from[:] = now, now
        for move in moved:
            first, g = int(before.tail_from[old.flush_group[move.source]]), self.layout.flush_group[move.block]
            span.tail_from[g] = min(int(span.tail_from[g]), first)
            (came_from,) = rows_of(before.c, old, move.source, before.c.size // old.n_lanes)
            (into,) = rows_of(span.c, self.layout, move.block, span.c.size // self.layout.n_lanes)
            times = np.arange(first, now)
            into[np.ix_(times % len(into), move.here)] = came_from[np.ix_(times % len(came_from), move.there)]

    def _take_numbers(
        self, mapping: DemonMapping, before: SpanArrays, old: Layout, was_aside: NDArray[np.bool_]
    ) -> None:
        """Write the numbers of the lanes: those that they had, or a newcomer's."""
        span, to, fresh = self._span, self.layout.lane, self.layout.lane[mapping.is_new]
        staying = to[~mapping.is_new]
        came_from = old.lane[mapping.old_index[~mapping.is_new]]
        for name in OF_LANES:
            getattr(span, name)[staying] = getattr(before, name)[came_from]
        span.alpha[fresh], span.alpha_w[fresh] = mapping.alpha, mapping.alpha_w
        span.w_at[:] = NO_TIME
        self._is_aside[staying] = was_aside[came_from]
        for told in (span.policy, span.trace_group, span.cumulant, span.outcome):
            told[self._is_aside] = -1


def _power_of_two(n: int) -> int:
    """Return the least power of two that is not below n."""
    return 1 << max(n - 1, 1).bit_length()
