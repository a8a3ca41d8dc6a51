"""What a format of data sets offers, and the tables in files, which a columns file describes."""

from __future__ import annotations

import sys
from abc import ABC, abstractmethod
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from enum import Enum
from pathlib import Path

import numpy as np

from horde_agent.formats.arrays import refuse_twice
from horde_agent.formats.cells import as_numbers
from horde_agent.formats.columns import FOUND_FORM, Columns, CsvForm
from horde_agent.formats.draft import draft_table_columns
from horde_agent.formats.part import Chunk, lacks
from horde_agent.formats.tables import Table
from horde_agent.refusals import BadInput, one_line

UNFINISHED = ".unfinished-export"
"""A file in a folder of tables while `horde export` replaces several of them."""


class Growth(Enum):
    """How a data set gets further rows while they are learned from."""

    NONE = "none"
    LINES = "lines at the end of a file"
    FILES = "further files of a folder"


class Format(ABC):
    """A format of data sets, which describe themselves or need a columns file."""

    @property
    @abstractmethod
    def described(self) -> str:
        """Its files, folders or names, for messages."""

    @abstractmethod
    def matches(self, path: Path) -> bool:
        """Return whether a path is of this format, or a name if no path has it."""

    @abstractmethod
    def open(self, path: Path, columns: Path | None) -> Table:
        """Return a data set as a table; raise BadInput if it cannot be read.

        Args:
            path: The data set.
            columns: File that describes its columns; None without one.
        """

    def growth(self, path: Path) -> Growth:  # noqa: ARG002
        """Return how a data set of this format grows."""
        return Growth.NONE

    def draft(self, path: Path) -> str:
        """Return a columns file for a data set; raise BadInput if it cannot be read."""
        columns = self.open(path, None).columns
        return f"# Columns of {path}; `horde learn --data` needs no such file.\n{columns.to_toml()}"


class TableFile(Format):
    """Tables in files of one format, which are read in parts.

    Attributes:
        suffixes: Ends of the names of its files, in lower case.
        damages: Errors that a damaged file causes in its reader; others are faults of this program.
    """

    suffixes: tuple[str, ...]
    damages: tuple[type[BaseException], ...] = (OSError, ValueError, EOFError)

    @property
    def described(self) -> str:
        """Its files, for messages."""
        return f"a file *{', *'.join(self.suffixes)}"

    def matches(self, path: Path) -> bool:
        """Return whether a path is a file with such a name: its letters may be upper case."""
        return path.is_file() and path.name.lower().endswith(self.suffixes)

    def files(self, path: Path) -> list[Path]:
        """Return the files of a table, in order."""
        return [path]

    def open(self, path: Path, columns: Path | None) -> Table:
        """Return a table; raise BadInput if it cannot be read, or `columns` is None."""
        if columns is None:
            advice = f"`horde columns {path} > columns.toml` writes one"
            raise BadInput(
                f"a table needs --columns FILE.toml, which describes its columns: {advice}"
            )
        return self.open_as(path, Columns.read(columns))

    def open_as(self, path: Path, columns: Columns) -> Table:
        """Return a table with these columns; raise BadInput if it cannot be read."""
        if (path / UNFINISHED).exists():
            raise BadInput(
                f"{path} has only a part of an interrupted export: run the same `horde export` again"
            )
        names = columns.names
        if columns.has_lost:
            names = columns.names_in(self.names(path, columns.csv))
        return Table(lambda: self.chunks(path, names, columns.csv), columns, str(path))

    def draft(self, path: Path) -> str:
        """Return a columns file, by the names and the first rows of the columns."""
        form = self.found_form(path)
        names = list(dict.fromkeys(self.names(path, form)))
        rows = next(self.chunks(path, names, form), None)
        if rows is None:
            raise BadInput(f"{path} has no row")
        return draft_table_columns(path.name, rows, form)

    def found_form(self, path: Path) -> CsvForm:  # noqa: ARG002
        """Return the form of a CSV file."""
        return FOUND_FORM

    def names(self, path: Path, form: CsvForm = FOUND_FORM) -> list[str]:
        """Return the names of all columns of a table; raise BadInput if it cannot be read."""
        file = self.files(path)[0]
        with self._readable(file):
            return self.names_in(file, form)

    def chunks(
        self, path: Path, names: Sequence[str], form: CsvForm = FOUND_FORM
    ) -> Iterator[Chunk]:
        """Yield columns of a table in short parts; raise BadInput if one is missing, or it cannot be read."""
        for file in self.files(path):
            with self._readable(file):
                yield from self.chunks_in(file, names, form)

    @abstractmethod
    def names_in(self, file: Path, form: CsvForm) -> list[str]:
        """Return the names of the columns of a file."""

    @abstractmethod
    def chunks_in(self, file: Path, names: Sequence[str], form: CsvForm) -> Iterator[Chunk]:
        """Yield columns of a file in short parts; NAME_3 reads the column NAME of vectors."""

    @contextmanager
    def _readable(self, file: Path) -> Iterator[None]:
        """Turn errors of reading a file into BadInput."""
        try:
            yield
        except BadInput:
            raise
        except (*self.damages, *_errors_of_pyarrow()) as error:
            raise BadInput(f"{file} cannot be read: {one_line(error)}") from None


def _errors_of_pyarrow() -> tuple[type[BaseException], ...]:
    """Return the base class of pyarrow's errors, some of which are of no other class than Exception."""
    pyarrow = sys.modules.get("pyarrow")
    if pyarrow is None:
        return ()
    return (pyarrow.ArrowException,)


def columns_to_read(file: Path | str, names: Sequence[str], there: Sequence[str]) -> list[str]:
    """Return the columns of a file to read for the names, NAME for number 3 of its vectors.

    Raise BadInput if one of them is missing, or there twice.
    """
    columns = []
    for name in names:
        column = name
        if name not in there:
            column = name.rpartition("_")[0]
        if column not in there:
            raise lacks(str(file), name, there, _header_advice(there))
        columns.append(column)
    refuse_twice(str(file), [name for name in there if name in columns])
    return list(dict.fromkeys(columns))


def _header_advice(there: Sequence[str]) -> str:
    """Return what to do if the names of a file's columns are numbers; empty if they are not."""
    numbers = as_numbers(np.array([text.replace(",", ".") for text in there], dtype=object))
    if there and np.isfinite(numbers).all():
        return (
            "; if the first line is a row, write header = false, and name column_0, column_1, ..."
        )
    return ""
