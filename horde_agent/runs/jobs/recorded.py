"""Recorded rows as the source of a run: of a run or a data set.

Rows with actions and their probabilities are learned from off-policy. A recording contains all observations and
actions, and the behaviour does not depend on the weights, so the results are those of the run, bit for bit.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import numpy as np
from rich.console import Console

from horde_agent.life.life import Life
from horde_agent.life.observers import Progress, RowObserver, Sampler, outside_drives
from horde_agent.life.student import Student, rows_of
from horde_agent.record import DRIVES, FORMAT, Flag, Phase, Stream, read_in_parts
from horde_agent.record.segments import read_header, read_segment, started_files
from horde_agent.runs.config import BadInput, LearnConfig
from horde_agent.runs.ending import Cause, End, SignalHandler
from horde_agent.runs.jobs.job import Job, Stopped
from horde_agent.runs.jobs.tables import NOT_RECORDED, Outcome
from horde_agent.runs.keeping.folder import RunFolder
from horde_agent.runs.keeping.resume import recorded_life
from horde_agent.runs.keeping.run import HeaderEnv, Run, make_run, new_life

_STEPS = (Phase.BEHAVE, Phase.EXCURSION)


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


class Replay(Job):
    """Recorded rows, up to step `total`, from their beginning or from a life restored at the first one."""

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
        self._rows, self._end, self.total = rows, End.of(end), total
        self._has_tests = bool(header.get("tests_excursions"))
        self._reached = 0

    def _learn(self, progress: Progress) -> None:
        """Learn from each row, until the end or a request to stop."""
        sample, run = outside_drives(self.sampler.update, self.student), self.run
        self._reached = min(self.life.steps, self.total or 0)  # if no row follows the snapshot

        def observe(student: Student, step: int) -> None:
            self._reached = step
            sample(student, step)
            if progress.is_due(run.horde):
                progress.show(step, run.horde, student.errors)
            self._after_row(step)
            if self.stopped_by is not None:
                raise Stopped

        with self.life:
            with suppress(Stopped):
                # The snapshot of a data set is one between two rows; that of a robot has received the next row.
                is_first_counted = run.config.backend != "data"
                replay_rows(self.life, self._announced(), observe, is_first_counted=is_first_counted)
            self._after_rows()

    def _after_row(self, step: int) -> None:
        pass

    def _after_rows(self) -> None:
        pass

    def _announced(self) -> Iterator[Stream]:
        for part in self._rows:
            for fault in part.faults:
                self.say(f"{fault}.")
            yield part

    def _abandon(self) -> None:
        """Close everything; the run does not start."""
        self.life.close()

    def _finish(self, fault: BaseException | None) -> Outcome:
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
            end=self._end if self.stopped_by is None else End.of(self.stopped_by),
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
        if last in _STEPS and (robot in robots or not is_first_counted):
            life.gaps += bool(flags & Flag.GAP)
            life.n_not_applied += bool(flags & Flag.NOT_APPLIED)
        observer(student, step)
        last, reached = Phase(phase), step
        robots.add(robot)
    if reached is not None:
        life.set_position(reached + int(last in _STEPS))


def recorded_facts(folder: RunFolder) -> tuple[dict[str, Any], int, int]:
    """Return the header of a recording, its number of rows, and its last step; raise BadInput if it has no row."""
    with as_bad_input(folder):
        header, (n_rows, end) = read_header(started_files(folder.life)[0], FORMAT), last_row(folder)
    if not n_rows:
        raise BadInput(f"{folder.path} contains no finished run: its log is empty")
    return header, n_rows, end


def last_row(folder: RunFolder) -> tuple[int, int]:
    """Return the number of rows of a log up to the last sound one, and its step; both 0 for an empty log."""
    for file in reversed(started_files(folder.life)):
        segment = read_segment(file, FORMAT)
        if n := segment.n_whole:
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
        raise BadInput(f"{folder.path} contains no finished run: there are neither tables nor a log in it") from None
    except (ValueError, LookupError, TypeError, OSError) as error:
        raise BadInput(f"{folder.life} cannot be read, so it cannot be learned from again: {error}") from None


def rebuilt_run(folder: RunFolder, made: RunFolder, config: LearnConfig, header: dict[str, Any]) -> Run:
    """Return a run like the one in `folder`, with the folder `made`; raise BadInput if its Horde cannot be created."""
    file = folder.question_file if str(config.questions).endswith(".toml") else None
    try:
        return make_run(HeaderEnv(header), config, made, file, recorded_life(folder, config))
    except KeyError as error:
        raise BadInput(f"the header of {folder.life} lacks {error}, which learning from it requires") from None
    except (ValueError, TypeError) as error:
        raise BadInput(f"{folder.life} cannot be learned from again: {error}") from None
