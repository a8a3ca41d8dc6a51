"""The tables that a run lacks, learned again from its recording.

Tables are missing after a kill, a power failure or a full disk.
"""

from __future__ import annotations

import shutil
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

from rich.console import Console

from horde_agent.record.segments import record_files
from horde_agent.refusals import BadInput
from horde_agent.runs.session import Session, Unwritten
from horde_agent.runs.sources.recorded_rows import RecordedRows
from horde_agent.runs.storage.folder import RunFolder
from horde_agent.runs.storage.resume import resumption
from horde_agent.runs.storage.run import Run, open_run
from horde_agent.runs.storage.staging import publish, staging_folder
from horde_agent.runs.warm import CompileNotice
from horde_agent.scoring.excursion_table import folded_place


def relearn_tables(folder: RunFolder, console: Console) -> dict[str, Any]:
    """Learn from a run's log again, write the missing tables, and return the summary.

    Learning starts from the newest suitable snapshot, with the same bits as from the beginning, or
    else from the beginning. Excursions are scored again beside the recorded ones, which stay; if
    there are none, they get their place.

    Raises:
        BadInput: If there is no log or another necessary file.
        OSError: If the tables cannot be written.
    """
    run = open_run(folder)
    missing = folder.missing_tables()
    why = "lacks tables"
    if folder.has_gone_on():
        why = "has steps after its tables were written"
    console.print(
        f"{folder.path} {why}: learning from its log again", highlight=False, soft_wrap=True
    )
    # Neither table of excursions fits in memory after months
    with staging_folder(folder.excursions) as stage:
        excursions = stage / folder.excursions.name
        source = _rows_again(run, excursions, console)
        summary = _write_tables(folder, source, missing, console)
        if not record_files(folder.excursions):
            for file in record_files(excursions):
                publish(file, folder.log / file.name)
    return summary


def find_surprises(folder: RunFolder, rate: str, console: Console) -> None:
    """Learn from a run's log again from its start, watch for surprises, and say and write them: surprise.json.

    Nothing else of the run changes. `rate` is that of false alarms, as "1/week".

    Raises:
        BadInput: If there is no log or another necessary file, or too few rows.
        OSError: If surprise.json cannot be written.
    """
    folder.refuse_removed("be searched for surprises")
    run = open_run(folder, surprise=rate)
    console.print(f"{folder.path}: learning from its log again", highlight=False, soft_wrap=True)
    with staging_folder(folder.excursions) as stage:
        source = RecordedRows(run, excursions=stage / folder.excursions.name)
        _write_tables(folder, source, [folder.surprise], console)
    surprise = source.student.surprise
    assert surprise is not None
    for event in surprise.events:
        console.print(event.sentence, highlight=False, soft_wrap=True)
    if not surprise.events:
        console.print("no surprise", highlight=False)


def _write_tables(
    folder: RunFolder, source: RecordedRows, missing: Sequence[Path], console: Console
) -> dict[str, Any]:
    """Learn from rows, write the missing tables, and return the summary."""
    session = Session(source, console, missing=missing)
    try:
        with CompileNotice(console).installed():
            session.begin()
        with folder.reading():
            return session.learn()
    except Unwritten as error:
        raise error.why from None


def _rows_again(run: Run, excursions: Path, console: Console) -> RecordedRows:
    """Return the rows of a run, from its newest snapshot on if that is suitable.

    `run` is at its start; excursions are recorded in the file `excursions`, after copies of those
    before the snapshot.
    """
    folder = run.folder
    try:
        resumed = resumption(folder)
        if resumed.state and resumed.shards is None:
            _copy_excursions(folder.excursions, excursions.parent)
            source = RecordedRows(run, resumed, excursions=excursions)
            n_left = source.n_rows_in_all - resumed.n_rows
            if n_left >= 0:
                on = f"from its snapshot at step {resumed.step:,} on: {n_left:,} rows"
                for note in (*resumed.notes, on):
                    console.print(note, highlight=False, soft_wrap=True)
                return source
            raise BadInput(
                f"it follows {resumed.n_rows:,} rows, and {source.n_rows_in_all:,} are recorded"
            )
    except (BadInput, ValueError, LookupError, OSError) as error:
        console.print(f"not from its snapshot: {error}", highlight=False, soft_wrap=True)
        folder.refuse_removed("be learned from again from its start")
        for path in record_files(excursions):
            path.unlink()
        run = open_run(folder)  # its Horde may have a part of the snapshot
    return RecordedRows(run, excursions=excursions)


def _copy_excursions(table: Path, place: Path) -> None:
    """Copy the files of a table into a folder; a running life may fold some of them meanwhile."""
    for path in record_files(table):
        with suppress(FileNotFoundError):
            shutil.copy(path, place)
    folded = folded_place(table)
    if folded.is_dir():  # of excursions whose files were removed
        shutil.copytree(folded, place / folded.name)
