"""Parquet files, and folders of them."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from pathlib import Path

from horde_agent.formats.arrays import NEEDS_PYARROW, READ_ROWS, as_chunk
from horde_agent.formats.columns import CsvForm
from horde_agent.formats.format import TableFile, columns_to_read
from horde_agent.formats.tables import Chunk
from horde_agent.refusals import imported

_BUFFER_BYTES = 1 << 20  # per column: without it, pyarrow reads whole columns of a row group


class ParquetFile(TableFile):
    """A file, or those of a folder one after another."""

    suffixes = (".parquet",)
    damages = (*TableFile.damages, MemoryError)

    @property
    def described(self) -> str:
        """Its files, for messages."""
        return f"{super().described}, a folder of Parquet files"

    def matches(self, path: Path) -> bool:
        """Return whether a path is such a file or folder."""
        return super().matches(path) or bool(path.is_dir() and parquet_files(path))

    def files(self, path: Path) -> list[Path]:
        """Return the file, or the files of the folder."""
        if path.is_dir():
            return parquet_files(path)
        return [path]

    def names_in(self, file: Path, form: CsvForm) -> list[str]:  # noqa: ARG002
        """Return the names of the columns."""
        parquet = imported("pyarrow.parquet", NEEDS_PYARROW)
        return list(parquet.read_schema(file).names)

    def chunks_in(self, file: Path, names: Sequence[str], form: CsvForm) -> Iterator[Chunk]:  # noqa: ARG002
        """Yield columns of a file in short parts."""
        parquet = imported("pyarrow.parquet", NEEDS_PYARROW)
        with parquet.ParquetFile(
            file, buffer_size=_BUFFER_BYTES, page_checksum_verification=True
        ) as opened:
            columns = columns_to_read(file, names, opened.schema_arrow.names)
            first_row = 0
            # One reader for all groups would keep the earlier groups in memory
            for group in range(opened.num_row_groups):
                for batch in opened.iter_batches(READ_ROWS, [group], columns, use_threads=False):
                    yield as_chunk(batch, str(file), first_row)
                    first_row += batch.num_rows


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


FORMAT = ParquetFile()
