"""Write a file or a folder to a staging folder, and rename it once it is complete and on the disk.

A kill or a full disk leaves nothing under the final name, and the same command can be repeated:
what an earlier attempt left is removed.
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from horde_agent.record.segments import sync_folder
from horde_agent.refusals import BadInput

try:
    import fcntl
except ImportError:  # Windows
    fcntl = None  # type: ignore[assignment]

_HAS_LOCKS = fcntl is not None


@contextmanager
def staging_folder(target: Path) -> Iterator[Path]:
    """Yield a new, locked folder on the file system of `target`, and remove it at the end with its contents.

    The folders above `target` are created. Those that were created are removed if they are empty at
    the end.

    Raises:
        BadInput: If another process is writing the same target.
        OSError: If the folder cannot be created.
    """
    missing = [folder for folder in target.parents if not folder.exists()]
    target.parent.mkdir(parents=True, exist_ok=True)
    stage = _stage_of(target)
    try:
        lock = _claim(stage, target)
        try:
            yield stage
        finally:
            shutil.rmtree(stage, ignore_errors=True)
            _unlock(lock)
    finally:
        for folder in missing:
            with suppress(OSError):  # it is not empty
                folder.rmdir()


def remove_leftover(target: Path) -> None:
    """Remove the staging folder of a process that was killed after it had renamed its complete target."""
    if _stage_of(target).exists():
        with suppress(BadInput), staging_folder(target):  # BadInput: another process is writing
            pass


def _stage_of(target: Path) -> Path:
    return target.parent / f".{target.name}.unfinished"


def _claim(stage: Path, target: Path) -> int | None:
    """Create the staging folder and lock it, after removing that of a killed process; return the lock's descriptor."""
    # The lock of the parent folder makes creating and locking the staging folder one step.
    parent = _locked(target.parent, is_waiting=True)
    try:
        if stage.exists():
            _unlock(_locked(stage))
            shutil.rmtree(stage)
        stage.mkdir()
        return _locked(stage)
    except BlockingIOError:
        raise BadInput(f"another process is writing {target}; wait until it has ended") from None
    finally:
        _unlock(parent)


def _locked(folder: Path, *, is_waiting: bool = False) -> int | None:
    """Lock a folder and return the lock's descriptor; None on Windows. Raise BlockingIOError if it is locked."""
    if not _HAS_LOCKS:
        return None
    lock = os.open(folder, os.O_RDONLY)
    kind = fcntl.LOCK_EX
    if not is_waiting:
        kind |= fcntl.LOCK_NB
    try:
        fcntl.flock(lock, kind)
    except OSError:
        os.close(lock)
        raise
    return lock


def _unlock(lock: int | None) -> None:
    if lock is not None:
        os.close(lock)


def sync_files(folder: Path) -> None:
    """Sync the files in a folder, and the folders in it, to the disk."""
    for path in sorted(folder.rglob("*")):
        if path.is_dir():
            sync_folder(path)
        else:
            with path.open("rb") as file:
                os.fsync(file.fileno())
    sync_folder(folder)


def publish(staged: Path, target: Path) -> None:
    """Sync a staged file or folder and rename it to its final name; a file or an empty folder there is replaced.

    Raises:
        OSError: If the target is a folder with contents.
    """
    if staged.is_dir():
        sync_files(staged)
        if target.is_dir():
            target.rmdir()
    else:
        with staged.open("rb") as file:
            os.fsync(file.fileno())
    target.parent.mkdir(parents=True, exist_ok=True)
    os.replace(staged, target)
    sync_folder(target.parent)
