"""The stream as shards are told it: numbered entries of a fixed size, kept until no shard can need them again.

An entry is a row: what happened, and of a transition the action, its probability, the observation and the tiles. The
paper's stream takes 1.4 KB a step. Rare things (demons that come, weights that are set) carry a load beside the row.
"""

from __future__ import annotations

import os
import tempfile
import zlib
from collections.abc import Mapping
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from horde_agent.types import Floats, Tiles

BEGIN, LEARN, LEARN_LAST, TAKE, CHANGE = range(5)
"""A stream begins; a transition; the last one of a stream; steps that wait are taken; what the load says is done."""

_ROWS = 1_024  # of a chunk
_SUM_BYTES = 4  # of its CRC-32, behind it in its file
MOST_BYTES = 256_000_000  # of chunks in memory; older ones go to files


def row_type(n_channels: int, n_active: int, n_features: int) -> np.dtype[Any]:
    """Return the type of an entry: the observation as it is, tiles in as few bytes as they need."""
    tile = np.uint16 if n_features <= 1 << 16 else np.uint32
    return np.dtype(
        [
            ("verb", np.uint8),
            ("action", np.int32),
            ("probability", np.float64),
            ("observation", np.float64, (n_channels,)),
            ("tiles", tile, (n_active,)),
        ]
    )


class Entry(NamedTuple):
    """One thing that shards are told; but for the verb, what it does not need is zero.

    Attributes:
        verb: BEGIN, ..., CHANGE.
        action: That was taken.
        probability: b(action).
        observation: Of the state reached, shape (n_channels,).
        tiles: Of the state reached, shape (n_active,).
        load: What is to be changed.
    """

    verb: int
    action: int = 0
    probability: float = 0.0
    observation: Floats | None = None
    tiles: Tiles | None = None
    load: Any = None


class RedoLog:
    """What shards were told since the oldest of their snapshots: whoever comes back from one is told it again.

    Args:
        row: Type of an entry.
        first: Number of the first entry to come.
        folder: For what memory has no room for, and for `keep`; a temporary one unless given.
        most_bytes: Kept in memory.

    Attributes:
        row: Type of an entry.
        first: Number of the oldest entry that is kept.
        next: Number of the next entry to come.
    """

    def __init__(
        self, row: np.dtype[Any], first: int = 1, folder: Path | None = None, most_bytes: int = MOST_BYTES
    ) -> None:
        self.row, self.first, self.next = row, first, first
        self._most_chunks = max(2, most_bytes // (_ROWS * row.itemsize))
        self._chunks: dict[int, NDArray[Any]] = {}
        self._files: dict[int, Path] = {}
        self._is_written: set[int] = set()  # chunks that will not change and are in their files
        self._temporary = None if folder else tempfile.TemporaryDirectory(prefix="horde-redo-")
        self._folder = folder or Path(self._temporary.name if self._temporary else "")
        self._loads: dict[int, Any] = {}

    def append(self, entry: Entry) -> int:
        """Take an entry, and return its number."""
        number = self.next
        chunk, place = divmod(number, _ROWS)
        if chunk not in self._chunks:
            self._chunks[chunk] = np.zeros(_ROWS, dtype=self.row)
            self._spill()
        rows = self._chunks[chunk]
        rows["verb"][place], rows["action"][place] = entry.verb, entry.action
        rows["probability"][place] = entry.probability
        if entry.observation is not None:
            rows["observation"][place], rows["tiles"][place] = entry.observation, entry.tiles
        if entry.load is not None:
            self._loads[number] = entry.load
        self.next = number + 1
        return number

    def read(self, first: int, last: int) -> bytes:
        """Return the rows of the entries first..last, one after another."""
        assert self.first <= first <= last < self.next, f"{first}..{last} of {self.first}..{self.next - 1}"
        out = []
        while first <= last:
            chunk, place = divmod(first, _ROWS)
            n = min(_ROWS - place, last - first + 1)
            out.append(self._rows(chunk)[place : place + n].tobytes())
            first += n
        return b"".join(out)

    def loads(self, first: int, last: int) -> dict[int, Any]:
        """Return what the entries first..last carry, by number."""
        return {number: load for number, load in self._loads.items() if first <= number <= last}

    def put_loads(self, loads: Mapping[int, Any]) -> None:
        """Know what entries carried, by number, of a log that was reopened: files hold the rows alone."""
        self._loads |= loads

    def drop_load(self, number: int) -> None:
        """Have an entry carry nothing."""
        self._loads.pop(number, None)

    def forget(self, before: int) -> None:
        """Keep no entry before this number."""
        self.first = max(self.first, min(before, self.next))
        self._loads = {number: load for number, load in self._loads.items() if number >= self.first}
        for chunk in [c for c in self._chunks if c < self.first // _ROWS]:
            del self._chunks[chunk]
        for chunk in [c for c in self._files if c < self.first // _ROWS]:
            self._files.pop(chunk).unlink(missing_ok=True)
            self._is_written.discard(chunk)

    @property
    def n_bytes(self) -> int:
        """Size of what is kept, in memory and in files."""
        return len(self._chunks.keys() | self._files.keys()) * _ROWS * self.row.itemsize

    # ---- files ------------------------------------------------------------------------------------------------------

    def keep(self) -> None:
        """Have the disk keep all entries, for a driver that comes after this one; see `reopen`."""
        for chunk in sorted(self._chunks.keys() - self._is_written):
            self._write(chunk)

    def reopen(self, first: int, last: int) -> None:
        """Go on after the entry `last` of a log that was kept in this folder, as far as it goes back to `first`.

        A log that was kept to a later entry serves as well: what came after `last` is overwritten. Where a file is
        missing or damaged, it goes back to that.
        """
        self.first = self.next = last + 1
        for chunk in range(last // _ROWS, -1, -1):
            path = self._path(chunk)
            if not is_sound(path) or path.stat().st_size != _ROWS * self.row.itemsize + _SUM_BYTES:
                break
            self._files[chunk], self.first = path, max(first, chunk * _ROWS)
            if self.first == first:
                break
        if last // _ROWS in self._files:
            self._chunks[last // _ROWS] = np.array(self._rows(last // _ROWS))
        self._is_written = set(self._files) - {last // _ROWS}
        self.first = max(self.first, 1)

    def close(self, *, keeps_files: bool = False) -> None:
        """Remove the files, unless they are for whoever comes after."""
        if not keeps_files:
            for path in self._files.values():
                path.unlink(missing_ok=True)
        if self._temporary is not None:
            self._temporary.cleanup()

    def _path(self, chunk: int) -> Path:
        return self._folder / f"redo-{chunk:08d}.rows"

    def _rows(self, chunk: int) -> NDArray[Any]:
        """Return a chunk, from memory or from its file."""
        return self._chunks[chunk] if chunk in self._chunks else np.fromfile(self._files[chunk], self.row, _ROWS)

    def _spill(self) -> None:
        """Write the oldest chunk to a file, where there are too many in memory."""
        while len(self._chunks) > self._most_chunks:
            chunk = min(self._chunks)
            if chunk not in self._is_written:
                self._write(chunk)
            del self._chunks[chunk]

    def _write(self, chunk: int) -> None:
        """Write a chunk to its file, whole or not at all."""
        self._folder.mkdir(parents=True, exist_ok=True)
        path, part = self._path(chunk), self._path(chunk).with_suffix(".part")
        with part.open("wb") as file:
            data = self._chunks[chunk].tobytes()
            file.write(data + _sum(data))
            file.flush()
            os.fsync(file.fileno())
        part.rename(path)
        self._files[chunk] = path
        if (chunk + 1) * _ROWS <= self.next:
            self._is_written.add(chunk)


def is_sound(path: Path) -> bool:
    """Say whether a file of a log is there, and holds what was written to it."""
    data = path.read_bytes() if path.is_file() else b""
    return len(data) > _SUM_BYTES and data[-_SUM_BYTES:] == _sum(data[:-_SUM_BYTES])


def _sum(data: bytes) -> bytes:
    """Return the CRC-32 of some rows."""
    return zlib.crc32(data).to_bytes(_SUM_BYTES, "little")
