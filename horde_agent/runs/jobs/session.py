"""The jobs of `horde learn`: run a robot or read a log, and write the files of the run folder.

When a run ends, for any reason, the robot is stopped and closed first; then the tables are written.
"""

from __future__ import annotations

import logging
import shutil
import signal
import time
from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import gymnasium
import numpy as np
from rich.console import Console

from horde_agent.life.bodies import ONE_AT_A_TIME
from horde_agent.life.excursions import ExcursionConfig
from horde_agent.life.feed import Feed
from horde_agent.life.life import Life
from horde_agent.life.observers import Progress, Sampler, outside_drives
from horde_agent.life.student import Student
from horde_agent.life.timing import Durations
from horde_agent.policies import StickyRandom
from horde_agent.record import Recorder, Stream, read, row_dtype
from horde_agent.record.rows import FORMAT
from horde_agent.record.segments import read_header, started_files
from horde_agent.runs.config import BadInput, LearnConfig, seconds
from horde_agent.runs.ending import Cause, End, Ended, SignalHandler
from horde_agent.runs.jobs import holdout
from horde_agent.runs.jobs import tables as results
from horde_agent.runs.jobs.tables import write_life, write_reading
from horde_agent.runs.jobs.warm import CompileNotice, warm_up
from horde_agent.runs.keeping.events import Alarms, Events
from horde_agent.runs.keeping.folder import unwritable
from horde_agent.runs.keeping.resume import (
    Resumption,
    change,
    learn_from_record,
    new_changes,
    refuse_other_ranges,
    replay_rows,
)
from horde_agent.runs.keeping.run import Run, record_header
from horde_agent.runs.keeping.snapshot_writer import SnapshotWriter
from horde_agent.saving import inner

_TABLES_BYTES = 2_000_000  # of tables, report and pictures, approximately

_DIFFERS = (
    "the observation at step %d differs from the one recorded before the run was resumed: from that step on, the "
    "recording contains the new observations"
)
_log = logging.getLogger(__name__)

NOT_TIMED: dict[str, Any] = dict.fromkeys(("deadlines_missed", "crc_errors", "link_losses", "s_without_link"))
"""Values of the summary that a recording does not contain."""


class Unwritten(Exception):
    """The tables were not written, but the log was.

    Attributes:
        why: The error or signal that ended writing.
    """

    def __init__(self, why: OSError | Ended) -> None:
        self.why = why
        reason = "writing was interrupted"
        if isinstance(why, OSError):
            reason = f"{why.filename} cannot be written ({why.strerror})"
        super().__init__(f"The tables were not written: {reason}.")


class Job:
    """What `horde learn` builds and checks before the first step.

    Args:
        run: The Horde and the folder for the results.
        env: The robot.
        console: For progress.
        signals: Handles signals.
        notice: Prints that kernels are being compiled.
        resumed: The snapshot to resume from; None for a new run.

    Attributes:
        life: The life; it has its own generator, so the same seed gives the same life.
        recorder: Records the stream.
        stopped_by: The first request to stop; None without one.
    """

    def __init__(
        self,
        run: Run,
        env: gymnasium.Env[Any, Any],
        console: Console,
        signals: SignalHandler,
        notice: CompileNotice,
        resumed: Resumption | None = None,
    ) -> None:
        self.run, self.env, self.console, self.signals, self._notice = run, env, console, signals, notice
        self._resumed = resumed
        config, interface = run.config, run.interface
        if config.backend == "replay":
            holdout.known_returns(run.horde)
        self.stopped_by: Cause | None = None
        self._is_stopped_for_good = False
        self._body = ExitStack()
        self._body.callback(env.close)
        behaviour = StickyRandom(len(interface.actions), config.repeat)
        rng = np.random.default_rng(config.seed)
        excursions = ExcursionConfig(config.excursion_probability, config.horizon)
        self.life = Life(env, run.horde, behaviour, rng, interface=interface, excursions=excursions)
        self.sampler = Sampler()
        self.life.observers += [run.watch, self.sampler]
        if config.on_alarm is not None:
            names = [channel.name for channel in interface.channels]
            self.life.observers.append(Alarms(config.on_alarm, run.folder.path, names, interface.period_s))
        self.recorder = self._recorder() if resumed is None else self._known_recorder(resumed)
        self.life.observers.append(Events(run.folder, self.recorder))
        every_s = seconds(config.snapshot_every)
        changes, lived_s = ([], 0.0) if resumed is None else (resumed.changes, resumed.lived_s)
        self.snapshot_writer = SnapshotWriter(run, self.recorder, self.sampler, every_s, changes, lived_s)
        self.feed = self._feed()

    def _recorder(self) -> Recorder:
        """Create the recording, whose header describes the robot.

        Raises:
            BadInput: If the disk has too little free space.
        """
        config, interface, folder = self.run.config, self.run.interface, self.run.folder
        needed = _TABLES_BYTES + (config.steps or 0) * row_dtype(len(interface.channels)).itemsize
        if (free := shutil.disk_usage(folder.path).free) < needed:
            raise BadInput(
                f"--out {folder.path} has {free / 1e6:.1f} MB free, but this run needs {needed / 1e6:.1f} MB; choose "
                "another disk, or fewer --steps"
            )
        facts = record_header(self.env, interface) | {"tests_excursions": bool(self.life.excursions.policies)}
        try:
            recorder = Recorder(len(interface.channels), folder.life, facts)
            self.life.student.errors.record_to(folder.excursions)
        except OSError as error:
            raise BadInput(unwritable(folder.path, error)) from None
        return recorder

    def _known_recorder(self, resumed: Resumption) -> Recorder:
        """Open the recording of a resumed run, and repeat its changes of questions.

        Raises:
            BadInput: If the recording is damaged after the snapshot, or cannot be written.
        """
        folder, life = self.run.folder, self.life
        change(life, self.run.interface, folder, resumed.changes)
        try:
            recorded = read_header(started_files(folder.life)[0], FORMAT)
            refuse_other_ranges(folder, recorded, record_header(self.env, self.run.interface))
            recorder = Recorder.resume(folder.life, resumed.n_rows, is_redone=life.body.is_restorable)
            life.student.errors.table.resume_in(folder.excursions)
        except BadInput:
            raise
        except ValueError as error:
            raise BadInput(f"{folder.path} cannot be resumed: {error}; run `horde doctor {folder.path}`") from None
        except OSError as error:
            raise BadInput(unwritable(folder.path, error)) from None
        return recorder

    def _restore(self, resumed: Resumption) -> None:
        """Restore the life from the snapshot; for a robot, learn from the rows recorded after it."""
        life, state = self.life, resumed.state
        try:
            if state:
                self.sampler.restore(inner(state, "sampler"))
                self.run.watch.restore(inner(state, "watch"))
                life.restore(inner(state, "life"))
            else:
                life.student.errors.restore(life.student.errors.state())
        except ValueError as error:
            raise BadInput(f"{self.run.folder.path} cannot be resumed: {error}") from None
        since = self.recorder.since
        if not life.body.is_restorable:
            replay_rows(life, [since], outside_drives(self.sampler.update, life.student))
        state.clear()  # it may be mapped from files that are deleted after newer snapshots
        for note in resumed.notes:
            self._say(note)
        what = "replaying" if life.body.is_restorable else "learned from"
        self._say(f"resumed at step {resumed.step:,}; {what} {len(since):,} recorded rows")
        event = {"step": resumed.step, "event": "resumed", "row": resumed.n_rows, "redone": len(since)}
        self.run.folder.log_event(event)

    def _feed(self) -> Feed:
        """Create the files that the live page reads."""
        run, picture = self.run, self.life.body.metadata.get("picture")
        stop, total = self._stop_for_the_page, self.run.config.steps
        return Feed(run.folder.path, run.interface, run.horde, picture=picture, total=total, ask_to_stop=stop)

    def begin(self) -> None:
        """Compile, then reset the environment.

        In this order, because a robot may drive in its first reset and compiling would delay its commands. A signal
        during that drive requests the end of the run.
        """
        with self._notice.installed():
            self.run.compile_s = warm_up(self.run.horde, self.run.interface)
        self.signals.call_at_first(self._stop_for_signal)
        if self.run.config.backend == "replay":
            self.env.reset()
            return
        if self._resumed is not None:
            self._restore(self._resumed)
        else:
            self.run.folder.log_event({"step": 0, "event": "began", "row": 0})
        self.life.begin()

    def change(self, add: Path | None, remove: str | None, *, learns: bool) -> list[dict[str, Any]]:
        """Add and remove questions at the current step; return the changes as stored in snapshots.

        Args:
            add: File of the new questions.
            remove: Shell pattern of the names to remove.
            learns: Learn theta of the new questions from the recording; w and traces start at 0.

        Raises:
            BadInput: If the file is invalid, or no name matches the pattern.
        """
        life, run, before = self.life, self.run, list(self.life.horde.names)
        changes = new_changes(run.folder, before, add, remove, len(self.snapshot_writer.changes))
        try:
            change(life, run.interface, run.folder, changes)
        except ValueError as error:
            raise BadInput(str(error)) from None
        for one in changes:
            run.folder.log_event({"step": life.steps, "event": "questions", "row": self.recorder.n_rows, **one})
        if learns and add is not None:
            self.recorder.flush()
            learn_from_record(life, run, set(life.horde.names) - set(before))
        return changes

    def abandon(self) -> None:
        """Close everything; the run does not start."""
        self._body.close()
        self.life.close()
        self.feed.close()
        self.recorder.close()
        self.run.close()

    @property
    def is_stopped(self) -> bool:
        """True after a request to stop."""
        return self.stopped_by is not None

    def stop(self, cause: Cause) -> None:
        """Request an orderly end; safe to call from a signal handler.

        Args:
            cause: Recorded unless an earlier request has one.
        """
        self.stopped_by = self.stopped_by or cause
        self.life.stop()
        self._say("stopping after this step; press Ctrl-C again to abort")

    def stop_body(self) -> None:
        """Stop and close the robot, deferring signals; only file writing remains. Idempotent."""
        self.signals.record_only()
        self.obey_second_ctrl_c()
        self._body.close()
        self.signals.call_at_first(self._announce_writing)

    def _stop_for_signal(self) -> None:
        self.stop(Cause.of_signal(self.signals.seen[-1]))

    def _stop_for_the_page(self) -> None:
        """Set the robot's emergency stop, if it has one, and stop, as requested on the live page."""
        if not self.is_stopped:
            self.life.body.emergency_stop("requested on the live page")
            self.stop(Cause.PAGE_STOP)

    def obey_second_ctrl_c(self) -> None:
        """Set the robot's emergency stop, if it has one, after a second Ctrl-C."""
        if self.signals.seen.count(signal.SIGINT) < 2 or self._is_stopped_for_good:
            return
        self._is_stopped_for_good = True
        if self.life.body.emergency_stop("Ctrl-C was pressed twice"):
            self._say("the emergency stop is set; clear it by `horde-robot stop --clear`")

    def _announce_writing(self) -> None:
        self._say("the robot is stopped; writing the tables; press Ctrl-C again to skip that")

    def _say(self, words: str) -> None:
        self.console.print(words, highlight=False, soft_wrap=True)


def live(job: Job) -> dict[str, Any]:
    """Run the robot, learn, test, and write the tables; return the summary.

    Raises:
        Unwritten: If the tables could not be written; its cause is the exception that ended the run early, if any.
        BaseException: The exception that ended the run early, after the tables were written.
    """
    run, life, sampler = job.run, job.life, job.sampler
    assert run.config.steps is not None
    life.recorder = job.recorder
    progress = Progress(run.config.steps, run.interface.period_s, job.console)
    progress.watch, progress.steps = run.watch, run.interface.steps
    life.observers += [progress, job.feed, job.snapshot_writer]
    progress.start()
    job.snapshot_writer.start()
    began = time.perf_counter()
    fault = _run_life(job, max(run.config.steps - life.steps, 0))  # a reset may have taken steps
    wall_s = time.perf_counter() - began + job.snapshot_writer.lived_before_s
    progress.stop()
    if job.recorder.differs_at is not None:
        _log.warning(_DIFFERS, job.recorder.differs_at)
    run.end = _end_of(job, fault)
    ended = {"step": life.steps, "event": "ended", "row": job.recorder.n_rows}
    run.folder.log_event({**ended, "why": run.end.why, "cause": run.end.cause.code})
    try:
        summary = _write_life(job, wall_s, sampler)
    except (OSError, Ended) as error:
        raise Unwritten(error) from fault or error
    except Exception as error:
        if fault is None:
            raise
        raise fault from error  # the fault may have left the learner in an inconsistent state
    if fault is not None:
        raise fault
    return summary


def _run_life(job: Job, steps: int) -> BaseException | None:
    """Run the life, stop the robot, close the recording; return the exception that ended the run, or None.

    In this order, because learning from the last observation may take seconds while the robot moves.
    """
    fault: BaseException | None = None
    try:
        try:
            job.life.run(steps)
        finally:
            job.stop_body()
    except BaseException as error:
        fault = error
        job.stop_body()  # again: a signal may have interrupted its first statement
    for end in (job.snapshot_writer.finish, lambda: job.feed.close(job.life), job.life.close):
        try:
            end()
        except BaseException as error:
            fault = fault or error
    return fault


def _end_of(job: Job, fault: BaseException | None) -> End:
    """Return what ended a run: its last step, the first request, an exception, or the battery."""
    life = job.life
    if fault is None and life.steps >= (job.run.config.steps or 0):
        return End.of(Cause.STEPS)
    if job.stopped_by is not None:
        return End.of(job.stopped_by)
    if fault is not None:
        return End.of_fault(fault)
    return End.of(Cause.BATTERY_LOW if life.is_out_of_battery else Cause.UNKNOWN)


def _write_life(job: Job, wall_s: float, sampler: Sampler) -> dict[str, Any]:
    """Write the tables of a run and return its summary."""
    life, student = job.life, job.life.student
    student.catch_up()
    facts = {
        **results.time_summary(life.steps, job.run.interface.period_s, wall_s, student.learn_s, life.cycle_s),
        "deadlines_missed": life.deadlines_missed,
        "gaps": life.gaps,
        "crc_errors": life.crc_errors,
        "link_losses": life.link_losses,
        "s_without_link": life.s_without_link,
    }
    counts = {
        "n_clipped": life.n_clipped,
        "sensor_age_ms": life.sensor_age_s.summary_ms(),
        "overrun_ms": life.overrun_s.summary_ms(),
        "n_not_applied": life.n_not_applied,
        "n_dockings": life.dockings.n_done,
        "n_dockings_failed": life.dockings.n_failed,
    }
    return write_life(job.run, student, sampler.samples, facts, counts, has_tests=bool(life.excursions.policies))


def learn_from_log(job: Job) -> dict[str, Any]:
    """Learn from the first part of a log, score on the rest, and write the tables; return the summary.

    Raises:
        BadInput: If the log is too short.
        Unwritten: If the tables could not be written.
    """
    run = job.run
    job.feed.close()  # the live page does not show a replay
    began = time.perf_counter()
    try:
        with job.recorder as recorder:
            n_gaps = holdout.read_log(job.env, recorder, run.config.steps)
    finally:
        job.env.close()
    stream = read(run.folder.life)
    student, score, passes = read_again(run, stream, job.console, lambda: job.is_stopped)
    job.stop_body()
    is_whole = run.config.steps is None or stream.n_steps < run.config.steps
    run.end = End.of(job.stopped_by or (Cause.LOG_END if is_whole else Cause.STEPS))
    wall_s = time.perf_counter() - began
    facts = results.time_summary(stream.n_steps, run.interface.period_s, wall_s, student.learn_s, Durations())
    try:
        return write_reading(run, student, score, passes, facts | NOT_TIMED | {"gaps": n_gaps})
    except (OSError, Ended) as error:
        raise Unwritten(error) from error


class _Stopped(Exception):
    """The replay was asked to stop."""


def read_again(
    run: Run, stream: Stream, console: Console, is_stopped: Callable[[], bool]
) -> tuple[Student, holdout.Holdout, float]:
    """Learn from the first part of a recorded log and score on the rest; return student, score and number of passes.

    Args:
        run: With the Horde.
        stream: The log.
        console: For progress.
        is_stopped: Whether to stop; the demons are then scored as they are.

    Raises:
        BadInput: If the log is too short.
    """
    if len(stream) < holdout.LEAST_ROWS:
        raise BadInput(
            f"a log of {max(len(stream) - 1, 0)} steps is too short to learn from and to score; "
            f"{holdout.LEAST_ROWS - 1} are needed"
        )
    student, n_rows = Student(run.horde, run.interface), 0
    progress = Progress(None, run.interface.period_s, console)
    progress.watch = run.watch

    def observe(student: Student, step: int) -> None:
        nonlocal n_rows
        n_rows += 1
        run.watch.update(student, step)
        if progress.is_due(run.horde):
            progress.show(student.learning_steps, run.horde)
        if is_stopped():
            raise _Stopped

    progress.start()
    try:
        score = holdout.learn_and_score(stream, student, passes=run.config.passes, observer=observe)
    except _Stopped:
        score = holdout.learn_and_score(stream, student, passes=0)
    finally:
        progress.stop()
    return student, score, n_rows / round(holdout.LEARNED_SHARE * len(stream))


def try_port(env: gymnasium.Env[Any, Any], config: LearnConfig) -> None:
    """Open and close a robot's port without driving, to report errors before compiling.

    It is not kept open, because compiling would delay its commands.
    """
    if config.backend in ONE_AT_A_TIME:
        env.reset(options={"manoeuvre": "stay"})
        env.close()
