"""Repair files of a run whose content follows from checksums or from other files of the run.

    settings, questions, tables      one flipped bit, by the SHA-256 in sums.sha256 or in a snapshot
    sums.sha256                      one flipped bit, by the files that its lines are about
    events                           one flipped bit of a line, by its CRC-32
    first line of a recording        one flipped bit, by its CRC-32; any other damage, by another file of the recording,
                                     a snapshot, or the settings and questions; no environment is imported for it
    a missing file of excursions     written without excursions, which can be learned again from the recording

A file is replaced at once, and the damaged one is kept beside it as `damaged-NAME`.
"""

from __future__ import annotations

import hashlib
import json
import os
import shutil
import tempfile
from collections.abc import Callable, Mapping
from contextlib import closing, suppress
from functools import cached_property, partial
from pathlib import Path
from typing import Any, NamedTuple

import gymnasium

from horde_agent.life.learner import StreamLearner
from horde_agent.life.life import Life
from horde_agent.record import FORMAT as LIFE
from horde_agent.record import Recorder, snapshots
from horde_agent.record.segments import (
    MOST_CORRECTED,
    HeaderDamaged,
    corrected,
    dtype_of,
    encode_header,
    file_at,
    is_sealed,
    n_records_until,
    number_of,
    read_header,
    record_files,
    records_after,
    started_files,
    sync_folder,
)
from horde_agent.runs.config import BadInput, LearnConfig
from horde_agent.runs.storage.folder import RunFolder
from horde_agent.runs.storage.resume import change_questions, snapshot_digests
from horde_agent.runs.storage.run import HeaderEnv, make_run, new_life, recording_facts
from horde_agent.runs.storage.saved_run import open_run
from horde_agent.scoring.excursion_table import FORMAT as EXCURSIONS

MakeEnv = Callable[[LearnConfig], gymnasium.Env[Any, Any]]
"""Makes the robot of resolved settings, or its description; nothing is opened."""

_ASIDE = "damaged-"
_NO_HEADER = (BadInput, ValueError, LookupError, TypeError, ImportError, OSError)
"""Errors by which a header cannot be made from other files."""
_OF_FILE = ("first", "offset", "crc")
"""Keys of a header that differ between the files of a recording."""


class Repair(NamedTuple):
    """A file that was repaired."""

    path: Path  # the file
    message: str  # the damage and its repair


def repair_files(folder: RunFolder, make_env: MakeEnv) -> list[Repair]:
    """Repair what can be repaired in a run's folder, and return the repairs."""
    return [
        *_repair_sums(folder),
        *_repair_summed_files(folder),
        *_repair_events(folder),
        *_repair_recordings(folder, make_env),
    ]


def _replace(path: Path, content: bytes) -> str:
    """Replace a file at once; keep the damaged one, if there is one, and return a phrase that names it."""
    part = path.with_name(f".{path.name}.part")
    aside = path.with_name(f"{_ASIDE}{path.name}")
    with part.open("wb") as file:
        file.write(content)
        file.flush()
        os.fsync(file.fileno())
    phrase = ""
    if path.exists():
        aside.unlink(missing_ok=True)
        try:
            os.link(path, aside)
        except OSError:  # a file system without links
            shutil.copy2(path, aside)
        phrase = f"; the damaged file is {aside.name}"
    os.replace(part, path)
    sync_folder(path.parent)
    return phrase


# ---- checksums -------------------------------------------------------------------------------------------------------


def _repair_sums(folder: RunFolder) -> list[Repair]:
    """Correct a flipped bit in sums.sha256: more of its lines are then right for the files that are there."""
    if not folder.sums.is_file():
        return []
    content = folder.sums.read_bytes()
    right_lines = {
        f"{hashlib.sha256(file.read_bytes()).hexdigest()}  {file.name}".encode()
        for file in folder.path.iterdir()
        if file.is_file() and file.suffix in (".toml", ".json", ".csv")
    }

    def n_right(lines: bytes) -> int:
        return len(right_lines.intersection(lines.split(b"\n")))

    n_before = n_right(content)
    if n_before == content.count(b"\n"):
        return []
    right = corrected(content, lambda tried: n_right(tried) > n_before)
    if right is None:
        return []
    aside = _replace(folder.sums, right)
    return [
        Repair(folder.sums, f"a flipped bit was corrected by the files that it is about{aside}")
    ]


def _repair_summed_files(folder: RunFolder) -> list[Repair]:
    """Correct a flipped bit in settings, questions and tables, whose SHA-256 is known."""
    digests = folder.sealed() | (snapshot_digests(folder) or {})
    repairs = []
    for name, digest in digests.items():
        file = folder.path / name
        if Path(name).name != name or not file.is_file():
            continue
        content = file.read_bytes()
        if hashlib.sha256(content).hexdigest() == digest:
            continue
        right = _corrected_by_sha256(content, digest)
        if right is not None:
            aside = _replace(file, right)
            repairs.append(Repair(file, f"a flipped bit was corrected by its SHA-256{aside}"))
    return repairs


def _corrected_by_sha256(content: bytes, digest: str) -> bytes | None:
    return corrected(content, lambda tried: hashlib.sha256(tried).hexdigest() == digest)


def _repair_events(folder: RunFolder) -> list[Repair]:
    """Correct flipped bits in the lines of events, also one in the end of a line."""
    if not folder.events.is_file():
        return []
    lines = folder.events.read_bytes().split(b"\n")
    if not any(map(is_sealed, lines)):  # not one is sound: there is nothing to compare with
        return []
    kept: list[bytes] = []
    numbers: list[str] = []
    for number, line in enumerate(lines, 1):
        right = None
        if line and not is_sealed(line):
            right = corrected(line, _are_sealed)
        # A bit that made an end of line cut the one before this in two
        if right is None and kept and line and not is_sealed(line) and not is_sealed(kept[-1]):
            right = corrected(kept[-1] + b"\n" + line, _are_sealed)
            if right is not None:
                kept.pop()
        if right is None:
            kept.append(line)
        else:
            kept.append(right)
            numbers.append(f"{number}")
    if not numbers:
        return []
    aside = _replace(folder.events, b"\n".join(kept))
    message = f"flipped bits were corrected by the CRC-32 of line {', '.join(numbers)}{aside}"
    return [Repair(folder.events, message)]


def _are_sealed(lines: bytes) -> bool:
    return all(map(is_sealed, lines.split(b"\n")))


# ---- recordings ------------------------------------------------------------------------------------------------------


def _repair_recordings(folder: RunFolder, make_env: MakeEnv) -> list[Repair]:
    """Write damaged first lines of a run's recordings again, and files of excursions that are missing."""
    expected = _ExpectedHeaders(folder, make_env)
    repairs = []
    for file in started_files(folder.life):
        if file.is_file():
            repairs += _repair_first_line(file, LIFE, partial(expected.of_life, file))
    if not record_files(folder.life):
        return repairs
    for file in record_files(folder.excursions):
        repairs += _repair_first_line(file, EXCURSIONS, partial(expected.of_excursions, file))
    # Adding questions, and removing some, each begins a file
    for number in range(1, len(_changes(folder)) + 2):
        file = file_at(folder.excursions, number)
        if not file.exists() and expected.of_excursions(file) is not None:
            _replace(file, encode_header(expected.excursions[file.name]))
            message = (
                "it was missing, and was written without excursions: `horde learn --backend replay --log "
                f"{folder.path}` measures them again"
            )
            repairs.append(Repair(file, message))
    return repairs


def _repair_first_line(
    file: Path, kind: str, rebuild: Callable[[], Mapping[str, Any] | None]
) -> list[Repair]:
    """Write the first line of a file of records again if it is damaged, and return the repair.

    `rebuild` returns its header by the run's other files, None if they do not say it.
    """
    content = file.read_bytes()
    try:
        header = read_header(file, kind)
    except HeaderDamaged:
        line = content[:MOST_CORRECTED].split(b"\n", 1)[0].strip()
        text = corrected(line, is_sealed)
        if text is None:
            return _with_rebuilt_line(file, content, rebuild())
        header = json.loads(text)
        aside = _replace(file, encode_header(header) + content[int(header["offset"]) :])
        return [Repair(file, f"a flipped bit in its first line was corrected by its CRC-32{aside}")]
    except (ValueError, LookupError, TypeError):
        return []
    line = encode_header(header)
    if content.startswith(line) or len(line) != header["offset"]:
        return []
    aside = _replace(file, line + content[len(line) :])
    return [Repair(file, f"the end of its first line was damaged, and was corrected{aside}")]


def _with_rebuilt_line(
    file: Path, content: bytes, header: Mapping[str, Any] | None
) -> list[Repair]:
    if header is None:
        return []
    records = records_after(content, dict(header))
    is_without = len(content) <= len(encode_header(dict(header)))
    if records is None and not is_without:
        return []  # other records, or none of them is sound
    aside = _replace(file, encode_header(dict(header)) + (records or b""))
    message = f"its first line was written again by what the run's other files say{aside}"
    return [Repair(file, message)]


def _changes(folder: RunFolder) -> list[dict[str, Any]]:
    """Return the questions that were added and removed before the newest readable snapshot."""
    for path in snapshots.found(folder.checkpoint):
        try:
            changes: list[dict[str, Any]] = snapshots.read_manifest(path)["facts"]["changes"]
        except (snapshots.SnapshotDamaged, snapshots.SnapshotOfAnother, LookupError):
            continue
        return changes
    return []


class _ExpectedHeaders:
    """What the first lines of a run's recordings must say.

    Args:
        folder: The run.
        make_env: Makes its robot.
    """

    def __init__(self, folder: RunFolder, make_env: MakeEnv) -> None:
        self._folder = folder
        self._make_env = make_env

    def of_life(self, file: Path) -> dict[str, Any] | None:
        """Return the header of a file of rows, from another file of them or from the settings."""
        header = self._header_of_another(file) or _header_of_snapshot(self._folder)
        if header is None:
            header = self._life
        if header is None:
            return None
        first = self._first_of(file, header)
        if first is None:
            return None
        shared = {name: value for name, value in header.items() if name not in _OF_FILE}
        return {**shared, "first": first}

    def of_excursions(self, file: Path) -> dict[str, Any] | None:
        """Return the header of a file of excursions, from the settings and questions."""
        return self.excursions.get(file.name)

    @cached_property
    def excursions(self) -> dict[str, dict[str, Any]]:
        """Headers of all files of excursions, by name; none if they are unknown. Rows must have a sound first line."""
        try:
            header = read_header(started_files(self._folder.life)[0], LIFE)
            with tempfile.TemporaryDirectory() as elsewhere:
                return _headers_of_excursions(self._folder, header, Path(elsewhere))
        except _NO_HEADER:
            return {}

    def _header_of_another(self, file: Path) -> dict[str, Any] | None:
        """Return the header of another file of rows, or of the run that this one replayed."""
        candidates = record_files(self._folder.life)
        settings = self._folder.settings()
        if settings.get("backend") == "replay":
            candidates += record_files(RunFolder(Path(str(settings.get("log")))).life)
        for other in candidates:
            if other != file:
                with suppress(ValueError, LookupError, TypeError, OSError):
                    return read_header(other, LIFE)
        return None

    def _first_of(self, file: Path, header: Mapping[str, Any]) -> int | None:
        """Return the number of rows in the files before a file of rows; None if it is unknown."""
        life = self._folder.life
        number = number_of(file, life)
        if number == 1:
            return 0
        with suppress(ValueError, LookupError, TypeError, OSError):
            return n_records_until(file_at(life, number - 1), LIFE)
        records = records_after(file.read_bytes(), dict(header))
        with suppress(ValueError, LookupError, TypeError, OSError):
            first_after = int(read_header(file_at(life, number + 1), LIFE)["first"])
            return first_after - len(records or b"") // dtype_of(header).itemsize
        return None

    @cached_property
    def _life(self) -> dict[str, Any] | None:
        """Header of rows of a run with the same settings, without a step; None if none can be made."""
        try:
            with tempfile.TemporaryDirectory() as elsewhere:
                return _header_of_life(self._folder, Path(elsewhere), self._make_env)
        except _NO_HEADER:
            return None


def _header_of_snapshot(folder: RunFolder) -> dict[str, Any] | None:
    """Return the header of a run's rows in its newest readable snapshot; None without one."""
    for path in snapshots.found(folder.checkpoint):
        with suppress(snapshots.SnapshotDamaged, snapshots.SnapshotOfAnother, LookupError):
            header: dict[str, Any] = snapshots.read_manifest(path)["facts"]["recording"]
            return header
    return None


def _header_of_life(folder: RunFolder, elsewhere: Path, make_env: MakeEnv) -> dict[str, Any]:
    """Begin a recording with a run's settings in an empty folder, and return its header."""
    saved = open_run(folder)
    config = saved.settings_of_one_horde
    twin = RunFolder(elsewhere)
    twin.log.mkdir()
    with closing(make_env(config)) as env:
        run = make_run(env, config, twin, recorded=saved.replayed)
        life, _ = new_life([env] * config.robots, run)
        with closing(life):
            facts = recording_facts(run, env, has_tests=_has_tests(env, life))
    Recorder(len(run.interface.channels), twin.life, facts).close()
    return read_header(twin.life, LIFE)


def _has_tests(env: gymnasium.Env[Any, Any], life: Life) -> bool:
    """Return whether a recording has test excursions: a data set's header says so, a robot makes them."""
    if isinstance(env, HeaderEnv):
        return hasattr(env, "manoeuvre_frames")
    return bool(life.excursions.policies)


def _headers_of_excursions(
    folder: RunFolder, header: dict[str, Any], elsewhere: Path
) -> dict[str, dict[str, Any]]:
    """Begin files of excursions with a run's settings and questions in an empty folder, and return their headers.

    `header` is that of its rows.
    """
    run = open_run(folder).build(header)
    student = StreamLearner(run.horde, run.interface)
    excursions = elsewhere / folder.excursions.name
    student.errors.table.record_to(excursions)
    change_questions(student, run.interface, folder, _changes(folder))
    files = record_files(excursions)
    return {file.name: read_header(file, EXCURSIONS) for file in files}
