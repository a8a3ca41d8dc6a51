"""`horde doctor RUN`: read every file of a run, say what is sound, and mend what can be mended.

What can be mended: a torn end is cut off, a snapshot that is damaged or was never finished is put aside. What was
damaged stays as it is, since nothing knows better; it is named. To do it twice changes nothing more.
"""

from __future__ import annotations

import hashlib
import json
import re
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

from horde_agent.measures.excursion_table import FORMAT as EXCURSIONS
from horde_agent.record import FORMAT as LIFE
from horde_agent.record import snapshots
from horde_agent.record.segments import Segment, begun, cut, parts, read_segment
from horde_agent.runs import notes
from horde_agent.runs.config import BadInput, read_config
from horde_agent.runs.run_folder import RunFolder, checksum


class Finding(NamedTuple):
    """What was found of one file or snapshot.

    Attributes:
        what: Its name in the run's folder.
        is_sound: Whether all of it is what was written.
        said: What it holds, or what is wrong with it.
        is_mended: Whether what was wrong is mended now.
    """

    what: str
    is_sound: bool
    said: str
    is_mended: bool = False

    def __str__(self) -> str:
        state = "sound" if self.is_sound else "mended" if self.is_mended else "DAMAGED"
        return f"{state:8}{self.what}: {self.said}"


def examine(path: Path) -> list[Finding]:
    """Look through a run, mend what can be mended, and return what was found.

    Raises:
        BadInput: If the folder holds no run.
    """
    folder = RunFolder(path)
    if not folder.config.is_file() and not folder.log.is_dir():
        raise BadInput(f"{path} holds no run: there is neither a config.toml nor a log in it")
    with folder.locked():
        found = [_text(folder.config, path, lambda: f"the settings of a life in {read_config(folder.config).backend}")]
        found += _records(folder, folder.life, LIFE, "rows")
        found += _records(folder, folder.excursions, EXCURSIONS, "excursions")
        for table in (folder.summary, folder.details):
            if table.exists():
                found.append(_text(table, path, lambda table=table: f"{len(notes.table(table))} values"))  # type: ignore[misc]
        for table in (folder.questions, folder.learning_curve, folder.mspbe_curve, folder.traces):
            if table.exists():
                found.append(_text(table, path, lambda table=table: f"{len(notes.lines(table)):,} lines"))  # type: ignore[misc]
        if folder.events.exists():
            found.append(_text(folder.events, path, lambda: f"{len(_events(folder.events)):,} events"))
        return found + _sums(folder) + _snapshots(folder)


def _sums(folder: RunFolder) -> list[Finding]:
    """Return which of what was asked and of the tables is not what was written; a flipped digit reads as well."""
    name = folder.sums.name
    if not folder.sums.is_file():  # older runs had none
        return []
    found, lines = [], folder.sums.read_bytes().splitlines()
    for line in lines:
        told = re.fullmatch(rb"([0-9a-f]{64})  ([a-z_]+(?:-\d+)?\.[a-z]+)", line)
        file = folder.path / told[2].decode() if told else None
        if told is None or file is None or not file.is_file():
            what = f"a table that {name} tells of is gone, or {name} is damaged: {line.decode(errors='replace')!r}"
            found.append(Finding(name, False, what))
        elif hashlib.sha256(file.read_bytes()).hexdigest() != told[1].decode():
            said = f"it does not have the SHA-256 that {name} tells of: it was changed since, or {name} is damaged"
            found.append(Finding(file.name, False, said))
    return found or [Finding(name, True, f"{len(lines)} files are what was written")]


def _text(file: Path, run: Path, reader: Callable[[], str]) -> Finding:
    """Return what is found of a table or the settings."""
    name = str(file.relative_to(run))
    try:
        return Finding(name, True, reader())
    except Exception as error:  # whatever a damaged file does to its reader
        return Finding(name, False, " ".join(str(error).split()))


def _events(file: Path) -> list[object]:
    """Return the events; each has its CRC-32, if one has.

    Raises:
        ValueError: If a line is not what was written, by its number.
    """
    events = []
    for number, line in enumerate(file.read_text(encoding="utf-8").splitlines(), 1):
        try:
            events.append(json.loads(line))
        except ValueError as error:
            raise ValueError(f"line {number} cannot be read: {error}") from None
    has_sums = any(isinstance(event, dict) and event.get("crc") == checksum(event) for event in events)
    for number, event in enumerate(events, 1):
        if not isinstance(event, dict) or (has_sums and event.get("crc") != checksum(event)):
            raise ValueError(f"line {number} does not have the CRC-32 that was written in it")
    return events


def _records(folder: RunFolder, path: Path, kind: str, of_what: str) -> list[Finding]:
    """Return what is found of a record, whose torn end is cut off."""
    found: list[Finding] = []
    files, n_known = parts(path), 0
    for file in files[len(begun(path)) :]:
        file.unlink()
        found.append(Finding(str(file.relative_to(folder.path)), False, "it was never begun, and is removed", True))
    for file in (files := parts(path)):
        name = str(file.relative_to(folder.path))
        try:
            segment = read_segment(file, kind)
        except (ValueError, OSError, LookupError, TypeError) as error:
            found.append(Finding(name, False, f"{error}"))
            continue
        if file == files[0]:
            n_known = int(segment.header.get("first", 0))  # the oldest may have been moved away
        if kind == LIFE and segment.header.get("first", n_known) != n_known:
            found.append(
                Finding(name, False, f"it begins with row {segment.header['first']:,}, but {n_known:,} came before")
            )
        n_known += len(segment.records)
        found += _of_segment(segment, name, of_what, is_last=file == files[-1])
    return found or [Finding(str(path.relative_to(folder.path)), False, "there is no such file")]


def _of_segment(segment: Segment, name: str, of_what: str, *, is_last: bool) -> list[Finding]:
    """Return what is found of one file of a record."""
    faults = segment.faults(is_last=is_last)
    if not faults:
        return [Finding(name, True, f"{len(segment.records):,} {of_what}")]
    is_torn = is_last and "cut off" in faults[-1]
    if is_torn:
        cut(segment.path, segment.n_bytes)
    return [Finding(name, False, said, is_mended=is_torn and "cut off" in said) for said in faults]


def _snapshots(folder: RunFolder) -> list[Finding]:
    """Return what is found of the snapshots; those that are of no use are put aside, under a name that says so."""
    of_shards = sorted(path for path in folder.shards.glob("*/shard-*") if path.is_dir())
    return [one for place in (folder.checkpoint, *of_shards) for one in _of_snapshots(place, folder.path)]


def _of_snapshots(place: Path, run: Path) -> list[Finding]:
    """Return what is found of the snapshots in one place."""
    found, where = [], place.relative_to(run)
    for path in sorted(place.glob(".unfinished-*")):
        shutil.rmtree(path)
        found.append(Finding(f"{where}/{path.name}", False, "it was never finished, and is removed", is_mended=True))
    for path in reversed(list(snapshots.found(place))):
        name = f"{where}/{path.name}"
        try:
            kept = snapshots.read(path)
            rows = f", {kept.facts['n_rows']:,} rows by then" if "n_rows" in kept.facts else ""
            found.append(Finding(name, True, f"{len(kept.state):,} arrays{rows}"))
        except snapshots.SnapshotOfAnother as error:
            found.append(Finding(name, False, str(error)))
        except snapshots.SnapshotDamaged as error:
            aside = path.with_name(f"damaged-{path.name}")
            if aside.exists():
                shutil.rmtree(aside)
            path.rename(aside)
            found.append(Finding(name, False, f"{error}; it is put aside as {aside.name}", is_mended=True))
    return found
