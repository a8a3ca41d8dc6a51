"""The stream of a life as fixed-size binary records: what was seen, done and with what probability.

Row i is the observation after i steps together with the action taken *from* it. A file is one JSON line, padded with
spaces to a multiple of 64 bytes, followed by the rows; any prefix of it is readable, so a life that was cut off loses
nothing but its last buffer. The JSON line names every field, its type and its place:

    header = json.loads(open("life.rec", "rb").readline())
    rows = numpy.fromfile("life.rec", dtype=[tuple(field) for field in header["dtype"]], offset=header["offset"])
    (a field's shape is a list in JSON; `read` below turns it into a tuple)
"""

from __future__ import annotations

import json
from contextlib import suppress
from dataclasses import dataclass, field
from enum import IntEnum
from pathlib import Path
from types import TracebackType
from typing import Any, BinaryIO, NamedTuple

import numpy as np
from numpy.typing import NDArray

Observation = NDArray[np.float32]

FORMAT = "horde-life"
FORMAT_VERSION = 1
NO_ACTION = -1
NO_POLICY = 0
_ROWS_IN_BUFFER = 1024
_ALIGNMENT = 64


class Phase(IntEnum):
    """What the robot does from an observation."""

    BEHAVE = 0
    """Follow the behaviour policy: the transition is learned from."""
    EXCURSION = 1
    """Follow a target policy to test the predictions about it: nothing is learned."""
    CENTRE = 2
    """Drive back to the centre after an excursion: nothing is learned and no action is chosen."""
    END = 3
    """Nothing: the stream ends or is cut here."""
    DOCK = 4
    """Drive to the dock, charge and leave it: nothing is learned and no action is chosen."""


DRIVES = frozenset({Phase.CENTRE, Phase.DOCK})
"""What the body does by itself."""


class Flag(IntEnum):
    """How an observation came about: bits, to be joined by `|` (plain integers: IntFlag costs 2 us per operation)."""

    NONE = 0
    GAP = 1
    """It does not follow from the observation before it (reset, drive, lost packets)."""
    NOT_APPLIED = 2
    """The body did not do what was asked on the way to it."""
    TERMINATED = 4
    """The stream truly ends with it: gamma' = 0."""
    TRUNCATED = 8
    """The environment stopped here for a reason of its own; the next observation follows a reset."""
    STALE = 16
    """No new packet came: it repeats the one before it."""


BROKEN: int = Flag.GAP | Flag.NOT_APPLIED | Flag.STALE
"""Flags of an observation that no update may reach across."""


class Row(NamedTuple):
    """One row of a stream.

    Attributes:
        step: Number of 100 ms periods lived before this observation.
        t: Robot time in seconds (nan where the body has no clock).
        observation: Observation, float32, shape (n_inputs,).
        action: Discrete action taken from it, or NO_ACTION.
        b: Probability with which that action was drawn, by the behaviour policy or in an excursion by the policy that
            is tested (1 where it always takes one action); nan without an action.
        phase, flags: What is done from it, and how it came about.
        pose: x (m), y (m), heading (rad); nan where unknown. For pictures only.
        policy: In an excursion the CRC-32 of the name of the policy that is tested, else NO_POLICY.
    """

    step: int
    t: float
    observation: Observation
    action: int
    b: float
    phase: Phase
    flags: int
    pose: tuple[float, float, float]
    policy: int = NO_POLICY


def row_dtype(n_inputs: int) -> np.dtype[Any]:
    """Return the numpy type of a row with `n_inputs` inputs: little-endian, packed."""
    return np.dtype(
        [
            ("t", "<f8"),
            ("b", "<f8"),
            ("observation", "<f4", (n_inputs,)),
            ("pose", "<f4", (3,)),
            ("step", "<u4"),
            ("policy", "<u4"),
            ("action", "<i2"),
            ("phase", "u1"),
            ("flags", "u1"),
        ]
    )


@dataclass(frozen=True)
class Stream:
    """A recorded life.

    Attributes:
        rows: Structured array of `row_dtype`, shape (n_rows,).
        header: What the file says of itself and of the body (channels, actions, period_s, ...).
    """

    rows: NDArray[Any]
    header: dict[str, Any] = field(default_factory=dict)

    def __len__(self) -> int:
        return len(self.rows)

    def __getitem__(self, span: slice) -> Stream:
        """Return a part of the stream; the rows are shared, not copied."""
        return Stream(self.rows[span], self.header)

    @property
    def policies(self) -> NDArray[np.uint32]:
        """The column `policy`, shape (n_rows,): NO_POLICY in streams that were recorded before there was one."""
        if "policy" not in (self.rows.dtype.names or ()):
            return np.full(len(self.rows), NO_POLICY, dtype=np.uint32)
        return np.asarray(self.rows["policy"])

    @property
    def n_steps(self) -> int:
        """Number of 100 ms periods between the first row and the last."""
        return int(self.rows["step"][-1] - self.rows["step"][0]) if len(self.rows) else 0


class RecordLost(OSError):
    """A file of records takes no more, as where the disk is full; whole records alone are in it.

    Attributes:
        errno, strerror, filename: As of any OSError.
    """


class Recorder:
    """Writes rows to a file as they come, or keeps them in memory.

    Args:
        n_inputs: Length of an observation.
        path: File to write (its folder must exist, the file must not); None keeps the rows in memory.
        header: Further facts for the header; JSON types only.

    Raises:
        FileExistsError: If there is such a file already.
        RecordLost: If the file cannot be written; so do `write`, `flush` and `close`, once: then rows are dropped.
    """

    def __init__(self, n_inputs: int, path: Path | None = None, header: dict[str, Any] | None = None) -> None:
        dtype = row_dtype(n_inputs)
        self.header = {"format": FORMAT, "version": FORMAT_VERSION, "dtype": dtype.descr, **(header or {})}
        self._buffer = np.zeros(_ROWS_IN_BUFFER, dtype=dtype)
        # Views of the columns: assigning to them is several times cheaper than to a row of a structured array.
        self._columns = [self._buffer[name] for name in ("t", "b", "observation", "pose", "step", "policy", "action")]
        self._phase, self._flags = self._buffer["phase"], self._buffer["flags"]
        self._used = 0
        self._kept: list[NDArray[Any]] = []
        self._file: BinaryIO | None = None
        self._is_lost = False
        if path is not None:
            self._file = path.open("xb", buffering=0)
            append(self._file, encode_header(self.header), 1)

    def write(self, row: Row) -> None:
        """Append one row; the observation is copied."""
        i = self._used
        t, b, observation, pose, step, policy, action = self._columns
        t[i], b[i], observation[i], pose[i] = row.t, row.b, row.observation, row.pose
        step[i], policy[i], action[i] = row.step, row.policy, row.action
        self._phase[i], self._flags[i] = row.phase, row.flags
        self._used += 1
        if self._used == _ROWS_IN_BUFFER:
            self.flush()

    def flush(self) -> None:
        """Hand the buffered rows to the file, or put them with the kept ones."""
        rows, self._used = self._buffer[: self._used], 0
        if not len(rows) or self._is_lost:
            return
        if self._file is None:
            self._kept.append(rows.copy())
            return
        try:
            append(self._file, rows.tobytes(), rows.itemsize)
        except RecordLost:
            self._is_lost = True
            raise

    def stream(self) -> Stream:
        """Return what was recorded so far, in memory.

        Raises:
            ValueError: If the rows went to a file: `read` it.
        """
        if self._file is not None:
            raise ValueError("this recorder writes to a file; use horde_agent.record.read on it")
        self.flush()
        return Stream(np.concatenate([self._buffer[:0], *self._kept]), self.header)

    def close(self) -> None:
        """Write what is buffered and close the file. Closing twice does nothing."""
        try:
            self.flush()
        finally:
            if self._file is not None and not self._file.closed:
                self._file.close()

    def __enter__(self) -> Recorder:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()


def append(file: BinaryIO, data: bytes, size: int) -> None:
    """Append records to an unbuffered file; where not all fit, those that do stay, and none in part.

    Args:
        file: Where to; it stands at its end.
        data: The records.
        size: Of one, in bytes.

    Raises:
        RecordLost: If not all were written.
    """
    begin, left = file.tell(), memoryview(data)
    try:
        while left:
            left = left[file.write(left) :]
    except OSError as error:
        with suppress(OSError):
            file.truncate(begin + (len(data) - len(left)) // size * size)
        raise RecordLost(error.errno, error.strerror, str(file.name)) from error


def append_to(path: Path, data: bytes, size: int) -> None:
    """Append records to a file that is there, as `append` does.

    Raises:
        RecordLost: If not all were written, or the file is gone.
    """
    try:
        file = path.open("rb+", buffering=0)
    except OSError as error:
        raise RecordLost(error.errno, error.strerror, str(path)) from error
    with file:
        file.seek(0, 2)
        append(file, data, size)


def encode_header(header: dict[str, Any]) -> bytes:
    """Return the header as one JSON line, padded so that the rows begin at `header["offset"]`, a multiple of 64."""
    length = len(json.dumps({**header, "offset": 1 << 20}).encode()) + 1
    offset = -(-length // _ALIGNMENT) * _ALIGNMENT
    line = json.dumps({**header, "offset": offset}).encode()
    return line.ljust(offset - 1) + b"\n"


def read_rows(path: Path, kind: str) -> tuple[NDArray[Any], dict[str, Any]]:
    """Read a file of records, whatever they hold; an unfinished last record is left out.

    Args:
        path: The file.
        kind: The `format` that its header must name.

    Returns:
        The records, a structured array, and the header.

    Raises:
        FileNotFoundError: If there is no such file.
        ValueError: If the file holds no such records.
    """
    with path.open("rb") as file:
        header = _decode_header(file.readline(1 << 20))
        if header.get("format") != kind or header.get("version") != FORMAT_VERSION:
            raise ValueError(f"{path} does not hold records of the format {kind} {FORMAT_VERSION}")
        fields = [tuple(tuple(x) if isinstance(x, list) else x for x in field) for field in header["dtype"]]
        dtype = np.dtype(fields)
        n_rows = (file.seek(0, 2) - header["offset"]) // dtype.itemsize
        file.seek(header["offset"])
        return np.fromfile(file, dtype=dtype, count=n_rows), header


def read(path: Path) -> Stream:
    """Read a recorded life; an unfinished last row is left out.

    Raises:
        FileNotFoundError: If there is no such file.
        ValueError: If the file is not a recorded life.
    """
    rows, header = read_rows(path, FORMAT)
    if missing := set(row_dtype(1).names or ()) - set(rows.dtype.names or ()):
        raise ValueError(f"the rows of {path} lack {', '.join(sorted(missing))}")
    return Stream(rows, header)


def _decode_header(line: bytes) -> dict[str, Any]:
    """Return the header in a file's first line; empty where there is none."""
    try:
        header = json.loads(line)
    except ValueError:
        return {}
    return header if isinstance(header, dict) else {}
