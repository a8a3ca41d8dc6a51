"""Where a robot's own files are kept, in the user's folders for settings and for state, and how they are written.

Source: XDG Base Directory Specification 0.8.
"""

from __future__ import annotations

import contextlib
import os
import re
import tempfile
from pathlib import Path

ROBOT = "critterbot"  # the robot that is meant where none is named


def config_folder() -> Path:
    """Return the user's folder for settings, which need not exist yet: $XDG_CONFIG_HOME/horde or ~/.config/horde."""
    return _base("XDG_CONFIG_HOME", ".config") / "horde"


def state_folder() -> Path:
    """Return the user's folder for state, which need not exist yet: $XDG_STATE_HOME/horde or ~/.local/state/horde."""
    return _base("XDG_STATE_HOME", ".local/state") / "horde"


def checked_name(robot: str) -> str:
    """Return a robot's name if a file can be named after it.

    Raises:
        ValueError: If it has anything but letters, digits, "-" and "_".
    """
    if not re.fullmatch(r"[A-Za-z0-9][A-Za-z0-9_-]*", robot):
        raise ValueError(f"a robot's name is letters, digits, - and _, not {robot!r}")
    return robot


def write_whole(path: Path, text: str) -> None:
    """Write a file whole or not at all: beside its place first, then moved there in one operation.

    Raises:
        OSError: If that is not possible here; what was there before is still there.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    descriptor, beside = tempfile.mkstemp(prefix=f".{path.name}.", dir=path.parent)
    try:
        with os.fdopen(descriptor, "w", encoding="utf-8") as file:
            file.write(text)
            file.flush()
            os.fsync(file.fileno())
        os.replace(beside, path)
    except BaseException:
        with contextlib.suppress(OSError):
            os.unlink(beside)
        raise


def _base(variable: str, default: str) -> Path:
    """Return a base folder; the specification has relative ones ignored."""
    named = Path(os.environ.get(variable, ""))
    return named if named.is_absolute() else Path.home() / default
