"""`horde doctor RUN`: check every file of a run and repair what can be repaired.

Repairs: those of `repair`; truncate an incomplete last row; rename damaged snapshots and remove
unfinished ones. Other damaged files are reported and not changed. A second call changes nothing.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Sized
from contextlib import suppress
from pathlib import Path

from horde_agent.record import FORMAT as LIFE
from horde_agent.record import snapshots
from horde_agent.record.kinds import Kind
from horde_agent.record.segments import (
    cut,
    read_segment,
    record_files,
    started_files,
)
from horde_agent.refusals import one_line
from horde_agent.runs.config import read_config, refuse_no_run
from horde_agent.runs.storage.event_log import RecordedEvents
from horde_agent.runs.storage.examination import Examination, FileFinding, MakeEnv
from horde_agent.runs.storage.files import read_csv, read_json, read_lines
from horde_agent.runs.storage.folder import RunFolder
from horde_agent.runs.storage.frozen import read_frozen
from horde_agent.runs.storage.question_table import read_held_out, read_questions
from horde_agent.runs.storage.repair import (
    correct_events,
    correct_summed_files,
    correct_sums,
    write_first_lines,
)
from horde_agent.runs.storage.versions import differences
from horde_agent.scoring.excursion_table import FORMAT as EXCURSIONS
from horde_agent.scoring.excursion_table import folded_place


def examine(path: Path, make_env: MakeEnv) -> list[FileFinding]:
    """Check the files of a run, repair what can be repaired, and return the results.

    Args:
        path: The run's folder.
        make_env: Makes its robot, which a first line describes.

    Raises:
        BadInput: If there is no run.
    """
    refuse_no_run(path)
    folder = RunFolder(path)
    examination = Examination(folder, make_env)
    with folder.locked():
        for check in CHECKS:
            check(examination)
    return examination.findings


def _compare_sums(run: Examination) -> None:
    """Compare settings, questions and tables with their SHA-256: a changed digit is still readable."""
    folder = run.folder
    sums = folder.sums
    if not sums.is_file():  # of a run without tables
        return
    n_findings = len(run.findings)
    sealed = folder.sealed()
    for name, digest in sealed.digests.items():
        file = folder.path / name
        if not file.is_file():
            run.damaged(file, f"it is missing, which {sums.name} lists, or {sums.name} is damaged")
        elif hashlib.sha256(file.read_bytes()).hexdigest() != digest:
            message = f"its SHA-256 differs from the one in {sums.name}: it was changed, or {sums.name} is damaged"
            run.damaged(file, message)
    for line in sealed.damaged:
        run.damaged(sums, f"this line is no SHA-256 of a file: {line!r}")
    if len(run.findings) == n_findings:
        run.sound(sums, f"{len(sealed.digests)} files are unchanged")


def _read_texts(run: Examination) -> None:
    """Read settings, tables and events."""
    folder = run.folder
    readers: dict[Path, tuple[Callable[[Path], Sized], str]] = {
        folder.config: (lambda file: vars(read_config(file)), "settings"),
        folder.summary: (read_json, "values"),
        folder.details: (read_json, "values"),
        folder.questions: (read_questions, "lines"),
        folder.held_out: (read_held_out, "lines"),
        folder.frozen_scores: (read_frozen, "lines"),
        folder.learning_curve: (read_lines, "lines"),
        folder.mspbe_curve: (read_lines, "lines"),
        folder.traces: (read_lines, "lines"),
        folder.events.path: (_events, "events"),
    }
    for file, (reader, unit) in readers.items():
        if not file.exists() and file != folder.config:
            continue
        try:
            if file.suffix == ".csv":
                read_csv(file)  # refuses a truncated line, which the readers leave out
            run.sound(file, f"{len(reader(file)):,} {unit}")
        except Exception as error:  # a damaged file can raise anything
            run.damaged(file, one_line(error))


def _events(file: Path) -> Sized:
    """Return the events; raise ValueError if a line does not match its CRC-32."""
    recorded = RecordedEvents.of(file.name, file.read_bytes())
    if recorded.damaged:
        raise ValueError(f"line {recorded.damaged[0]} does not match its CRC-32")
    return recorded.events


def _read_rows(run: Examination) -> None:
    """Check the rows, and that they reach the newest snapshot."""
    folder = run.folder
    n_counted = int(folder.snapshot_facts().get("n_rows", 0))
    n_rows = _read_records(run, folder.life, LIFE, "rows", n_counted)
    # Snapshots of a data set count on from pass to pass
    if n_rows < n_counted and not folder.has_recorded_first:
        run.damaged(
            folder.life,
            f"it has {n_rows:,} rows, but a snapshot follows {n_counted:,}: `horde resume` uses an earlier one",
        )


def _read_excursions(run: Examination) -> None:
    _read_records(run, run.folder.excursions, EXCURSIONS, "excursions")


def _read_records(
    run: Examination, path: Path, kind: Kind, of_what: str, n_counted: int = 0
) -> int:
    """Check the files of a recording; truncate an incomplete last row. Return the number of records.

    `n_counted` records precede a snapshot.
    """
    files = started_files(path)
    for file in record_files(path)[len(files) :]:
        file.unlink()
        run.repaired(file, "it contains no header, and was removed")
    files = record_files(path)
    if not files:
        run.damaged(path, "it is missing")
    n_known = 0
    for file in files:
        try:
            segment = read_segment(file, kind)
        except (ValueError, OSError, LookupError, TypeError) as error:
            run.damaged(file, f"{error}")
            continue
        if file == files[0]:
            n_known = segment.first  # the oldest may have been moved
        if kind == LIFE and segment.first != n_known:
            run.damaged(file, f"its first row is {segment.first:,}, expected {n_known:,}")
        n_known = segment.first + len(segment.records)
        is_last = file == files[-1]
        faults = segment.faults(is_last=is_last)
        if not faults:
            run.sound(file, f"{len(segment.records):,} {of_what}")
        is_torn = is_last and any("cut off" in fault for fault in faults)
        # Damaged rows before a snapshot stay: without them, it could not be resumed from
        n_kept = max(segment.n_whole, min(n_counted - segment.first, len(segment.records)))
        if is_torn:
            n_bytes = n_kept * segment.itemsize
            cut(segment.path, int(segment.header["offset"]) + n_bytes)
        is_repaired = is_torn and n_kept == segment.n_whole
        for fault in faults:
            if is_repaired and "cut off" in fault:
                run.repaired(file, fault)
            else:
                run.damaged(file, fault)
    return n_known


def _read_snapshots(run: Examination) -> None:
    """Check the snapshots of the run and of its shards; rename damaged ones and remove unfinished ones."""
    folder = run.folder
    of_shards = sorted(shard for shard in folder.shards.glob("*/shard-*") if shard.is_dir())
    for place in (folder.checkpoint, folder.frozen, folded_place(folder.excursions), *of_shards):
        for path in snapshots.unfinished(place):
            snapshots.remove_unfinished(path)
            run.repaired(path, "it was not finished, and was removed")
        for path in reversed(list(snapshots.found(place))):
            try:
                snapshot = snapshots.read(path)
            except snapshots.SnapshotDamaged as error:
                run.set_aside(path, str(error))
            else:
                position = ""
                for count, unit in (("n_rows", "rows"), ("n_excursions", "excursions")):
                    if count in snapshot.facts:
                        position = f", after {snapshot.facts[count]:,} {unit}"
                run.sound(path, f"{len(snapshot.state):,} arrays{position}")


def _compare_versions(run: Examination) -> None:
    """Say what the newest snapshot was written with, where it differs from here."""
    for path in snapshots.found(run.folder.checkpoint):
        with suppress(snapshots.SnapshotDamaged):
            for what, then, here in differences(snapshots.read_facts(path)):
                run.differs(
                    path,
                    f"{what} {then} wrote it, {here} is here: a resumed run may round otherwise",
                )
            return


CHECKS: tuple[Callable[[Examination], None], ...] = (
    correct_sums,
    correct_summed_files,
    correct_events,
    write_first_lines,
    _read_texts,
    _read_rows,
    _read_excursions,
    _compare_sums,
    _read_snapshots,
    _compare_versions,
)
"""In this order: what a check corrects, the later ones read."""
