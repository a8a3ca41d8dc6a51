"""Lines of a pipe, read by a thread: a request to stop ends the wait for the next one."""

from __future__ import annotations

import os
import sys
import threading
import time
from collections.abc import Callable, Iterator
from queue import SimpleQueue
from typing import Any, NamedTuple, Protocol

from horde_agent.formats.part import Chunk
from horde_agent.formats.tables import Table
from horde_agent.refusals import BadInput

MOST_BYTES = 1 << 24
"""Of a line; the rest of a longer one is left out."""
_PIECE_BYTES = 1 << 16
_MOST_WAITING = 16  # pieces: further ones wait in the pipe


class Line(NamedTuple):
    """A line.

    Attributes:
        data: Its bytes, without the end of the line.
        silent_s: Time in seconds for which the pipe was empty before it.
        is_cut: Whether it is longer than `MOST_BYTES`.
        begins_file: Whether it is the first line of another file.
        follows_loss: Whether lines before it may be lost.
        cells: Of a row that is no text, by column, each of shape (1,); None for a text.
        fault: Why nothing could be read here; None without a reason.
    """

    data: bytes
    silent_s: float = 0.0
    is_cut: bool = False
    begins_file: bool = False
    follows_loss: bool = False
    cells: Chunk | None = None
    fault: BadInput | None = None


class Lines(Protocol):
    """Lines of another program, in their order.

    Attributes:
        fault: The error of the system that ended them; None without one.
        waited_s: The longest time in seconds for which a line that was read waited to be taken.
    """

    fault: OSError | None
    waited_s: float

    def __iter__(self) -> Iterator[Line]:
        """Yield each line when it is there, until the end or `stop`; once."""

    def stop(self) -> None:
        """End the lines; safe in a signal handler."""

    def close(self) -> None:
        """Close what they are read from."""


class Pipe(Protocol):
    """A binary file of which what is there can be read."""

    def read1(self, size: int, /) -> bytes:
        """Return at least one byte, at most `size`; none at the end."""


class Descriptor:
    """An open file of the system, read without a buffer.

    A buffer has a lock, which a thread that waits for a row holds; Python aborts if it ends meanwhile.

    Args:
        number: Of the file.
    """

    def __init__(self, number: int) -> None:
        self._number = number

    def read1(self, size: int, /) -> bytes:
        """Return at least one byte, at most `size`; none at the end."""
        return os.read(self._number, size)


def standard_input() -> Pipe:
    """Return standard input; raise BadInput if it is closed."""
    if sys.stdin is None:
        raise BadInput("horde learn - reads standard input, which is closed")
    try:
        return Descriptor(sys.stdin.fileno())
    except (AttributeError, OSError):  # another program has replaced it
        pipe: Any = sys.stdin.buffer
        return pipe  # type: ignore[no-any-return]


class _Piece(NamedTuple):
    """Bytes that were read together; None is a request to stop.

    Attributes:
        silent_s: For how long there was none before, in seconds.
        read_s: When they were read.
    """

    data: bytes | None
    silent_s: float = 0.0
    read_s: float = 0.0


class LineReader:
    """Reads lines ahead, at most about 1 MB.

    Args:
        pipe: Where to read.
        clock: Time in seconds, from any point on.

    Attributes:
        fault: The error of the system that ended reading; None without one.
        waited_s: The longest time in seconds for which lines waited here to be taken.
    """

    def __init__(self, pipe: Pipe, clock: Callable[[], float] = time.monotonic) -> None:
        self._pipe = pipe
        self._clock = clock
        self._pieces = SimpleQueue[_Piece]()
        self._free = threading.Semaphore(_MOST_WAITING)
        self.fault: OSError | None = None
        self.waited_s = 0.0

    def stop(self) -> None:
        """End the lines after those that were read; safe in a signal handler."""
        self._pieces.put(_Piece(None))

    def close(self) -> None:
        """Leave the pipe open: another has opened it."""

    def __iter__(self) -> Iterator[Line]:
        """Yield each line when it has come, until the end of the pipe or `stop`; once."""
        threading.Thread(target=self._read, name="reading rows", daemon=True).start()
        unfinished = bytearray()
        is_cut = False
        silent_s = 0.0
        while True:
            piece = self._pieces.get()
            if piece.data is None:
                return
            self._free.release()
            self.waited_s = max(self.waited_s, self._clock() - piece.read_s)
            silent_s += piece.silent_s
            *lines, last_part = piece.data.split(b"\n")
            for line in lines:
                yield Line(bytes(unfinished + line).removesuffix(b"\r"), silent_s, is_cut)
                unfinished.clear()
                is_cut = False
                silent_s = 0.0
            if not is_cut:
                unfinished += last_part
                is_cut = len(unfinished) > MOST_BYTES
            if not piece.data:
                if unfinished:
                    yield Line(bytes(unfinished), silent_s, is_cut)
                return

    def _read(self) -> None:
        is_open = True
        while is_open:
            self._free.acquire()
            began_s = self._clock()
            data = b""
            try:
                data = self._pipe.read1(_PIECE_BYTES)
            except OSError as error:
                self.fault = error
            except ValueError:  # it was closed
                pass
            is_open = bool(data)
            read_s = self._clock()
            self._pieces.put(_Piece(data, read_s - began_s, read_s))


class TableLines:
    """The rows of a table, without waiting.

    Args:
        table: The table.

    Attributes:
        fault, waited_s: As of `Lines`: a table has none, and its rows wait in it.
    """

    def __init__(self, table: Table) -> None:
        self._table = table
        self._is_stopped = False
        self.fault: OSError | None = None
        self.waited_s = 0.0

    def stop(self) -> None:
        """End the rows; safe in a signal handler."""
        self._is_stopped = True

    def close(self) -> None:
        """Do nothing: files are open only while they are read."""

    def __iter__(self) -> Iterator[Line]:
        """Yield each row, until `stop`; once."""
        for number, cells in enumerate(self._table.row_cells(), 1):
            yield Line(f"{self._table.where}, row {number}".encode(), cells=cells)
            if self._is_stopped:
                return
