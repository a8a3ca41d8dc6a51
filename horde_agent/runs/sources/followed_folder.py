"""Rows of the Parquet files of a folder that gets further ones."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

from horde_agent.formats.arrow_files import PARQUET, order_of, parquet_files
from horde_agent.formats.columns import Columns
from horde_agent.formats.part import rows_of_chunk
from horde_agent.refusals import BadInput
from horde_agent.runs.sources.arriving_files import ArrivingFiles, FollowedFiles, PlacedLine
from horde_agent.runs.sources.line_reader import Line


class FolderPlace(NamedTuple):
    """A place in the files of a folder.

    Attributes:
        name: Of the file, within the folder; "" before the first one.
        n_rows: Number of its rows before the place.
    """

    name: str = ""
    n_rows: int = 0


def followed_folder(
    path: Path, columns: Columns, place: FolderPlace | None = None
) -> FollowedFiles[FolderPlace]:
    """Return the rows of Parquet files in the order of their names, with those of files that come later.

    A file that cannot be read is awaited while it changes, and then left out: whoever writes it
    renames it into the folder when it is whole. Its name must come behind those of the others.

    Args:
        path: The folder.
        columns: Those that are read.
        place: Where to begin; before the first file when None.

    Raises:
        BadInput: If the file of the place is gone before it was read whole.
    """
    place = place or FolderPlace()
    if place.name and not (path / place.name).is_file():
        raise BadInput(
            f"{path / place.name} is gone, of which {place.n_rows:,} rows were read, so its further rows are lost: "
            "start a new run"
        )
    files = ArrivingFiles(path, parquet_files, order_of)
    return FollowedFiles(files, _rows(files, columns, place), place)


def _rows(
    files: ArrivingFiles, columns: Columns, place: FolderPlace
) -> Iterator[PlacedLine[FolderPlace]]:
    """Yield the rows behind a place, until a stop. Files that were read may be removed."""
    file: Path | None = None
    if place.name:
        file = files.path / place.name
    while not files.is_stopped:
        if file is None:
            file = files.first_behind(place.name)
        if file is None:
            files.wait()
            continue
        name = files.name_of(file)
        if name != place.name:
            place = FolderPlace(name)
        try:
            for line in _rows_behind(file, columns, place.n_rows):
                start = place
                place = place._replace(n_rows=place.n_rows + 1)
                yield PlacedLine(line, start, place)
        except BadInput as error:
            if files.may_change(file):
                files.wait()
                continue
            yield PlacedLine(Line(name.encode(), fault=error), place, place)
        file = None


def _rows_behind(file: Path, columns: Columns, n_rows: int) -> Iterator[Line]:
    """Yield the rows of a file behind its first `n_rows`."""
    number = 0
    names = columns.names
    if columns.has_lost:
        names = columns.names_in(PARQUET.names(file))
    for chunk in PARQUET.chunks(file, names):
        for cells in rows_of_chunk(chunk):
            number += 1
            if number > n_rows:
                yield Line(f"{file}, row {number}".encode(), cells=cells)
