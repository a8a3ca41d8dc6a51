"""Parts of a table: their columns as numbers, times and marks, and the place of an unreadable cell."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from functools import cached_property
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from horde_agent.formats import cells
from horde_agent.formats.cells import Cells
from horde_agent.formats.columns import ChannelColumn, Columns
from horde_agent.refusals import BadInput
from horde_agent.types import Bools, Floats

Chunk = Mapping[str, NDArray[Any]]
"""Columns by name, of cells or of vectors: shape (n_rows,) or (n_rows, n)."""

CHUNK_ROWS = 32_768
_MOST_NAMED = 30  # columns in a message


def rows_of_chunk(chunk: Chunk) -> Iterator[Chunk]:
    """Yield each row of columns, likewise, as columns of one row."""
    n_rows = len(next(iter(chunk.values())))
    for i in range(n_rows):
        yield {name: column[i : i + 1] for name, column in chunk.items()}


class Actions(NamedTuple):
    """The actions of a part of a table, and their probabilities; all arrays have shape (n_rows,).

    Attributes:
        number: The number of each row's action; None without a column.
        b: Its probability; None without a column.
        is_valid: Which rows have the number of an action; all without a column.
        has_b: Which rows have a probability; all without a column.
    """

    number: Floats | None
    b: Floats | None
    is_valid: Bools
    has_b: Bools


class Part:
    """A part of a table: its columns by name, or by key of `Columns`.

    Attributes:
        n_read: Number of rows before it.
        n_rows: Number of its rows.
    """

    def __init__(self, chunk: Chunk, where: str, columns: Columns, n_read: int) -> None:
        self._chunk = chunk
        self._where = where
        self._columns = columns
        self._names = columns.others
        self.n_read = n_read
        self.n_rows = len(next(iter(chunk.values()), ()))

    def numbers(self, key: str) -> Floats | None:
        """Return the numbers of a key's column, NaN for other cells, (n_rows,); None without a column."""
        name = self._names.get(key)
        if name is None:
            return None
        return cells.as_numbers(self.column(name))

    def numbers_below(self, key: str, end: int, must: str) -> Floats | None:
        """Return the numbers of a key's column, None without a column; raise BadInput if one is not 0, ..., end - 1."""
        numbers = self.numbers(key)
        if numbers is not None:
            self.check(are_below(numbers, end), self._names[key], must)
        return numbers

    def numbers_of_type(self, key: str, dtype: np.dtype[Any]) -> Floats | None:
        """Return the numbers of a key's column, None without a column; raise BadInput at one that the type cannot hold.

        With a floating-point type, a cell without a number is NaN.
        """
        numbers = self.numbers(key)
        if numbers is None or dtype.kind == "f":
            return numbers
        limits = np.iinfo(dtype)
        is_in_range = (numbers >= limits.min) & (numbers <= limits.max)
        is_whole = np.asarray(is_in_range & (numbers == np.floor(numbers)))
        must = f"must be a whole number in {limits.min}..{limits.max}"
        self.check(is_whole, self._names[key], must)
        return numbers

    def marks(self, key: str, is_needed: Bools) -> Bools:
        """Return where a key's column says true, shape (n_rows,); raise BadInput at another cell that is needed."""
        name = self._names.get(key)
        if name is None:
            return np.zeros(self.n_rows, dtype=bool)
        is_true, is_readable = cells.as_claims(self.column(name))
        self.check(is_readable | ~is_needed, name, "must be true or false")
        return is_true

    @cached_property
    def actions(self) -> Actions:
        """The actions and their probabilities."""
        action = None
        b = self.numbers("b")
        is_valid = np.ones(self.n_rows, dtype=bool)
        has_b = is_valid
        columns = self._columns.actions
        if columns.action is not None:
            action = cells.as_actions(self.column(columns.action), columns.actions)
            is_valid = are_below(action, len(columns.actions))
        if b is not None:
            has_b = np.asarray((b > 0.0) & (b <= 1.0))
        return Actions(action, b, is_valid, has_b)

    @property
    def lacks_last_action(self) -> bool:
        """Whether actions are known, and the last row has an empty cell for its action."""
        name = self._columns.actions.action
        return name is not None and cells.is_missing(cells.cell_at(self.column(name), -1))

    def times(self) -> Floats | None:
        """Return the times in seconds, NaN for other cells, (n_rows,); None without a column."""
        times = self._columns.times
        if times.time is None:
            return None
        return cells.as_seconds(self.column(times.time, may_be_dates=True), times.unit_s)

    @cached_property
    def channels(self) -> list[Cells]:
        """The column of each channel."""
        return [self.column(channel.column) for channel in self._columns.channel]

    @cached_property
    def has_floats_alone(self) -> bool:
        """True if the columns of all channels hold floating-point numbers, and no channel has categories."""
        if any(channel.categories for channel in self._columns.channel):
            return False
        return all(column.dtype.kind == "f" for column in self.channels)

    def values(self) -> Floats:
        """Return the numbers of the channels, NaN for other cells, shape (n_rows, n_channels)."""
        if self.has_floats_alone:
            # All channels at once: a stream has one row at a time
            values = np.array(self.channels, dtype=np.float64).T
            return self._without_missing_values(values)
        return np.array([self.values_of(channel) for channel in self._columns.channel]).T

    def values_of(self, channel: ChannelColumn) -> Floats:
        """Return the numbers of a channel's column, NaN for other cells, shape (n_rows,)."""
        column = self.column(channel.column)
        if channel.categories:
            return cells.as_categories(column, channel.categories)
        return self._without_missing_values(cells.as_numbers(column))

    def _without_missing_values(self, values: Floats) -> Floats:
        """Return numbers, of any shape, with NaN for those that stand for a missing one."""
        if self._columns.missing_values:
            values[np.isin(values, self._columns.missing_values)] = np.nan
        return values

    def are_missing(self, channel: ChannelColumn) -> Bools:
        """Return which cells of a channel's column hold nothing, or a number of `missing_values`, shape (n_rows,)."""
        column = self.column(channel.column)
        is_missing = cells.are_missing(column)
        if self._columns.missing_values and not channel.categories:
            is_missing |= np.isin(cells.as_numbers(column), self._columns.missing_values)
        return is_missing

    def whole_numbers(self, name: str, must: str) -> Cells:
        """Return a column of whole numbers, shape (n_rows,); raise BadInput at another cell."""
        numbers, is_whole = cells.as_whole_numbers(self.column(name))
        self.check(is_whole, name, must)
        return numbers

    def check(self, is_valid: Bools, name: str, must: str) -> None:
        """Raise BadInput with file, row, column and text of the first invalid cell; `is_valid` has shape (n_rows,)."""
        if is_valid.all():
            return
        i = int(is_valid.argmin())
        column = self.column(name, may_be_dates=True)
        text = cells.shown(cells.cell_at(column, i))
        raise BadInput(f"{self._where}, row {self.n_read + i + 1}, column {name!r}: {text} {must}")

    def column(self, name: str, *, may_be_dates: bool = False) -> Cells:
        """Return a column, or number 3 of a column NAME of vectors for NAME_3, shape (n_rows,)."""
        vector, _, i = name.rpartition("_")
        if name in self._chunk:
            column = np.asarray(self._chunk[name])
        elif i.isdecimal() and np.ndim(self._chunk.get(vector, 0)) == 2:
            column = self._number_of(np.asarray(self._chunk[vector]), int(i), name)
        elif self._is_lost(name):
            return np.full(self.n_rows, np.nan)
        else:
            raise self._lacks(name)
        if column.ndim == 2 and column.shape[1] == 1:
            column = column[:, 0]
        kind = column.dtype.kind
        if kind == "M" and may_be_dates and column.ndim == 1:
            return column
        if kind in "mM":
            raise BadInput(
                f"{self._where}: the column {name!r} holds dates, expected numbers: name it as the time, or convert it "
                "by (t - t[0]) / numpy.timedelta64(1, 's')"
            )
        if column.ndim != 1 or kind not in "fiubOUT":
            raise BadInput(
                f"{self._where}: the column {name!r} must hold a number per row, not {column.dtype} {column.shape}"
            )
        if kind in "UT":
            return column.astype(object)
        return column

    def _is_lost(self, name: str) -> bool:
        """Return whether the column of a channel may not be there."""
        return any(channel.lost and channel.column == name for channel in self._columns.channel)

    def vector_width(self, vector: str) -> int:
        """Return how many numbers the vectors of a column have, 0 if they are unknown."""
        vectors = np.asarray(self._chunk.get(vector, 0))
        if vectors.ndim == 2:
            return int(vectors.shape[1])
        return 0

    def _number_of(self, vectors: NDArray[Any], i: int, name: str) -> NDArray[Any]:
        if not vectors.shape[1]:  # all are null
            return np.full(len(vectors), np.nan)
        if i >= vectors.shape[1]:
            raise self._lacks(name)
        return vectors[:, i]

    def _lacks(self, name: str) -> BadInput:
        return lacks(self._where, name, list(self._chunk))


def lacks(where: str, name: str, there: Sequence[str], advice: str = "") -> BadInput:
    """Return the refusal of a column that is not one of those that are there."""
    names = ", ".join(there[:_MOST_NAMED]) or "none"
    if len(there) > _MOST_NAMED:
        names += f" and {len(there) - _MOST_NAMED:,} others"
    return BadInput(f"{where} has no column {name!r}; there are {names}{advice}")


def are_below(numbers: Floats, end: int) -> Bools:
    """Return which numbers are one of 0, ..., end - 1, shape as `numbers`."""
    return np.asarray((numbers >= 0) & (numbers < end) & (numbers == np.floor(numbers)))
