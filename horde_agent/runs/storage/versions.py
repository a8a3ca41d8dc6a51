"""Versions of what a run was made with: this package, those that it uses, Python, the platform and the git commit."""

from __future__ import annotations

import platform
import subprocess
from collections.abc import Mapping
from functools import cache
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any, NamedTuple

from horde_agent.processes import DISTRIBUTION, own_version
from horde_agent.record import snapshots

_PACKAGES = ("numpy", "numba", "gymnasium", "pybullet", "matplotlib")


class Difference(NamedTuple):
    """Something that a snapshot was written with, and that is another here."""

    what: str
    then: str
    here: str


def differences(facts: Mapping[str, Any]) -> list[Difference]:
    """Return what changes the results if a run continues from a snapshot with these facts in this process."""
    present = {"version of horde-gvf": own_version(), **snapshots.identity()}
    written = {**facts, "version of horde-gvf": facts.get("version")}
    return [
        Difference(what, str(written.get(what)), value)
        for what, value in present.items()
        if written.get(what) != value
    ]


def versions() -> dict[str, str]:
    """Return what repeating a run requires: versions, the platform and the git commit, if there is one."""
    by_package = dict(_installed_versions())
    commit = git_commit()
    if commit:
        by_package["git_commit"] = commit
    return by_package


@cache
def _installed_versions() -> dict[str, str]:
    """Return the versions of what this process runs with, which stay: the packages, Python and the platform."""
    by_package = {
        DISTRIBUTION: own_version(),
        "python": platform.python_version(),
        "platform": platform.platform(),
    }
    for package in _PACKAGES:
        try:
            by_package[package] = version(package)
        except PackageNotFoundError:
            continue
    return by_package


@cache
def git_commit() -> str | None:
    """Return the commit of this package's checkout, with "-dirty" after uncommitted changes.

    The first call in a process decides, because its modules were imported before.
    """
    root = Path(__file__).resolve().parents[3]
    if not (root / ".git").exists():
        return None
    try:
        answer = subprocess.run(
            [
                "git",
                "-C",
                str(root),
                "describe",
                "--always",
                "--abbrev=40",
                "--dirty",
                "--exclude=*",
            ],
            capture_output=True,
            text=True,
            timeout=10,
            check=False,
        )
    except (OSError, subprocess.TimeoutExpired):
        return None
    return answer.stdout.strip() or None
