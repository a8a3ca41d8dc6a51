"""RecordedRun: the record of a life, as a run's folder keeps it (`log/life.rec`), played as a body.

The file says what it is: its first line is JSON, of `offset` bytes, which names format, body and fields; rows of fixed
size follow, each with the CRC-32 of the bytes before it in its last field. Two lines of numpy read it:

    header = json.loads(open("life.rec", "rb").readline())
    rows = numpy.fromfile("life.rec", [tuple(field) for field in header["dtype"]], offset=header["offset"])

A long life goes on in "life-2.rec" and so on. Row i holds the observation after `step` periods, scaled to 0..1, and the
action taken *from* it with its probability b: the frame that follows tells of them, as `action` and `b`. A row whose
CRC-32 is another is left out, and so is a torn end; what comes after it follows a gap, as where steps are missing.
"""

from __future__ import annotations

import json
import logging
import re
from pathlib import Path
from typing import Any
from zlib import crc32

import numpy as np
from numpy.typing import NDArray

from horde_env.backend import Floats, Frame
from horde_env.errors import BackendUnavailable
from horde_env.robot import RobotSpec, critterbot

FORMAT, VERSION = "horde-life", 2
GAP, NOT_APPLIED, STALE = 1, 2, 16  # bits of `flags`
_LONGEST_LINE = 1 << 24
_CRC_BYTES = 4

_log = logging.getLogger(__name__)


def is_run(path: str | Path) -> bool:
    """Return whether a path names a run's folder with a record in it, or a file of such a record."""
    path = Path(path)
    return path.suffix == ".rec" or (path / "log" / "life.rec").is_file()


class RecordedRun:
    """The record of a life as a Backend: `exchange` ignores its command, and the frame after the last one never comes.

    Each reset plays it from its beginning. A frame tells of the choice that led to it, `action` and `b`; where there
    was none, as in a drive, they are -1 and NaN, and `applied` is False: nothing can be learned from there. Where the
    life knew its pose, so do the frames. One file of the record is held at a time: an hour of it.

    Attributes:
        notes: What a reader of results from it must know; of what is damaged once that was read.

    Args:
        run: The run's folder, or the first file of its record.
        spec: The robot that lived it; the Critterbot when None.

    Raises:
        BackendUnavailable: If there is no such record, or it is of another robot; from `reset` and `exchange`, if a
            file of it cannot be read.
    """

    def __init__(self, run: str | Path, spec: RobotSpec | None = None) -> None:
        self.path = Path(run) if Path(run).suffix == ".rec" else Path(run) / "log" / "life.rec"
        self.spec = spec or critterbot()
        self.period_s = self.spec.period_s
        self.notes: tuple[str, ...] = ()
        self._files = _files(self.path)
        if not self._files:
            raise BackendUnavailable(f"there is no record of a life at {self.path}; give the folder of a run")
        names = [channel["name"] for channel in self._header(self._files[0]).get("channels", [])]
        if names != (mine := [channel.name for channel in self.spec.channels]):
            raise BackendUnavailable(
                f"{self.path} is the life of another robot: it has {len(names)} channels, {', '.join(names[:3])} ..., "
                f"and this one has {len(mine)}, {', '.join(mine[:3])} ..."
            )
        self._close()

    def _close(self) -> None:
        self._rows: NDArray[Any] = np.zeros(0)
        self._breaks: NDArray[np.bool_] = np.zeros(0, dtype=bool)
        self._file = self._next = 0
        self._has_begun = self._has_pose = self._is_after_break = False
        self._before: Any = None

    def reset(self, rng: np.random.Generator) -> Frame:  # noqa: ARG002
        """Return the first frame.

        Raises:
            BackendUnavailable: If the record holds none.
        """
        self._close()
        if not self._read_on():
            raise BackendUnavailable(f"{self.path} holds no row of a life")
        self._has_begun, self._has_pose = True, bool(np.isfinite(self._rows[self._next]["pose"]).all())
        return self._frame()

    def exchange(self, command: Floats) -> Frame:  # noqa: ARG002
        """Return the next frame, whatever the command.

        Raises:
            BackendUnavailable: After the last frame, and before the first reset.
        """
        if not self._has_begun or not self._read_on():
            raise BackendUnavailable(f"{self.path} has no frame left to play; reset() begins it again")
        return self._frame()

    def close(self) -> None:
        """Let go of the record. Closing twice does nothing."""
        self._close()

    # ---- frames ------------------------------------------------------------------------------------------------------

    def _frame(self) -> Frame:
        """Return the next row as a frame; there is one."""
        row, before, is_after_break = self._rows[self._next], self._before, bool(self._breaks[self._next])
        self._next += 1
        self._before = row
        action, b = (-1, np.nan) if before is None else (int(before["action"]), float(before["b"]))
        is_known = action >= 0 and 0.0 < b <= 1.0
        flags, step = int(row["flags"]), int(row["step"])
        skips = before is not None and step != int(before["step"]) + 1
        t, pose = float(row["t"]), row["pose"].tolist()
        return Frame(
            values=self.spec.unscale(row["observation"]),
            t=t if np.isfinite(t) else step * self.period_s,
            stale=bool(flags & STALE),
            gap=bool(flags & GAP) or is_after_break or skips,
            applied=not flags & NOT_APPLIED and (is_known or before is None),
            last=not self._read_on(),
            extras={
                "action": float(action) if is_known else -1.0,
                "b": b if is_known else float("nan"),
                **(dict(zip(("x_m", "y_m", "heading_rad"), pose, strict=True)) if self._has_pose else {}),
            },
        )

    def _read_on(self) -> bool:
        """See to it that the next row is there, from the next file where this one is through; False at the end."""
        while self._next >= len(self._rows):
            if self._file >= len(self._files):
                return False
            self._rows, self._breaks = self._read(self._files[self._file])
            self._file, self._next = self._file + 1, 0
        return True

    def _read(self, file: Path) -> tuple[NDArray[Any], NDArray[np.bool_]]:
        """Return the sound rows of a file, and which of them come after one that is left out."""
        header = self._header(file)
        fields = [tuple(tuple(x) if isinstance(x, list) else x for x in field) for field in header["dtype"]]
        data = memoryview(file.read_bytes())[header["offset"] :]
        dtype = np.dtype(fields)
        n, n_torn = divmod(len(data), dtype.itemsize)
        rows = np.frombuffer(data, dtype, n)
        ends = range(dtype.itemsize - _CRC_BYTES, n * dtype.itemsize, dtype.itemsize)
        sums = [crc32(data[end - dtype.itemsize + _CRC_BYTES : end]) for end in ends]
        sound = rows["crc"] == np.array(sums, dtype=np.uint32) if header["version"] != 1 else np.ones(n, dtype=bool)
        if n_torn or not sound.all():
            n_bad = int((~sound).sum())
            self._note(f"{file.name}: {n_bad} of {n} rows and {n_torn} further bytes are damaged or torn off")
        after = np.concatenate([[self._is_after_break], ~sound])
        self._is_after_break = bool(n_torn) or bool(after[-1])
        return rows[sound], after[:-1][sound]

    def _note(self, fault: str) -> None:
        if fault not in self.notes:
            self.notes = (*self.notes, fault)
            _log.warning("%s", fault)

    @staticmethod
    def _header(file: Path) -> dict[str, Any]:
        """Return a file's first line.

        Raises:
            BackendUnavailable: If it is none of a life's record, or one that this program does not know.
        """
        try:
            with file.open("rb") as opened:
                header = json.loads(opened.readline(_LONGEST_LINE))
        except (OSError, ValueError) as error:
            raise BackendUnavailable(f"{file} cannot be read as the record of a life: {error}") from None
        if not isinstance(header, dict) or header.get("format") != FORMAT:
            raise BackendUnavailable(f"{file} is no record of a life: its first line names no format {FORMAT}")
        if header.get("version") not in (1, VERSION):
            raise BackendUnavailable(
                f"{file} is of version {header.get('version')} of the format {FORMAT}, and this program plays versions "
                f"up to {VERSION}"
            )
        return header


def _files(path: Path) -> list[Path]:
    """Return the files of a record that are there, in their order; the oldest may have been moved away."""
    found = {}
    for file in path.parent.glob(f"{path.stem}*{path.suffix}"):
        number = re.fullmatch(rf"{re.escape(path.stem)}(?:-([1-9]\d*))?", file.stem)
        if number:
            found[int(number[1] or 1)] = file
    return [found[number] for number in sorted(found)]
