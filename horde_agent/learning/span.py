"""SpanEngine: the fast engine. It computes the same as `PlainEngine` without stored traces and without dense passes.

Each step stores four numbers per demon instead of updating its weights; pending updates are written
every K steps, one flush group at a time. If `batch` exceeds one, steps are queued and processed
together when the batch is full or a result is read: the same results, later and with less work. The
algebra is in `kernels/span/step.py`. It does not cover the trace rule "capped" and traces longer
than LARGEST_TAIL steps; use `PlainEngine` for these.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from horde_agent.kernels._jit import one_at_a_time, threads_here
from horde_agent.kernels.checks import DEMON_DIVERGED, Signals
from horde_agent.kernels.rules import rule
from horde_agent.kernels.span import transition
from horde_agent.kernels.span.arrays import IS_KNOWN, NOW, SpanArrays
from horde_agent.kernels.vectors import bind, entry_of, generalise, pack
from horde_agent.learning.engine import (
    NO_VECTOR_ESTIMATE,
    SMALLEST_SCALE,
    SMALLEST_SHARED_WORK,
    DemonMapping,
    NumberName,
    WeightsName,
    check_weights,
    fault,
    max_finite,
    no_stream,
)
from horde_agent.learning.plain import PlainEngine
from horde_agent.learning.rarity import Rarity
from horde_agent.learning.rules import PAPER_CONFIG, LearnerConfig
from horde_agent.learning.span_storage import Layout, ShardLayout, SpanMemory
from horde_agent.saving import State, attributes, put_back
from horde_agent.types import Floats, Integers, Reals

_LEARNED_ROWS = ("theta", "w", "m")
_OWN_STATE = ("_m_scale", "flags", "n_waiting")
_IN_FULL = (
    "prediction",
    "td_error",
    "mspbe",
    "max_trace",
    "largest_gain",
    "alpha",
    "alpha_w",
    "bound",
)


class Packed(NamedTuple):
    """The arrays of a span engine as kernels receive them."""

    native: Any  # for kernels that are compiled for each update rule
    general: Any  # for kernels that are compiled once for all update rules
    entry: Any  # address by which the latter call `transition.do_task` on each thread


class SpanEngine:
    """The fast engine: GTD(lambda) for many demons that share one stream of tiles. Methods are those of `PlainEngine`.

    Args:
        group, n_features, alpha, alpha_w, config, policy, cumulant: As of `PlainEngine`. Groups of
            one policy have the same rho on every step and adjacent lanes.
        largest_decay: Upper bound of gamma lambda; it determines the largest trace length.
        batch: Steps that are queued before they are processed; 1: each at once.
        period: Steps K between two flushes, at least `batch`; 0: 64, or 128 with batches.
        widest: Largest number of lanes of a block; 0: chosen from the number of demons.
        share: Layout as in the whole Horde, if these demons are a shard of it.

    Attributes:
        latest: theta.phi at the latest completed step, float64, shape (n_demons,); the next step
            overwrites it.
        latest_averaged: theta_bar.phi there, likewise; 0 without averages.
        n_waiting: Number of queued steps.
        stream: Number of the selected stream.
        flags: Bits: DEMON_DIVERGED if a demon diverged (`pop_diverged`), TAIL_TOO_LONG if a trace
            is too long.

    Raises:
        ValueError: If it does not support the algorithm or the trace rule.
    """

    can_merge = False  # no trace per stream is stored in full

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
        batch: int = 1,
        period: int = 0,
        widest: int = 0,
        share: ShardLayout | None = None,
    ) -> None:
        if config.trace_rule == "capped" or rule(config.algorithm).SPAN is None:
            setting = f"algorithm {config.algorithm!r} with trace rule {config.trace_rule!r}"
            raise ValueError(f"SpanEngine does not support {setting}: use PlainEngine")
        self.config = config
        self.n_features = n_features
        self.n_demons = len(group)
        self.dtype = np.dtype(config.dtype)
        if policy is None:
            policy = np.arange(int(np.max(group)) + 1)
        if cumulant is None:
            cumulant = np.arange(len(group))
        demons = (np.asarray(group, dtype=np.int64), policy, cumulant)
        self.memory = SpanMemory(
            demons, n_features, config, largest_decay, batch, period, widest, share
        )
        self.memory.set_step_sizes(self.layout.lane, alpha, alpha_w)
        self.latest: Floats = self.memory.span.predictions
        self.latest_averaged: Floats = self.memory.span.averaged
        self._m_scale = 1.0
        self._m_decay = 1.0 - 1.0 / config.mspbe_tau
        self.flags = self.n_waiting = 0
        self._averages_wait = False
        self._signals: Signals | None = None
        self._packed_arrays: Any = None  # the arrays `_packed_of` as kernels receive them
        self._packed_of: SpanArrays | None = None
        self._step: Any = None  # the kernel bound to the arrays `_step_of` and to these signals
        self._step_of: Packed | None = None

    def __getstate__(self) -> dict[str, Any]:
        """Return all attributes except addresses."""
        addresses = dict.fromkeys(("_packed_arrays", "_packed_of", "_step", "_step_of"))
        return vars(self) | addresses | {"_signals": None}

    def _packed(self) -> Packed:
        """Return the arrays as kernels receive them, for one thread if the work is small or the process was forked.

        They are packed again if they were replaced, or if the number of threads changes.
        """
        memory = self.memory
        span = memory.span
        n_read = memory.layout.n_lanes * span.n_active  # per step, approximately
        n_threads = 1
        if n_read >= SMALLEST_SHARED_WORK:
            n_threads = threads_here(memory.n_threads)
        if span is not self._packed_of or n_threads != span.n_threads:
            memory.span = span._replace(n_threads=n_threads)
            native = pack(memory.span)
            entry = self._entry_of(transition.do_task, native)
            self._packed_arrays = Packed(native, generalise(native), entry)
            self._packed_of = memory.span
        packed: Packed = self._packed_arrays
        return packed

    def _entry_of(self, task: Any, native: Any) -> Any:
        """Return the address by which kernels call a task on each thread."""
        entry = entry_of(task, native)
        if self.memory.span.n_threads == 1 and isinstance(entry, int):
            return np.uint64(entry)  # kernels are then compiled without a parallel loop
        return entry

    @property
    def layout(self) -> Layout:
        """Lane of each demon."""
        return self.memory.layout

    @property
    def arrays(self) -> SpanArrays:
        """The arrays that the kernels read and write."""
        return self.memory.span

    @property
    def stream(self) -> int:
        """Number of the selected stream."""
        return self.memory.streams.selected

    @property
    def _now(self) -> int:
        return int(self.memory.clock[NOW])

    @property
    def _active(self) -> Integers:
        """Rows of the current state's features, shape (n_active,)."""
        return np.asarray(self.arrays.active[self._now % (self.memory.batch + 1)])

    # ---- the stream -----------------------------------------------------------------------------

    def begin(self, tiles: Integers) -> Floats:
        """Begin a stream at `tiles`, (n_active,), with all traces at zero: `PlainEngine.begin`.

        Pending updates that would wait too long are written, so that the ring of T times never overflows.
        """
        self.catch_up()
        span = self.arrays
        waits = self._now - span.flushed_at
        if ((span.n_pending > 0) & (waits >= span.longest_wait)).any():
            self._run(transition.flush, span.longest_wait)
        self.memory.set_n_active(tiles.size)
        self.memory.prefault_ahead(tiles.size)
        self._run(transition.begin, tiles)
        return self.latest

    def learn(self, tiles: Integers, signals: Signals, *, is_last: bool = False) -> Floats:
        """Learn from the transition to `tiles`, (n_active,), or queue it until a batch is full: `PlainEngine.learn`."""
        memory = self.memory
        if memory.clock[NOW] < 0:  # the kernels do not check bounds
            raise no_stream()
        if signals is not self._signals:
            self._check_shapes(signals)
            self._signals = signals
            self._step = None
            memory.clock[IS_KNOWN] = 0
        if not memory.is_ready:
            memory.prefault_ahead(tiles.size)
        self._move_due_averages()
        self._m_scale *= self._m_decay
        self.n_waiting += 1
        n_steps = 0
        if self.n_waiting >= memory.batch:
            n_steps = self.n_waiting
        m_step = 1.0 / (self.config.mspbe_tau * self._m_scale)
        arguments = (np.ascontiguousarray(tiles, dtype=np.int64), m_step, is_last, n_steps)
        packed = self._packed()
        if self._step is None or packed is not self._step_of:
            self._step_of = packed
            step = bind(
                transition.step, packed.general, packed.entry, pack(signals), like=arguments
            )
            self._step = one_at_a_time(step, memory.span.n_threads)
        findings = self._step(*arguments)
        if n_steps:
            self._finish_steps(findings)
        if self._averages_wait:
            self._count_down()
        return self.latest

    def work_ahead(self) -> None:
        """Write the pending updates and move the averages that the next step would begin with: `Horde.work_ahead`.

        Nothing is due before queued steps are processed.
        """
        if self.memory.batch > 1:
            return
        if self._averages_wait:
            latest_averaged = self.latest_averaged.copy()
            self._move_due_averages()
            self.latest_averaged[:] = latest_averaged  # until the next step
        self.flags |= int(self._run(transition.flush_ahead))

    def set_scales(self, rarity: Rarity) -> None:
        """Set the factors of the features' step sizes: `PlainEngine.set_scales`; the traces' products with S change."""
        if not self.config.rarity:
            return
        self._flush()
        self.memory.set_scales(rarity)
        self._sum_traces()

    def _run(self, parallel_kernel: Any, *arguments: Any) -> Any:
        """Call a kernel that starts parallel loops."""
        packed = self._packed()
        call = one_at_a_time(parallel_kernel, self.memory.span.n_threads)
        return call(packed.general, packed.entry, *arguments)

    def _check_shapes(self, signals: Signals) -> None:
        """Raise ValueError if signals have the wrong shape; the kernels do not check bounds."""
        span = self.arrays
        arrays = (span.signal_rho, span.signal_gamma, span.signal_lam, span.signal_c, span.signal_z)
        for name, numbers in zip(
            ("rho_t", "gamma_tp1", "lam_tp1", "c_tp1", "z_tp1"), arrays, strict=True
        ):
            shape = np.shape(getattr(signals, name))
            expected = (numbers.shape[1] - 1,)
            if shape != expected:
                raise ValueError(f"{name} must have the shape {expected}, not {shape}")

    def catch_up(self) -> None:
        """Process all queued steps."""
        if self.n_waiting:
            self._finish_steps(self._run(transition.take, self.n_waiting))

    def _finish_steps(self, found: int) -> None:
        """Update flags after all queued steps were processed."""
        self.flags = self.flags | int(found)
        self.n_waiting = 0
        if self._m_scale < SMALLEST_SCALE:  # multiply out, far from overflow
            for numbers in (self.arrays.m, self.arrays.m_step):
                numbers *= numbers.dtype.type(self._m_scale)
            self._m_scale = 1.0

    def _flush(self) -> None:
        self.catch_up()
        if self._now >= 0:
            self.flags |= int(self._run(transition.flush, 1))

    # ---- several streams ------------------------------------------------------------------------

    def select_stream(self, stream: int) -> None:
        """Learn from another stream from now on: `PlainEngine.select_stream`.

        Pending updates are written, and e.w is summed again, because other streams have changed w.
        """
        if stream == self.stream:
            return
        self._finish_averages()
        self._flush()
        self.memory.select_stream(stream)
        if self._now >= 0 and (self.arrays.has_w or self.arrays.has_scales):
            self._sum_traces()
        self._sum_bases()

    def _sum_traces(self) -> None:
        """Sum e.w, and the products of e with S, from the steps that the traces consist of; no update is pending."""
        self._each_group(transition.sum_trace_task, np.arange(self.arrays.flushed_at.size))

    def _each_group(self, task: Any, groups: Integers) -> None:
        """Call a task that reads the history of a flush group, for each of these, (n,)."""
        packed = self._packed()
        entry = self._entry_of(task, packed.native)
        each_group = one_at_a_time(transition.each_group, self.memory.span.n_threads)
        each_group(packed.general, entry, groups)

    # ---- reading: nothing here changes what is learned ------------------------------------------

    def predict(self, tiles: Integers, weights: WeightsName = "theta") -> Floats:
        """Return theta.phi or average.phi of all demons at `tiles`, float64, shape (n_demons,), without learning."""
        return self._of_demons(self._predict(tiles, weights, 0, self.layout.n_blocks))

    def predict_one(self, demon: int, tiles: Integers, weights: WeightsName = "theta") -> float:
        """Return one demon's theta.phi or average.phi at `tiles`, (n_active,)."""
        lane = int(self.layout.lane[demon])
        b = self.layout.block_of(lane)
        return float(self._predict(tiles, weights, b, b + 1)[lane])

    def action_values(self, demon: int, tiles: Integers) -> Floats:  # noqa: ARG002 - the protocol's arguments
        """Raise ValueError whatever `tiles`, (n_active,): rules that find policies are not supported."""
        raise ValueError(f"algorithm {self.config.algorithm!r} has no action values")

    def _predict(self, tiles: Integers, weights: WeightsName, first: int, last: int) -> Reals:
        """Return theta.phi or average.phi of the lanes of blocks [first, last)."""
        self.catch_up()
        blocks = np.array([first, last])
        rows = np.zeros(tiles.size, dtype=np.int64)
        allocation = self.memory.allocation
        sums = allocation.zeros(self.layout.n_lanes)
        if weights == "average":
            transition.sum_averages(self._packed().native, tiles, blocks, rows, sums)
            return sums
        bits = np.zeros(self.arrays.bits.shape[1], dtype=np.uint64)
        overlap = allocation.zeros(allocation.n_times)
        transition.predict(self._packed().native, tiles, blocks, bits, rows, overlap, sums)
        return sums

    # ---- averaged weights -----------------------------------------------------------------------

    def move_averages(self, rates: Floats) -> None:
        """Move the averaged weights toward theta, by a rate for each demon, shape (n_demons,).

        Flush groups that take turns (`average_turns`) move before the steps that follow, but for those with a
        first average, from which their demons predict at once.
        """
        self.catch_up()
        if self._now < 0:
            return
        self._finish_averages()
        self.arrays.rates[self.layout.lane] = rates
        wait = self.arrays.average_wait
        wait[:] = self.memory.allocation.average_turns
        wait[self.layout.group_of(np.flatnonzero(rates >= 1.0))] = 1
        self._averages_wait = True
        self._move_due_averages()

    def _move_due_averages(self) -> None:
        """Move the averages of the groups that have waited until now."""
        if not self._averages_wait:
            return
        wait = self.arrays.average_wait
        due = np.flatnonzero(wait == 1)
        if due.size:
            self._each_group(transition.average_task, due)
            wait[due] = 0
            self._averages_wait = bool(wait.any())

    def _count_down(self) -> None:
        """Count a step that groups have waited for their averages to move."""
        wait = self.arrays.average_wait
        np.maximum(wait - 1, 0, out=wait)

    def _finish_averages(self) -> None:
        """Move the averages that wait for their turn now."""
        wait = self.arrays.average_wait
        np.minimum(wait, 1, out=wait)
        self._move_due_averages()

    def _of_demons(self, lanes: Reals) -> Floats:
        """Return a lane array in the order of the demons, float64, shape (n_demons,)."""
        return lanes[self.layout.lane].astype(np.float64)

    def numbers(self, name: NumberName) -> Floats:
        """Return a number of each demon after all queued steps, shape (n_demons,): `EngineResults.numbers`.

        "max_trace" is the largest sum of the trace's factors so far: an upper bound of |e|, which is
        the largest |e| if a feature is always active (a bias).
        """
        self.catch_up()
        if name == "mspbe" and not self.arrays.has_w:
            return np.full(self.n_demons, np.nan)
        return self._of_demons(getattr(self.arrays, name))

    def pop_errors(self) -> Floats:
        """Return the sums of rho delta and rho delta^2, shape (2, n_demons), and set them to 0: `Engine.pop_errors`."""
        self.catch_up()
        arrays = self.arrays
        sums = np.stack([self._of_demons(arrays.error_sum), self._of_demons(arrays.error_square)])
        arrays.error_sum[:] = 0.0
        arrays.error_square[:] = 0.0
        return sums

    def rows(self, *names: str, demons: Integers | None = None) -> tuple[Reals, ...]:
        """Return copies of arrays, each (n, n_features), of demons (n,) or all: `EngineResults.rows`."""
        chosen = np.arange(self.n_demons)
        if demons is not None:
            chosen = demons
        if "m" in names and not self.arrays.m.size:
            raise ValueError(NO_VECTOR_ESTIMATE)
        learned = tuple(name for name in names if name != "average")
        for name in learned:
            if name not in _LEARNED_ROWS:
                raise ValueError(f'the fast engine stores no {name!r}: choose engine="plain"')
        by_name = dict(zip(learned, self._learned_rows(learned, chosen), strict=True))
        if "m" in by_name:
            by_name["m"] *= self.dtype.type(self._m_scale)
        if "average" in names:
            by_name["average"] = self._averaged_rows(chosen)
        return tuple(by_name[name] for name in names)

    def _averaged_rows(self, demons: Integers) -> Reals:
        """Return a copy of the averaged theta, (n, n_features), of demons, (n,)."""
        out = np.zeros((demons.size, self.n_features), dtype=self.dtype)
        n_rows = self.memory.features.size
        for place, lane in enumerate(self.layout.lane[demons].tolist()):
            b = self.layout.block_of(lane)
            rows = self.memory.rows("average", b)[..., lane - self.layout.start[b]]
            out[place, self.memory.features] = rows.reshape(-1)[:n_rows]
        return out

    def mspbe_vector(self) -> Floats:
        """Return the vector MSPBE estimate m.w, shape (n_demons,): NaN without w; raise ValueError without m."""
        if not self.arrays.has_w:
            return np.full(self.n_demons, np.nan)
        if not self.arrays.m.size:
            raise ValueError(
                "no vector MSPBE estimate is computed: set vector_mspbe=True in LearnerConfig"
            )
        estimate = np.zeros(self.layout.n_lanes)
        for b, (_, w, m) in self._read():
            lanes = slice(self.layout.start[b], self.layout.start[b + 1])
            estimate[lanes] = np.einsum("fl,fl->l", m, w, dtype=np.float64)
        return self._of_demons(estimate * self._m_scale)

    def _learned_rows(self, names: tuple[str, ...], demons: Integers) -> Reals:
        """Return theta, w or m of demons, (n,): (names, n, n_features); read only their blocks."""
        out = np.zeros((len(names), demons.size, self.n_features), dtype=self.dtype)
        if not names:
            return out
        features = self.memory.features
        lanes = self.layout.lane[demons]
        of_block = np.searchsorted(self.layout.start, lanes, side="right") - 1
        for b, rows in self._read(np.unique(of_block)):
            places = np.flatnonzero(of_block == b)
            for of_name, name in zip(out, names, strict=True):
                of_kind = rows[_LEARNED_ROWS.index(name)][:, lanes[places] - self.layout.start[b]]
                if of_kind.size:  # a rule may have no w
                    of_name[np.ix_(places, features)] = of_kind.T
        return out

    def _read(
        self, blocks: Integers | None = None
    ) -> Iterator[tuple[int, tuple[Reals, Reals, Reals]]]:
        """Yield copies of theta, w and m of blocks with pending updates added, each (rows in use, lanes)."""
        self.catch_up()
        n = self.memory.features.size
        flags = self.arrays.is_flagged.copy()
        listed = -1
        if blocks is None:
            blocks = np.arange(self.layout.n_blocks)
        for b in blocks.tolist():
            width = int(np.diff(self.layout.start)[b])
            g = int(self.layout.flush_group[b])
            theta, w, m = (
                self.memory.rows(name, b).reshape(-1)[: n * width].copy() for name in _LEARNED_ROWS
            )
            if self._now >= 0:
                if g != listed:
                    transition.list_group(self._packed().general, g)
                transition.read_block(self._packed().native, b, theta, w, m)
                listed = g
            yield b, tuple(a.reshape(-1, width) for a in (theta, w, m))  # type: ignore[misc]
        self.arrays.is_flagged[:] = flags

    def _in_full(self) -> tuple[dict[str, Reals], NDArray[np.bool_], Integers]:
        """Return weights, full traces and estimates by name, the mask of diverged demons, and the current tiles.

        `e` is gamma_t lambda_t e_{t-1} of the current step.
        """
        self._finish_averages()
        self._flush()
        theta, w = self.rows("theta", "w")
        span = self.arrays
        numbers = {name: self._of_demons(getattr(self.arrays, name)) for name in _IN_FULL}
        if self.arrays.m.size:
            (m,) = self.rows("m")
        else:
            m = np.zeros((0, 0), dtype=self.dtype)
        learned = {"theta": theta, "w": w, "m": m, **numbers, "e": self._trace()}
        if self.arrays.average.size:
            (learned["average"],) = self.rows("average")
        if not self.arrays.has_w:
            del learned["w"]
        learned |= {"gamma_t": np.ones(self.n_demons), "lam_t": np.ones(self.n_demons)}
        if span.numbers.size:  # such a rule needs its trace, gamma and lambda apart
            learned |= {name: self._of_demons(getattr(span, name)) for name in ("gamma_t", "lam_t")}
            learned["numbers"] = span.numbers.reshape(-1, self.layout.n_lanes)[:, self.layout.lane]
            decay = (learned["gamma_t"] * learned["lam_t"])[:, None]
            learned["e"] = np.where(decay > 0, learned["e"] / np.where(decay > 0, decay, 1), 0)
        tiles = self.memory.feature_of[self._active]
        return learned, self.memory.is_diverged[self.layout.lane], tiles

    def to_plain(self) -> PlainEngine:
        """Return a plain engine that continues from here in every stream, for traces longer than LARGEST_TAIL."""
        group, policy, cumulant = self.memory.demons
        args = (group, self.n_features, 0.0, 0.0, self.config)  # step sizes are taken over, too
        plain = PlainEngine(*args, policy=policy, cumulant=cumulant)
        if self.config.rarity:
            plain.rescale(np.sqrt(self.memory.scale_of_features))
        for stream in (*self.memory.streams.others, self.stream):
            self.select_stream(stream)
            plain.select_stream(stream)
            plain.take_over(*self._in_full())
        return plain

    def _trace(self) -> Reals:
        """Return v_t = c_t (phi_t + v_{t-1}) of the latest step, by demon: gamma_{t+1} lambda_{t+1} e_t."""
        span = self.arrays
        e = np.zeros((self.n_demons, self.n_features), dtype=self.dtype)
        for b in range(self.layout.n_blocks):
            times = np.arange(span.tail_from[self.layout.flush_group[b]], self._now)
            c = self.memory.ring(span.c, b)
            factor = np.cumprod(c[times % len(c)][::-1], axis=0)[::-1]
            if span.has_source:
                factor = factor * self.memory.ring(span.factor, b)[times % len(c)]
            bits = span.bits[times % len(span.bits)].view(np.uint8)
            phi = np.unpackbits(bits, axis=1, bitorder="little")[:, : self.memory.features.size]
            demon = self.layout.demon[self.layout.start[b] : self.layout.start[b + 1]]
            of_rows = factor.T[demon >= 0] @ phi.astype(self.dtype)
            e[np.ix_(demon[demon >= 0], self.memory.features)] = of_rows
        return e

    # ---- diverged demons ------------------------------------------------------------------------

    def pop_diverged(self) -> dict[int, str]:
        """Return the demons that diverged since the last call, with the reason: not finite, or above a bound.

        Queued steps are not included.
        """
        if not self.flags & DEMON_DIVERGED:
            return {}
        self.flags &= ~DEMON_DIVERGED
        is_new = (self.arrays.is_flagged != 0) & ~self.memory.is_diverged & (self.layout.demon >= 0)
        span = self.arrays
        lanes = np.flatnonzero(is_new)
        reasons = dict[int, str]()
        span.is_flagged[:] = 0
        of_block = np.searchsorted(self.layout.start, lanes, side="right") - 1
        for b, rows in self._read(np.unique(of_block)):
            for lane in lanes[of_block == b].tolist():
                numbers = (
                    float(a[lane]) for a in (span.prediction, span.mspbe, span.td_error, span.bound)
                )
                theta, w, m = (of_kind[:, lane - self.layout.start[b]] for of_kind in rows)
                reasons[int(self.layout.demon[lane])] = fault(theta, w, m, *numbers)
        return dict(sorted(reasons.items()))

    def mark_diverged(self, demon: int) -> None:
        """Set one demon's weights to zero for good; other demons do not change."""
        self.catch_up()
        self.memory.mark_diverged(demon)

    def set_bounds(self, bound: Floats) -> None:
        """Set the |theta| above which a demon has diverged, shape (n_demons,), also for queued steps."""
        self.arrays.bound[self.layout.lane] = np.minimum(bound, max_finite(self.dtype))

    def reset_weights(self, theta: Reals | None = None) -> None:
        """Set theta, (n_demons, n_features), by default to zero: `PlainEngine.reset_weights`."""
        if theta is not None:
            check_weights(theta, (self.n_demons, self.n_features), self.dtype)
            self.catch_up()
            self.memory.number_features(np.flatnonzero((theta != 0).any(axis=0)))
        self._finish_averages()
        self._flush()
        features = self.memory.features
        for b in range(self.layout.n_blocks):
            start = int(self.layout.start[b])
            stop = int(self.layout.start[b + 1])
            demon = self.layout.demon[start:stop]
            rows = self.memory.rows("theta", b)
            learns = (demon >= 0) & ~self.memory.is_diverged[start:stop]
            values = np.zeros((rows.size // (stop - start), stop - start))
            if theta is not None:
                values[: features.size, learns] = theta[np.ix_(demon[learns], features)].T
            rows[:] = values.reshape(rows.shape)
            if self.arrays.average.size:
                self.memory.rows("average", b)[:] = rows
        self._sum_bases()

    def _sum_bases(self) -> None:
        """Recompute the sums at the current state from the written weights; no update is pending."""
        if self._now < 0:
            return
        transition.sum_bases(self._packed().native, self._active)
        self.arrays.prediction[:] = self.arrays.base
        self.arrays.predictions[:] = self._of_demons(self.arrays.prediction)
        self.arrays.averaged[:] = self._of_demons(self.arrays.base_average)

    # ---- state ----------------------------------------------------------------------------------

    def state(self) -> State:
        """Return copies of the engine's complete state, by name; queued steps stay queued."""
        return self.memory.state() | attributes(self, *_OWN_STATE)

    def restore(self, state: State) -> None:
        """Restore a state from an engine with the same arguments and the same calls of `rearrange`."""
        self.memory.restore(state)
        self.latest = self.memory.span.predictions
        self.latest_averaged = self.memory.span.averaged
        put_back(self, state, *_OWN_STATE)
        self._averages_wait = bool(self.arrays.average_wait.any())
        self._signals = None

    def rearrange(self, mapping: DemonMapping) -> None:
        """Add and remove demons. Remaining demons keep their weights, traces and estimates.

        Pending updates are flushed, so that remaining demons change only by rounding. New demons
        start at the current state with zero weights and traces.
        """
        self._finish_averages()
        self._flush()
        latest = self.latest
        latest_averaged = self.latest_averaged
        self.memory.rearrange(mapping)
        self.n_demons = mapping.group.size
        self._signals = None
        self.latest = self.memory.span.predictions
        self.latest_averaged = self.memory.span.averaged
        self.latest[:] = np.where(mapping.is_new, 0.0, latest[mapping.old_index])
        self.latest_averaged[:] = np.where(mapping.is_new, 0.0, latest_averaged[mapping.old_index])
