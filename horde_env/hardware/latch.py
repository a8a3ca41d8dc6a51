"""EmergencyLatch: an emergency stop stored as one small file per robot, so it outlives the process that set it.

While the file exists, no process may move the robot, whatever the content; removing the file is the
only way to continue. A file that cannot be read counts as set.

The process that drives the robot writes a second file next to it when it has stopped the robot, as
a confirmation.
"""

from __future__ import annotations

import contextlib
import errno
import os
from pathlib import Path

from horde_env.errors import BackendUnavailable
from horde_env.hardware.folders import checked_name, state_folder, write_whole
from horde_env.robot import DEFAULT_ROBOT


class EmergencyLatch:
    """The emergency stop of one robot, shared by all processes of a user.

    Its file is that of `default_path()` when None; the folder need not exist. A stop that could not
    be written still holds in the process that set it.
    """

    def __init__(self, path: str | Path | None = None) -> None:
        if path is None:
            self.path = default_path()
        else:
            self.path = Path(path)
        self._held_reason = ""  # holds in this process only

    @property
    def reason(self) -> str:
        """Why the robot must not move, in one line; "" if it may. An empty or unreadable file is a stop, too."""
        return self._stored_reason or self._held_reason

    @property
    def robot(self) -> str:
        """The name of the robot whose latch this is; "" if its file is not that of `default_path`."""
        name = self.path.stem
        with contextlib.suppress(ValueError):
            if self.path == default_path(name):
                return name
        return ""

    @property
    def remedy(self) -> str:
        """How a person clears the stop: a command that names the robot, or the file to remove."""
        if self.robot:
            return f"`horde-robot stop --clear --robot {self.robot}`"
        return f"removing {self.path}"

    def hold(self, reason: str) -> None:
        """Hold the stop in this process only, at once, until `clear`; it writes nothing. `set` stores it."""
        if not self.reason:
            self._forget_answer()
            self._held_reason = _one_line(reason)

    def set(self, reason: str) -> None:
        """Set the latch; one that is set keeps its first reason. On a full disk its file is empty, without a reason.

        Raises:
            BackendUnavailable: If the file cannot be written. The stop then holds in this process
                only.
        """
        self.hold(reason)
        if self._stored_reason:
            return
        try:
            self._store(self._held_reason)
        except OSError as error:
            raise BackendUnavailable(
                f"the emergency stop holds in this process only: cannot write {self.path} "
                f"({error.strerror or error}); switch the robot off if another program drives it"
            ) from error
        self._held_reason = ""

    def clear(self) -> str:
        """Clear the stop; return its reason, "" if it was not set.

        Raises:
            BackendUnavailable: If the file cannot be removed. The stop then still holds.
        """
        reason = self.reason
        try:
            self.path.unlink(missing_ok=True)
        except OSError as error:
            raise BackendUnavailable(
                f"the emergency stop still holds: cannot remove {self.path} ({error.strerror or error})"
            ) from error
        self._held_reason = ""
        self._forget_answer()
        return reason

    def answer(self) -> None:
        """Confirm in a file that this process has stopped the robot; errors are ignored."""
        with contextlib.suppress(OSError):
            write_whole(self._answer_path, f"process {os.getpid()}\n")

    @property
    def answered_by(self) -> str:
        """The process that has confirmed the stop since the latch was set; "" if none has."""
        try:
            return self._answer_path.read_text(encoding="utf-8").strip()
        except (OSError, UnicodeDecodeError):
            return ""

    @property
    def _stored_reason(self) -> str:
        """The reason in the file; "" without a file."""
        try:
            # First, because it needs no descriptor: without a stop nothing can fail
            os.stat(self.path)
            with open(self.path, encoding="utf-8", errors="replace") as file:
                return _one_line(file.read(1000))
        except FileNotFoundError:
            return ""
        except OSError as error:
            return f"cannot read {self.path} ({error.strerror or error}), which counts as a stop"

    def _store(self, line: str) -> None:
        try:
            write_whole(self.path, line + "\n")
        except OSError as error:
            if error.errno not in (errno.ENOSPC, errno.EDQUOT):
                raise
            self.path.touch()  # an empty file is a stop, too, and needs no block of the disk

    @property
    def _answer_path(self) -> Path:
        return self.path.with_name(f"{self.path.name}ped")

    def _forget_answer(self) -> None:
        with contextlib.suppress(OSError):
            self._answer_path.unlink(missing_ok=True)


def _one_line(reason: str) -> str:
    return " ".join(reason.split()) or "no reason was given"


def default_path(robot: str = DEFAULT_ROBOT) -> Path:
    """Return the path of a robot's emergency stop.

    Raises:
        ValueError: If the robot's name is no valid file name.
    """
    return state_folder() / f"{checked_name(robot)}.stop"
