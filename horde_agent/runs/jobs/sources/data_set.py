"""A data set: written to the run's recording, then learned from, in one or more passes, with snapshots."""

from __future__ import annotations

from contextlib import suppress

from rich.console import Console

from horde_agent.life.feed import Feed
from horde_agent.life.observers import RowObserver
from horde_agent.life.student import Student
from horde_agent.record import Recorder
from horde_agent.record.rows import FORMAT, read_end
from horde_agent.record.segments import read_header, started_files
from horde_agent.runs.config import seconds
from horde_agent.runs.data.behaviour import Rows
from horde_agent.runs.ending import Cause, End
from horde_agent.runs.jobs.sources.replay import Replay
from horde_agent.runs.jobs.sources.source import (
    Outcome,
    Recording,
    Stopped,
    new_recorder,
    record_table,
    restore,
)
from horde_agent.runs.keeping.folder import RunFolder
from horde_agent.runs.keeping.resume import Resumption
from horde_agent.runs.keeping.run import HeaderEnv, Run
from horde_agent.runs.keeping.snapshot_writer import SnapshotWriter

_ANY_DURATION = 1e12  # of a file in seconds: only its size is limited
_ESTIMATED = (
    "b was estimated from {n_rows:,} actions: its log-loss on held-out rows is {log_loss:.4g}, that of the actions' "
    "frequencies {log_loss_of_frequencies:.4g}, at the temperature {temperature:.3g}. The effective sample size of rho "
    "is {size:,.0f} of {n_steps:,} steps in the mean. An estimated b biases rho = pi/b, and with it the predictions "
    "about other policies."
)

IMPORTED = "imported"
"""The event after the last row of a data set was written to the recording."""


def is_imported(folder: RunFolder) -> bool:
    """Return whether the recording of a run holds a whole data set."""
    try:
        return f'"{IMPORTED}"' in folder.events.read_text(encoding="utf-8")
    except (OSError, ValueError):
        return False


class DataSet(Replay):
    """A data set.

    Args:
        run: With a new Horde.
        table: The rows; None if they are in the recording.
        console: For messages.
        resumed: The snapshot to continue from; None to begin.

    Raises:
        BadInput: If the disk has too little free space, or the folder cannot be written.
    """

    def __init__(self, run: Run, table: Rows | None, console: Console, resumed: Resumption | None = None) -> None:
        folder, config, n_known = run.folder, run.config, resumed.n_rows if resumed else 0
        header = table.header if table is not None else read_header(started_files(folder.life)[0], FORMAT)
        rows = Recording(folder.life, config.steps, n_known or None, config.passes or 1)
        super().__init__(run, rows, console, header, end=Cause.LOG_END, total=config.steps)
        self._table, self._resumed, self._header = table, resumed, header
        Feed(folder.path, run.interface, run.horde).close()  # the live page does not show a data set
        self._recorder = None
        if table is not None:
            env, errors, has_tests = HeaderEnv(header), self.student.errors, self._has_tests
            self._recorder = new_recorder(run, env, errors, has_tests=has_tests, segment_s=_ANY_DURATION)
        self._position = Recorder(len(run.interface.channels))  # counts the rows that were learned from; holds none
        self._position.n_rows = n_known
        every_s, lived_s = seconds(config.snapshot_every), resumed.lived_s if resumed else 0.0
        self.snapshot_writer = SnapshotWriter(run, self._position, self.sampler, every_s, [], lived_s)

    def begin(self) -> None:
        """Write the rows to the recording, or restore the snapshot.

        Raises:
            BadInput: If a row is invalid, or the snapshot does not fit.
        """
        folder, config = self.run.folder, self.run.config
        if self._resumed is not None:
            self.student.errors.table.resume_in(folder.excursions)
            state = {k: v for k, v in self._resumed.state.items() if not k.startswith("life/world/")}
            restore(self.life, self.run, self.sampler, state)
            self._resumed.state.clear()
        elif self._table is not None and self._recorder is not None:
            record_table(self._table, self._recorder, config.steps)
            folder.log_event({"step": 0, "event": IMPORTED, "row": self._recorder.n_rows})
        n_steps = int(read_end(folder.life, 1).rows["step"][-1]) * (config.passes or 1)
        self.total = min(n_steps, config.steps or n_steps)

    def _replay(self, observe: RowObserver) -> None:
        """Learn from each row, and take snapshots between two rows."""
        self.run.folder.summary.unlink(missing_ok=True)  # of an earlier end of the run
        self.snapshot_writer.start()

        def after_row(student: Student, step: int) -> None:
            observe(student, step)
            self._position.n_rows += 1
            self.life.steps = step
            self.snapshot_writer.before_step(self.life)
            if self.stopped_by is not None:
                raise Stopped

        with suppress(Stopped):
            super()._replay(after_row)
        self.snapshot_writer.at_end(self.life)

    def abandon(self) -> None:
        """Close everything; the run does not start."""
        super().abandon()
        if self._recorder is not None:
            self._recorder.close()

    def finish(self, fault: BaseException | None) -> Outcome:
        """Write the last snapshot, and count the steps that were not learned from."""
        config = self.run.config
        self.snapshot_writer.finish()
        self._rows = Recording(self.run.folder.life, config.steps, passes=config.passes or 1)
        if self.stopped_by is not None:
            self._end = End.of(self.stopped_by)
        outcome = super().finish(fault)
        notes = [*outcome.details["notes"], *(self._table.notes if self._table else self.run.notes)]
        if (estimate := self._header.get("b_estimate")) is not None:
            size = self.run.watch.effective_sample_size().mean()
            notes.append(_ESTIMATED.format(**estimate, size=size, n_steps=self.student.learning_steps))
        details = {**outcome.details, "notes": notes, "passes": config.passes}
        return outcome._replace(details=details, lived_before_s=self.snapshot_writer.lived_before_s)
