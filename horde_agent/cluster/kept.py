"""A shard's snapshots: how one comes about while the shard learns, and which of them stay.

What few demons have learned is copied at once, and written by a thread. That of very many is copied a few MB after each
entry and written as it comes (`learning/gradually.py`); such a snapshot is of the entry after which all was copied, and
not of the one at which it was wanted.

Whoever goes on from an entry takes the newest snapshot that is not after it, and is told what came since. So there stay
the two newest, should one be damaged, and of each entry to which a life may go back the newest that is not after it.
"""

from __future__ import annotations

import shutil
import threading
from contextlib import suppress
from pathlib import Path
from typing import Protocol

from horde_agent.horde import Horde
from horde_agent.learning import gradually
from horde_agent.learning.gradually import GIVEN_UP, GradualSnapshot
from horde_agent.record import snapshots
from horde_agent.record.snapshots import Snapshot, Writer
from horde_agent.saving import State

N_RETURNS = 3  # entries to which a life may go back: of the two snapshots that it has, and of one being written


class Source(Protocol):
    """Whose snapshots they are."""

    @property
    def at(self) -> int:
        """Number of the last entry that it has taken."""

    @property
    def horde(self) -> Horde:
        """What learns."""

    def state(self, *, has_engine: bool = True) -> State:
        """Return what its future depends on; `has_engine` as in `Horde.state`."""


class Kept:
    """The snapshots of a shard.

    Args:
        folder: For them.
        number: Of the shard.
        returns: Entries to which the life may go back.
        may_wait: Whether the shard may wait for the disk where it learns faster than that writes.

    Attributes:
        steps: After which entries there is a snapshot that was written here, ascending.
        trouble: Why the last one could not be written; "" where it was.
    """

    def __init__(self, folder: Path, number: int, returns: list[int], *, may_wait: bool) -> None:
        self._folder, self._facts, self._may_wait = folder, {"shard": number}, may_wait
        self._returns = returns[-N_RETURNS:]
        self.steps: tuple[int, ...] = ()
        self.trouble = ""
        self._is_wanted = False
        self._copying: GradualSnapshot | None = None
        self._closing: GradualSnapshot | None = None  # all copied, not all written
        self._writing: threading.Thread | None = None  # copied at once

    def newest(self, first: int, last: int) -> Snapshot | None:
        """Return the newest sound snapshot of after one of the entries first..last; None where none is.

        Those after `last` are of a future that did not come, and are removed.
        """
        paths = list(snapshots.found(self._folder))
        for path in paths:
            if int(path.name) > last:
                shutil.rmtree(path)
            elif int(path.name) >= first:
                with suppress(ValueError, OSError):  # damaged, or of another version
                    return snapshots.read(path)
        return None

    # ---- while it learns --------------------------------------------------------------------------------------------

    def want(self) -> None:
        """Have a snapshot begun as soon as the one before is written."""
        self._is_wanted = True

    def may_return(self, at: int) -> None:
        """Take note that the life may go back to the entry `at`, and have a snapshot begun."""
        self._returns = sorted({*self._returns, at})[-N_RETURNS:]
        self.want()

    @property
    def has_to_copy(self) -> bool:
        """Whether `go_on` has something to do."""
        return self._copying is not None or (self._is_wanted and not self._is_busy)

    def go_on(self, source: Source) -> None:
        """Begin a snapshot that is wanted, or copy some more of the one that is under way: after each entry."""
        if self._copying is not None:
            self._copy(self._copying, source)
        elif self.has_to_copy:
            self._is_wanted = False
            self._begin(source)

    @property
    def _is_busy(self) -> bool:
        """Whether a snapshot is not written yet."""
        closing = self._closing
        if closing is not None and not closing.is_alive:
            self._closing = None
            if closing.why_not not in (None, GIVEN_UP):
                self._say(closing.why_not)
        is_written = self._writing is None or not self._writing.is_alive()
        return not is_written or self._copying is not None or self._closing is not None

    def _say(self, why: str | None) -> None:
        """Take note why a snapshot could not be written."""
        self.trouble = f"its snapshot could not be written to {self._folder} ({why})"

    def _begin(self, source: Source) -> None:
        """Begin a snapshot."""
        try:
            self._folder.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            self._say(error.strerror)
            return
        is_large = source.horde.n_bytes_learned > gradually.AT_ONCE_BYTES
        copy = source.horde.gradual_copy() if is_large else None
        if copy is not None:
            self._copying = GradualSnapshot(copy, self._folder, may_wait=self._may_wait)
            return
        args = source.at, source.state()
        self._writing = threading.Thread(target=self._write_all, args=args, name="keeping", daemon=True)
        self._writing.start()

    def _copy(self, copying: GradualSnapshot, source: Source, *, waits: bool = False) -> None:
        """Copy some more; when all is copied, have it written to its end."""
        if copying.is_void or copying.why_not is not None:
            self._is_wanted |= copying.is_void and copying.why_not is None  # begun anew
            copying.abandon()
        elif copying.is_complete:
            at, state = source.at, source.state(has_engine=False)
            copying.finish(lambda writer: self._write(at, state, writer))
        else:
            copying.advance(waits=waits)
            return
        self._copying, self._closing = None, copying

    def _write_all(self, at: int, state: State) -> None:
        """Write a snapshot, in a thread."""
        try:
            self._write(at, state)
        except OSError as error:
            self._say(error.strerror)

    def _write(self, at: int, state: State, begun: Writer | None = None) -> None:
        """Write what is not written yet of a snapshot."""
        snapshots.write(self._folder, at, state, self._facts, begun, until=self._returns)
        self.steps = tuple(sorted(int(path.name) for path in snapshots.found(self._folder)))
        self.trouble = ""

    # ---- the end ----------------------------------------------------------------------------------------------------

    def finish(self, source: Source) -> None:
        """Have the disk keep what is wanted or under way, which is then of now; this waits for it."""
        while self._is_busy or self._is_wanted:
            if self._copying is not None:
                self._copy(self._copying, source, waits=True)
            elif self._is_busy:
                self._join()
            else:
                self.go_on(source)

    def abandon(self) -> None:
        """Give up what is not copied, and wait for what is."""
        if self._copying is not None:
            self._copying.join()
        self._join()

    def _join(self) -> None:
        """Wait until what is copied is written."""
        for writing in (self._closing, self._writing):
            if writing is not None:
                writing.join()
