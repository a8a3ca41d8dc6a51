"""Rows of the Parquet files of a folder that gets further ones."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

from horde_agent.formats.arrow_files import PARQUET, order_of, parquet_files
from horde_agent.refusals import BadInput
from horde_agent.runs.sources.arriving_files import ArrivingFiles
from horde_agent.runs.sources.line_reader import Line


class FolderPlace(NamedTuple):
    """A place in the files of a folder.

    Attributes:
        name: Of the file, within the folder; "" before the first one.
        n_rows: Number of its rows before the place.
    """

    name: str = ""
    n_rows: int = 0


class FollowedFolder:
    """Reads the rows of Parquet files in the order of their names, and waits for further files.

    A file that cannot be read is awaited while it changes, and then left out: whoever writes it
    renames it into the folder when it is whole. Its name must come behind those of the others.

    Args:
        path: The folder.
        names: Of the columns that are read.
        place: Where to begin; before the first file when None.

    Attributes:
        fault, blocked_s: As of `Lines`: a folder has none, and rows wait in its files.

    Raises:
        BadInput: If the file of the place is gone before it was read whole.
    """

    def __init__(self, path: Path, names: Sequence[str], place: FolderPlace | None = None) -> None:
        self._files = ArrivingFiles(path, parquet_files, order_of)
        self._names = names
        self._start = place or FolderPlace()
        self._end = self._start
        self._is_read = False  # whether the file of `_end` was read whole
        self.fault: OSError | None = None
        self.blocked_s = 0.0
        if self._end.name and not (path / self._end.name).is_file():
            raise BadInput(
                f"{path / self._end.name} is gone, of which {self._end.n_rows:,} rows were read, so its further rows "
                "are lost: start a new run"
            )

    @property
    def has_waited(self) -> bool:
        """Whether all rows that were there had been read once."""
        return self._files.has_waited

    def stop(self) -> None:
        """End the rows; safe in a signal handler."""
        self._files.stop()

    def close(self) -> None:
        """Do nothing: files are open only while they are read."""

    def place(self, *, is_behind: bool) -> FolderPlace:
        """Return the place before the newest row, or behind it."""
        if is_behind:
            return self._end
        return self._start

    def __iter__(self) -> Iterator[Line]:
        """Yield each row, until `stop`."""
        while not self._files.is_stopped:
            file = self._next_file()
            if file is None:
                self._files.wait()
                continue
            name = self._files.name_of(file)
            if self._end.name != name:
                self._start = self._end
                self._end = FolderPlace(name)
            try:
                yield from self._rows(file)
            except BadInput as error:
                if self._files.may_change(file):
                    self._files.wait()
                    continue
                yield Line(name.encode(), fault=error)
            self._is_read = not self._files.is_stopped

    def _rows(self, file: Path) -> Iterator[Line]:
        """Yield the rows of a file behind the place."""
        n_rows = 0
        for chunk in PARQUET.chunks(file, self._names):
            n_rows_of_chunk = len(next(iter(chunk.values())))
            for i in range(n_rows_of_chunk):
                n_rows += 1
                if n_rows <= self._end.n_rows:
                    continue
                self._start = self._end
                self._end = self._end._replace(n_rows=n_rows)
                cells = {name: column[i : i + 1] for name, column in chunk.items()}
                yield Line(f"{file}, row {n_rows}".encode(), cells=cells)
                if self._files.is_stopped:
                    return

    def _next_file(self) -> Path | None:
        """Return the file to read; None if there is none yet. Files that were read may be removed."""
        present = self._files.path / self._end.name
        if self._end.name and not self._is_read and present in self._files.listed():
            return present
        file = self._files.first_behind(self._end.name)
        if file is not None:
            self._is_read = False
        return file
