"""The user's folders for settings and state, and atomic writes of a robot's files.

Source: XDG Base Directory Specification 0.8.
"""

from __future__ import annotations

import contextlib
import os
import re
import tempfile
from pathlib import Path


def config_folder() -> Path:
    """Return the user's folder for settings, which may not exist: $XDG_CONFIG_HOME/horde or ~/.config/horde."""
    return _base("XDG_CONFIG_HOME", ".config") / "horde"


def state_folder() -> Path:
    """Return the user's folder for state, which may not exist: $XDG_STATE_HOME/horde or ~/.local/state/horde."""
    return _base("XDG_STATE_HOME", ".local/state") / "horde"


def checked_name(robot: str) -> str:
    """Return a robot's name if it is a valid file name.

    Raises:
        ValueError: If it contains anything but letters, digits, "-" and "_".
    """
    if not re.fullmatch(r"[A-Za-z0-9][A-Za-z0-9_-]*", robot):
        raise ValueError(f"a robot's name is letters, digits, - and _, not {robot!r}")
    return robot


def write_whole(path: Path, text: str) -> None:
    """Write a file atomically: to a temporary file in its folder, then rename.

    Raises:
        OSError: If writing fails; an existing file is unchanged.
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
    """Return a base folder; relative values are ignored, as the specification demands."""
    named = Path(os.environ.get(variable, ""))
    if named.is_absolute():
        return named
    return Path.home() / default
