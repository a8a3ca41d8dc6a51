"""The folder of a run: settings, results and recording, all readable without this program (docs/runs.md).

A table is complete or absent; summary.json, with one value per key, null if it has no meaning in
the run, is written last. After a crash, `horde report` learns missing tables again from the log
(`runs.sources.relearn`).
"""

from __future__ import annotations

import hashlib
import json
import os
import re
import shutil
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, NamedTuple
from zlib import crc32

from horde_agent.record import FORMAT, snapshots
from horde_agent.record.segments import is_sealed, read_segment, record_files, started_files
from horde_agent.refusals import BadInput
from horde_agent.runs.config import RECORDED, LearnConfig, written_settings
from horde_agent.runs.storage.files import next_free, read_json, unwritable, write_whole
from horde_agent.runs.storage.versions import versions
from horde_agent.toml import to_toml
from horde_agent.types import parsed_toml

try:
    import fcntl
except ImportError:  # Windows
    fcntl = None  # type: ignore[assignment]

IMPORTED = "imported"
"""The event after the last row of a data set or a log was written to the recording."""


class LastRow(NamedTuple):
    """The last sound row of a recording: how many rows there are with it, and its step; 0 for an empty log."""

    n_rows: int
    step: int


class RunFolder:
    """The files of one run, by name."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.log = path / "log"
        self.life = self.log / "life.rec"
        self.excursions = self.log / "excursions.rec"
        self.config = path / "config.toml"
        self.question_file = path / "questions.toml"
        self.summary = path / "summary.json"
        self.details = path / "details.json"
        self.questions = path / "questions.csv"
        self.learning_curve = path / "learning_curve.csv"
        self.mspbe_curve = path / "mspbe_curve.csv"
        self.traces = path / "traces.csv"
        self.held_out = path / "held_out.csv"
        self.sums = path / "sums.sha256"
        self.report = path / "report.html"
        self.checkpoint = path / "checkpoint"
        self.shards = path / "shards"
        self.events = self.log / "events.jsonl"
        self.exported = path / "export"
        self.lock = path / ".lock"
        # While a robot is open: how to ask for its stop (`stop_request`)
        self.stop = path / ".stop"
        self._made: list[Path] = []  # outermost last

    @classmethod
    def create(cls, config: LearnConfig) -> RunFolder:
        """Create a new run's folder and config.toml, by default runs/BACKEND-N; raise BadInput if that fails."""
        questions = _question_file(config)
        package_versions = versions()
        created = list[Path]()
        is_claimed = False
        place = config.out or Path("runs")
        try:
            created += [folder for folder in (place, *place.parents) if not folder.exists()]
            place.mkdir(parents=True, exist_ok=True)
            if config.out is None:
                place = next_free(place / config.backend)
                created.insert(0, place)
            folder = cls(place)
            folder._made = created
            with folder.config.open("x", encoding="utf-8") as file:
                is_claimed = True
                file.write(
                    to_toml(written_settings(replace(config, out=folder.path)), package_versions)
                )
            folder.log.mkdir(exist_ok=True)
            if questions is not None:
                folder.question_file.write_bytes(questions)
            folder.seal()
        except OSError as error:
            if is_claimed:
                folder.give_back()
            elif isinstance(error, FileExistsError) and place.is_dir():
                raise BadInput(
                    f"--out {config.out} already contains a run; name a new folder"
                ) from None
            _remove_empty(created)
            raise BadInput(unwritable(config.out or Path("runs"), error)) from None
        return folder

    @contextmanager
    def locked(self) -> Iterator[None]:
        """Lock the folder in this context; raise BadInput if another process has it, or it cannot be written."""
        try:
            file = self.lock.open("a+")
        except OSError as error:
            raise BadInput(unwritable(self.path, error)) from None
        with file:
            if fcntl is not None:
                try:
                    fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
                except OSError:
                    file.seek(0)
                    who = file.read(20).strip() or "unknown"
                    raise BadInput(
                        f"{self.path} is in use by process {who}; stop it first"
                    ) from None
            file.truncate(0)
            file.write(f"{os.getpid()}\n")
            file.flush()
            yield

    def is_locked(self) -> bool:
        """Return whether a process has the folder (`locked`); True if that cannot be determined."""
        if fcntl is not None and self.lock.is_file():
            try:
                with self.lock.open("rb") as file:
                    fcntl.flock(file, fcntl.LOCK_SH | fcntl.LOCK_NB)
            except OSError:  # another process has it, or the file system has no locks
                return True
        return fcntl is None

    def log_event(self, event: Mapping[str, Any]) -> None:
        """Append an event to log/events.jsonl, unless the disk is full.

        Each has `step`, `event` (its kind), `time` (UTC), further values, and `crc`, the CRC-32 of
        these as JSON.
        """
        with suppress(OSError):
            self._append_event(event)

    def log_resume(self, event: Mapping[str, Any]) -> None:
        """Append an event that must not be lost; raise BadInput if it cannot be written."""
        try:
            self._append_event(event, is_synced=True)
        except OSError as error:
            raise BadInput(unwritable(self.events, error)) from None

    def _append_event(self, event: Mapping[str, Any], *, is_synced: bool = False) -> None:
        entry = {**event, "time": datetime.now(UTC).isoformat(timespec="seconds")}
        checksum = crc32(json.dumps(entry).encode())
        with self.events.open("a", encoding="utf-8") as file:
            file.write(json.dumps({**entry, "crc": checksum}) + "\n")
            file.flush()
            if is_synced:
                os.fsync(file.fileno())

    def sound_events(self) -> tuple[list[dict[str, Any]], list[int]]:
        """Return the events that match their CRC-32, and the line numbers, from 1, of the others."""
        events: list[dict[str, Any]] = []
        damaged: list[int] = []
        lines: list[bytes] = []
        with suppress(OSError):
            lines = self.events.read_bytes().splitlines()
        for number, line in enumerate(lines, 1):
            if is_sealed(line):
                events.append(json.loads(line))
            else:
                damaged.append(number)
        return events, damaged

    def event_fault(self, damaged: Sequence[int]) -> str:
        """Return a sentence, without a full stop, about the damaged lines of the events; "" if there are none."""
        if not damaged:
            return ""
        numbers = ", ".join(map(str, damaged[:3]))
        if len(damaged) > 3:
            numbers += ", ..."
        return (
            f"{self.events.name} is damaged: {len(damaged)} of its lines (number {numbers}) do not match their CRC-32, "
            "and are left out"
        )

    def n_resumes(self) -> int:
        """Return the number of recorded resumes; a damaged line counts as one, so that no number is used twice."""
        events, damaged = self.sound_events()
        resumes = [event for event in events if event.get("event") == "resumed"]
        return len(damaged) + len(resumes)

    def snapshot_facts(self) -> dict[str, Any]:
        """Return the facts of the newest readable snapshot; empty without one."""
        for path in snapshots.found(self.checkpoint):
            with suppress(snapshots.SnapshotDamaged, snapshots.SnapshotOfAnother, LookupError):
                facts: dict[str, Any] = snapshots.read_manifest(path)["facts"]
                return facts
        return {}

    def refuse_changes(self) -> None:
        """Raise BadInput if the settings or a question file are not those that the run began with.

        The SHA-256 in the newest readable snapshot proves a file even if sums.sha256 is damaged.
        """
        digests_then = self.snapshot_facts().get("asked")
        present = digests(self)
        for name, digest in self.sealed().items():
            is_settings = name == self.config.name or (
                name.startswith("questions") and name.endswith(".toml")
            )
            if not is_settings or present.get(name) == digest:
                continue
            if digests_then is None or present.get(name) != digests_then.get(name):
                raise BadInput(
                    f"{self.path / name} was changed after the run began: its SHA-256 differs from the one in "
                    f"{self.sums.name}; restore it (`horde doctor` corrects a flipped bit), or start a new run with "
                    "these settings"
                )

    def sealed(self) -> dict[str, str]:
        """Return the SHA-256 in sums.sha256 by file name; empty without the file."""
        try:
            text = self.sums.read_text(encoding="utf-8", errors="replace")
        except OSError:
            return {}
        matches = [re.fullmatch(r"([0-9a-f]{64})  (\S+)", line) for line in text.splitlines()]
        return {match[2]: match[1] for match in matches if match is not None}

    def settings(self) -> dict[str, Any]:
        """Return the contents of config.toml, unchecked; empty if it cannot be read."""
        with suppress(OSError, ValueError):
            return parsed_toml(self.config.read_text(encoding="utf-8-sig"))
        return {}

    def is_imported(self) -> bool:
        """Return whether the recording was imported, as a whole, from a data set or a log.

        The first event of such a run says so: if that line is damaged, the import was over.
        """
        events, damaged = self.sound_events()
        return 1 in damaged or any(event.get("event") == IMPORTED for event in events)

    def refuse_part(self) -> None:
        """Raise BadInput if the run's data set was not imported as a whole."""
        is_data = self.settings().get("backend") == "data"
        if is_data and record_files(self.life) and not self.is_imported():
            raise BadInput(
                f"{self.path} holds only a part of its data set, because the import was interrupted: remove the folder "
                "and run the same `horde learn` again"
            )

    def last_row(self) -> LastRow:
        """Return the last sound row of the recording; raise ValueError or OSError if a file cannot be read."""
        for file in reversed(started_files(self.life)):
            segment = read_segment(file, FORMAT)
            n = segment.n_whole
            if n:
                n_rows = int(segment.header.get("first", 0)) + n
                return LastRow(n_rows=n_rows, step=int(segment.records["step"][n - 1]))
        return LastRow(n_rows=0, step=0)

    def has_gone_on(self) -> bool:
        """Return whether the log has steps after the summary (still running, or killed after a resume)."""
        summarised = lived_steps(self)
        if summarised is None or not self.mspbe_curve.is_file():
            return False
        # Recorded rows are in the log before learning begins: how far a run learned from them is in
        # its summary alone.
        if self.settings().get("backend") in RECORDED:
            return False
        try:
            return self.last_row().step > summarised
        # An unreadable log cannot be learned from
        except (ValueError, LookupError, TypeError, OSError):
            return False

    def missing_tables(self) -> list[Path]:
        """Return the missing tables: all if there is no summary, which is written last, or it has further steps."""
        if not self.summary.is_file() or self.has_gone_on():
            return [
                self.details,
                self.questions,
                self.mspbe_curve,
                self.traces,
                self.learning_curve,
                self.summary,
            ]
        if not self.questions.is_file():
            return [self.questions]
        is_life = self.mspbe_curve.is_file()  # a replayed log has none
        if is_life and not self.learning_curve.is_file():
            return [self.learning_curve]
        return []

    def began(self) -> datetime:
        """Return the time at which the run began (UTC); 1970 if it is unknown."""
        events, damaged = self.sound_events()
        if 1 not in damaged:
            with suppress(LookupError, TypeError, ValueError):
                return datetime.fromisoformat(events[0]["time"])
        return datetime.fromtimestamp(0, UTC)

    def sync_excursions(self) -> None:
        """Sync the written excursions to disk."""
        for path in record_files(self.excursions)[-1:]:
            with path.open("rb") as file:
                os.fsync(file.fileno())

    def seal(self, *, tables: bool = True) -> None:
        """Write the SHA-256 of the settings, and of the tables unless they are written again, to sums.sha256.

        That of a settings or question file is the first one that was written: the run uses what it
        read then.
        """
        sums = digests(self)
        sums |= {name: digest for name, digest in self.sealed().items() if name in sums}
        if tables:
            tables_there = (
                self.summary,
                self.details,
                self.questions,
                self.learning_curve,
                self.mspbe_curve,
                self.traces,
                self.held_out,
            )
            sums |= {file.name: _digest(file) for file in tables_there if file.is_file()}
        write_whole(self.sums, "".join(f"{digest}  {name}\n" for name, digest in sums.items()))

    def give_back(self) -> None:
        """Remove the files of a run without a step; a folder that existed before stays."""
        created = (
            self.excursions,
            self.question_file,
            self.config,
            self.events,
            self.lock,
            self.stop,
            self.sums,
        )
        for file in (*record_files(self.life), *created):
            file.unlink(missing_ok=True)
        for made_since in (self.path / "live", self.shards):
            shutil.rmtree(made_since, ignore_errors=True)
        with suppress(OSError):
            self.log.rmdir()
        _remove_empty(self._made)


def digests(folder: RunFolder) -> dict[str, str]:
    """Return the SHA-256 of the settings and question files, by file name."""
    files = [
        folder.config,
        *record_files(folder.question_file),
        *sorted(folder.path.glob("questions-*.toml")),
    ]
    return {file.name: _digest(file) for file in files if file.is_file()}


def _digest(file: Path) -> str:
    return hashlib.sha256(file.read_bytes()).hexdigest()


def _question_file(config: LearnConfig) -> bytes | None:
    if not str(config.questions).endswith(".toml"):
        return None
    try:
        return Path(str(config.questions)).read_bytes()
    except OSError as error:
        raise BadInput(
            f"the question file {config.questions} cannot be read ({error.strerror})"
        ) from None


def _remove_empty(folders: Iterable[Path]) -> None:
    for folder in folders:
        with suppress(OSError):  # not empty
            folder.rmdir()


def lived_steps(folder: RunFolder) -> int | None:
    """Return the number of steps in the summary of a run; None without one."""
    try:
        steps = read_json(folder.summary).get("steps")
    except (OSError, ValueError, RecursionError):
        return None
    if isinstance(steps, int):
        return steps
    return None
