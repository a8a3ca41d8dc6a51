"""Cells of a column as numbers, whole numbers or true and false, without rounding one into another.

A cell is a number, a text, or missing: None, NaN, an empty text, or one of `MISSING`. Each function
returns which cells it could read, so that the caller can name the first one that it could not.
"""

from __future__ import annotations

import math
import numbers
import re
from collections.abc import Sequence
from datetime import UTC, datetime
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from horde_agent.types import Bools, Floats

Cells = NDArray[Any]
"""A column: numbers or true and false, or objects (Python's numbers, texts, None), shape (n_rows,)."""

MISSING = frozenset({"", "nan", "na", "n/a", "null", "none", "<na>"})
"""Texts of a cell without a value, in lower case."""
_TRUE = frozenset({"true", "t", "yes", "y", "1", "1.0"})
_FALSE = frozenset({"false", "f", "no", "n", "0", "0.0"})
_WHOLE = re.compile(r"[+-]?\d{1,40}", re.ASCII)
_DECIMAL_COMMA = re.compile(r"\s*[+-]?\d*,\d+([eE][+-]?\d+)?\s*", re.ASCII)
_LARGEST_EXACT = 2.0**53
"""From here on, float64 does not hold every whole number."""
_LARGEST_WHOLE = 2.0**24
"""From here on, float32 does not hold every whole number."""
_ROUNDING = 1e-12
"""Relative differences up to this one come from arithmetic in float64, not from a sensor."""
_MOST_SHOWN = 40  # characters of a text in a message


def from_texts(texts: list[str]) -> Cells:
    """Return texts as float64 if all are finite numbers below 2^53, else as they are."""
    cells = np.array(texts, dtype=object)
    if any("_" in text for text in texts):  # Python reads 2020_01 as a number
        return cells
    try:
        values = np.array(texts, dtype=np.float64)
    except ValueError:
        return cells
    if are_exact(values):
        return values
    return cells


def are_exact(values: Floats) -> bool:
    """Return whether numbers of texts, shape (n,), are finite, and float64 has merged none with its neighbours."""
    return bool((np.isfinite(values) & (np.abs(values) < _LARGEST_EXACT)).all())


def with_decimal_points(texts: list[str]) -> list[str]:
    """Return texts with a point for the comma of each number with a decimal comma."""
    points = []
    for text in texts:
        if _DECIMAL_COMMA.fullmatch(text):
            text = text.replace(",", ".")
        points.append(text)
    return points


TIME_UNITS_S = {"s": 1.0, "ms": 1e-3, "us": 1e-6, "ns": 1e-9}
"""Units of times that are numbers, in seconds."""


def as_seconds(cells: Cells, unit_s: float = 1.0) -> Floats:
    """Return a column of times in seconds, float64, shape (n_rows,); NaN for other cells.

    Numbers are times in a unit of `unit_s` seconds; dates (datetime64, datetime, ISO 8601 texts)
    become seconds since 1970, in UTC if they name no zone.
    """
    if cells.dtype.kind == "M":
        return _seconds_of_dates(cells)
    # Dividing by 1000 is exact to the last digit, multiplying by .001 is not
    seconds = as_numbers(cells) / round(1.0 / unit_s)
    if cells.dtype.kind in "OUT":
        for i in np.flatnonzero(np.isnan(seconds)).tolist():
            seconds[i] = _second_of_date(cells[i])
    return seconds


def _seconds_of_dates(dates: Cells) -> Floats:
    since_1970 = dates - np.datetime64(0, "s")
    seconds = since_1970 / np.timedelta64(1, "s")
    return np.where(np.isnat(dates), np.nan, seconds).astype(np.float64)


def _second_of_date(cell: Any) -> float:
    """Return the seconds since 1970 of a text or a datetime; NaN if it is neither."""
    date = cell
    if isinstance(cell, str):
        try:
            date = datetime.fromisoformat(cell.strip())
        except ValueError:
            return math.nan
    if not isinstance(date, datetime):
        return math.nan
    if date.tzinfo is None:
        date = date.replace(tzinfo=UTC)
    try:
        return date.timestamp()
    except (ValueError, OverflowError):  # pandas' NaT
        return math.nan


def as_categories(cells: Cells, categories: Sequence[str]) -> Floats:
    """Return the number of each cell's category, float64, shape (n_rows,); NaN for another text."""
    numbers = {category: float(i) for i, category in enumerate(categories)}
    return np.array([numbers.get(category_of(cell), math.nan) for cell in cells.tolist()])


def as_actions(cells: Cells, names: Sequence[str]) -> Floats:
    """Return the number of each cell's action, float64, shape (n_rows,), by its number or name; NaN for other cells."""
    numbers = as_numbers(cells)
    if cells.dtype.kind in "OUT":
        number_by_name = {name: float(number) for number, name in enumerate(names)}
        for i in np.flatnonzero(np.isnan(numbers)).tolist():
            cell = cells[i]
            if isinstance(cell, str):
                numbers[i] = number_by_name.get(cell.strip(), math.nan)
    return numbers


def category_of(cell: Any) -> str:
    """Return a cell's text as the name of a category: 3.0 is 3, None is empty."""
    if cell is None:
        return ""
    if isinstance(cell, float) and cell.is_integer():
        return str(int(cell))
    return str(cell).strip()


def as_numbers(cells: Cells) -> Floats:
    """Return the numbers of a column, float64, shape (n_rows,); NaN for other cells. True is 1, false is 0."""
    if cells.dtype.kind in "fiub":
        return cells.astype(np.float64)
    return np.array([number_of(cell) for cell in cells.tolist()], dtype=np.float64)


def are_missing(cells: Cells) -> Bools:
    """Return which cells of a column hold nothing, shape (n_rows,): None, NaN, an empty text, or one of `MISSING`."""
    kind = cells.dtype.kind
    if kind == "f":
        return np.isnan(cells)
    if kind in "iub":
        return np.zeros(len(cells), dtype=bool)
    return np.array([str(cell).strip().lower() in MISSING for cell in cells.tolist()], dtype=bool)


def as_whole_numbers(cells: Cells) -> tuple[Cells, Bools]:
    """Return the whole numbers of a column, of any size, and which cells are whole numbers; 0 where one is not.

    A float from 2^53 on is not: float64 has merged it with its neighbours.
    """
    kind = cells.dtype.kind
    if kind in "iu":
        return cells, np.ones(len(cells), dtype=bool)
    if kind in "fb":
        values = cells.astype(np.float64)
        is_whole = (np.abs(values) < _LARGEST_EXACT) & (values == np.floor(values))
        return np.where(is_whole, values, 0.0).astype(np.int64), is_whole
    whole_numbers = [_whole_number(cell) for cell in cells.tolist()]
    is_whole = np.array([number is not None for number in whole_numbers], dtype=bool)
    exact = np.array([number or 0 for number in whole_numbers], dtype=object)
    try:
        return exact.astype(np.int64), is_whole
    except OverflowError:
        return exact, is_whole


def as_claims(cells: Cells) -> tuple[Bools, Bools]:
    """Return which cells say true (true, t, yes, y, 1), and which say true or false (false, f, no, n, 0)."""
    if cells.dtype.kind in "fiub":
        values = cells.astype(np.float64)
        return values == 1.0, (values == 0.0) | (values == 1.0)
    texts = [str(cell).strip().lower() for cell in cells.tolist()]
    is_true = np.array([text in _TRUE for text in texts], dtype=bool)
    is_false = np.array([text in _FALSE for text in texts], dtype=bool)
    return is_true, is_true | is_false


class Shift(NamedTuple):
    """How the readings of a channel follow from the values of its column: (value - origin) x scale."""

    origin: float = 0.0
    scale: float = 1.0

    def readings(self, values: Floats) -> Floats:
        """Return readings in float64, shape as `values`."""
        return np.asarray((values - self.origin) * self.scale)

    def values(self, readings: NDArray[Any]) -> Floats:
        """Return the values that have these readings, float64, shape as `readings`."""
        return np.asarray(readings.astype(np.float64) / self.scale + self.origin)


NO_SHIFT = Shift()
"""The readings are the values."""


def are_kept_by_float32(
    cells: Cells, values: Floats, span: float, shift: Shift = NO_SHIFT
) -> Bools:
    """Return which readings of a channel float32 holds: whole ones exactly, others to a thousandth of the range.

    Args:
        cells: The column, shape (n_rows,).
        values: Its numbers, float64, shape (n_rows,).
        span: Range of the channel, largest reading minus smallest; infinite if it is unknown.
        shift: How its readings follow from the numbers.
    """
    is_kept = are_near_float32(shift.readings(values), span)
    return np.asarray((is_kept & ~are_merged(cells, values)) | ~np.isfinite(values))


def are_near_float32(readings: Floats, span: float | Floats) -> Bools:
    """Return which readings, of any shape, float32 holds well enough; `span` is a number, or one for each column."""
    with np.errstate(over="ignore"):
        rounded = readings.astype(np.float32).astype(np.float64)
    is_whole = (np.abs(readings) < _LARGEST_EXACT) & (readings == np.floor(readings))
    with np.errstate(invalid="ignore"):
        is_near = np.abs(rounded - readings) <= 1e-3 * span
    is_near &= np.isfinite(rounded) == np.isfinite(readings)
    return np.where(is_whole, rounded == readings, is_near)


def are_merged(cells: Cells, values: Floats) -> Bools:
    """Return which whole numbers of a column float64 may have merged with their neighbours, shape (n_rows,)."""
    if cells.dtype.kind not in "iu":
        return np.zeros(len(values), dtype=bool)
    return np.asarray(np.abs(values) >= _LARGEST_EXACT)


def is_rounding(lowest: float, highest: float) -> bool:
    """Return whether two numbers differ by no more than the rounding of arithmetic in float64."""
    return highest - lowest <= _ROUNDING * max(abs(lowest), abs(highest))


def shift_for(values: Floats) -> Shift | None:
    """Return an origin below the numbers of a channel, and a scale, with which float32 holds the readings.

    The origin has as many digits as the range of the numbers needs. The scale is a power of ten
    that only whole numbers of a range beyond 2^24 need.

    Args:
        values: Numbers of the channel, float64, shape (n,).

    Returns:
        None if float32 holds the numbers as they are, or no number is there.
    """
    finite = values[np.isfinite(values)]
    if not len(finite):
        return None
    lowest = float(finite.min())
    highest = float(finite.max())
    span = highest - lowest
    if is_rounding(lowest, highest):
        span = 1.0  # as the range of a constant channel
    if not math.isfinite(span):
        return None
    if are_kept_by_float32(finite, finite, span).all():
        return None
    magnitude = math.floor(math.log10(span))
    unit = 10.0**magnitude
    origin = round(math.floor(lowest / unit) * unit, -magnitude)
    scale = 1.0
    is_whole = bool((finite == np.floor(finite)).all())
    if is_whole and highest - origin >= _LARGEST_WHOLE:
        n_digits = math.ceil(math.log10((highest - origin) / _LARGEST_WHOLE))
        scale = 10.0**-n_digits
    shift = Shift(float(origin), scale)
    if not are_kept_by_float32(finite, finite, span * scale, shift).all():
        return None
    return shift


def resolution(cells: Cells, values: Floats) -> Floats:
    """Return the distance to the next number that the column's type can hold, shape (n_rows,)."""
    if cells.dtype.kind != "f":
        return np.zeros(len(values))
    with np.errstate(invalid="ignore", over="ignore"):
        return np.asarray(np.spacing(np.abs(cells)), dtype=np.float64)


def is_missing(cell: Any) -> bool:
    """Return whether a cell has no value: None, NaN, or one of the texts `MISSING`."""
    if isinstance(cell, str):
        return cell.strip().lower() in MISSING
    return cell is None or (isinstance(cell, float) and math.isnan(cell))


def shown(cell: Any) -> str:
    """Return a cell for a message: a number in short, a text in quotes."""
    if cell is None or (isinstance(cell, str) and not cell.strip()):
        return "an empty cell"
    if isinstance(cell, str):
        end = ""
        if len(cell) > _MOST_SHOWN:
            end = "..."
        return repr(cell[:_MOST_SHOWN] + end)
    if isinstance(cell, bool | int):
        return str(cell)
    if isinstance(cell, float):
        return f"{cell:.9g}"
    return shown(str(cell))


def cell_at(cells: Cells, i: int) -> Any:
    """Return cell i as a Python object."""
    cell = cells[i]
    if isinstance(cell, np.generic):
        return cell.item()
    return cell


def number_of(cell: Any) -> float:
    """Return a cell's number; NaN if it is not a number."""
    if isinstance(cell, str):
        return _number_of_text(cell.strip().lower())
    try:  # Decimal, too; pandas' NA raises
        return float(cell)
    except (TypeError, ValueError, OverflowError):
        return math.nan


def _number_of_text(text: str) -> float:
    if text in ("true", "false"):
        return float(text == "true")
    if "_" in text:
        return math.nan
    try:
        return float(text)
    except ValueError:
        return math.nan


def _whole_number(cell: Any) -> int | None:
    if isinstance(cell, numbers.Integral):
        return int(cell)
    if isinstance(cell, str) and _WHOLE.fullmatch(cell.strip()):
        return int(cell)
    number = number_of(cell)
    if abs(number) < _LARGEST_EXACT and number == math.floor(number):
        return int(number)
    return None
