"""SpanMemory: what a span engine stores: rows of weights, streams, saved state, and moves to other demons' layout."""

from __future__ import annotations

from typing import Any

import numba
import numpy as np
from numpy.typing import NDArray

from horde_agent.kernels._jit import threads_here
from horde_agent.kernels.rules import Rule, rule
from horde_agent.kernels.span import transition
from horde_agent.kernels.span.arrays import CHUNK, N_CLOCKS, N_ROWS, NO_TIME, NOW, SpanArrays
from horde_agent.kernels.vectors import entry_of, hold
from horde_agent.learning.allocation import FIELDS, OF_LANES, OF_LAYOUT, Allocation
from horde_agent.learning.engine import SMALLEST_SHARED_WORK, restored_streams, streams_state
from horde_agent.learning.layout import DemonMapping, Layout, Move, ShardLayout, moves, prefault, rows_of
from horde_agent.learning.rules import LARGEST_TAIL, LearnerConfig, trace_length
from horde_agent.saving import State
from horde_agent.types import Integers, Reals

_FIRST_ROWS = 4 * CHUNK  # rows that are pre-faulted before the first step
_PARTS, _LEAST_TOUCHED = 128, 1 << 19  # steps over which a chunk is pre-faulted; least numbers per step
OF_STEPS = ("c", "factor", "d", "h", "q")  # one number per lane and step
ROWS = ("theta", "w", "m")  # rows in use come first
_SIGNALS_OF_LANE = ("policy", "trace_group", "cumulant", "outcome")
_RINGS_OF_STREAM, _TIMES_OF_STREAM = ("c", "factor"), ("flushed_at", "tail_from")
_LANES_OF_STREAM = ("e_phi", "e_w", "e_e", "e_sum", "gamma_t", "lam_t")
_TILES_OF_STREAM = ("bits", "active", "changed", "n_changed")
# Not saved: the layout, which follows from the demons, and scratch.
_NOT_SAVED = (
    *(*OF_LAYOUT, *ROWS, "overlap", "table", "foreseen", "n_runs"),
    *("run_row", "run_first", "run_last", "run_ends", "run_time", "run_place"),
)


class SpanMemory:
    """The arrays of a span engine; arguments as of `SpanEngine`. Its methods expect that no step is queued.

    Attributes:
        demons: Trace group of each demon, policy of each group, cumulant of each demon.
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
        self.batch, self._period, self._widest, self._share = batch, period, widest, share
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

    def _tail_for(self, largest_decay: float) -> int:
        """Return the number of steps of traces to store, in addition to pending ones."""
        decay = 1.0 if self.config.trace_rule == "abtd" else largest_decay  # the questions' lambda is not used
        return min(LARGEST_TAIL, trace_length(self.config, decay))

    def _lay_out(self, demons: tuple[Integers, Integers, Integers], n_active: int) -> None:
        """Assign lanes and allocate the arrays, for `n_active` active features."""
        self.demons = demons
        sizes = (self.n_features, self.config, self.batch, self._period, self._widest, self._share, self._tail)
        self.allocation = of = Allocation(demons, *sizes)
        self.layout = of.layout
        self.is_aside = np.zeros(self.layout.n_lanes, dtype=bool)
        self.span = of.arrays(n_active, row_of=self.row_of, feature_of=self.feature_of, clock=self.clock)
        self._n_touched = 0  # numbers of theta that are pre-faulted, and of w and m
        self._held = None
        prefault(self.span.c, self.span.d, self.span.h, self.span.q, n_threads=self.n_threads)
        self._prefault_rows(min(self.n_features, max(int(self.clock[N_ROWS]), _FIRST_ROWS)))

    def set_n_active(self, n_active: int) -> None:
        """Set the number of active features at the first call; raise ValueError if it changes later."""
        if not self.span.n_active:
            self.span, self._held = self.span._replace(**self.allocation.shared(n_active)), None
            self.others.clear()  # none of them has begun
        elif n_active != self.span.n_active:
            raise ValueError(f"tiles must be {self.span.n_active} as in the first state, not {n_active}")

    # ---- pre-faulting -----------------------------------------------------------------------------------------------

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
        for name in FIELDS:
            if name in state and name not in (*ROWS, "n_active") and getattr(self.span, name).size:
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
        for block, here, source, there in moved if n else ():
            came_from = rows_of(numbers[: n * old.n_lanes], old, source, CHUNK)
            to = rows_of(into[: n * self.layout.n_lanes], self.layout, block, CHUNK)
            to[..., here] = came_from[..., there]

    def _rearranged(self, before: State, mapping: DemonMapping, old: Layout, moved: list[Move]) -> State:
        """Return a stream's arrays for the new demons; a flush group gets the length of its longest tail."""
        after = {name: np.zeros_like(array) for name, array in self._of_stream().items()}
        after |= {name: before[name].copy() for name in ("active", "changed", "n_changed", "now")}
        now, bits = max(int(before["now"][0]), 0), before["bits"]
        times = now - np.arange(min(now + 1, len(bits)))
        after["bits"][times % len(after["bits"])] = bits[times % len(bits)]
        after["flushed_at"][:], after["tail_from"][:] = now, now
        for block, here, source, there in moved:
            first, g = int(before["tail_from"][old.flush_group[source]]), self.layout.flush_group[block]
            after["tail_from"][g] = min(int(after["tail_from"][g]), first)
            for name in _RINGS_OF_STREAM:
                if after[name].size:
                    (came_from,) = rows_of(before[name], old, source, before[name].size // old.n_lanes)
                    into, times = self.ring(after[name], block), np.arange(first, now)
                    into[np.ix_(times % len(into), here)] = came_from[np.ix_(times % len(came_from), there)]
        for name in (*_LANES_OF_STREAM, "numbers"):
            self._copy_lanes(before[name], old, after[name], mapping)
        return after

    def set_step_sizes(self, lanes: Integers, alpha: Any, alpha_w: Any) -> None:
        """Set the step sizes of lanes, (n,): a number, or one each."""
        self.span.alpha[lanes] = 1.0 if self.rule.IGNORES_STEP_SIZE else alpha
        self.span.alpha_w[lanes] = alpha_w
