"""Rows as the source of a run, without their robot: recorded ones, or those that another program writes.

Each goes through `take_recorded`, in the order of time, so a recording teaches what the stream taught.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from horde_agent.life.learner import rows_of
from horde_agent.life.observers import Progress, Sampler
from horde_agent.life.stream import LearnedStream
from horde_agent.record import DRIVES, Flag, Phase, Row, Stream
from horde_agent.runs.exit_reason import ExitReason
from horde_agent.runs.session import Source
from horde_agent.runs.storage.row_learner import RowLearner
from horde_agent.runs.storage.run import Run
from horde_agent.runs.storage.tables import NOT_RECORDED, SessionOutcome

_STEPS = (Phase.BEHAVE, Phase.EXCURSION)


def take_recorded(
    learner: LearnedStream, row: Row, sampler: Sampler, *, is_counted: bool = True
) -> None:
    """Learn from a row; count whether it is a gap or its action was not applied, unless not `is_counted`.

    The measures are sampled when they are due, except within a drive, as in a life.
    """
    student = learner.student
    counts = learner.counts
    phase_before = student.phase
    student.select_robot(row.robot)
    follows_step = student.phase in _STEPS
    student.take_row(row)
    if is_counted:
        is_resumed = bool(row.flags & Flag.RESUMED)
        counts.gaps += is_resumed or (follows_step and bool(row.flags & Flag.GAP))
        counts.n_not_applied += follows_step and bool(row.flags & Flag.NOT_APPLIED)
    if student.phase != phase_before or phase_before not in DRIVES:
        sampler.update(student, row.step)


def replay_rows(learner: LearnedStream, since: Iterable[Stream], sampler: Sampler) -> int | None:
    """Learn from the rows since the snapshot of a life; return the step after the last row, None without one.

    The life has counted the first row of each robot.
    """
    reached: int | None = None
    robots = set[int]()
    for row in rows_of(since):
        take_recorded(learner, row, sampler, is_counted=row.robot in robots)
        robots.add(row.robot)
        reached = row.step + int(Phase(row.phase) in _STEPS)
    return reached


class RowSource(Source):
    """Rows that a run learns from, one after another.

    Args:
        run: The run.
        learner: Learns from them.
        total: Number of steps, for the progress; None if it is unknown.

    Attributes:
        learner: As given.
    """

    def __init__(self, run: Run, learner: RowLearner, total: int | None) -> None:
        self.learner = learner
        self._progress: Progress | None = None
        super().__init__(run, learner.student, total)

    @property
    def is_redoing(self) -> bool:
        """Whether rows are learned from again after a resume: their alarms were raised."""
        return False

    def take_row(self, row: Row, *, is_counted: bool = True) -> None:
        """Learn from a complete row as `take_recorded` does, check for alarms and show the progress."""
        learner = self.learner
        take_recorded(learner, row, learner.sampler, is_counted=is_counted)
        learner.counts.steps = row.step
        if self.alarms is not None and not self.is_redoing:
            self.alarms.check(row, learner)
        progress = self._progress
        if progress is not None and progress.is_due(self.run.horde):
            progress.show(row.step, self.run.horde, self.student.errors)

    def outcome(
        self, *, steps: int, end: ExitReason, details: dict[str, Any], **others: Any
    ) -> SessionOutcome:
        """Return what the tables need, given its fields that differ between sources."""
        missing = [one._asdict() for one in self.student.missing_readings()]
        return SessionOutcome(
            steps=steps,
            end=end,
            robot=NOT_RECORDED | {"gaps": self.learner.counts.gaps},
            details={**details, "missing": missing},
            samples=self.learner.sampler.samples,
            **others,
        )
