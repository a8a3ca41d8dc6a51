"""`horde doctor RUN`: check every file of a run and repair what can be repaired.

Repairs: those of `repair`; truncate an incomplete last row; rename damaged snapshots and remove
unfinished ones. Other damaged files are reported and not changed. A second call changes nothing.
"""

from __future__ import annotations

import hashlib
import json
import re
import shutil
from collections.abc import Callable, Sized
from contextlib import suppress
from pathlib import Path
from typing import NamedTuple

from horde_agent.record import FORMAT as LIFE
from horde_agent.record import snapshots
from horde_agent.record.segments import cut, read_segment, record_files, started_files
from horde_agent.runs.config import BadInput, read_config
from horde_agent.runs.storage.folder import RunFolder, checksum, read_json, read_lines
from horde_agent.runs.storage.repair import MakeEnv, repair_files
from horde_agent.scoring.excursion_table import FORMAT as EXCURSIONS


class FileFinding(NamedTuple):
    """Result of checking one file or snapshot."""

    what: str  # its name in the run's folder
    is_sound: bool  # whether it is undamaged
    message: str  # its contents, or the damage
    is_repaired: bool = False  # whether the damage was repaired

    def __str__(self) -> str:
        if self.is_sound:
            state = "sound"
        elif self.is_repaired:
            state = "repaired"
        else:
            state = "DAMAGED"
        return f"{state:9}{self.what}: {self.message}"


def examine(path: Path, make_env: MakeEnv) -> list[FileFinding]:
    """Check the files of a run, repair what can be repaired, and return the results.

    Args:
        path: The run's folder.
        make_env: Makes its robot, which a first line describes.

    Raises:
        BadInput: If there is no run.
    """
    folder = RunFolder(path)
    if not folder.config.is_file() and not folder.log.is_dir():
        raise BadInput(f"{path} contains no run: it has neither config.toml nor log/")
    with folder.locked():
        readers: dict[Path, tuple[Callable[[Path], Sized], str]] = {
            folder.config: (lambda file: vars(read_config(file)), "settings"),
            **dict.fromkeys((folder.summary, folder.details), (read_json, "values")),
            **dict.fromkeys(
                (folder.questions, folder.learning_curve, folder.mspbe_curve), (read_lines, "lines")
            ),
            folder.traces: (read_lines, "lines"),
            folder.events: (_events, "events"),
        }
        findings = [
            FileFinding(str(one.path.relative_to(path)), False, one.message, is_repaired=True)
            for one in repair_files(folder, make_env)
        ]
        files = [file for file in readers if file.exists() or file == folder.config]
        findings += [_text(file, path, *readers[file]) for file in files]
        findings += _records(folder, folder.life, LIFE, "rows")
        findings += _records(folder, folder.excursions, EXCURSIONS, "excursions")
        findings += _sums(folder)
        of_shards = sorted(shard for shard in folder.shards.glob("*/shard-*") if shard.is_dir())
        return findings + [
            one for place in (folder.checkpoint, *of_shards) for one in _snapshots(place, path)
        ]


def _sums(folder: RunFolder) -> list[FileFinding]:
    """Compare settings, questions and tables with their SHA-256: a changed digit is still readable."""
    name = folder.sums.name
    if not folder.sums.is_file():  # of a run without tables
        return []
    findings = []
    lines = folder.sums.read_bytes().splitlines()
    for line in lines:
        match = re.fullmatch(rb"([0-9a-f]{64})  ([a-z_]+(?:-\d+)?\.[a-z]+)", line)
        file = None
        if match:
            file = folder.path / match[2].decode()
        if match is None or file is None or not file.is_file():
            problem = f"a table listed in {name} is missing, or {name} is damaged: {line.decode(errors='replace')!r}"
            findings.append(FileFinding(name, False, problem))
        elif hashlib.sha256(file.read_bytes()).hexdigest() != match[1].decode():
            message = (
                f"its SHA-256 differs from the one in {name}: it was changed, or {name} is damaged"
            )
            findings.append(FileFinding(file.name, False, message))
    return findings or [FileFinding(name, True, f"{len(lines)} files are unchanged")]


def _text(file: Path, run: Path, reader: Callable[[Path], Sized], unit: str) -> FileFinding:
    name = str(file.relative_to(run))
    try:
        return FileFinding(name, True, f"{len(reader(file)):,} {unit}")
    except Exception as error:  # a damaged file can raise anything
        return FileFinding(name, False, " ".join(str(error).split()))


def _events(file: Path) -> list[object]:
    """Return the events; if one has a CRC-32, all must have one."""
    events = []
    for number, line in enumerate(file.read_text(encoding="utf-8").splitlines(), 1):
        try:
            events.append(json.loads(line))
        except ValueError as error:
            raise ValueError(f"line {number} cannot be read: {error}") from None
    has_sums = any(
        isinstance(event, dict) and event.get("crc") == checksum(event) for event in events
    )
    for number, event in enumerate(events, 1):
        if not isinstance(event, dict) or (has_sums and event.get("crc") != checksum(event)):
            raise ValueError(f"line {number} does not match its CRC-32")
    return events


def _records(folder: RunFolder, path: Path, kind: str, of_what: str) -> list[FileFinding]:
    """Check the files of a recording; truncate an incomplete last row."""
    found: list[FileFinding] = []
    files = record_files(path)
    n_known = 0
    for file in files[len(started_files(path)) :]:
        file.unlink()
        found.append(
            FileFinding(
                str(file.relative_to(folder.path)),
                False,
                "it contains no header, and was removed",
                True,
            )
        )
    files = record_files(path)
    n_counted = 0
    if kind == LIFE:
        n_counted = _rows_of_snapshots(folder)
    for file in files:
        name = str(file.relative_to(folder.path))
        try:
            segment = read_segment(file, kind)
        except (ValueError, OSError, LookupError, TypeError) as error:
            found.append(FileFinding(name, False, f"{error}"))
            continue
        if file == files[0]:
            n_known = int(segment.header.get("first", 0))  # the oldest may have been moved
        if kind == LIFE and segment.header.get("first", n_known) != n_known:
            found.append(
                FileFinding(
                    name,
                    False,
                    f"its first row is {segment.header['first']:,}, expected {n_known:,}",
                )
            )
        n_known = segment.first + len(segment.records)
        is_last = file == files[-1]
        faults = segment.faults(is_last=is_last)
        if not faults:
            found.append(FileFinding(name, True, f"{len(segment.records):,} {of_what}"))
        is_torn = is_last and any("cut off" in fault for fault in faults)
        # Damaged rows before a snapshot stay: without them, it could not be resumed from
        n_kept = max(segment.n_whole, min(n_counted - segment.first, len(segment.records)))
        if is_torn:
            n_bytes = n_kept * segment.records.itemsize
            cut(segment.path, int(segment.header["offset"]) + n_bytes)
        is_repaired = is_torn and n_kept == segment.n_whole
        found += [
            FileFinding(name, False, fault, is_repaired=is_repaired and "cut off" in fault)
            for fault in faults
        ]
    if kind == LIFE and n_known < n_counted and _counts_rows(folder):
        message = f"it has {n_known:,} rows, but a snapshot follows {n_counted:,}: `horde resume` uses an earlier one"
        found.append(FileFinding(str(path.relative_to(folder.path)), False, message))
    return found or [FileFinding(str(path.relative_to(folder.path)), False, "it is missing")]


def _rows_of_snapshots(folder: RunFolder) -> int:
    """Return the number of rows before the newest readable snapshot; 0 without one."""
    for path in snapshots.found(folder.checkpoint):
        with suppress(snapshots.SnapshotDamaged, snapshots.SnapshotOfAnother, LookupError):
            return int(snapshots.read_manifest(path)["facts"]["n_rows"])
    return 0


def _counts_rows(folder: RunFolder) -> bool:
    """Return whether snapshots count rows of the recording; those of a data set count on from pass to pass."""
    return folder.settings().get("backend") != "data"


def _snapshots(place: Path, run: Path) -> list[FileFinding]:
    """Check the snapshots in one folder; rename damaged ones and remove unfinished ones."""
    findings = []
    where = place.relative_to(run)
    for path in snapshots.unfinished(place):
        snapshots.remove_unfinished(path)
        findings.append(
            FileFinding(
                f"{where}/{path.name}",
                False,
                "it was not finished, and was removed",
                is_repaired=True,
            )
        )
    for path in reversed(list(snapshots.found(place))):
        name = f"{where}/{path.name}"
        try:
            snapshot = snapshots.read(path)
            rows = ""
            if "n_rows" in snapshot.facts:
                rows = f", after {snapshot.facts['n_rows']:,} rows"
            findings.append(FileFinding(name, True, f"{len(snapshot.state):,} arrays{rows}"))
        except snapshots.SnapshotOfAnother as error:
            findings.append(FileFinding(name, False, str(error)))
        except snapshots.SnapshotDamaged as error:
            aside = path.with_name(f"damaged-{path.name}")
            if aside.exists():
                shutil.rmtree(aside)
            path.rename(aside)
            findings.append(
                FileFinding(
                    name, False, f"{error}; it was renamed to {aside.name}", is_repaired=True
                )
            )
    return findings
