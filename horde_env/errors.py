"""Everything that can go wrong with a body, as one tree.

HordeEnvError
├── BackendUnavailable   the body cannot be opened here (no PyBullet, no display, no such log, no such port)
│   └── EmergencyStop    a person, or a second Ctrl-C, has stopped this robot until further notice
├── BackendLost          a body that was open stopped answering
└── PortLost             a port that was open went away, or accepts no bytes

A message says what happened with the numbers, what was expected, and what to do next.
"""

from __future__ import annotations

from pathlib import Path
from typing import TypeVar

T = TypeVar("T")


class HordeEnvError(Exception):
    """Base class of what this package raises beside ValueError."""


class BackendUnavailable(HordeEnvError):
    """The body cannot be opened on this machine as asked."""


class EmergencyStop(BackendUnavailable):
    """The robot was stopped until a person clears the stop; `path` is the file that holds it."""

    def __init__(self, reason: str, path: Path) -> None:
        super().__init__(
            f"the emergency stop is set: {reason}. The robot does not move. Look at the robot, then clear the stop "
            f"with `horde-robot stop --clear` (it is kept in {path})."
        )
        self.reason, self.path = reason, path


STOPS_BY_ITSELF = "The robot stops by itself 0.5 s after the last command that reached it."


class BackendLost(HordeEnvError):
    """The robot stopped answering; `refusal` says why reaching it again failed, `stops` what then stops its wheels."""

    def __init__(
        self,
        port: str,
        silent_s: float,
        limit_s: float,
        last_frame: int,
        refusal: str = "",
        stops: str = STOPS_BY_ITSELF,
    ) -> None:
        tried = f" Reaching it again failed: {refusal}" if refusal else ""
        super().__init__(
            f"no frame from {port} for {silent_s:.1f} s (limit {limit_s:.1f} s); the last good one was number "
            f"{last_frame}.{tried} {stops} Look at the cable and at the robot's switch, then start again."
        )
        self.port, self.silent_s, self.limit_s, self.last_frame = port, silent_s, limit_s, last_frame


class PortLost(HordeEnvError):
    """A port that was open went away, or accepts no bytes."""

    def __init__(self, url: str, reason: str) -> None:
        super().__init__(f"{url} was lost: {reason}. See that the robot stands, then look at its cable and its switch.")
        self.url, self.reason = url, reason


def opened(part: T | None, unless: str) -> T:
    """Return a part of a body that is there from its reset to its close.

    Raises:
        BackendUnavailable: If it is not there; `unless` says what is the matter, and the cure is a reset.
    """
    if part is None:
        raise BackendUnavailable(f"{unless}: call reset() first.")
    return part
