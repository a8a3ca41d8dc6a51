"""Parquet files and folders of them, and Feather files (version 2, which is Arrow's file format), by pyarrow."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from horde_agent.formats.arrays import NEEDS_PYARROW, as_chunk
from horde_agent.formats.columns import CsvForm
from horde_agent.formats.format import Growth, TableFile, columns_to_read
from horde_agent.formats.part import CHUNK_ROWS, Chunk
from horde_agent.refusals import imported

_BUFFER_BYTES = 1 << 20  # per column: without it, pyarrow reads whole columns of a row group


class FeatherFile(TableFile):
    """A file of record batches."""

    suffixes: tuple[str, ...] = (".feather",)
    damages = (*TableFile.damages, MemoryError)

    def names_in(self, file: Path, form: CsvForm) -> list[str]:  # noqa: ARG002
        """Return the names of the columns."""
        return list(self._opened(file).schema.names)

    def chunks_in(self, file: Path, names: Sequence[str], form: CsvForm) -> Iterator[Chunk]:  # noqa: ARG002
        """Yield columns of a file in short parts."""
        opened = self._opened(file)
        columns = columns_to_read(file, names, opened.schema.names)
        first_row = 0
        for batch in opened.to_batches(
            columns=columns,
            batch_size=CHUNK_ROWS,
            batch_readahead=0,
            fragment_readahead=0,
            use_threads=False,
            cache_metadata=False,
        ):
            yield as_chunk(batch, str(file), first_row)
            first_row += batch.num_rows

    def _opened(self, file: Path) -> Any:
        dataset = imported("pyarrow.dataset", NEEDS_PYARROW)
        return dataset.dataset(file, format=self._format(dataset))

    def _format(self, dataset: Any) -> Any:
        return dataset.IpcFileFormat()


class ParquetFile(FeatherFile):
    """A file, or those of a folder one after another."""

    suffixes = (".parquet",)

    @property
    def described(self) -> str:
        """Its files, for messages."""
        return f"{super().described}, a folder of Parquet files"

    def matches(self, path: Path) -> bool:
        """Return whether a path is such a file or folder."""
        return super().matches(path) or bool(path.is_dir() and parquet_files(path))

    def growth(self, path: Path) -> Growth:
        """Return that a folder gets further files."""
        if path.is_dir():
            return Growth.FILES
        return Growth.NONE

    def files(self, path: Path) -> list[Path]:
        """Return the file, or the files of the folder."""
        if path.is_dir():
            return parquet_files(path)
        return [path]

    def _format(self, dataset: Any) -> Any:
        options = dataset.ParquetFragmentScanOptions(
            use_buffered_stream=True,
            buffer_size=_BUFFER_BYTES,
            pre_buffer=False,
            page_checksum_verification=True,
        )
        return dataset.ParquetFileFormat(default_fragment_scan_options=options)


def parquet_files(folder: Path) -> list[Path]:
    """Return the Parquet files of a folder; life-2 comes before life-10."""
    files = [
        file
        for file in folder.rglob("*")
        if file.suffix.lower() == ".parquet" and not file.name.startswith(".")
    ]
    return sorted(files, key=order_of)


def order_of(file: Path) -> list[int | str]:
    """Return the key by which the files of a folder are sorted."""
    return _numbers_in(f"{file.parent}/{file.stem}-1")


def _numbers_in(path: str) -> list[int | str]:
    """Return the numbers in a path and the text between them, as a key to sort by."""
    return [int(part) if part.isdecimal() else part for part in re.split(r"(\d+)", path)]


PARQUET = ParquetFile()
FEATHER = FeatherFile()
