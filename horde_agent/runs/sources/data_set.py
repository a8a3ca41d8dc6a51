"""A data set or a log as the source of a run.

It is imported into the run's recording first, so that its run is reported, resumed and exported as
that of a robot is.
"""

from __future__ import annotations

from pathlib import Path

from rich.console import Console

from horde_agent.formats.behaviour import estimate_behaviour
from horde_agent.formats.columns import ESTIMATE
from horde_agent.formats.registry import format_of
from horde_agent.formats.tables import Table
from horde_agent.interface import Interface
from horde_agent.policies import Policy
from horde_agent.refusals import BadInput
from horde_agent.runs.config import LearnConfig
from horde_agent.runs.exit_reason import SignalHandler
from horde_agent.runs.session import Session
from horde_agent.runs.sources.log import PlayedLog
from horde_agent.runs.sources.recorded_rows import RecordedRows
from horde_agent.runs.storage.event_log import IMPORTED
from horde_agent.runs.storage.folder import RunFolder
from horde_agent.runs.storage.resume import resumption
from horde_agent.runs.storage.run import HeaderEnv, Questions, Run, make_run, new_recorder, open_run

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
    run.folder.events.append({"step": 0, "event": IMPORTED, "row": recorder.n_rows})


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
    import_table(table, run)
    for remark in (*table.facts, *table.remarks):
        console.print(remark, highlight=False, soft_wrap=True)
    run.end_live_page()
    return Session(RecordedRows(run, takes_snapshots=True), console, signals)


def resumed_data_session(
    config: LearnConfig,  # noqa: ARG001
    folder: RunFolder,
    console: Console,
    signals: SignalHandler,
) -> Session:
    """Return a session that continues from its snapshot or from the first row; raise BadInput if all were learned."""
    resumed = resumption(folder)
    run = open_run(folder)
    source = RecordedRows(run, resumed, takes_snapshots=True)
    n_left = source.n_rows_in_all - resumed.n_rows
    if folder.summary.is_file() and not n_left:
        raise BadInput(f"{folder.path} has learned from {source.learned_rows} of its data set")
    for note in (*resumed.notes, f"resumed at row {resumed.n_rows:,}; {n_left:,} rows follow"):
        console.print(note, highlight=False, soft_wrap=True)
    run.end_live_page()
    return Session(source, console, signals)
