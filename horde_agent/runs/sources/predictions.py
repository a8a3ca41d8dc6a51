"""Predictions for another program: a line of JSON for each row that it wrote."""

from __future__ import annotations

import json
import logging
import math
import os
import socket
import stat
import sys
from collections.abc import Callable, Sequence
from fnmatch import fnmatchcase
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from horde_agent.kernels.decimals import MOST_BYTES, write_numbers
from horde_agent.refusals import BadInput

STANDARD_OUTPUT = "-"
_MOST_HEAD_BYTES = 64  # of a line before its predictions
_TAIL = b"}}\n"
_log = logging.getLogger(__name__)


def chosen(names: Sequence[str], pattern: str | None) -> list[int]:
    """Return the numbers of the questions whose names match a shell pattern, all without one.

    Raises:
        BadInput: If no name matches.
    """
    if pattern is None:
        return list(range(len(names)))
    numbers = [i for i, name in enumerate(names) if fnmatchcase(name, pattern)]
    if not numbers:
        raise BadInput(
            f"--predict {pattern}: no question's name matches; the first one is {names[0]!r}"
        )
    return numbers


class PredictionWriter:
    """Writes predictions to standard output, a file or a Unix socket; a reader that disconnects ends no run.

    Args:
        target: "-", the path of a file, to which lines are appended, or that of a socket, to which
            it connects.
        names: Of all questions.
        pattern: Shell pattern of the names whose predictions are written; None for all.

    Raises:
        BadInput: If no name matches, or the target cannot be opened.
    """

    def __init__(self, target: str, names: Sequence[str], pattern: str | None) -> None:
        self._numbers = np.array(chosen(names, pattern), dtype=np.int64)
        labels = [f", {json.dumps(names[i])}: " for i in self._numbers.tolist()]
        labels[0] = labels[0].removeprefix(", ")
        self._labels = np.frombuffer(bytearray("".join(labels).encode()), dtype=np.uint8)
        self._label_ends = np.cumsum([len(label) for label in labels])
        n_most = _MOST_HEAD_BYTES + len(self._labels) + len(labels) * MOST_BYTES + len(_TAIL)
        self._line = bytearray(n_most)
        self._bytes = np.frombuffer(self._line, dtype=np.uint8)
        self._fill(0.0, np.zeros(len(names)))  # compiles before the first row
        self._target = target
        self._write, self._close = _opened(target)
        self._is_lost = False

    def write(self, time_s: float, predictions: NDArray[np.floating]) -> None:
        """Write a row's time in seconds and the predictions at it, shape (n_questions,); NaN becomes null."""
        n_bytes = self._fill(time_s, predictions)
        self._send(memoryview(self._line)[:n_bytes])

    def _fill(self, time_s: float, predictions: NDArray[np.floating]) -> int:
        """Make the line of a row; return its length in bytes."""
        line = self._line
        head = f'{{"time": {_json(time_s)}, "predictions": {{'.encode()
        line[: len(head)] = head
        end = write_numbers(
            values=np.ascontiguousarray(predictions, dtype=np.float64),
            places=self._numbers,
            labels=self._labels,
            label_ends=self._label_ends,
            text=self._bytes,
            at=len(head),
        )
        n_bytes = int(end) + len(_TAIL)
        line[end:n_bytes] = _TAIL
        return n_bytes

    def write_fault(self, fault: str) -> None:
        """Write that a row was left out, and why."""
        line = json.dumps({"error": fault}) + "\n"
        self._send(memoryview(line.encode()))

    def _send(self, remaining: memoryview) -> None:
        if self._is_lost:
            return
        try:
            while remaining:
                remaining = remaining[self._write(remaining) :]
        except OSError as error:
            self._is_lost = True
            _log.warning(
                "predictions cannot be written to %s (%s): no further ones are; learning continues",
                self._target,
                error.strerror,
            )

    def close(self) -> None:
        """Close the target. Closing twice does nothing."""
        self._is_lost = True
        self._close()


def _json(number: float) -> str:
    """Return a number in JSON: null if it is not finite."""
    if not math.isfinite(number):
        return "null"
    return f"{number:.15g}"


def _opened(target: str) -> tuple[Callable[[memoryview], int], Callable[[], None]]:
    """Return functions that write bytes to a target, as many as they return, and close it."""
    try:
        if target == STANDARD_OUTPUT:
            sys.stdout.flush()
            file = os.fdopen(os.dup(sys.stdout.fileno()), "wb", buffering=0)
            return file.write, file.close
        path = Path(target)
        if path.exists() and stat.S_ISSOCK(path.stat().st_mode):
            connection = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
            connection.connect(target)
            return connection.send, connection.close
        file = path.open("ab", buffering=0)
    except OSError as error:
        raise BadInput(f"--predictions {target} cannot be written ({error.strerror})") from None
    return file.write, file.close
