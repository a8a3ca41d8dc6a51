"""Recorded rows as the source of a run: of a life, a data set or a log.

Rows with actions and their probabilities are learned from off-policy. A recording contains all
observations and actions, and the behaviour does not depend on the weights, so the results are those
of the life, bit for bit.

A data set or a log is imported into the run's recording first, so that its run is reported, resumed
and exported as a
life is. A log has no actions: it is learned from in several passes over its first part, and scored
    on the rest.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import replace
from pathlib import Path
from typing import Any

import gymnasium
import numpy as np
from rich.console import Console

from horde_agent.life.feed import Feed
from horde_agent.life.learner import StreamLearner, rows_of
from horde_agent.life.life import Life
from horde_agent.life.observers import Progress, RowObserver, Sampler, outside_drives
from horde_agent.measures.return_errors import ReturnErrors
from horde_agent.record import (
    DRIVES,
    FORMAT,
    Flag,
    OnFault,
    Phase,
    Recorder,
    Stream,
    log_fault,
    read_in_parts,
)
from horde_agent.record.segments import read_header, read_segment, started_files
from horde_agent.runs.config import LOG_PASSES, BadInput, LearnConfig
from horde_agent.runs.data.behaviour import act_by
from horde_agent.runs.data.columns import ESTIMATE, Columns
from horde_agent.runs.data.files import open_table
from horde_agent.runs.data.lerobot import is_lerobot, open_lerobot
from horde_agent.runs.data.minari import open_minari
from horde_agent.runs.data.tables import Table
from horde_agent.runs.ending import Cause, End, SignalHandler
from horde_agent.runs.jobs import holdout
from horde_agent.runs.jobs.job import Job, Stopped
from horde_agent.runs.jobs.tables import NOT_RECORDED, Outcome
from horde_agent.runs.keeping.folder import IMPORTED, RunFolder
from horde_agent.runs.keeping.resume import Resumption, recorded_life, resumption
from horde_agent.runs.keeping.run import (
    HeaderEnv,
    Questions,
    Run,
    make_run,
    new_life,
    new_recorder,
    restore,
)
from horde_agent.runs.keeping.snapshot_writer import SnapshotWriter

_STEPS = (Phase.BEHAVE, Phase.EXCURSION)
_ANY_DURATION = 1e12  # of an imported file in seconds: only its size is limited
_ESTIMATED = (
    "b was estimated from {n_rows:,} actions: its log-loss on held-out rows is {log_loss:.4g}, that of the actions' "
    "frequencies {log_loss_of_frequencies:.4g}, at the temperature {temperature:.3g}. The effective sample size of rho "
    "is {size:,.0f} of {n_steps:,} steps in the mean. An estimated b biases rho = pi/b, and with it the predictions "
    "about other policies."
)


def recorded_facts(folder: RunFolder) -> tuple[dict[str, Any], int, int]:
    """Return the header of a recording, its number of rows, and its last step; raise BadInput if it has no row."""
    with as_bad_input(folder):
        header = read_header(started_files(folder.life)[0], FORMAT)
        (n_rows, end) = last_row(folder)
    if not n_rows:
        raise BadInput(f"{folder.path} contains no finished run: its log is empty")
    return header, n_rows, end


def last_row(folder: RunFolder) -> tuple[int, int]:
    """Return the number of rows of a log up to the last sound one, and its step; both 0 for an empty log."""
    for file in reversed(started_files(folder.life)):
        segment = read_segment(file, FORMAT)
        n = segment.n_whole
        if n:
            return int(segment.header.get("first", 0)) + n, int(segment.records["step"][n - 1])
    return 0, 0


@contextmanager
def as_bad_input(folder: RunFolder) -> Iterator[None]:
    """Turn errors of reading a run's recording into BadInput."""
    try:
        yield
    except BadInput:
        raise
    except FileNotFoundError:
        raise BadInput(
            f"{folder.path} contains no finished run: there are neither tables nor a log in it"
        ) from None
    except (ValueError, LookupError, TypeError, OSError) as error:
        raise BadInput(
            f"{folder.life} cannot be read, so it cannot be learned from again: {error}"
        ) from None


def rebuilt_run(
    folder: RunFolder, made: RunFolder, config: LearnConfig, header: dict[str, Any]
) -> Run:
    """Return a run like the one in `folder`, with the folder `made`; raise BadInput if its Horde cannot be created."""
    file = None
    if str(config.questions).endswith(".toml"):
        file = folder.question_file
    try:
        return make_run(HeaderEnv(header), config, made, file, recorded_life(folder, config))
    except KeyError as error:
        raise BadInput(
            f"the header of {folder.life} lacks {error}, which learning from it requires"
        ) from None
    except (ValueError, TypeError) as error:
        raise BadInput(f"{folder.life} cannot be learned from again: {error}") from None


# ---- a life ----------------------------------------------------------------------------------------------------------


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
            yield (
                part
                if self.up_to is None
                else part[: np.count_nonzero(part.rows["step"] <= self.up_to)]
            )

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


class Replay(Job):
    """Learns from recorded rows up to step `total`, from the first row or from a restored life."""

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
        signals: SignalHandler | None = None,
    ) -> None:
        self.life, self.sampler = restored or new_life([HeaderEnv(header)] * run.config.robots, run)
        super().__init__(run, self.life.student, console, signals)
        self._rows = rows
        self._end = End.of(end)
        self.total = total
        rows.on_fault = lambda fault: self.say(f"{fault}.")
        self._has_tests = bool(header.get("tests_excursions"))
        self._reached = 0

    def _learn(self, progress: Progress) -> None:
        """Learn from each row, until the end or a request to stop."""
        sample = outside_drives(self.sampler.update, self.student)
        run = self.run
        self._reached = min(self.life.steps, self.total or 0)  # if no row follows the snapshot

        def observe(student: StreamLearner, step: int) -> None:
            self._reached = step
            sample(student, step)
            if progress.is_due(run.horde):
                progress.show(step, run.horde, student.errors)
            self._after_row(step)
            if self.stopped_by is not None:
                raise Stopped

        with self.life:
            with suppress(Stopped):
                # The snapshot of a data set is one between two rows; that of a robot has received
                # the next row.
                is_first_counted = run.config.backend != "data"
                replay_rows(self.life, self._rows, observe, is_first_counted=is_first_counted)
            self._after_rows()

    def _after_row(self, step: int) -> None:
        pass

    def _after_rows(self) -> None:
        pass

    def _abandon(self) -> None:
        self.life.close()

    def _finish(self, fault: BaseException | None) -> Outcome:
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
        return Outcome(
            steps=self._reached,
            end=self._end if self.stopped_by is None else End.of(self.stopped_by),
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
    for observation, action, b, phase, flags, step, policy, robot in rows_of(since):
        student.select_robot(robot)
        last = student.phase
        if not (phase == last and phase in DRIVES):
            if not (reached is None and life.is_observed):
                student.observe(observation, flags)
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


# ---- data sets -------------------------------------------------------------------------------------------------------


class DataSet(Replay):
    """Learns from an imported data set, from the snapshot `resumed` or from the first row."""

    def __init__(
        self,
        run: Run,
        console: Console,
        signals: SignalHandler | None = None,
        resumed: Resumption | None = None,
    ) -> None:
        folder = run.folder
        config = run.config
        n_known = resumed.n_rows if resumed else 0
        (header, _, end) = recorded_facts(folder)
        passes = config.passes or 1
        rows = Recording(folder.life, config.steps, n_known or None, passes)
        n_steps = end * passes
        total = min(n_steps, config.steps or n_steps)
        super().__init__(
            run, rows, console, header, end=Cause.LOG_END, total=total, signals=signals
        )
        self._estimate = header.get("b_estimate")
        if resumed is None:
            self.student.errors.table.record_to(folder.excursions)
        else:
            self.student.errors.table.resume_in(folder.excursions)
            restore(self.life, run, self.sampler, resumed.state)
            resumed.state.clear()
        # The live page does not show a data set
        Feed(folder.path, run.interface, run.horde).close()
        # Counts the rows that were learned from; holds none
        self._position = Recorder(len(run.interface.channels))
        self._position.n_rows = n_known
        self.snapshot_writer = SnapshotWriter(run, self._position, self.sampler, resumed)

    def _learn(self, progress: Progress) -> None:
        """Learn from each row, and take snapshots between two rows."""
        self.run.folder.summary.unlink(missing_ok=True)  # of an earlier end of the run
        self.snapshot_writer.start()
        super()._learn(progress)

    def _after_row(self, step: int) -> None:
        self._position.n_rows += 1
        self.life.counts.steps = step
        self.snapshot_writer.before_step(self.life)

    def _after_rows(self) -> None:
        self.snapshot_writer.at_end(self.life)

    def _finish(self, fault: BaseException | None) -> Outcome:
        """Write the last snapshot, and return what the tables need."""
        self.snapshot_writer.finish()
        outcome = super()._finish(fault)
        notes = [*outcome.details["notes"], *self.run.notes]
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
    file = config.data or config.log
    if config.minari is not None:
        table = open_minari(config.minari, config.columns)
    elif file is None:
        raise BadInput(
            "--backend data needs --data FILE or --minari NAME, the data set to learn from"
        )
    elif is_lerobot(file):
        table = open_lerobot(file, config.columns)
    elif config.columns is None:
        advice = f"`horde columns {file} > columns.toml` writes one"
        raise BadInput(
            f"--data needs --columns FILE.toml, which describes the columns of the table: {advice}"
        )
    else:
        columns = Columns.read(config.columns)
        if config.backend == "replay":
            columns = replace(columns, missing="gap", action=None, b=None)
        table = open_table(file, columns)
    if table.columns.b == ESTIMATE:
        act_by(table, ESTIMATE)
    return table


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
    run.folder.log_event({"step": 0, "event": IMPORTED, "row": recorder.n_rows})


def learning_from(
    table: Table,
    config: LearnConfig,
    folder: RunFolder,
    console: Console,
    signals: SignalHandler | None = None,
    questions: Questions | None = None,
) -> DataSet:
    """Import a data set, and return a job that learns from it; `questions` replace those in the settings."""
    run = make_run(HeaderEnv(table.header), config, folder, own=questions)
    try:
        import_table(table, run)
        for remark in table.remarks:
            console.print(remark, highlight=False, soft_wrap=True)
        return DataSet(run, console, signals)
    except BaseException:
        run.close()
        raise


def resuming_data(
    config: LearnConfig, folder: RunFolder, console: Console, signals: SignalHandler
) -> DataSet:
    """Return a job that continues from its snapshot or from the first row; raise BadInput if the run is complete."""
    header, n_rows, _ = recorded_facts(folder)
    resumed = resumption(folder)
    n_left = n_rows * (config.passes or 1) - resumed.n_rows
    if folder.summary.is_file() and not n_left:
        raise BadInput(f"{folder.path} has learned from all {n_rows:,} rows of its data set")
    run = rebuilt_run(folder, folder, config, header)
    for note in (*resumed.notes, f"resumed at row {resumed.n_rows:,}; {n_left:,} rows follow"):
        console.print(note, highlight=False, soft_wrap=True)
    return DataSet(run, console, signals, resumed)


# ---- logs ------------------------------------------------------------------------------------------------------------


class _NoScores(ReturnErrors):
    """Drops the student's own tests: a log is scored on its held-out part, and there are several passes."""

    def add(self, *_: Any) -> None:
        """Drop a test."""


def play_log(env: gymnasium.Env[Any, Any], run: Run) -> None:
    """Write the log that an environment plays, up to the requested step, to the recording of a run."""
    with new_recorder(run, env, has_tests=False) as recorder:
        holdout.read_log(env, recorder, run.config.steps)


class Log(Job):
    """Learns from a log in the run's recording; raises ValueError if it cannot give the return of a question."""

    def __init__(self, run: Run, console: Console, signals: SignalHandler | None = None) -> None:
        holdout.known_returns(run.horde)
        student = StreamLearner(run.horde, run.interface)
        student.errors = _NoScores(student.errors.policies, run.horde.n_demons)
        student.errors.table.record_to(run.folder.excursions)
        super().__init__(run, student, console, signals)
        self._rows = Recording(run.folder.life)
        self._n_learned = 0
        self._rows.on_fault = lambda fault: self.say(f"{fault}.")
        # The live page does not show a replay
        Feed(run.folder.path, run.interface, run.horde).close()

    def _learn(self, progress: Progress) -> None:
        """Learn from the first part in several passes."""

        def observe(student: StreamLearner, _: int) -> None:
            self._n_learned += 1
            if progress.is_due(self.run.horde):
                progress.show(student.learning_steps, self.run.horde)
            if self.stopped_by is not None:
                raise Stopped

        with suppress(Stopped):
            holdout.learn(self._rows, self.student, self.run.config.passes or LOG_PASSES, observe)

    def _finish(self, fault: BaseException | None) -> Outcome:
        """Score the predictions of the held-out part."""
        if fault is not None:
            raise fault
        score = holdout.score(self._rows, self.student)
        requested_steps = self.run.config.steps
        if requested_steps is None or score.n_steps < requested_steps:
            end = Cause.LOG_END
        else:
            end = Cause.STEPS
        return Outcome(
            steps=score.n_steps,
            end=End.of(Cause.CUT_OFF if self.is_rebuilt else self.stopped_by or end),
            robot=NOT_RECORDED | {"gaps": score.n_gaps},
            score=score,
            passes=self._n_learned / score.n_learned,
        )
