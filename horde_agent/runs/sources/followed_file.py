"""Lines of a file that grows, and that is renamed when another one takes its place."""

from __future__ import annotations

import glob
import hashlib
import os
import stat
import threading
from collections.abc import Iterator
from io import FileIO
from pathlib import Path
from typing import NamedTuple

from horde_agent.refusals import BadInput
from horde_agent.runs.sources.line_reader import MOST_BYTES, Line

_POLL_S = 0.2
_PIECE_BYTES = 1 << 16
_DIGEST_BYTES = 4096
_PACKED = (".gz", ".bz2", ".xz", ".zst")


class Place(NamedTuple):
    """A place in a file, which is found again after the file was renamed.

    Attributes:
        inode: Its number in the file system.
        offset: Number of bytes before the place.
        digest: SHA-256 of its first bytes up to the place, at most 4,096.
    """

    inode: int
    offset: int = 0
    digest: str = ""

    def is_in(self, file: Path, *, may_be_copied: bool = False) -> bool:
        """Return whether a file has this place; a copy has another number, and the same first bytes."""
        try:
            with file.open("rb") as opened:
                status = os.fstat(opened.fileno())
                head = opened.read(min(self.offset, _DIGEST_BYTES))
        except OSError:
            return False
        has_bytes = status.st_size >= self.offset and (not head or _digest(head) == self.digest)
        return has_bytes and (status.st_ino == self.inode or may_be_copied)


class FollowedFile:
    """Reads the lines of a file as they are written, and then those of the file that replaces it.

    Args:
        path: The file.
        place: Where to begin; at the file's beginning when None.

    Attributes:
        fault, waited_s: As of `Lines`: a file has none, and lines wait in it.
        has_waited: Whether all lines that were there had been read once.

    Raises:
        BadInput: If it is no file, or the place is in no file there.
    """

    def __init__(self, path: Path, place: Place | None = None) -> None:
        if not path.is_file():
            problem = "does not exist"
            if path.exists():
                problem = "is none"
            raise BadInput(f"--follow needs a file that grows, and {path} {problem}")
        self._path = path
        self._is_stopped = threading.Event()
        self._file = self._opened(place)
        self._start = self._end = self._file.tell()
        self._begins_file = False
        self._follows_loss = False
        self.has_waited = False
        self.fault: OSError | None = None
        self.waited_s = 0.0

    def _opened(self, place: Place | None) -> FileIO:
        """Return the file of a place, at the place."""
        if place is None:
            return self._path.open("rb", buffering=0)
        series = [file.path for file in self._series()]
        matches = [file for file in series if place.is_in(file)]
        if not matches:
            # Files of one header have the same first bytes: a copy is found if it is the only one
            matches = [file for file in series if place.is_in(file, may_be_copied=True)]
        if len(matches) == 1:
            opened = matches[0].open("rb", buffering=0)
            opened.seek(place.offset)
            return opened
        raise BadInput(
            f"the file that was read up to byte {place.offset:,} is gone, as {self._path} or as one that it was "
            f"renamed to, so rows after that place are lost: start a new run"
        )

    def _series(self) -> list[_Named]:
        """Return the files that the path was renamed to, the oldest first, and the path's if there is one.

        They are listed again if the path was renamed meanwhile: one of them would be missing.
        """
        while True:
            newest = _named(self._path)
            renamed: list[_Named] = []
            for path in self._path.parent.glob(f"{glob.escape(self._path.name)}?*"):
                file = _named(path)
                if file is not None and path.suffix not in _PACKED:
                    renamed.append(file)
            if _number_of(_named(self._path)) == _number_of(newest):
                break
        renamed.sort(key=lambda file: file.changed_ns)
        if newest is not None:
            renamed.append(newest)
        return renamed

    def stop(self) -> None:
        """End the lines; safe in a signal handler."""
        self._is_stopped.set()

    def close(self) -> None:
        """Close the file."""
        self._file.close()

    def place(self, *, is_behind: bool) -> Place:
        """Return the place before the newest line, or behind it."""
        offset = self._start
        if is_behind:
            offset = self._end
        position = self._file.tell()
        self._file.seek(0)
        head = self._file.read(min(offset, _DIGEST_BYTES)) or b""
        self._file.seek(position)
        digest = ""
        if head:
            digest = _digest(head)
        return Place(os.fstat(self._file.fileno()).st_ino, offset, digest)

    def __iter__(self) -> Iterator[Line]:
        """Yield each line once it ends, until `stop`."""
        unfinished = bytearray()
        is_cut = False
        while not self._is_stopped.is_set():
            piece = self._next_piece(has_unfinished=bool(unfinished))
            if piece is None:
                unfinished.clear()
                continue
            behind = self._file.tell() - len(piece)
            *lines, last_part = piece.split(b"\n")
            for line in lines:
                behind += len(line) + 1
                self._start = self._end
                self._end = behind
                yield Line(
                    bytes(unfinished + line).removesuffix(b"\r"),
                    is_cut=is_cut,
                    begins_file=self._begins_file,
                    follows_loss=self._follows_loss,
                )
                self._begins_file = False
                self._follows_loss = False
                unfinished.clear()
                is_cut = False
                if self._is_stopped.is_set():
                    return
            if not is_cut:
                unfinished += last_part
                is_cut = len(unfinished) > MOST_BYTES

    def _next_piece(self, *, has_unfinished: bool) -> bytes | None:
        """Return the bytes that were written since, empty after a wait; None if another file began.

        A line without an end is whole when its file was replaced.
        """
        file = self._file
        # First: what is written before a file is replaced, is there then
        is_replaced = self._is_replaced()
        piece = file.read(_PIECE_BYTES) or b""
        if piece:
            return piece
        if is_replaced:
            if has_unfinished:
                return b"\n"
            following = self._opened_next()
            if following is not None:
                self._begin(following)
                return None
        if os.fstat(file.fileno()).st_size < file.tell():
            self._begin(self._path.open("rb", buffering=0))
            self._follows_loss = True
            return None
        self.has_waited = True
        self._is_stopped.wait(_POLL_S)
        return b""

    def _is_replaced(self) -> bool:
        """Return whether another file has the path."""
        try:
            return self._path.stat().st_ino != os.fstat(self._file.fileno()).st_ino
        except OSError:  # renamed, and the next one is not there yet
            return False

    def _opened_next(self) -> FileIO | None:
        """Return the file that replaced the present one, which may be renamed, too; None if it was just renamed."""
        present = os.fstat(self._file.fileno()).st_ino
        series = self._series()
        numbers = [file.inode for file in series]
        place = len(series) - 1  # if the present one was removed
        if present in numbers:
            place = numbers.index(present) + 1
        if not 0 <= place < len(series):
            return None
        following = series[place]
        try:
            opened = following.path.open("rb", buffering=0)
        except OSError:
            return None
        if os.fstat(opened.fileno()).st_ino == following.inode:
            return opened
        opened.close()
        return None

    def _begin(self, file: FileIO) -> None:
        self._file.close()
        self._file = file
        self._start = 0
        self._end = 0
        self._begins_file = True


class _Named(NamedTuple):
    """A file as it was listed."""

    path: Path
    inode: int
    changed_ns: int


def _named(path: Path) -> _Named | None:
    """Return the file of a path; None if there is none."""
    try:
        status = path.stat()
    except OSError:  # renamed
        return None
    if not stat.S_ISREG(status.st_mode):
        return None
    return _Named(path, status.st_ino, status.st_mtime_ns)


def _number_of(file: _Named | None) -> int | None:
    if file is None:
        return None
    return file.inode


def _digest(head: bytes) -> str:
    return hashlib.sha256(head).hexdigest()
