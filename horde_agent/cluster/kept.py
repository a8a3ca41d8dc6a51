"""A shard's snapshots: its state is copied between two entries and written by a thread; which of them stay.

A shard that resumes at an entry reads the newest snapshot that is not after it, and is sent the entries since. So the
two newest stay, in case one is damaged, and the newest that is not after each entry to which the life may return.
"""

from __future__ import annotations

import shutil
import threading
from contextlib import suppress
from pathlib import Path
from typing import Protocol

from horde_agent.record import snapshots
from horde_agent.record.snapshots import Snapshot
from horde_agent.saving import State

N_RETURNS = 3  # entries to which a life may go back: of the two snapshots that it has, and of one being written


class Source(Protocol):
    """Whose snapshots they are."""

    @property
    def at(self) -> int:
        """Number of the last entry that it has taken."""

    def state(self) -> State:
        """Return what its future depends on."""


class Kept:
    """The snapshots of a shard.

    Args:
        folder: For them.
        number: Of the shard.
        returns: Entries to which the life may go back.

    Attributes:
        steps: After which entries there is a snapshot that was written here, ascending.
        trouble: Why the last one could not be written; "" where it was.
    """

    def __init__(self, folder: Path, number: int, returns: list[int]) -> None:
        self._folder, self._facts = folder, {"shard": number}
        self._returns = returns[-N_RETURNS:]
        self.steps: tuple[int, ...] = ()
        self.trouble = ""
        self._is_wanted = False
        self._writing: threading.Thread | None = None

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

    def go_on(self, source: Source) -> None:
        """Begin a snapshot that is wanted, if the one before is written: after each entry."""
        if self._is_wanted and not self._is_busy:
            self._is_wanted = False
            args = source.at, source.state()
            self._writing = threading.Thread(target=self._write, args=args, name="keeping", daemon=True)
            self._writing.start()

    @property
    def _is_busy(self) -> bool:
        """Whether a snapshot is not written yet."""
        return self._writing is not None and self._writing.is_alive()

    def _write(self, at: int, state: State) -> None:
        """Write a snapshot, in a thread."""
        try:
            self._folder.mkdir(parents=True, exist_ok=True)
            snapshots.write(self._folder, at, state, self._facts, until=self._returns)
            self.steps = tuple(sorted(int(path.name) for path in snapshots.found(self._folder)))
            self.trouble = ""
        except OSError as error:
            self.trouble = f"its snapshot could not be written to {self._folder} ({error.strerror})"

    def finish(self, source: Source) -> None:
        """Write the snapshot that is wanted, and wait until all are written."""
        self.join()
        self.go_on(source)
        self.join()

    def join(self) -> None:
        """Wait until nothing more is written."""
        if self._writing is not None:
            self._writing.join()
