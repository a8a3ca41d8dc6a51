"""A span engine's state that is copied over many steps, a block of demons at a time, so that no step waits for it.

Between two flushes of its group, nothing large of a block changes: its rows of weights stand, and what is pending is
only added to. So a block is copied as of a step of its own, in pieces, before its next flush; what all blocks share is
copied at the first of these steps, and from there to the last a journal tells what the engine was told. To go on from
such a copy, an engine is put where the first step was, and told the same again; on the way each block is put in at its
own step. No sum crosses a lane: what the other lanes hold meanwhile does not matter, and in the end all stand at the
last step, the same to the bit.

A copy takes three blocks of memory and what the journal holds, however many demons there are.
"""

from __future__ import annotations

import logging
from queue import Empty, SimpleQueue
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from horde_agent.kernels.span.arrays import CHUNK, N_ROWS, NOW
from horde_agent.learning.journal import (
    BEGIN,
    BOUND,
    CLEAR_FLAGS,
    LEARN_LAST,
    SET_ASIDE,
    TAKE,
    Journal,
    JournalEntry,
    read_entries,
)
from horde_agent.learning.layout import rows_of
from horde_agent.learning.span import OF_LANES, SpanEngine
from horde_agent.saving import State, inner
from horde_agent.types import Integers, Reals

BYTES_A_STEP = 8_000_000  # some 2 ms
_CUT_BYTES = 16_000_000  # of the journal that are written at once
_N_BUFFERS = 3  # one is filled, one is written, one waits
_KINDS = ("theta", "w", "m")

_log = logging.getLogger(__name__)


class Part(NamedTuple):
    """A part of a state that is complete.

    Attributes:
        name: Its name in the state.
        array: What is to be written; a list of arrays is to be stacked, by `whole`.
        buffer: What is to be given back when it is written, by `GradualCopy.give_back`; None where it need not be.
    """

    name: str
    array: NDArray[Any] | list[NDArray[Any]]
    buffer: Reals | None = None

    def whole(self) -> NDArray[Any]:
        """Return what is to be written; in the thread that writes, where it takes a while."""
        return np.stack(self.array) if isinstance(self.array, list) else self.array

    @property
    def n_bytes(self) -> int:
        """Size of what is to be written."""
        return sum(a.nbytes for a in self.array) if isinstance(self.array, list) else self.array.nbytes


class _Block(NamedTuple):
    """A block that is being copied.

    Attributes:
        b: Its number.
        n_writes: How often its group had been written to when it was begun.
        buffer: What it is copied into.
        rows: A view of that, shape (kinds, rows, lanes).
        past: As `_past_of` returns it, flat.
        left: Pieces that are not copied yet: from where, and where to.
        pace: Bytes in a step, so that it is copied before its group is flushed.
    """

    b: int
    n_writes: int
    buffer: Reals
    rows: Reals
    past: Reals
    left: list[tuple[Reals, Reals]]
    pace: int


class GradualCopy:
    """Copies an engine's state while it learns.

    Args:
        engine: It has begun a stream.

    Attributes:
        is_complete: Whether all blocks are copied, so that `finish` may be called.
    """

    def __init__(self, engine: SpanEngine) -> None:
        self._engine, self._span, self._layout = engine, engine.arrays, engine.layout
        self._journal: Journal | None = None
        self._parts: list[Part] = []
        self._put_in_at = np.full((self._layout.n_blocks, 3), -1, dtype=np.int64)
        self._block: _Block | None = None
        self._n_cuts = 0
        self._n_kinds = sum(getattr(self._span, name).size > 0 for name in _KINDS)
        self._free: SimpleQueue[Reals] = SimpleQueue()

    def make_buffers(self) -> None:
        """Make the memory that blocks are copied into, which takes a while; until then none is copied."""
        n_rows = -(-self._engine.n_features // CHUNK) * CHUNK
        longest = self._n_kinds * n_rows * int(np.diff(self._layout.start).max())
        for _ in range(min(_N_BUFFERS, self._layout.n_blocks)):
            buffer = np.empty(longest, dtype=self._engine.dtype)
            buffer.fill(0)
            self.give_back(buffer)

    @property
    def is_complete(self) -> bool:
        """Whether all blocks are copied, so that `finish` may be called."""
        return self._block is None and bool((self._put_in_at[:, 0] >= 0).all())

    @property
    def is_void(self) -> bool:
        """Whether the engine changed meanwhile in a way that nothing tells of: the copy is worth nothing then."""
        journal = self._journal
        return journal is not None and (journal.is_void or self._engine.journal is not journal)

    def give_back(self, buffer: Reals) -> None:
        """Let a part's memory, shape (numbers of the largest block,), be written to again; from any thread."""
        self._free.put(buffer)

    def advance(self, n_bytes: int = BYTES_A_STEP, *, waits: bool = False) -> list[Part]:
        """Copy so many bytes or some more, between two steps, and return the parts that are complete by now.

        Where no memory is free, since parts are not written yet, nothing is copied.

        Args:
            n_bytes: As many as a step can spare.
            waits: Wait until there is free memory.
        """
        if self._journal is None:
            self._journal = self._engine.journal = Journal(self._span)
            first = self._engine.state(has_blocks=False)
            self._parts = [Part(f"first/{name}", array) for name, array in first.items()]
        while n_bytes > 0 and not self.is_complete and not self.is_void:
            if self._block is None and not self._begin_block(self._journal, waits=waits):
                break
            block = self._block
            assert block is not None
            if self._journal.n_writes[self._layout.flush_group[block.b]] != block.n_writes:
                self._put_in_at[block.b], self._block = -1, None  # flushed before it was copied: it is begun anew
                self._free.put(block.buffer)
                continue
            n_bytes = max(n_bytes, block.pace) - self._copy_pieces(block, max(n_bytes, block.pace))
        if self._journal.n_bytes >= _CUT_BYTES:
            self._cut(self._journal)
        parts, self._parts = self._parts, []
        return parts

    def finish(self) -> list[Part]:
        """Return the last parts: the state is that of now."""
        engine, journal = self._engine, self._journal
        assert journal is not None, "nothing was copied"
        assert self.is_complete, "blocks are missing"
        self._cut(journal)
        engine.journal = None
        own = {"put_in_at": self._put_in_at, "flags": np.array(engine.flags), "latest": engine.latest.copy()}
        return [*self._parts, *(Part(name, array) for name, array in own.items())]

    def abandon(self) -> None:
        """Copy no more."""
        if self._journal is not None and self._engine.journal is self._journal:
            self._engine.journal = None

    # ---- blocks -----------------------------------------------------------------------------------------------------

    def _begin_block(self, journal: Journal, *, waits: bool) -> bool:
        """Begin the block that has the most steps before its next flush, if there is memory for it."""
        try:
            buffer = self._free.get(block=waits)
        except Empty:
            return False
        room = self._room()[self._layout.flush_group]
        b = int(np.argmax(np.where(self._put_in_at[:, 0] < 0, room, -1)))
        start, stop = int(self._layout.start[b]), int(self._layout.start[b + 1])
        width, n_chunks = stop - start, -(-int(self._span.clock[N_ROWS]) // CHUNK)
        rows = buffer[: self._n_kinds * n_chunks * CHUNK * width].reshape(self._n_kinds, n_chunks * CHUNK, width)
        kinds = [getattr(self._span, name) for name in _KINDS][: self._n_kinds]
        left = [
            (chunk, into[CHUNK * k :][:CHUNK])
            for kind, into in zip(kinds, rows, strict=True)
            for k, chunk in enumerate(rows_of(kind, self._layout, b, CHUNK)[:n_chunks])
        ]
        n_writes = int(journal.n_writes[self._layout.flush_group[b]])
        self._put_in_at[b] = journal.n_entries, self._span.w_at[b], self._span.tail_needed[b]
        pace = -(-rows.nbytes // max(int(room[b]), 1))
        self._block = _Block(b, n_writes, buffer, rows, _past_of(self._engine, b), left, pace)
        return True

    def _room(self) -> Integers:
        """Return in how many steps, this one counted, each flush group is flushed at the earliest."""
        span, engine = self._span, self._engine
        waited = span.clock[NOW] - engine.n_waiting - span.flushed_at
        fits = np.minimum(span.limit - span.n_pending, span.longest_wait - waited)
        return np.asarray(fits // engine.batch * engine.batch + engine.batch - engine.n_waiting)

    def _copy_pieces(self, block: _Block, n_bytes: int) -> int:
        """Copy pieces of a block, and return how many bytes that were."""
        n = 0
        while block.left and n < n_bytes:
            source, into = block.left.pop()
            into[:] = source
            n += into.nbytes
        if not block.left:
            name = f"block/{block.b:06d}"
            self._parts += [Part(f"{name}/rows", block.rows, block.buffer), Part(f"{name}/past", block.past)]
            self._block = None
        return max(n, 1)

    def _cut(self, journal: Journal) -> None:
        """Have what the journal holds written."""
        name = f"journal/{self._n_cuts:06d}"
        self._n_cuts += 1
        self._parts += [Part(f"{name}/{key}", arrays) for key, arrays in journal.cut().items()]


def _past_of(engine: SpanEngine, b: int) -> Reals:
    """Return a block's past, as far as it matters, and the numbers of its lanes, one after another.

    These are c from the tail's first step to the present, d, h and q since the last flush, and OF_LANES.
    """
    return np.concatenate([np.ravel(numbers[at]) for numbers, at in _places(engine, b)])


def _places(engine: SpanEngine, b: int) -> list[tuple[Reals, Any]]:
    """Return where a block's past lies: arrays, and places in them."""
    span, layout = engine.arrays, engine.layout
    g, now = layout.flush_group[b], int(span.clock[NOW]) - engine.n_waiting
    c, *pending = (rows_of(a, layout, b, a.size // layout.n_lanes)[0] for a in (span.c, span.d, span.h, span.q))
    lanes = slice(int(layout.start[b]), int(layout.start[b + 1]))
    since = slice(0, max(now - int(span.flushed_at[g]), 0))
    return [
        (c, np.arange(span.tail_from[g], max(now, 0)) % len(c)),
        *((numbers, since) for numbers in pending),
        *((getattr(span, name), lanes) for name in OF_LANES),
    ]


# ---- going on from there --------------------------------------------------------------------------------------------


def is_gradual(state: State) -> bool:
    """Say whether an engine's state was copied over many steps."""
    return "put_in_at" in state


def bring_forward(engine: SpanEngine, state: State) -> None:
    """Go on from a state that was copied over many steps, of an engine that was made, and rearranged, in the same way.

    Raises:
        ValueError: If the state does not fit the engine.
    """
    engine.restore(inner(state, "first"))
    at, n_entries, waiting = state["put_in_at"], 0, 0
    order = np.argsort(at[:, 0], kind="stable")
    if len(order) != engine.layout.n_blocks:
        raise ValueError(f"the state has {len(order)} blocks of demons, and the engine {engine.layout.n_blocks}")

    def put_in() -> None:
        nonlocal waiting
        while waiting < len(order) and at[order[waiting], 0] == n_entries:
            _put_in(engine, state, int(order[waiting]))
            waiting += 1

    for entry in read_entries(_cuts(state)):
        put_in()
        engine.arrays.fixed_tail[:] = entry.tail
        _repeat(engine, entry)
        n_entries += 1
    put_in()
    engine.arrays.fixed_tail[:] = -1
    engine.flags = int(state["flags"])
    if not np.array_equal(engine.arrays.predictions, state["latest"], equal_nan=True):
        _log.warning("demons that were brought forward to the snapshot's last step differ there in rounding")
    engine.latest = np.array(state["latest"])


def _cuts(state: State) -> list[State]:
    """Return what a journal was cut into."""
    of_journal = inner(state, "journal")
    return [inner(of_journal, number) for number in sorted({name.split("/")[0] for name in of_journal})]


def _put_in(engine: SpanEngine, state: State, b: int) -> None:
    """Put a block in, as of the present step."""
    span, layout, name = engine.arrays, engine.layout, f"block/{b:06d}"
    start, stop = int(layout.start[b]), int(layout.start[b + 1])
    rows, past = state[f"{name}/rows"], state[f"{name}/past"]
    for kind, of_kind in zip(_KINDS, rows, strict=False):
        chunks = of_kind.reshape(-1, CHUNK, stop - start)
        rows_of(getattr(span, kind), layout, b, CHUNK)[: len(chunks)] = chunks
    places, first = _places(engine, b), 0
    if (n := sum(numbers[at].size for numbers, at in places)) != past.size:
        raise ValueError(f"the past of block {b} has {past.size} numbers, and {n} are known to matter")
    for numbers, at in places:
        shape = numbers[at].shape
        n = int(np.prod(shape))
        numbers[at] = past[first : first + n].reshape(shape)
        first += n
    span.w_at[b], span.tail_needed[b] = state["put_in_at"][b, 1:]
    demon = layout.demon[start:stop]
    span.predictions[demon[demon >= 0]] = span.prediction[start:stop][demon >= 0]


def _repeat(engine: SpanEngine, entry: JournalEntry) -> None:
    """Have an engine do once more what it did."""
    if entry.what == BEGIN:
        engine.begin(entry.tiles)  # type: ignore[arg-type]
    elif entry.what == TAKE:
        engine.catch_up()
    elif entry.what == BOUND:
        engine.set_bounds(entry.bound)  # type: ignore[arg-type]
    elif entry.what == SET_ASIDE:
        engine.set_aside(entry.demon)
    elif entry.what == CLEAR_FLAGS:
        engine.arrays.is_flagged[:] = 0
    else:
        assert entry.tiles is not None, "a transition leads somewhere"
        assert entry.signals is not None, "and tells something"
        engine.learn(entry.tiles, entry.signals, is_last=entry.what == LEARN_LAST)
