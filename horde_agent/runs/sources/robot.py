"""A robot that acts, learns and is recorded."""

from __future__ import annotations

import logging
import re
from collections.abc import Sequence
from typing import Any

import gymnasium
import numpy as np

from horde_agent.life.behaviours import behaviour_of
from horde_agent.life.life import Life
from horde_agent.life.observers import Progress
from horde_agent.life.status import LiveStatusWriter
from horde_agent.record import Flag, Recorder, snapshots
from horde_agent.refusals import BadInput
from horde_agent.runs.config import LearnConfig
from horde_agent.runs.exit_reason import ExitCause, ExitReason
from horde_agent.runs.session import Source
from horde_agent.runs.sources.row_source import replay_rows
from horde_agent.runs.storage.events import ClockEvents, Events
from horde_agent.runs.storage.files import unwritable
from horde_agent.runs.storage.one_place import began_event
from horde_agent.runs.storage.question_changes import QuestionChange, RequestedChanges
from horde_agent.runs.storage.resume import (
    NEW,
    Resumption,
    change_questions,
    check_excursions,
)
from horde_agent.runs.storage.row_learner import load_state
from horde_agent.runs.storage.run import (
    Run,
    new_life,
    new_recorder,
    record_header,
)
from horde_agent.runs.storage.snapshot_writer import SnapshotWriter
from horde_agent.runs.storage.stop_request import PAGE_REASON, StopListener
from horde_agent.runs.storage.tables import NOT_RECORDED, SessionOutcome

_DIFFERS = (
    "the observation at step %d differs from the one recorded before the run was resumed: from that step on, the "
    "recording contains the new observations"
)
_NOT_CHANGED = (
    "the questions were not changed: the run ended at step %d, before the recorded steps were all repeated; resume it "
    "again with the same --add and --remove and more --steps"
)
REST_S = 1.5  # within which a stopped robot stands
_OF_WORLD = re.compile(r"life/(robot\d+/)?world/")  # state of a robot's body, in a snapshot
_OF_RESUMES = 2  # in the seeds of random numbers after a resume; 1 is in those of random policies
_log = logging.getLogger(__name__)


class RobotSource(Source):
    """A robot, or several that take turns, which act while the run learns.

    Args:
        run: The run.
        envs: The environments of the robots.
        resumed: Where the run starts.
        requested: Questions to add and remove when it continues.

    Raises:
        BadInput: If it cannot be recorded, or the snapshot does not fit the robot.
    """

    def __init__(
        self,
        run: Run,
        envs: Sequence[gymnasium.Env[Any, Any]],
        resumed: Resumption = NEW,
        requested: RequestedChanges | None = None,
    ) -> None:
        config = run.config
        interface = run.interface
        self.envs = envs
        self.env = envs[0]
        self._resumed = resumed
        self.life, self.sampler = new_life(envs, run)
        if config.excursions and not self.life.excursions.policies:
            raise BadInput(
                "--excursions has no policy to follow: all questions are about the behaviour or have tested = false; "
                "ask about other policies (--questions excursions), or omit it"
            )
        if not resumed.number:
            _refuse_lone_probability(self.life, config)
        super().__init__(run, self.life.student, config.steps)
        self._requested = requested
        self._is_redone = resumed.number > 0 and self.life.body.is_restorable
        if self.alarms is not None:
            self.life.observers.append(self.alarms)
        if resumed.number:
            self.recorder = self._continued_recorder()
        else:
            has_tests = bool(self.life.excursions.policies)
            self.recorder = new_recorder(run, self.env, has_tests=has_tests)
            self.student.errors.table.record_to(run.folder.excursions)
        self.life.observers.append(Events(run.folder.events, self.recorder))
        self._clock_events = ClockEvents(run.folder.events, self.recorder)
        self.life.observers.append(self._clock_events)
        self.snapshot_writer = SnapshotWriter(run, self.sampler, resumed, self.recorder)
        self.snapshot_writer.clock_state = self._clock_events.reading
        if requested is not None:
            self.snapshot_writer.pending = self._change
        elif self.recorder.is_changed:  # a later resume then need not learn from rows of two bodies
            self.snapshot_writer.pending = list
        picture = self.life.body.metadata.get("picture")
        self.live_status = LiveStatusWriter(
            run.folder.path,
            interface,
            run.horde,
            picture=picture,
            total=config.steps,
            time_name=run.time_name,
        )
        self.stop_listener = StopListener(run.folder, self._stop_for_the_page)
        # Requested on the page, of a robot that only the main thread may stop
        self._is_stop_due = False
        self._is_at_rest = True  # after a stop that was requested on the page
        self._is_closed = False

    def _continued_recorder(self) -> Recorder:
        """Return the recorder of a resumed run; nothing is written."""
        folder = self.run.folder
        life = self.life
        resumed = self._resumed
        check_excursions(folder, resumed)
        try:
            body = None
            if self.env.metadata.get("arranged"):
                body = record_header(self.env, self.run.interface)
            change_questions(life, self.run.interface, folder, resumed.changes)
            self._question_change = QuestionChange(
                self.run, self._requested, self.env.metadata.get("lost_actions", ())
            )
            recorder = Recorder.resume(
                folder.life, resumed.n_rows, is_redone=self._is_redone, body=body
            )
            life.student.errors.table.resume_in(folder.excursions)
        except BadInput:
            raise
        except ValueError as error:
            raise BadInput(
                f"{folder.path} cannot be resumed: {error}; run `horde doctor {folder.path}`"
            ) from None
        except OSError as error:
            raise BadInput(unwritable(folder.path, error)) from None
        return recorder

    def open(self) -> None:
        """Restore a resumed run; reset the robot, which may drive."""
        self.stop_listener.open(self.life.body.stop_options)
        if not self._resumed.number:
            self.run.folder.events.append(began_event())
            self.life.begin()
            return
        event = self._restore()
        self.life.begin()
        self.run.folder.events.append(event, is_needed=True)
        rows_since = self.recorder.since.rows
        self._clock_events.compare_with(self._resumed.clocks, rows_since, self._resumed.step)
        self.recorder.open_last()
        if not self._is_redone:
            # They follow rows that were lost, and the robot takes these steps otherwise
            snapshots.remove_after(self.run.folder.checkpoint, self._resumed.step)

    def _restore(self) -> dict[str, Any]:
        """Restore the life from the snapshot; if the robot kept moving, learn from the rows recorded after it.

        Return the event of the resume. A robot that kept moving gets random numbers of the seed and
        the number of the resume: those of the snapshot would repeat what is in the record.
        """
        life = self.life
        resumed = self._resumed
        state = resumed.state
        is_redone = self._is_redone
        try:
            restorable = state
            if not life.body.is_restorable:
                restorable = {k: v for k, v in state.items() if not _OF_WORLD.match(k)}
            has_further_features = load_state(
                life, self.run, self.sampler, resumed._replace(state=restorable)
            )
        except ValueError as error:
            raise BadInput(f"{self.run.folder.path} cannot be resumed: {error}") from None
        rows_since = self.recorder.since
        if has_further_features:
            rows_since.rows["flags"][:1] |= np.uint8(Flag.GAP)
        if not is_redone:
            position = replay_rows(life, [rows_since], self.sampler)
            if position is not None:
                life.set_position(position, float(np.fmax.reduce(rows_since.rows["t"])))
            if state or len(rows_since):
                seeds = [self.run.config.seed + robot for robot in range(len(self.envs))]
                life.draw_from(
                    [np.random.default_rng([seed, _OF_RESUMES, resumed.number]) for seed in seeds]
                )
        state.clear()  # it may be mapped from files that are deleted after newer snapshots
        for note in resumed.notes:
            self.session.say(note)
        verb = "learned from"
        if is_redone:
            verb = "replaying"
        self.session.say(
            f"resumed at step {resumed.step:,}; {verb} {len(rows_since):,} recorded rows"
        )
        event = {
            "step": resumed.step,
            "event": "resumed",
            "row": resumed.n_rows,
            "redone": len(rows_since),
        }
        return {**event, "number": resumed.number, "exact": is_redone}

    def _change(self) -> list[dict[str, Any]]:
        """Add and remove the requested questions, which were checked; return the changes, as in snapshots."""
        self.recorder.flush()
        return self._question_change.apply(
            self.life,
            step=self.life.steps,
            n_rows=self.recorder.n_rows,
            n_before=len(self.snapshot_writer.changes),
        )

    def learn(self, progress: Progress) -> None:
        """Act and learn until the last step, a request to stop or a fault."""
        self.life.recorder = self.recorder
        self.life.observers += [progress, self.live_status, self.snapshot_writer]
        self.snapshot_writer.start()
        assert self.total is not None
        self.life.run(max(self.total - self.life.steps, 0))  # a reset may have taken steps

    def stop(self) -> None:
        """End the life after the current step."""
        self.life.stop()

    def emergency_stop(self, reason: str) -> str:
        """Set the robot's emergency stop; return a sentence that says how to clear it, "" if the robot has none."""
        if not self.life.body.emergency_stop(reason):
            return ""
        robot = self.life.body.stop_options.get("robot")
        if robot is None:
            return "the emergency stop is set; the robot's own program clears it"
        return f"the emergency stop of {robot} is set; clear it by `horde-robot stop --clear --robot {robot}`"

    def _stop_for_the_page(self) -> str:
        """Stop the robot at once and end the life, in the thread of the stop listener; return a sentence."""
        # Before the stop ends the life by itself
        self.session.stopped_by = self.session.stopped_by or ExitCause.PAGE_STOP
        sentence = ""
        try:
            if self.life.body.stop_options:
                sentence = self.emergency_stop(PAGE_REASON)
            else:
                self._is_stop_due = True
        except Exception as error:  # of the latch: the robot is stopped all the same
            _log.warning("the emergency stop requested on the live page failed (%s)", error)
            sentence = str(error)
        try:
            self._is_at_rest = not self.life.body.stop_options or self.life.body.wait_for_rest(
                REST_S
            )
        finally:
            self.session.stop(ExitCause.PAGE_STOP)
        return sentence

    def close(self) -> None:
        """Stop and close the robot. Closing twice does nothing."""
        if self._is_closed:
            return
        self._is_closed = True
        is_stopped = False
        try:
            if self._is_stop_due:
                self.emergency_stop(PAGE_REASON)
        finally:
            try:
                for env in self.envs:
                    env.close()
                is_stopped = True
            finally:
                self.stop_listener.close(is_stopped=is_stopped and self._is_at_rest)

    def abandon(self) -> None:
        """Close everything; the run does not start."""
        super().abandon()
        self.life.close()
        self.live_status.close()
        self.recorder.close()

    def finish(self, fault: BaseException | None) -> SessionOutcome:
        """Write the last snapshot and close the recording, after the robot was stopped; tables follow any fault."""
        life = self.life
        for end in (self.snapshot_writer.finish, lambda: self.live_status.close(life), life.close):
            try:
                end()
            except BaseException as error:
                fault = fault or error
        if self.recorder.differs_at is not None:
            _log.warning(_DIFFERS, self.recorder.differs_at)
        if self.snapshot_writer.pending is not None:
            _log.warning(_NOT_CHANGED, life.steps)
        ended = self._ended(fault)
        event = {"step": life.steps, "event": "ended", "row": self.recorder.n_rows}
        self.run.folder.events.append({**event, "why": ended.why, "cause": ended.cause.code})
        robot = {name: getattr(life.counts, name) for name in ("gaps", *NOT_RECORDED)}
        details: dict[str, Any] = {
            "n_clipped": life.counts.n_clipped,
            "sensor_age_ms": life.counts.sensor_age_s.summary_ms(),
            "overrun_ms": life.counts.overrun_s.summary_ms(),
            "n_not_applied": life.counts.n_not_applied,
            "n_not_finite": life.counts.n_not_finite,
            "missing": [one._asdict() for one in life.student.missing_readings()],
            "n_dockings": life.dockings.n_done,
            "n_dockings_failed": life.dockings.n_failed,
        }
        if len(life.robots) > 1:
            details["steps_of_robots"] = life.steps_of.tolist()
        policies = [robot.behaviour for robot in life.robots]
        details |= behaviour_of(self.run.config.behaviour).details(policies)
        return SessionOutcome(
            steps=life.steps,
            end=ended,
            robot=robot,
            details=details,
            fault=fault,
            samples=self.sampler.samples,
            cycle_s=life.cycle_s,
            lived_before_s=self.snapshot_writer.lived_before_s,
            has_tests=bool(life.excursions.policies),
        )

    def _ended(self, fault: BaseException | None) -> ExitReason:
        """Return what ended the run: its last step, the first request, an exception, or the battery."""
        if fault is None and self.life.steps >= (self.total or 0):
            return ExitReason.of(ExitCause.STEPS)
        if self.session.stopped_by is not None:
            return ExitReason.of(self.session.stopped_by)
        if fault is not None:
            return ExitReason.of_fault(fault)
        return ExitReason.of(
            ExitCause.BATTERY_LOW if self.life.is_out_of_battery else ExitCause.UNKNOWN
        )


def _refuse_lone_probability(life: Life, config: LearnConfig) -> None:
    """Raise BadInput if a probability of excursions was given, and the life makes none."""
    probability = config.excursion_probability
    if life.excursions.policies or probability in (0.0, LearnConfig.excursion_probability):
        return
    why = "all questions are about the behaviour or have tested = false: ask others"
    if not life.body.can_drive:
        why = f"{config.env} makes them only with --excursions: add that"
    raise BadInput(
        f"--excursion-probability {probability:g}: no test excursion would be made, because {why}, or omit it"
    )
