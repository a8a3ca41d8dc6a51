"""Files of fixed-size records with a CRC-32 each; any prefix of a file is readable.

A file is one JSON line, padded with spaces to a multiple of 64 bytes, followed by the records. The
line names every field, its type and its place. The last field of a record is the CRC-32 of the
bytes before it. A long file continues in "NAME-2.rec" and so on, each with its own header line;
`first` there is the number of records in the files before it.

Truncated records are at the very end, after a power failure or on a full disk; damaged ones are
before sound records. Readers leave out both and say so.
"""

from __future__ import annotations

import json
import os
import re
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any, BinaryIO, NamedTuple
from zlib import crc32

import numpy as np
from numpy.typing import NDArray

from horde_agent.record.kinds import STAMP, Content, Kind

CRC = "crc"
CRC_BYTES = 4
KEYS_OF_FILE = (*STAMP, "dtype", "offset", "first", CRC)
"""Keys of a header that describe its file, not what was recorded."""
_ALIGNMENT = 64
_LONGEST_HEADER = 1 << 24
_CRC_KEY = b', "crc": '
_LOOKED_AT = 16  # records, of which one is sound
MOST_CORRECTED = 1 << 15  # bytes; for more, trying each bit takes more than some seconds
PIECE_BYTES = 1 << 22
_MOST_WRITTEN = 1 << 26  # bytes at once

Records = NDArray[Any]


class RecordLost(OSError):
    """A file of records cannot be extended, for example on a full disk; it contains whole records only."""


class HeaderDamaged(ValueError):
    """The first line of a file does not match its CRC-32; `horde doctor` can write it again."""


class Segment(NamedTuple):
    """One file, in the present format.

    Attributes:
        path: The file.
        header: Its first line, decoded.
        records: All whole records, sound or not, in their order.
        is_sound: Which of them match their CRC, shape (n_records,).
        n_torn: Bytes of an unfinished last record.
        first: Number of the first of these records in the life.
        itemsize: Bytes of a record in the file.
        is_old: Whether the file has an older format: no record may be appended to it.
    """

    path: Path
    header: dict[str, Any]
    records: Records
    is_sound: NDArray[np.bool_]
    n_torn: int
    first: int
    itemsize: int
    is_old: bool

    @property
    def n_whole(self) -> int:
        """Records up to the last sound one: what follows was torn off."""
        sound = np.flatnonzero(self.is_sound)
        if sound.size:
            return int(sound[-1]) + 1
        return 0

    def faults(self, *, is_last: bool) -> list[str]:
        """Return a sentence about damaged records and one about missing ones, which the last file may not have had."""
        sentences = []
        n_left = len(self.records) - self.n_whole
        n_before = self.first - int(self.header.get("first", 0))
        damaged = (n_before + np.flatnonzero(~self.is_sound[: self.n_whole])).tolist()
        if damaged:
            places = ", ".join(f"{i:,}" for i in damaged[:3]) + (
                ", ..." if len(damaged) > 3 else ""
            )
            n = n_before + len(self.records)
            sentences.append(
                f"{self.path.name} is damaged: {len(damaged)} of its {n:,} records (number {places}) do not have the "
                "CRC-32 that was written with them, and are left out"
            )
        if n_left or self.n_torn:
            n_bytes = n_left * self.itemsize + self.n_torn
            where = "its end is damaged, though a further file follows"
            if is_last:
                where = "its end was torn off"
            sentences.append(
                f"{self.path.name} is cut off: {where}; {n_bytes} bytes of a row are left out"
            )
        return sentences


def file_at(path: Path, number: int) -> Path:
    """Return the path of a recording's file by its number, from 1."""
    if number == 1:
        return path
    return path.with_name(f"{path.stem}-{number}{path.suffix}")


def record_files(path: Path) -> list[Path]:
    """Return the existing files of a recording in order; the oldest may have been moved."""
    files = {number_of(file, path): file for file in path.parent.glob(f"{path.stem}*{path.suffix}")}
    return [files[number] for number in sorted(files) if number]


def number_of(file: Path, path: Path) -> int:
    """Return the number of a recording's file, from 1; 0 if it is not one of its files."""
    if file.name == path.name:
        return 1
    match = re.fullmatch(rf"{re.escape(path.stem)}-([1-9]\d*){re.escape(path.suffix)}", file.name)
    return int(match[1]) if match else 0


def sealed(records: Records) -> bytes:
    """Write each record's CRC-32 into its last field, in place, and return the bytes of them all."""
    records[CRC] = _checksums(records)
    return records.tobytes()


def _checksums(records: Records) -> NDArray[np.uint32]:
    data = np.ascontiguousarray(records).view(np.uint8).reshape(len(records), records.itemsize)
    return np.fromiter(map(crc32, data[:, :-CRC_BYTES]), np.uint32, len(records))


def read_segment(path: Path, kind: Kind, since: int = 0) -> Segment:
    """Read one file of records from record number `since` of the life on; raise ValueError if it holds others."""
    (segment,) = read_pieces(path, kind, n_bytes=None, since=since)
    return segment


def read_pieces(
    path: Path, kind: Kind, n_bytes: int | None = PIECE_BYTES, since: int = 0
) -> Iterator[Segment]:
    """Yield one file of records in pieces of about `n_bytes`, all at once when None, each as a segment; at least one.

    `n_torn`, the bytes of an incomplete last record, is set in the last piece only. Records before
    number `since` of the life are not read. Raise FileNotFoundError, or ValueError if the file
    holds no records of the format `kind`.
    """
    with path.open("rb") as file:
        line = _first_line(file, path, kind)
        header = line.header
        dtype = line.dtype
        n_records, n_torn = divmod(file.seek(0, 2) - header["offset"], dtype.itemsize)
        n_before = int(header.get("first", 0))
        n_skipped = min(max(since - n_before, 0), n_records)
        n_records -= n_skipped
        file.seek(header["offset"] + n_skipped * dtype.itemsize)
        at_once = n_records
        if n_bytes is not None:
            at_once = max(n_bytes // dtype.itemsize, 1)
        for first in range(0, max(n_records, 1), max(at_once, 1)):
            records = np.fromfile(file, dtype=dtype, count=min(at_once, n_records - first))
            is_last = first + at_once >= n_records
            number = n_before + n_skipped + first
            is_sound = records[CRC] == _checksums(records)
            content = line.read(kind, records)
            n_torn_here = 0
            if is_last:
                n_torn_here = n_torn
            yield Segment(
                path=path,
                header=content.head,
                records=content.body,
                is_sound=is_sound,
                n_torn=n_torn_here,
                first=number,
                itemsize=dtype.itemsize,
                is_old=line.version < kind.version,
            )


class _FirstLine(NamedTuple):
    """The first line of a file of records.

    Attributes:
        header: As it is in the file.
        dtype: Of the records in the file.
        version: Of their format.
    """

    header: dict[str, Any]
    dtype: np.dtype[Any]
    version: int

    def read(self, kind: Kind, records: Records) -> Content:
        """Return header and records, shape (n_records,), in the present format."""
        if self.version == kind.version:
            return Content(self.header, records)
        header, converted = kind.read(self.version, Content(dict(self.header), records))
        as_now = {"version": kind.version, "dtype": converted.dtype.descr}
        return Content({**header, **as_now}, converted)


def _first_line(file: BinaryIO, path: Path, kind: Kind) -> _FirstLine:
    """Return the first line of a file.

    Raises:
        HeaderDamaged: If the line does not match its CRC-32.
        NewerFormat: If the file has a newer format.
        ValueError: If it holds no records of this kind.
    """
    line = file.readline(_LONGEST_HEADER)
    header = _decode_header(line)
    if header.get(CRC) != _checksum_of(header):
        fault = f"{path.name} does not contain records of the format {kind.name}, or its first line is damaged"
        if kind.name.encode() in line:
            fault = f"the first line of {path.name} is damaged: it does not have the CRC-32 that was written in it"
        raise HeaderDamaged(f"{fault}; `horde doctor` writes the first line of a run's file again")
    if header.get("format") != kind.name:
        raise ValueError(f"{path.name} does not contain records of the format {kind.name}")
    version = kind.version_of(header, path.name)
    dtype = dtype_of(header)
    if (dtype.names or ())[-1:] != (CRC,) or dtype[CRC] != np.uint32:
        raise ValueError(f"{path.name} does not end its records with a {CRC} of 32 bits")
    return _FirstLine(header, dtype, version)


def dtype_of(header: Mapping[str, Any]) -> np.dtype[Any]:
    """Return the type of a file's records."""
    fields = [
        tuple(tuple(x) if isinstance(x, list) else x for x in field) for field in header["dtype"]
    ]
    return np.dtype(fields)


def is_sealed(text: bytes) -> bool:
    """Return whether a JSON object ends with the CRC-32 of its other values, as headers and events do."""
    values, _, last = text.strip().rpartition(_CRC_KEY)
    return last[:-1].isdigit() and last == b"%d}" % crc32(values + b"}")


def corrected(data: bytes, is_right: Callable[[bytes], bool]) -> bytes | None:
    """Return the bytes with one bit flipped so that they are right; None if no single bit makes them so.

    Longer data than `MOST_CORRECTED` bytes are not tried.
    """
    if len(data) > MOST_CORRECTED:
        return None
    tried = bytearray(data)
    for position in range(len(tried)):
        for bit in range(8):
            tried[position] ^= 1 << bit
            if is_right(bytes(tried)):
                return bytes(tried)
            tried[position] ^= 1 << bit
    return None


def stored_header(path: Path, kind: Kind) -> dict[str, Any]:
    """Return the line of a file of records as it is there, of any format; raise as `read_header`."""
    with path.open("rb") as file:
        return _first_line(file, path, kind).header


def read_header(path: Path, kind: Kind) -> dict[str, Any]:
    """Return the line of a file of records; raise ValueError if it holds no records of this kind."""
    with path.open("rb") as file:
        line = _first_line(file, path, kind)
    return line.read(kind, np.zeros(0, line.dtype)).head


def in_present_format(header: dict[str, Any], kind: Kind) -> dict[str, Any]:
    """Return the line of a file of records of any format, as `read_header` does; raise NewerFormat if it is newer."""
    dtype = dtype_of(header)
    line = _FirstLine(header, dtype, kind.version_of(header, "a recording"))
    return line.read(kind, np.zeros(0, dtype)).head


def started_files(path: Path) -> list[Path]:
    """Return the files of a recording in order, except a last one without a complete header (after a kill)."""
    files = record_files(path)
    if len(files) > 1 and not _is_started(files[-1]):
        del files[-1]
    return files or [path]


def _is_started(path: Path) -> bool:
    """Return whether a file has a complete header, or had one: a damaged end of line is not a torn header."""
    with path.open("rb") as file:
        line = file.readline(_LONGEST_HEADER)
    if line.endswith(b"\n"):
        return True
    return len(line) >= int(_decode_header(line).get("offset", _LONGEST_HEADER))


def newest_files(path: Path, kind: Kind, number: int) -> tuple[list[Path], int]:
    """Return the newest files of a record, from that which holds record number `number` on, and `number`.

    A negative number counts from the end, and is replaced. Older files are not read. Raise
    FileNotFoundError, or ValueError if one that is looked at holds no records of this kind.
    """
    newest: list[Path] = []
    for file in reversed(started_files(path)):
        newest.insert(0, file)
        numbers = record_numbers(file, kind)
        if number < 0:
            number = max(numbers.stop + number, 0)
        if numbers.start <= number:
            break
    return newest, number


def record_numbers(file: Path, kind: Kind) -> range:
    """Return the numbers, in the life, of the whole records in a file; raise as `read_header`."""
    with file.open("rb") as opened:
        line = _first_line(opened, file, kind)
        n_bytes = opened.seek(0, 2) - int(line.header["offset"])
    first = int(line.header.get("first", 0))
    return range(first, first + max(n_bytes, 0) // line.dtype.itemsize)


def write_all(file: BinaryIO, data: bytes | memoryview) -> None:
    """Write data to an unbuffered file, which may take a part at a time."""
    remaining = memoryview(data)
    while remaining:
        remaining = remaining[file.write(remaining[:_MOST_WRITTEN]) :]


def append(file: BinaryIO, data: bytes, size: int) -> None:
    """Append records of `size` bytes to an unbuffered file, at its end; raise RecordLost if not all fit.

    None is written in part.
    """
    begin = file.tell()
    try:
        write_all(file, data)
    except OSError as error:
        whole = begin + (file.tell() - begin) // size * size
        with suppress(OSError):
            file.truncate(whole)
            file.seek(whole)
        raise RecordLost(error.errno, error.strerror, str(file.name)) from error


def append_to(path: Path, data: bytes, size: int) -> None:
    """Append records to an existing file, as `append` does; raise RecordLost if not all were written."""
    try:
        file = path.open("rb+", buffering=0)
    except OSError as error:
        raise RecordLost(error.errno, error.strerror, str(path)) from error
    with file:
        file.seek(0, 2)
        append(file, data, size)


def cut(path: Path, n_bytes: int) -> None:
    """Truncate a file to `n_bytes` and sync it."""
    with path.open("rb+", buffering=0) as file:
        file.truncate(n_bytes)
        os.fsync(file.fileno())


def sync_folder(path: Path) -> None:
    """Sync a folder's entries to disk."""
    if os.name != "posix":
        return
    folder = os.open(path, os.O_RDONLY)
    try:
        os.fsync(folder)
    finally:
        os.close(folder)


def encode_header(header: dict[str, Any]) -> bytes:
    """Return the header as one JSON line, padded so that the rows begin at `header["offset"]`, a multiple of 64."""
    length = len(json.dumps({**header, "offset": _LONGEST_HEADER, CRC: 1 << 32}).encode()) + 1
    offset = -(-length // _ALIGNMENT) * _ALIGNMENT
    placed = {**header, "offset": offset}
    line = json.dumps({**placed, CRC: _checksum_of(placed)}).encode()
    return line.ljust(offset - 1) + b"\n"


def _checksum_of(header: dict[str, Any]) -> int:
    return crc32(
        json.dumps({name: value for name, value in header.items() if name != CRC}).encode()
    )


def _decode_header(line: bytes) -> dict[str, Any]:
    """Return the header in a file's first line, whatever follows it there; empty if there is none."""
    try:
        header, _ = json.JSONDecoder().raw_decode(line.decode(errors="replace"))
    except ValueError:
        return {}
    if isinstance(header, dict):
        return header
    return {}


def records_after(data: bytes, header: dict[str, Any]) -> bytes | None:
    """Return the records of a file whose first line is lost, by the fields of `header`; None if there is no sound one.

    They begin after a line of that header's length, or else where the first sound record does.
    """
    dtype = dtype_of(header)
    offset = len(encode_header(header))
    if _are_sound(data, dtype, offset).any():
        return data[offset:]
    for offset in range(0, min(len(data), _LONGEST_HEADER), _ALIGNMENT):
        if _are_sound(data, dtype, offset)[:1].any():
            return data[offset:]
    return None


def _are_sound(data: bytes, dtype: np.dtype[Any], offset: int) -> NDArray[np.bool_]:
    """Return which of the first records at an offset match their CRC-32, shape (n,)."""
    n_records = max(len(data) - offset, 0) // dtype.itemsize
    if not n_records:
        return np.zeros(0, dtype=np.bool_)
    records = np.frombuffer(data, dtype, min(n_records, _LOOKED_AT), offset)
    return np.asarray(records[CRC] == _checksums(records))
