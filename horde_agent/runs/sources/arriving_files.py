"""Files that other programs put into a folder, one after another."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, NamedTuple

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


class _Version(NamedTuple):
    """A file that cannot be read yet: its size, its time of change, and when it was first seen so, in seconds."""

    n_bytes: int
    changed_ns: int
    seen_s: float
