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
import tempfile
from collections.abc import Callable, Mapping
from contextlib import closing, suppress
from functools import cached_property, partial
from itertools import pairwise
from pathlib import Path
from typing import Any

import gymnasium

from horde_agent.life.learner import StreamLearner
from horde_agent.life.life import Life
from horde_agent.record import FORMAT as LIFE
from horde_agent.record import Recorder, header_of
from horde_agent.record.kinds import Kind
from horde_agent.record.segments import (
    MOST_CORRECTED,
    HeaderDamaged,
    corrected,
    dtype_of,
    encode_header,
    file_at,
    in_present_format,
    is_sealed,
    number_of,
    read_header,
    record_files,
    record_numbers,
    records_after,
    started_files,
    stored_header,
)
from horde_agent.refusals import BadInput
from horde_agent.runs.storage.examination import Examination
from horde_agent.runs.storage.folder import RunFolder
from horde_agent.runs.storage.resume import change_questions
from horde_agent.runs.storage.run import (
    HeaderEnv,
    learns_all_rows,
    make_run,
    new_life,
    open_run,
    recording_facts,
)
from horde_agent.scoring import excursion_table
from horde_agent.scoring.excursion_table import FORMAT as EXCURSIONS
from horde_agent.scoring.excursion_table import expected_files, newest_folded

_NO_HEADER = (BadInput, ValueError, LookupError, TypeError, ImportError, OSError)
"""Errors by which a header cannot be made from other files."""
_UNREADABLE = (ValueError, LookupError, TypeError, OSError)
"""Errors of reading a file of records."""
_OF_FILE = ("first", "offset", "crc")
"""Keys of a header that differ between the files of a recording."""


# ---- checksums -------------------------------------------------------------------------------------------------------


def correct_sums(run: Examination) -> None:
    """Correct a flipped bit in sums.sha256: more of its lines are then right for the files that are there."""
    folder = run.folder
    if not folder.sums.is_file():
        return
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
        return
    right = corrected(content, lambda tried: n_right(tried) > n_before)
    if right is not None:
        message = "a flipped bit was corrected by the files that it is about"
        run.replace(folder.sums, right, message)


def correct_summed_files(run: Examination) -> None:
    """Correct a flipped bit in settings, questions and tables, whose SHA-256 is known."""
    folder = run.folder
    digests = folder.sealed().digests | folder.snapshot_facts().get("asked", {})
    for name, digest in digests.items():
        file = folder.path / name
        if Path(name).name != name or not file.is_file():
            continue
        content = file.read_bytes()
        if _has_sha256(digest, content):
            continue
        right = corrected(content, partial(_has_sha256, digest))
        if right is not None:
            run.replace(file, right, "a flipped bit was corrected by its SHA-256")


def _has_sha256(digest: str, content: bytes) -> bool:
    return hashlib.sha256(content).hexdigest() == digest


def correct_events(run: Examination) -> None:
    """Correct flipped bits in the lines of events, also one in the end of a line."""
    events = run.folder.events.path
    if not events.is_file():
        return
    lines = events.read_bytes().split(b"\n")
    if not any(map(is_sealed, lines)):  # not one is sound: there is nothing to compare with
        return
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
    if numbers:
        message = f"flipped bits were corrected by the CRC-32 of line {', '.join(numbers)}"
        run.replace(events, b"\n".join(kept), message)


def _are_sealed(lines: bytes) -> bool:
    return all(map(is_sealed, lines.split(b"\n")))


# ---- recordings ------------------------------------------------------------------------------------------------------


def write_first_lines(run: Examination) -> None:
    """Write damaged first lines of the run's recordings again, and files of excursions that are missing."""
    folder = run.folder
    expected = _ExpectedHeaders(run)
    for file in started_files(folder.life):
        if file.is_file():
            _write_first_line(run, file, LIFE, partial(expected.of_life, file))
    if not record_files(folder.life):
        return
    facts = folder.snapshot_facts()
    n_parts = 1 + len(facts.get("changes", []))  # what adding or removing questions began
    if "excursions" in facts:
        n_parts = int(facts["excursions"]["n_parts"])
    files = {*record_files(folder.excursions), *expected_files(folder.excursions, n_parts)}
    # In order: a file's first line follows from the first line of the file before
    for file in sorted(files, key=lambda file: number_of(file, folder.excursions)):
        if file.exists():
            _write_first_line(run, file, EXCURSIONS, partial(expected.of_excursions, file))
            continue
        header = expected.of_excursions(file)
        if header is not None:
            message = (
                "it was missing, and was written without excursions: `horde learn --backend replay --log "
                f"{folder.path}` measures them again"
            )
            run.replace(file, encode_header(header), message)


def _write_first_line(
    run: Examination, file: Path, kind: Kind, rebuild: Callable[[], dict[str, Any] | None]
) -> None:
    """Write the first line of a file of records again if it is damaged.

    `rebuild` returns its header by the run's other files, None if they do not say it.
    """
    content = file.read_bytes()
    try:
        header = stored_header(file, kind)
    except HeaderDamaged:
        line = content[:MOST_CORRECTED].split(b"\n", 1)[0].strip()
        text = corrected(line, is_sealed)
        if text is None:
            _rewrite_line(run, file, content, rebuild())
            return
        header = json.loads(text)
        right = encode_header(header) + content[int(header["offset"]) :]
        message = "a flipped bit in its first line was corrected by its CRC-32"
        run.replace(file, right, message)
        return
    except (ValueError, LookupError, TypeError):
        return
    line = encode_header(header)
    if not content.startswith(line) and len(line) == header["offset"]:
        message = "the end of its first line was damaged, and was corrected"
        run.replace(file, line + content[len(line) :], message)


def _rewrite_line(
    run: Examination, file: Path, content: bytes, header: dict[str, Any] | None
) -> None:
    """Put a line with this header in the place of a lost one, unless the records are others."""
    if header is None:
        return
    records = records_after(content, header)
    line = encode_header(header)
    if records is None and len(content) > len(line):
        return  # other records, or none of them is sound
    message = "its first line was written again by what the run's other files say"
    run.replace(file, line + (records or b""), message)


class _ExpectedHeaders:
    """What the first lines of a run's recordings must say."""

    def __init__(self, run: Examination) -> None:
        self._run = run
        self._folder = run.folder

    def of_life(self, file: Path) -> dict[str, Any] | None:
        """Return the header of a file of rows, from another file of them or from the settings."""
        header = self._header_of_another(file)
        recording = self._folder.snapshot_facts().get("recording")
        if header is None and recording is not None:
            header = in_present_format(recording, LIFE)
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
        """Return the header of a file of excursions, from the settings and questions, and from its neighbours.

        A file that was begun because the one before was long has the same layout; any other one has
        the next layout.
        """
        number = number_of(file, self._folder.excursions)
        layouts = self._layouts
        if number == 1 or not layouts:
            return next(iter(layouts), None)
        neighbours = [file_at(self._folder.excursions, number + by) for by in (-1, 1)]
        headers: list[dict[str, Any] | None] = [None, None]
        for i, neighbour in enumerate(neighbours):
            with suppress(*_UNREADABLE):
                headers[i] = read_header(neighbour, EXCURSIONS)
        previous_header, next_header = headers
        if previous_header is not None:
            first = record_numbers(neighbours[0], EXCURSIONS).stop
            if first % excursion_table.BLOCK == 0:
                return _continued(previous_header, first)
            for layout, next_layout in pairwise(layouts):
                if layout["policies"] == previous_header["policies"]:
                    return {**next_layout, "first": first}
            return None
        folded = newest_folded(self._folder.excursions)
        if folded is None:
            return None
        first = int(folded.facts["n_excursions"])
        if next_header is not None and next_header["stays"] == list(range(next_header["n_demons"])):
            return _continued(next_header, first)
        if len(layouts) == 1:
            return _continued(layouts[0], first)
        return None

    def _header_of_another(self, file: Path) -> dict[str, Any] | None:
        """Return the header of another file of rows, or of the run that this one replayed."""
        candidates = record_files(self._folder.life)
        settings = self._folder.settings()
        if settings.get("backend") == "replay":
            candidates += record_files(RunFolder(Path(str(settings.get("log")))).life)
        for other in candidates:
            if other != file:
                with suppress(*_UNREADABLE):
                    return read_header(other, LIFE)
        return None

    def _first_of(self, file: Path, header: Mapping[str, Any]) -> int | None:
        """Return the number of rows in the files before a file of rows; None if it is unknown."""
        life = self._folder.life
        number = number_of(file, life)
        if number == 1:
            return 0
        with suppress(*_UNREADABLE):
            return record_numbers(file_at(life, number - 1), LIFE).stop
        records = records_after(file.read_bytes(), dict(header))
        with suppress(*_UNREADABLE):
            first_after = int(read_header(file_at(life, number + 1), LIFE)["first"])
            return first_after - len(records or b"") // dtype_of(header).itemsize
        return None

    @cached_property
    def _life(self) -> dict[str, Any] | None:
        """Header of rows of a run with the same settings, without a step; None if none can be made."""
        try:
            config = self._folder.sound_settings().of_one_horde
            with closing(self._run.make_env(config)) as env:
                recorded = self._folder.acting_settings()
                run = make_run(env, config, self._folder, recorded=recorded)
                life, _ = new_life([env] * config.robots, run)
                with closing(life):
                    facts = recording_facts(run, env, has_tests=_has_tests(env, life))
        except _NO_HEADER:
            return None
        return Recorder(len(run.interface.channels), header=facts).header

    @cached_property
    def _layouts(self) -> list[dict[str, Any]]:
        """Headers of excursions at first and after each change of the questions; none if they are unknown.

        Rows must have a sound first line.
        """
        try:
            header = header_of(self._folder.life)
            run = open_run(self._folder, header)
            is_tested = learns_all_rows(run.config, header)
            student = StreamLearner(run.horde, run.interface, is_tested=is_tested)
            with tempfile.TemporaryDirectory() as elsewhere:
                excursions = Path(elsewhere) / self._folder.excursions.name
                student.errors.table.record_to(excursions)
                changes = self._folder.snapshot_facts().get("changes", [])
                change_questions(student, run.interface, self._folder, changes)
                return [read_header(file, EXCURSIONS) for file in record_files(excursions)]
        except _NO_HEADER:
            return []


def _continued(header: Mapping[str, Any], first: int) -> dict[str, Any]:
    """Return the header of a file of excursions with the layout of another one."""
    layout = {name: value for name, value in header.items() if name not in _OF_FILE}
    return {**layout, "stays": list(range(header["n_demons"])), "first": first}


def _has_tests(env: gymnasium.Env[Any, Any], life: Life) -> bool:
    """Return whether a recording has test excursions: a data set's header says so, a robot makes them."""
    if isinstance(env, HeaderEnv):
        return hasattr(env, "manoeuvre_frames")
    return bool(life.excursions.policies)
