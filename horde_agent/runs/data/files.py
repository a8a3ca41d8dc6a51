"""Parts of a table from a file or from memory: Parquet, Feather, CSV, npz; arrays, pandas, pyarrow."""

from __future__ import annotations

import csv
import re
import sys
import zipfile
import zlib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from tokenize import TokenError
from typing import Any

import numpy as np
from numpy.typing import NDArray

from horde_agent.processes import available_memory
from horde_agent.runs.config import BadInput, imported
from horde_agent.runs.data.cells import as_numbers, from_texts, with_decimal_points
from horde_agent.runs.data.columns import Columns
from horde_agent.runs.data.csv_form import FOUND_FORM, CsvForm, opened_csv
from horde_agent.runs.data.tables import CHUNK_ROWS, Chunk, Table

_READ_ROWS = 8192  # of a file at a time
_MOST_NAMED = 30  # columns in a message
_BUFFER_BYTES = 1 << 20  # per column: without it, pyarrow reads whole columns of a row group
NEEDS_PYARROW = "Parquet needs pyarrow: pip install -e '.[log]'"
UNFINISHED = ".unfinished-export"
"""A file in a folder of tables while `horde export` replaces several of them."""
SUFFIXES = (".parquet", ".csv", ".csv.gz", ".csv.bz2", ".npz", ".feather")

_DAMAGED = (OSError, ValueError, EOFError, csv.Error, zlib.error)
"""Errors that a damaged text or gzip file causes in its reader; others there are faults of this program."""
_DAMAGED_NPZ = (
    zipfile.BadZipFile,
    RuntimeError,  # an encrypted member; its subclass NotImplementedError: an unknown compression
    MemoryError,  # this and the next: false sizes
    OverflowError,
    SyntaxError,  # this and the next two: NumPy evaluates the header of an array
    TokenError,
    TypeError,
)
"""Further errors that a damaged or hostile npz file causes."""


def open_table(path: Path, columns: Columns) -> Table:
    """Return the table in a file, or in the Parquet files of a folder; raise BadInput if it cannot be read."""
    if (path / UNFINISHED).exists():
        raise BadInput(
            f"{path} has only a part of an interrupted export: run the same `horde export` again"
        )
    files = table_files(path)
    names = columns.names
    form = columns.csv_form
    return Table(lambda: read_files(files, names, form), columns, str(path))


def is_table_file(path: Path) -> bool:
    """Return whether the name of a path is that of a table: its letters may be upper case."""
    return path.name.lower().endswith(SUFFIXES)


def is_csv(path: Path) -> bool:
    """Return whether the name of a path is that of a CSV file, compressed or not."""
    return path.name.lower().endswith((".csv", ".csv.gz", ".csv.bz2"))


def table_files(path: Path) -> list[Path]:
    """Return a file, or the Parquet files of a folder; raise BadInput if there is no table."""
    if path.is_dir():
        files = parquet_files(path)
    else:
        files = [path]
    advice = f"give a file *{', *'.join(SUFFIXES)}, or a folder of Parquet files"
    if not path.exists():
        raise BadInput(f"{path} does not exist: {advice}")
    if not files or not is_table_file(files[0]):
        raise BadInput(f"{path} is no table: {advice}")
    return files


def columns_in(file: Path, form: CsvForm = FOUND_FORM) -> list[str]:
    """Return the names of all columns of a file, without scalars of npz; raise BadInput if it cannot be read."""
    with _readable(file):
        suffix = file.suffix.lower()
        if suffix == ".npz":
            with _opened_npz(file) as arrays:
                return [name for name in arrays.files if arrays[name].ndim]
        if suffix == ".parquet":
            parquet = imported("pyarrow.parquet", NEEDS_PYARROW)
            return list(parquet.read_schema(file).names)
        if suffix == ".feather":
            with _opened_feather(file) as opened_file:
                return list(opened_file.schema.names)
        with opened_csv(file, form) as opened_table:
            names = opened_table.names
        if not names:
            raise BadInput(f"{file} is empty")
        return names


def read_files(
    files: Sequence[Path], names: Sequence[str], form: CsvForm = FOUND_FORM
) -> Iterator[Chunk]:
    """Yield columns of files in short parts; raise BadInput if a column is missing or a file cannot be read."""
    readers = {".npz": _read_npz, ".parquet": _read_parquet, ".feather": _read_feather}
    for file in files:
        with _readable(file):
            reader = readers.get(file.suffix.lower())
            if reader is None:
                yield from _read_csv(file, names, form)
            else:
                yield from reader(file, names)


@contextmanager
def _readable(file: Path) -> Iterator[None]:
    """Turn errors of reading a file into BadInput."""
    try:
        yield
    except BadInput:
        raise
    except _errors_of_damage(file) as error:
        reason = " ".join(str(error).split()) or type(error).__name__
        raise BadInput(f"{file} cannot be read: {reason}") from None


def _errors_of_damage(file: Path) -> tuple[type[BaseException], ...]:
    """Return the errors that damage to a file causes in the reader of its kind."""
    suffix = file.suffix.lower()
    if suffix == ".npz":
        return (*_DAMAGED, *_DAMAGED_NPZ)
    if suffix in (".parquet", ".feather") and "pyarrow" in sys.modules:
        # The base class of all of pyarrow's; some of them are of no other class than Exception
        return (*_DAMAGED, sys.modules["pyarrow"].ArrowException, MemoryError)
    return _DAMAGED


def parquet_files(folder: Path) -> list[Path]:
    """Return the Parquet files of a folder; life-2 comes before life-10."""
    files = [
        file
        for file in folder.rglob("*")
        if file.suffix.lower() == ".parquet" and not file.name.startswith(".")
    ]
    return sorted(files, key=lambda file: _numbers_in(f"{file.parent}/{file.stem}-1"))


def _numbers_in(path: str) -> list[int | str]:
    """Return the numbers in a path and the text between them, as a key to sort by."""
    return [int(part) if part.isdecimal() else part for part in re.split(r"(\d+)", path)]


def _vector_of(name: str) -> str:
    """Return the column of vectors that NAME_3 is a number of."""
    return name.rpartition("_")[0]


def _wanted(names: Sequence[str], there: Sequence[str]) -> tuple[list[str], list[str]]:
    """Return the columns to read for the names, NAME for number 3 of its vectors, and the names without a column."""
    columns = []
    lacking = []
    for name in names:
        source = name
        if name not in there:
            source = _vector_of(name)
        columns.append(source)
        if source not in there:
            lacking.append(name)
    return list(dict.fromkeys(columns)), lacking


@contextmanager
def _opened_npz(file: Path) -> Iterator[Any]:
    """Yield the arrays of an npz file, by name; raise BadInput if they do not fit into the free memory."""
    free = available_memory()
    with file.open("rb") as opened, np.load(opened, allow_pickle=False) as arrays:
        n_bytes = sum(member.file_size for member in arrays.zip.infolist())
        if free is not None and n_bytes > free:
            raise BadInput(
                f"{file} has {n_bytes / 1e9:,.3g} GB unpacked, but {free / 1e9:,.3g} GB of memory are free: write it "
                "as Parquet, which is read in parts"
            )
        yield arrays


def _read_npz(file: Path, names: Sequence[str]) -> Iterator[Chunk]:
    with _opened_npz(file) as arrays:
        columns, lacking = _wanted(names, arrays.files)
        _refuse_lacking(file, lacking, arrays.files)
        refuse_twice(str(file), [name for name in arrays.files if name in columns])
        chunk = {name: arrays[name] for name in columns}
    yield from parts(chunk, str(file))


def _read_parquet(file: Path, names: Sequence[str]) -> Iterator[Chunk]:
    """Yield columns of a Parquet file in short parts; NAME_3 reads the column NAME of vectors."""
    parquet = imported("pyarrow.parquet", NEEDS_PYARROW)
    with parquet.ParquetFile(
        file, buffer_size=_BUFFER_BYTES, page_checksum_verification=True
    ) as opened:
        names_there = opened.schema_arrow.names
        columns, lacking = _wanted(names, names_there)
        _refuse_lacking(file, lacking, names_there)
        refuse_twice(str(file), [name for name in names_there if name in columns])
        first_row = 0
        # One reader for all groups would keep the earlier groups in memory
        for group in range(opened.num_row_groups):
            for batch in opened.iter_batches(_READ_ROWS, [group], columns, use_threads=False):
                yield as_chunk(batch, str(file), first_row)
                first_row += batch.num_rows


@contextmanager
def _opened_feather(file: Path) -> Iterator[Any]:
    """Open a Feather file (version 2, which is Arrow's file format)."""
    ipc = imported("pyarrow.ipc", NEEDS_PYARROW)
    pyarrow = imported("pyarrow", NEEDS_PYARROW)
    with pyarrow.memory_map(str(file)) as source, ipc.open_file(source) as opened:
        yield opened


def _read_feather(file: Path, names: Sequence[str]) -> Iterator[Chunk]:
    """Yield columns of a Feather file in short parts; NAME_3 reads the column NAME of vectors."""
    with _opened_feather(file) as opened:
        names_there = opened.schema.names
        columns, lacking = _wanted(names, names_there)
        _refuse_lacking(file, lacking, names_there)
        refuse_twice(str(file), [name for name in names_there if name in columns])
        first_row = 0
        for i in range(opened.num_record_batches):
            batch = opened.get_batch(i).select(columns)
            for start in range(0, batch.num_rows, _READ_ROWS):
                yield as_chunk(batch.slice(start, _READ_ROWS), str(file), first_row + start)
            first_row += batch.num_rows


def _read_csv(file: Path, names: Sequence[str], form: CsvForm) -> Iterator[Chunk]:
    with opened_csv(file, form) as table:
        header = table.names
        _refuse_lacking(file, [name for name in names if name not in header], header)
        refuse_twice(str(file), [name for name in header if name in names])
        places = {name: header.index(name) for name in names}
        n_read = 0
        for rows in table.parts:
            for i, row in enumerate(rows):
                if len(row) != len(header):
                    where = f"{file}, row {n_read + i + 1}"
                    rows[i] = _completed(row, len(header), where, table.separator)
            n_read += len(rows)
            chunk = {}
            for name, place in places.items():
                texts = [row[place] for row in rows]
                if table.has_decimal_commas:
                    texts = with_decimal_points(texts)
                chunk[name] = from_texts(texts)
            yield chunk


def _completed(row: list[str], n_columns: int, where: str, separator: str) -> list[str]:
    """Return a row with empty cells at its end, as of a log that was cut off; raise BadInput if it has too many."""
    n_beyond = sum(cell.strip() != "" for cell in row[n_columns:])
    if n_beyond:
        raise BadInput(
            f"{where} has {len(row)} cells, and the header {n_columns} names: quote cells that contain "
            f"{separator!r}, and write decimal points, or separate cells by semicolons"
        )
    return [*row, *[""] * (n_columns - len(row))][:n_columns]


def _refuse_lacking(file: Path, lacking: Sequence[str], there: Sequence[str]) -> None:
    if not lacking:
        return
    advice = ""
    if there and all(_is_number(name) for name in there):
        advice = (
            "; if the first line is a row, write header = false, and name column_0, column_1, ..."
        )
    names = ", ".join(there[:_MOST_NAMED]) or "none"
    if len(there) > _MOST_NAMED:
        names += f" and {len(there) - _MOST_NAMED:,} others"
    raise BadInput(f"{file} has no column {lacking[0]!r}; there are {names}{advice}")


def _is_number(text: str) -> bool:
    return bool(np.isfinite(as_numbers(np.array([text.replace(",", ".")], dtype=object))).all())


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
    if isinstance(table, Mapping):
        refuse_twice(where, [str(name) for name in table])
        return {str(name): np.asarray(values) for name, values in table.items()}
    if hasattr(table, "column_names"):  # pyarrow's
        refuse_twice(where, table.column_names)
        return {
            name: _of_arrow(table.column(i), f"{where}, column {name!r}", first_row)
            for i, name in enumerate(table.column_names)
        }
    refuse_twice(where, [str(name) for name in table.columns])
    return {str(name): np.asarray(table[name]) for name in table.columns}


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
    n_rows = len(column)
    is_there = np.ones(n_rows, dtype=bool)
    if column.null_count:
        is_there = np.asarray(column.is_valid().to_numpy(zero_copy_only=False))
    lists = column.drop_null()
    if not len(lists):
        return np.full((n_rows, 0), np.nan)
    compute = imported("pyarrow.compute", NEEDS_PYARROW)
    lengths = compute.list_value_length(lists).to_numpy(zero_copy_only=False)
    is_ragged = lengths != lengths[0]
    if is_ragged.any():
        i = int(is_ragged.argmax())
        row = first_row + int(np.flatnonzero(is_there)[i]) + 1
        raise BadInput(
            f"{where}, row {row}: a vector of {lengths[i]} numbers, expected {lengths[0]}"
        )
    flat = _of_arrow(lists.flatten(), where, first_row)
    vectors = flat.reshape(len(lists), int(lengths[0]), *flat.shape[1:])
    if is_there.all():
        return vectors
    kind = object
    if vectors.dtype.kind == "f":
        kind = np.float64
    whole = np.full((n_rows, *vectors.shape[1:]), np.nan, dtype=kind)
    whole[is_there] = vectors
    return whole


def chunks_of(tables: Iterable[Any]) -> Iterator[Chunk]:
    """Yield the columns of tables in short parts."""
    for number, table in enumerate(tables):
        where = f"part {number}"
        yield from parts(as_chunk(table, where), where)
