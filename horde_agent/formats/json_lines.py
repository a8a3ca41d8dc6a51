"""Files with a JSON object per line: the keys are the columns, and a key that an object lacks is an empty cell."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import islice
from pathlib import Path
from typing import Any, BinaryIO

from horde_agent.formats.columns import CsvForm
from horde_agent.formats.csv_file import MOST_BYTES
from horde_agent.formats.format import Growth, TableFile, columns_to_read
from horde_agent.formats.lines import cells_of_mappings, json_object, text_of
from horde_agent.formats.part import Chunk
from horde_agent.refusals import BadInput

_CHUNK_ROWS = 4_096
_N_FIRST_ROWS = 1_000
"""The first rows, which name the columns."""


class JsonLinesFile(TableFile):
    """An object per line; empty lines are left out."""

    suffixes = (".jsonl", ".ndjson")

    def growth(self, path: Path) -> Growth:  # noqa: ARG002
        """Return that lines can be appended."""
        return Growth.LINES

    def names_in(self, file: Path, form: CsvForm) -> list[str]:  # noqa: ARG002
        """Return the keys of the first rows, but for those with an object."""
        names: dict[str, None] = {}
        with file.open("rb") as lines:
            for row in islice(_rows(lines, file), _N_FIRST_ROWS):
                keys = [key for key, value in row.items() if not isinstance(value, dict)]
                names.update(dict.fromkeys(keys))
        return list(names)

    def chunks_in(self, file: Path, names: Sequence[str], form: CsvForm) -> Iterator[Chunk]:
        """Yield columns of numbers as float64, and others as objects; lists become vectors."""
        columns_to_read(file, names, self.names_in(file, form))
        n_read = 0
        with file.open("rb") as lines:
            rows = _rows(lines, file)
            while block := list(islice(rows, _CHUNK_ROWS)):
                try:
                    yield cells_of_mappings(block, names)
                except BadInput as error:
                    raise BadInput(
                        f"{file}, rows {n_read + 1} to {n_read + len(block)}: {error}"
                    ) from None
                n_read += len(block)


def _rows(lines: BinaryIO, file: Path) -> Iterator[dict[str, Any]]:
    """Yield the objects of a file; raise BadInput at a line that is none, or that has more than `MOST_BYTES`."""
    number = 0
    while line := lines.readline(MOST_BYTES + 1):
        number += 1
        if len(line) > MOST_BYTES:
            raise BadInput(f"{file}, line {number} has more than {MOST_BYTES:,} bytes")
        try:
            text = text_of(line)
            if text.strip():
                yield json_object(text)
        except BadInput as error:
            raise BadInput(f"{file}, line {number}: {error}") from None


FORMAT = JsonLinesFile()
