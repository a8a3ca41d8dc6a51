"""SpanMemory: what a span engine stores: lanes, rows of weights, history, streams, and their saved state.

A demon has a *lane*; lanes of one policy are adjacent and form blocks, whose rows of weights are
contiguous. `FIELDS` says of each array what it has numbers for; allocation, saving, streams and
moves to another layout follow from it. If demons are added and removed, remaining demons' weights
and numbers are copied to their new lanes. Nothing is recomputed, so that their results change only
by the rounding of sums that are flushed at another time.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from typing import Any, ClassVar, NamedTuple

import numba
import numpy as np
from numpy.typing import NDArray

from horde_agent.kernels import trace_rules
from horde_agent.kernels._jit import Constant
from horde_agent.kernels.rules import Rule, rule
from horde_agent.kernels.span.arrays import (
    CHUNK,
    N_CLOCKS,
    N_ROWS,
    NO_TIME,
    NOW,
    SpanArrays,
)
from horde_agent.learning.averages import BATCH
from horde_agent.learning.engine import (
    DROP_BELOW,
    LARGEST_STEP,
    DemonMapping,
    max_finite,
)
from horde_agent.learning.rarity import N_CLASSES, Rarity
from horde_agent.learning.rules import LARGEST_TAIL, LearnerConfig, trace_length
from horde_agent.learning.stored import (
    DEMON,
    NEWCOMER,
    Field,
    Fields,
    Stored,
    Streams,
    copies,
    fill,
)
from horde_agent.saving import State
from horde_agent.types import Bools, Floats, Integers, Reals

LANE_UNIT = 16  # lanes come in multiples of a cache line of float32
WIDEST = 128  # lanes of a block
_MANY = 8_192  # from this number of demons on, rows exceed the caches
_WIDEST_OF_MANY = 512
LANES_OF_A_GROUP = (
    1_024  # lanes of a flush group with several policies; they share the list of runs
)
LANES_OF_A_TURN = (
    512  # lanes of a flush group with one policy that has more than `LANES_OF_A_GROUP`
)
_MOST_GROUPS = 64  # one for each step between two flushes

_CACHE_LINE = 64  # bytes
_PAGE = 4_096  # bytes, the smallest page size
_PART = 1 << 26  # bytes that a thread pre-faults at a time
_FEW = 1 << 22  # bytes that are pre-faulted sooner than threads are started, in at most 1 ms

_PERIODS = {False: 64, True: 128}  # steps between two flushes, eager and deferred
_WAIT = 3  # periods after which pending updates are written in any case
_VECTOR = 80  # lanes of scratch
_WIDE = 64  # lanes of a block from which on wide vectors pay

_FIRST_ROWS = 4 * CHUNK  # rows that are pre-faulted before the first step
PREFAULT_STEPS = 128  # steps over which a chunk is pre-faulted
LEAST_TOUCHED = 1 << 19  # least numbers per step


# ---- the arrays ---------------------------------------------------------------------------------

# What an array has a number for.
LANE = "lane"
RING = "lane and step of the trace"
PENDING = "lane and pending step"
ROW = "lane and feature"
NUMBER = "lane and number of the rule"
GROUP = "flush group"
BLOCK = "block"
LAYOUT = "the assignment of lanes"
SIGNAL = "signals of queued steps"
SHARED = "history shared by all demons"
SCRATCH = "scratch"


ARRAYS: dict[str, Field] = {
    **dict.fromkeys(("policy", "trace_group", "cumulant", "outcome"), Field(LAYOUT)),
    # So that a reader of the weights needs no rule of the assignment
    **dict.fromkeys(("demon", "start"), Field(LAYOUT)),
    **dict.fromkeys(("flush_group", "first_block", "only_policy"), Field(LAYOUT, is_saved=False)),
    "limit_of_turn": Field(LAYOUT, is_saved=False),
    # Rows in use are saved
    **dict.fromkeys(("theta", "w", "m", "average"), Field(ROW, diverged=0.0, is_saved=False)),
    **dict.fromkeys(("c", "factor"), Field(RING, diverged=0.0, of_stream=True)),
    **dict.fromkeys(("d", "h", "q", "cut"), Field(PENDING, diverged=0.0)),
    # Each stream has its own of those that belong to the trace
    "numbers": Field(NUMBER, diverged=0.0),
    **dict.fromkeys(("max_trace", "bound"), Field(LANE)),
    **dict.fromkeys(
        ("prediction", "td_error", "mspbe", "largest_gain", "alpha", "alpha_w"),
        Field(LANE, diverged=0.0),
    ),
    **dict.fromkeys(
        ("error_sum", "error_square", "rates"), Field(LANE, diverged=0.0, is_optional=True)
    ),
    **dict.fromkeys(
        ("e_phi", "e_w", "e_e", "e_sum", "gamma_t", "lam_t"),
        Field(LANE, diverged=0.0, of_stream=True),
    ),
    **dict.fromkeys(
        ("is_flagged", "base", "base_w", "base_average", "d_sum", "h_sum", "q_sum", "w_left"),
        Field(LANE, diverged=0.0),
    ),
    **dict.fromkeys(
        ("rho", "gamma_tp1", "lam_tp1", "c_tp1", "interest", "skips"), Field(LANE, diverged=0.0)
    ),
    **dict.fromkeys(("flushed_at", "tail_from"), Field(GROUP, of_stream=True)),
    **dict.fromkeys(("n_pending", "limit", "kind"), Field(GROUP)),
    "average_wait": Field(GROUP, is_optional=True),
    "w_at": Field(BLOCK),
    **dict.fromkeys(
        ("signal_rho", "signal_c", "signal_gamma", "signal_lam", "signal_z"), Field(SIGNAL)
    ),
    **dict.fromkeys(
        ("signal_interest", "signal_skips", "signal_b", "signal_changes"), Field(SIGNAL)
    ),
    **dict.fromkeys(("predictions", "averaged"), Field(DEMON, diverged=0.0)),
    # Each stream has its own time in `clock`
    **dict.fromkeys(("m_step", "row_of", "feature_of", "clock"), Field(SHARED)),
    **dict.fromkeys(("class_bits", "class_scale", "scale"), Field(SHARED)),
    **dict.fromkeys(("bits", "active", "changed", "n_changed"), Field(SHARED, of_stream=True)),
    **dict.fromkeys(
        ("overlap", "norm", "table", "precomputed", "n_runs", "tail_needed"),
        Field(SCRATCH, is_saved=False),
    ),
    **dict.fromkeys(("run_row", "run_first", "run_last"), Field(SCRATCH, is_saved=False)),
    **dict.fromkeys(("run_ends", "run_time", "run_place"), Field(SCRATCH, is_saved=False)),
}


def arrays_per(axis: str) -> tuple[str, ...]:
    """Return the names of the arrays that have a number for an axis."""
    return tuple(name for name, field in ARRAYS.items() if field.axis == axis)


OF_LANES = arrays_per(LANE)
ROWS = arrays_per(ROW)  # rows in use come first
_SIGNALS_OF_LANE = ("policy", "trace_group", "cumulant", "outcome")


# ---- lanes --------------------------------------------------------------------------------------


class LaneAssignment(NamedTuple):
    """Assignment of demons to blocks and flush groups, which determines rounding.

    Attributes:
        order: The demons, block by block, shape (n_demons,).
        sizes: Number of demons in each block, shape (n_blocks,).
        n_blocks: Number of blocks in each flush group, shape (n_flush_groups,).
        has_one_policy: True for a flush group with one policy, which can be idle, shape
            (n_flush_groups,).
        phase: Share of the period after which a flush group is flushed again if all were flushed
            at once, shape (n_flush_groups,).
    """

    order: Integers
    sizes: Integers
    n_blocks: Integers
    has_one_policy: Bools
    phase: Floats

    @property
    def widths(self) -> Integers:
        """Number of lanes of each block, shape (n_blocks,)."""
        return np.asarray(-(-self.sizes // LANE_UNIT) * LANE_UNIT)

    @property
    def turn(self) -> Integers:
        """Number of each flush group, shape (n_flush_groups,), if those of one policy were one group."""
        is_first = np.append(True, np.diff(self.phase) <= 0.0)
        return np.asarray(np.cumsum(is_first | ~self.has_one_policy) - 1)


def widest(n_demons: int, *, is_deferred: bool) -> int:
    """Return the largest number of lanes of a block."""
    if n_demons >= _MANY and not is_deferred:
        return _WIDEST_OF_MANY
    return WIDEST


def assign_lanes(
    group: Integers, policy: Integers, widest: int, *, is_deferred: bool = False
) -> LaneAssignment:
    """Assign the demons of a policy to adjacent lanes, in blocks of even width.

    A policy with many demons gets its own flush groups, because a group whose ratios are all 0 can
    skip the step. Those of more than 1,024 lanes are flushed by turns, so that no step writes the
    pending updates of all; queued steps are written together anyway, and a policy is one group.

    Args:
        group: Trace group of each demon, shape (n_demons,), numbered from 0.
        policy: Policy of each trace group, shape (n_groups,).
        widest: Largest number of lanes of a block.
        is_deferred: Whether steps are queued.
    """
    policy_of = policy[group]
    sizes = np.bincount(policy_of)[policy_of]
    is_small = sizes < min(widest, 3 * LANE_UNIT)
    order = np.lexsort((group, policy_of))
    blocks: list[Integers] = []
    sizes_of_groups: list[int] = []
    phases: list[float] = []
    for p in np.unique(policy_of[~is_small]):
        policy_blocks = _split_evenly(order[policy_of[order] == p], widest)
        turns = [len(policy_blocks)]
        if not is_deferred:
            turns = _sizes_of_groups(len(policy_blocks), widest, LANES_OF_A_TURN)
        blocks = blocks + policy_blocks
        sizes_of_groups = sizes_of_groups + turns
        phases = phases + _phases(len(turns))
    n_alone = len(sizes_of_groups)
    shared_blocks = _split_evenly(order[is_small[order]], widest)
    shares = _sizes_of_groups(len(shared_blocks), widest, LANES_OF_A_GROUP)
    blocks = blocks + shared_blocks
    sizes_of_groups = sizes_of_groups + shares
    phases = phases + _phases(len(shares))
    sizes_of_blocks = np.array([members.size for members in blocks], dtype=np.int64)
    has_one_policy = np.arange(len(sizes_of_groups)) < n_alone
    return LaneAssignment(
        order=np.concatenate(blocks),
        sizes=sizes_of_blocks,
        n_blocks=np.array(sizes_of_groups, dtype=np.int64),
        has_one_policy=has_one_policy,
        phase=np.array(phases),
    )


def _sizes_of_groups(n_blocks: int, widest: int, n_lanes: int) -> list[int]:
    """Return the numbers of blocks of flush groups of at most `n_lanes`, if these blocks have more than 1,024 lanes.

    There are at most 64 of them.
    """
    n_groups = 1
    if n_blocks * widest > LANES_OF_A_GROUP:
        n_groups = min(_MOST_GROUPS, -(-n_blocks * widest // n_lanes))
    shares = np.array_split(np.arange(n_blocks), n_groups)
    return [share.size for share in shares if share.size]


def _phases(n_groups: int) -> list[float]:
    """Return the phases of flush groups that take turns; 1 of a single one."""
    return [(k + 1) / n_groups for k in range(n_groups)]


class ShardLayout(NamedTuple):
    """Layout of a shard's demons of one update rule, as in the whole Horde.

    No sum crosses a lane, so that a demon depends on other demons only through the composition and
    time of its flushes.

    Attributes:
        assignment: Lane assignment of these demons.
        groups: Index of each of their flush groups among those of the rule in the whole Horde,
            (n_flush_groups,).
        n_groups: Number of the rule's flush groups in the whole Horde.
        may_idle: True if one of these has only one policy.
    """

    assignment: LaneAssignment
    groups: Integers
    n_groups: int
    may_idle: bool


class ShardContext(NamedTuple):
    """Properties of the whole Horde that a shard needs to compute bit-identical results.

    Attributes:
        layouts: Layout of the shard's demons of each update rule of the whole Horde.
        predicted: Update rules with a demon whose prediction is a cumulant: they process queued
            steps on each step.
        largest_decay: Largest product of a continuation and a trace decay in the whole Horde.
        n_gibbs: Number of Gibbs policies of the whole Horde.
    """

    layouts: Mapping[str, ShardLayout]
    predicted: frozenset[str]
    largest_decay: float
    n_gibbs: int


WHOLE = ShardContext(layouts={}, predicted=frozenset(), largest_decay=0.0, n_gibbs=0)
"""The context of a Horde that is no shard."""


class Layout:
    """Lane of each demon.

    Attributes:
        lane: Lane of each demon, shape (n_demons,).
        demon: Demon of each lane, -1 for an empty lane, shape (n_lanes,).
        start: Block b is the lanes start[b]..start[b + 1], shape (n_blocks + 1,).
        flush_group: Flush group of each block, shape (n_blocks,).
        first_block: Flush group g is the blocks first_block[g]..first_block[g + 1], shape
            (n_flush_groups + 1,).
        only_policy: Policy of each flush group, or -1 if it has several, shape (n_flush_groups,).
        phase, turn: As in `LaneAssignment`.
    """

    def __init__(self, policy_of: Integers, assignment: LaneAssignment) -> None:
        order = assignment.order
        sizes = assignment.sizes
        n_blocks = assignment.n_blocks
        self.flush_group = np.repeat(np.arange(n_blocks.size), n_blocks)
        self.first_block = np.concatenate([[0], np.cumsum(n_blocks)]).astype(np.int64)
        self.start = np.concatenate([[0], np.cumsum(assignment.widths)]).astype(np.int64)
        self.n_lanes = int(self.start[-1])
        self.n_blocks = sizes.size
        first = np.cumsum(sizes) - sizes  # in `order`, of each block
        self.lane = np.empty(order.size, dtype=np.int64)
        self.lane[order] = np.arange(order.size) + np.repeat(self.start[:-1] - first, sizes)
        self.demon = np.full(self.n_lanes, -1, dtype=np.int64)
        self.demon[self.lane] = np.arange(order.size)
        self.phase = assignment.phase
        self.turn = assignment.turn
        self.only_policy = np.where(
            assignment.has_one_policy, policy_of[order[first[self.first_block[:-1]]]], -1
        )

    def block_of(self, lane: int) -> int:
        """Return the block of a lane."""
        return int(np.searchsorted(self.start, lane, side="right")) - 1

    def group_of(self, demons: Integers) -> Integers:
        """Return the flush group of each of these demons, (n,)."""
        of_block = np.searchsorted(self.start, self.lane[demons], side="right") - 1
        return np.asarray(self.flush_group[of_block])


def _split_evenly(members: Integers, widest: int) -> list[Integers]:
    if members.size:
        return np.array_split(members, -(-members.size // widest))
    return []


# ---- moves between layouts ----------------------------------------------------------------------


Move = tuple[int, Integers, int, Integers]
"""A block, lanes of it, a block of the old layout, and the lanes there that become these."""


def moves(old: Layout, new: Layout, old_index: Integers) -> list[Move]:
    """Return each lane's old and new position in its block; `old_index`, shape (n_demons,), as in `DemonMapping`."""
    staying = np.flatnonzero(old_index != NEWCOMER)
    new_lanes = new.lane[staying]
    old_lanes = old.lane[old_index[staying]]
    block = np.searchsorted(new.start, new_lanes, side="right") - 1
    source = np.searchsorted(old.start, old_lanes, side="right") - 1
    new_places = new_lanes - new.start[block]
    old_places = old_lanes - old.start[source]
    order = np.lexsort((source, block))
    cuts = np.flatnonzero(np.diff(block[order]) | np.diff(source[order])) + 1
    return [
        (int(block[p[0]]), new_places[p], int(source[p[0]]), old_places[p])
        for p in np.split(order, cuts)
        if p.size
    ]


def rows_of(numbers: Reals, layout: Layout, block: int, n: int) -> Reals:
    """Return a view of a block's rows, shape (chunks, n, lanes); each chunk holds n rows of every block."""
    start = int(layout.start[block])
    stop = int(layout.start[block + 1])
    return numbers.reshape(-1, n * layout.n_lanes)[:, n * start : n * stop].reshape(
        -1, n, stop - start
    )


# ---- allocation ---------------------------------------------------------------------------------


def aligned_zeros(shape: tuple[int, ...], dtype: np.dtype[Any]) -> NDArray[Any]:
    """Return zeros aligned to a cache line; an unaligned row would touch one more line, and each vector two."""
    n_bytes = math.prod(shape) * dtype.itemsize
    raw = np.zeros(n_bytes + _CACHE_LINE, dtype=np.uint8)
    skipped = -raw.ctypes.data % _CACHE_LINE
    return raw[skipped : skipped + n_bytes].view(dtype).reshape(shape)


def prefault(*arrays: NDArray[Any], n_threads: int = 1) -> None:
    """Pre-fault the memory of flat arrays, without changing their content.

    The first write to a page takes 0.3 to 0.8 ms per 2 MB: without this, a robot's step that first
    used rows of 50,000 demons took 0.4 s.
    """
    parts = [
        a[i : i + _PART // a.itemsize]
        for a in arrays
        for i in range(0, a.size, _PART // a.itemsize)
    ]
    n_bytes = sum(part.nbytes for part in parts)
    if n_bytes <= _FEW:
        for part in parts:
            _prefault_part(part)
        return
    with ThreadPoolExecutor(n_threads) as threads:
        list(threads.map(_prefault_part, parts))


def _prefault_part(part: NDArray[Any]) -> None:
    of_each_page = part[:: _PAGE // part.itemsize]
    of_each_page[:] = of_each_page.copy()


class Allocation:
    """Makes the arrays of a span engine.

    Args:
        demons, n_features, config, batch, period, widest_block, share: As of `SpanMemory`.
        tail: Steps of traces to store, in addition to pending ones.

    Attributes:
        layout: Lane of each demon.
        n_times: Number of steps for which the active features are stored.
        period: Steps between two flushes.
    """

    def __init__(
        self,
        demons: tuple[Integers, Integers, Integers],
        n_features: int,
        config: LearnerConfig,
        batch: int,
        period: int,
        widest_block: int,
        share: ShardLayout | None,
        tail: int,
    ) -> None:
        group, policy, _ = self._demons = demons
        self._n_features = n_features
        self._config = config
        self._dtype = np.dtype(config.dtype)
        self._batch = batch
        self._share = share
        self._tail = tail
        self._has_w = "w" in self._rule.WEIGHTS
        most_lanes = widest_block or widest(group.size, is_deferred=batch > 1)
        assignment = assign_lanes(group, policy, most_lanes, is_deferred=batch > 1)
        if share:
            assignment = share.assignment
        self.layout = Layout(policy[group], assignment)
        self.period = max(period or _PERIODS[batch > 1], batch)
        self.n_times = _power_of_two(tail + _WAIT * self.period + batch + 2)
        # Pending updates are written after these steps in any case; later if a group can be idle.
        if share:
            may_idle = share.may_idle
        else:
            may_idle = bool((self.layout.only_policy >= 0).any())
        w_decays = self._has_w and config.w_rule == "every-step"  # where rho = 0
        self._places = self.period
        if may_idle and not w_decays:
            self._places = _WAIT * self.period

    @property
    def _rule(self) -> Rule:
        """The update rule; not an attribute, because modules cannot be copied."""
        return rule(self._config.algorithm)

    def arrays(self, n_active: int, **lasting: Any) -> SpanArrays:
        """Return the arrays for `n_active` active features, with those that outlast a new layout as given."""
        of_demons = self._of_lanes() | self._history() | self._signals()
        return SpanArrays(**of_demons, **self._settings(), **self.shared(n_active), **lasting)

    def zeros(self, *shape: int) -> Reals:
        """Return zeros of the engine's dtype, aligned to a cache line."""
        return aligned_zeros(shape, self._dtype)

    def _of_lanes(self) -> dict[str, Any]:
        """Return the assignment of lanes, rows of weights, and arrays with one number per lane."""
        (group, policy, cumulant) = self._demons
        layout = self.layout
        has_w = self._has_w
        n_lanes = layout.n_lanes
        of_lane = np.append(group, -1)
        n_weights = -(-self._n_features // CHUNK) * CHUNK * n_lanes
        return {
            "policy": np.append(policy, -1)[of_lane[layout.demon]],
            "trace_group": of_lane[layout.demon],
            "cumulant": np.append(cumulant, -1)[layout.demon],
            "outcome": layout.demon.copy(),
            "demon": layout.demon,
            "start": layout.start,
            "flush_group": layout.flush_group,
            "first_block": layout.first_block,
            "only_policy": layout.only_policy,
            "theta": self.zeros(n_weights),
            "w": self.zeros(n_weights * has_w),
            "m": self.zeros(n_weights * (has_w and self._config.vector_mspbe)),
            "average": self.zeros(n_weights * (self._config.average > 0.0)),
            "numbers": self.zeros(len(self._rule.numbers) * n_lanes),
            **{name: self.zeros(n_lanes) for name in OF_LANES},
            "w_left": np.ones(n_lanes, dtype=self._dtype),
            "bound": np.full(n_lanes, max_finite(self._dtype), dtype=self._dtype),
        }

    def _history(self) -> dict[str, Any]:
        """Return each demon's history, and the schedules of the flush groups."""
        layout = self.layout
        places = self._places * self.layout.n_lanes
        n_groups = layout.only_policy.size
        ring = _power_of_two(self._tail + self._places) * layout.n_lanes
        limits = np.full(n_groups, self.period)
        later_limits = limits
        if self._batch == 1:  # groups take turns
            limits = self._evenly(self.period)
            later_limits = np.ceil(layout.phase * self.period)
        stored = self._rule.SPAN
        has_factor = "source" in stored or "w_factor" in stored
        has_scaled_m = bool(self._config.rarity) and self._has_w and self._config.vector_mspbe
        return {
            "c": self.zeros(ring),
            "factor": self.zeros(ring * has_factor),
            "d": self.zeros(places),
            "h": self.zeros(places * ("h" in stored)),
            "q": self.zeros(places * ("q" in stored)),
            "cut": self.zeros(places * has_scaled_m),
            "m_step": np.zeros(self.n_times),
            "kind": np.zeros((n_groups, self.n_times), dtype=np.uint8),
            **{
                name: np.zeros(n_groups, np.int64)
                for name in ("flushed_at", "tail_from", "n_pending")
            },
            "limit": limits.astype(np.int64),
            "limit_of_turn": later_limits.astype(np.int64),
            "average_wait": np.zeros(n_groups, dtype=np.int64),
            "w_at": np.zeros(layout.n_blocks, dtype=np.int64),
        }

    def _evenly(self, n_steps: int) -> Integers:
        """Return a step from 1 to `n_steps` of each flush group, (n_groups,), evenly over those of the whole Horde."""
        n_groups = self.layout.only_policy.size
        groups = np.arange(n_groups)
        if self._share:
            groups = self._share.groups
            n_groups = self._share.n_groups
        return np.asarray(1 + groups * n_steps // n_groups)

    @property
    def average_turns(self) -> Integers:
        """Step after an average before which each flush group moves its own, (n_groups,), the first one being 1.

        Groups that are flushed by turns take turns here too, so that no step waits for the averages of all. They have
        moved before the next average is due; of queued steps all move at once.
        """
        layout = self.layout
        is_alone = (np.bincount(layout.turn)[layout.turn] == 1) & (layout.phase >= 1.0)
        if self._batch > 1:
            return np.ones_like(layout.turn)
        return np.where(is_alone, 1, 1 + self._evenly(BATCH - 2))

    def _signals(self) -> dict[str, Any]:
        """Return arrays for the signals of queued steps; their last column, for empty lanes, stays 0."""
        (group, policy, cumulant) = self._demons
        batch = self._batch
        gamma = self.zeros(batch + 1, policy.size + 1)
        gamma[-1, :-1] = np.nan  # so that the first transition's gamma counts as changed
        return {
            "signal_rho": self.zeros(batch, int(policy.max()) + 2),
            "signal_c": self.zeros(batch, int(cumulant.max()) + 2),
            "signal_gamma": gamma,
            "signal_lam": self.zeros(batch + 1, policy.size + 1),
            "signal_z": self.zeros(batch, group.size + 1),
            "signal_interest": self.zeros(batch + 1, group.size + 1),
            "signal_skips": np.zeros((batch + 1, policy.size + 1), dtype=np.uint8),
            "signal_b": np.zeros(batch),
            "signal_changes": np.zeros((batch, 2), dtype=np.int64),
            "predictions": np.zeros(group.size),
            "averaged": np.zeros(group.size),
        }

    def _settings(self) -> dict[str, Any]:
        config = self._config
        bound = self._config.trace_bound
        drop_below = DROP_BELOW[self._config.dtype]
        return {
            "every_step": config.w_rule == "every-step",
            "has_scales": bool(config.rarity),
            "trace_rule": trace_rules.CODES[config.trace_rule],
            "trace_bound": bound if config.trace_rule == "abtd" else 1.0 / bound,
            "rule": config.rule_parameters,
            "has_w": Constant(self._has_w),
            **{
                f"has_{name}": Constant(name in self._rule.SPAN)
                for name in ("h", "q", "source", "w_factor")
            },
            "has_interest": Constant(self._rule.HAS_INTEREST),
            "n_numbers": Constant(len(self._rule.NUMBERS)),
            "rests": Constant(self._rule.RESTS),
            "drop_below": drop_below if config.bounds_trace else 0.0,
            "largest_tail": self._tail,
            "one_over_tau": 1.0 / config.mspbe_tau,
            "largest_step": LARGEST_STEP[config.dtype],
            "max_finite": max_finite(self._dtype),
            "period": self.period,
            "longest_wait": self._places,
            "n_threads": 1,
            "most_lanes": Constant(
                LANE_UNIT if np.diff(self.layout.start).max() < _WIDE else WIDEST
            ),
        }

    def shared(self, n_active: int) -> dict[str, Any]:
        """Return history shared by all demons, and scratch, for `n_active` active features."""
        n = self._n_features
        batch = self._batch
        n_times = self.n_times
        n_threads = int(numba.config.NUMBA_NUM_THREADS)  # type: ignore[attr-defined]
        n_kinds = 1 + self._has_w * (1 + self._config.vector_mspbe)
        return {
            "bits": np.zeros((n_times, -(-n // 64)), dtype=np.uint64),
            "active": np.zeros((batch + 1, n_active), dtype=np.int64),
            "changed": np.zeros((2, 2, n_active), dtype=np.int64),
            "n_changed": np.zeros((2, 2), dtype=np.int64),
            "overlap": self.zeros(batch + 1, n_times),
            "norm": np.zeros(batch + 1),
            **{
                f"run_{name}": np.zeros((2, n), dtype=np.int32) for name in ("row", "first", "last")
            },
            "run_ends": np.zeros(
                (2, 2 * n_active * (self._tail + _WAIT * self.period + 2)), dtype=np.int32
            ),
            "run_time": np.zeros((2, n_times + 2), dtype=np.int64),
            "run_place": np.zeros(n_times + 2, dtype=np.int32),
            "n_runs": np.zeros(2, dtype=np.int64),
            "table": self.zeros(n_threads, (n_times + 2) * n_kinds * _VECTOR),
            "precomputed": self.zeros(n_threads, 2, (batch + 1) * _VECTOR),
            "tail_needed": np.zeros(n_threads, dtype=np.int64),
            "n_active": n_active,
        }


def _power_of_two(n: int) -> int:
    return 1 << max(n - 1, 1).bit_length()


# ---- what an engine stores ----------------------------------------------------------------------


class SpanMemory(Stored):
    """The arrays of a span engine; arguments as of `SpanEngine`. Its methods expect that no step is queued.

    Attributes:
        demons: Trace group of each demon, policy of each group, cumulant of each demon.
        span: The arrays that the kernels read and write.
        layout: Lane of each demon.
        is_diverged: True for lanes of diverged demons, shape (n_lanes,).
        streams: What belongs to the other streams.
        is_ready: True if the rows of all features are pre-faulted.
    """

    FIELDS: ClassVar[Fields] = {
        **{f"span/{name}": field for name, field in ARRAYS.items()},
        "is_diverged": Field(LANE, diverged=True),
    }
    span: SpanArrays
    streams: Streams

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
        self.config = config
        self.n_features = n_features
        self.dtype = np.dtype(config.dtype)
        self.batch = batch
        self._period = period
        self._widest = widest
        self._share = share
        self._tail = self._tail_for(largest_decay)
        self.n_threads = int(numba.config.NUMBA_NUM_THREADS)  # type: ignore[attr-defined]
        self.row_of = np.full(n_features, -1)
        self.feature_of = np.zeros(n_features, dtype=np.int64)
        self.clock = np.zeros(N_CLOCKS, dtype=np.int64)
        self.clock[NOW] = -1
        n_words = -(-n_features // 64)
        self.class_bits = np.zeros((N_CLASSES, n_words), dtype=np.uint64)
        self.class_bits[-1] = ~self.class_bits[-1]  # features that were never active are rare
        self.class_scale = np.ones(N_CLASSES)
        self.scale = np.ones(n_features, dtype=self.dtype)
        self.streams = Streams()
        self._lay_out(demons, 0)

    @property
    def rule(self) -> Rule:
        """The update rule; not an attribute, because modules cannot be copied."""
        return rule(self.config.algorithm)

    def _tail_for(self, largest_decay: float) -> int:
        """Return the number of steps of traces to store, in addition to pending ones."""
        # the questions' lambda is not used
        decay = largest_decay
        if self.config.trace_rule == "abtd":
            decay = 1.0
        return min(LARGEST_TAIL, trace_length(self.config, decay))

    def _lay_out(self, demons: tuple[Integers, Integers, Integers], n_active: int) -> None:
        """Assign lanes and allocate the arrays, for `n_active` active features."""
        self.demons = demons
        sizes = (
            self.n_features,
            self.config,
            self.batch,
            self._period,
            self._widest,
            self._share,
            self._tail,
        )
        self.allocation = of = Allocation(demons, *sizes)
        self.layout = of.layout
        self.is_diverged = np.zeros(self.layout.n_lanes, dtype=bool)
        self.span = of.arrays(
            n_active,
            row_of=self.row_of,
            feature_of=self.feature_of,
            clock=self.clock,
            class_bits=self.class_bits,
            class_scale=self.class_scale,
            scale=self.scale,
        )
        self._n_touched = 0  # numbers of theta that are pre-faulted, and of w and m
        prefault(self.span.c, self.span.d, self.span.h, self.span.q, n_threads=self.n_threads)
        self._prefault_rows(min(self.n_features, max(int(self.clock[N_ROWS]), _FIRST_ROWS)))

    def set_n_active(self, n_active: int) -> None:
        """Set the number of active features at the first call; raise ValueError if it changes later."""
        if not self.span.n_active:
            self.span = self.span._replace(**self.allocation.shared(n_active))
            self.streams.others.clear()  # none of them has begun
        elif n_active != self.span.n_active:
            raise ValueError(
                f"tiles must be {self.span.n_active} as in the first state, not {n_active}"
            )

    # ---- pre-faulting ---------------------------------------------------------------------------

    @property
    def n_ready(self) -> int:
        """Number of rows that are pre-faulted."""
        return self._n_touched // (CHUNK * self.layout.n_lanes) * CHUNK

    def _prefault_rows(self, n_rows: int) -> None:
        self._prefault(-(-n_rows // CHUNK) * CHUNK * self.layout.n_lanes - self._n_touched)

    def _prefault(self, n: int) -> None:
        """Pre-fault `n` more numbers of theta, w, m and the average."""
        first = self._n_touched
        last = self._n_touched + max(n, 0)
        rows = [getattr(self.span, name)[first:last] for name in ROWS]
        prefault(*rows, n_threads=self.n_threads)
        self._n_touched = last
        self.is_ready = self.n_ready >= self.n_features

    def prefault_ahead(self, n_active: int) -> None:
        """Pre-fault a part of the next chunk on each step, or all rows that this step may need."""
        if self.is_ready:
            return
        n_ready = self.n_ready
        needed = min(self.n_features, int(self.clock[N_ROWS]) + n_active)
        chunk = CHUNK * self.layout.n_lanes
        if n_ready < needed:
            self._prefault_rows(needed)
        elif n_ready < min(self.n_features, needed + CHUNK):
            self._prefault(
                min(max(LEAST_TOUCHED, chunk // PREFAULT_STEPS), chunk - self._n_touched % chunk)
            )

    # ---- rows, lanes, streams -------------------------------------------------------------------

    @property
    def features(self) -> Integers:
        """The features that were active so far, in the order of the rows, shape (n_rows,)."""
        return self.feature_of[: self.clock[N_ROWS]]

    @property
    def _n_in_use(self) -> int:
        """Number of elements in the chunks of rows in use."""
        return -(-int(self.clock[N_ROWS]) // CHUNK) * CHUNK * self.layout.n_lanes

    def rows(self, name: str, b: int) -> Reals:
        """Return a view of a block's rows in use of one of `ROWS`, (chunks, CHUNK, lanes)."""
        return rows_of(getattr(self.span, name)[: self._n_in_use], self.layout, b, CHUNK)

    def ring(self, numbers: Reals, b: int) -> Reals:
        """Return a view of a block's history, (places, lanes), of an array with some places per lane, shape (n,)."""
        return np.asarray(rows_of(numbers, self.layout, b, numbers.size // self.layout.n_lanes)[0])

    def number_features(self, features: Integers) -> None:
        """Assign rows to those of `features`, (n,), that were never active."""
        new = features[self.row_of[features] < 0]
        n = int(self.clock[N_ROWS])
        self.row_of[new] = np.arange(n, n + new.size)
        self.feature_of[n : n + new.size] = new
        self.prefault_ahead(new.size)
        self.clock[N_ROWS] += new.size

    def set_scales(self, rarity: Rarity) -> None:
        """Set the factors of the features' step sizes; no update is pending.

        Features that were active get a row, since a row without a feature has the class of one that
        never was.
        """
        self.number_features(np.flatnonzero(rarity.was_active))
        by_row = np.append(self.features, np.flatnonzero(self.row_of < 0))
        class_of = rarity.class_of[by_row]
        self.class_scale[:] = rarity.scale_of
        self.scale[:] = rarity.scale_of[class_of]
        is_member = np.zeros(64 * self.class_bits.shape[1], dtype=bool)
        for k in range(N_CLASSES):
            is_member[: self.n_features] = class_of == k
            self.class_bits[k] = np.packbits(is_member, bitorder="little").view(np.uint64)
        self.span.largest_gain[:] = 0.0

    @property
    def scale_of_features(self) -> Floats:
        """Factor of each feature's step size, shape (n_features,)."""
        by_row = np.append(self.features, np.flatnonzero(self.row_of < 0))
        scale = np.zeros(self.n_features)
        scale[by_row] = self.scale
        return scale

    def mark_diverged(self, demon: int) -> None:
        """Set a demon's weights, traces and estimates to zero permanently; its lane gets no signals any more."""
        super().mark_diverged(demon)
        self._disconnect()

    def _of_demon(self, array: NDArray[Any], field: Field, demon: int) -> NDArray[Any]:
        """Return a view of a demon's numbers in an array; of rows, only those in use."""
        if field.axis == DEMON:
            return super()._of_demon(array, field, demon)
        layout = self.layout
        lane = int(layout.lane[demon])
        if field.axis in (LANE, NUMBER):
            return array[lane :: layout.n_lanes]
        b = layout.block_of(lane)
        place = lane - layout.start[b]
        if field.axis == ROW:
            return rows_of(array[: self._n_in_use], layout, b, CHUNK)[..., place]
        return self.ring(array, b)[:, place]

    def _disconnect(self) -> None:
        """Give lanes of diverged demons no signals."""
        for name in _SIGNALS_OF_LANE:
            getattr(self.span, name)[self.is_diverged] = -1

    def select_stream(self, stream: int) -> None:
        """Exchange the selected stream's arrays for those of another one; no update is pending."""
        arrays = self.of_stream()
        entering = self.streams.exchange(stream, arrays)
        fill(arrays, entering)
        if not entering:
            self.clock[NOW] = -1

    def of_stream(self) -> State:
        """Return views of the arrays that belong to the selected stream; no update is pending."""
        n_kept = (
            self.span.n_numbers * self.layout.n_lanes
        )  # numbers that a gap keeps belong to all streams
        parts = {
            "span/numbers": self.span.numbers[n_kept:],
            "span/clock": self.clock[NOW : NOW + 1],
        }
        return super().of_stream() | parts

    # ---- saved state ----------------------------------------------------------------------------

    def state(self) -> State:
        """Return copies of all arrays but scratch, by name, and of the rows in use.

        The state does not depend on the number of threads.
        """
        rows = {f"span/{name}": getattr(self.span, name)[: self._n_in_use] for name in ROWS}
        sizes = {"n_active": np.array(self.span.n_active), "tail": np.array(self._tail)}
        return super().state() | copies(rows) | sizes

    def restore(self, state: State) -> None:
        """Restore a state of the same demons; rows that are not in the state become zero."""
        state = self._of_turns(state)
        tail = int(state["tail"])
        n_active = int(state["n_active"])
        if (tail, n_active) != (self._tail, self.span.n_active):
            self._tail = tail
            self._lay_out(self.demons, n_active)
        for name in ROWS:
            getattr(self.span, name)[: self._n_in_use] = 0
            saved = state[f"span/{name}"]
            getattr(self.span, name)[: saved.size] = saved
        super().restore(state)
        self._prefault_rows(int(self.clock[N_ROWS]))

    def _of_turns(self, state: State) -> State:
        """Return a state for the present flush groups, of a version in which those of one policy were one."""
        if state["span/limit"].size == self.span.limit.size:
            return state
        of_groups = dict(state)
        for name, array in state.items():
            field = self.FIELDS.get(f"span/{name.rpartition('span/')[2]}")
            if field is not None and field.axis == GROUP:
                of_groups[name] = array[self.layout.turn]
        n_pending = of_groups["span/n_pending"]
        n_left = of_groups["span/limit"] - n_pending
        turn = np.ceil(n_left * self.layout.phase).astype(np.int64)
        of_groups["span/limit"] = n_pending + turn
        return of_groups

    # ---- adding and removing demons -------------------------------------------------------------

    def rearrange(self, mapping: DemonMapping) -> None:
        """Move remaining demons to the layout of other demons; no update is pending.

        New demons have zero weights and traces. theta, w, m and the average are copied one after
        another to limit peak memory.
        """
        old = self.layout
        old_span = self.span
        was_diverged = self.is_diverged
        streams = {**self.streams.others, self.streams.selected: self.of_stream()}
        self._share = None
        self._tail = max(self._tail, self._tail_for(mapping.largest_decay))
        if mapping.cumulant is None:
            cumulant = np.arange(mapping.group.size)
        else:
            cumulant = mapping.cumulant
        self._lay_out((mapping.group, mapping.policy, cumulant), old_span.n_active)
        moved = moves(old, self.layout, mapping.old_index)
        self.streams.others = {
            k: self._rearranged(of_stream, mapping, old, moved) for k, of_stream in streams.items()
        }
        fill(self.of_stream(), self.streams.others.pop(self.streams.selected))
        rows = {name: getattr(old_span, name) for name in ROWS}
        nothing: Any = np.zeros(0, dtype=self.dtype)
        old_span = old_span._replace(**dict.fromkeys(rows, nothing))
        for name in ROWS:
            self._copy_rows(rows.pop(name), old, getattr(self.span, name), moved)
        for name in (*OF_LANES, "numbers"):
            self._copy_lanes(getattr(old_span, name), old, getattr(self.span, name), mapping)
        self._copy_lanes(was_diverged, old, self.is_diverged, mapping)
        self._disconnect()
        self.set_step_sizes(self.layout.lane[mapping.is_new], mapping.alpha, mapping.alpha_w)
        self.span.w_at[:] = NO_TIME

    def _copy_lanes(
        self, numbers: NDArray[Any], old: Layout, into: NDArray[Any], mapping: DemonMapping
    ) -> None:
        """Copy remaining demons' numbers, one or more for each lane."""
        new_lanes = self.layout.lane[~mapping.is_new]
        old_lanes = old.lane[mapping.old_index[~mapping.is_new]]
        into.reshape(-1, self.layout.n_lanes)[:, new_lanes] = numbers.reshape(-1, old.n_lanes)[
            :, old_lanes
        ]

    def _copy_rows(self, numbers: Reals, old: Layout, into: Reals, moved: list[Move]) -> None:
        n = self._n_in_use // self.layout.n_lanes
        if not into.size or not n:
            return
        for block, new_places, source, old_places in moved:
            old_rows = rows_of(numbers[: n * old.n_lanes], old, source, CHUNK)
            new_rows = rows_of(into[: n * self.layout.n_lanes], self.layout, block, CHUNK)
            new_rows[..., new_places] = old_rows[..., old_places]

    def _rearranged(
        self, before: State, mapping: DemonMapping, old: Layout, moved: list[Move]
    ) -> State:
        """Return a stream's arrays for the new demons; a flush group gets the length of its longest tail."""
        arrays = {name: np.zeros_like(array) for name, array in self.of_stream().items()}
        lasting = ("span/active", "span/changed", "span/n_changed", "span/clock")
        arrays |= copies({name: before[name] for name in lasting})
        time = max(int(before["span/clock"][0]), 0)
        bits = before["span/bits"]
        times = time - np.arange(min(time + 1, len(bits)))
        arrays["span/bits"][times % len(arrays["span/bits"])] = bits[times % len(bits)]
        tail_from = arrays["span/tail_from"]
        tail_from[:] = time
        arrays["span/flushed_at"][:] = time
        for block, here, source, there in moved:
            first = int(before["span/tail_from"][old.flush_group[source]])
            g = self.layout.flush_group[block]
            tail_from[g] = min(int(tail_from[g]), first)
            for name, array in arrays.items():
                if self.FIELDS[name].axis == RING and array.size:
                    (old_ring,) = rows_of(
                        before[name], old, source, before[name].size // old.n_lanes
                    )
                    new_ring = self.ring(array, block)
                    times = np.arange(first, time)
                    new_ring[np.ix_(times % len(new_ring), here)] = old_ring[
                        np.ix_(times % len(old_ring), there)
                    ]
        for name, array in arrays.items():
            if self.FIELDS[name].axis in (LANE, NUMBER):
                self._copy_lanes(before[name], old, array, mapping)
        return arrays

    def set_step_sizes(self, lanes: Integers, alpha: Any, alpha_w: Any) -> None:
        """Set the step sizes of lanes, (n,): a number, or one each."""
        self.span.alpha[lanes] = alpha
        if self.rule.IGNORES_STEP_SIZE:
            self.span.alpha[lanes] = 1.0
        self.span.alpha_w[lanes] = alpha_w
