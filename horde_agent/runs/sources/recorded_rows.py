"""Recorded rows as the source of a run: of another run, or of a data set or a log that was imported.

Rows with actions and their probabilities are learned from off-policy, others on-policy. The
recording of a run contains all observations and actions, and the behaviour does not depend on the
weights, so the results are those of the run that was recorded, bit for bit.
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator
from pathlib import Path

import numpy as np
from rich.console import Console

from horde_agent.life.learner import rows_of
from horde_agent.life.observers import Progress
from horde_agent.record import Flag, OnFault, Phase, Row, Stream, log_fault, read_in_parts
from horde_agent.record.segments import record_files
from horde_agent.refusals import BadInput
from horde_agent.runs.config import MOST_STEPS, RECORDED, LearnConfig
from horde_agent.runs.exit_reason import SignalHandler
from horde_agent.runs.session import Session
from horde_agent.runs.sources.arranged_rows import NO_ROW_CHANGES, RowChanges
from horde_agent.runs.sources.row_source import RowSource
from horde_agent.runs.sources.scorers import scorer_of
from horde_agent.runs.storage.event_log import IMPORTED
from horde_agent.runs.storage.folder import Extent, RunFolder
from horde_agent.runs.storage.question_changes import QuestionChange
from horde_agent.runs.storage.resume import NEW, TESTS, Resumption
from horde_agent.runs.storage.row_learner import RowLearner
from horde_agent.runs.storage.run import HeaderEnv, Run, make_run
from horde_agent.runs.storage.snapshot_writer import SnapshotWriter
from horde_agent.runs.storage.tables import SessionOutcome


class Recording:
    """The rows of a recording from row `since` up to step `up_to`, file by file; a run may still append more.

    With several passes over the rows of `extent`, rows and steps are counted on from pass to pass,
    and each pass begins with a gap.

    Attributes:
        on_fault: Called once with each fault of the recording.
    """

    def __init__(
        self,
        path: Path,
        extent: Extent,
        *,
        up_to: int = MOST_STEPS,
        since: int = 0,
        passes: int = 1,
    ) -> None:
        self.path = path
        self._extent = extent
        self._up_to = up_to
        self._since = since
        self._passes = passes
        self.on_fault: OnFault = log_fault
        self._reported: set[str] = set()

    def __iter__(self) -> Iterator[Stream]:
        n_passed = min(self._since // self._extent.n_rows, self._passes - 1)
        first_row = self._since - n_passed * self._extent.n_rows
        for number in range(n_passed, self._passes):
            n_left = self._extent.n_rows - first_row
            is_first = first_row == 0
            for part in read_in_parts(self.path, first_row or None, on_fault=self._report):
                if number and is_first:
                    part.rows["flags"][:1] |= np.uint8(Flag.GAP)
                is_first = False
                steps = part.rows["step"]
                steps += number * self._extent.last_step
                n_rows = min(n_left, int(np.count_nonzero(steps <= self._up_to)))
                yield part[:n_rows]
                n_left -= n_rows
            first_row = 0

    def _report(self, fault: str) -> None:
        if fault not in self._reported:
            self._reported.add(fault)
            self.on_fault(fault)


class RecordedRows(RowSource):
    """Rows of a recording, from the first one or from a snapshot on: of a run, a data set or a log.

    Args:
        run: The run.
        resumed: Where it starts.
        excursions: File of the excursions; that of the run's folder when None.
        recorded: Folder with the rows; the run's own when None.
        takes_snapshots: Whether it can be resumed.
        changes: Questions to add and to remove before the next row, and actions that are lost.

    Attributes:
        n_rows_in_all: Number of rows in all passes.
        learned_rows: The rows of a pass, in words.

    Raises:
        BadInput: If a file of excursions is missing, or there are too few rows to be scored.
        ValueError: If the snapshot does not fit.
    """

    def __init__(
        self,
        run: Run,
        resumed: Resumption = NEW,
        *,
        excursions: Path | None = None,
        recorded: RunFolder | None = None,
        takes_snapshots: bool = False,
        changes: RowChanges = NO_ROW_CHANGES,
    ) -> None:
        folder = recorded or run.folder
        extent = folder.extent()
        up_to = MOST_STEPS
        if run.config.backend in RECORDED:
            up_to = run.config.steps or MOST_STEPS
        passes = run.config.passes
        self._scorer = scorer_of(run, Recording(folder.life, extent, up_to=up_to), extent)
        learned = self._scorer.learned
        total = min(learned.last_step, up_to) * passes
        self.n_rows_in_all = learned.n_rows * passes
        share = "all"
        if learned.n_rows < extent.n_rows:
            share = "the first"
        self.learned_rows = f"{share} {learned.n_rows:,} rows"
        is_tested = self._scorer.is_tested
        if any(TESTS in change for change in resumed.changes):
            is_tested = False  # until that change
        super().__init__(run, RowLearner(run, is_tested=is_tested), total)
        excursions = excursions or run.folder.excursions
        self._begins_with_gap = False
        if resumed.number:
            self._begins_with_gap = self.learner.resume(resumed, excursions)
        else:
            self.student.errors.table.record_to(excursions)
        self._n_rows = resumed.n_rows
        self._has_last = False  # the last snapshot
        self._rows = Recording(
            folder.life, learned, up_to=total, since=resumed.n_rows, passes=passes
        )
        self._has_tests = bool(extent.header.get("tests_excursions"))
        self._snapshot_writer: SnapshotWriter | None = None
        if takes_snapshots:
            self._snapshot_writer = SnapshotWriter(run, self.learner.sampler, resumed)
            self._snapshot_writer.header = extent.header
        self._question_change: QuestionChange | None = None
        if changes.questions is not None or changes.body.actions.lost:
            self._question_change = QuestionChange(
                run, changes.questions, changes.body.actions.lost
            )

    def learn(self, progress: Progress) -> None:
        """Learn from each row, until the end or a request to stop; take snapshots between two rows."""
        session = self.session
        writer = self._snapshot_writer
        self._progress = progress
        self._rows.on_fault = lambda fault: session.say(f"{fault}.")
        # The snapshot of a data set is one between two rows; that of a robot has received the next
        # row, and counted it
        counts_first = self.run.config.backend in RECORDED
        robots = set[int]()
        if writer is not None:
            self.run.folder.summary.unlink(missing_ok=True)  # of an earlier end of the run
            writer.start()
            if self._question_change is not None:
                self._change_questions(self._question_change, writer)
        try:
            for row in rows_of(self._parts()):
                self.take_row(row, is_counted=counts_first or row.robot in robots)
                robots.add(row.robot)
                self._n_rows += 1
                if writer is not None:
                    writer.n_rows = self._n_rows
                    writer.take_if_due(self.learner)
                self._scorer.after_row(self._n_rows)
                if session.stopped_by is not None:
                    break
            if writer is not None and not self._has_last:
                writer.take_last(self.learner)
        finally:
            self.abandon()

    def _change_questions(self, change: QuestionChange, writer: SnapshotWriter) -> None:
        """Add and remove the requested questions, and take a snapshot with them for later resumes."""
        changes = change.apply(
            self.learner,
            step=self.learner.steps,
            n_rows=self._n_rows,
            n_before=len(writer.changes),
        )
        writer.add_changes(changes)
        writer.take_snapshot(self.learner)

    @property
    def is_over(self) -> bool:
        """Whether all rows were learned from; the last one may have an action when further ones follow."""
        n_left = self.n_rows_in_all - self._n_rows
        return n_left == 0 or (n_left == 1 and self.student.position.is_observed)

    def _parts(self) -> Iterator[Stream]:
        """Yield the rows to learn from; take the last snapshot before the last one ends the stream.

        So a run that continues with further rows, behind its last one, continues the test under way.
        """
        n_left = self.n_rows_in_all - self._n_rows
        for part in self._rows:
            if self._begins_with_gap:
                part.rows["flags"][:1] |= np.uint8(Flag.GAP)
                self._begins_with_gap = False
            n_left -= len(part)
            if n_left or not len(part) or self._snapshot_writer is None:
                yield part
                continue
            yield part[:-1]
            for row in rows_of([part[-1:]]):
                if row.phase == Phase.END:
                    self._observe_last(row, self._snapshot_writer)
            yield part[-1:]

    def _observe_last(self, row: Row, writer: SnapshotWriter) -> None:
        """Learn from the transition to the last row, and copy the state."""
        student = self.student
        student.select_robot(row.robot)
        if not student.position.is_observed:
            student.observe(row.observation, row.flags, reward=row.reward)
        self.learner.counts.steps = row.step
        writer.n_rows = self._n_rows
        writer.take_last(self.learner)
        self._has_last = True

    def abandon(self) -> None:
        """Write the excursions that wait for disk space."""
        self.student.errors.table.close()

    def finish(self, fault: BaseException | None) -> SessionOutcome:
        """Write the last snapshot, and return what the tables need.

        After an invalid row, those before it have been learned from.
        """
        lived_before_s = 0.0
        if self._snapshot_writer is not None:
            self._snapshot_writer.finish()
            lived_before_s = self._snapshot_writer.lived_before_s
        reached = min(self.learner.steps, self.total or 0)
        notes: list[str] = []
        if isinstance(fault, ValueError | LookupError | RuntimeError):
            if not self.student.learning_steps:
                raise BadInput(
                    f"{self._rows.path} cannot be learned from again: {fault}"
                ) from fault
            where = f"{self._rows.path.name} is damaged after step {reached:,}"
            notes = [f"{where}, and learned from up to there: {fault}."]
        elif fault is not None:
            raise fault
        steps = self._scorer.steps(reached)
        outcome = self.outcome(
            steps=steps,
            end=self.session.end_of_rows(steps),
            details={"n_not_applied": self.learner.counts.n_not_applied, "notes": notes},
            lived_before_s=lived_before_s,
            has_tests=self._has_tests,
        )
        return self._scorer.completed(
            outcome,
            n_rows=self._n_rows,
            reached=reached,
            learning_steps=self.student.learning_steps,
        )


def replay_session(
    config: LearnConfig, folder: RunFolder, console: Console, signals: SignalHandler
) -> Session:
    """Return a session that learns from a recorded run at full speed, with the same or other questions.

    Its actions have probabilities, so questions about any policy are learned off-policy. It is
    linked into the new folder, or copied.

    Raises:
        BadInput: If it cannot be read.
    """
    recorded = RunFolder(Path(str(config.log)))
    acting = recorded.acting_settings()
    recorded.refuse_removed("be replayed")
    extent = recorded.extent()
    run = make_run(HeaderEnv(extent.header), config, folder, recorded=acting)
    for path in record_files(recorded.life):
        try:
            os.link(path, folder.log / path.name)
        except OSError:
            shutil.copy2(path, folder.log / path.name)
    folder.events.append({"step": 0, "event": IMPORTED, "row": extent.n_rows})
    return Session(RecordedRows(run, recorded=recorded, takes_snapshots=True), console, signals)
