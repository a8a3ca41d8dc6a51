"""Where a robot's own files are kept: its settings in the user's config folder, its emergency stop in the state folder.

Source: XDG Base Directory Specification 0.8.
"""

from __future__ import annotations

import os
import re
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


def _base(variable: str, default: str) -> Path:
    """Return a base folder; the specification has relative ones ignored."""
    named = Path(os.environ.get(variable, ""))
    return named if named.is_absolute() else Path.home() / default
