"""Recorded rows as the source of a run.

Rows with actions and their probabilities are learned from off-policy. A recording contains all
observations and actions, and the behaviour does not depend on the weights, so the results are those
of the run that was recorded, bit for bit.
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterable, Iterator
from contextlib import suppress
from pathlib import Path

import numpy as np
from rich.console import Console

from horde_agent.life.learner import StreamLearner, learned_rows
from horde_agent.life.observers import Progress, RowObserver, outside_drives
from horde_agent.life.stream import LearnedStream
from horde_agent.record import Flag, OnFault, Phase, Stream, log_fault, read_in_parts
from horde_agent.record.segments import record_files
from horde_agent.refusals import BadInput
from horde_agent.runs.config import MOST_STEPS, RECORDED, LearnConfig
from horde_agent.runs.exit_reason import SignalHandler
from horde_agent.runs.session import Session, Source, Stopped
from horde_agent.runs.storage.event_log import IMPORTED
from horde_agent.runs.storage.folder import Extent, RunFolder
from horde_agent.runs.storage.resume import NEW, Resumption
from horde_agent.runs.storage.row_learner import RowLearner
from horde_agent.runs.storage.run import HeaderEnv, Run, make_run
from horde_agent.runs.storage.tables import NOT_RECORDED, SessionOutcome

_STEPS = (Phase.BEHAVE, Phase.EXCURSION)


class Recording:
    """The rows of a recording from row `since` up to step `up_to`, file by file; a run may still append more.

    With several passes, rows and steps are counted on from pass to pass.

    Attributes:
        on_fault: Called once with each fault of the recording.
    """

    def __init__(
        self,
        path: Path,
        extent: Extent | None = None,
        *,
        up_to: int = MOST_STEPS,
        since: int = 0,
        passes: int = 1,
    ) -> None:
        self.path = path
        self._extent = extent or Extent({}, n_rows=1, last_step=0)
        self._up_to = up_to
        self._since = since
        self._passes = passes
        self.on_fault: OnFault = log_fault
        self._reported: set[str] = set()

    def __iter__(self) -> Iterator[Stream]:
        n_passed = min(self._since // self._extent.n_rows, self._passes - 1)
        first_row = self._since - n_passed * self._extent.n_rows
        for number in range(n_passed, self._passes):
            for part in read_in_parts(self.path, first_row or None, on_fault=self._report):
                steps = part.rows["step"]
                steps += number * self._extent.last_step
                yield part[: np.count_nonzero(steps <= self._up_to)]
            first_row = 0

    def _report(self, fault: str) -> None:
        if fault not in self._reported:
            self._reported.add(fault)
            self.on_fault(fault)


class RecordedRows(Source):
    """Rows of a recording, from the first one or from a snapshot on.

    Args:
        run: The run.
        extent: What the recording has.
        resumed: Where it starts.
        excursions: File of the excursions; that of the run's folder when None.
        recording: First file of the rows; that of the run's folder when None.

    Raises:
        BadInput: If a file of excursions is missing.
        ValueError: If the snapshot does not fit.
    """

    def __init__(
        self,
        run: Run,
        extent: Extent,
        resumed: Resumption = NEW,
        excursions: Path | None = None,
        recording: Path | None = None,
    ) -> None:
        config = run.config
        passes = 1
        if config.backend == "data":
            passes = config.passes or 1
        total = extent.last_step * passes
        if config.backend in RECORDED:
            total = min(total, config.steps or total)
        self.learner = RowLearner(run)
        super().__init__(run, self.learner.student, total)
        excursions = excursions or run.folder.excursions
        if resumed.number:
            self.learner.resume(resumed, excursions)
        else:
            self.student.errors.table.record_to(excursions)
        path = recording or run.folder.life
        self._rows = Recording(path, extent, up_to=total, since=resumed.n_rows, passes=passes)
        self._has_tests = bool(extent.header.get("tests_excursions"))

    def learn(self, progress: Progress) -> None:
        """Learn from each row, until the end or a request to stop."""
        session = self.session
        learner = self.learner
        self._rows.on_fault = lambda fault: session.say(f"{fault}.")
        sample = outside_drives(learner.sampler.update, self.student)
        run = self.run

        def observe(student: StreamLearner, step: int) -> None:
            learner.counts.steps = step
            sample(student, step)
            if progress.is_due(run.horde):
                progress.show(step, run.horde, student.errors)
            self.after_row(step)
            if session.stopped_by is not None:
                raise Stopped

        try:
            with suppress(Stopped):
                # The snapshot of a data set is one between two rows; that of a robot has received
                # the next row.
                is_first_counted = run.config.backend != "data"
                replay_rows(learner, self._rows, observe, is_first_counted=is_first_counted)
            self.after_rows()
        finally:
            self.abandon()

    def after_row(self, step: int) -> None:
        """Called after each row."""

    def after_rows(self) -> None:
        """Called after the last row, also after a request to stop."""

    def abandon(self) -> None:
        """Write the excursions that wait for disk space."""
        self.student.errors.table.close()

    def finish(self, fault: BaseException | None) -> SessionOutcome:
        """Return what the tables need; after an invalid row, those before it have been learned from."""
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
        return SessionOutcome(
            steps=reached,
            end=self.session.end_of_rows(reached),
            robot=NOT_RECORDED | {"gaps": self.learner.counts.gaps},
            details={"n_not_applied": self.learner.counts.n_not_applied, "notes": notes},
            samples=self.learner.sampler.samples,
            has_tests=self._has_tests,
        )


def replay_rows(
    learner: LearnedStream,
    since: Iterable[Stream],
    observer: RowObserver,
    *,
    is_first_counted: bool = True,
) -> int | None:
    """Learn from the rows since the snapshot of a learner; return the step after the last row, None without one.

    Gaps and actions that were not applied are counted in the learner, which has counted those of
    each robot's first row.
    """
    student = learner.student
    counts = learner.counts
    reached: int | None = None
    phases: dict[int, Phase] = {}  # of each robot's row before
    if not is_first_counted:
        phases[student.robot] = student.phase
    for row in learned_rows(since, student):
        last = phases.get(row.robot)
        if last is not None:
            follows_step = last in _STEPS
            is_resumed = bool(row.flags & Flag.RESUMED)
            counts.gaps += is_resumed or (follows_step and bool(row.flags & Flag.GAP))
            counts.n_not_applied += follows_step and bool(row.flags & Flag.NOT_APPLIED)
        phase = Phase(row.phase)
        phases[row.robot] = phase
        observer(student, row.step)
        reached = row.step + int(phase in _STEPS)
    return reached


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
    extent = recorded.extent()
    run = make_run(HeaderEnv(extent.header), config, folder, recorded=acting)
    for path in record_files(recorded.life):
        try:
            os.link(path, folder.log / path.name)
        except OSError:
            shutil.copy2(path, folder.log / path.name)
    folder.events.append({"step": 0, "event": IMPORTED, "row": extent.n_rows})
    source = RecordedRows(run, extent, recording=recorded.life)
    return Session(source, console, signals)
