"""SpanEngine: the fast engine. It computes the same as `PlainEngine` without stored traces and without dense passes.

Each step stores four numbers per demon instead of updating its weights; pending updates are written every K steps, one
flush group at a time. Predictions, TD errors and estimates are still computed on every step. If `batch` exceeds one,
steps are queued and processed together when the batch is full or a result is read: the same results, later and with
less work. The algebra is in `kernels/span/step.py`. It does not cover the trace rule "capped" and traces longer than
LARGEST_TAIL steps; use `PlainEngine` for these.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, TypedDict, Unpack

import numba
import numpy as np
from numpy.typing import NDArray

from horde_agent.kernels._jit import Constant, threads_here
from horde_agent.kernels.checks import DEMON_FLAGGED, Signals
from horde_agent.kernels.rules import Rule, rule
from horde_agent.kernels.span import transition
from horde_agent.kernels.span.arrays import (
    ABTD,
    CHUNK,
    CLIPPED,
    IS_KNOWN,
    N_CLOCKS,
    N_ROWS,
    NO_TIME,
    NOW,
    PLAIN,
    TREE_BACKUP,
    SpanArrays,
)
from horde_agent.kernels.vectors import bind, entry_of, hold
from horde_agent.learning.engine import (
    DROP_BELOW,
    LARGEST_STEP,
    SMALLEST_SCALE,
    SMALLEST_SHARED_WORK,
    FlaggedDemon,
    check_weights,
    max_finite,
    restored_streams,
    streams_state,
)
from horde_agent.learning.layout import (
    LANE_UNIT,
    DemonMapping,
    Layout,
    Move,
    ShardLayout,
    aligned_zeros,
    assign_lanes,
    moves,
    prefault,
    rows_of,
)
from horde_agent.learning.plain import PlainEngine
from horde_agent.learning.rules import PAPER_CONFIG, LearnerConfig
from horde_agent.saving import State, attributes, put_back
from horde_agent.types import Floats, Integers, Reals

LARGEST_TAIL = 1_000  # steps of a trace in addition to pending ones; longer traces need the plain engine

_PERIODS = {False: 64, True: 128}  # steps between two flushes, eager and deferred
_WIDEST, _MANY, _WIDEST_OF_MANY = 128, 8_192, 512  # lanes of a block; from _MANY demons on, rows exceed the caches
_FIRST_ROWS = 4 * CHUNK  # rows that are pre-faulted before the first step
_PARTS, _LEAST_TOUCHED = 128, 1 << 19  # steps over which a chunk is pre-faulted; least numbers per step
_WAIT = 3  # periods after which pending updates are written in any case
_VECTOR, _WIDE = 80, 64  # lanes of scratch; of a block from which on wide vectors pay
_ADDRESSES = ("_held", "_entry", "_signals", "_step")
_FIELDS = SpanArrays._fields
OF_LANES = _FIELDS[_FIELDS.index("prediction") : _FIELDS.index("w_at")]  # one number per lane
_ROWS = ("theta", "w", "m")  # rows in use come first
_RINGS_OF_STREAM, _TIMES_OF_STREAM = ("c", "factor", "second"), ("flushed_at", "tail_from")
_LANES_OF_STREAM = ("e_phi", "e_w", "e_e", "e_sum", "y_phi", "y_w", "e_y", "x_phi", "gamma_t", "lam_t")
_TILES_OF_STREAM = ("bits", "active", "changed", "n_changed")
# Not saved: the layout, which follows from the demons, and scratch.
_NOT_SAVED = (
    *("demon", "start", "flush_group", "first_block", "only_policy", "overlap", "table", "foreseen"),
    *("run_row", "run_first", "run_last", "run_ends", "run_time", "run_place", "n_runs", *_ROWS),
)
_OWN_STATE = ("_is_aside", "_m_scale", "flags", "n_waiting", "latest")
_TRACE_RULES = {"plain": PLAIN, "clipped": CLIPPED, "tree-backup": TREE_BACKUP, "abtd": ABTD}
_TRAITS = _FIELDS[_FIELDS.index("has_w") : _FIELDS.index("rests")]  # of update rules, which their files set
_IN_FULL = ["prediction", "td_error", "mspbe", "max_trace", "alpha", "alpha_w", "bound"]


def trace_length(decay: float, drop_below: float) -> int:
    """Return the length in steps of a trace whose gamma lambda is at most `decay`."""
    if decay <= 0.0:
        return 0
    if decay >= 1.0 or drop_below <= 0.0:
        return LARGEST_TAIL + 1
    return int(np.ceil(np.log(drop_below * (1.0 - decay)) / np.log(decay)))


def is_too_long(decay: float, config: LearnerConfig) -> bool:
    """Return whether traces of this largest gamma lambda, below 1, are longer than the span engine stores.

    With 1 that depends on the states: the engine changes to plain when a trace becomes too long.
    """
    return config.bounds_trace and decay < 1.0 and trace_length(decay, DROP_BELOW[config.dtype]) > LARGEST_TAIL


def widest(n_demons: int, *, is_deferred: bool) -> int:
    """Return the largest number of lanes of a block."""
    return _WIDEST_OF_MANY if n_demons >= _MANY and not is_deferred else _WIDEST


class BatchOptions(TypedDict, total=False):
    """Batching options of the span engine; results differ only by rounding.

    Attributes:
        batch: Steps that are queued before they are processed; default 1, at once.
        period: Steps K between two flushes, at least `batch`; default 64, or 128 with batches.
        widest: Largest number of lanes of a block; by default chosen from the number of demons.
        share: Layout as in the whole Horde, if these demons are a shard of it.
    """

    batch: int
    period: int
    widest: int
    share: ShardLayout | None


class SpanEngine:
    """The fast engine: GTD(lambda) for many demons that share one stream of tiles.

    Args:
        group: Trace group of each demon, shape (n_demons,), numbered from 0. The demons of a group have the same
            policy, continuation and trace decay.
        n_features: Length n of the weight vectors.
        alpha, alpha_w: Primary and secondary step sizes, already divided by the number of active tiles: a number, or
            one per demon.
        config: The other learning options. Its step sizes are ignored.
        policy: Policy of each trace group, shape (n_groups,): groups of one policy have the same rho on every step and
            adjacent lanes. By default one each.
        cumulant: Index of each demon's cumulant in the signals, shape (n_demons,); by default one each.
        largest_decay: Upper bound of gamma lambda; it determines the largest trace length.
        options: Batching, see `BatchOptions`.

    Attributes:
        latest: Predictions at the latest completed step, float64, shape (n_demons,).
        n_waiting: Number of queued steps.
        stream: Number of the selected stream.
        flags: Bits: DEMON_FLAGGED if a demon is flagged (`pop_flagged`), TAIL_TOO_LONG if a trace is too long.

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
        **options: Unpack[BatchOptions],
    ) -> None:
        if config.trace_rule == "capped":
            raise ValueError('SpanEngine does not support trace_rule="capped": use PlainEngine')
        if rule(config.algorithm).SPAN is None:
            raise ValueError(f"SpanEngine does not support algorithm {config.algorithm!r}: use PlainEngine")
        self.config, self.n_features, self.n_demons, self.dtype = config, n_features, len(group), np.dtype(config.dtype)
        self.batch = batch = options.get("batch", 1)
        self.period = max(options.get("period", _PERIODS[batch > 1]), batch)
        self._widest = options.get("widest", 0)
        self._share = options.get("share")
        self._drop_below = DROP_BELOW[config.dtype] if config.bounds_trace else 0.0
        self._tail = self._tail_for(largest_decay)
        self._n_threads = int(numba.config.NUMBA_NUM_THREADS)  # type: ignore[attr-defined]
        self._row_of, self._clock = np.full(n_features, -1), np.zeros(N_CLOCKS, dtype=np.int64)
        self._feature_of, self._clock[NOW] = np.zeros(n_features, dtype=np.int64), -1
        self._lay_out(
            np.asarray(group, dtype=np.int64),
            np.arange(int(np.max(group)) + 1) if policy is None else policy,
            np.arange(len(group)) if cumulant is None else cumulant,
            self._shared_arrays(0),
        )
        self._span.alpha[self.layout.lane] = 1.0 if self._rule.IGNORES_STEP_SIZE else alpha
        self._span.alpha_w[self.layout.lane] = alpha_w
        self._m_scale, self._m_decay = 1.0, 1.0 - 1.0 / config.mspbe_tau
        self.flags = self.n_waiting = self.stream = 0
        self._streams: dict[int, State] = {}  # what `_of_stream` returns of the others
        self.latest: Floats = np.zeros(self.n_demons)

    @property
    def _rule(self) -> Rule:
        """The update rule; not an attribute, because modules cannot be copied."""
        return rule(self.config.algorithm)

    @property
    def _has_w(self) -> bool:
        return "has_w" in self._rule.SPAN

    @property
    def _has_second(self) -> bool:
        """True if the rule has a second trace."""
        return bool({"has_difference", "has_dutch"} & set(self._rule.SPAN))

    @property
    def _has_m(self) -> bool:
        return self._has_w and self.config.vector_mspbe

    @property
    def _decays(self) -> bool:
        """True if w decays where rho = 0."""
        return self._has_w and self.config.w_rule == "every-step"

    # ---- arrays -----------------------------------------------------------------------------------------------------

    def _tail_for(self, largest_decay: float) -> int:
        """Return the number of steps of traces to store, in addition to pending ones."""
        decay = 1.0 if self.config.trace_rule == "abtd" else largest_decay  # the questions' lambda is not used
        return min(LARGEST_TAIL, trace_length(decay, self._drop_below))

    @property
    def _n_times(self) -> int:
        """Number of steps for which the active features are stored."""
        return _power_of_two(self._tail + _WAIT * self.period + self.batch + 2)

    def _lay_out(self, group: Integers, policy: Integers, cumulant: Integers, shared: dict[str, Any]) -> None:
        """Assign lanes and allocate all arrays except `shared`."""
        self._group, self._policy, self._cumulant = group, policy, cumulant
        most_lanes = self._widest or widest(group.size, is_deferred=self.batch > 1)
        seating = self._share.seating if self._share else assign_lanes(group, policy, most_lanes)
        self.layout = Layout(policy[group], seating)
        self._is_aside = np.zeros(self.layout.n_lanes, dtype=bool)
        self._span = SpanArrays(
            **self._lane_arrays(),
            **self._weight_arrays(),
            **self._history_arrays(),
            **self._signal_arrays(),
            **self._settings(),
            **shared,
        )
        self._span.bound[:] = max_finite(self.dtype)
        self._n_ready = self._n_touched = 0  # pre-faulted rows, and numbers of the next chunk of rows
        self._drop_addresses()
        self._prefault_first()

    def _drop_addresses(self) -> None:
        """Drop addresses, which are invalid in a copy or another process."""
        self._held: Any = None
        self._entry: Any = None
        self._step: Any = None
        self._signals: Signals | None = None

    def __getstate__(self) -> dict[str, Any]:
        """Return all attributes except addresses."""
        return {name: value for name, value in vars(self).items() if name not in _ADDRESSES}

    def __setstate__(self, state: dict[str, Any]) -> None:
        vars(self).update(state)
        self._drop_addresses()

    def _prefault_first(self) -> None:
        """Pre-fault the memory of the first steps."""
        span, widths = self._span, np.diff(self.layout.start)
        places = span.d.size // self.layout.n_lanes
        used = np.where(span.only_policy[span.flush_group] >= 0, places, self.period) * widths
        pending = (span.d, span.h, span.q, span.extra)
        parts = [a[places * s :][:n] for a in pending for s, n in zip(span.start, used, strict=False)]
        prefault(span.c, *parts, n_threads=self._n_threads)
        self._prefault_rows(min(self.n_features, max(int(self._clock[N_ROWS]), _FIRST_ROWS)))

    def _zeros(self, *shape: int) -> Reals:
        """Return zeros of the engine's dtype, aligned to a cache line."""
        return aligned_zeros(shape, self.dtype)

    def _lane_arrays(self) -> dict[str, Any]:
        """Return the assignment of lanes."""
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

    def _weight_arrays(self) -> dict[str, Any]:
        """Return rows of weights, and arrays with one number per lane."""
        n_rows, n_lanes = -(-self.n_features // CHUNK) * CHUNK, self.layout.n_lanes
        return {
            "theta": self._zeros(n_rows * n_lanes),
            "w": self._zeros(n_rows * n_lanes if self._has_w else 0),
            "m": self._zeros(n_rows * n_lanes if self._has_m else 0),
            "numbers": self._zeros(len(self._rule.numbers) * n_lanes),
            **{name: self._zeros(n_lanes) for name in OF_LANES},
            "w_left": np.ones(n_lanes, dtype=self.dtype),
        }

    def _history_arrays(self) -> dict[str, Any]:
        """Return each demon's history, and the schedules of the flush groups."""
        layout, n_lanes = self.layout, self.layout.n_lanes
        n_groups, n_blocks = layout.only_policy.size, layout.n_blocks
        places = self._places
        groups = self._share.groups if self._share else np.arange(n_groups)
        turns = 1 + groups * self.period // (self._share.n_groups if self._share else n_groups)
        c_size = _power_of_two(self._tail + places) * n_lanes
        limit = turns if self.batch == 1 else np.full(n_groups, self.period)
        return {
            "c": self._zeros(c_size),
            "factor": self._zeros(c_size if {"has_source", "shrinks_w", "has_dutch"} & set(self._rule.SPAN) else 0),
            "second": self._zeros(c_size if self._has_second else 0),
            "extra": self._zeros(places * n_lanes if self._has_second else 0),
            **{name: self._zeros(places * n_lanes) for name in ("d", "h", "q")},
            "m_step": np.zeros(self._n_times),
            "kind": np.zeros((n_groups, self._n_times), dtype=np.uint8),
            **{name: np.zeros(n_groups, np.int64) for name in ("flushed_at", "tail_from", "n_pending")},
            "limit": limit.astype(np.int64),
            **{name: np.zeros(n_blocks, dtype=np.int64) for name in ("tail_needed", "w_at")},
        }

    @property
    def _places(self) -> int:
        """Steps after which pending updates are written in any case; more if a group can be idle."""
        may_idle = self._share.may_idle if self._share else (self.layout.only_policy >= 0).any()
        return _WAIT * self.period if may_idle and not self._decays else self.period

    def _signal_arrays(self) -> dict[str, Any]:
        """Return arrays for the signals of queued steps; their last column, for empty lanes, stays 0."""
        batch, n_groups = self.batch, self._policy.size
        arrays = {
            "signal_rho": self._zeros(batch, int(self._policy.max()) + 2),
            "signal_c": self._zeros(batch, int(self._cumulant.max()) + 2),
            "signal_gamma": self._zeros(batch + 1, n_groups + 1),
            "signal_lam": self._zeros(batch + 1, n_groups + 1),
            "signal_z": self._zeros(batch, self.n_demons + 1),
            "signal_interest": self._zeros(batch + 1, self.n_demons + 1),
            "signal_b": np.zeros(batch),
            "signal_changes": np.zeros((batch, 2), dtype=np.int64),
            "predictions": np.zeros(self.n_demons),
        }
        arrays["signal_gamma"][-1, :-1] = np.nan  # so that the first transition's gamma counts as changed
        return arrays

    def _settings(self) -> dict[str, Any]:
        """Return settings, and the arrays that survive a new layout."""
        traits, bound = self._rule.SPAN, self.config.trace_bound
        return {
            "every_step": self.config.w_rule == "every-step",
            "trace_rule": _TRACE_RULES[self.config.trace_rule],
            "trace_bound": bound if self.config.trace_rule == "abtd" else 1.0 / bound,
            "rule": self.config.rule_parameters,
            **{name: Constant(name in traits) for name in _TRAITS},
            "n_numbers": Constant(len(self._rule.NUMBERS)),
            "rests": Constant("never_rests" not in traits),
            "has_second": Constant(self._has_second),
            "drop_below": self._drop_below,
            "drop_second_below": DROP_BELOW[self.config.dtype],
            "largest_tail": self._tail,
            "one_over_tau": 1.0 / self.config.mspbe_tau,
            "largest_step": LARGEST_STEP[self.config.dtype],
            "max_finite": max_finite(self.dtype),
            "period": self.period,
            "longest_wait": self._places,
            "n_threads": 1,
            "most_lanes": Constant(LANE_UNIT if np.diff(self.layout.start).max() < _WIDE else _WIDEST),
            "row_of": self._row_of,
            "feature_of": self._feature_of,
            "clock": self._clock,
        }

    def _shared_arrays(self, n_active: int) -> dict[str, Any]:
        """Return history shared by all demons, and scratch, for `n_active` active features."""
        n, batch, n_times = self.n_features, self.batch, self._n_times
        n_kinds, longest = 1 + self._has_w + self._has_m, self._tail + _WAIT * self.period + 2
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

    def _prefault_rows(self, n_rows: int) -> None:
        """Pre-fault memory for `n_rows` rows of weights."""
        while self._n_ready < n_rows:
            self._prefault_chunk(CHUNK * self.layout.n_lanes)

    def _prefault_chunk(self, n: int) -> None:
        """Pre-fault `n` more numbers of the next chunk of theta, w and m."""
        chunk, span = CHUNK * self.layout.n_lanes, self._span
        first = self._n_ready // CHUNK * chunk + self._n_touched
        self._n_touched = min(self._n_touched + n, chunk)
        last = self._n_ready // CHUNK * chunk + self._n_touched
        prefault(*(a[first:last] for a in (span.theta, span.w, span.m)), n_threads=self._n_threads)
        if self._n_touched == chunk:
            self._n_ready, self._n_touched = self._n_ready + CHUNK, 0

    def _prefault_ahead(self, n_active: int) -> None:
        """Pre-fault a part of the next chunk on each step, or all rows that this step may need."""
        needed = min(self.n_features, int(self._clock[N_ROWS]) + n_active)
        if self._n_ready < needed:
            self._prefault_rows(needed)
        elif self._n_ready < min(self.n_features, needed + CHUNK):
            self._prefault_chunk(max(_LEAST_TOUCHED, CHUNK * self.layout.n_lanes // _PARTS))

    # ---- the stream -----------------------------------------------------------------------------------------------

    def begin(self, tiles: Integers, gamma: Any = None, lam: Any = None) -> Floats:  # noqa: ARG002 - decay nothing
        """Begin a stream at `tiles`, (n_active,), with all traces at zero: `Engine.begin`."""
        self.catch_up()
        self._check_size(tiles)
        self._prefault_ahead(tiles.size)
        transition.begin(self._native, self._entry, tiles)
        self.latest = self._span.predictions.copy()
        return self.latest

    def _check_size(self, tiles: Integers) -> None:
        """Set the number of active features at the first call; raise ValueError if it changes later."""
        if not self._span.n_active:
            self._span = self._span._replace(**self._shared_arrays(tiles.size))
            self._held = None
            self._streams.clear()  # none of them has begun
        elif tiles.size != self._span.n_active:
            raise ValueError(f"tiles must be {self._span.n_active} as in the first state, not {tiles.size}")

    def learn(self, tiles: Integers, signals: Signals, *, is_last: bool = False) -> Floats:
        """Learn from the transition to `tiles`, (n_active,), or queue it until a batch is full: `Engine.learn`."""
        if signals is not self._signals:
            self._check_shapes(signals)
            self._signals, self._step = signals, None
            self._clock[IS_KNOWN] = 0
        self._prefault_ahead(tiles.size)
        self._m_scale *= self._m_decay
        self.n_waiting += 1
        n_steps = self.n_waiting if self.n_waiting >= self.batch else 0
        m_step = 1.0 / (self.config.mspbe_tau * self._m_scale)
        arguments = (np.ascontiguousarray(tiles, dtype=np.int64), m_step, is_last, n_steps)
        native = self._native
        if self._step is None:
            self._step = bind(transition.step, native, self._entry, hold(signals), like=arguments)
        found = self._step(*arguments)
        if n_steps:
            self._finish_steps(found)
        return self.latest

    def _check_shapes(self, signals: Signals) -> None:
        """Raise ValueError if signals have the wrong shape; the kernels do not check bounds."""
        of = self._span
        arrays = (of.signal_rho, of.signal_gamma, of.signal_lam, of.signal_c, of.signal_z)
        for name, numbers in zip(("rho_t", "gamma_tp1", "lam_tp1", "c_tp1", "z_tp1"), arrays, strict=True):
            shape, expected = np.shape(getattr(signals, name)), (numbers.shape[1] - 1,)
            if shape != expected:
                raise ValueError(f"{name} must have the shape {expected}, not {shape}")

    def catch_up(self) -> None:
        """Process all queued steps."""
        if self.n_waiting:
            self._finish_steps(transition.take(self._native, self._entry, self.n_waiting))

    def _finish_steps(self, found: int) -> None:
        """Update flags and predictions after all queued steps were processed."""
        self.flags, self.n_waiting = self.flags | int(found), 0
        self.latest = self._span.predictions.copy()
        if self._m_scale < SMALLEST_SCALE:  # multiply out, far from overflow
            for numbers in (self._span.m, self._span.m_step):
                numbers *= numbers.dtype.type(self._m_scale)
            self._m_scale = 1.0

    @property
    def _native(self) -> Any:
        """The arrays in native form, for one thread if the work is small or the process was forked."""
        n_read = self.layout.n_lanes * self._span.n_active * self.batch  # numbers read per call, approximately
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

    # ---- several streams --------------------------------------------------------------------------------------------

    @property
    def streams(self) -> list[int]:
        """Numbers of the streams that were selected so far, the selected one last."""
        return [*self._streams, self.stream]

    def select_stream(self, stream: int) -> None:
        """Learn from another stream from now on: `Engine.select_stream`.

        Pending updates are written, and e.w is summed again, because other streams have changed w.
        """
        if stream == self.stream:
            return
        self._flush()
        own = self._of_stream()
        self._streams[self.stream] = {name: array.copy() for name, array in own.items()}
        selected = self._streams.pop(stream, None)
        for name, array in own.items():
            array[...] = selected[name] if selected else -(name == "now")
        self.stream = stream
        if self._clock[NOW] < 0:
            return
        if self._has_w:
            transition.sum_traces(self._native, self._entry)
        self._sum_bases()

    def _of_stream(self) -> State:
        """Return views of the arrays that belong to the selected stream; no update is pending."""
        span = self._span
        names = (*_RINGS_OF_STREAM, *_TIMES_OF_STREAM, *_LANES_OF_STREAM, *_TILES_OF_STREAM)
        kept = span.n_numbers * self.layout.n_lanes  # numbers that a gap keeps belong to all streams
        own = {name: getattr(span, name) for name in names}
        return own | {"numbers": span.numbers[kept:], "now": self._clock[NOW : NOW + 1]}

    # ---- reading: nothing here changes what is learned --------------------------------------------------------------

    def predict(self, tiles: Integers) -> Floats:
        """Return theta.phi of all demons at `tiles`, float64, shape (n_demons,), without learning."""
        return self._of_demons(self._predict(tiles, 0, self.layout.n_blocks))

    def predict_one(self, demon: int, tiles: Integers) -> float:
        """Return one demon's prediction at `tiles`, (n_active,)."""
        lane = int(self.layout.lane[demon])
        b = self.layout.block_of(lane)
        return float(self._predict(tiles, b, b + 1)[lane])

    def _predict(self, tiles: Integers, first: int, last: int) -> Reals:
        """Return theta.phi of the lanes of blocks [first, last)."""
        self.catch_up()
        bits, rows = np.zeros(self._span.bits.shape[1], dtype=np.uint64), np.zeros(tiles.size, dtype=np.int64)
        overlap, sums = self._zeros(self._n_times), self._zeros(self.layout.n_lanes)
        transition.predict(self._native, tiles, np.array([first, last]), bits, rows, overlap, sums)
        return sums

    def _of_demons(self, lanes: Reals) -> Floats:
        """Return a lane array in the order of the demons, float64, shape (n_demons,)."""
        return lanes[self.layout.lane].astype(np.float64)

    @property
    def td_error(self) -> Floats:
        """TD errors of the last step, shape (n_demons,)."""
        self.catch_up()
        return self._of_demons(self._span.td_error)

    @property
    def mspbe_scalar(self) -> Floats:
        """Scalar MSPBE estimate, signed, shape (n_demons,); NaN for a rule without w."""
        self.catch_up()
        return self._of_demons(self._span.mspbe) if self._has_w else np.full(self.n_demons, np.nan)

    @property
    def max_trace(self) -> Floats:
        """Upper bound of the largest |e| so far, shape (n_demons,).

        It is the sum of the trace's factors, which equals the largest |e| if a feature is always active (a bias).
        """
        self.catch_up()
        return self._of_demons(self._span.max_trace)

    def mspbe_vector(self) -> Floats:
        """Return the vector MSPBE estimate m.w, shape (n_demons,): NaN without w; raise ValueError without m."""
        if not self._has_w:
            return np.full(self.n_demons, np.nan)
        if not self._has_m:
            raise ValueError("no vector MSPBE estimate is computed: set vector_mspbe=True in LearnerConfig")
        estimate = np.zeros(self.layout.n_lanes)
        for b, (_, w, m) in self._read():
            lanes = slice(self.layout.start[b], self.layout.start[b + 1])
            estimate[lanes] = np.einsum("fl,fl->l", m, w, dtype=np.float64)
        return self._of_demons(estimate * self._m_scale)

    def weights(self, demons: Integers | None = None) -> tuple[Reals, Reals]:
        """Return copies of theta and w, each (n, n_features), in the engine's dtype, of demons (n,) or all."""
        theta, w = self._by_feature(("theta", "w"), demons)
        return theta, w

    def mspbe_trace(self) -> Reals:
        """Return a copy of m, shape (n_demons, n_features); raise ValueError if there is none."""
        if not self._has_m:
            raise ValueError("no vector MSPBE estimate is computed: set vector_mspbe=True, and a rule that has w")
        (m,) = self._by_feature(("m",))
        return np.asarray(m * self.dtype.type(self._m_scale))

    def _by_feature(self, names: tuple[str, ...], demons: Integers | None = None) -> Reals:
        """Return theta, w or m of demons, (n,), or all: (names, n, n_features); read only their blocks."""
        chosen = np.arange(self.n_demons) if demons is None else demons
        out = np.zeros((len(names), chosen.size, self.n_features), dtype=self.dtype)
        features, lanes = self._feature_of[: self._clock[N_ROWS]], self.layout.lane[chosen]
        of_block = np.searchsorted(self.layout.start, lanes, side="right") - 1
        for b, rows in self._read(np.unique(of_block)):
            here = np.flatnonzero(of_block == b)
            for of_name, name in zip(out, names, strict=True):
                of_kind = rows[_ROWS.index(name)][:, lanes[here] - self.layout.start[b]]
                if of_kind.size:  # a rule may have no w
                    of_name[np.ix_(here, features)] = of_kind.T
        return out

    def _read(self, blocks: Integers | None = None) -> Iterator[tuple[int, tuple[Reals, Reals, Reals]]]:
        """Yield copies of theta, w and m of blocks with pending updates added, each (rows in use, lanes)."""
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
        """Return a view of a block's rows in use of theta, w or m, (chunks, CHUNK, lanes)."""
        return rows_of(getattr(self._span, name)[: self._n_in_use], self.layout, b, CHUNK)

    def in_full(self) -> tuple[dict[str, Reals], NDArray[np.bool_], Integers]:
        """Return weights, full traces and estimates by name, the mask of diverged demons, and the current tiles.

        `e` is gamma_t lambda_t e_{t-1} of the current step.
        """
        self._flush()
        (theta, w), span = self.weights(), self._span
        numbers = {name: self._of_demons(getattr(self._span, name)) for name in _IN_FULL}
        m = self.mspbe_trace() if self._has_m else np.zeros((0, 0), dtype=self.dtype)
        traces = self._rule.TRACES
        learned = {"theta": theta, "w": w, "m": m, **numbers, **{name: self._trace(name) for name in traces}}
        if not self._has_w:
            del learned["w"]
        learned |= {"gamma_t": np.ones(self.n_demons), "lam_t": np.ones(self.n_demons)}
        if span.numbers.size or self._has_second:  # such a rule needs its traces, gamma and lambda apart
            learned |= {name: self._of_demons(getattr(span, name)) for name in ("gamma_t", "lam_t")}
            learned["numbers"] = span.numbers.reshape(-1, self.layout.n_lanes)[:, self.layout.lane]
            for name in traces:
                decay = learned["gamma_t"] * learned["lam_t"]
                if span.has_dutch and name == traces[-1]:
                    decay = decay * learned["numbers"][self._rule.numbers.index("rho")]
                decay = decay[:, None]
                learned[name] = np.where(decay > 0, learned[name] / np.where(decay > 0, decay, 1), 0)
        tiles = self._feature_of[self._span.active[self._clock[NOW] % (self.batch + 1)]]
        return learned, self._is_aside[self.layout.lane], tiles

    def to_plain(self) -> PlainEngine:
        """Return a plain engine that continues from here in every stream, for traces longer than LARGEST_TAIL."""
        args = (self._group, self.n_features, 0.0, 0.0, self.config)  # step sizes are taken over, too
        plain = PlainEngine(*args, policy=self._policy, cumulant=self._cumulant)
        for stream in self.streams:
            self.select_stream(stream)
            plain.select_stream(stream)
            plain.take_over(*self.in_full())
        return plain

    def _trace(self, name: str) -> Reals:
        """Return v_t = c_t (phi_t + v_{t-1}) of the latest step, by demon: gamma_{t+1} lambda_{t+1} e_t.

        The second trace has its own decays or factors of phi; the last of three also has rho_t.
        """
        span, now = self._span, int(self._clock[NOW])
        is_first, is_last = name == self._rule.TRACES[0], name == self._rule.TRACES[-1]
        decays = span.second if span.has_difference and is_last else span.c
        sources = span.factor if span.has_source or (span.has_dutch and not is_first) else np.zeros(0)
        sources = span.second if span.has_dutch and is_last else sources
        e = np.zeros((self.n_demons, self.n_features), dtype=self.dtype)
        for b in range(self.layout.n_blocks):
            times = np.arange(span.tail_from[self.layout.flush_group[b]], now)
            (c,) = rows_of(decays, self.layout, b, span.c.size // self.layout.n_lanes)
            factor = np.cumprod(c[times % len(c)][::-1], axis=0)[::-1]
            if sources.size:
                factor = factor * rows_of(sources, self.layout, b, len(c))[0][times % len(c)]
            bits = span.bits[times % len(span.bits)].view(np.uint8)
            phi = np.unpackbits(bits, axis=1, bitorder="little")[:, : self._clock[N_ROWS]]
            demon = self.layout.demon[self.layout.start[b] : self.layout.start[b + 1]]
            of_rows = factor.T[demon >= 0] @ phi.astype(self.dtype)
            e[np.ix_(demon[demon >= 0], self._feature_of[: self._clock[N_ROWS]])] = of_rows
        return e

    # ---- diverged demons --------------------------------------------------------------------------------------------

    def pop_flagged(self) -> dict[int, str]:
        """Return the demons flagged since the last call, with the reason: not finite, or above a bound.

        Queued steps are not included.
        """
        if not self.flags & DEMON_FLAGGED:
            return {}
        self.flags &= ~DEMON_FLAGGED
        is_new = (self._span.is_flagged != 0) & ~self._is_aside & (self.layout.demon >= 0)
        self._span.is_flagged[:] = 0
        return dict(sorted(self._faults(np.flatnonzero(is_new))))

    def _faults(self, lanes: Integers) -> Iterator[tuple[int, str]]:
        """Yield the demon on each lane and the reason of its flag."""
        of_block, span = np.searchsorted(self.layout.start, lanes, side="right") - 1, self._span
        for b, rows in self._read(np.unique(of_block)):
            for lane in lanes[of_block == b].tolist():
                numbers = (float(a[lane]) for a in (span.prediction, span.mspbe, span.td_error, span.bound))
                theta, w, m = (of_kind[:, lane - self.layout.start[b]] for of_kind in rows)
                yield int(self.layout.demon[lane]), FlaggedDemon(theta, w, m, *numbers).fault()

    def freeze(self, demon: int) -> None:
        """Freeze one demon's weights at zero permanently; other demons do not change."""
        self.catch_up()
        lane, span = int(self.layout.lane[demon]), self._span
        b = self.layout.block_of(lane)
        own = [self._rows(name, b) for name in _ROWS]
        own += [
            rows_of(a, self.layout, b, a.size // self.layout.n_lanes)
            for a in (span.c, span.factor, span.second, span.d, span.h, span.q, span.extra)
            if a.size
        ]
        for rows in own:
            rows[..., lane - self.layout.start[b]] = 0
        for name in OF_LANES:
            if name not in ("bound", "max_trace"):
                getattr(span, name)[lane] = 0
        span.numbers[lane :: self.layout.n_lanes] = 0
        for of_stream in self._streams.values():
            for name in _RINGS_OF_STREAM:
                if of_stream[name].size:
                    n_places = of_stream[name].size // self.layout.n_lanes
                    rows_of(of_stream[name], self.layout, b, n_places)[..., lane - self.layout.start[b]] = 0
            for name in _LANES_OF_STREAM:
                of_stream[name][lane] = 0
            of_stream["numbers"][lane :: self.layout.n_lanes] = 0
        for index in (span.policy, span.trace_group, span.cumulant, span.outcome):
            index[lane] = -1
        self._is_aside[lane], span.predictions[demon], self.latest[demon] = True, 0.0, 0.0

    def set_bounds(self, bound: Floats) -> None:
        """Set the |theta| above which a demon is flagged, shape (n_demons,), also for queued steps."""
        self._span.bound[self.layout.lane] = np.minimum(bound, max_finite(self.dtype))

    def reset_weights(self, theta: Reals | None = None) -> None:
        """Set theta, (n_demons, n_features), by default to zero: `Engine.reset_weights`."""
        if theta is not None:
            check_weights(theta, (self.n_demons, self.n_features), self.dtype)
            self._number_features(np.flatnonzero((theta != 0).any(axis=0)))
        self._flush()
        features = self._feature_of[: self._clock[N_ROWS]]
        for b in range(self.layout.n_blocks):
            start, stop = int(self.layout.start[b]), int(self.layout.start[b + 1])
            demon, rows = self.layout.demon[start:stop], self._rows("theta", b)
            learns = (demon >= 0) & ~self._is_aside[start:stop]
            into = np.zeros((rows.size // (stop - start), stop - start))
            if theta is not None:
                into[: features.size, learns] = theta[np.ix_(demon[learns], features)].T
            rows[:] = into.reshape(rows.shape)
        self._sum_bases()

    def _number_features(self, features: Integers) -> None:
        """Assign rows to features that were never active."""
        self.catch_up()
        new = features[self._row_of[features] < 0]
        n = int(self._clock[N_ROWS])
        self._row_of[new], self._feature_of[n : n + new.size] = np.arange(n, n + new.size), new
        self._prefault_ahead(new.size)
        self._clock[N_ROWS] += new.size

    def _sum_bases(self) -> None:
        """Recompute the sums at the current state from the written weights; no update is pending."""
        if self._clock[NOW] < 0:
            return
        active = self._span.active[self._clock[NOW] % (self.batch + 1)]
        transition.sum_bases(self._native, active)
        self._span.prediction[:] = self._span.base
        self._span.predictions[:] = self._of_demons(self._span.prediction)
        self.latest = self._span.predictions.copy()

    # ---- state ------------------------------------------------------------------------------------------------------

    @property
    def arrays(self) -> SpanArrays:
        """The arrays that the kernels read and write."""
        return self._span

    def state(self) -> State:
        """Return copies of the engine's complete state, by name; queued steps stay queued.

        Weights contain only the rows in use. The state does not depend on the number of threads.
        """
        arrays = {name: a for name, a in self._span._asdict().items() if isinstance(a, np.ndarray)}
        saved = {name: a.copy() for name, a in arrays.items() if name not in _NOT_SAVED}
        rows = {name: arrays[name][: self._n_in_use].copy() for name in _ROWS}
        own = {"n_active": np.array(self._span.n_active), "tail": np.array(self._tail), **attributes(self, *_OWN_STATE)}
        return {**saved, **rows, **own, **streams_state(self.stream, self._streams)}

    def restore(self, state: State) -> None:
        """Restore a state from an engine with the same arguments and the same calls of `rearrange`.

        Rows that are not in the state become zero.

        Raises:
            ValueError: If the state was copied over several steps, as in version 0.1.0 for large Hordes.
        """
        if "put_in_at" in state:
            raise ValueError(
                "its state was copied over several steps, a format that this version does not read: learn from the "
                "recording again (horde learn --backend replay --log RUN)"
            )
        self._drop_addresses()
        tail, n_active = int(state.get("tail", self._tail)), int(state["n_active"])
        if (tail, n_active) != (self._tail, self._span.n_active):
            self._tail = tail
            self._lay_out(self._group, self._policy, self._cumulant, self._shared_arrays(n_active))
        for name in _ROWS:
            getattr(self._span, name)[: self._n_in_use] = 0
        for name in SpanArrays._fields:
            if name in _ROWS:
                getattr(self._span, name)[: state[name].size] = state[name]
            elif name in state and name != "n_active":
                getattr(self._span, name)[...] = state[name]
        put_back(self, state, *_OWN_STATE)
        self.stream, self._streams = restored_streams(state)
        self._prefault_rows(int(self._clock[N_ROWS]))

    @property
    def _n_in_use(self) -> int:
        """Number of elements in the chunks of rows in use."""
        return -(-int(self._clock[N_ROWS]) // CHUNK) * CHUNK * self.layout.n_lanes

    # ---- adding and removing demons ---------------------------------------------------------------------------------

    def rearrange(self, mapping: DemonMapping) -> None:
        """Add and remove demons. Remaining demons keep their weights, traces and estimates.

        Pending updates are flushed, so that remaining demons change only by rounding. New demons start at the current
        state with zero weights and traces. theta, w and m are copied one after another to limit peak memory.
        """
        self._flush()
        old, before, latest, was_aside = self.layout, self._span, self.latest, self._is_aside
        was_of_stream = self._of_stream()
        self._drop_addresses()
        self.n_demons, self._share = mapping.group.size, None
        cumulant = np.arange(self.n_demons) if mapping.cumulant is None else mapping.cumulant
        shared = {name: getattr(before, name) for name in self._shared_arrays(0)}
        tail = self._tail_for(mapping.largest_decay)
        if tail > self._tail:
            self._tail = tail
            shared = self._with_longer_tail(shared)
        self._lay_out(mapping.group, mapping.policy, cumulant, shared)
        moved = moves(old, self.layout, mapping.old_index)
        rows = {name: getattr(before, name) for name in ("theta", "w", "m")}
        nothing: Any = np.zeros(0, dtype=self.dtype)
        before = before._replace(**dict.fromkeys(rows, nothing))
        for name in tuple(rows):
            self._copy_rows(rows.pop(name), old, getattr(self._span, name), moved)
        for stream, of_stream in self._streams.items():
            self._streams[stream] = self._rearranged(of_stream, mapping, old, moved)
        self._copy_tails(was_of_stream, self._of_stream(), old, moved)
        self._copy_lane_values(mapping, before, old, was_aside)
        self.latest = np.where(mapping.is_new, 0.0, latest[mapping.old_index])
        self._span.predictions[:] = self.latest

    def _with_longer_tail(self, before: dict[str, Any]) -> dict[str, Any]:
        """Return the shared arrays with place for `_tail` steps of traces, and lengthen those of other streams."""
        shared, now = self._shared_arrays(before["n_active"]), self._clock[NOW]
        for of, at in ((before, now), *((of, of["now"][0]) for of in self._streams.values())):
            bits, times = np.zeros_like(shared["bits"]), at - np.arange(min(at + 1, len(of["bits"])))
            bits[times % len(bits)] = of["bits"][times % len(of["bits"])]
            of["bits"] = bits
        return shared | {name: before[name] for name in _TILES_OF_STREAM}

    def _copy_rows(self, numbers: Reals, old: Layout, into: Reals, moved: list[Move]) -> None:
        """Copy the weights of moved lanes."""
        n = self._n_in_use // self.layout.n_lanes if into.size else 0
        for move in moved if n else ():
            came_from = rows_of(numbers[: n * old.n_lanes], old, move.source, CHUNK)
            rows_of(into[: n * self.layout.n_lanes], self.layout, move.block, CHUNK)[..., move.here] = came_from[
                ..., move.there
            ]

    def _rearranged(self, before: State, mapping: DemonMapping, old: Layout, moved: list[Move]) -> State:
        """Return another stream's arrays for the new demons."""
        after = {name: np.zeros_like(array) for name, array in self._of_stream().items()}
        after |= {name: before[name] for name in (*_TILES_OF_STREAM, "now")}
        self._copy_tails(before, after, old, moved)
        to, came_from = self.layout.lane[~mapping.is_new], old.lane[mapping.old_index[~mapping.is_new]]
        for name in (*_LANES_OF_STREAM, "numbers"):
            after[name].reshape(-1, self.layout.n_lanes)[:, to] = before[name].reshape(-1, old.n_lanes)[:, came_from]
        return after

    def _copy_tails(self, was: State, of_stream: State, old: Layout, moved: list[Move]) -> None:
        """Copy the traces' tails of a stream; a flush group gets the length of its longest tail."""
        tail_from, now = of_stream["tail_from"], max(int(of_stream["now"][0]), 0)
        of_stream["flushed_at"][:], tail_from[:] = now, now
        for move in moved:
            first, g = int(was["tail_from"][old.flush_group[move.source]]), self.layout.flush_group[move.block]
            tail_from[g] = min(int(tail_from[g]), first)
            for name in _RINGS_OF_STREAM:
                ring, ring_before = of_stream[name], was[name]
                if ring.size:
                    (came_from,) = rows_of(ring_before, old, move.source, ring_before.size // old.n_lanes)
                    (into,) = rows_of(ring, self.layout, move.block, ring.size // self.layout.n_lanes)
                    times = np.arange(first, now)
                    into[np.ix_(times % len(into), move.here)] = came_from[np.ix_(times % len(came_from), move.there)]

    def _copy_lane_values(
        self, mapping: DemonMapping, before: SpanArrays, old: Layout, was_aside: NDArray[np.bool_]
    ) -> None:
        """Copy one number per lane for remaining demons, and set the step sizes of new ones."""
        span, to, fresh = self._span, self.layout.lane, self.layout.lane[mapping.is_new]
        staying = to[~mapping.is_new]
        came_from = old.lane[mapping.old_index[~mapping.is_new]]
        for name in OF_LANES:
            getattr(span, name)[staying] = getattr(before, name)[came_from]
        numbers = span.numbers.reshape(-1, self.layout.n_lanes), before.numbers.reshape(-1, old.n_lanes)
        numbers[0][:, staying] = numbers[1][:, came_from]
        span.alpha[fresh] = 1.0 if self._rule.IGNORES_STEP_SIZE else mapping.alpha
        span.alpha_w[fresh] = mapping.alpha_w
        span.w_at[:] = NO_TIME
        self._is_aside[staying] = was_aside[came_from]
        for index in (span.policy, span.trace_group, span.cumulant, span.outcome):
            index[self._is_aside] = -1


def _power_of_two(n: int) -> int:
    """Return the smallest power of two that is at least n."""
    return 1 << max(n - 1, 1).bit_length()
