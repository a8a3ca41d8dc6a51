"""RecordedRun: the recording in a run's folder (`log/life.rec`) as a robot body.

The file describes itself: its first line is JSON, of `offset` bytes, which names format, robot and fields; rows of
fixed size follow, each with the CRC-32 of the bytes before it in its last field. Two lines of numpy read it:

    header = json.loads(open("life.rec", "rb").readline())
    rows = numpy.fromfile("life.rec", [tuple(field) for field in header["dtype"]], offset=header["offset"])

A long run continues in "life-2.rec" and so on. Row i holds the observation after `step` periods, scaled to 0..1, and
the action taken *from* it with its probability b: both are in the extras of the next frame. A row with a wrong CRC-32
and a truncated end are dropped; the next row follows a gap, as after missing steps.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from zlib import crc32

import numpy as np
from numpy.typing import NDArray

from horde_env.errors import BackendUnavailable
from horde_env.replay.player import Piece, Recording
from horde_env.robot import RobotSpec

FORMAT, VERSION = "horde-life", 2
GAP, NOT_APPLIED, STALE = 1, 2, 16  # bits of `flags`
_LONGEST_LINE = 1 << 24
_CRC_BYTES = 4


def is_run(path: str | Path) -> bool:
    """Return whether a path names a run's folder with a recording, or a file of such a recording."""
    path = Path(path)
    return path.suffix == ".rec" or (path / "log" / "life.rec").is_file()


class RecordedRun(Recording):
    """The recording of a run as a Backend; see `Recording`.

    A drive has no actions, so nothing is learned from it. Frames have the robot's pose if it was recorded. One file, an
    hour of the run, is in memory at a time.

    Args:
        run: The run's folder, or the first file of its recording.
        spec: The recorded robot; the Critterbot if None.

    Raises:
        BackendUnavailable: If there is no such recording, or it is of another robot.
    """

    def __init__(self, run: str | Path, spec: RobotSpec | None = None) -> None:
        super().__init__(Path(run) if Path(run).suffix == ".rec" else Path(run) / "log" / "life.rec", spec)
        self._files = _files(self.path)
        if not self._files:
            raise BackendUnavailable(f"there is no recording at {self.path}; give the folder of a run")
        names = [channel["name"] for channel in self._header(self._files[0]).get("channels", [])]
        if names != (mine := [channel.name for channel in self.spec.channels]):
            raise BackendUnavailable(
                f"{self.path} was recorded with another robot: it has {len(names)} channels, {', '.join(names[:3])} "
                f"..., expected {len(mine)}, {', '.join(mine[:3])} ..."
            )

    def read(self) -> Iterator[Piece]:
        """Yield the recording file by file."""
        before: NDArray[Any] | None = None
        has_pose = is_after_break = False
        for file in self._files:
            rows, follows_break, is_after_break = self._rows(file, is_after_break)
            if not len(rows):
                continue
            if before is None:
                has_pose = bool(np.isfinite(rows[0]["pose"]).all())
            piece = self._piece(rows, before, follows_break)
            if has_pose:
                piece.extras.update(zip(("x_m", "y_m", "heading_rad"), rows["pose"].T, strict=True))
            before = rows[-1:]
            yield piece

    def _piece(self, rows: NDArray[Any], before: NDArray[Any] | None, follows_break: NDArray[np.bool_]) -> Piece:
        """Return the frames of successive rows; `before` is the row before them, shape (1,), or None at the start."""
        previous = np.concatenate([rows[:1] if before is None else before, rows[:-1]])
        is_first = np.arange(len(rows)) < (before is None)
        is_known = ~is_first & (previous["action"] >= 0) & (previous["b"] > 0.0) & (previous["b"] <= 1.0)
        skips = ~is_first & (rows["step"] != previous["step"] + 1)
        flags, n = rows["flags"], len(rows)
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

    def _rows(self, file: Path, is_after_break: bool) -> tuple[NDArray[Any], NDArray[np.bool_], bool]:
        """Return a file's sound rows, which of them follow a damaged one, and whether the file ends with damage."""
        header = self._header(file)
        fields = [tuple(tuple(x) if isinstance(x, list) else x for x in field) for field in header["dtype"]]
        data = memoryview(file.read_bytes())[header["offset"] :]
        dtype = np.dtype(fields)
        n, n_torn = divmod(len(data), dtype.itemsize)
        rows = np.frombuffer(data, dtype, n)
        ends = range(dtype.itemsize - _CRC_BYTES, n * dtype.itemsize, dtype.itemsize)
        sums = [crc32(data[end - dtype.itemsize + _CRC_BYTES : end]) for end in ends]
        sound = rows["crc"] == np.array(sums, dtype=np.uint32)
        if n_torn or not sound.all():
            self.note(f"{file.name}: {(~sound).sum()} of {n} rows and {n_torn} further bytes are damaged or truncated")
        after = np.concatenate([[is_after_break], ~sound])
        return rows[sound], after[:-1][sound], bool(n_torn) or bool(after[-1])

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
            raise BackendUnavailable(f"{file} is not a recording: its first line does not name the format {FORMAT}")
        if header.get("version") != VERSION:
            raise BackendUnavailable(
                f"{file} has version {header.get('version')} of the format {FORMAT}; this program replays version "
                f"{VERSION} only"
            )
        return header


def _files(path: Path) -> list[Path]:
    """Return a recording's files in order; the oldest may be missing."""
    found = {}
    for file in path.parent.glob(f"{path.stem}*{path.suffix}"):
        number = re.fullmatch(rf"{re.escape(path.stem)}(?:-([1-9]\d*))?", file.stem)
        if number:
            found[int(number[1] or 1)] = file
    return [found[number] for number in sorted(found)]
