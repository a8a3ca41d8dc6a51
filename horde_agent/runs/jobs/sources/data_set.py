"""A data set in the run's recording, learned from in one or more passes, with snapshots."""

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
from horde_agent.runs.ending import Cause, End
from horde_agent.runs.jobs.sources.replay import Replay
from horde_agent.runs.jobs.sources.source import Outcome, Recording, Stopped, restore
from horde_agent.runs.keeping.resume import Resumption
from horde_agent.runs.keeping.run import Run
from horde_agent.runs.keeping.snapshot_writer import SnapshotWriter

_ESTIMATED = (
    "b was estimated from {n_rows:,} actions: its log-loss on held-out rows is {log_loss:.4g}, that of the actions' "
    "frequencies {log_loss_of_frequencies:.4g}, at the temperature {temperature:.3g}. The effective sample size of rho "
    "is {size:,.0f} of {n_steps:,} steps in the mean. An estimated b biases rho = pi/b, and with it the predictions "
    "about other policies."
)


class DataSet(Replay):
    """A data set that was imported; from the snapshot `resumed`, or from its first row when None.

    Raises:
        BadInput: If the folder cannot be written.
        ValueError: If the snapshot does not fit.
    """

    def __init__(self, run: Run, console: Console, resumed: Resumption | None = None) -> None:
        folder, config, n_known = run.folder, run.config, resumed.n_rows if resumed else 0
        self._header, passes = read_header(started_files(folder.life)[0], FORMAT), config.passes or 1
        n_steps = int(read_end(folder.life, 1).rows["step"][-1]) * passes
        rows = Recording(folder.life, config.steps, n_known or None, passes)
        total = min(n_steps, config.steps or n_steps)
        super().__init__(run, rows, console, self._header, end=Cause.LOG_END, total=total)
        if resumed is None:
            self.student.errors.record_to(folder.excursions)
        else:
            self.student.errors.table.resume_in(folder.excursions)
            restore(self.life, run, self.sampler, resumed.state)
            resumed.state.clear()
        Feed(folder.path, run.interface, run.horde).close()  # the live page does not show a data set
        self._position = Recorder(len(run.interface.channels))  # counts the rows that were learned from; holds none
        self._position.n_rows = n_known
        every_s, lived_s = seconds(config.snapshot_every), resumed.lived_s if resumed else 0.0
        self.snapshot_writer = SnapshotWriter(run, self._position, self.sampler, every_s, [], lived_s)

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

    def finish(self, fault: BaseException | None) -> Outcome:
        """Write the last snapshot, and count the steps that were not learned from."""
        config = self.run.config
        self.snapshot_writer.finish()
        self._rows = Recording(self.run.folder.life, config.steps, passes=config.passes or 1)
        if self.stopped_by is not None:
            self._end = End.of(self.stopped_by)
        outcome = super().finish(fault)
        notes = [*outcome.details["notes"], *self.run.notes]
        if (estimate := self._header.get("b_estimate")) is not None:
            size = self.run.watch.effective_sample_size().mean()
            notes.append(_ESTIMATED.format(**estimate, size=size, n_steps=self.student.learning_steps))
        details = {**outcome.details, "notes": notes, "passes": config.passes}
        return outcome._replace(details=details, lived_before_s=self.snapshot_writer.lived_before_s)
