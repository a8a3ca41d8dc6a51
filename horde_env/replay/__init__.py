"""Recordings as robot bodies: `Recording` is what all have in common, `RecordedRun` the file in a run's folder.

The file `log/life.rec` describes itself: its first line is JSON, of `offset` bytes, which names
format, robot and fields; rows of fixed size follow, each with the CRC-32 of the bytes before it in
its last field. To read it:

    header = json.loads(open("life.rec", "rb").readline())
    rows = numpy.fromfile("life.rec", [tuple(field) for field in header["dtype"]],
    offset=header["offset"])

A long run continues in "life-2.rec" and so on. Row i holds the observation after `step` periods,
scaled to 0..1, and the action taken *from* it with its probability b: both are in the extras of the
next frame. A row with a wrong CRC-32 and a truncated end are dropped; the next row follows a gap,
as after missing steps.
"""

from __future__ import annotations

import json
import logging
import re
from abc import ABC, abstractmethod
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any, NamedTuple
from zlib import crc32

import numpy as np
from numpy.typing import NDArray

from horde_env.backend import Floats, Frame, InfoKey, Ints
from horde_env.errors import BackendUnavailable
from horde_env.robot import RobotSpec, default_robot

FORMAT = "horde-life"
VERSION = 1
# Bits of `flags`
GAP = 1
NOT_APPLIED = 2
STALE = 16
RECORDED_KEYS = (
    InfoKey("action", "1", "the action that led to the frame, or -1; in a run's recording only"),
    InfoKey("b", "1", "the behaviour's probability of it, or NaN; in a run's recording only"),
    InfoKey("x_m", "m", "the body's place, to the east of the middle; if it was recorded"),
    InfoKey("y_m", "m", "the body's place, to the north of the middle; if it was recorded"),
    InfoKey("heading_rad", "rad", "its heading, counter-clockwise from east; if it was recorded"),
)
"""The extras of a recorded body."""
_LONGEST_LINE = 1 << 24
_CRC_BYTES = 4

_log = logging.getLogger(__name__)


class Piece(NamedTuple):
    """Successive frames of a recording by column: the fields of `Frame`, each of shape (n, ...)."""

    values: Floats
    t: Floats
    sensor_age_s: Floats
    crc_errors: Ints
    stale: NDArray[np.bool_]
    gap: NDArray[np.bool_]
    applied: NDArray[np.bool_]
    extras: dict[str, Floats]

    def frame(self, i: int) -> Frame:
        """Return frame `i`, in [0, n)."""
        return Frame(
            values=self.values[i],
            t=float(self.t[i]),
            sensor_age_s=float(self.sensor_age_s[i]),
            crc_errors=int(self.crc_errors[i]),
            stale=bool(self.stale[i]),
            gap=bool(self.gap[i]),
            applied=bool(self.applied[i]),
            extras={name: float(column[i]) for name, column in self.extras.items()},
        )


class Recording(ABC):
    """A recorded stream as a Backend: `exchange` ignores its command; the last frame has `last` set.

    Each reset plays the recording from its beginning. If it has actions and their probabilities, a
    frame has those that led to it in `extras` (`action`, `b`). If they are invalid, they are -1 and
    NaN, and `applied` is False: nothing is learned from that step. `notes` are remarks for a reader
    of results; faults of the file are added as they are read.
    """

    info_keys = RECORDED_KEYS

    def __init__(self, path: Path, spec: RobotSpec | None) -> None:
        self.path = path
        self.spec = spec or default_robot()
        self.period_s = self.spec.period_s
        self.notes: tuple[str, ...] = ()
        self._frames: Iterator[Frame] = iter(())

    @abstractmethod
    def read(self) -> Iterator[Piece]:
        """Yield the recording's pieces in order.

        Raises:
            BackendUnavailable: If a file cannot be read, or is not in this format.
        """

    def reset(self, rng: np.random.Generator) -> Frame:  # noqa: ARG002
        """Return the first frame.

        Raises:
            BackendUnavailable: If the recording has no frame, or cannot be read.
        """
        self._frames = self._play()
        frame = next(self._frames, None)
        if frame is None:
            raise BackendUnavailable(f"{self.path} has no sound row to replay")
        return frame

    def exchange(self, command: Floats) -> Frame:  # noqa: ARG002
        """Return the next frame, whatever the command.

        Raises:
            BackendUnavailable: After the last frame, before the first reset, or if a further file
                cannot be read.
        """
        frame = next(self._frames, None)
        if frame is None:
            raise BackendUnavailable(
                f"{self.path} has no frame left to play; call reset() to play it again"
            )
        return frame

    def close(self) -> None:
        """Stop playing. Closing twice does nothing."""
        self._frames = iter(())

    def note(self, fault: str) -> None:
        """Log a fault of the file and add it to `notes`, once."""
        if fault not in self.notes:
            self.notes = (*self.notes, fault)
            _log.warning("%s: %s", self.path, fault)

    def _play(self) -> Iterator[Frame]:
        """Yield the frames, one behind the reading: only then is it known whether another one follows."""
        frame = None
        for piece in self.read():
            for i in range(len(piece.t)):
                if frame is not None:
                    yield frame
                frame = piece.frame(i)
        if frame is not None:
            yield replace(frame, last=True)


def is_run(path: str | Path) -> bool:
    """Return whether a path names a run's folder with a recording, or a file of such a recording."""
    path = Path(path)
    return path.suffix == ".rec" or bool(_files(path / "log" / "life.rec"))


class RecordedRun(Recording):
    """The recording in a run's folder, or in its first file, as a Backend; see `Recording`.

    A drive has no actions, so nothing is learned from it. Frames have the robot's pose if it was
    recorded. One file, an hour of the run, is in memory at a time.

    Raises:
        BackendUnavailable: If there is no such recording, or it is of another robot.
    """

    def __init__(self, run: str | Path, spec: RobotSpec | None = None) -> None:
        path = Path(run)
        if path.suffix != ".rec":
            path = path / "log" / "life.rec"
        super().__init__(path, spec)
        self._files = _files(self.path)
        if not self._files:
            raise BackendUnavailable(
                f"there is no recording at {self.path}; give the folder of a run"
            )
        names = [channel["name"] for channel in self._header(self._files[0]).get("channels", [])]
        expected = [channel.name for channel in self.spec.channels]
        if names != expected:
            raise BackendUnavailable(
                f"{self.path} was recorded with another robot: it has {len(names)} channels, {', '.join(names[:3])} "
                f"..., expected {len(expected)}, {', '.join(expected[:3])} ..."
            )

    def read(self) -> Iterator[Piece]:
        """Yield the recording file by file."""
        last_rows: NDArray[Any] | None = None
        has_pose = is_after_break = False
        n_expected: int | None = None
        for file in self._files:
            first = int(self._header(file).get("first", 0))
            if n_expected is not None and first != n_expected and not is_after_break:
                self.note(
                    f"{file.name} begins with row {first}, expected row {n_expected}: rows before it are missing"
                )
            rows, follows_break, is_after_break = self._rows(file, is_after_break)
            n_expected = first + len(follows_break)
            if not len(rows):
                continue
            if last_rows is None:
                has_pose = bool(np.isfinite(rows[0]["pose"]).all())
            piece = self._piece(rows, last_rows, follows_break)
            if has_pose:
                piece.extras.update(zip(("x_m", "y_m", "heading_rad"), rows["pose"].T, strict=True))
            last_rows = rows[-1:]
            yield piece

    def _piece(
        self, rows: NDArray[Any], row_before: NDArray[Any] | None, follows_break: NDArray[np.bool_]
    ) -> Piece:
        """Return the frames of successive rows; `row_before` them has shape (1,), or is None at the start."""
        is_first = np.arange(len(rows)) < (row_before is None)
        if row_before is None:
            row_before = rows[:1]
        previous = np.concatenate([row_before, rows[:-1]])
        is_known = (
            ~is_first & (previous["action"] >= 0) & (previous["b"] > 0.0) & (previous["b"] <= 1.0)
        )
        skips = ~is_first & (rows["step"] != previous["step"] + 1)
        flags = rows["flags"]
        n = len(rows)
        return Piece(
            values=self.spec.unscale(rows["observation"]),
            t=np.where(np.isfinite(rows["t"]), rows["t"], rows["step"] * self.period_s),
            sensor_age_s=np.zeros(n),
            crc_errors=np.zeros(n, dtype=np.int64),
            stale=(flags & STALE) != 0,
            gap=((flags & GAP) != 0) | follows_break | skips,
            applied=((flags & NOT_APPLIED) == 0) & (is_known | is_first),
            extras={
                "action": np.where(is_known, previous["action"], -1.0),
                "b": np.where(is_known, previous["b"], np.nan),
            },
        )

    def _rows(
        self, file: Path, is_after_break: bool
    ) -> tuple[NDArray[Any], NDArray[np.bool_], bool]:
        """Return a file's sound rows, which of them follow a damaged one, and whether the file ends with damage."""
        header = self._header(file)
        fields = [
            tuple(tuple(x) if isinstance(x, list) else x for x in field)
            for field in header["dtype"]
        ]
        data = memoryview(file.read_bytes())[header["offset"] :]
        dtype = np.dtype(fields)
        n, n_torn = divmod(len(data), dtype.itemsize)
        rows = np.frombuffer(data, dtype, n)
        ends = range(dtype.itemsize - _CRC_BYTES, n * dtype.itemsize, dtype.itemsize)
        sums = [crc32(data[end - dtype.itemsize + _CRC_BYTES : end]) for end in ends]
        sound = rows["crc"] == np.array(sums, dtype=np.uint32)
        if n_torn or not sound.all():
            self.note(
                f"{file.name}: {(~sound).sum()} of {n} rows and {n_torn} further bytes are damaged or truncated"
            )
        follows_gap = np.concatenate([[is_after_break], ~sound])
        return rows[sound], follows_gap[:-1][sound], bool(n_torn) or bool(follows_gap[-1])

    @staticmethod
    def _header(file: Path) -> dict[str, Any]:
        """Return a file's first line.

        Raises:
            BackendUnavailable: If it is not a recording's, or of an unknown version.
        """
        try:
            with file.open("rb") as opened:
                header = json.loads(opened.readline(_LONGEST_LINE))
        except (OSError, ValueError) as error:
            raise BackendUnavailable(f"{file} cannot be read as a recording: {error}") from None
        if not isinstance(header, dict) or header.get("format") != FORMAT:
            raise BackendUnavailable(
                f"{file} is not a recording: its first line does not name the format {FORMAT}"
            )
        if header.get("version") != VERSION:
            raise BackendUnavailable(
                f"{file} has version {header.get('version')} of the format {FORMAT}; this program replays version "
                f"{VERSION} only"
            )
        without_sum = {name: value for name, value in header.items() if name != "crc"}
        if header.get("crc") != crc32(json.dumps(without_sum).encode()):
            raise BackendUnavailable(
                f"the first line of {file} is damaged: it does not have the CRC-32 that was written in it"
            )
        return header


def _files(path: Path) -> list[Path]:
    """Return a recording's files in order; the oldest may be missing."""
    by_number = {}
    for file in path.parent.glob(f"{path.stem}*{path.suffix}"):
        number = re.fullmatch(rf"{re.escape(path.stem)}(?:-([1-9]\d*))?", file.stem)
        if number:
            by_number[int(number[1] or 1)] = file
    return [by_number[number] for number in sorted(by_number)]
