"""The tables that a run lacks, learned again from its recording.

Tables are missing after a kill, a power failure or a full disk.
"""

from __future__ import annotations

import tempfile
from pathlib import Path
from typing import Any

from rich.console import Console

from horde_agent.runs.config import RECORDED
from horde_agent.runs.exit_reason import ExitCause
from horde_agent.runs.session import Session, Unwritten
from horde_agent.runs.sources.log import LogSource
from horde_agent.runs.sources.recorded_rows import RecordedRows, Recording
from horde_agent.runs.storage.folder import RunFolder, lived_steps, write_whole
from horde_agent.runs.storage.recorded_run import (
    Extent,
    RecordedRun,
    as_bad_input,
    open_recorded,
    read_extent,
    read_last_row,
    restore,
)
from horde_agent.runs.storage.run import Run
from horde_agent.runs.warm import CompileNotice


def missing_tables(folder: RunFolder) -> list[Path]:
    """Return the missing tables of a run: all if it has no summary, which is written last, or has further steps."""
    always = [
        folder.details,
        folder.questions,
        folder.mspbe_curve,
        folder.traces,
        folder.learning_curve,
    ]
    if not folder.summary.is_file() or has_gone_on(folder):
        return [*always, folder.summary]
    if not folder.questions.is_file():
        return [folder.questions]
    is_life = folder.mspbe_curve.is_file()  # a replayed log has none
    if is_life and not folder.learning_curve.is_file():
        return [folder.learning_curve]
    return []


def has_gone_on(folder: RunFolder) -> bool:
    """Return whether the log has steps after the summary (still running, or killed after a resume)."""
    summarised = lived_steps(folder)
    if summarised is None or not folder.mspbe_curve.is_file():
        return False
    try:
        # Recorded rows are in the log before learning begins: how far a run learned from them is in
        # its summary alone.
        return (
            folder.settings().get("backend") not in RECORDED
            and read_last_row(folder).step > summarised
        )
    # An unreadable log cannot be learned from
    except (ValueError, LookupError, TypeError, OSError):
        return False


def complete(folder: RunFolder, console: Console) -> dict[str, Any]:
    """Learn from a run's log again, write the missing tables, and return the summary.

    Learning starts from the newest suitable snapshot, with the same bits as from the beginning, or
    else from the beginning.

    Raises:
        BadInput: If there is no log or another necessary file.
        OSError: If the tables cannot be written.
    """
    recorded = open_recorded(folder)
    with tempfile.TemporaryDirectory() as elsewhere:
        extent = read_extent(folder)
        run = recorded.rebuild_elsewhere(extent.header, Path(elsewhere))
        why = "lacks tables"
        if has_gone_on(folder):
            why = "has steps after its tables were written"
        console.print(
            f"{folder.path} {why}: learning from its log again", highlight=False, soft_wrap=True
        )
        session: Session
        if recorded.config.backend == "replay" and recorded.replayed is None:
            session = Session(run, LogSource(run), console, is_rebuilt=True)
        else:
            session = _rows_again(recorded, run, extent, console)
        try:
            with CompileNotice(console).installed():
                session.begin()
            with as_bad_input(folder):
                summary = session.learn()
        except Unwritten as error:
            raise error.why from None
        for path in missing_tables(folder):
            table = run.folder.path / path.name
            if table.is_file():
                write_whole(path, table.read_text(encoding="utf-8"))
        folder.seal()
    return summary


def _rows_again(recorded: RecordedRun, run: Run, extent: Extent, console: Console) -> Session:
    """Return a session that learns from the rows of a recorded run again, from its newest snapshot on."""
    folder = recorded.folder
    config = recorded.config
    passes = 1
    if config.backend == "data":
        passes = config.passes or 1
    end = extent.last_step * passes
    if config.backend in RECORDED:
        end = min(end, config.steps or end)
    restored = restore(recorded, run, extent.header, console, extent.n_rows * passes)
    n_known = None
    if restored is None:
        # Its Horde may have a part of a snapshot
        run = recorded.rebuild(extent.header, recorded.single_horde_settings, run.folder)
    else:
        n_known = restored.n_rows
    source = RecordedRows(
        run,
        Recording(folder.life, end, n_known, passes),
        extent.header,
        end=ExitCause.CUT_OFF,
        total=end,
        restored=restored,
    )
    if restored is None:
        # Excursions that the run recorded itself are kept; neither table fits in memory after
        # months.
        table_path = folder.excursions
        if folder.excursions.is_file():
            table_path = run.folder.excursions
        source.student.errors.table.record_to(table_path)
    return Session(run, source, console, is_rebuilt=True)
