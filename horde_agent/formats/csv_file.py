"""CSV files, compressed or not: their separator, decimal mark and header are found, or named.

A file is cut into blocks of whole rows. Pyarrow reads a block, if it is installed; a block with rows
of other lengths than the header is read row by row, with empty cells at the ends of short rows.
"""

from __future__ import annotations

import bz2
import codecs
import csv
import gzip
import io
import re
import zlib
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from itertools import chain
from pathlib import Path
from typing import Any, BinaryIO, NamedTuple

import numpy as np

from horde_agent.formats.cells import (
    Cells,
    are_exact,
    as_numbers,
    from_texts,
    with_decimal_points,
)
from horde_agent.formats.columns import SEPARATORS, CsvForm, unnamed
from horde_agent.formats.format import Growth, TableFile, columns_to_read
from horde_agent.formats.part import Chunk
from horde_agent.refusals import BadInput

MOST_BYTES = 1 << 24
"""Of a row: a longer one is refused before it is read whole."""
BLOCK_BYTES = 1 << 20
"""Of a file at a time; the whole rows of a block have at least half of it, unless it is the last one."""
_PACKED_BYTES = 1 << 16
_N_FIRST_LINES = 5


class CsvFile(TableFile):
    """Texts in rows; rows of empty cells at the end of a file are left out."""

    suffixes = (".csv", ".csv.gz", ".csv.bz2")
    damages = (*TableFile.damages, csv.Error, zlib.error)

    def growth(self, path: Path) -> Growth:
        """Return that lines can be appended, unless they are compressed."""
        if path.suffix.lower() == ".csv":
            return Growth.LINES
        return Growth.NONE

    def names_in(self, file: Path, form: CsvForm) -> list[str]:
        """Return the names in the header, column_0, ... for those that are empty."""
        with _opened(file, form) as table:
            if not table.header:
                raise BadInput(f"{file} is empty")
            return table.header

    def chunks_in(self, file: Path, names: Sequence[str], form: CsvForm) -> Iterator[Chunk]:
        """Yield columns of numbers as float64, and others as texts."""
        with _opened(file, form) as table:
            columns_to_read(file, names, table.header)
            places = {name: table.header.index(name) for name in names}
            n_read = 0
            for block in table.blocks:
                columns = _read_by_pyarrow(block, table, list(places.values()))
                if columns is None:
                    columns = _read_by_rows(block, table, list(places.values()), file, n_read)
                n_read += len(columns[0])
                yield dict(zip(places, columns, strict=True))

    def found_form(self, path: Path) -> CsvForm:
        """Return the form of a file: without a header if its first line has numbers alone."""
        headless = CsvForm(header=False)
        rows = next(self.chunks(path, self.names(path, headless), headless), {})
        first_cells = [column[0] for column in rows.values() if str(column[0]).strip()]
        if first_cells and np.isfinite(as_numbers(np.array(first_cells, dtype=object))).all():
            return headless
        if any(_are_decimal_commas(column[1:]) for column in rows.values()):
            return CsvForm(decimal=",")
        return CsvForm()


def _are_decimal_commas(column: Cells) -> bool:
    texts = [str(cell) for cell in column.tolist()]
    return bool(texts) and all(
        point != text for point, text in zip(with_decimal_points(texts), texts, strict=True)
    )


class _OpenCsv(NamedTuple):
    """An open file: its names, and blocks of the rows below them."""

    header: list[str]
    blocks: Iterator[bytes]
    separator: str
    has_decimal_commas: bool


@contextmanager
def _opened(file: Path, form: CsvForm) -> Iterator[_OpenCsv]:
    """Open a file; it has no names if it is empty. Raise BadInput at a row of more than `MOST_BYTES`."""
    with file.open("rb") as packed:
        pieces = _unpacked(packed, file.suffix.lower())
        head = b""
        for piece in pieces:
            head += piece
            if len(head) >= BLOCK_BYTES:
                break
        head = head.removeprefix(codecs.BOM_UTF8)
        separator = form.separator or found_separator(head, has_header=form.header)
        blocks = _blocks(chain([head], pieces), separator, file)
        first_block = next(blocks, b"")
        lines = _lines(first_block)
        rows = csv.reader(lines, delimiter=separator)
        first_row = next(rows, [])
        header = [unnamed(i) for i in range(len(first_row))]
        if form.header:
            for i, name in enumerate(first_row):
                if name.strip():
                    header[i] = name
            first_block = "".join(lines[rows.line_num :]).encode()
        may_be_commas = form.decimal is None and separator != ","
        blocks = (block for block in chain([first_block], blocks) if block.strip())
        yield _OpenCsv(
            header=header,
            blocks=blocks,
            separator=separator,
            has_decimal_commas=may_be_commas or form.decimal == ",",
        )


def _unpacked(packed: BinaryIO, suffix: str) -> Iterator[bytes]:
    """Yield the bytes of a file, unpacked."""
    if suffix == ".bz2":
        return _bzip2_pieces(packed)
    stream: Any = packed
    if suffix == ".gz":
        stream = gzip.GzipFile(fileobj=packed)
    return iter(partial(stream.read, BLOCK_BYTES), b"")


def _bzip2_pieces(packed: BinaryIO) -> Iterator[bytes]:
    """Yield bzip2 streams one after another; raise OSError at bytes behind them, which `bz2.open` leaves out."""
    decompressor = bz2.BZ2Decompressor()
    where = "its bytes"
    data = packed.read(_PACKED_BYTES)
    while data or not decompressor.eof:
        if decompressor.eof:
            decompressor = bz2.BZ2Decompressor()
            where = "the bytes after the end of a bzip2 stream"
        if not data and decompressor.needs_input:
            raise EOFError("it ends within its bzip2 data: copy or download it again")
        try:
            yield decompressor.decompress(data, BLOCK_BYTES)
        except OSError:
            raise OSError(f"{where} are not bzip2 data: copy or download it again") from None
        data = decompressor.unused_data
        if not data and (decompressor.needs_input or decompressor.eof):
            data = packed.read(_PACKED_BYTES)


def _blocks(pieces: Iterable[bytes], separator: str, file: Path) -> Iterator[bytes]:
    """Yield the bytes of a file in blocks of whole rows, without rows of empty cells at its end.

    The bytes that a block leaves are looked through again when they have doubled: a row of many
    pieces takes no more time than its length.
    """
    whole_rows = _whole_rows(separator)
    unread: list[bytes] = []
    n_bytes = 0
    n_awaited = 0
    for piece in pieces:
        unread.append(piece)
        n_bytes += len(piece)
        if n_bytes < n_awaited and n_bytes <= MOST_BYTES:
            continue
        remainder = b"".join(unread)
        whole = whole_rows.match(remainder)
        assert whole is not None
        block = _filled(whole[0], separator)
        if len(block) >= BLOCK_BYTES // 2:
            yield block
            remainder = remainder[len(block) :]
        if len(remainder) > MOST_BYTES:
            raise BadInput(
                f"{file} has a row of more than {MOST_BYTES:,} bytes, so it is damaged or no table: "
                "check where its lines and its quotes end"
            )
        unread = [remainder]
        n_bytes = len(remainder)
        n_awaited = 2 * n_bytes
    yield _filled(b"".join(unread) + b"\n", separator)


def _whole_rows(separator: str) -> re.Pattern[bytes]:
    """Return the pattern of whole rows at the start of a text.

    A quote begins a cell behind a separator or at the start of a line, and is a character
    elsewhere. All quantifiers are possessive (`++`, `*+`): what one took is never tried again, so a
    long cell without an end takes no more time than its length.
    """
    mark = re.escape(separator).encode()
    text = rb'[^"\r\n]++'
    quote_in_text = rb"(?<=[^\r\n" + mark + rb'])"'
    quoted_cell = rb'"[^"]*+(?:""[^"]*+)*+"'
    part_of_row = b"|".join([text, quote_in_text, quoted_cell])
    return re.compile(b"(?:(?:" + part_of_row + rb")*+[\r\n])*+")


def _filled(rows: bytes, separator: str) -> bytes:
    """Return whole rows without those of empty cells at their end."""
    mark = separator.encode()
    last_text = len(rows.rstrip(b'\r\n"' + mark))
    lines = rows[last_text:].splitlines(keepends=True)
    n_least = min(1, last_text)  # the first line is the end of a row with a text
    while len(lines) > n_least and not lines[-1].replace(b'""', b"").strip(b"\r\n" + mark):
        lines.pop()
    return rows[:last_text] + b"".join(lines)


def _lines(block: bytes) -> list[str]:
    return list(io.StringIO(block.decode(), newline=""))


def found_separator(head: bytes, *, has_header: bool) -> str:
    """Return the separator of a header, or of rows of numbers with points or commas as decimal marks."""
    first_lines = head.splitlines()[:_N_FIRST_LINES]
    lines = [line.decode(errors="replace") for line in first_lines if line.strip()]
    if not lines:
        return ","
    if has_header:
        if "," in lines[0]:
            return ","
        lines = lines[:1]
    for separator in SEPARATORS[1:]:
        counts = {line.count(separator) for line in lines}
        if len(counts) == 1 and counts != {0}:
            return separator
    return ","


def _read_by_pyarrow(block: bytes, table: _OpenCsv, places: list[int]) -> list[Cells] | None:
    """Return columns of a block by their places; None if pyarrow is missing, or a row has another length."""
    try:
        import pyarrow
        from pyarrow import csv as arrow_csv
    except ImportError:
        return None
    block.decode()  # columns that are not read must be texts, too
    names = [str(i) for i in range(len(table.header))]
    try:
        columns = arrow_csv.read_csv(
            pyarrow.BufferReader(block),
            read_options=arrow_csv.ReadOptions(
                column_names=names, block_size=len(block), use_threads=False
            ),
            parse_options=arrow_csv.ParseOptions(
                delimiter=table.separator, newlines_in_values=True
            ),
            convert_options=arrow_csv.ConvertOptions(
                column_types=dict.fromkeys(names, pyarrow.string()),
                include_columns=[names[i] for i in places],
                check_utf8=False,
            ),
        )
    except pyarrow.ArrowInvalid:
        return None
    cells = []
    for column in columns.columns:
        try:
            numbers = column.cast(pyarrow.float64()).to_numpy()
        except pyarrow.ArrowInvalid:
            numbers = np.array([np.nan])
        if are_exact(numbers):
            cells.append(numbers)
        else:
            cells.append(_cells_of(column.to_pylist(), table))
    return cells


def _read_by_rows(
    block: bytes, table: _OpenCsv, places: list[int], file: Path, n_read: int
) -> list[Cells]:
    """Return columns of a block by their places; short rows have empty cells at their end, as of a log cut off.

    Raise BadInput if a row has too many cells; `n_read` rows are before the block.
    """
    n_columns = len(table.header)
    rows: list[list[str]] = []
    for row in csv.reader(_lines(block), delimiter=table.separator):
        if not row:
            continue
        if any(cell.strip() for cell in row[n_columns:]):
            raise BadInput(
                f"{file}, row {n_read + len(rows) + 1} has {len(row)} cells, and the header {n_columns} names: quote "
                f"cells that contain {table.separator!r}, and write decimal points, or separate cells by semicolons"
            )
        rows.append(row + [""] * (n_columns - len(row)))
    return [_cells_of([row[place] for row in rows], table) for place in places]


def _cells_of(texts: list[str], table: _OpenCsv) -> Cells:
    if table.has_decimal_commas:
        texts = with_decimal_points(texts)
    return from_texts(texts)


FORMAT = CsvFile()
