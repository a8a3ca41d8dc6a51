"""SpanMemory: the arrays of a span engine: layout, allocation, saved state, and moves to the layout of other demons."""

from __future__ import annotations

from typing import Any

import numba
import numpy as np
from numpy.typing import NDArray

from horde_agent.kernels._jit import Constant, threads_here
from horde_agent.kernels.rules import Rule, rule
from horde_agent.kernels.span import transition
from horde_agent.kernels.span.arrays import (
    ABTD,
    CHUNK,
    CLIPPED,
    N_CLOCKS,
    N_ROWS,
    NO_TIME,
    NOW,
    PLAIN,
    TREE_BACKUP,
    SpanArrays,
)
from horde_agent.kernels.vectors import entry_of, hold
from horde_agent.learning.engine import (
    DROP_BELOW,
    LARGEST_STEP,
    SMALLEST_SHARED_WORK,
    max_finite,
    restored_streams,
    streams_state,
)
from horde_agent.learning.layout import (
    LANE_UNIT,
    WIDEST,
    DemonMapping,
    Layout,
    Move,
    ShardLayout,
    aligned_zeros,
    assign_lanes,
    moves,
    prefault,
    rows_of,
    widest,
)
from horde_agent.learning.rules import LARGEST_TAIL, LearnerConfig, trace_length
from horde_agent.saving import State
from horde_agent.types import Integers, Reals

_PERIODS = {False: 64, True: 128}  # steps between two flushes, eager and deferred
_FIRST_ROWS = 4 * CHUNK  # rows that are pre-faulted before the first step
_PARTS, _LEAST_TOUCHED = 128, 1 << 19  # steps over which a chunk is pre-faulted; least numbers per step
_WAIT = 3  # periods after which pending updates are written in any case
_VECTOR, _WIDE = 80, 64  # lanes of scratch; of a block from which on wide vectors pay
_FIELDS = SpanArrays._fields
OF_LANES = _FIELDS[_FIELDS.index("prediction") : _FIELDS.index("w_at")]  # one number per lane
OF_STEPS = ("c", "factor", "second", "d", "h", "q", "extra")  # one number per lane and step
ROWS = ("theta", "w", "m")  # rows in use come first
_SIGNALS_OF_LANE = ("policy", "trace_group", "cumulant", "outcome")
_RINGS_OF_STREAM, _TIMES_OF_STREAM = ("c", "factor", "second"), ("flushed_at", "tail_from")
_LANES_OF_STREAM = ("e_phi", "e_w", "e_e", "e_sum", "y_phi", "y_w", "e_y", "x_phi", "gamma_t", "lam_t")
_TILES_OF_STREAM = ("bits", "active", "changed", "n_changed")
# Not saved: the layout, which follows from the demons, and scratch.
_NOT_SAVED = (
    *("demon", "start", "flush_group", "first_block", "only_policy", "overlap", "table", "foreseen"),
    *("run_row", "run_first", "run_last", "run_ends", "run_time", "run_place", "n_runs", *ROWS),
)
_TRACE_RULES = {"plain": PLAIN, "clipped": CLIPPED, "tree-backup": TREE_BACKUP, "abtd": ABTD}
_TRAITS = _FIELDS[_FIELDS.index("has_w") : _FIELDS.index("rests")]  # of update rules, which their files set


class SpanMemory:
    """The arrays of a span engine. Its methods expect that no step is queued.

    Args:
        demons: Trace group of each demon, policy of each group, cumulant of each demon, as in `SpanEngine`.
        n_features: Length n of the weight vectors.
        config, largest_decay, batch, period, widest, share: As in `SpanEngine`.

    Attributes:
        span: The arrays that the kernels read and write.
        layout: Lane of each demon.
        is_aside: True for lanes of diverged demons, shape (n_lanes,).
        stream: Number of the selected stream.
        others: The arrays of the other streams.
    """

    span: SpanArrays

    def __init__(
        self,
        demons: tuple[Integers, Integers, Integers],
        n_features: int,
        config: LearnerConfig,
        largest_decay: float,
        batch: int,
        period: int,
        widest: int,
        share: ShardLayout | None,
    ) -> None:
        self.config, self.n_features, self.dtype = config, n_features, np.dtype(config.dtype)
        self.batch, self.period = batch, max(period or _PERIODS[batch > 1], batch)
        self._widest, self._share = widest, share
        self._tail = self._tail_for(largest_decay)
        self.n_threads = int(numba.config.NUMBA_NUM_THREADS)  # type: ignore[attr-defined]
        self.row_of, self.feature_of = np.full(n_features, -1), np.zeros(n_features, dtype=np.int64)
        self.clock = np.zeros(N_CLOCKS, dtype=np.int64)
        self.clock[NOW] = -1
        self.stream, self.others = 0, dict[int, State]()
        self._held: Any = None
        self.entry: Any = None
        self._lay_out(demons, 0)

    @property
    def rule(self) -> Rule:
        """The update rule; not an attribute, because modules cannot be copied."""
        return rule(self.config.algorithm)

    def __getstate__(self) -> dict[str, Any]:
        """Return all attributes except addresses, which are invalid in a copy or another process."""
        return vars(self) | {"_held": None, "entry": None}

    @property
    def native(self) -> Any:
        """The arrays in native form, for one thread if the work is small or the process was forked; sets `entry`."""
        n_read = self.layout.n_lanes * self.span.n_active * self.batch  # numbers read per call, approximately
        n_threads = 1 if n_read < SMALLEST_SHARED_WORK else threads_here(self.n_threads)
        if self._held is None or n_threads != self.span.n_threads:
            self.span = self.span._replace(n_threads=n_threads)
            self._held = hold(self.span)
            self.entry = entry_of(transition.do_task, self._held)
        return self._held

    # ---- allocation -------------------------------------------------------------------------------------------------

    def _tail_for(self, largest_decay: float) -> int:
        """Return the number of steps of traces to store, in addition to pending ones."""
        decay = 1.0 if self.config.trace_rule == "abtd" else largest_decay  # the questions' lambda is not used
        return min(LARGEST_TAIL, trace_length(self.config, decay))

    @property
    def n_times(self) -> int:
        """Number of steps for which the active features are stored."""
        return _power_of_two(self._tail + _WAIT * self.period + self.batch + 2)

    def _lay_out(self, demons: tuple[Integers, Integers, Integers], n_active: int) -> None:
        """Assign lanes and allocate the arrays, for `n_active` active features."""
        self.demons = group, policy, _ = demons
        most_lanes = self._widest or widest(group.size, is_deferred=self.batch > 1)
        seating = self._share.seating if self._share else assign_lanes(group, policy, most_lanes)
        self.layout = Layout(policy[group], seating)
        self.is_aside = np.zeros(self.layout.n_lanes, dtype=bool)
        lanes, signals, shared = self._lane_arrays(), self._signal_arrays(), self._shared_arrays(n_active)
        self.span = SpanArrays(**lanes, **self._history_arrays(), **signals, **self._settings(), **shared)
        self.span.bound[:] = max_finite(self.dtype)
        self._n_touched = 0  # numbers of theta that are pre-faulted, and of w and m
        self._held = None
        self._prefault_first()

    def zeros(self, *shape: int) -> Reals:
        """Return zeros of the engine's dtype, aligned to a cache line."""
        return aligned_zeros(shape, self.dtype)

    def _lane_arrays(self) -> dict[str, Any]:
        """Return the assignment of lanes, rows of weights, and arrays with one number per lane."""
        (group, policy, cumulant), layout, span = self.demons, self.layout, self.rule.SPAN
        n_rows, n_lanes, of_lane = -(-self.n_features // CHUNK) * CHUNK, layout.n_lanes, np.append(group, -1)
        return {
            "policy": np.append(policy, -1)[of_lane[layout.demon]],
            "trace_group": of_lane[layout.demon],
            "cumulant": np.append(cumulant, -1)[layout.demon],
            "outcome": layout.demon.copy(),
            **{name: getattr(layout, name) for name in _NOT_SAVED[:5]},
            "theta": self.zeros(n_rows * n_lanes),
            "w": self.zeros(n_rows * n_lanes if "has_w" in span else 0),
            "m": self.zeros(n_rows * n_lanes if "has_w" in span and self.config.vector_mspbe else 0),
            "numbers": self.zeros(len(self.rule.numbers) * n_lanes),
            **{name: self.zeros(n_lanes) for name in OF_LANES},
            "w_left": np.ones(n_lanes, dtype=self.dtype),
        }

    @property
    def _has_second(self) -> bool:
        return bool({"has_difference", "has_dutch"} & set(self.rule.SPAN))

    def _history_arrays(self) -> dict[str, Any]:
        """Return each demon's history, and the schedules of the flush groups."""
        layout, n_lanes, places = self.layout, self.layout.n_lanes, self._places
        n_groups, n_blocks = layout.only_policy.size, layout.n_blocks
        groups = self._share.groups if self._share else np.arange(n_groups)
        turns = 1 + groups * self.period // (self._share.n_groups if self._share else n_groups)
        c_size = _power_of_two(self._tail + places) * n_lanes
        limit = turns if self.batch == 1 else np.full(n_groups, self.period)
        has_factor = {"has_source", "shrinks_w", "has_dutch"} & set(self.rule.SPAN)
        return {
            "c": self.zeros(c_size),
            "factor": self.zeros(c_size if has_factor else 0),
            "second": self.zeros(c_size if self._has_second else 0),
            "extra": self.zeros(places * n_lanes if self._has_second else 0),
            **{name: self.zeros(places * n_lanes) for name in ("d", "h", "q")},
            "m_step": np.zeros(self.n_times),
            "kind": np.zeros((n_groups, self.n_times), dtype=np.uint8),
            **{name: np.zeros(n_groups, np.int64) for name in ("flushed_at", "tail_from", "n_pending")},
            "limit": limit.astype(np.int64),
            **{name: np.zeros(n_blocks, dtype=np.int64) for name in ("tail_needed", "w_at")},
        }

    @property
    def _places(self) -> int:
        """Steps after which pending updates are written in any case; more if a group can be idle."""
        may_idle = self._share.may_idle if self._share else (self.layout.only_policy >= 0).any()
        w_decays = "has_w" in self.rule.SPAN and self.config.w_rule == "every-step"  # where rho = 0
        return _WAIT * self.period if may_idle and not w_decays else self.period

    def _signal_arrays(self) -> dict[str, Any]:
        """Return arrays for the signals of queued steps; their last column, for empty lanes, stays 0."""
        (group, policy, cumulant), batch = self.demons, self.batch
        arrays = {
            "signal_rho": self.zeros(batch, int(policy.max()) + 2),
            "signal_c": self.zeros(batch, int(cumulant.max()) + 2),
            "signal_gamma": self.zeros(batch + 1, policy.size + 1),
            "signal_lam": self.zeros(batch + 1, policy.size + 1),
            "signal_z": self.zeros(batch, group.size + 1),
            "signal_interest": self.zeros(batch + 1, group.size + 1),
            "signal_b": np.zeros(batch),
            "signal_changes": np.zeros((batch, 2), dtype=np.int64),
            "predictions": np.zeros(group.size),
        }
        arrays["signal_gamma"][-1, :-1] = np.nan  # so that the first transition's gamma counts as changed
        return arrays

    def _settings(self) -> dict[str, Any]:
        """Return settings, and the arrays that survive a new layout."""
        config, traits, bound = self.config, self.rule.SPAN, self.config.trace_bound
        return {
            "every_step": config.w_rule == "every-step",
            "trace_rule": _TRACE_RULES[config.trace_rule],
            "trace_bound": bound if config.trace_rule == "abtd" else 1.0 / bound,
            "rule": config.rule_parameters,
            **{name: Constant(name in traits) for name in _TRAITS},
            "n_numbers": Constant(len(self.rule.NUMBERS)),
            "rests": Constant("never_rests" not in traits),
            "has_second": Constant(self._has_second),
            "drop_below": DROP_BELOW[config.dtype] if config.bounds_trace else 0.0,
            "drop_second_below": DROP_BELOW[config.dtype],
            "largest_tail": self._tail,
            "one_over_tau": 1.0 / config.mspbe_tau,
            "largest_step": LARGEST_STEP[config.dtype],
            "max_finite": max_finite(self.dtype),
            "period": self.period,
            "longest_wait": self._places,
            "n_threads": 1,
            "most_lanes": Constant(LANE_UNIT if np.diff(self.layout.start).max() < _WIDE else WIDEST),
            "row_of": self.row_of,
            "feature_of": self.feature_of,
            "clock": self.clock,
        }

    def _shared_arrays(self, n_active: int) -> dict[str, Any]:
        """Return history shared by all demons, and scratch, for `n_active` active features."""
        n, batch, n_times, longest = self.n_features, self.batch, self.n_times, self._tail + _WAIT * self.period + 2
        n_kinds = 1 + ("has_w" in self.rule.SPAN) * (1 + self.config.vector_mspbe)
        lists = {f"run_{name}": np.zeros((2, n), dtype=np.int32) for name in ("row", "first", "last")}
        return {
            "bits": np.zeros((n_times, -(-n // 64)), dtype=np.uint64),
            "active": np.zeros((batch + 1, n_active), dtype=np.int64),
            "changed": np.zeros((2, 2, n_active), dtype=np.int64),
            "n_changed": np.zeros((2, 2), dtype=np.int64),
            "overlap": self.zeros(batch + 1, n_times),
            **lists,
            "run_ends": np.zeros((2, 2 * n_active * longest), dtype=np.int32),
            "run_time": np.zeros((2, n_times + 2), dtype=np.int64),
            "run_place": np.zeros(n_times + 2, dtype=np.int32),
            "n_runs": np.zeros(2, dtype=np.int64),
            "table": self.zeros(self.n_threads, (n_times + 2) * n_kinds * _VECTOR),
            "foreseen": self.zeros(self.n_threads, 2, (batch + 1) * _VECTOR),
            "n_active": n_active,
        }

    def set_n_active(self, n_active: int) -> None:
        """Set the number of active features at the first call; raise ValueError if it changes later."""
        if not self.span.n_active:
            self.span, self._held = self.span._replace(**self._shared_arrays(n_active)), None
            self.others.clear()  # none of them has begun
        elif n_active != self.span.n_active:
            raise ValueError(f"tiles must be {self.span.n_active} as in the first state, not {n_active}")

    # ---- pre-faulting -----------------------------------------------------------------------------------------------

    def _prefault_first(self) -> None:
        span, widths = self.span, np.diff(self.layout.start)
        places = span.d.size // self.layout.n_lanes
        used = np.where(span.only_policy[span.flush_group] >= 0, places, self.period) * widths
        pending = (span.d, span.h, span.q, span.extra)
        parts = [a[places * s :][:n] for a in pending for s, n in zip(span.start, used, strict=False)]
        prefault(span.c, *parts, n_threads=self.n_threads)
        self._prefault_rows(min(self.n_features, max(int(self.clock[N_ROWS]), _FIRST_ROWS)))

    @property
    def _n_ready(self) -> int:
        """Number of rows that are pre-faulted."""
        return self._n_touched // (CHUNK * self.layout.n_lanes) * CHUNK

    def _prefault_rows(self, n_rows: int) -> None:
        self._prefault(-(-n_rows // CHUNK) * CHUNK * self.layout.n_lanes - self._n_touched)

    def _prefault(self, n: int) -> None:
        """Pre-fault `n` more numbers of theta, w and m."""
        first, last, span = self._n_touched, self._n_touched + max(n, 0), self.span
        prefault(*(a[first:last] for a in (span.theta, span.w, span.m)), n_threads=self.n_threads)
        self._n_touched = last

    def prefault_ahead(self, n_active: int) -> None:
        """Pre-fault a part of the next chunk on each step, or all rows that this step may need."""
        needed, chunk = min(self.n_features, int(self.clock[N_ROWS]) + n_active), CHUNK * self.layout.n_lanes
        if self._n_ready < needed:
            self._prefault_rows(needed)
        elif self._n_ready < min(self.n_features, needed + CHUNK):
            self._prefault(min(max(_LEAST_TOUCHED, chunk // _PARTS), chunk - self._n_touched % chunk))

    # ---- rows, lanes, streams ---------------------------------------------------------------------------------------

    @property
    def features(self) -> Integers:
        """The features that were active so far, in the order of the rows, shape (n_rows,)."""
        return self.feature_of[: self.clock[N_ROWS]]

    @property
    def _n_in_use(self) -> int:
        """Number of elements in the chunks of rows in use."""
        return -(-int(self.clock[N_ROWS]) // CHUNK) * CHUNK * self.layout.n_lanes

    def rows(self, name: str, b: int) -> Reals:
        """Return a view of a block's rows in use of theta, w or m, (chunks, CHUNK, lanes)."""
        return rows_of(getattr(self.span, name)[: self._n_in_use], self.layout, b, CHUNK)

    def ring(self, numbers: Reals, b: int) -> Reals:
        """Return a view of a block's history, (places, lanes), of an array with some places per lane, shape (n,)."""
        return np.asarray(rows_of(numbers, self.layout, b, numbers.size // self.layout.n_lanes)[0])

    def number_features(self, features: Integers) -> None:
        """Assign rows to those of `features`, (n,), that were never active."""
        new, n = features[self.row_of[features] < 0], int(self.clock[N_ROWS])
        self.row_of[new], self.feature_of[n : n + new.size] = np.arange(n, n + new.size), new
        self.prefault_ahead(new.size)
        self.clock[N_ROWS] += new.size

    def clear(self, demon: int) -> None:
        """Set a demon's weights, traces and estimates to zero permanently; its lane gets no signals any more."""
        lane, span, layout = int(self.layout.lane[demon]), self.span, self.layout
        b = layout.block_of(lane)
        here = lane - layout.start[b]
        for name in ROWS:
            self.rows(name, b)[..., here] = 0
        own = {name: getattr(span, name) for name in (*OF_STEPS, *OF_LANES, "numbers")}
        for arrays in (own, *self.others.values()):
            for name in arrays.keys() & set(OF_STEPS):
                if arrays[name].size:
                    self.ring(arrays[name], b)[:, here] = 0
            for name in arrays.keys() & set(OF_LANES) - {"bound", "max_trace"}:
                arrays[name][lane] = 0
            arrays["numbers"][lane :: layout.n_lanes] = 0
        self.is_aside[lane], span.predictions[demon] = True, 0.0
        self._disconnect()

    def _disconnect(self) -> None:
        """Give lanes of diverged demons no signals."""
        for name in _SIGNALS_OF_LANE:
            getattr(self.span, name)[self.is_aside] = -1

    def select_stream(self, stream: int) -> None:
        """Exchange the selected stream's arrays for those of another one; no update is pending."""
        own = self._of_stream()
        self.others[self.stream] = {name: array.copy() for name, array in own.items()}
        selected = self.others.pop(stream, None)
        for name, array in own.items():
            array[...] = selected[name] if selected else -(name == "now")
        self.stream = stream

    def _of_stream(self) -> State:
        """Return views of the arrays that belong to the selected stream; no update is pending."""
        names = (*_RINGS_OF_STREAM, *_TIMES_OF_STREAM, *_LANES_OF_STREAM, *_TILES_OF_STREAM)
        kept = self.span.n_numbers * self.layout.n_lanes  # numbers that a gap keeps belong to all streams
        own = {name: getattr(self.span, name) for name in names}
        return own | {"numbers": self.span.numbers[kept:], "now": self.clock[NOW : NOW + 1]}

    # ---- saved state ------------------------------------------------------------------------------------------------

    def state(self) -> State:
        """Return copies of all arrays but scratch, by name, and of the rows in use.

        The state does not depend on the number of threads.
        """
        arrays = {name: a for name, a in self.span._asdict().items() if isinstance(a, np.ndarray)}
        saved = {name: a.copy() for name, a in arrays.items() if name not in _NOT_SAVED}
        rows = {name: arrays[name][: self._n_in_use].copy() for name in ROWS}
        own = {"n_active": np.array(self.span.n_active), "_is_aside": self.is_aside.copy()}
        return {**saved, **rows, **own, "tail": np.array(self._tail), **streams_state(self.stream, self.others)}

    def restore(self, state: State) -> None:
        """Restore a state of the same demons; rows that are not in the state become zero."""
        self._held = None
        tail, n_active = int(state.get("tail", self._tail)), int(state["n_active"])
        if (tail, n_active) != (self._tail, self.span.n_active):
            self._tail = tail
            self._lay_out(self.demons, n_active)
        for name in ROWS:
            getattr(self.span, name)[: self._n_in_use] = 0
            getattr(self.span, name)[: state[name].size] = state[name]
        for name in _FIELDS:
            if name in state and name not in (*ROWS, "n_active"):
                getattr(self.span, name)[...] = state[name]
        self.is_aside = state["_is_aside"].copy()
        self.stream, self.others = restored_streams(state)
        self._prefault_rows(int(self.clock[N_ROWS]))

    # ---- adding and removing demons ---------------------------------------------------------------------------------

    def rearrange(self, mapping: DemonMapping) -> None:
        """Move remaining demons to the layout of other demons; no update is pending.

        New demons have zero weights and traces. theta, w and m are copied one after another to limit peak memory.
        """
        old, before, was_aside = self.layout, self.span, self.is_aside
        streams = {**self.others, self.stream: self._of_stream()}
        self._share, self._tail = None, max(self._tail, self._tail_for(mapping.largest_decay))
        cumulant = np.arange(mapping.group.size) if mapping.cumulant is None else mapping.cumulant
        self._lay_out((mapping.group, mapping.policy, cumulant), before.n_active)
        moved = moves(old, self.layout, mapping.old_index)
        self.others = {k: self._rearranged(of_stream, mapping, old, moved) for k, of_stream in streams.items()}
        own = self.others.pop(self.stream)
        for name, array in self._of_stream().items():
            array[...] = own[name]
        rows = {name: getattr(before, name) for name in ROWS}
        nothing: Any = np.zeros(0, dtype=self.dtype)
        before = before._replace(**dict.fromkeys(rows, nothing))
        for name in ROWS:
            self._copy_rows(rows.pop(name), old, getattr(self.span, name), moved)
        for name in (*OF_LANES, "numbers"):
            self._copy_lanes(getattr(before, name), old, getattr(self.span, name), mapping)
        self._copy_lanes(was_aside, old, self.is_aside, mapping)
        self._disconnect()
        self.set_step_sizes(self.layout.lane[mapping.is_new], mapping.alpha, mapping.alpha_w)
        self.span.w_at[:] = NO_TIME

    def _copy_lanes(self, numbers: NDArray[Any], old: Layout, into: NDArray[Any], mapping: DemonMapping) -> None:
        """Copy remaining demons' numbers, one or more for each lane."""
        to, came_from = self.layout.lane[~mapping.is_new], old.lane[mapping.old_index[~mapping.is_new]]
        into.reshape(-1, self.layout.n_lanes)[:, to] = numbers.reshape(-1, old.n_lanes)[:, came_from]

    def _copy_rows(self, numbers: Reals, old: Layout, into: Reals, moved: list[Move]) -> None:
        n = self._n_in_use // self.layout.n_lanes if into.size else 0
        for move in moved if n else ():
            came_from = rows_of(numbers[: n * old.n_lanes], old, move.source, CHUNK)
            to = rows_of(into[: n * self.layout.n_lanes], self.layout, move.block, CHUNK)
            to[..., move.here] = came_from[..., move.there]

    def _rearranged(self, before: State, mapping: DemonMapping, old: Layout, moved: list[Move]) -> State:
        """Return a stream's arrays for the new demons; a flush group gets the length of its longest tail."""
        after = {name: np.zeros_like(array) for name, array in self._of_stream().items()}
        after |= {name: before[name].copy() for name in ("active", "changed", "n_changed", "now")}
        now, bits = max(int(before["now"][0]), 0), before["bits"]
        times = now - np.arange(min(now + 1, len(bits)))
        after["bits"][times % len(after["bits"])] = bits[times % len(bits)]
        after["flushed_at"][:], after["tail_from"][:] = now, now
        for move in moved:
            first, g = int(before["tail_from"][old.flush_group[move.source]]), self.layout.flush_group[move.block]
            after["tail_from"][g] = min(int(after["tail_from"][g]), first)
            for name in _RINGS_OF_STREAM:
                if after[name].size:
                    (came_from,) = rows_of(before[name], old, move.source, before[name].size // old.n_lanes)
                    into, times = self.ring(after[name], move.block), np.arange(first, now)
                    into[np.ix_(times % len(into), move.here)] = came_from[np.ix_(times % len(came_from), move.there)]
        for name in (*_LANES_OF_STREAM, "numbers"):
            self._copy_lanes(before[name], old, after[name], mapping)
        return after

    def set_step_sizes(self, lanes: Integers, alpha: Any, alpha_w: Any) -> None:
        """Set the step sizes of lanes, (n,): a number, or one each."""
        self.span.alpha[lanes] = 1.0 if self.rule.IGNORES_STEP_SIZE else alpha
        self.span.alpha_w[lanes] = alpha_w


def _power_of_two(n: int) -> int:
    return 1 << max(n - 1, 1).bit_length()
