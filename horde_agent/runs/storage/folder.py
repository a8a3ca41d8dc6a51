"""The folder of a run: settings, results and recording, all readable without this program (docs/runs.md).

A `RunFolder` is where resume, report, replay, export, doctor and the live page begin. It reads files
as they are, damaged ones too: each reader returns what is sound and what is damaged. What needs
sound settings or rows (`sound_settings`, `extent`) raises BadInput with the damage.

It makes no Horde. `run.open_run` does, and `resume.open_trained`: that takes memory and kernels,
which a report or the live page of many demons does not need, and a damaged run may have none.

A table is complete or absent; summary.json, with one value per key, null if it has no meaning in
the run, is written last. After a crash, `horde report` learns missing tables again from the log
(`runs.sources.relearn`).
"""

from __future__ import annotations

import codecs
import hashlib
import os
import re
import shutil
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import replace
from pathlib import Path
from typing import Any, NamedTuple

from horde_agent.record import FORMAT, header_of, snapshots
from horde_agent.record.kinds import COLUMNS, QUESTIONS, SETTINGS, NewerFormat
from horde_agent.record.segments import (
    read_segment,
    record_files,
    record_numbers,
    started_files,
)
from horde_agent.refusals import BadInput
from horde_agent.runs.config import (
    RECORDED,
    LearnConfig,
    is_streamed,
    read_config,
    read_settings,
    written_settings,
)
from horde_agent.runs.storage.event_log import EventLog
from horde_agent.runs.storage.files import next_free, read_json, unwritable, write_whole
from horde_agent.runs.storage.versions import versions
from horde_agent.toml import parsed_toml, to_toml, toml_value

try:
    import fcntl
except ImportError:  # Windows
    fcntl = None  # type: ignore[assignment]


class Extent(NamedTuple):
    """What a recording has.

    Attributes:
        header: It describes the robot (`run.record_header`).
        n_rows: Number of rows up to the last sound one; 0 if there is none.
        last_step: The step of that row.
    """

    header: dict[str, Any]
    n_rows: int
    last_step: int


class Sums(NamedTuple):
    """The lines of sums.sha256.

    Attributes:
        digests: SHA-256 by the name of a file.
        damaged: Lines that are none of a SHA-256 and a name.
    """

    digests: dict[str, str]
    damaged: list[str]


class RunFolder:
    """A run in its folder: its files by name, and what they say.

    Attributes:
        path: The folder.
        tables: The tables of the life of a robot, the summary last.
        events: What happened in the run.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self.log = path / "log"
        self.life = self.log / "life.rec"
        self.excursions = self.log / "excursions.rec"
        self.config = path / "config.toml"
        self.question_file = path / "questions.toml"
        self.columns = path / "columns.toml"  # of a data set, with the ranges that it had
        self.summary = path / "summary.json"
        self.details = path / "details.json"
        self.questions = path / "questions.csv"
        self.learning_curve = path / "learning_curve.csv"
        self.mspbe_curve = path / "mspbe_curve.csv"
        self.traces = path / "traces.csv"
        self.held_out = path / "held_out.csv"
        self.surprise = path / "surprise.json"  # of a run with --surprise
        self.frozen_scores = path / "frozen.csv"
        self.tables = (
            self.details,
            self.questions,
            self.mspbe_curve,
            self.traces,
            self.learning_curve,
            self.summary,
        )
        self.sums = path / "sums.sha256"
        self.report = path / "report.html"
        self.checkpoint = path / "checkpoint"
        self.frozen = path / "frozen"  # weights at the end of a history
        self.shards = path / "shards"
        self.events = EventLog(self.log / "events.jsonl")
        self.exported = path / "export"
        self.archive = path / "archive"  # Parquet tables of rows that `--keep` removed
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
                settings = written_settings(replace(config, out=folder.path))
                file.write(to_toml(SETTINGS.stamp() | settings, package_versions))
            folder.log.mkdir(exist_ok=True)
            if questions is not None:
                folder.question_file.write_bytes(stamped(questions))
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

    def snapshot_facts(self) -> dict[str, Any]:
        """Return the facts of the newest readable snapshot; empty without one."""
        for path in snapshots.found(self.checkpoint):
            with suppress(snapshots.SnapshotDamaged, NewerFormat, LookupError):
                return snapshots.read_facts(path)
        return {}

    # ---- settings ----------------------------------------------------------------------------------------------------

    def settings(self) -> dict[str, Any]:
        """Return the contents of config.toml, unchecked; empty if it cannot be read."""
        with suppress(OSError, ValueError):
            return read_settings(self.config)
        return {}

    def sound_settings(self) -> LearnConfig:
        """Return the settings; questions of the run's own are those in the folder.

        Raises:
            BadInput: If the settings or the data set are not whole, or were changed.
        """
        if not self.config.is_file():
            raise BadInput(f"{self.path} contains no run: config.toml is missing")
        config = replace(read_config(self.config), out=self.path)
        self.refuse_part()
        faults = self.setting_faults()
        if faults:
            raise BadInput(faults[0])
        if str(config.questions).endswith(".toml"):
            config = replace(config, questions=str(self.question_file))
        return config

    def setting_faults(self) -> list[str]:
        """Return sentences, without a full stop, about settings or questions that are not those at the beginning.

        The SHA-256 in the newest readable snapshot proves a file even if sums.sha256 is damaged.
        """
        faults = []
        settings = self.settings()
        if settings and not isinstance(settings.get("versions"), dict):
            faults.append(
                f"{self.config} is cut off before its versions, so settings may be missing"
            )
        digests_then = self.snapshot_facts().get("asked")
        present = self.digests()
        for name, digest in self.sealed().digests.items():
            present_digest = present.get(name)
            is_settings = name.endswith(".toml")  # tables are written again
            if not is_settings or present_digest == digest:
                continue
            if present_digest is None:
                faults.append(
                    f"{self.path / name} is missing, which {self.sums.name} lists: restore it, or start a new run"
                )
            elif digests_then is None or present_digest != digests_then.get(name):
                faults.append(
                    f"{self.path / name} was changed after the run began: its SHA-256 differs from the one in "
                    f"{self.sums.name}; restore it (`horde doctor` corrects a flipped bit), or start a new run with "
                    "these settings"
                )
        return faults

    def acting_settings(self) -> LearnConfig:
        """Return the settings of the run whose robot acted in this recording: this one, or that which it replayed.

        If the folder of that run is gone, its mode is unknown: they are those of this run, with a
        simulator.

        Raises:
            BadInput: As `sound_settings`.
        """
        config = self.sound_settings()
        if config.backend != "replay" or Path(str(config.log)).is_file():
            return config
        try:
            return RunFolder(Path(str(config.log))).acting_settings()
        except BadInput:
            return replace(config, backend="simulator")

    @property
    def is_streamed(self) -> bool:
        """Whether rows came one by one, at first or after those of a data set."""
        return is_streamed(self.settings()) or self.events.read().is_streamed

    @property
    def has_recorded_first(self) -> bool:
        """Whether all rows were recorded before any was learned from: those of a data set or a log."""
        return self.settings().get("backend") in RECORDED and not self.is_streamed

    def refuse_part(self) -> None:
        """Raise BadInput if the run's data set was not imported as a whole."""
        if (
            self.has_recorded_first
            and record_files(self.life)
            and not self.events.read().is_imported
        ):
            raise BadInput(
                f"{self.path} holds only a part of its data set, because the import was interrupted: remove the folder "
                "and run the same `horde learn` again"
            )

    # ---- recording and tables ----------------------------------------------------------------------------------------

    @contextmanager
    def reading(self) -> Iterator[None]:
        """Turn errors of reading the recording into BadInput."""
        try:
            yield
        except BadInput:
            raise
        except FileNotFoundError:
            raise BadInput(
                f"{self.path} contains no finished run: there are neither tables nor a log in it"
            ) from None
        except (ValueError, LookupError, TypeError, OSError) as error:
            raise BadInput(
                f"{self.life} cannot be read, so it cannot be learned from again: {error}"
            ) from None

    def extent(self, *, may_be_empty: bool = False) -> Extent:
        """Return header and length of the recording.

        Raises:
            BadInput: If it cannot be read, or has no row and must not be empty.
        """
        n_rows = 0
        last_step = 0
        with self.reading():
            header = header_of(self.life)
            for file in reversed(started_files(self.life)):
                segment = read_segment(file, FORMAT)
                if segment.n_whole:
                    n_rows = segment.first + segment.n_whole
                    last_step = int(segment.records["step"][segment.n_whole - 1])
                    break
        if not n_rows and not may_be_empty:
            raise BadInput(f"{self.path} contains no finished run: its log is empty")
        return Extent(header, n_rows, last_step)

    @property
    def n_removed(self) -> int:
        """Number of rows at the beginning that are gone, as `--keep` asks; 0 if the oldest file cannot be read."""
        with suppress(OSError, ValueError, LookupError):
            return record_numbers(started_files(self.life)[0], FORMAT).start
        return 0

    def refuse_removed(self, what: str) -> None:
        """Raise BadInput, saying what is impossible, if rows at the beginning of the recording were removed."""
        n_removed = self.n_removed
        if n_removed:
            raise BadInput(
                f"{self.path} cannot {what}: the first {n_removed:,} rows of its record were removed (--keep), and "
                "learning needs all of them; `horde export` writes those that are left"
            )

    def summarised_steps(self) -> int | None:
        """Return the number of steps in the summary; None without one."""
        try:
            steps = read_json(self.summary).get("steps")
        except (OSError, ValueError, RecursionError):
            return None
        if isinstance(steps, int):
            return steps
        return None

    def has_gone_on(self) -> bool:
        """Return whether the log has steps after the summary (still running, or killed after a resume)."""
        summarised = self.summarised_steps()
        if summarised is None or not self.mspbe_curve.is_file():
            return False
        # Recorded rows are in the log before learning begins: how far a run learned from them is in
        # its summary alone.
        if self.has_recorded_first:
            return False
        try:
            return self.extent().last_step > summarised
        except BadInput:  # an unreadable log cannot be learned from
            return False

    def missing_tables(self) -> list[Path]:
        """Return the missing tables: all if there is no summary, which is written last, or it has further steps."""
        if not self.summary.is_file() or self.has_gone_on():
            return self._all_tables
        if not self.questions.is_file():
            return [self.questions]
        if not self.learning_curve.is_file():
            return [self.learning_curve]
        if not self.surprise.is_file() and self.settings().get("surprise") is not None:
            return [self.surprise]
        return []

    @property
    def _all_tables(self) -> list[Path]:
        """The tables, with those that only some runs have."""
        tables = [*self.tables, self.surprise]
        if self.frozen.is_dir():
            tables.append(self.frozen_scores)
        return tables

    def sync_excursions(self) -> None:
        """Sync the written excursions to disk."""
        for path in record_files(self.excursions)[-2:]:  # the last one may have just been begun
            with path.open("rb") as file:
                os.fsync(file.fileno())

    def seal(self, *, tables: bool = True) -> None:
        """Write the SHA-256 of the settings, and of the tables unless they are written again, to sums.sha256.

        That of a settings or question file is the first one that was written: the run uses what it
        read then.
        """
        sums = self.digests()
        sums |= {name: digest for name, digest in self.sealed().digests.items() if name in sums}
        if tables:
            files = [*self.tables, self.held_out, self.surprise, self.frozen_scores]
            sums |= {file.name: _digest(file) for file in files if file.is_file()}
        write_whole(self.sums, "".join(f"{digest}  {name}\n" for name, digest in sums.items()))

    def write_columns(self, columns: str, name: str | None = None) -> None:
        """Write a columns file, with its stamp: what `arranged_rows.columns_of` reads."""
        file = self.path / (name or self.columns.name)
        write_whole(file, _lines(COLUMNS.stamp()) + columns)

    def digests(self) -> dict[str, str]:
        """Return the SHA-256 of the settings, columns and question files, by file name."""
        files = [
            self.config,
            *record_files(self.columns),
            *record_files(self.question_file),
            *sorted(self.path.glob("questions-*.toml")),
        ]
        return {file.name: _digest(file) for file in files if file.is_file()}

    def sealed(self) -> Sums:
        """Return what sums.sha256 says; nothing without the file."""
        sums = Sums(digests={}, damaged=[])
        lines: list[str] = []
        with suppress(OSError):
            text = self.sums.read_text(encoding="utf-8", errors="replace")
            lines = text.removesuffix("\n").split("\n")
        for line in lines:
            match = re.fullmatch(r"([0-9a-f]{64})  (\S+)", line)
            if match is None:
                sums.damaged.append(line)
            else:
                sums.digests[match[2]] = match[1]
        return sums

    def give_back(self) -> None:
        """Remove the files of a run without a step; a folder that existed before stays."""
        created = (
            self.excursions,
            self.question_file,
            self.columns,
            self.config,
            self.events.path,
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


def stamped(questions: bytes) -> bytes:
    """Return the content of a question file with its stamp, which another version of this program needs."""
    text = questions.removeprefix(codecs.BOM_UTF8)
    try:
        is_stamped = "format" in parsed_toml(text.decode())
    except ValueError:  # refused later, when the questions are made
        is_stamped = True
    if is_stamped:
        return questions
    return _lines(QUESTIONS.stamp()).encode() + text


def _lines(stamp: Mapping[str, Any]) -> str:
    return "".join(f"{name} = {toml_value(value)}\n" for name, value in stamp.items())


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
