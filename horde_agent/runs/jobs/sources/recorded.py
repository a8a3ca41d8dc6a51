"""Recorded rows as sources: of a run, of a data set, or of a log without action probabilities.

Rows with actions and their probabilities are learned from off-policy. A data set is learned from in one or more passes,
with snapshots. A log is learned from in several passes over its first part, and scored on the rest.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from contextlib import suppress
from typing import Any

import gymnasium
from rich.console import Console

from horde_agent.life.feed import Feed
from horde_agent.life.life import Life
from horde_agent.life.observers import Progress, RowObserver, Sampler, outside_drives
from horde_agent.life.student import Student, rows_of
from horde_agent.measures.return_errors import ReturnErrors
from horde_agent.record import DRIVES, Flag, Phase, Recorder, Stream, read_end
from horde_agent.record.rows import FORMAT
from horde_agent.record.segments import read_header, started_files
from horde_agent.runs.config import LOG_PASSES, BadInput
from horde_agent.runs.ending import Cause, End
from horde_agent.runs.jobs import holdout
from horde_agent.runs.jobs.sources.source import (
    NOT_RECORDED,
    STEPS,
    Outcome,
    Recording,
    Source,
    Stopped,
    new_life,
    new_recorder,
    restore,
)
from horde_agent.runs.keeping.resume import Resumption
from horde_agent.runs.keeping.run import HeaderEnv, Run
from horde_agent.runs.keeping.snapshot_writer import SnapshotWriter

_ESTIMATED = (
    "b was estimated from {n_rows:,} actions: its log-loss on held-out rows is {log_loss:.4g}, that of the actions' "
    "frequencies {log_loss_of_frequencies:.4g}, at the temperature {temperature:.3g}. The effective sample size of rho "
    "is {size:,.0f} of {n_steps:,} steps in the mean. An estimated b biases rho = pi/b, and with it the predictions "
    "about other policies."
)


class Replay(Source):
    """Recorded rows, up to step `total`, from their beginning or from a life restored at the first one.

    Raises:
        BadInput: In `finish`, if no step could be learned from.
    """

    def __init__(
        self,
        run: Run,
        rows: Recording,
        console: Console,
        header: Mapping[str, Any],
        *,
        end: Cause,
        total: int | None,
        restored: tuple[Life, Sampler] | None = None,
    ) -> None:
        self.life, self.sampler = restored or new_life([HeaderEnv(header)] * run.config.robots, run)
        super().__init__(run, self.life.student, console)
        self._rows, self._end, self.total = rows, End.of(end), total
        self._has_tests = bool(header.get("tests_excursions"))
        self._reached = 0

    def learn(self, progress: Progress) -> None:
        """Learn from each row."""
        sample, run = outside_drives(self.sampler.update, self.student), self.run
        self._reached = min(self.life.steps, self.total or 0)  # if no row follows the snapshot

        def observe(student: Student, step: int) -> None:
            self._reached = step
            sample(student, step)
            if progress.is_due(run.horde):
                progress.show(step, run.horde, student.errors)

        with self.life:
            self._replay(observe)

    def _replay(self, observe: RowObserver) -> None:
        # The snapshot of a data set is one between two rows; that of a robot has received the next row.
        is_first_counted = self.run.config.backend != "data"
        replay_rows(self.life, self._announced(), observe, is_first_counted=is_first_counted)

    def _announced(self) -> Iterator[Stream]:
        for part in self._rows:
            for fault in part.faults:
                self.say(f"{fault}.")
            yield part

    def abandon(self) -> None:
        """Close everything; the run does not start."""
        self.life.close()

    def finish(self, fault: BaseException | None) -> Outcome:
        """Return what the tables need; after an invalid row, those before it have been learned from."""
        notes: list[str] = []
        if isinstance(fault, ValueError | LookupError | RuntimeError):
            if not self.student.learning_steps:
                raise BadInput(f"{self._rows.path} cannot be learned from again: {fault}") from fault
            where = f"{self._rows.path.name} is damaged after step {self._reached:,}"
            notes = [f"{where}, and learned from up to there: {fault}."]
        elif fault is not None:
            raise fault
        return Outcome(
            steps=self._reached,
            end=self._end,
            robot=NOT_RECORDED | {"gaps": self.life.gaps},
            details={"n_not_applied": self.life.n_not_applied, "notes": notes},
            samples=self.sampler.samples,
            has_tests=self._has_tests,
        )


def replay_rows(life: Life, since: Iterable[Stream], observer: RowObserver, *, is_first_counted: bool = True) -> None:
    """Learn from the rows since the snapshot from which a life was restored, and set its position after the last.

    Gaps and actions that were not applied are counted in the life, which has counted those of each robot's first row.
    """
    student, reached, robots = life.student, None, set[int]()
    last = student.phase
    for observation, action, b, phase, flags, step, policy, robot in rows_of(since):
        student.select_robot(robot)
        last = student.phase
        if not (phase == last and phase in DRIVES):
            if not (reached is None and life.is_observed):
                student.observe(observation, flags)
            student.set_action(Phase(phase), action, b, step, policy)
        if last in STEPS and (robot in robots or not is_first_counted):
            life.gaps += bool(flags & Flag.GAP)
            life.n_not_applied += bool(flags & Flag.NOT_APPLIED)
        observer(student, step)
        last, reached = Phase(phase), step
        robots.add(robot)
    if reached is not None:
        life.set_position(reached + int(last in STEPS))


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
        self.snapshot_writer = SnapshotWriter(run, self._position, self.sampler, resumed)

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
        """Write the last snapshot, and return what the tables need."""
        self.snapshot_writer.finish()
        if self.stopped_by is not None:
            self._end = End.of(self.stopped_by)
        outcome = super().finish(fault)
        notes = [*outcome.details["notes"], *self.run.notes]
        if (estimate := self._header.get("b_estimate")) is not None:
            size = self.run.watch.effective_sample_size().mean()
            notes.append(_ESTIMATED.format(**estimate, size=size, n_steps=self.student.learning_steps))
        details = {**outcome.details, "notes": notes, "passes": self.run.config.passes}
        return outcome._replace(details=details, lived_before_s=self.snapshot_writer.lived_before_s)


class _NoScores(ReturnErrors):
    """Drops the student's own tests: a log is scored on its held-out part, and there are several passes."""

    def add(self, *_: Any) -> None:
        """Drop a test."""


def play_log(env: gymnasium.Env[Any, Any], run: Run) -> None:
    """Write the log that an environment plays, up to the requested step, to the recording of a run.

    Raises:
        BadInput: If the disk has too little free space, or the folder cannot be written.
    """
    with new_recorder(run, env, has_tests=False) as recorder:
        holdout.read_log(env, recorder, run.config.steps)
    env.close()


class Log(Source):
    """A log in the run's recording.

    Raises:
        ValueError: If the return of a question cannot be computed from it.
    """

    def __init__(self, run: Run, console: Console) -> None:
        holdout.known_returns(run.horde)
        student = Student(run.horde, run.interface)
        student.errors = _NoScores(student.errors.policies, run.horde.n_demons)
        student.errors.record_to(run.folder.excursions)
        super().__init__(run, student, console)
        self._rows, self._n_learned = Recording(run.folder.life), 0
        Feed(run.folder.path, run.interface, run.horde).close()  # the live page does not show a replay

    def learn(self, progress: Progress) -> None:
        """Learn from the first part in several passes."""

        def observe(student: Student, _: int) -> None:
            self._n_learned += 1
            if progress.is_due(self.run.horde):
                progress.show(student.learning_steps, self.run.horde)
            if self.stopped_by is not None:
                raise Stopped

        with suppress(Stopped):
            holdout.learn(self._rows, self.student, self.run.config.passes or LOG_PASSES, observe)

    def finish(self, fault: BaseException | None) -> Outcome:
        """Score the predictions of the held-out part."""
        if fault is not None:
            raise fault
        score = holdout.score(self._rows, self.student)
        asked = self.run.config.steps
        end = Cause.LOG_END if asked is None or score.n_steps < asked else Cause.STEPS
        return Outcome(
            steps=score.n_steps,
            end=End.of(Cause.CUT_OFF if self.run.is_unfinished else self.stopped_by or end),
            robot=NOT_RECORDED | {"gaps": score.n_gaps},
            score=score,
            passes=self._n_learned / score.n_learned,
        )
