"""What `horde doctor` finds in the files of a run, and how it replaces a damaged one."""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any, Literal, NamedTuple

import gymnasium

from horde_agent.runs.config import LearnConfig
from horde_agent.runs.storage.folder import RunFolder
from horde_agent.runs.storage.staging import publish

MakeEnv = Callable[[LearnConfig], gymnasium.Env[Any, Any]]
"""Makes the robot of resolved settings, or its description; nothing is opened."""

_ASIDE = "damaged-"


class FileFinding(NamedTuple):
    """Result of checking one file or snapshot."""

    what: str  # its name in the run's folder
    state: Literal["sound", "repaired", "differs", "DAMAGED"]
    message: str  # its contents, the damage, or what is another here

    def __str__(self) -> str:
        return f"{self.state:9}{self.what}: {self.message}"


class Examination:
    """Checks of a run's files, which add their findings.

    Args:
        folder: The run's folder.
        make_env: Makes its robot, which a first line describes.

    Attributes:
        findings: Of the checks so far.
    """

    def __init__(self, folder: RunFolder, make_env: MakeEnv) -> None:
        self.folder = folder
        self.make_env = make_env
        self.findings: list[FileFinding] = []

    def sound(self, path: Path, message: str) -> None:
        """Add an undamaged file and what it contains."""
        self.findings.append(FileFinding(self._name(path), "sound", message))

    def damaged(self, path: Path, message: str) -> None:
        """Add a damaged file, which stays as it is."""
        self.findings.append(FileFinding(self._name(path), "DAMAGED", message))

    def differs(self, path: Path, message: str) -> None:
        """Add what an undamaged file was written with, and that is another here."""
        self.findings.append(FileFinding(self._name(path), "differs", message))

    def repaired(self, path: Path, message: str) -> None:
        """Add a file that was repaired, with its damage."""
        self.findings.append(FileFinding(self._name(path), "repaired", message))

    def _name(self, path: Path) -> str:
        return str(path.relative_to(self.folder.path))

    def replace(self, path: Path, content: bytes, message: str) -> None:
        """Replace a file at once, and add it as repaired; a damaged one is kept beside it as `damaged-NAME`."""
        part = path.with_name(f".{path.name}.part")
        part.write_bytes(content)
        if path.exists():
            aside = path.with_name(f"{_ASIDE}{path.name}")
            aside.unlink(missing_ok=True)
            try:
                os.link(path, aside)
            except OSError:  # a file system without links
                shutil.copy2(path, aside)
            message += f"; the damaged file is {aside.name}"
        publish(part, path)
        self.repaired(path, message)

    def set_aside(self, path: Path, message: str) -> None:
        """Rename a damaged folder to `damaged-NAME`, and add it as repaired."""
        aside = path.with_name(f"{_ASIDE}{path.name}")
        if aside.exists():
            shutil.rmtree(aside)
        path.rename(aside)
        self.repaired(path, f"{message}; it was renamed to {aside.name}")
