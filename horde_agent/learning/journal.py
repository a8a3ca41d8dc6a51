"""What a span engine is told from some step on, written down: enough to bring others of its blocks as far.

All that changes an engine enters by a few verbs. Told the same again, from the same state, it does the same to the bit.
Of what it decides by itself one thing is noted, which blocks of a flush group decide together: how long a tail is kept.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from horde_agent.kernels.checks import Signals
from horde_agent.kernels.span.arrays import SpanArrays
from horde_agent.saving import State
from horde_agent.types import Floats, Integers, Tiles

LEARN, LEARN_LAST, BEGIN, TAKE, BOUND, SET_ASIDE, CLEAR_FLAGS = range(7)
_STATES = ("gamma_tp1", "lam_tp1", "z_tp1")  # which differ from step to step where functions give them


class Journal:
    """Writes down what an engine is told.

    Args:
        span: Of the engine, all of whose arrays stay where they are meanwhile.

    Attributes:
        n_entries: How often it was told anything.
        n_bytes: Size of what was written down since the last `cut`.
        n_writes: How often each flush group's weights were written to, shape (n_flush_groups,).
        is_void: Whether something happened that a journal does not tell of, such as demons that come or go.
    """

    def __init__(self, span: SpanArrays) -> None:
        self._span, self._dtype = span, span.theta.dtype
        self.n_entries = self.n_bytes = 0
        self.n_writes = np.zeros(span.n_pending.size, dtype=np.int64)
        self.is_void = False
        self._lists: dict[str, list[NDArray[Any]]] = {}
        self._states: tuple[Floats, ...] | None = None
        self._remember_flushes()

    def _remember_flushes(self) -> None:
        self._flushed_at, self._was_pending = self._span.flushed_at.copy(), self._span.n_pending > 0

    def _note(self, what: int, **arrays: Any) -> None:
        """Write down what was told, and look at what the engine has flushed for it."""
        span = self._span
        # Who had nothing pending was not written to, though its time has moved on.
        self.n_writes += self._was_pending & (span.flushed_at != self._flushed_at)
        self._remember_flushes()
        told = {"what": np.uint8(what), "tail": (span.flushed_at - span.tail_from).astype(np.int32), **arrays}
        for name, value in told.items():
            array = np.asarray(value)
            self._lists.setdefault(name, []).append(array)
            self.n_bytes += array.nbytes
        self.n_entries += 1

    def begin(self, tiles: Tiles) -> None:
        """Note that a stream begins at `tiles`, shape (n_active,)."""
        self._note(BEGIN, tiles=tiles.astype(np.int32))

    def learn(self, tiles: Tiles, signals: Signals, *, is_last: bool) -> None:
        """Note a transition to `tiles`, shape (n_active,), which is learned from or waits, with what is told of it."""
        states = tuple(np.array(getattr(signals, name)) for name in _STATES)
        anew: dict[str, Any] = {}
        before = self._states
        if before is None or not all(np.array_equal(a, b) for a, b in zip(states, before, strict=True)):
            anew = {"at": self.n_entries, **dict(zip(_STATES, states, strict=True))}
            self._states = states
        with np.errstate(over="ignore", invalid="ignore"):
            rho, c = signals.rho_t.astype(self._dtype), signals.c_tp1.astype(self._dtype)
        what = LEARN_LAST if is_last else LEARN
        self._note(what, tiles=tiles.astype(np.int32), rho_t=rho, c_tp1=c, **anew)

    def take(self) -> None:
        """Note that the steps which waited were taken."""
        self._note(TAKE)

    def bound(self, bound: Floats) -> None:
        """Note new bounds, shape (n_demons,)."""
        self._note(BOUND, bound=np.array(bound))

    def clear_flags(self) -> None:
        """Note that flags were taken down."""
        self._note(CLEAR_FLAGS)

    def set_aside(self, demon: int, group: int) -> None:
        """Note that a demon was set aside, whose flush group's weights changed by that."""
        self._note(SET_ASIDE, demon=demon)
        self.n_writes[group] += 1

    def cut(self) -> dict[str, list[NDArray[Any]]]:
        """Return what was written down since the last time, by name, and forget it."""
        lists, self._lists, self.n_bytes = self._lists, {}, 0
        return lists


class JournalEntry(NamedTuple):
    """What an engine was told once.

    Attributes:
        what: LEARN, ..., CLEAR_FLAGS.
        tail: Steps of each flush group's tail after it, shape (n_flush_groups,).
        tiles: Where a stream began or a transition led, shape (n_active,).
        signals: Of a transition; the same arrays are overwritten for the next.
        bound: Shape (n_demons,).
        demon: Who was set aside.
    """

    what: int
    tail: Integers
    tiles: Tiles | None = None
    signals: Signals | None = None
    bound: Floats | None = None
    demon: int = -1


def read_entries(cuts: list[State]) -> Iterator[JournalEntry]:
    """Yield what was told, one thing after another, from what `Journal.cut` returned, each list of arrays stacked."""
    signals: Signals | None = None
    n_entries = 0
    for cut in cuts:
        lists = {name: iter(array) for name, array in cut.items() if name not in ("what", "tail", "at")}
        anew = set(cut["at"].tolist()) if "at" in cut else set()
        for what, tail in zip(cut["what"].tolist(), cut["tail"], strict=True):
            tiles = next(lists["tiles"]).astype(np.int64) if what in (LEARN, LEARN_LAST, BEGIN) else None
            if what in (LEARN, LEARN_LAST):
                signals = _signals(signals, lists, has_states=n_entries in anew)
            bound = next(lists["bound"]) if what == BOUND else None
            demon = int(next(lists["demon"])) if what == SET_ASIDE else -1
            yield JournalEntry(what, tail, tiles, signals if what in (LEARN, LEARN_LAST) else None, bound, demon)
            n_entries += 1


def _signals(before: Signals | None, lists: dict[str, Iterator[NDArray[Any]]], *, has_states: bool) -> Signals:
    """Return the next transition's signals, in the arrays of the one before."""
    names = ("rho_t", "c_tp1", *(_STATES if has_states else ()))
    told = {name: next(lists[name]) for name in names}
    if before is None:
        first = {name: np.array(array, dtype=np.float64) for name, array in told.items()}
        return Signals(first["rho_t"], first["gamma_tp1"], first["lam_tp1"], first["c_tp1"], first["z_tp1"])
    for name, array in told.items():
        getattr(before, name)[...] = array
    return before
