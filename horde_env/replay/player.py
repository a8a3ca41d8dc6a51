"""Recording: what all recorded streams share as robot bodies; a format turns its file into pieces of columns."""

from __future__ import annotations

import logging
from abc import ABC, abstractmethod
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from horde_env.backend import Floats, Frame, Ints
from horde_env.errors import BackendUnavailable
from horde_env.robot import RobotSpec, critterbot

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

    Each reset plays the recording from its beginning. If it has actions and their probabilities, a frame has those that
    led to it in `extras` (`action`, `b`). If they are invalid, they are -1 and NaN, and `applied` is False: nothing is
    learned from that step.

    Attributes:
        notes: Remarks for a reader of results; faults of the file are added as they are read.
    """

    def __init__(self, path: Path, spec: RobotSpec | None) -> None:
        self.path = path
        self.spec = spec or critterbot()
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
            BackendUnavailable: After the last frame, before the first reset, or if a further file cannot be read.
        """
        frame = next(self._frames, None)
        if frame is None:
            raise BackendUnavailable(f"{self.path} has no frame left to play; call reset() to play it again")
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
