"""Parts of a table from a file or from memory: Parquet, CSV, npz; arrays, pandas, pyarrow."""

from __future__ import annotations

import csv
import gzip
import re
import zipfile
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from horde_agent.runs.config import BadInput, imported
from horde_agent.runs.data.columns import Columns
from horde_agent.runs.data.tables import CHUNK_ROWS, Chunk, Table

_READ_ROWS = 8192  # of a file at a time
_BUFFER_BYTES = 1 << 20  # per column: without it, pyarrow reads whole columns of a row group
NEEDS_PYARROW = "Parquet needs pyarrow: pip install -e '.[log]'"
UNFINISHED = ".unfinished-export"
"""A file in a folder of tables while `horde export` replaces several of them."""
SUFFIXES = (".parquet", ".csv", ".csv.gz", ".npz")


def open_table(path: Path, columns: Columns) -> Table:
    """Return the table in a file, or in the Parquet files of a folder; raise BadInput if it cannot be read."""
    if (path / UNFINISHED).exists():
        raise BadInput(f"{path} has only a part of an interrupted export: run the same `horde export` again")
    files = parquet_files(path) if path.is_dir() else [path]
    if not (path.exists() and files and files[0].name.endswith(SUFFIXES)):
        raise BadInput(f"{path} is no table: give a file *{', *'.join(SUFFIXES)}, or a folder of Parquet files")
    names = columns.names
    return Table(lambda: read_files(files, names), columns, str(path))


def read_files(files: Sequence[Path], names: Sequence[str]) -> Iterator[Chunk]:
    """Yield columns of files in short parts; raise BadInput if a column is missing or a file cannot be read."""
    for file in files:
        try:
            if file.suffix == ".npz":
                with np.load(file, allow_pickle=False) as arrays:
                    yield from parts(dict(arrays), str(file))
            else:
                yield from (_read_parquet if file.suffix == ".parquet" else _read_csv)(file, names)
        except BadInput:
            raise
        except (OSError, ValueError, EOFError, NotImplementedError, csv.Error, zipfile.BadZipFile) as error:
            # pyarrow's are ValueErrors and NotImplementedErrors.
            raise BadInput(f"{file} cannot be read: {' '.join(str(error).split())}") from None


def parquet_files(folder: Path) -> list[Path]:
    """Return the Parquet files of a folder; life-2 comes before life-10."""
    files = [file for file in folder.rglob("*.parquet") if not file.name.startswith(".")]
    return sorted(files, key=lambda file: _numbers_in(f"{file.parent}/{file.stem}-1"))


def _numbers_in(path: str) -> list[int | str]:
    """Return the numbers in a path and the text between them, as a key to sort by."""
    return [int(part) if part.isdecimal() else part for part in re.split(r"(\d+)", path)]


def _read_parquet(file: Path, names: Sequence[str]) -> Iterator[Chunk]:
    """Yield columns of a Parquet file in short parts; NAME_3 reads the column NAME of vectors."""
    parquet = imported("pyarrow.parquet", NEEDS_PYARROW)
    with parquet.ParquetFile(file, buffer_size=_BUFFER_BYTES, page_checksum_verification=True) as opened:
        there = opened.schema_arrow.names
        wanted = [name if name in there else name.rpartition("_")[0] for name in names]
        _refuse_lacking(file, [name for name, found in zip(names, wanted, strict=True) if found not in there], there)
        columns = list(dict.fromkeys(wanted))
        for group in range(opened.num_row_groups):  # one reader for all groups would keep the earlier groups in memory
            for batch in opened.iter_batches(_READ_ROWS, [group], columns, use_threads=False):
                yield as_chunk(batch)


def _read_csv(file: Path, names: Sequence[str]) -> Iterator[Chunk]:
    opened: Any = gzip.open if file.suffix == ".gz" else open
    with opened(file, "rt", newline="", encoding="utf-8-sig") as lines:
        reader = csv.DictReader(lines)
        there = reader.fieldnames or ()
        _refuse_lacking(file, [name for name in names if name not in there], there)
        while rows := list(islice(reader, _READ_ROWS)):
            yield {name: np.array([_number(row[name]) for row in rows]) for name in names}


def _refuse_lacking(file: Path, lacking: Sequence[str], there: Sequence[str]) -> None:
    if lacking:
        raise BadInput(f"{file} has no column {lacking[0]!r}; there are {', '.join(there)}")


def _number(text: Any) -> float:
    try:
        return float(text)
    except (TypeError, ValueError):
        return float(text.strip().lower() == "true") if str(text).strip().lower() in ("true", "false") else np.nan


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


def as_chunk(table: Any) -> dict[str, NDArray[Any]]:
    """Return the columns of a table in memory by name; pyarrow's lists become vectors, null becomes NaN."""
    if isinstance(table, Mapping):
        return {str(name): np.asarray(values) for name, values in table.items()}
    if hasattr(table, "column_names"):  # pyarrow's
        return {name: _of_arrow(table.column(i)) for i, name in enumerate(table.column_names)}
    return {str(name): np.asarray(table[name]) for name in table.columns}


def _of_arrow(column: Any) -> NDArray[Any]:
    if hasattr(column, "combine_chunks"):
        column = column.combine_chunks()
    kind = str(column.type)
    if "list<" in kind and len(column):
        return _of_arrow(column.flatten()).reshape(len(column), -1)
    return np.asarray(column.to_numpy(zero_copy_only=False))


def chunks_of(tables: Iterable[Any]) -> Iterator[Chunk]:
    """Yield the columns of tables in short parts."""
    for number, table in enumerate(tables):
        yield from parts(as_chunk(table), f"part {number}")
