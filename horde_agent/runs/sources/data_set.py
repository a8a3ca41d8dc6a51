"""A data set or a log as the source of a run.

It is imported into the run's recording first, so that its run is reported, resumed and exported as
that of a robot is.
"""

from __future__ import annotations

from contextlib import suppress
from dataclasses import replace
from itertools import chain
from pathlib import Path
from typing import Any, NamedTuple

from rich.console import Console

from horde_agent.formats.arrivals import completed
from horde_agent.formats.behaviour import estimate_behaviour
from horde_agent.formats.columns import ESTIMATE
from horde_agent.formats.format import TableFile
from horde_agent.formats.registry import format_of
from horde_agent.formats.tables import Position, Table
from horde_agent.interface import Interface
from horde_agent.life.arranging import consequences
from horde_agent.policies import Policy
from horde_agent.record import FORMAT, Phase, Recorder, header_of, read
from horde_agent.record.segments import record_numbers, started_files
from horde_agent.refusals import BadInput
from horde_agent.runs.config import LearnConfig
from horde_agent.runs.exit_reason import SignalHandler
from horde_agent.runs.session import Session
from horde_agent.runs.sources.arranged_rows import (
    NO_ROW_CHANGES,
    ArrangedRows,
    RowChanges,
    arranged_rows,
    columns_of,
    present_table,
    refuse_changes,
    refuse_unended,
)
from horde_agent.runs.sources.log import PlayedLog
from horde_agent.runs.sources.recorded_rows import RecordedRows
from horde_agent.runs.storage.event_log import IMPORTED
from horde_agent.runs.storage.folder import RunFolder
from horde_agent.runs.storage.frozen import freeze, refuse_without_horde
from horde_agent.runs.storage.question_changes import QuestionChange
from horde_agent.runs.storage.resume import (
    Resumption,
    change_questions,
    refuse_other_body,
    resumption,
)
from horde_agent.runs.storage.row_learner import refuse_models
from horde_agent.runs.storage.run import (
    HeaderEnv,
    Questions,
    Run,
    make_run,
    new_recorder,
    open_run,
    record_header,
)

_ANY_DURATION = 1e12  # of an imported file in seconds: only its size is limited


def open_data(config: LearnConfig) -> Table:
    """Return the table of --data or --minari; raise BadInput if it cannot be read."""
    name = config.data or config.minari
    if name is None:
        raise BadInput(
            "--backend data needs --data FILE or --minari NAME, the data set to learn from"
        )
    return open_data_set(Path(name), config.columns)


def open_data_set(
    path: Path,
    columns: Path | None,
    *,
    counts_each_reward: bool = False,
) -> Table:
    """Return a data set as a table, with an estimated b if its columns say so; raise BadInput if it cannot be read.

    Args:
        path: The data set, or its name.
        columns: File that describes its columns; None without one.
        counts_each_reward: Of the table, also while b is estimated.
    """
    table = format_of(path).open(path, columns)
    table.counts_each_reward = counts_each_reward
    if table.columns.actions.b == ESTIMATE:
        act_by(table, ESTIMATE)
    return table


def act_by(table: Table, policy: Policy | str) -> None:
    """Set the policy that gives a table's action probabilities; "estimate" estimates it from the actions."""
    interface = Interface.of(HeaderEnv(table.header))
    if isinstance(policy, str):
        policy, table.b_estimate = estimate_behaviour(table, interface)
    table.behaviour = policy, interface


def import_table(table: Table | PlayedLog, run: Run) -> None:
    """Write the rows of a table, up to the requested step, to the recording of a run, before it learns from any."""
    up_to = run.config.steps
    has_tests = bool(table.header.get("tests_excursions"))
    with new_recorder(
        run, HeaderEnv(table.header), has_tests=has_tests, segment_s=_ANY_DURATION
    ) as recorder:
        for part in table:
            steps = part.rows["step"]
            recorder.append(part.rows if up_to is None else part.rows[steps <= up_to])
            if up_to is not None and steps[-1] > up_to:
                table.check_fit()
                break
    run.notes = table.notes
    place = None
    if isinstance(table, Table) and table.end is not None:
        place = table.end.state()
    event = {"step": 0, "event": IMPORTED, "row": recorder.n_rows}
    run.folder.events.append({**event, "position": place})


def data_session(
    table: Table | PlayedLog,
    config: LearnConfig,
    folder: RunFolder,
    console: Console,
    signals: SignalHandler | None = None,
    questions: Questions | None = None,
) -> Session:
    """Import a data set or a log, and return a session that learns from it.

    `questions` replace those in the settings.
    """
    run = make_run(HeaderEnv(table.header), config, folder, own=questions)
    if isinstance(table, Table):
        folder.write_columns(table.columns.to_toml())
    import_table(table, run)
    for remark in (*table.facts, *table.remarks):
        console.print(remark, highlight=False, soft_wrap=True)
    run.end_live_page()
    return Session(RecordedRows(run, takes_snapshots=True), console, signals)


def resumed_data_session(
    config: LearnConfig,
    folder: RunFolder,
    console: Console,
    signals: SignalHandler,
    *,
    more: Path | None = None,
    compares_frozen: bool = False,
    changes: RowChanges = NO_ROW_CHANGES,
) -> Session:
    """Return a session that continues from its snapshot or from the first row, also with the rows of another file.

    If it `compares_frozen`, the history ends at the snapshot.

    Raises:
        BadInput: If all rows were learned from, or those of `more` do not continue them.
    """
    remove_unfinished(folder)
    refuse_changes(folder, changes)
    if changes != NO_ROW_CHANGES and not folder.summary.is_file():
        refuse_unended(folder)
    resumed = resumption(folder)
    remarks = list(consequences(changes.body.actions))
    if more is not None:
        remarks += append_rows(folder, more, resumed, changes)
    run = open_run(folder)
    run.config = replace(run.config, on_alarm=config.on_alarm)
    if compares_frozen:
        refuse_without_horde(run)
    source = RecordedRows(run, resumed, takes_snapshots=True, changes=changes)
    if compares_frozen:
        freeze(run, resumed.n_rows, resumed.step)
    n_left = source.n_rows_in_all - resumed.n_rows
    if folder.summary.is_file() and source.is_over:
        raise BadInput(f"{folder.path} has learned from {source.learned_rows} of its data set")
    notes = (*resumed.notes, *remarks, f"resumed at row {resumed.n_rows:,}; {n_left:,} rows follow")
    for note in notes:
        console.print(note, highlight=False, soft_wrap=True)
    run.end_live_page()
    return Session(source, console, signals)


def append_rows(
    folder: RunFolder, more: Path, resumed: Resumption, changes: RowChanges = NO_ROW_CHANGES
) -> list[str]:
    """Append the rows of a file or folder to the recording of a run on data, which continue its rows; return remarks.

    After an error or a kill the recording is as before.

    Raises:
        BadInput: If they cannot be read, or do not continue the rows of the run.
    """
    imported = place_behind(folder)
    settings = folder.sound_settings()
    if settings.passes > 1:
        raise BadInput(
            f"--data {more}: {folder.path} learns in {settings.passes} passes, to which no rows can be added: start a "
            "new run"
        )
    further = further_rows(folder, more, changes)
    table = further.table
    arranged = further.arranged
    if changes != NO_ROW_CHANGES:
        header = further.header
        _check_changes(folder, header, resumed, changes)
    place = imported.place
    if arranged is not None:
        place = place.with_channels(len(arranged.columns.channel))
    table.start = place
    parts = iter(table)
    first = next(parts, None)
    recorder = Recorder.resume(folder.life, imported.n_rows, is_redone=False)
    try:
        recorder.cut_after(imported.n_rows)
        if imported.place.open is not None:
            row = completed(imported.place.open, is_last=table.ends_open)
            recorder.replace_last(row)
        if arranged is not None and arranged.is_changed:
            recorder.change_body(arranged.header)
        for part in chain([first], parts):
            if part is not None:
                recorder.append(part.rows)
        recorder.close()
        if arranged is not None and arranged.is_changed:
            arranged.write(folder)
    except BaseException:
        with suppress(OSError):
            recorder.close()
        remove_unfinished(folder)
        raise
    event = {"step": 0, "event": IMPORTED, "row": recorder.n_rows}
    position = None
    if table.end is not None:
        position = table.end.state()
    folder.events.append({**event, "position": position}, is_needed=True)
    return [*table.facts, *table.remarks]


class FurtherRows(NamedTuple):
    """Further rows of a run on data.

    Attributes:
        table: The rows, in the order of the record.
        header: Of the recording from now on.
        arranged: How they are read and recorded; None if no column has changed since the run began.
    """

    table: Table
    header: dict[str, Any]
    arranged: ArrangedRows | None = None


def further_rows(folder: RunFolder, more: Path, changes: RowChanges) -> FurtherRows:
    """Return further rows of a run on data.

    Raises:
        BadInput: If they cannot be read, or have columns that differ otherwise than `changes` says.
    """
    recorded = header_of(folder.life)
    data_format = format_of(more)
    settings = folder.sound_settings()
    is_changed = changes.is_of_rows or bool(recorded.get("arranged"))
    if not is_changed and not isinstance(data_format, TableFile):
        table = data_format.open(more, settings.columns)
    else:
        columns_before = columns_of(folder, recorded)
        table = present_table(data_format, more, columns_before, settings.columns, changes)
    if is_changed:
        arranged = arranged_rows(folder, recorded, columns_before, table, changes)
        table.arrange(arranged.columns)
        return FurtherRows(table, arranged.header, arranged)
    env = HeaderEnv(table.header)
    refuse_other_body(folder, recorded, record_header(env, Interface.of(env)))
    return FurtherRows(table, recorded)


def _check_changes(
    folder: RunFolder, header: dict[str, Any], resumed: Resumption, changes: RowChanges
) -> None:
    """Raise BadInput if tilings or questions do not fit the rows that `header` describes, before any is written."""
    trial = open_run(folder, header)
    change_questions(trial.horde, trial.interface, folder, resumed.changes)
    if changes.body.tilings:
        refuse_models(trial.horde)
    QuestionChange(trial, changes.questions, changes.body.actions.lost)


class Imported(NamedTuple):
    """The imported rows of a run: their number, and the place behind them."""

    n_rows: int
    place: Position


def place_behind(folder: RunFolder) -> Imported:
    """Return the imported rows of a run on data; raise BadInput if no rows can continue them."""
    event = folder.events.read().imported
    if event is None or event.get("position") is None:
        raise BadInput(
            f"no rows can continue those of {folder.path}: it is no table, b is estimated from the whole of it or "
            "given by a policy, or --steps ended it; start a new run"
        )
    return Imported(int(event["row"]), Position.of_state(event["position"]))


def remove_unfinished(folder: RunFolder) -> None:
    """Remove the rows of an import that was interrupted, behind those of the last one that was finished."""
    event = folder.events.read().imported
    if event is None or folder.is_streamed or event.get("position") is None:
        return
    n_rows = int(event["row"])
    # Those behind them are of other columns
    for file in reversed(started_files(folder.life)):
        if record_numbers(file, FORMAT).start < max(n_rows, 1):
            break
        file.unlink()
    n_recorded = folder.extent().n_rows
    if n_recorded < n_rows:
        return
    last = Position.of_state(event["position"]).open
    (newest,) = read(folder.life, newest=1).rows
    if n_recorded == n_rows and (last is None or newest["phase"] == Phase.END):
        return
    recorder = Recorder.resume(folder.life, n_rows, is_redone=False)
    recorder.cut_after(n_rows)
    if last is not None:
        recorder.replace_last(completed(last, is_last=True))
    recorder.close()
