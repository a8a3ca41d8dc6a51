"""A data set as the source of a run.

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
from horde_agent.horde import Horde
from horde_agent.interface import Interface
from horde_agent.life.observers import Progress
from horde_agent.policies import Policy
from horde_agent.refusals import BadInput
from horde_agent.runs import held_out
from horde_agent.runs.config import LearnConfig
from horde_agent.runs.exit_reason import SignalHandler
from horde_agent.runs.log_nexting import known_returns
from horde_agent.runs.session import Session, Source
from horde_agent.runs.sources.log import LogSource
from horde_agent.runs.sources.recorded_rows import RecordedRows
from horde_agent.runs.storage.event_log import IMPORTED
from horde_agent.runs.storage.folder import RunFolder
from horde_agent.runs.storage.held_out_table import write_held_out
from horde_agent.runs.storage.resume import NEW, Resumption, resumption
from horde_agent.runs.storage.run import HeaderEnv, Questions, Run, make_run, new_recorder, open_run
from horde_agent.runs.storage.snapshot_writer import SnapshotWriter
from horde_agent.runs.storage.tables import SessionOutcome

_ANY_DURATION = 1e12  # of an imported file in seconds: only its size is limited
_ESTIMATED = (
    "b was estimated from {n_rows:,} actions: its log-loss on held-out rows is {log_loss:.4g}, that of the actions' "
    "frequencies {log_loss_of_frequencies:.4g}, at the temperature {temperature:.3g}. The effective sample size of rho "
    "is {size:,.0f} of {n_steps:,} steps in the mean. An estimated b biases rho = pi/b, and with it the predictions "
    "about other policies."
)


class DataSetSource(RecordedRows):
    """The rows of an imported data set, from where `resumed` says on."""

    def __init__(self, run: Run, resumed: Resumption = NEW) -> None:
        extent = run.folder.extent()
        super().__init__(run, extent, resumed)
        self._estimate = extent.header.get("b_estimate")
        self._first_held_out = 0
        is_one_horde = run.shards is None and run.interface.feedback is None
        if is_one_horde and extent.header["b_known"] and held_out.has_scorable(run.horde.questions):
            self._first_held_out = held_out.first_held_out(run.folder.life, extent.n_rows)
        self.snapshot_writer = SnapshotWriter(run, self.learner.sampler, resumed)

    def learn(self, progress: Progress) -> None:
        """Learn from each row, and take snapshots between two rows."""
        self.run.folder.summary.unlink(missing_ok=True)  # of an earlier end of the run
        self.snapshot_writer.start()
        super().learn(progress)

    def after_row(self, step: int) -> None:  # noqa: ARG002
        """Count the row, and take a snapshot if it is due."""
        self.snapshot_writer.n_rows += 1
        self.snapshot_writer.take_if_due(self.learner)
        if self.snapshot_writer.n_rows == self._first_held_out:
            self._score_held_out()

    def _score_held_out(self) -> None:
        """Score the off-policy questions on the rows that follow, by a copy of the Horde.

        Predictions of the Horde itself would end its batch of queued steps, which changes rounding.
        """
        run = self.run
        rows = held_out.held_out_rows(run.folder.life, self._first_held_out)
        horde = Horde(
            run.horde.questions,
            n_features=run.horde.n_features,
            n_active=run.horde.n_active,
            config=run.horde.config,
            mode="deferred",
        )
        horde.restore(run.horde.state())
        scores = held_out.score(rows, horde, run.interface, run.config.seed)
        if scores:
            write_held_out(run.folder.held_out, scores)

    def after_rows(self) -> None:
        """Take the last snapshot."""
        self.snapshot_writer.take_last(self.learner)

    def finish(self, fault: BaseException | None) -> SessionOutcome:
        """Write the last snapshot, and return what the tables need."""
        self.snapshot_writer.finish()
        outcome = super().finish(fault)
        notes = [*outcome.details["notes"], *self.run.notes]
        if self.run.folder.held_out.is_file():
            notes.append(held_out.summary_of(self.run.folder.held_out))
        if self._estimate is not None:
            size = self.run.watch.effective_sample_size().mean()
            notes.append(
                _ESTIMATED.format(**self._estimate, size=size, n_steps=self.student.learning_steps)
            )
        return outcome._replace(
            details={**outcome.details, "notes": notes, "passes": self.run.config.passes},
            lived_before_s=self.snapshot_writer.lived_before_s,
        )


def open_data(config: LearnConfig) -> Table:
    """Return the table of --data, --minari, or --log with --columns; raise BadInput if it cannot be read."""
    name = config.data or config.minari or config.log
    if name is None:
        raise BadInput(
            "--backend data needs --data FILE or --minari NAME, the data set to learn from"
        )
    return open_data_set(Path(name), config.columns, is_log=config.backend == "replay")


def open_data_set(
    path: Path,
    columns: Path | None,
    *,
    is_log: bool = False,
    counts_each_reward: bool = False,
) -> Table:
    """Return a data set as a table, with an estimated b if its columns say so; raise BadInput if it cannot be read.

    Args:
        path: The data set, or its name.
        columns: File that describes its columns; None if there is none.
        is_log: Whether its actions are ignored, and its rows without a number dropped.
        counts_each_reward: Of the table, also while b is estimated.
    """
    table = format_of(path).open(path, columns, is_log=is_log)
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


def import_table(table: Table, run: Run) -> None:
    """Write the rows of a table, up to the requested step, to the recording of a run, before it learns from any."""
    up_to = run.config.steps
    has_tests = bool(table.header["tests_excursions"])
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


def table_session(
    table: Table,
    config: LearnConfig,
    folder: RunFolder,
    console: Console,
    signals: SignalHandler | None = None,
    questions: Questions | None = None,
) -> Session:
    """Import a data set or a log with columns, and return a session that learns from it.

    `questions` replace those in the settings.
    """
    run = make_run(HeaderEnv(table.header), config, folder, own=questions)
    is_log = config.backend == "replay"
    if is_log:
        known_returns(run.horde)
    import_table(table, run)
    for remark in (*table.facts, *table.remarks):
        console.print(remark, highlight=False, soft_wrap=True)
    run.end_live_page()
    source: Source
    if is_log:
        source = LogSource(run)
    else:
        source = DataSetSource(run)
    return Session(source, console, signals)


def resumed_data_session(
    config: LearnConfig, folder: RunFolder, console: Console, signals: SignalHandler
) -> Session:
    """Return a session that continues from its snapshot or from the first row; raise BadInput if all were learned."""
    extent = folder.extent()
    resumed = resumption(folder)
    n_left = extent.n_rows * (config.passes or 1) - resumed.n_rows
    if folder.summary.is_file() and not n_left:
        raise BadInput(f"{folder.path} has learned from all {extent.n_rows:,} rows of its data set")
    run = open_run(folder)
    for note in (*resumed.notes, f"resumed at row {resumed.n_rows:,}; {n_left:,} rows follow"):
        console.print(note, highlight=False, soft_wrap=True)
    run.end_live_page()
    return Session(DataSetSource(run, resumed), console, signals)
