"""Parts of a table in memory: arrays, pandas, pyarrow."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from horde_agent.formats.part import CHUNK_ROWS, Chunk
from horde_agent.refusals import BadInput, imported

NEEDS_PYARROW = "Parquet needs pyarrow: pip install -e '.[log]'"


def refuse_twice(where: str, names: Sequence[str]) -> None:
    """Raise BadInput if two columns have one name."""
    earlier_names = set[str]()
    for name in names:
        if name in earlier_names:
            raise BadInput(f"{where}: two columns are called {name!r}; rename one of them")
        earlier_names.add(name)


def parts(arrays: Mapping[str, NDArray[Any]], where: str) -> Iterator[Chunk]:
    """Yield arrays of shape (n_rows, ...) in parts of `CHUNK_ROWS` rows; raise BadInput if their lengths differ."""
    lengths = {name: len(values) if values.ndim else 0 for name, values in arrays.items()}
    if len(set(lengths.values())) > 1:
        shown = ", ".join(f"{name} {n:,}" for name, n in lengths.items())
        raise BadInput(f"{where}: all columns must have the same number of rows, not {shown}")
    for k in range(0, max(lengths.values(), default=0), CHUNK_ROWS):
        yield {name: values[k : k + CHUNK_ROWS] for name, values in arrays.items()}


def is_table(thing: object) -> bool:
    """Return whether an object has named columns: a pandas or pyarrow table, a record batch, or a mapping."""
    return isinstance(thing, Mapping) or hasattr(thing, "column_names") or hasattr(thing, "columns")


def as_chunk(table: Any, where: str = "the table", first_row: int = 0) -> dict[str, NDArray[Any]]:
    """Return the columns of a table in memory by name; pyarrow's lists become vectors, null becomes NaN.

    Raise BadInput if two columns have one name, or the vectors of a column have several lengths;
    `first_row` is the number of rows before this part of the table.
    """
    if hasattr(table, "column_names"):  # pyarrow's
        refuse_twice(where, table.column_names)
        return {
            name: _of_arrow(table.column(i), f"{where}, column {name!r}", first_row)
            for i, name in enumerate(table.column_names)
        }
    names = list(getattr(table, "columns", table))  # of pandas and polars, or of a mapping
    refuse_twice(where, [str(name) for name in names])
    return {str(name): np.asarray(table[name]) for name in names}


def _of_arrow(column: Any, where: str, first_row: int) -> NDArray[Any]:
    if hasattr(column, "combine_chunks"):
        column = column.combine_chunks()
    kind = str(column.type)
    if "list<" in kind or "list_view<" in kind:
        return _vectors(column, where, first_row)
    if column.null_count and "int" in kind:  # as float64, large numbers would be merged
        return np.array(column.to_pylist(), dtype=object)
    return np.asarray(column.to_numpy(zero_copy_only=False))


def _vectors(column: Any, where: str, first_row: int) -> NDArray[Any]:
    """Return lists of one length as an array, shape (n_rows, length, ...); a null list is a row of NaN."""
    compute = imported("pyarrow.compute", NEEDS_PYARROW)
    lengths = compute.list_value_length(column).fill_null(-1).to_numpy(zero_copy_only=False)
    is_there = lengths >= 0
    if not is_there.any():
        return np.full((len(column), 0), np.nan)
    length = lengths[is_there][0]
    is_ragged = is_there & (lengths != length)
    if is_ragged.any():
        i = int(is_ragged.argmax())
        raise BadInput(
            f"{where}, row {first_row + i + 1}: a vector of {lengths[i]} numbers, expected {length}"
        )
    flat = _of_arrow(column.drop_null().flatten(), where, first_row)
    vectors = flat.reshape(int(is_there.sum()), int(length), *flat.shape[1:])
    if is_there.all():
        return vectors
    kind = object
    if vectors.dtype.kind == "f":
        kind = np.float64
    whole = np.full((len(column), *vectors.shape[1:]), np.nan, dtype=kind)
    whole[is_there] = vectors
    return whole


def chunks_of(tables: Iterable[Any]) -> Iterator[Chunk]:
    """Yield the columns of tables in short parts."""
    for number, table in enumerate(tables):
        where = f"part {number}"
        yield from parts(as_chunk(table, where), where)
