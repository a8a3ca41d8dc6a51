"""EmergencyLatch: a stop that outlives the process that asked for it, kept as one small file per robot.

While the file is there the robot does not move, whoever drives it and whatever is in the file; taking it away is the
only way on. Whatever hinders looking counts as set, for a stop that cannot be read may have been meant.

Who drives the robot and has stopped it says so in a second file beside it, so that whoever set the stop need not guess.
"""

from __future__ import annotations

import contextlib
import os
from pathlib import Path

from horde_env.errors import BackendUnavailable, EmergencyStop
from horde_env.hardware.folders import ROBOT, checked_name, state_folder, write_whole

_Identity = tuple[int, int, int]


class EmergencyLatch:
    """The emergency stop of one robot, shared by all processes of a user.

    Looking costs one `os.stat`, so that it can be done in every step. A stop that could not be written still holds in
    the process that asked for it.

    Args:
        path: The file; `default_path()` when None. Its folder need not exist.
    """

    def __init__(self, path: str | Path | None = None) -> None:
        self.path = default_path() if path is None else Path(path)
        self._name = str(self.path)
        self._unwritten = ""  # a reason that holds in this process alone
        self._seen: tuple[_Identity, str] | None = None

    @property
    def reason(self) -> str:
        """Why the robot must not move, in one line; "" while it may."""
        try:
            stat = os.stat(self._name)
        except FileNotFoundError:
            return self._unwritten
        except OSError as error:
            return f"{self._name} cannot be looked at ({error.strerror or error}), which counts as a stop"
        identity = (stat.st_ino, stat.st_mtime_ns, stat.st_size)
        if self._seen is None or self._seen[0] != identity:
            self._seen = identity, self._read()
        return self._seen[1]

    def set(self, reason: str) -> None:
        """Set the latch; one that is set keeps its first reason.

        Raises:
            BackendUnavailable: If the file cannot be written. Then the stop holds in this process alone.
        """
        if self.reason:
            return
        line = " ".join(reason.split()) or "no reason was given"
        self._unwritten = line
        self._forget_answer()
        try:
            write_whole(self.path, line + "\n")
        except OSError as error:
            raise BackendUnavailable(
                f"the emergency stop holds in this process alone, for {self.path} cannot be written "
                f"({error.strerror or error}); switch the robot off if another program drives it"
            ) from error
        self._unwritten = ""

    def clear(self) -> str:
        """Let the robot move again; return the reason why it did not, "" if it could.

        Raises:
            BackendUnavailable: If the file cannot be taken away. Then the stop still holds.
        """
        reason = self.reason
        try:
            self.path.unlink(missing_ok=True)
        except OSError as error:
            raise BackendUnavailable(
                f"the emergency stop still holds, for {self.path} cannot be taken away ({error.strerror or error})"
            ) from error
        self._unwritten = ""
        self._forget_answer()
        return reason

    def answer(self) -> None:
        """Say that this process drives the robot and has stopped it; where that cannot be written, nobody is told."""
        with contextlib.suppress(OSError):
            write_whole(self._answer_path, f"process {os.getpid()}\n")

    @property
    def answered_by(self) -> str:
        """Who has stopped the robot since the latch was set, "" as long as nobody has said so."""
        try:
            return self._answer_path.read_text(encoding="utf-8").strip()
        except (OSError, UnicodeDecodeError):
            return ""

    @property
    def _answer_path(self) -> Path:
        return self.path.with_name(f"{self.path.name}ped")

    def _forget_answer(self) -> None:
        with contextlib.suppress(OSError):
            self._answer_path.unlink(missing_ok=True)

    def raise_if_set(self) -> None:
        """Refuse to go on while the latch is set.

        Raises:
            EmergencyStop: If it is.
        """
        if reason := self.reason:
            raise EmergencyStop(reason, self.path)

    def _read(self) -> str:
        """Return the reason in the file; a file that is empty, half written or unreadable is a stop all the same."""
        try:
            with open(self._name, encoding="utf-8", errors="replace") as file:
                return " ".join(file.read(1000).split()) or "no reason was given"
        except OSError as error:
            return f"{self._name} cannot be read ({error.strerror or error}), which counts as a stop"


def default_path(robot: str = ROBOT) -> Path:
    """Return where a robot's emergency stop is kept.

    Raises:
        ValueError: If no file can be named after the robot.
    """
    return state_folder() / f"{checked_name(robot)}.stop"
