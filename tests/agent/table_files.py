"""Tables in files, by their formats."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from horde_agent.formats.columns import ChannelColumn, Columns
from horde_agent.formats.format import TableFile
from horde_agent.formats.part import Chunk
from horde_agent.formats.registry import FORMATS, format_of
from horde_agent.formats.tables import Table

SUFFIXES = [
    suffix
    for data_format in FORMATS
    if isinstance(data_format, TableFile)
    for suffix in data_format.suffixes
]


def columns_of(channel: tuple[ChannelColumn, ...] = (), **keys: Any) -> Columns:
    """Return columns with these channels and keys of a file."""
    return Columns(channel).with_keys(**keys)


def table_file(path: Path) -> TableFile:
    """Return the format of a table in files."""
    data_format = format_of(path)
    assert isinstance(data_format, TableFile)
    return data_format


def open_table(path: Path, columns: Columns) -> Table:
    """Return a table with these columns."""
    return table_file(path).open_as(path, columns)


def draft_columns(path: Path) -> str:
    """Return the columns file that `horde columns` prints."""
    return format_of(path).draft(path)


def columns_in(path: Path) -> list[str]:
    """Return the names of a table's columns."""
    return table_file(path).names(path)


def read_columns(path: Path, names: Sequence[str]) -> Iterator[Chunk]:
    """Yield columns of a table in short parts."""
    return table_file(path).chunks(path, names)
