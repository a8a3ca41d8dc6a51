"""Output streams that survive a closed terminal or broken pipe.

A run, its recording and stopping the robot do not depend on printed output.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import Any, TextIO


class Unfailing:
    """A text stream that never raises: after its first error, output is dropped.

    Its file is then replaced by the null device, because the interpreter flushes the rest when it exits.

    Args:
        stream: Where to write.

    Attributes:
        is_lost: True after an error.
    """

    def __init__(self, stream: TextIO) -> None:
        self._stream = stream
        self.is_lost = False

    def __getattr__(self, name: str) -> Any:
        return getattr(self._stream, name)

    def write(self, text: str) -> int:
        """Write or drop the text; return its length."""
        if not self.is_lost:
            try:
                self._stream.write(text)
            except UnicodeEncodeError:  # a terminal with another encoding
                coded = text.encode(self._stream.encoding or "ascii", "backslashreplace")
                self.write(coded.decode(self._stream.encoding or "ascii"))
            except RuntimeError:  # a signal handler prints during a print: dropped
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
    """Replace standard output and error by `Unfailing` streams in this context; closed ones (None) stay None."""
    before = sys.stdout, sys.stderr
    out, err = (Unfailing(stream) if stream is not None else None for stream in before)
    sys.stdout, sys.stderr = out, err
    try:
        yield
    finally:
        for stream in (out, err):
            if stream is not None:
                stream.flush()  # the interpreter would do this at exit, and fail
        sys.stdout, sys.stderr = before
