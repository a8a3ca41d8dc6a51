"""The form of a CSV file: its separator, its decimal mark, its header; found in its first lines, or named."""

from __future__ import annotations

import bz2
import csv
import gzip
from collections.abc import Iterator
from contextlib import contextmanager
from itertools import chain, islice
from pathlib import Path
from typing import IO, Any, NamedTuple

from horde_agent.runs.config import BadInput

SEPARATORS = (",", ";", "\t", "|")
DECIMALS = (".", ",")
_OTHER_SEPARATORS = (";", "\t", "|")
_N_FIRST_LINES = 5


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
    """An open CSV file: its names, its rows as texts, and its form."""

    names: list[str]
    rows: Iterator[list[str]]
    separator: str
    has_decimal_commas: bool


@contextmanager
def opened_csv(file: Path, form: CsvForm) -> Iterator[OpenCsv]:
    """Open a CSV file, compressed by gzip or bzip2 or not; it has no names if it is empty."""
    openers: dict[str, Any] = {".gz": gzip.open, ".bz2": bz2.open}
    opener = openers.get(file.suffix.lower(), open)
    lines: IO[str]
    with opener(file, "rt", newline="", encoding="utf-8-sig") as lines:
        first_lines = list(islice(lines, _N_FIRST_LINES))
        separator = form.separator or _found_separator(first_lines, has_header=form.has_header)
        rows: Iterator[list[str]] = csv.reader(chain(first_lines, lines), delimiter=separator)
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
        yield OpenCsv(names, _without_empty_end(rows), separator, has_decimal_commas=decimal == ",")


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
