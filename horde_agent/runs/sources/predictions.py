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

from horde_agent.refusals import BadInput

STANDARD_OUTPUT = "-"
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
        keys = [json.dumps(names[i]) for i in self._numbers.tolist()]
        self._keys = keys
        values = ", ".join(f"{key.replace('%', '%%')}: %.9g" for key in keys)
        self._template = f'{{"time": %s, "predictions": {{{values}}}}}\n'
        self._target = target
        self._write, self._close = _opened(target)
        self._is_lost = False

    def write(self, time_s: float, predictions: NDArray[np.floating]) -> None:
        """Write a row's time in seconds and the predictions at it, shape (n_questions,); NaN becomes null."""
        values = predictions[self._numbers].tolist()
        if all(map(math.isfinite, values)):
            self._send(self._template % (_json(time_s), *values))
            return
        numbers = dict(zip(self._keys, map(_json, values), strict=True))
        shown = ", ".join(f"{key}: {number}" for key, number in numbers.items())
        self._send(f'{{"time": {_json(time_s)}, "predictions": {{{shown}}}}}\n')

    def write_fault(self, fault: str) -> None:
        """Write that a row was left out, and why."""
        self._send(json.dumps({"error": fault}) + "\n")

    def _send(self, line: str) -> None:
        if self._is_lost:
            return
        remaining = memoryview(line.encode())
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
