"""NumPy's files of several arrays, a column each."""

from __future__ import annotations

import zipfile
import zlib
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from tokenize import TokenError
from typing import Any

import numpy as np

from horde_agent.formats.arrays import parts
from horde_agent.formats.columns import CsvForm
from horde_agent.formats.format import TableFile, columns_to_read
from horde_agent.formats.part import Chunk
from horde_agent.processes import available_memory
from horde_agent.refusals import BadInput


class NpzFile(TableFile):
    """Arrays of one length; scalars beside them are left out."""

    suffixes = (".npz",)
    damages = (
        *TableFile.damages,
        zlib.error,
        zipfile.BadZipFile,
        RuntimeError,  # an encrypted member; its subclass NotImplementedError: an unknown compression
        MemoryError,  # this and the next: false sizes
        OverflowError,
        SyntaxError,  # this and the next two: NumPy evaluates the header of an array
        TokenError,
        TypeError,
    )

    def names_in(self, file: Path, form: CsvForm) -> list[str]:  # noqa: ARG002
        """Return the names of the arrays that are no scalars."""
        with _opened(file) as arrays:
            return [name for name in arrays.files if arrays[name].ndim]

    def chunks_in(self, file: Path, names: Sequence[str], form: CsvForm) -> Iterator[Chunk]:  # noqa: ARG002
        """Yield arrays in parts of their rows."""
        with _opened(file) as arrays:
            columns = columns_to_read(file, names, arrays.files)
            chunk = {name: arrays[name] for name in columns}
        yield from parts(chunk, str(file))


@contextmanager
def _opened(file: Path) -> Iterator[Any]:
    """Yield the arrays of a file, by name; raise BadInput if they do not fit into the free memory."""
    free = available_memory()
    with file.open("rb") as opened, np.load(opened, allow_pickle=False) as arrays:
        n_bytes = sum(member.file_size for member in arrays.zip.infolist())
        if free is not None and n_bytes > free:
            raise BadInput(
                f"{file} has {n_bytes / 1e9:,.3g} GB unpacked, but {free / 1e9:,.3g} GB of memory are free: write it "
                "as Parquet, which is read in parts"
            )
        yield arrays


FORMAT = NpzFile()
