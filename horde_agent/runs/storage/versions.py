"""Versions of what a run was made with: this package, those that it uses, Python, the platform and the git commit."""

from __future__ import annotations

import platform
import subprocess
from functools import cache
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

DISTRIBUTION = "horde-gvf"
_PACKAGES = ("numpy", "numba", "gymnasium", "pybullet", "matplotlib")


@cache
def own_version() -> str:
    """Return the version of the installed distribution, or "unknown" in a checkout that is not installed."""
    try:
        return version(DISTRIBUTION)
    except PackageNotFoundError:
        return "unknown"


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
