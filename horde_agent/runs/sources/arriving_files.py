"""Files that other programs put into a folder, one after another, and the rows in them."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any, Generic, NamedTuple, TypeVar

from horde_agent.runs.sources.line_reader import Line

POLL_S = 0.2
PATIENCE_S = 10.0
"""How long a file that cannot be read, and does not change, is awaited, in seconds."""


class ArrivingFiles:
    """The files of a folder in the order of their names, in which further ones come behind the others.

    A file that cannot be read is awaited while it changes: whoever writes it renames it into the
    folder when it is whole.

    Args:
        path: The folder.
        files: Returns those that are there, in order.
        order_of: The key by which they are sorted.

    Attributes:
        has_waited: Whether all that were there had been read once.
    """

    def __init__(
        self,
        path: Path,
        files: Callable[[Path], Sequence[Path]],
        order_of: Callable[[Path], Any],
    ) -> None:
        self.path = path
        self._files = files
        self._order_of = order_of
        self._awaited: dict[Path, _Version] = {}
        self._is_stopped = threading.Event()
        self.has_waited = False

    @property
    def is_stopped(self) -> bool:
        """Whether no further file is wanted."""
        return self._is_stopped.is_set()

    def stop(self) -> None:
        """End the wait; safe in a signal handler."""
        self._is_stopped.set()

    def wait(self) -> None:
        """Wait until something may have changed, or `stop`."""
        self.has_waited = True
        self._is_stopped.wait(POLL_S)

    def listed(self) -> Sequence[Path]:
        """Return the files that are there."""
        return self._files(self.path)

    def first_behind(self, name: str) -> Path | None:
        """Return the first file behind the one with a name within the folder, "" for the first of all; None if none."""
        for file in self.listed():
            if not name or self._order_of(file) > self._order_of(self.path / name):
                return file
        return None

    def name_of(self, file: Path) -> str:
        """Return the name of a file within the folder."""
        return str(file.relative_to(self.path))

    def may_change(self, file: Path) -> bool:
        """Return whether a file that cannot be read changed within ten seconds."""
        try:
            status = file.stat()
        except OSError:  # it was removed
            return False
        version = _Version(status.st_size, status.st_mtime_ns, time.monotonic())
        first_seen = self._awaited.setdefault(file, version)
        if first_seen[:2] != version[:2]:
            self._awaited[file] = version
            return True
        return version.seen_s - first_seen.seen_s < PATIENCE_S


PlaceT = TypeVar("PlaceT")
"""A place between two rows of the files."""


class PlacedLine(NamedTuple, Generic[PlaceT]):
    """A row of a file, or why there is none, with the places before and behind it."""

    line: Line
    start: PlaceT
    end: PlaceT


class FollowedFiles(Generic[PlaceT]):
    """The rows of files that arrive, of which a resumed run finds the place again: as `Lines`.

    Args:
        files: The files.
        rows: Their rows behind the place.
        place: Where to begin.

    Attributes:
        fault, waited_s: As of `Lines`: a folder has none, and rows wait in its files.
    """

    def __init__(
        self, files: ArrivingFiles, rows: Iterable[PlacedLine[PlaceT]], place: PlaceT
    ) -> None:
        self._files = files
        self._rows = rows
        self._start = place
        self._end = place
        self.fault: OSError | None = None
        self.waited_s = 0.0

    @property
    def has_waited(self) -> bool:
        """Whether all present rows were read at least once, so that it waited for further ones."""
        return self._files.has_waited

    def stop(self) -> None:
        """End the rows; safe in a signal handler."""
        self._files.stop()

    def close(self) -> None:
        """Do nothing: files are open only while they are read."""

    def place(self, *, is_behind: bool) -> PlaceT:
        """Return the place before the newest row, or behind it."""
        if is_behind:
            return self._end
        return self._start

    def __iter__(self) -> Iterator[Line]:
        """Yield each row, until `stop`; once."""
        for row in self._rows:
            self._start = row.start
            self._end = row.end
            yield row.line
            if self._files.is_stopped:
                return


class _Version(NamedTuple):
    """A file that cannot be read yet: its size, its time of change, and when it was first seen so, in seconds."""

    n_bytes: int
    changed_ns: int
    seen_s: float
