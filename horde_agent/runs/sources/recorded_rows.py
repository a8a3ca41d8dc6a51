"""Recorded rows as the source of a run.

Rows with actions and their probabilities are learned from off-policy. A recording contains all
observations and actions, and the behaviour does not depend on the weights, so the results are those
of the run that was recorded, bit for bit.
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterable, Iterator, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

import numpy as np
from rich.console import Console

from horde_agent.life.learner import StreamLearner, rows_of
from horde_agent.life.life import Life
from horde_agent.life.observers import Progress, RowObserver, outside_drives
from horde_agent.record import DRIVES, Flag, OnFault, Phase, Stream, log_fault, read_in_parts
from horde_agent.record.segments import record_files
from horde_agent.runs.config import BadInput, LearnConfig
from horde_agent.runs.exit_reason import ExitCause, ExitReason, SignalHandler
from horde_agent.runs.session import Session, Source, Stopped
from horde_agent.runs.storage.folder import IMPORTED, RunFolder
from horde_agent.runs.storage.recorded_run import (
    RestoredLife,
    open_recorded,
    read_extent,
)
from horde_agent.runs.storage.run import HeaderEnv, Run, make_run, new_life
from horde_agent.runs.storage.tables import NOT_RECORDED, SessionOutcome

_STEPS = (Phase.BEHAVE, Phase.EXCURSION)


class Recording:
    """The rows of a recording from row `since` up to step `up_to`, file by file; a run may still append more.

    With several passes, rows and steps are counted on from pass to pass.

    Attributes:
        on_fault: Called once with each fault of the recording.
    """

    def __init__(
        self, path: Path, up_to: int | None = None, since: int | None = None, passes: int = 1
    ) -> None:
        self.path = path
        self.up_to = up_to
        self.since = since
        self.passes = passes
        self.on_fault: OnFault = log_fault
        self._reported: set[str] = set()

    def __iter__(self) -> Iterator[Stream]:
        parts = self._passes()
        if self.passes == 1:
            parts = read_in_parts(self.path, self.since, on_fault=self._report)
        for part in parts:
            if self.up_to is None:
                yield part
            else:
                n_rows = np.count_nonzero(part.rows["step"] <= self.up_to)
                yield part[:n_rows]

    def _report(self, fault: str) -> None:
        if fault not in self._reported:
            self._reported.add(fault)
            self.on_fault(fault)

    def _passes(self) -> Iterator[Stream]:
        n_skipped = self.since or 0
        previous_step = 0
        last = 0
        for _ in range(self.passes):
            for part in read_in_parts(self.path, on_fault=self._report):
                part.rows["step"] += previous_step
                if len(part):
                    last = int(part.rows["step"][-1])
                yield part[n_skipped:]
                n_skipped = max(n_skipped - len(part), 0)
            previous_step = last


class RecordedRows(Source):
    """Rows of a recording, from the first one or from a restored life on.

    Args:
        run: The run.
        rows: The rows.
        header: Of the recording.
        end: What ends the run if there is no request to stop.
        total: The last step; None if it is unknown.
        restored: The life that goes on; None for a new one.
    """

    def __init__(
        self,
        run: Run,
        rows: Recording,
        header: Mapping[str, Any],
        *,
        end: ExitCause,
        total: int | None,
        restored: RestoredLife | None = None,
    ) -> None:
        if restored is None:
            envs = [HeaderEnv(header) for _ in range(run.config.robots)]
            self.life, self.sampler = new_life(envs, run)
        else:
            self.life = restored.life
            self.sampler = restored.sampler
        super().__init__(run, self.life.student, total)
        self._rows = rows
        self._end = ExitReason.of(end)
        self._has_tests = bool(header.get("tests_excursions"))
        self._reached = 0

    def learn(self, progress: Progress) -> None:
        """Learn from each row, until the end or a request to stop."""
        session = self.session
        self._rows.on_fault = lambda fault: session.say(f"{fault}.")
        sample = outside_drives(self.sampler.update, self.student)
        run = self.run
        self._reached = min(self.life.steps, self.total or 0)  # if no row follows the snapshot

        def observe(student: StreamLearner, step: int) -> None:
            self._reached = step
            sample(student, step)
            if progress.is_due(run.horde):
                progress.show(step, run.horde, student.errors)
            self.after_row(step)
            if session.stopped_by is not None:
                raise Stopped

        with self.life:
            with suppress(Stopped):
                # The snapshot of a data set is one between two rows; that of a robot has received
                # the next row.
                is_first_counted = run.config.backend != "data"
                replay_rows(self.life, self._rows, observe, is_first_counted=is_first_counted)
            self.after_rows()

    def after_row(self, step: int) -> None:
        """Called after each row."""

    def after_rows(self) -> None:
        """Called after the last row, also after a request to stop."""

    def abandon(self) -> None:
        """Close everything; the run does not start."""
        self.life.close()

    def finish(self, fault: BaseException | None) -> SessionOutcome:
        """Return what the tables need; after an invalid row, those before it have been learned from."""
        notes: list[str] = []
        if isinstance(fault, ValueError | LookupError | RuntimeError):
            if not self.student.learning_steps:
                raise BadInput(
                    f"{self._rows.path} cannot be learned from again: {fault}"
                ) from fault
            where = f"{self._rows.path.name} is damaged after step {self._reached:,}"
            notes = [f"{where}, and learned from up to there: {fault}."]
        elif fault is not None:
            raise fault
        end = self._end
        if self.session.stopped_by is not None:
            end = ExitReason.of(self.session.stopped_by)
        return SessionOutcome(
            steps=self._reached,
            end=end,
            robot=NOT_RECORDED | {"gaps": self.life.gaps},
            details={"n_not_applied": self.life.n_not_applied, "notes": notes},
            samples=self.sampler.samples,
            has_tests=self._has_tests,
        )


def replay_rows(
    life: Life, since: Iterable[Stream], observer: RowObserver, *, is_first_counted: bool = True
) -> None:
    """Learn from the rows since the snapshot from which a life was restored, and set its position after the last.

    Gaps and actions that were not applied are counted in the life, which has counted those of each
    robot's first row.
    """
    student = life.student
    reached = None
    robots = set[int]()
    last = student.phase
    for observation, action, b, phase, flags, step, policy, robot, reward in rows_of(since):
        student.select_robot(robot)
        last = student.phase
        if not (phase == last and phase in DRIVES):
            if not (reached is None and life.is_observed):
                student.observe(observation, flags, reward=reward)
            student.set_action(Phase(phase), action, b, step, policy)
        if robot in robots or not is_first_counted:
            follows_step = last in _STEPS
            is_resumed = bool(flags & Flag.RESUMED)
            life.counts.gaps += is_resumed or (follows_step and bool(flags & Flag.GAP))
            life.counts.n_not_applied += follows_step and bool(flags & Flag.NOT_APPLIED)
        observer(student, step)
        last = Phase(phase)
        reached = step
        robots.add(robot)
    if reached is not None:
        life.set_position(reached + int(last in _STEPS))


def replay_session(
    config: LearnConfig, folder: RunFolder, console: Console, signals: SignalHandler
) -> Session:
    """Return a session that learns from a recorded run at full speed, with the same or other questions.

    Its actions have probabilities, so questions about any policy are learned off-policy. It is
    linked into the new folder, or copied.

    Raises:
        BadInput: If it cannot be read, or was of several robots and is to be learned from in
            shards.
    """
    recorded = open_recorded(RunFolder(Path(str(config.log))))
    recorded_settings = recorded.recorded_settings
    if recorded_settings.robots > 1 and config.shards is not None:
        raise BadInput(
            f"--shards cannot learn from {config.log}, a run of {recorded_settings.robots} robots; omit it"
        )
    extent = read_extent(recorded.folder)
    run = make_run(HeaderEnv(extent.header), config, folder, recorded=recorded_settings)
    for path in record_files(recorded.folder.life):
        try:
            os.link(path, folder.log / path.name)
        except OSError:
            shutil.copy2(path, folder.log / path.name)
    folder.log_event({"step": 0, "event": IMPORTED, "row": extent.n_rows})
    end = ExitCause.STEPS
    if config.steps is None:
        end = ExitCause.LOG_END
    source = RecordedRows(
        run,
        Recording(recorded.folder.life, config.steps),
        extent.header,
        end=end,
        total=config.steps or extent.last_step,
    )
    source.student.errors.table.record_to(folder.excursions)
    return Session(run, source, console, signals)
