"""A recorded run as fixed-size binary records: observation, action and its probability at each step.

Row i contains the observation after i steps and the action taken *from* it. A file is one JSON
line, padded with spaces to a multiple of 64 bytes, followed by the rows (`segments`); any prefix of
it is readable. The JSON line names every field, its type and its place:

    header = json.loads(open("life.rec", "rb").readline())
    rows = numpy.fromfile("life.rec", dtype=[tuple(field) for field in header["dtype"]],
    offset=header["offset"]) (a field's shape is a list in JSON; `read` below turns it into a tuple)

After an hour of robot time, or 64 MB, recording continues in "life-2.rec" and so on. Each row ends
with the CRC-32 of the bytes before it. A kill loses at most 0.2 s of rows, a power failure 10 s.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.lib.recfunctions import repack_fields
from numpy.typing import NDArray

from horde_agent.record.dtype import Flag, row_dtype
from horde_agent.record.kinds import LIFE
from horde_agent.record.segments import (
    Segment,
    newest_files,
    read_header,
    read_segment,
    started_files,
)

FORMAT = LIFE
A_DAY = 864_000
"""Rows at 10 Hz: the part at the end of a recording that is read for reports."""

OF_BODY = (
    "dtype",
    "channels",
    "ranges",
    "low",
    "high",
    "tile_layout",
    "chosen_layout",
    "lost",
    "actions",
    "lost_actions",
    "later_actions",
    "later_tilings",
    "arranged",
    "shifts",
    "columns",
)
"""Keys of a header that differ if the body's sensors or actions, or the columns of rows changed."""

OnFault = Callable[[str], None]
"""Receives a sentence, without a full stop, for each damaged, truncated or missing part of a recording."""

_log = logging.getLogger(__name__)


@dataclass(frozen=True)
class Stream:
    """A recorded life.

    Attributes:
        rows: Structured array of `row_dtype`, shape (n_rows,).
        header: What the file says of itself and of the body (channels, actions, period_s, ...).
        faults: A sentence for each truncated or damaged part of the files.
        path: The file that contains the rows; None for several files, or none.
    """

    rows: NDArray[Any]
    header: dict[str, Any] = field(default_factory=dict)
    faults: tuple[str, ...] = ()
    path: Path | None = None

    def __len__(self) -> int:
        return len(self.rows)

    def __getitem__(self, span: slice) -> Stream:
        """Return a part of the stream; the rows are shared, not copied."""
        return Stream(self.rows[span], self.header, self.faults, self.path)

    @property
    def n_steps(self) -> int:
        """Number of 100 ms periods between the first row and the last."""
        if len(self.rows):
            return int(self.rows["step"][-1] - self.rows["step"][0])
        return 0


def log_fault(fault: str) -> None:
    """Log a fault of a recording as a warning, which reaches the terminal."""
    _log.warning("%s", fault)


def read(
    path: Path,
    *,
    newest: int | None = None,
    columns: Sequence[str] | None = None,
    on_fault: OnFault = log_fault,
) -> Stream:
    """Read a recording from all its files; damaged rows are omitted, reported and listed in `faults`.

    The row after a damaged or missing one gets the flag GAP: it does not follow from the row before
    it.

    Args:
        path: The first file.
        newest: Number of rows at the end to read, > 0, damaged ones included, or all if there are
            fewer; all when None: months do not fit in memory.
        columns: Names of the fields to keep; all when None.
        on_fault: Called with each fault; it is logged by default.

    Raises:
        FileNotFoundError: If there is no such file.
        ValueError: If a file is not a recorded life.
    """
    kept: list[NDArray[Any]] = []
    faults: list[str] = []
    header: dict[str, Any] = {}
    first_row = None if newest is None else -newest
    for part in read_in_parts(path, first_row, on_fault=on_fault):
        header = header or part.header
        rows = part.rows
        kept.append(rows if columns is None else repack_fields(rows[list(columns)]))
        faults += part.faults
        del part, rows  # free this large file before the next one is read
    if len({rows.dtype for rows in kept}) > 1:
        raise ValueError(f"the files of {path} hold rows of several kinds")
    return Stream(_joined(kept), header, tuple(faults))


def header_of(path: Path) -> dict[str, Any]:
    """Return what a recording says of itself and of the body; raise as `read`.

    It is that of the oldest file, or of the newest one if the body's sensors or actions changed meanwhile.
    """
    files = started_files(path)
    header = read_header(files[0], FORMAT)
    return _of_changed_body(files[-1]) or header


def _of_changed_body(newest: Path) -> dict[str, Any] | None:
    """Return the header of the newest file if the body changed; None if not, or if it cannot be read."""
    with suppress(ValueError, OSError):
        header = read_header(newest, FORMAT)
        if header.get("arranged"):
            return header
    return None


def with_channels(rows: NDArray[Any], n_inputs: int) -> NDArray[Any]:
    """Return rows, shape (n_rows,), with further channels behind their own, up to `n_inputs`, without readings."""
    n_before = rows["observation"].shape[1]
    if n_before == n_inputs:
        return rows
    wider = np.zeros(len(rows), row_dtype(n_inputs, 1 + ("robot" in (rows.dtype.names or ()))))
    for name in rows.dtype.names or ():
        if name != "observation":
            wider[name] = rows[name]
    wider["observation"][:, :n_before] = rows["observation"]
    wider["observation"][:, n_before:] = np.nan
    return wider


def read_in_parts(
    path: Path, since: int | None = None, *, on_fault: OnFault = log_fault
) -> Iterator[Stream]:
    """Yield a recording file by file, each as `read` returns it: months of rows do not fit in memory.

    Every reader of rows uses this function, so that all of them treat damage in the same way.

    Args:
        path: The first file.
        since: Number of the first row, damaged ones included, from the end if it is negative;
            earlier rows are not read. All rows when None.
        on_fault: Called with each fault of a part before the part is yielded; it is logged by
            default.

    Raises:
        FileNotFoundError: If there is no such file.
        ValueError: If a file is not a recorded life.
    """
    first = 0
    if since is None:
        files = started_files(path)
    else:
        files, first = newest_files(path, FORMAT, since)

    changed_body = _of_changed_body(files[-1])
    end_of_previous: _EndOfFile | None = None
    expected: int | None = None
    for file in files:
        segment = read_segment(file, FORMAT, first)
        faults = [
            *_missing_before(segment, end_of_previous),
            *segment.faults(is_last=file is files[-1]),
        ]
        for fault in faults:
            on_fault(fault)
        rows, expected = _sound_rows(segment, expected)
        header = segment.header
        if changed_body is not None:
            rows = with_channels(rows, len(changed_body["channels"]))
            header |= {key: changed_body[key] for key in OF_BODY if key in changed_body}
        end_of_previous = _EndOfFile.of(segment)
        del segment  # free this large file before the next one is read
        yield Stream(rows, header, tuple(faults), file)
        del rows


class _EndOfFile(NamedTuple):
    """End of a file of a recording."""

    n_rows: int  # rows in it and in the files before it
    is_torn: bool  # whether it ends with an incomplete or damaged row

    @classmethod
    def of(cls, segment: Segment) -> _EndOfFile:
        n_records = len(segment.records)
        return cls(segment.first + n_records, segment.n_torn > 0 or segment.n_whole < n_records)


def _missing_before(segment: Segment, previous: _EndOfFile | None) -> list[str]:
    """Return a sentence if a file does not begin where the previous one ends, and that one reports no torn end."""
    if previous is None or previous.is_torn or segment.first == previous.n_rows:
        return []
    begins = (
        f"{segment.path.name} begins with row {segment.first:,}, expected row {previous.n_rows:,}"
    )
    return [f"{begins}: a file before it is missing or cut off"]


def _sound_rows(segment: Segment, expected: int | None) -> tuple[NDArray[Any], int]:
    """Return the sound rows of a file, and the number of the row after the last of them.

    A row is a gap unless it has the number that is expected after the sound row before it; None
    expects the first.
    """
    missing = set(row_dtype(1).names or ()) - set(segment.records.dtype.names or ())
    if missing:
        raise ValueError(f"the rows of {segment.path} lack {', '.join(sorted(missing))}")
    number = segment.first + np.flatnonzero(segment.is_sound)
    follows = np.r_[segment.first if expected is None else expected, number + 1]
    sound = segment.records[segment.is_sound]
    for first_after in np.flatnonzero(number != follows[:-1]):
        sound["flags"][first_after] |= np.uint8(Flag.GAP)
        if "robot" in (sound.dtype.names or ()):  # the rows of any robot may be missing
            _, firsts = np.unique(sound["robot"][first_after:], return_index=True)
            sound["flags"][first_after + firsts] |= np.uint8(Flag.GAP)
    return sound, int(follows[-1])


def _joined(parts: list[NDArray[Any]]) -> NDArray[Any]:
    """Concatenate rows and free each part when it is copied, so that memory never contains a day of them twice."""
    if len(parts) == 1:
        return parts[0]
    rows = np.empty(sum(map(len, parts)), parts[0].dtype)
    end = len(rows)
    while parts:
        last = parts.pop()
        rows[end - len(last) : end] = last
        end -= len(last)
    return rows
