"""Sources of a run: a robot, recorded rows, or a log that is learned from in several passes.

Recorded rows are any iterable of consecutive `Stream`s that can be iterated again, such as `Recording`, or a table that
is read in chunks. Memory holds one of them at a time, so it does not grow with the length of a recording.
"""

from __future__ import annotations

import logging
import shutil
from abc import ABC, abstractmethod
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any, NamedTuple

import gymnasium
import numpy as np
from rich.console import Console

from horde_agent.horde import Horde
from horde_agent.life.excursions import ExcursionConfig
from horde_agent.life.feed import Feed
from horde_agent.life.life import Life
from horde_agent.life.observers import Progress, RowObserver, Sample, Sampler, outside_drives
from horde_agent.life.robots import Robots
from horde_agent.life.student import Student, relearn, rows_of
from horde_agent.life.timing import Durations
from horde_agent.measures.return_errors import ReturnErrors
from horde_agent.policies import BehaviourPolicy, EpsilonGreedy, Follow, StickyRandom
from horde_agent.record import DRIVES, Flag, Phase, Recorder, Stream, read_in_parts, row_dtype
from horde_agent.record.rows import FORMAT, read_end
from horde_agent.record.segments import read_header, started_files
from horde_agent.runs.config import LOG_PASSES, BadInput, seconds
from horde_agent.runs.data.behaviour import Rows
from horde_agent.runs.ending import Cause, End
from horde_agent.runs.jobs import holdout
from horde_agent.runs.keeping.events import Alarms, Events
from horde_agent.runs.keeping.folder import RunFolder, unwritable
from horde_agent.runs.keeping.resume import Resumption, change, new_changes, refuse_other_ranges
from horde_agent.runs.keeping.run import HeaderEnv, Run, record_header
from horde_agent.runs.keeping.snapshot_writer import SnapshotWriter
from horde_agent.saving import inner

_TABLES_BYTES = 2_000_000  # of tables, report and pictures, approximately
_STEPS = (Phase.BEHAVE, Phase.EXCURSION)
_ANY_DURATION = 1e12  # of a file in seconds: only its size is limited
_DIFFERS = (
    "the observation at step %d differs from the one recorded before the run was resumed: from that step on, the "
    "recording contains the new observations"
)
_ESTIMATED = (
    "b was estimated from {n_rows:,} actions: its log-loss on held-out rows is {log_loss:.4g}, that of the actions' "
    "frequencies {log_loss_of_frequencies:.4g}, at the temperature {temperature:.3g}. The effective sample size of rho "
    "is {size:,.0f} of {n_steps:,} steps in the mean. An estimated b biases rho = pi/b, and with it the predictions "
    "about other policies."
)
_log = logging.getLogger(__name__)

IMPORTED = "imported"
"""The event after the last row of a data set was written to the recording."""

NOT_RECORDED: dict[str, Any] = dict.fromkeys(("deadlines_missed", "crc_errors", "link_losses", "s_without_link"))
"""Values of the summary that a recording does not contain."""


class Outcome(NamedTuple):
    """Facts of a finished source for the tables, besides its student."""

    steps: int  # the last step
    end: End  # what ended the stream
    robot: Mapping[str, Any]  # the summary's gaps and faults of the robot
    details: Mapping[str, Any] = {}  # further facts for details.json
    fault: BaseException | None = None  # the exception to raise after the tables were written; None without one
    samples: Sequence[Sample] = ()  # of the MSPBE; empty for a log
    cycle_s: Durations = Durations()  # durations of the robot's cycles
    lived_before_s: float = 0.0  # duration of the run in earlier processes, in seconds
    has_tests: bool = False  # whether the environment supports test excursions
    score: holdout.Holdout | None = None  # on the held-out part of a log; None for a life
    passes: float = 0.0  # number of passes over the other part


class Source(ABC):
    """A stream that a student learns from.

    Attributes:
        total: Number of steps, for the progress; None if it is unknown.
        stopped_by: The first request to stop; None without one.
    """

    total: int | None = None

    def __init__(self, run: Run, student: Student, console: Console) -> None:
        self.run, self.student, self._console = run, student, console
        self.stopped_by: Cause | None = None

    def begin(self) -> None:  # noqa: B027  most have nothing to open
        """Open the stream, after the kernels were compiled."""

    @abstractmethod
    def learn(self, progress: Progress) -> None:
        """Pass the whole stream to the student, and show the progress."""

    def stop(self, cause: Cause) -> None:
        """Request an orderly end; safe in a signal handler. The cause is recorded unless an earlier request has one."""
        self.stopped_by = self.stopped_by or cause
        self.say("stopping after this step; press Ctrl-C again to abort")

    def emergency_stop(self, reason: str) -> bool:  # noqa: ARG002
        """Set the robot's emergency stop; return whether it has one."""
        return False

    def close(self) -> None:  # noqa: B027
        """Stop and close the robot. Closing twice does nothing."""

    def abandon(self) -> None:
        """Close everything; the run does not start."""
        self.close()

    @abstractmethod
    def finish(self, fault: BaseException | None) -> Outcome:
        """Finish the files and return what the tables need; raise the fault of `learn` if there can be none."""

    def say(self, words: str) -> None:
        """Print a message."""
        self._console.print(words, highlight=False, soft_wrap=True)


# ---- a robot ---------------------------------------------------------------------------------------------------------


class Robot(Source):
    """A robot that acts, learns and is recorded; from the snapshot `resumed`, or from its start when None.

    Raises:
        BadInput: If the disk has too little free space, the folder cannot be written, or the recording is damaged after
            the snapshot.
    """

    def __init__(
        self, run: Run, envs: Sequence[gymnasium.Env[Any, Any]], console: Console, resumed: Resumption | None = None
    ) -> None:
        config, interface = run.config, run.interface
        self.envs, self.env, self._resumed = envs, envs[0], resumed
        self.life = new_life(envs, run)
        super().__init__(run, self.life.student, console)
        self.total, self.sampler = config.steps, Sampler()
        self.life.observers += [run.watch, self.sampler]
        if config.on_alarm is not None:
            names = [channel.name for channel in interface.channels]
            self.life.observers.append(Alarms(config.on_alarm, run.folder.path, names, interface.period_s))
        if resumed is None:
            has_tests = bool(self.life.excursions.policies)
            self.recorder = new_recorder(run, self.env, self.student.errors, has_tests=has_tests)
        else:
            self.recorder = self._continued_recorder(resumed)
        self.life.observers.append(Events(run.folder, self.recorder))
        changes, lived_s = ([], 0.0) if resumed is None else (resumed.changes, resumed.lived_s)
        every_s, picture = seconds(config.snapshot_every), self.life.body.metadata.get("picture")
        self.snapshot_writer = SnapshotWriter(run, self.recorder, self.sampler, every_s, changes, lived_s)
        pages: dict[str, Any] = {"picture": picture, "total": config.steps, "ask_to_stop": self._stop_for_the_page}
        self.feed = Feed(run.folder.path, interface, run.horde, **pages)
        self._is_closed = False

    def _continued_recorder(self, resumed: Resumption) -> Recorder:
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

    def begin(self) -> None:
        """Restore a resumed run; reset the robot, which may drive."""
        if self._resumed is not None:
            self._restore(self._resumed)
        else:
            self.run.folder.log_event({"step": 0, "event": "began", "row": 0})
        self.life.begin()

    def _restore(self, resumed: Resumption) -> None:
        """Restore the life from the snapshot; if the robot kept moving, learn from the rows recorded after it."""
        life, state, is_redone = self.life, resumed.state, self.life.body.is_restorable
        try:
            if state:
                restore(life, self.run, self.sampler, state)
            else:
                life.student.errors.restore(life.student.errors.state())
        except ValueError as error:
            raise BadInput(f"{self.run.folder.path} cannot be resumed: {error}") from None
        since = self.recorder.since
        if not is_redone:
            replay_rows(life, [since], outside_drives(self.sampler.update, life.student))
        state.clear()  # it may be mapped from files that are deleted after newer snapshots
        for note in resumed.notes:
            self.say(note)
        what = "replaying" if is_redone else "learned from"
        self.say(f"resumed at step {resumed.step:,}; {what} {len(since):,} recorded rows")
        event = {"step": resumed.step, "event": "resumed", "row": resumed.n_rows, "redone": len(since)}
        self.run.folder.log_event(event)

    def change(self, add: Path | None, remove: str | None, *, learns: bool) -> list[dict[str, Any]]:
        """Add the questions of a file and remove those that match a pattern; return the changes, as in snapshots.

        If `learns`, theta of the new questions is learned from the recording; w and traces start at 0.

        Raises:
            BadInput: If the file is invalid, no name matches the pattern, or the behaviour follows a removed one.
        """
        life, run, before = self.life, self.run, list(self.life.horde.names)
        changes = new_changes(run.folder, before, add, remove, len(self.snapshot_writer.changes))
        followed = run.config.behaviour
        if any(followed == f"greedy:{name}" for one in changes for name in one.get("remove", ())):
            raise BadInput(f"--remove {remove}: the robot's behaviour is {followed}; choose a pattern that leaves it")
        try:
            change(life, run.interface, run.folder, changes)
        except ValueError as error:
            raise BadInput(str(error)) from None
        for one in changes:
            run.folder.log_event({"step": life.steps, "event": "questions", "row": self.recorder.n_rows, **one})
        if learns and add is not None:
            self.recorder.flush()
            _learn_theta(life, run, set(life.horde.names) - set(before))
        return changes

    def learn(self, progress: Progress) -> None:
        """Act and learn until the last step, a request to stop or a fault."""
        self.life.recorder = self.recorder
        self.life.observers += [progress, self.feed, self.snapshot_writer]
        self.snapshot_writer.start()
        assert self.total is not None
        self.life.run(max(self.total - self.life.steps, 0))  # a reset may have taken steps

    def stop(self, cause: Cause) -> None:
        """End the life after the current step."""
        super().stop(cause)
        self.life.stop()

    def emergency_stop(self, reason: str) -> bool:
        """Set the robot's emergency stop; return whether it has one."""
        return self.life.body.emergency_stop(reason)

    def _stop_for_the_page(self) -> None:
        if self.stopped_by is None:
            self.emergency_stop("requested on the live page")
            self.stop(Cause.PAGE_STOP)

    def close(self) -> None:
        """Stop and close the robot."""
        if not self._is_closed:
            self._is_closed = True
            for env in self.envs:
                env.close()

    def abandon(self) -> None:
        """Close everything; the run does not start."""
        super().abandon()
        self.life.close()
        self.feed.close()
        self.recorder.close()

    def finish(self, fault: BaseException | None) -> Outcome:
        """Write the last snapshot and close the recording, after the robot was stopped; tables follow any fault."""
        life = self.life
        for end in (self.snapshot_writer.finish, lambda: self.feed.close(life), life.close):
            try:
                end()
            except BaseException as error:
                fault = fault or error
        if self.recorder.differs_at is not None:
            _log.warning(_DIFFERS, self.recorder.differs_at)
        ended = self._end(fault)
        event = {"step": life.steps, "event": "ended", "row": self.recorder.n_rows}
        self.run.folder.log_event({**event, "why": ended.why, "cause": ended.cause.code})
        robot = {name: getattr(life, name) for name in ("gaps", *NOT_RECORDED)}
        details: dict[str, Any] = {
            "n_clipped": life.n_clipped,
            "sensor_age_ms": life.sensor_age_s.summary_ms(),
            "overrun_ms": life.overrun_s.summary_ms(),
            "n_not_applied": life.n_not_applied,
            "n_dockings": life.dockings.n_done,
            "n_dockings_failed": life.dockings.n_failed,
        }
        if isinstance(life, Robots):
            details["steps_of_robots"] = life.steps_of.tolist()
        return Outcome(
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

    def _end(self, fault: BaseException | None) -> End:
        """Return what ended the run: its last step, the first request, an exception, or the battery."""
        if fault is None and self.life.steps >= (self.total or 0):
            return End.of(Cause.STEPS)
        if self.stopped_by is not None:
            return End.of(self.stopped_by)
        if fault is not None:
            return End.of_fault(fault)
        return End.of(Cause.BATTERY_LOW if self.life.is_out_of_battery else Cause.UNKNOWN)


def new_life(envs: Sequence[gymnasium.Env[Any, Any]], run: Run) -> Life:
    """Return a life of one robot or several with a run's settings, at its start."""
    options: dict[str, Any] = {"interface": run.interface, "excursions": tests_of(run)}
    rngs = [np.random.default_rng(run.config.seed + k) for k in range(len(envs))]
    behaviours = [behaviour_of(run) for _ in envs]
    if len(envs) == 1:
        return Life(envs[0], run.horde, behaviours[0], rngs[0], **options)
    assert isinstance(run.horde, Horde), "--shards is refused"
    return Robots(envs, run.horde, behaviours, rngs, **options)


def behaviour_of(run: Run) -> BehaviourPolicy:
    """Return the behaviour of a run's settings.

    Raises:
        BadInput: If it is greedy in the action values of a question that finds no policy.
    """
    config, horde, n_actions = run.config, run.horde, len(run.interface.actions)
    if config.behaviour == "random":
        return StickyRandom(n_actions, config.repeat)
    name = config.behaviour.removeprefix("greedy:")
    found = [question.name for question in horde.questions if question.finds_policy]
    if name not in found:
        raise BadInput(
            f"--behaviour greedy:{name}: no question finds this policy; there are {', '.join(found) or 'none'}: add a "
            f"[[control]] table to a question file (docs/questions.md)"
        )
    return Follow(EpsilonGreedy(lambda _, tiles: horde.action_values(name, tiles), n_actions, config.epsilon))


def tests_of(run: Run) -> ExcursionConfig:
    """Return the settings of a run's test excursions."""
    return ExcursionConfig(run.config.excursion_probability, run.config.horizon)


def new_recorder(
    run: Run, env: gymnasium.Env[Any, Any], errors: ReturnErrors, *, has_tests: bool, **segments: Any
) -> Recorder:
    """Create the recording, with a description of the robot in its header, and the table of excursions.

    Args:
        run: The run that is recorded.
        env: Its robot.
        errors: Records the excursions.
        has_tests: Whether there are excursions.
        **segments: `Recorder`'s `segment_s` or `segment_bytes`.

    Raises:
        BadInput: If the disk has too little free space, or the folder cannot be written.
    """
    config, interface, folder = run.config, run.interface, run.folder
    needed = _TABLES_BYTES + (config.steps or 0) * row_dtype(len(interface.channels), config.robots).itemsize
    if (free := shutil.disk_usage(folder.path).free) < needed:
        raise BadInput(
            f"--out {folder.path} has {free / 1e6:.1f} MB free, but this run needs {needed / 1e6:.1f} MB; choose "
            "another disk, or fewer --steps"
        )
    facts = record_header(env, interface) | {"tests_excursions": has_tests}
    facts |= {"robots": config.robots} if config.robots > 1 else {}
    try:
        recorder = Recorder(len(interface.channels), folder.life, facts, **segments)
        errors.record_to(folder.excursions)
    except OSError as error:
        raise BadInput(unwritable(folder.path, error)) from None
    return recorder


def restore(life: Life, run: Run, sampler: Sampler, state: dict[str, Any]) -> None:
    """Restore a life and its observers from a snapshot.

    Raises:
        ValueError: If they do not fit the snapshot.
    """
    sampler.restore(inner(state, "sampler"))
    run.watch.restore(inner(state, "watch"))
    life.restore(inner(state, "life"))


def _learn_theta(life: Life, run: Run, names: set[str]) -> None:
    """Learn theta of new questions off-policy from the recording, in a separate Horde: other weights do not change."""
    new = [question for question in life.horde.questions if question.name in names]
    horde, coder = life.horde, run.interface.coder
    alone = Horde(new, n_features=coder.n_features, n_active=coder.n_active, config=horde.config, mode="deferred")
    relearn(read_in_parts(run.folder.life), alone, run.interface)
    theta = horde.weights()[0]
    theta[[horde.names.index(question.name) for question in new]] = alone.weights()[0]
    horde.reset_weights(theta)


# ---- recorded rows ---------------------------------------------------------------------------------------------------


class Recording:
    """The rows of a recording from row `since` up to step `up_to`, file by file; a run may still append more.

    With several passes, rows and steps are counted on from pass to pass.
    """

    def __init__(self, path: Path, up_to: int | None = None, since: int | None = None, passes: int = 1) -> None:
        self.path, self.up_to, self.since, self.passes = path, up_to, since, passes

    def __iter__(self) -> Iterator[Stream]:
        for part in read_in_parts(self.path, self.since) if self.passes == 1 else self._passes():
            yield part if self.up_to is None else part[: np.count_nonzero(part.rows["step"] <= self.up_to)]

    def _passes(self) -> Iterator[Stream]:
        n_skipped, before, last = self.since or 0, 0, 0
        for _ in range(self.passes):
            for part in read_in_parts(self.path):
                part.rows["step"] += before
                last = int(part.rows["step"][-1]) if len(part) else last
                yield part[n_skipped:]
                n_skipped = max(n_skipped - len(part), 0)
            before = last


class Replay(Source):
    """Recorded rows, learned from once, off-policy, with the recorded actions and probabilities.

    Args:
        run: With a new Horde.
        rows: The rows, in consecutive parts.
        console: For messages.
        path: Of the recording, for messages.
        end: What ended the recording.
        total: Its last step, for the progress.
        has_tests: Whether the environment supported test excursions.
        excursions: File to record the excursions to.
        restored: A life at the first row, restored from a snapshot, and its samples; None to begin without.

    Raises:
        BadInput: In `finish`, if no step could be learned from.
    """

    def __init__(
        self,
        run: Run,
        rows: Iterable[Stream],
        console: Console,
        *,
        path: Path,
        end: Cause,
        total: int | None,
        has_tests: bool | None,
        excursions: Path | None = None,
        restored: tuple[Life, Sampler] | None = None,
    ) -> None:
        self._life = restored[0] if restored is not None else None
        self._sampler = restored[1] if restored is not None else Sampler()
        student = Student(run.horde, run.interface, tests_of(run)) if self._life is None else self._life.student
        if excursions is not None:
            student.errors.record_to(excursions)
        super().__init__(run, student, console)
        self._rows, self._path, self._end, self.total = rows, path, End.of(end), total
        self._has_tests = bool(student.errors.policies if has_tests is None else has_tests)
        self._n_before = (self._life.gaps, self._life.n_not_applied) if self._life else (0, 0)  # with the first row
        self._reached = 0

    def learn(self, progress: Progress) -> None:
        """Learn from each row."""
        sample, run = outside_drives(self._sampler.update, self.student), self.run

        def observe(student: Student, step: int) -> None:
            self._reached = step
            sample(student, step)
            if progress.is_due(run.horde):
                progress.show(step, run.horde, student.errors)

        if self._life is not None:
            with self._life:
                self._replay(self._life, observe)
        else:
            relearn(self._announced(), run.horde, run.interface, student=self.student, observer=observe)

    def _replay(self, life: Life, observe: RowObserver) -> None:
        replay_rows(life, self._rows, observe)

    def _announced(self) -> Iterator[Stream]:
        for part in self._rows:
            for fault in part.faults:
                self.say(f"{fault}.")
            yield part

    def finish(self, fault: BaseException | None) -> Outcome:
        """Count the steps that were not learned from; after an invalid row, those before it have been learned from."""
        notes: list[str] = []
        if fault is None and self._life is not None:
            self._reached = self.total or 0  # also if no row follows the snapshot
        if isinstance(fault, ValueError | LookupError | RuntimeError):
            if not self.student.learning_steps:
                raise BadInput(f"{self._path} cannot be learned from again: {fault}") from fault
            where = f"{self._path.name} is damaged after step {self._reached:,}"
            notes = [f"{where}, and learned from up to there: {fault}."]
        elif fault is not None:
            raise fault
        n_gaps, n_not_applied = np.add(self._n_before, count_broken(self._rows, self._reached)).tolist()
        return Outcome(
            steps=self._reached,
            end=self._end,
            robot=NOT_RECORDED | {"gaps": n_gaps},
            details={"n_not_applied": n_not_applied, "notes": notes},
            samples=self._sampler.samples,
            has_tests=self._has_tests,
        )


def is_imported(folder: RunFolder) -> bool:
    """Return whether the recording of a run holds a whole data set."""
    try:
        return f'"{IMPORTED}"' in folder.events.read_text(encoding="utf-8")
    except (OSError, ValueError):
        return False


def record_table(table: Rows, recorder: Recorder, up_to: int | None) -> None:
    """Write the rows of a table to a recording, up to a step if one is given.

    Raises:
        BadInput: If a row is invalid.
        RecordLost: If the disk is full.
    """
    for part in table:
        steps = part.rows["step"]
        recorder.append(part.rows if up_to is None else part.rows[steps <= up_to])
        if up_to is not None and steps[-1] > up_to:
            break


class Data(Replay):
    """A data set: written to the run's recording, then learned from, in one or more passes, with snapshots.

    Args:
        run: With a new Horde.
        table: The rows; None if they are in the recording.
        console: For messages.
        resumed: The snapshot to continue from; None to begin.

    Raises:
        BadInput: If the disk has too little free space, or the folder cannot be written.
    """

    def __init__(self, run: Run, table: Rows | None, console: Console, resumed: Resumption | None = None) -> None:
        folder, config = run.folder, run.config
        header = table.header if table is not None else read_header(started_files(folder.life)[0], FORMAT)
        env, has_tests = HeaderEnv(header), bool(header.get("tests_excursions"))
        life, sampler = new_life([env], run), Sampler()
        life.observers += [run.watch, sampler]
        rows = Recording(folder.life, config.steps, resumed and resumed.n_rows, config.passes or 1)
        facts: dict[str, Any] = {"path": folder.life, "end": Cause.LOG_END, "total": config.steps}
        super().__init__(run, rows, console, **facts, has_tests=has_tests, restored=(life, sampler))
        self._table, self._resumed, self._life_of_rows, self._header = table, resumed, life, header
        Feed(folder.path, run.interface, run.horde).close()  # the live page does not show a data set
        self._recorder = None
        if table is not None:
            self._recorder = new_recorder(run, env, self.student.errors, has_tests=has_tests, segment_s=_ANY_DURATION)
        position, lived_s = Recorder(len(run.interface.channels)), resumed.lived_s if resumed else 0.0
        position.n_rows = resumed.n_rows if resumed else 0
        self._position = position  # counts the rows that were learned from; holds none
        self.snapshot_writer = SnapshotWriter(run, position, sampler, seconds(config.snapshot_every), [], lived_s)

    def begin(self) -> None:
        """Write the rows to the recording, or restore the snapshot.

        Raises:
            BadInput: If a row is invalid, or the snapshot does not fit.
        """
        if self._resumed is not None:
            self.student.errors.table.resume_in(self.run.folder.excursions)
            state = {k: v for k, v in self._resumed.state.items() if not k.startswith("life/world/")}
            restore(self._life_of_rows, self.run, self._sampler, state)
            self._resumed.state.clear()
        elif self._table is not None and self._recorder is not None:
            with self._recorder:
                record_table(self._table, self._recorder, self.run.config.steps)
            self.run.folder.log_event({"step": 0, "event": IMPORTED, "row": self._recorder.n_rows})
        last = read_end(self.run.folder.life, 1)
        n_steps = int(last.rows["step"][-1]) * (self.run.config.passes or 1)
        self.total = min(n_steps, self.run.config.steps or n_steps)

    def _replay(self, life: Life, observe: RowObserver) -> None:
        """Learn from each row, and take snapshots between two rows."""
        self.run.folder.summary.unlink(missing_ok=True)  # of an earlier end of the run
        self.snapshot_writer.start()

        def after_row(student: Student, step: int) -> None:
            observe(student, step)
            self._position.n_rows += 1
            life.steps = step
            self.snapshot_writer.before_step(life)
            if self.stopped_by is not None:
                raise _Stopped

        with suppress(_Stopped):
            super()._replay(life, after_row)
        self.snapshot_writer.at_end(life)

    def abandon(self) -> None:
        """Close everything; the run does not start."""
        super().abandon()
        self._life_of_rows.close()
        if self._recorder is not None:
            self._recorder.close()

    def finish(self, fault: BaseException | None) -> Outcome:
        """Write the last snapshot, and count the steps that were not learned from."""
        config = self.run.config
        self.snapshot_writer.finish()
        self._rows = Recording(self.run.folder.life, config.steps, passes=config.passes or 1)
        if self.stopped_by is not None:
            self.total, self._end = self._reached, End.of(self.stopped_by)
        outcome = super().finish(fault)
        notes = [*outcome.details["notes"], *(self._table.notes if self._table else self.run.notes)]
        if (estimate := self._header.get("b_estimate")) is not None:
            size = self.run.watch.effective_sample_size().mean()
            notes.append(_ESTIMATED.format(**estimate, size=size, n_steps=self.student.learning_steps))
        details = {**outcome.details, "notes": notes, "passes": config.passes}
        return outcome._replace(details=details, lived_before_s=self.snapshot_writer.lived_before_s)


def replay_rows(life: Life, since: Iterable[Stream], observer: RowObserver) -> None:
    """Learn from the rows since the snapshot from which a life was restored, and set its position after the last."""
    student, n_gaps, reached = life.student, 0, None
    robots: set[int] = set()
    last = student.phase
    for observation, action, b, phase, flags, step, policy, robot in rows_of(since):
        student.select_robot(robot)
        last = student.phase
        if not (phase == last and phase in DRIVES):
            if not (reached is None and life.is_observed):
                student.observe(observation, flags)
            student.set_action(Phase(phase), action, b, step, policy)
        observer(student, step)
        n_gaps += int(last in _STEPS and bool(flags & Flag.GAP) and robot in robots)
        last, reached = Phase(phase), step
        robots.add(robot)
    if reached is not None:
        life.set_position(reached + int(last in _STEPS), n_gaps)


def count_broken(rows: Iterable[Stream], up_to: int) -> tuple[int, int]:
    """Return how many steps up to `up_to` led to a gap, and how many actions were not applied, but for drives."""
    last, found = dict[int, int](), np.zeros(2, np.int64)
    for part in rows:
        known = part.rows[part.rows["step"] <= up_to]
        robots = known["robot"] if "robot" in (known.dtype.names or ()) else np.zeros(len(known), dtype=int)
        for robot in np.unique(robots).tolist():
            own = known[robots == robot]
            from_step = np.isin(np.append(last.get(robot, Phase.END), own["phase"])[:-1], _STEPS)
            flags = (Flag.GAP, Flag.NOT_APPLIED)
            found += [np.count_nonzero(from_step & ((own["flags"] & flag) > 0)) for flag in flags]
            last[robot] = int(own["phase"][-1])
    return int(found[0]), int(found[1])


# ---- a log -----------------------------------------------------------------------------------------------------------


class _Stopped(Exception):
    """A pass over the log was stopped."""


class _NoScores(ReturnErrors):
    """Drops the student's own tests: a log is scored on its held-out part, and there are several passes."""

    def add(self, *_: Any) -> None:
        """Drop a test."""


class Log(Source):
    """A log without action probabilities: several passes over its first part, and scores on the rest.

    Args:
        run: Its questions have channels as cumulants and constant continuations.
        console: For messages.
        env: Plays the log, or describes the robot of `table`; it is recorded. None if it has been recorded.
        table: The log as a table; None if `env` plays it.

    Raises:
        ValueError: If a question's return cannot be computed, or the folder cannot be written.
    """

    def __init__(
        self, run: Run, console: Console, env: gymnasium.Env[Any, Any] | None = None, table: Rows | None = None
    ) -> None:
        holdout.known_returns(run.horde)
        student = Student(run.horde, run.interface)
        student.errors = _NoScores(student.errors.policies, run.horde.n_demons)
        super().__init__(run, student, console)
        self._env, self._table, self._rows = env, table, Recording(run.folder.life)
        self._recorder = None if env is None else new_recorder(run, env, student.errors, has_tests=False)
        if env is not None:
            Feed(run.folder.path, run.interface, run.horde).close()  # the live page does not show a replay
        self._n_learned = self._n_steps = 0

    def begin(self) -> None:
        """Open the log."""
        if self._env is not None and self._table is None:
            self._env.reset()

    def learn(self, progress: Progress) -> None:
        """Record the log, then learn from its first part in several passes."""
        if self._env is not None and self._recorder is not None:
            with self._recorder:
                if self._table is None:
                    holdout.read_log(self._env, self._recorder, self.run.config.steps)
                else:
                    record_table(self._table, self._recorder, self.run.config.steps)
                    self.run.notes = self._table.notes
            self.close()

        def observe(student: Student, _: int) -> None:
            self._n_learned += 1
            if progress.is_due(self.run.horde):
                progress.show(student.learning_steps, self.run.horde)
            if self.stopped_by is not None:
                raise _Stopped

        with suppress(_Stopped):
            holdout.learn(self._rows, self.student, self.run.config.passes or LOG_PASSES, observe)

    def close(self) -> None:
        """Close the log."""
        if self._env is not None:
            self._env.close()

    def abandon(self) -> None:
        """Close everything; the run does not start."""
        super().abandon()
        if self._recorder is not None:
            self._recorder.close()

    def finish(self, fault: BaseException | None) -> Outcome:
        """Score the predictions of the held-out part."""
        if fault is not None:
            raise fault
        score = holdout.score(self._rows, self.student)
        asked = self.run.config.steps
        end = Cause.LOG_END if asked is None or score.n_steps < asked else Cause.STEPS
        n_gaps, _ = count_broken(self._rows, score.n_steps)
        return Outcome(
            steps=score.n_steps,
            end=End.of(Cause.CUT_OFF if self.run.is_unfinished else self.stopped_by or end),
            robot=NOT_RECORDED | {"gaps": n_gaps},
            score=score,
            passes=self._n_learned / score.n_learned,
        )
