"""Standard output and error that may go away while a life goes on: a closed terminal, a reader that has had enough.

What is printed is for people; a life, its record and the robot's stop must not depend on whether anybody still reads.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import Any, TextIO


class Unfailing:
    """A text stream whose writing never raises: from its first failure on, what is written is dropped.

    The file behind it then becomes the null device, since the interpreter, too, writes what is left when it ends.

    Args:
        stream: Where to write.

    Attributes:
        is_lost: Whether writing has failed.
    """

    def __init__(self, stream: TextIO) -> None:
        self._stream = stream
        self.is_lost = False

    def __getattr__(self, name: str) -> Any:
        return getattr(self._stream, name)

    def write(self, text: str) -> int:
        """Write, or drop; return how many characters were given."""
        if not self.is_lost:
            try:
                self._stream.write(text)
            except UnicodeEncodeError:  # a terminal of another alphabet
                coded = text.encode(self._stream.encoding or "ascii", "backslashreplace")
                self.write(coded.decode(self._stream.encoding or "ascii"))
            except RuntimeError:  # a signal's handler writes while the program is just writing: its words are dropped
                pass
            except (OSError, ValueError):  # gone, or closed
                self._lose()
        return len(text)

    def flush(self) -> None:
        """Flush, or do nothing."""
        if not self.is_lost:
            try:
                self._stream.flush()
            except RuntimeError:
                pass
            except (OSError, ValueError):
                self._lose()

    def _lose(self) -> None:
        self.is_lost = True
        with suppress(OSError, ValueError, AttributeError):
            nowhere = os.open(os.devnull, os.O_WRONLY)
            os.dup2(nowhere, self._stream.fileno())
            os.close(nowhere)


@contextmanager
def unfailing() -> Iterator[None]:
    """Make standard output and error unfailing meanwhile; one that is closed from the start is None and stays so."""
    before = sys.stdout, sys.stderr
    out, err = (Unfailing(stream) if stream is not None else None for stream in before)
    sys.stdout, sys.stderr = out, err
    try:
        yield
    finally:
        for stream in (out, err):
            if stream is not None:
                stream.flush()  # what the interpreter would write at its end, and fail
        sys.stdout, sys.stderr = before
