"""Write rows to files in a background thread: no step waits for the disk.

Fields of a row: `rows`; file format: `segments`.
"""

from __future__ import annotations

import logging
import os
import threading
import time
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from types import TracebackType
from typing import Any, BinaryIO

import numpy as np
from numpy.typing import NDArray

from horde_agent.record.dtype import CLOCK_FIELDS, Flag, Phase, Row, row_dtype
from horde_agent.record.rows import FORMAT, Stream, read_in_parts, with_channels
from horde_agent.record.segments import (
    CRC_BYTES,
    KEYS_OF_FILE,
    RecordLost,
    Segment,
    append,
    cut,
    encode_header,
    file_at,
    newest_files,
    number_of,
    read_segment,
    sealed,
    sync_folder,
    write_all,
)

# Rows lost by a kill and by a power failure, at most, in seconds
FLUSH_S = 0.2
SYNC_S = 10.0
SEGMENT_S = 3600.0
SEGMENT_BYTES = 64_000_000
MOST_WAITING_BYTES = 64_000_000  # of rows that wait for disk space: six hours at 10 Hz

_ROWS_IN_BUFFER = 1024
_PAUSED = (
    "cannot write %s (%s): recording paused. Free disk space and it resumes; until then up to %d MB of rows wait in "
    "memory"
)

_log = logging.getLogger(__name__)


class Recorder:
    """Writes rows to files, or keeps them in memory.

    A thread writes rows to the file within 0.2 s and syncs them to disk within ten seconds. If the
    disk is full, recording pauses with a warning and resumes when there is space; until then rows
    wait in memory.

    Args:
        n_inputs: Length of an observation.
        path: File to write (its folder must exist, the file must not); None keeps the rows in
            memory.
        header: Further facts for the header; JSON types only.
        segment_s: Maximum duration of a file in seconds, by `period_s` of the header.
        segment_bytes: Maximum size of a file.

    Attributes:
        n_rows: Rows so far.
        n_lost: Rows dropped because disk and memory were full; the row after them is a gap.
        since: Sound rows after the known ones, found by `resume`.
        is_changed: Whether `resume` was told of another body than that of the last file.
        differs_at: Step of the first row that differs from the recorded one (`resume`); None if
            none does.

    Raises:
        FileExistsError: If the file exists.
        RecordLost: If the file cannot be made; so does `close`, if not all rows are in it.
    """

    def __init__(
        self,
        n_inputs: int,
        path: Path | None = None,
        header: dict[str, Any] | None = None,
        *,
        segment_s: float = SEGMENT_S,
        segment_bytes: int = SEGMENT_BYTES,
    ) -> None:
        self._path = path
        self._dtype = row_dtype(n_inputs, (header or {}).get("robots", 1))
        self.header = {
            **FORMAT.stamp(),
            "dtype": self._dtype.descr,
            **(header or {}),
        }
        # Rows, as tuples: an array is made of many at once
        self._buffer: list[tuple[Any, ...]] = []
        self.n_rows = self.n_lost = 0
        self.differs_at: int | None = None
        self._kept: list[NDArray[Any]] = []  # all rows without a file; else those not yet written
        self._is_after_loss = False
        self._lost: RecordLost | None = None  # while rows wait for disk space
        self._ahead = np.zeros(0, self._dtype)
        self._n_ahead = 0
        self.since = Stream(self._ahead)
        self._file: BinaryIO | None = None
        self._n_parts = self._n_written = self._first_step = 0
        self._rows_of_part = 0
        period_s = self.header.get("period_s") or 0.1
        self._segment_steps = max(round(segment_s / period_s), 1)
        self._segment_bytes = segment_bytes
        self._synced_at = time.monotonic()
        self._lock = threading.Lock()
        self._writing = threading.RLock()
        self._wake = threading.Event()
        self._thread: threading.Thread | None = None
        self._is_closed = False
        self._is_open = True
        self.is_changed = False
        if path is not None:
            self._begin_part()

    @classmethod
    def resume(
        cls, path: Path, after: int, *, is_redone: bool, body: dict[str, Any] | None = None
    ) -> Recorder:
        """Return a recorder that continues a recording after `after` known rows; files change in `open_last` only.

        If the rows after these are redone, in a simulation, they are only compared, and from the
        first row that differs (`differs_at`) on, rows are replaced. A last row with phase END, and
        all rows from the first damaged one on, are redone without a comparison. If they are not
        redone, damaged rows stay in the file; the next row is a gap.

        If the body has changed, `body` is what the header says of it now: rows go on in a new file.

        Raises:
            FileNotFoundError: If there is no recording.
            ValueError: If it contains fewer rows.
        """
        files, _ = newest_files(path, FORMAT, after)
        segments = [read_segment(file, FORMAT, after) for file in files]
        last = segments[-1]
        n_rows = last.first + last.n_whole
        if n_rows < after:
            raise ValueError(f"{path} contains {n_rows:,} rows, but {after:,} were written")
        for segment in segments:
            for fault in segment.faults(is_last=segment is last):
                _log.warning("%s", fault)
        if is_redone:
            later_rows = _rows_before_damage(segments)
            if len(later_rows) and later_rows["phase"][-1] == Phase.END:
                later_rows = later_rows[:-1]
            n_written = after + len(later_rows)
            n_known = after
            ahead = later_rows
        else:
            later_rows = np.concatenate([part.rows for part in read_in_parts(path, after)])
            n_written = n_rows
            n_known = n_rows
            ahead = later_rows[:0]
        header = {name: value for name, value in last.header.items() if name not in KEYS_OF_FILE}
        is_changed = body is not None and any(header.get(key) != body[key] for key in body)
        if body is not None:
            header |= body
            later_rows = with_channels(later_rows, len(body["channels"]))
            ahead = with_channels(ahead, len(body["channels"]))
        recorder = cls(later_rows["observation"].shape[1], header=header)
        if recorder._dtype != later_rows.dtype:
            raise ValueError(
                f"the rows of {path} have the fields {later_rows.dtype}, expected {recorder._dtype}"
            )
        recorder._path = path
        recorder._n_written = n_written
        recorder._is_open = False
        recorder.is_changed = is_changed
        recorder.n_rows = n_known
        recorder._ahead = ahead
        recorder.since = Stream(later_rows, last.header)
        return recorder

    def open_last(self) -> None:
        """Remove what `resume` does not continue from, such as an incomplete last row, and open the last file.

        The first `write` calls this.
        """
        if not self._is_open:
            self._is_open = True
            self._continue_after(self._n_written)
            if self.is_changed:
                self._begin_part()

    def change_body(self, body: dict[str, Any]) -> None:
        """Begin a new file, for rows of another body, which `body` describes as in a header."""
        self.open_last()
        self.flush()
        self.header |= body
        self._dtype = row_dtype(len(body["channels"]), self.header.get("robots", 1))
        self.header["dtype"] = self._dtype.descr
        self._begin_part()

    def cut_after(self, n_rows: int) -> None:
        """Remove the rows behind the first `n_rows` of a recording that `resume` continues, and open its last file."""
        self._is_open = True
        self.n_rows = n_rows
        self._continue_after(n_rows)

    def replace_last(self, row: Row) -> None:
        """Write another row in the place of the last one: after a kill, the recording has one of the two."""
        self.open_last()
        assert self._file is not None
        record = self._encoded([tuple(row)])
        if self._rows_of_part:
            self._file.seek(-record.nbytes, 2)
            write_all(self._file, sealed(record))
        else:  # it is in a file of an older format, which is not written to
            self._continue_after(self._n_written - 1)
            self._put(record)
        _sync_data(self._file)

    def write(self, row: Row) -> None:
        """Append one row; the observation is copied."""
        self.open_last()
        copied = (*row[:2], row.observation.copy(), *row[3:])
        with self._lock:
            self.n_rows += 1
            if self._n_ahead < len(self._ahead) and self._is_as_before(copied):
                return
            self._buffer.append(copied)
            is_full = len(self._buffer) >= _ROWS_IN_BUFFER
        if self._thread is None and self._path is not None:
            self._thread = threading.Thread(
                target=self._keep_writing, name="recording", daemon=True
            )
            self._thread.start()
        if is_full:
            self.flush()

    def append(self, rows: NDArray[Any]) -> None:
        """Write rows of `row_dtype`, shape (n,), at once; raise RecordLost if they cannot be written."""
        self.flush()
        with self._writing:
            self._kept.append(rows)
            self.n_rows += len(rows)
        self.flush()
        if self._lost is not None:
            raise self._lost

    def _encoded(self, rows: list[tuple[Any, ...]]) -> NDArray[Any]:
        """Return rows of `Row` as records, shape (n,), without their checksums."""
        records = np.zeros(len(rows), self._dtype)
        columns = dict(zip(Row._fields, zip(*rows, strict=True), strict=True))
        for name in (self._dtype.names or ())[:-1]:
            records[name] = columns[name]
        return records

    def _is_as_before(self, row: tuple[Any, ...]) -> bool:
        """Return whether a repeated row equals the recorded one; if not, truncate the recording before it."""
        encoded = self._encoded([row])
        recorded = self._ahead[self._n_ahead : self._n_ahead + 1]
        for name in CLOCK_FIELDS:
            encoded[name] = recorded[name]
        if encoded.tobytes()[:-CRC_BYTES] == recorded.tobytes()[:-CRC_BYTES]:
            self._n_ahead += 1
            return True
        self.differs_at = int(encoded["step"][0])
        self._ahead = self._ahead[:0]
        self._n_ahead = 0
        self._continue_after(self.n_rows - 1)
        return False

    def _continue_after(self, n_rows: int) -> None:
        """Truncate the recording after `n_rows` rows, and open the last file."""
        assert self._path is not None
        if self._file is not None:
            self._file.close()
        (path, *later), _ = newest_files(self._path, FORMAT, n_rows)
        self._n_parts = number_of(path, self._path)
        self._n_written = n_rows
        # One that a kill left without its first line
        for file in (*later, file_at(self._path, self._n_parts + 1)):
            file.unlink(missing_ok=True)
        segment = read_segment(path, FORMAT)
        self._rows_of_part = n = n_rows - int(segment.header.get("first", 0))
        if n:
            self._first_step = int(segment.records["step"][0])
        else:
            self._first_step = 0
        cut(path, int(segment.header["offset"]) + n * segment.itemsize)
        sync_folder(path.parent)
        self._file = path.open("rb+", buffering=0)
        self._file.seek(0, 2)
        if segment.is_old:
            self._begin_part()

    def _keep_writing(self) -> None:
        while not self._wake.wait(FLUSH_S):
            self.flush()
            now_s = time.monotonic()
            if self._file is None or now_s - self._synced_at < SYNC_S:
                continue
            self._synced_at = now_s
            try:
                _sync_data(self._file)
            except (OSError, ValueError) as error:  # ValueError: closed meanwhile
                _log.warning("cannot sync the recording: %s", error)

    def flush(self) -> None:
        """Write buffered rows to the file, or keep them in memory; if the disk is full they wait."""
        with self._writing:
            with self._lock:
                if self._buffer:
                    self._keep(self._encoded(self._buffer))
                    self._buffer.clear()
            if self._path is None:
                return
            try:
                while self._kept:
                    self._put(self._kept[0])
            except RecordLost as error:
                if self._lost is None:
                    _log.warning(
                        _PAUSED, error.filename, error.strerror, MOST_WAITING_BYTES // 1_000_000
                    )
                self._lost = error
            else:
                if self._lost is not None:
                    self._lost = None
                    _log.warning(
                        "disk space is available: recording resumed; %d rows were lost", self.n_lost
                    )

    def _keep(self, rows: NDArray[Any]) -> None:
        """Queue rows; beyond `MOST_WAITING_BYTES` they are dropped, and the next row is a gap."""
        n_bytes = sum(kept.nbytes for kept in self._kept)
        if self._path is not None and n_bytes + rows.nbytes > MOST_WAITING_BYTES:
            self.n_lost += len(rows)
            self._is_after_loss = True
            return
        if self._is_after_loss:
            rows["flags"][0] |= np.uint8(Flag.GAP)
            self._is_after_loss = False
        self._kept.append(rows)

    def _put(self, rows: NDArray[Any]) -> None:
        """Write queued rows, after a full file into another; raise RecordLost if not all could be written."""
        if self._is_full(int(rows["step"][0])):
            self._begin_part()
        assert self._file is not None, "a part was begun"
        if not self._rows_of_part:
            self._first_step = int(rows["step"][0])
        ends = int(np.searchsorted(rows["step"], self._first_step + self._segment_steps))
        fits = min(max(self._segment_bytes // rows.itemsize - self._rows_of_part, 1), max(ends, 1))
        first_part = rows[:fits]
        position = self._file.tell()
        try:
            append(self._file, sealed(first_part), rows.itemsize)
        finally:
            n = (self._file.tell() - position) // rows.itemsize
            self._rows_of_part += n
            self._n_written += n
            if n < len(rows):
                self._kept[:1] = [rows[n:]]
            else:
                self._kept[:1] = []

    def _is_full(self, step: int) -> bool:
        if self._file is None:
            return True
        is_long = step - self._first_step >= self._segment_steps
        is_large = (self._rows_of_part + 1) * self._dtype.itemsize > self._segment_bytes
        return bool(self._rows_of_part) and (is_long or is_large)

    def _begin_part(self) -> None:
        """Begin a file, after the previous one is synced; raise FileExistsError or RecordLost if it cannot be made."""
        assert self._path is not None
        path = file_at(self._path, self._n_parts + 1)
        header = {**self.header, "first": self._n_written}
        try:
            file = path.open("xb", buffering=0)
        except OSError as error:
            if isinstance(error, FileExistsError):
                raise
            raise RecordLost(error.errno, error.strerror, str(path)) from error
        try:
            append(file, encode_header(header), 1 << 62)
        except RecordLost:
            file.close()
            path.unlink()
            raise
        if self._file is not None:
            _sync_data(self._file)
            self._file.close()
            sync_folder(self._path.parent)
        self._file = file
        self._n_parts += 1
        self._rows_of_part = 0

    def sync(self) -> None:
        """Write buffered rows and sync the file."""
        self.flush()
        with self._writing:
            if self._file is not None and not self._file.closed:
                _sync_data(self._file)

    @property
    def is_redoing(self) -> bool:
        """True while recorded rows are simulated again."""
        return self._n_ahead < len(self._ahead)

    @property
    def is_paused(self) -> bool:
        """True while rows wait for disk space."""
        return self._lost is not None

    def stream(self) -> Stream:
        """Return the rows in memory; raise ValueError if the rows went to a file: `read` it."""
        if self._path is not None:
            raise ValueError("this recorder writes to a file; use horde_agent.record.read on it")
        self.flush()
        for rows in self._kept:
            sealed(rows)
        return Stream(np.concatenate([np.zeros(0, self._dtype), *self._kept]), self.header)

    def close(self) -> None:
        """Write buffered rows and close the file, once; raise RecordLost if not all rows could be written."""
        if self._is_closed:
            return
        self._is_closed = True
        self._wake.set()
        if self._thread is not None:
            self._thread.join()
        self.flush()
        if self._file is not None:
            with suppress(OSError):
                _sync_data(self._file)
            self._file.close()
        if self._lost is not None:
            raise self._lost

    def __enter__(self) -> Recorder:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()


def _rows_before_damage(segments: Sequence[Segment]) -> NDArray[Any]:
    """Return the rows of successive files up to the first damaged one."""
    parts = []
    for segment in segments:
        damaged = np.flatnonzero(~segment.is_sound)
        if damaged.size:
            parts.append(segment.records[: damaged[0]])
            break
        parts.append(segment.records)
    return np.concatenate(parts)


def _sync_data(file: BinaryIO) -> None:
    getattr(os, "fdatasync", os.fsync)(file.fileno())
