"""Lines of text as rows of cells: a JSON object per line, or CSV below a header.

What stands in the first line says which. A line is a row: a quoted cell cannot contain a line break.
"""

from __future__ import annotations

import codecs
import csv
import json
import math
from collections.abc import Mapping, Sequence
from itertools import chain
from typing import Any

import numpy as np
from numpy.typing import NDArray

from horde_agent.formats.arrays import refuse_twice
from horde_agent.formats.cells import from_texts, is_missing, number_of, with_decimal_points
from horde_agent.formats.columns import Columns, unnamed
from horde_agent.formats.csv_file import found_separator
from horde_agent.formats.part import Chunk, lacks
from horde_agent.refusals import BadInput

_LARGEST_EXACT = 2**53


class UnfitHeader(BadInput):
    """The first line of a text names columns that do not fit; no later line can be read."""


class LineParser:
    """Cells of one line after another.

    Args:
        columns: Names of the columns that are read, and the form of CSV.
        where: Name of the text, for messages.
    """

    def __init__(self, columns: Columns, where: str) -> None:
        self._columns = columns
        self._all_names = columns.names
        self._names = columns.names_in(())  # with lost ones as they are there
        of_texts = {channel.column for channel in columns.channel if channel.categories}
        if columns.actions.action is not None:
            of_texts.add(columns.actions.action)
        self._has_numbers = bool(set(self._names) - of_texts)
        self._form = columns.csv
        self._where = where
        self._is_json: bool | None = None
        self._separator = ","
        self._header: list[str] = []
        self._places: list[int] = []
        self._has_other_columns = False

    def chunk(self, line: bytes) -> Chunk | None:
        """Return the cells of a line by column, each of shape (1,); None for a header or an empty line.

        A header may come again, also with its names in another order.

        Raises:
            BadInput: If the line is no row.
        """
        text = text_of(line)
        if not text.strip():
            return None
        if self._is_json is None:
            self._is_json = text.lstrip().startswith("{")
        if self._is_json:
            return cells_of_mapping(json_object(text), self._all_names)
        return self._cells_of_csv(text)

    def begin_file(self) -> None:
        """Expect the first line of another file, which may be of another form."""
        self._is_json = None
        self._header = []

    def state(self) -> dict[str, Any]:
        """Return what later lines depend on, in JSON types."""
        return {
            "is_json": self._is_json,
            "separator": self._separator,
            "header": list(self._header),
            "has_other_columns": self._has_other_columns,
        }

    def restore(self, state: Mapping[str, Any]) -> None:
        """Continue from what `state` returned."""
        self._is_json = state["is_json"]
        self._separator = state["separator"]
        header = state["header"]
        # Those of other columns, before they changed, stand above no further row
        if header and set(self._columns.names_in(header)) <= set(header):
            self._set_header(header)
        self._has_other_columns = state["has_other_columns"]

    def _cells_of_csv(self, text: str) -> Chunk | None:
        if not self._header:
            form = self._form
            self._separator = form.separator or found_separator(
                text.encode(), has_header=form.header
            )
        try:
            row = next(csv.reader([text], delimiter=self._separator, strict=True))
        except csv.Error as error:
            raise BadInput(f"{self._where}: {error}") from None
        if not self._header:
            names = [unnamed(i) for i in range(len(row))]
            if self._form.header:
                names = [cell.strip() or name for cell, name in zip(row, names, strict=True)]
            self._set_header(names)
            if self._form.header:
                return None
        if self._is_header(row):
            self._continue_below([name.strip() for name in row])
            return None
        if self._has_other_columns:
            raise BadInput(f"{self._where} has a row below a header of other columns")
        if len(row) != len(self._header):
            raise BadInput(
                f"{self._where} has a row of another length than its header (cells: {len(row)} and {len(self._header)})"
            )
        return self._cells_of([row[place] for place in self._places])

    def _set_header(self, header: Sequence[str]) -> None:
        """Set the names of the columns; raise UnfitHeader if one that is read is missing, or there twice."""
        self._names = self._columns.names_in(header)
        for name in self._names:
            if name not in header:
                raise UnfitHeader(str(lacks(self._where, name, header)))
        refuse_twice(self._where, [name for name in header if name in self._names])
        self._header = list(header)
        self._places = [header.index(name) for name in self._names]

    def _is_header(self, row: Sequence[str]) -> bool:
        """Return whether a row is a header again: names in the place of numbers."""
        if not self._form.header or not self._has_numbers or not _are_names(row):
            return False
        names = {name.strip() for name in row}
        return len(row) == len(self._header) or names >= set(self._columns.names_in(()))

    def _continue_below(self, header: list[str]) -> None:
        """Find the columns below another header; raise BadInput if it lacks one, and at each row below it."""
        missing = [name for name in self._columns.names_in(header) if name not in header]
        self._has_other_columns = bool(missing)
        if missing:
            raise BadInput(
                f"{self._where} continues with other columns, of which none is {missing[0]!r}: rows are read again "
                "below a header with those of its first one"
            )
        self._set_header(header)

    def _cells_of(self, texts: list[str]) -> Chunk:
        has_commas = self._form.decimal == "," or (
            self._form.decimal is None and self._separator != ","
        )
        if has_commas:
            texts = with_decimal_points(texts)
        values = from_texts(texts)
        if values.dtype == object:
            return {name: from_texts([text]) for name, text in zip(self._names, texts, strict=True)}
        return one_row(self._names, values)


def one_row(names: Sequence[str], values: NDArray[Any]) -> Chunk:
    """Return the cells of a row by column, each of shape (1,); `values` has shape (n_names,)."""
    return {name: values[i : i + 1] for i, name in enumerate(names)}


def text_of(line: bytes) -> str:
    """Return a line without its end; raise BadInput if it is no text."""
    try:
        return line.removeprefix(codecs.BOM_UTF8).decode().rstrip("\r\n")
    except UnicodeDecodeError as error:
        raise BadInput(f"byte {error.start + 1} of the line is no UTF-8") from None


def _are_names(row: Sequence[str]) -> bool:
    """Return whether no cell of a row is a number or missing, as in a header."""
    # The first cell is a number as a rule, and then no other one is looked at
    return bool(row) and all(math.isnan(number_of(cell)) and not is_missing(cell) for cell in row)


def json_object(text: str) -> dict[str, Any]:
    """Return the JSON object of a line; raise BadInput if it is none."""
    try:
        row = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise BadInput(f"the line is no JSON object: {error}") from None
    if not isinstance(row, dict):
        raise BadInput(f"the line is no JSON object, but a {type(row).__name__}")
    return row


def cells_of_mapping(row: Mapping[str, Any], names: Sequence[str]) -> Chunk:
    """Return the cells of a row by column, each of shape (1,); as of `cells_of_mappings`."""
    return cells_of_mappings([row], names)


def cells_of_mappings(rows: Sequence[Mapping[str, Any]], names: Sequence[str]) -> Chunk:
    """Return the cells of rows by column, each of shape (n_rows,), None or NaN for a missing one.

    NAME_3 is number 3 of the list NAME. Raise BadInput if a cell is no number, text, truth value or
    list of numbers, or a row has none of the columns.
    """
    table = [[row.get(name) for name in names] for row in rows]
    if all(map(_is_exact, chain.from_iterable(table))):
        values = np.array(table, dtype=np.float64)
        return {name: values[:, i] for i, name in enumerate(names)}
    for row, cells in zip(rows, table, strict=True):
        if cells.count(None) == len(cells):
            _refuse_other_columns(row, names)
    chunk: dict[str, NDArray[Any]] = {}
    for i, name in enumerate(names):
        values_of_name = [cells[i] for cells in table]
        vector = name.rpartition("_")[0]
        if any(isinstance(row.get(vector), list) and name not in row for row in rows):
            chunk[vector] = _vectors(vector, [row.get(vector) for row in rows])
        elif any(isinstance(value, list) for value in values_of_name):
            chunk[name] = _vectors(name, values_of_name)
        else:
            chunk[name] = _column(name, values_of_name)
    return chunk


def _refuse_other_columns(row: Mapping[str, Any], names: Sequence[str]) -> None:
    """Raise BadInput if a row has none of the columns that are read, not even an empty one."""
    names_there = {*names, *(name.rpartition("_")[0] for name in names)}
    if names_there.isdisjoint(row):
        raise lacks("the object", names[0], list(row))


def _is_exact(value: Any) -> bool:
    """Return whether a value is a number that float64 has not merged with its neighbours."""
    return type(value) in (float, int) and bool(abs(value) < _LARGEST_EXACT)


def _column(name: str, values: Sequence[Any]) -> NDArray[Any]:
    """Return cells, NaN for a missing one among numbers."""
    if any(isinstance(value, dict) for value in values):
        raise BadInput(f"{name!r} is an object, expected a number")
    if all(isinstance(value, bool) for value in values):
        return np.array(values)
    if all(value is None or isinstance(value, float) or _is_exact(value) for value in values):
        return np.array(values, dtype=np.float64)  # None becomes NaN
    cells = np.empty(len(values), dtype=object)
    for i, value in enumerate(values):
        cells[i] = value
    return cells


def _vectors(name: str, values: Sequence[Any]) -> NDArray[Any]:
    """Return lists of one length as an array, shape (n_rows, length); a missing one is a row of NaN."""
    lengths = {len(value) for value in values if isinstance(value, list)}
    if len(lengths) > 1:
        raise BadInput(
            f"{name!r} has lists of {' and of '.join(map(str, sorted(lengths)))} numbers"
        )
    (length,) = lengths
    lists = [value if value is not None else [None] * length for value in values]
    try:
        return np.array(lists, dtype=np.float64)
    except (TypeError, ValueError):
        raise BadInput(f"{name!r} is no list of numbers") from None
