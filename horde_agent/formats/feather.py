"""Feather files (version 2, which is Arrow's file format)."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from horde_agent.formats.arrays import NEEDS_PYARROW, READ_ROWS, as_chunk
from horde_agent.formats.columns import CsvForm
from horde_agent.formats.format import TableFile, columns_to_read
from horde_agent.formats.tables import Chunk
from horde_agent.refusals import imported


class FeatherFile(TableFile):
    """A file of record batches."""

    suffixes = (".feather",)
    damages = (*TableFile.damages, MemoryError)

    def names_in(self, file: Path, form: CsvForm) -> list[str]:  # noqa: ARG002
        """Return the names of the columns."""
        with _opened(file) as opened:
            return list(opened.schema.names)

    def chunks_in(self, file: Path, names: Sequence[str], form: CsvForm) -> Iterator[Chunk]:  # noqa: ARG002
        """Yield columns of a file in short parts."""
        with _opened(file) as opened:
            columns = columns_to_read(file, names, opened.schema.names)
            first_row = 0
            for i in range(opened.num_record_batches):
                batch = opened.get_batch(i).select(columns)
                for start in range(0, batch.num_rows, READ_ROWS):
                    yield as_chunk(batch.slice(start, READ_ROWS), str(file), first_row + start)
                first_row += batch.num_rows


@contextmanager
def _opened(file: Path) -> Iterator[Any]:
    ipc = imported("pyarrow.ipc", NEEDS_PYARROW)
    pyarrow = imported("pyarrow", NEEDS_PYARROW)
    with pyarrow.memory_map(str(file)) as source, ipc.open_file(source) as opened:
        yield opened


FORMAT = FeatherFile()
