"""`horde upgrade RUN`: write the files of a run that have older formats in the present ones, all at once.

A folder with the new files, and with links to the others, is written beside the run and synced;
then the two exchange their names, which is one operation of the file system. A kill at any moment
leaves the old folder or the new one under the run's name; what it leaves beside it, the next
upgrade removes.
"""

from __future__ import annotations

import ctypes
import errno
import hashlib
import os
import shutil
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any

from horde_agent.record import kinds, snapshots
from horde_agent.record.kinds import Kind
from horde_agent.record.segments import (
    CRC,
    encode_header,
    is_sealed,
    read_pieces,
    sealed,
    sync_folder,
)
from horde_agent.record.stamps import StampedFile, stamped_files
from horde_agent.refusals import BadInput
from horde_agent.runs.config import read_settings
from horde_agent.runs.storage.event_log import RecordedEvents, encode_event
from horde_agent.runs.storage.files import write_whole
from horde_agent.runs.storage.folder import RunFolder
from horde_agent.runs.storage.staging import remove_leftover, staging_folder, sync_files
from horde_agent.toml import read_toml, to_toml, toml_value

_AT_WORKING_FOLDER = -100  # AT_FDCWD of Linux
_EXCHANGE = 2  # RENAME_EXCHANGE
_COMMENTS = "the comments in {name}"

Say = Callable[[str], None]


def upgrade(run: Path, say: Say) -> list[str]:
    """Write the older files of a run in the present formats, and return their names; none if there are none.

    Args:
        run: The run's folder.
        say: Prints a sentence: first about what the present formats cannot hold, then about what
            stays as it is.

    Raises:
        BadInput: If the run is in use, not whole or changed, or its file system cannot exchange two
            folders.
        OSError: If the new folder cannot be written; the run is as it was.
    """
    folder = RunFolder(run)
    target = run.resolve()
    with folder.locked():
        remove_leftover(target)
        folder.sound_settings()
        old = [
            file for file in stamped_files(target) if file.is_old and file.kind is not kinds.LIVE
        ]
        if not old:
            return []
        for lost in _losses(old):
            say(f"the present formats cannot hold {lost}, which is lost")
        with staging_folder(target) as stage:
            _refuse_without_exchange(stage, run)
            new = stage / "new"
            shutil.copytree(target, new, symlinks=True, copy_function=_linked)
            written = _write_files(
                new, target, old, lambda sentence: say(sentence.replace(str(new), str(run)))
            )
            sync_files(new)
            _exchange(new, target)
            sync_folder(target.parent)
    return [str(path.relative_to(new)) for path in written]


def _losses(old: Iterable[StampedFile]) -> list[str]:
    """Return what the present formats cannot hold of some files, each thing once."""
    losses: list[str] = []
    for file in old:
        losses += [reader.loses for reader in file.kind.readers[file.version - 1 :] if reader.loses]
        if file.kind in (kinds.QUESTIONS, kinds.COLUMNS):
            losses.append(_COMMENTS.format(name=file.path.name))
    return list(dict.fromkeys(losses))


def _linked(source: str, place: str) -> None:
    try:
        os.link(source, place)
    except OSError:  # a file system without links
        shutil.copy2(source, place)


# ---- the new files ---------------------------------------------------------------------------------------------------


def _write_files(new: Path, target: Path, old: Sequence[StampedFile], say: Say) -> list[Path]:
    """Replace links to older files in a new folder by files in the present format, and return these."""
    written: list[Path] = []
    digests: dict[str, str] = {}
    for file in old:
        place = new / file.path.relative_to(target)
        content: Iterable[bytes]
        if file.kind in (kinds.LIFE, kinds.EXCURSIONS):
            content = _records(place, file.kind)
        elif file.kind is kinds.EVENTS:
            content = _events(place)
        elif file.kind is kinds.SETTINGS:
            content = [_settings(place)]
        elif file.kind in (kinds.QUESTIONS, kinds.COLUMNS):
            content = [_table(place, file.kind)]
        else:
            continue
        _replace(place, content)
        written.append(place)
        if place.suffix == ".toml":
            digests[place.name] = hashlib.sha256(place.read_bytes()).hexdigest()
    _write_sums(RunFolder(new), digests)
    # Snapshots have the SHA-256 of the settings, too
    old_snapshots = {new / file.path.relative_to(target) for file in old}
    for pattern in kinds.SNAPSHOT.places:
        for manifest in sorted(new.glob(pattern)):
            is_due = bool(digests) or manifest in old_snapshots
            if is_due and _write_snapshot(manifest.parent, digests, say):
                written.append(manifest)
    return written


def _replace(path: Path, content: Iterable[bytes]) -> None:
    """Write a file in the place of a link, so that the run's own stays as it is."""
    part = path.with_name(f".{path.name}.part")
    with part.open("wb") as file:
        file.writelines(content)
    os.replace(part, path)


def _records(path: Path, kind: Kind) -> Iterator[bytes]:
    """Yield the bytes of a file of records; damaged records stay damaged."""
    for number, piece in enumerate(read_pieces(path, kind)):
        if not number:
            header = {
                name: piece.header[name] for name in piece.header if name not in ("offset", CRC)
            }
            yield encode_header(header | kind.stamp())
        records = piece.records.copy()
        sealed(records)
        records[CRC][~piece.is_sound] ^= 1
        yield records.tobytes()


def _events(path: Path) -> Iterator[bytes]:
    for line in path.read_bytes().splitlines(keepends=True):
        if is_sealed(line):
            (event,) = RecordedEvents.of(path.name, line).events
            del event[CRC]
            yield encode_event(event).encode()
        else:
            yield line


def _settings(path: Path) -> bytes:
    settings = read_settings(path)
    versions = settings.pop("versions")
    return to_toml(kinds.SETTINGS.stamp() | settings, versions).encode()


def _table(path: Path, kind: Kind) -> bytes:
    table = kind.stamp() | kind.read_table(read_toml(path), path)
    return "".join(f"{name} = {toml_value(value)}\n" for name, value in table.items()).encode()


def _write_sums(folder: RunFolder, digests: dict[str, str]) -> None:
    lines = (folder.sealed().digests | digests).items()
    if digests:
        write_whole(folder.sums, "".join(f"{digest}  {name}\n" for name, digest in lines))


def _write_snapshot(path: Path, digests: dict[str, str], say: Say) -> bool:
    """Write a snapshot in the present format, with other SHA-256 of settings; return False if it is damaged."""
    try:
        snapshot = snapshots.read(path)
    except snapshots.SnapshotDamaged as error:
        say(f"{error}; it stays as it is")
        return False
    facts: dict[str, Any] = dict(snapshot.facts)
    if "asked" in facts:
        facts["asked"] = facts["asked"] | {
            name: digests[name] for name in digests if name in facts["asked"]
        }
    snapshots.write(path.parent, int(path.name), snapshot.state, facts)
    return True


# ---- the exchange ----------------------------------------------------------------------------------------------------


def _refuse_without_exchange(stage: Path, run: Path) -> None:
    """Raise BadInput if two folders cannot exchange their names there."""
    folders = [stage / "one", stage / "other"]
    for folder in folders:
        folder.mkdir()
    try:
        _exchange(*folders)
    except OSError as error:
        raise BadInput(
            f"{run} cannot be upgraded at once, because its file system cannot exchange two folders "
            f"({error.strerror}): upgrade a copy on a local disk of Linux, or leave it, since it is read as it is"
        ) from None


def _exchange(one: Path, other: Path) -> None:
    """Let two folders exchange their names in one operation; raise OSError if the system cannot."""
    try:
        rename = ctypes.CDLL(None, use_errno=True).renameat2
    except (AttributeError, OSError, TypeError):  # neither Linux nor a C library of this decade
        raise OSError(errno.ENOSYS, os.strerror(errno.ENOSYS), str(other)) from None
    folder = _AT_WORKING_FOLDER
    if rename(folder, os.fsencode(one), folder, os.fsencode(other), _EXCHANGE):
        number = ctypes.get_errno()
        raise OSError(number, os.strerror(number), str(other))
