"""The errors of a robot body, as one tree.

HordeEnvError
├── BackendUnavailable   the body cannot be opened here (no PyBullet, no display, no such log, no such port)
│   └── EmergencyStop    the emergency stop of this robot is set
├── BackendLost          a body that was open stopped answering
└── PortLost             an open port disconnected, or accepts no bytes

A message states the failure with its numbers, the expectation, and the next action.
"""

from __future__ import annotations

from pathlib import Path


class HordeEnvError(Exception):
    """Base class of this package's errors, except ValueError and TypeError.

    Examples:
        >>> from horde_env import make_replay_env
        >>> try:
        ...     make_replay_env(log="no/such.csv")
        ... except HordeEnvError as error:
        ...     print(error)
        there is no recorded life at no/such.csv; give the path of its CSV file
    """


class BackendUnavailable(HordeEnvError):
    """The body cannot be opened on this machine.

    Examples:
        >>> from horde_env import RecordedLife
        >>> RecordedLife("no/such.csv")
        Traceback (most recent call last):
        horde_env.errors.BackendUnavailable: there is no recorded life at no/such.csv; give the path of its CSV file
    """


class EmergencyStop(BackendUnavailable):
    """The emergency stop is set until a person clears it; `path` is its file, `remedy` what clears it.

    Examples:
        >>> error = EmergencyStop("it drove at the cat", Path("critterbot.stop"), remedy="`horde-robot stop --clear`")
        >>> error.reason, error.remedy
        ('it drove at the cat', '`horde-robot stop --clear`')
    """

    def __init__(self, reason: str, path: Path, remedy: str = "") -> None:
        remedy = remedy or f"removing {path}"
        super().__init__(
            f"the emergency stop is set: {reason}. The robot does not move. Look at the robot, then clear the stop "
            f"by {remedy} (it is kept in {path})."
        )
        self.reason = reason
        self.path = path
        self.remedy = remedy


STOPS_BY_ITSELF = "The robot stops by itself 0.5 s after the last command that reached it."


class BackendLost(HordeEnvError):
    """The robot stopped answering; `refusal` is the error of the reconnection, `stops` what stops the wheels.

    Examples:
        >>> str(BackendLost("/dev/ttyUSB0", silent_s=30.2, limit_s=30.0, last_frame=7))[:53]
        'no frame from /dev/ttyUSB0 for 30.2 s (limit 30.0 s);'
    """

    def __init__(
        self,
        port: str,
        silent_s: float,
        limit_s: float,
        last_frame: int,
        refusal: str = "",
        stops: str = STOPS_BY_ITSELF,
    ) -> None:
        tried = ""
        if refusal:
            tried = f" Reconnecting failed: {refusal}"
        super().__init__(
            f"no frame from {port} for {silent_s:.1f} s (limit {limit_s:.1f} s); the last good one was number "
            f"{last_frame}.{tried} {stops} Check the cable and the robot's switch."
        )
        self.port = port
        self.silent_s = silent_s
        self.limit_s = limit_s
        self.last_frame = last_frame


class PortLost(HordeEnvError):
    """An open port disconnected, or accepts no bytes."""

    def __init__(self, url: str, reason: str) -> None:
        super().__init__(
            f"{url} was lost: {reason}. Make sure that the robot has stopped, then check its cable and its switch."
        )
        self.url = url
        self.reason = reason
