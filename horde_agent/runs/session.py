"""A session: a run learns from its source, and writes its tables.

Sources are a robot, the recorded rows of another run, a data set, or a log without actions
(`runs.sources`). When a session ends, for any reason, the robot is stopped and closed first; then
the tables are written.
"""

from __future__ import annotations

import signal
import time
from abc import ABC, abstractmethod
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from rich.console import Console

from horde_agent.life.learner import StreamLearner
from horde_agent.life.lost_sensors import LOST, LostSensors, SensorEvent
from horde_agent.life.observers import Progress
from horde_agent.processes import map_large_arrays
from horde_agent.refusals import BadInput
from horde_agent.runs.exit_reason import Ended, ExitCause, ExitReason, SignalHandler, signal_text
from horde_agent.runs.storage.events import AlarmCommand, Alarms, Announcer, SaidEvent
from horde_agent.runs.storage.run import Run
from horde_agent.runs.storage.tables import SessionOutcome, write_tables
from horde_agent.runs.warm import warm_up
from horde_agent.scoring.surprise import SurpriseEvent, steps_needed


class Unwritten(Exception):
    """The tables were not written, but the log was; `why` is the error or signal that ended writing."""

    def __init__(self, why: OSError | Ended) -> None:
        self.why = why
        reason = "writing was interrupted"
        if isinstance(why, OSError):
            reason = f"{why.filename} cannot be written ({why.strerror})"
        super().__init__(f"The tables were not written: {reason}.")


class Source(ABC):
    """What a run learns from. A session opens it, lets it learn to its end, and closes it.

    Attributes:
        run: The run that learns.
        student: Where it learns.
        total: Number of steps, for the progress; None if it is unknown.
        alarms: Raises alarms; None without a command for them.
        session: The session, from its construction on.
    """

    session: Session

    def __init__(self, run: Run, student: StreamLearner, total: int | None = None) -> None:
        self.run = run
        self.student = student
        self.total = total
        config = run.config
        interface = run.interface
        self._alarm_command: AlarmCommand | None = None
        self.alarms: Alarms | None = None
        if config.on_alarm is not None:
            self._alarm_command = AlarmCommand(config.on_alarm)
            self.alarms = Alarms(
                self._alarm_command, run.folder.path, interface.names, interface.period_s
            )
        self._announcer: Announcer | None = None
        # Events of rows that a resume learns from before there is a session
        self._early: list[tuple[SaidEvent, str | None]] | None = []
        student.lost_sensors = LostSensors(interface, config.lost_after, self._record_sensor)
        self._watch()

    def _watch(self) -> None:
        """Watch for surprises, if the settings say so."""
        config = self.run.config
        if config.surprise is None:
            return
        n_needed = steps_needed(self.run.interface.period_s)
        if self.total is not None and self.total < n_needed:
            raise BadInput(
                f"--surprise {config.surprise} needs {n_needed:,} steps to learn from before its first test, and there "
                f"are {self.total:,}: {n_needed - self.total:,} more are needed"
            )
        surprise = self.student.watch(config.surprise, config.seed)
        surprise.on_event = self._record_surprise

    def _record_surprise(self, event: SurpriseEvent) -> None:
        alarm: str | None = None
        if event.is_alarm:
            alarm = "surprise"
        self._announce(event, alarm)

    def _record_sensor(self, event: SensorEvent) -> None:
        alarm: str | None = None
        if event.name == LOST:
            alarm = LOST
        self._announce(event, alarm)

    def _announce(self, event: SaidEvent, alarm: str | None) -> None:
        """Record an event, say it and raise an alarm of this name; not while tables are made again."""
        if self._early is not None:
            self._early.append((event, alarm))
            return
        if self.session.is_rebuilding:
            return
        if self._announcer is None:
            folder = self.run.folder
            self._announcer = Announcer(folder.events, self.session.say, self._alarm_command)
        self._announcer.add(event, alarm)

    def attach(self, session: Session) -> None:
        """Set the session, and announce events that were found before."""
        self.session = session
        early = self._early or []
        self._early = None
        for event, alarm in early:
            self._announce(event, alarm)

    def open(self) -> None:  # noqa: B027  most have nothing to open
        """Open the source; a robot may drive."""

    @abstractmethod
    def learn(self, progress: Progress) -> None:
        """Pass the whole stream to the student, and show the progress."""

    def stop(self) -> None:  # noqa: B027
        """End after the current step; safe in a signal handler. `Session.stopped_by` is set by then."""

    def close(self) -> None:  # noqa: B027
        """Stop and close the robot. Closing twice does nothing."""

    def abandon(self) -> None:
        """Close everything; the run does not start."""
        self.close()

    @abstractmethod
    def finish(self, fault: BaseException | None) -> SessionOutcome:
        """Finish the files and return what the tables need; raise the fault of `learn` if there can be none."""

    def emergency_stop(self, reason: str) -> str:  # noqa: ARG002
        """Set the robot's emergency stop; return a sentence that says how to clear it, "" if the robot has none."""
        return ""


class Session:
    """A run learns from a source, and its tables are written.

    Args:
        source: What it learns from, and the run that learns.
        console: Where messages are printed.
        signals: Handles the signals of the command; None leaves them alone.
        missing: Tables that are made again from the log, in which there are no durations; None to
            write all.

    Attributes:
        stopped_by: The first request to stop.
    """

    def __init__(
        self,
        source: Source,
        console: Console,
        signals: SignalHandler | None = None,
        *,
        missing: Sequence[Path] | None = None,
    ) -> None:
        self.run = source.run
        self.source = source
        self.console = console
        self.signals = signals or SignalHandler()
        self._missing = missing
        self.stopped_by: ExitCause | None = None
        self._compile_s = 0.0
        self._is_stopped_for_good = False
        source.attach(self)

    @property
    def is_rebuilding(self) -> bool:
        """Whether it makes tables again from the log."""
        return self._missing is not None

    def begin(self) -> None:
        """Compile, then open the source.

        In this order, because a robot may drive in its first reset and compiling would delay its
        commands. A signal until then ends the command before that reset, a signal during that drive
        requests the end of the run. If it fails, everything is closed.
        """
        map_large_arrays(self.run.horde.n_demons)
        try:
            self._compile_s = warm_up(self.run.horde, self.run.interface, self.run.config.robots)
            self.signals.call_at_first(
                lambda: self.stop(ExitCause.of_signal(self.signals.seen[-1]))
            )
            self.signals.raise_seen()
            self.source.open()
        except BaseException:
            self.abandon()
            raise

    def abandon(self) -> None:
        """Close everything, the recording too; the run does not start."""
        try:
            self.source.abandon()
        finally:
            self.run.close()

    def learn(self) -> dict[str, Any]:
        """Learn from the source to its end, and write the tables; return the summary.

        Raises:
            BadInput: If the source is too short or damaged.
            Unwritten: If the tables could not be written; its cause is the exception that ended the
                run early, if any.
            BaseException: The exception that ended the run early, after the tables were written.
        """
        progress = Progress(self.source.total, self.run.interface.period_s, self.console)
        progress.time_name = self.run.time_name
        progress.watch = self.run.watch
        progress.steps = self.run.interface.steps
        progress.start()
        began = time.perf_counter()
        fault = None
        # The robot is stopped at once: learning from the last observation may take seconds while it
        # moves.
        try:
            try:
                self.source.learn(progress)
            finally:
                self.close_robot()
        except BaseException as error:
            fault = error
            self.close_robot()  # again: a signal may have interrupted its first statement
        progress.stop()
        outcome = self.source.finish(fault)
        fault = outcome.fault
        is_rebuilt = self.is_rebuilding
        wall_s: float | None = time.perf_counter() - began + outcome.lived_before_s
        compile_s: float | None = self._compile_s
        if is_rebuilt:
            wall_s = compile_s = None
        facts = {"compile_s": compile_s, "unfinished": is_rebuilt}
        outcome = outcome._replace(details={**facts, **outcome.details})
        try:
            summary = write_tables(
                self.run, self.source.student, outcome, wall_s, only=self._missing
            )
        except (OSError, Ended) as error:
            raise Unwritten(error) from fault or error
        except Exception as error:
            if fault is None:
                raise
            raise fault from error  # the fault may have left the learner in an inconsistent state
        if fault is not None:
            raise fault
        return summary

    def end_of_rows(self, reached: int) -> ExitReason:
        """Return what ended a run that has learned from recorded rows up to step `reached`."""
        steps = self.run.config.steps
        if self._missing is not None:
            cause = ExitCause.CUT_OFF
        elif self.stopped_by is not None:
            cause = self.stopped_by
        elif steps is None or reached < steps:
            cause = ExitCause.LOG_END
        else:
            cause = ExitCause.STEPS
        return ExitReason.of(cause)

    def close_robot(self) -> None:
        """Stop and close the robot, deferring signals; only file writing remains. Idempotent."""
        self.signals.record_only()
        self._stop_at_second_ctrl_c()
        self.source.close()
        self.signals.call_at_first(self._say_that_tables_follow)

    def _say_that_tables_follow(self) -> None:
        number = self.signals.seen[-1]
        if number == signal.SIGINT:
            self.say("the robot is stopped; writing the tables; press Ctrl-C again to skip that")
        else:
            self.say(
                f"{signal_text(number)}: the robot is stopped; writing the tables; a further signal skips that"
            )

    def close(self) -> None:
        """Stop and close the robot, and end the shards, if there are any."""
        try:
            self.close_robot()
            self._stop_at_second_ctrl_c()
        finally:
            self.run.close()

    def _stop_at_second_ctrl_c(self) -> None:
        """Set the robot's emergency stop, if it has one, after a second Ctrl-C."""
        if self.signals.seen.count(signal.SIGINT) < 2 or self._is_stopped_for_good:
            return
        self._is_stopped_for_good = True
        sentence = self.source.emergency_stop("Ctrl-C was pressed twice")
        if sentence:
            self.say(sentence)

    def stop(self, cause: ExitCause) -> None:
        """Request an orderly end; safe in a signal handler. The cause is recorded unless an earlier request has one."""
        self.stopped_by = self.stopped_by or cause
        number = getattr(signal, cause.name, None)
        if number is None or number == signal.SIGINT:
            self.say("stopping after this step; press Ctrl-C again to abort")
        else:
            self.say(f"{signal_text(number)}: stopping after this step; a second signal aborts it")
        self.source.stop()

    def say(self, words: str) -> None:
        """Print a message."""
        self.console.print(words, highlight=False, soft_wrap=True)
