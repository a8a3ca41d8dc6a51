"""The main jobs: a life, or the reading of a log, from the first observation to the files of the run folder.

Whatever ends a life, the body is stopped and let go of first; then what was learned is written.
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
from horde_agent.record.segments import begun, read_header
from horde_agent.runs import holdout, results
from horde_agent.runs.alarms import Alarms
from horde_agent.runs.config import BadInput, LearnConfig, seconds
from horde_agent.runs.ending import Cause, End, Ended, Signals
from horde_agent.runs.events import Events
from horde_agent.runs.keeping import Keeper
from horde_agent.runs.resuming import (
    Resumption,
    change,
    learn_from_record,
    new_changes,
    redo,
    refuse_other_ranges,
)
from horde_agent.runs.run import Run, described
from horde_agent.runs.run_folder import unwritable
from horde_agent.runs.tables import write_life, write_reading
from horde_agent.runs.warm import CompileNotice, warm_up
from horde_agent.saving import inner

_TABLES_BYTES = 2_000_000  # tables, report and pictures, about


_DIFFERS = (
    "what was sensed at step %d differs from what was recorded there before the life was resumed: the record goes on "
    "from that step with what was sensed now"
)
_log = logging.getLogger(__name__)

NOT_TIMED: dict[str, Any] = dict.fromkeys(("deadlines_missed", "crc_errors", "link_losses", "s_without_link"))
"""What a record cannot tell of its body."""


class Unwritten(Exception):
    """What was learned was not written, but its log was; the message says why, in a sentence.

    Attributes:
        why: What the writing ended with.
    """

    def __init__(self, why: OSError | Ended) -> None:
        self.why = why
        reason = "somebody broke that off"
        if isinstance(why, OSError):
            reason = f"{why.filename} cannot be written ({why.strerror})"
        super().__init__(f"What was learned is not written: {reason}.")


class Job:
    """What `horde learn` has built and checked before anything is lived.

    Args:
        run: What learns, and the folder for the results.
        env: The robot.
        console: Where progress is shown.
        signals: What to do when somebody asks for the end.
        notice: Prints that kernels are being compiled.

    Attributes:
        life: The life to be lived; it has its own generator, so that one seed is one life.
        recorder: Of the run's stream.
        stopped_by: The first request to end; None while there is none.
    """

    def __init__(
        self,
        run: Run,
        env: gymnasium.Env[Any, Any],
        console: Console,
        signals: Signals,
        notice: CompileNotice,
        resumed: Resumption | None = None,
    ) -> None:
        self.run, self.env, self.console, self.signals, self._notice = run, env, console, signals, notice
        self._resumed = resumed
        config, interface = run.config, run.interface
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
        self.keeper = Keeper(run, self.recorder, self.sampler, every_s, changes, lived_s)
        self.feed = self._feed()

    def _recorder(self) -> Recorder:
        """Open the record of the stream, its header describing the body, in a folder with room for it.

        Raises:
            BadInput: If there is no room.
        """
        config, interface, folder = self.run.config, self.run.interface, self.run.folder
        needed = _TABLES_BYTES + (config.steps or 0) * row_dtype(len(interface.channels)).itemsize
        if (free := shutil.disk_usage(folder.path).free) < needed:
            raise BadInput(
                f"--out {folder.path} has room for {free / 1e6:.1f} MB, and this run needs {needed / 1e6:.1f}; name a "
                "folder elsewhere, or fewer --steps"
            )
        facts = described(self.env, interface) | {"tests_excursions": bool(self.life.excursions.policies)}
        try:
            recorder = Recorder(len(interface.channels), folder.life, facts)
            self.life.student.errors.record_to(folder.excursions)
        except OSError as error:
            raise BadInput(unwritable(folder.path, error)) from None
        return recorder

    def _known_recorder(self, resumed: Resumption) -> Recorder:
        """Open the record of a life that goes on, and let the questions be those that there were.

        Raises:
            BadInput: If the record is damaged where it is needed, or cannot be written.
        """
        folder, life = self.run.folder, self.life
        change(life, self.run.interface, folder, resumed.changes)
        try:
            recorded = read_header(begun(folder.life)[0], FORMAT)
            refuse_other_ranges(folder, recorded, described(self.env, self.run.interface))
            recorder = Recorder.resume(folder.life, resumed.n_rows, is_redone=life.body.is_restorable)
            life.student.errors.table.resume_in(folder.excursions)
        except BadInput:
            raise
        except ValueError as error:
            raise BadInput(
                f"{folder.path} cannot be resumed: {error}; `horde doctor {folder.path}` tells more"
            ) from None
        except OSError as error:
            raise BadInput(unwritable(folder.path, error)) from None
        return recorder

    def _restore(self, resumed: Resumption) -> None:
        """Bring the life to where it was, and learn what a robot did since."""
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
            redo(life, [since], outside_drives(self.sampler.update, life.student))
        state.clear()  # it may lie in files, which are to go when newer ones come
        for note in resumed.notes:
            self._say(note)
        what = "lived once more" if life.body.is_restorable else "learned from again"
        self._say(f"resumed from step {resumed.step:,}; {len(since):,} recorded rows since are {what}")
        self.run.folder.note({"step": resumed.step, "event": "resumed", "row": resumed.n_rows, "redone": len(since)})

    def _feed(self) -> Feed:
        """Open what the live page reads."""
        run, picture = self.run, self.life.body.metadata.get("picture")
        stop, total = self._stop_for_the_page, self.run.config.steps
        return Feed(run.folder.path, run.interface, run.horde, picture=picture, total=total, ask_to_stop=stop)

    def begin(self) -> None:
        """Compile, then bring the body to its first observation: a body that cannot be opened shows now.

        In this order, since a robot may drive in its first reset, and compiling would keep it waiting for a command. A
        signal that comes while it drives asks it to end.
        """
        with self._notice.installed():
            self.run.compile_s = warm_up(self.run.horde, self.run.interface)
        self.signals.ask_first(self._stop_for_signal)
        if self.run.config.backend == "replay":
            self.env.reset()
            return
        if self._resumed is not None:
            self._restore(self._resumed)
        else:
            self.run.folder.note({"step": 0, "event": "began", "row": 0})
        self.life.begin()

    def change(self, add: Path | None, remove: str | None, *, learns: bool) -> list[dict[str, Any]]:
        """Let questions come and go where the life stands now, and return which, as its snapshots tell of them.

        Args:
            add: File of further questions.
            remove: Shell pattern of names of those that go.
            learns: Let the further ones learn from the record so far: their theta, from nothing; w and traces begin.

        Raises:
            BadInput: If the file is wrong, or no question has such a name.
        """
        life, run, before = self.life, self.run, list(self.life.horde.names)
        asked = new_changes(run.folder, before, add, remove, len(self.keeper.changes))
        try:
            change(life, run.interface, run.folder, asked)
        except ValueError as error:
            raise BadInput(str(error)) from None
        for one in asked:
            run.folder.note({"step": life.steps, "event": "questions", "row": self.recorder.n_rows, **one})
        if learns and add is not None:
            self.recorder.flush()
            learn_from_record(life, run, set(life.horde.names) - set(before))
        return asked

    def abandon(self) -> None:
        """Let go of everything, for nothing is going to be lived."""
        self._body.close()
        self.life.close()
        self.feed.close()
        self.recorder.close()
        self.run.close()

    @property
    def is_stopped(self) -> bool:
        """True once the job was asked to end."""
        return self.stopped_by is not None

    def stop(self, cause: Cause) -> None:
        """Ask the job to end cleanly; safe to call from a signal handler.

        Args:
            cause: Who asks; recorded unless another request came first.
        """
        self.stopped_by = self.stopped_by or cause
        self.life.stop()
        self._say("stopping after this step; press Ctrl-C again to break off")

    def stop_body(self) -> None:
        """Stop the body and let go of it, whatever signals come meanwhile; from then on what goes on is writing.

        Doing it twice does nothing more.
        """
        self.signals.only_note()
        self.obey_second_ctrl_c()
        self._body.close()
        self.signals.ask_first(self._say_that_it_writes)

    def _stop_for_signal(self) -> None:
        self.stop(Cause.of_signal(self.signals.seen[-1]))

    def _stop_for_the_page(self) -> None:
        """Do what a person asked for on the live page: set the emergency stop, where the body has one, and end."""
        if not self.is_stopped:
            self.life.body.emergency_stop("asked on the live page")
            self.stop(Cause.PAGE_STOP)

    def obey_second_ctrl_c(self) -> None:
        """Set the emergency stop, where the body has one, if Ctrl-C was pressed twice."""
        if self.signals.seen.count(signal.SIGINT) < 2 or self._is_stopped_for_good:
            return
        self._is_stopped_for_good = True
        if self.life.body.emergency_stop("Ctrl-C was pressed twice"):
            self._say("the emergency stop is set; clear it by `horde-robot stop --clear`")

    def _say_that_it_writes(self) -> None:
        self._say("the body is let go of; writing what was learned; press Ctrl-C again to leave it unwritten")

    def _say(self, words: str) -> None:
        self.console.print(words, highlight=False, soft_wrap=True)


def live(job: Job) -> dict[str, Any]:
    """Live in the body, learn, test, and write the tables; return the summary.

    Raises:
        Unwritten: If the tables could not be written; from what ended the life, where it had not come to its end.
        BaseException: Whatever else ended the life before its time, after the tables were written.
    """
    run, life, sampler = job.run, job.life, job.sampler
    assert run.config.steps is not None
    life.recorder = job.recorder
    progress = Progress(run.config.steps, run.interface.period_s, job.console)
    progress.watch, progress.steps = run.watch, run.interface.steps
    life.observers += [progress, job.feed, job.keeper]
    progress.start()
    job.keeper.start()
    began = time.perf_counter()
    fault = _lived(job, max(run.config.steps - life.steps, 0))  # a robot has driven to the middle already
    wall_s = time.perf_counter() - began + job.keeper.lived_before_s
    progress.stop()
    if job.recorder.differs_at is not None:
        _log.warning(_DIFFERS, job.recorder.differs_at)
    run.end = _end_of(job, fault)
    told = {"why": run.end.why, "cause": run.end.cause.code}
    run.folder.note({"step": life.steps, "event": "ended", "row": job.recorder.n_rows, **told})
    try:
        summary = _write_life(job, wall_s, sampler)
    except (OSError, Ended) as error:
        raise Unwritten(error) from fault or error
    except Exception as error:
        if fault is None:
            raise
        raise fault from error  # which may have come between two states of what learns
    if fault is not None:
        raise fault
    return summary


def _lived(job: Job, steps: int) -> BaseException | None:
    """Live, then stop the body, then end the record; return what broke the life off, to be raised when all is written.

    In this order: what is learned from the last observation may take a while, and the body moves.
    """
    fault: BaseException | None = None
    try:
        try:
            job.life.run(steps)
        finally:
            job.stop_body()
    except BaseException as error:
        fault = error
        job.stop_body()  # again, for a signal that came before the first word of it
    for end in (job.keeper.finish, lambda: job.feed.close(job.life), job.life.close):
        try:
            end()
        except BaseException as error:
            fault = fault or error
    return fault


def _end_of(job: Job, fault: BaseException | None) -> End:
    """Return what ended a life: its steps, the first request, the fault, or its battery."""
    life = job.life
    if fault is None and life.steps >= (job.run.config.steps or 0):
        return End.of(Cause.STEPS)
    if job.stopped_by is not None:
        return End.of(job.stopped_by)
    if fault is not None:
        return End.of_fault(fault)
    return End.of(Cause.BATTERY_LOW if life.is_out_of_battery else Cause.UNKNOWN)


def _write_life(job: Job, wall_s: float, sampler: Sampler) -> dict[str, Any]:
    """Write the tables of a life and return its summary."""
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
    job.feed.close()  # a reading is no life
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


class _Enough(Exception):
    """Somebody asked a reading to end."""


def read_again(
    run: Run, stream: Stream, console: Console, is_stopped: Callable[[], bool]
) -> tuple[Student, holdout.Holdout, float]:
    """Learn from the first part of a recorded log and score on the rest; return the student, the score, the passes.

    Args:
        run: What learns.
        stream: The log.
        console: Where progress is shown.
        is_stopped: Whether somebody asked for the end: then what was learned by then is scored.

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
            raise _Enough

    progress.start()
    try:
        score = holdout.learn_and_score(stream, student, passes=run.config.passes, observer=observe)
    except _Enough:
        score = holdout.learn_and_score(stream, student, passes=0)
    finally:
        progress.stop()
    return student, score, n_rows / round(holdout.LEARNED_SHARE * len(stream))


def try_port(env: gymnasium.Env[Any, Any], config: LearnConfig) -> None:
    """Open and close a body behind a port, where it stands: what is refused there is told before all that takes time.

    It is not kept, since what comes next, compiling, would keep it waiting for commands.
    """
    if config.backend in ONE_AT_A_TIME:
        env.reset(options={"manoeuvre": "stay"})
        env.close()
