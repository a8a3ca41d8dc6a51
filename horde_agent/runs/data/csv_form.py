"""The form of a CSV file: its separator, its decimal mark, its header; found in its first lines, or named."""

from __future__ import annotations

import bz2
import csv
import gzip
import io
from collections.abc import Iterator
from contextlib import contextmanager
from itertools import chain
from pathlib import Path
from typing import IO, Any, BinaryIO, NamedTuple

from horde_agent.runs.config import BadInput

SEPARATORS = (",", ";", "\t", "|")
DECIMALS = (".", ",")
_OTHER_SEPARATORS = (";", "\t", "|")
_N_FIRST_LINES = 5
MOST_CHARACTERS = 1 << 24
"""Of a row: a longer one is refused before it is read whole."""
_PART_ROWS = 8192
_PART_CHARACTERS = 1 << 26
"""A part of a file ends with the row that exceeds one of these two."""
_READ_BYTES = 1 << 16


class CsvForm(NamedTuple):
    """How a CSV file is written.

    Attributes:
        separator: Between two cells; found when None: a comma, or else a semicolon, a tab or a bar.
        decimal: The decimal mark; when None a point, or also a comma if commas separate no cells.
        has_header: Whether the first line has the names; else they are column_0, column_1, ...; so is
            a column without a name.
    """

    separator: str | None = None
    decimal: str | None = None
    has_header: bool = True


FOUND_FORM = CsvForm()
"""A form that is found in the file, with a header."""


class OpenCsv(NamedTuple):
    """An open CSV file: its names, its rows as texts in parts of consecutive ones, and its form."""

    names: list[str]
    parts: Iterator[list[list[str]]]
    separator: str
    has_decimal_commas: bool


@contextmanager
def opened_csv(file: Path, form: CsvForm) -> Iterator[OpenCsv]:
    """Open a CSV file, compressed by gzip or bzip2 or not; it has no names if it is empty.

    Raise BadInput at a row of more than `MOST_CHARACTERS`.
    """
    with _opened(file) as text:
        lines = _Lines(text, file)
        first_lines = lines.first(_N_FIRST_LINES)
        separator = form.separator or _found_separator(first_lines, has_header=form.has_header)
        rows = lines.rows(csv.reader(chain(first_lines, lines), delimiter=separator))
        first_row = next(rows, [])
        names = [unnamed(i) for i in range(len(first_row))]
        if form.has_header:
            names = [name if name.strip() else unnamed(i) for i, name in enumerate(first_row)]
        else:
            rows = chain([first_row], rows)
        decimal = form.decimal
        if decimal is None:
            decimal = "."
            if separator != ",":
                decimal = ","
        parts = lines.parts(_without_empty_end(rows))
        yield OpenCsv(names, parts, separator, has_decimal_commas=decimal == ",")


@contextmanager
def _opened(file: Path) -> Iterator[IO[str]]:
    """Open a file as text, unpacked."""
    with file.open("rb") as packed:
        unpacked: Any = packed
        match file.suffix.lower():
            case ".gz":
                unpacked = gzip.GzipFile(fileobj=packed)
            case ".bz2":
                unpacked = io.BufferedReader(_Bz2Reader(packed))
        yield io.TextIOWrapper(unpacked, encoding="utf-8-sig", newline="")


class _Bz2Reader(io.RawIOBase):
    """Unpacks bzip2 streams one after another; raises OSError at bytes behind them, which `bz2.open` leaves out."""

    def __init__(self, packed: BinaryIO) -> None:
        super().__init__()
        self._packed = packed
        self._decompressor = bz2.BZ2Decompressor()
        self._is_later_stream = False

    def readable(self) -> bool:
        """Return true."""
        return True

    def readinto(self, buffer: Any) -> int:
        """Write the next bytes into a buffer; return their number, 0 at the end."""
        data = self._read(len(buffer))
        buffer[: len(data)] = data
        return len(data)

    def _read(self, n_bytes: int) -> bytes:
        data = b""
        while not data:
            packed = b""
            if self._decompressor.eof:
                packed = self._decompressor.unused_data or self._packed.read(_READ_BYTES)
                if not packed:
                    return b""
                self._decompressor = bz2.BZ2Decompressor()
                self._is_later_stream = True
            elif self._decompressor.needs_input:
                packed = self._packed.read(_READ_BYTES)
                if not packed:
                    raise EOFError("it ends within its bzip2 data: copy or download it again")
            data = self._unpacked(packed, n_bytes)
        return data

    def _unpacked(self, packed: bytes, n_bytes: int) -> bytes:
        try:
            return self._decompressor.decompress(packed, n_bytes)
        except OSError:
            where = "its bytes"
            if self._is_later_stream:
                where = "the bytes after the end of a bzip2 stream"
            raise OSError(f"{where} are not bzip2 data: copy or download it again") from None


class _Lines:
    """The lines of a text file, up to `MOST_CHARACTERS` of them without the end of a row.

    Attributes:
        n_characters: Number of characters read so far.
    """

    def __init__(self, text: IO[str], file: Path) -> None:
        self.n_characters = 0
        self._text = text
        self._file = file
        self._n_before_row = 0  # characters before the current row

    def __iter__(self) -> Iterator[str]:
        return self

    def __next__(self) -> str:
        n_left = MOST_CHARACTERS - (self.n_characters - self._n_before_row)
        line = self._text.readline(n_left + 1)
        if not line:
            raise StopIteration
        if len(line) > n_left:
            raise BadInput(
                f"{self._file} has a row of more than {MOST_CHARACTERS:,} characters, so it is damaged or no table: "
                "check where its lines and its quotes end"
            )
        self.n_characters += len(line)
        return line

    def first(self, n: int) -> list[str]:
        """Return up to n lines, each with the limit of a row."""
        lines = []
        for _ in range(n):
            self._n_before_row = self.n_characters
            line = next(self, "")
            if not line:
                break
            lines.append(line)
        self._n_before_row = self.n_characters
        return lines

    def rows(self, reader: Iterator[list[str]]) -> Iterator[list[str]]:
        """Yield the rows of a reader of these lines, each with the limit of a row."""
        for row in reader:
            self._n_before_row = self.n_characters
            yield row

    def parts(self, rows: Iterator[list[str]]) -> Iterator[list[list[str]]]:
        """Yield rows that were read from these lines in parts that fit into memory."""
        part: list[list[str]] = []
        n_before = self.n_characters
        for row in rows:
            part.append(row)
            if len(part) == _PART_ROWS or self.n_characters - n_before > _PART_CHARACTERS:
                yield part
                part = []
                n_before = self.n_characters
        if part:
            yield part


def unnamed(i: int) -> str:
    """Return the name of column i, counted from 0, that has none in the file."""
    return f"column_{i}"


def _without_empty_end(rows: Iterator[list[str]]) -> Iterator[list[str]]:
    """Yield rows without blank lines, and without rows of empty cells at the end of the file."""
    n_empty = 0
    for row in rows:
        if not row:
            continue
        if not any(row):
            n_empty += 1
            continue
        for _ in range(n_empty):
            yield [""]
        n_empty = 0
        yield row


def _found_separator(first_lines: list[str], *, has_header: bool) -> str:
    """Return the separator of a header, or of rows of numbers whose decimal marks may be commas."""
    lines = [line for line in first_lines if line.strip()]
    if not lines:
        return ","
    if has_header:
        if "," in lines[0]:
            return ","
        lines = lines[:1]
    for separator in _OTHER_SEPARATORS:
        counts = {line.count(separator) for line in lines}
        if len(counts) == 1 and counts != {0}:
            return separator
    return ","


def check_form(form: CsvForm) -> None:
    """Raise BadInput if a separator or a decimal mark is none."""
    if form.separator not in (None, *SEPARATORS):
        raise BadInput(
            f"separator must be one of {', '.join(map(repr, SEPARATORS))}, not {form.separator!r}"
        )
    if form.decimal not in (None, *DECIMALS):
        raise BadInput(f'decimal must be "." or ",", not {form.decimal!r}')
