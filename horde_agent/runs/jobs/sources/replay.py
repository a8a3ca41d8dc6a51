"""Recorded rows, learned from off-policy, with the recorded actions and probabilities."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Any

import numpy as np
from rich.console import Console

from horde_agent.life.life import Life
from horde_agent.life.observers import Progress, RowObserver, Sampler, outside_drives
from horde_agent.life.student import Student, rows_of
from horde_agent.record import DRIVES, Flag, Phase, Stream
from horde_agent.runs.config import BadInput
from horde_agent.runs.ending import Cause, End
from horde_agent.runs.jobs.sources.source import (
    NOT_RECORDED,
    STEPS,
    Outcome,
    Recording,
    Source,
    count_broken,
    new_life,
)
from horde_agent.runs.keeping.run import HeaderEnv, Run


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
        self._n_before = self.life.gaps, self.life.n_not_applied  # with the first row
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
        replay_rows(self.life, self._announced(), observe)

    def _announced(self) -> Iterator[Stream]:
        for part in self._rows:
            for fault in part.faults:
                self.say(f"{fault}.")
            yield part

    def abandon(self) -> None:
        """Close everything; the run does not start."""
        self.life.close()

    def finish(self, fault: BaseException | None) -> Outcome:
        """Count the steps that were not learned from; after an invalid row, those before it have been learned from."""
        notes: list[str] = []
        if isinstance(fault, ValueError | LookupError | RuntimeError):
            if not self.student.learning_steps:
                raise BadInput(f"{self._rows.path} cannot be learned from again: {fault}") from fault
            where = f"{self._rows.path.name} is damaged after step {self._reached:,}"
            notes = [f"{where}, and learned from up to there: {fault}."]
        elif fault is not None:
            raise fault
        n_gaps, n_not_applied = np.add(self._n_before, count_broken(self._rows, self._reached)).tolist()
        return Outcome(
            steps=self._reached,
            end=self._end,
            robot=NOT_RECORDED | {"gaps": n_gaps},
            details={"n_not_applied": n_not_applied, "notes": notes},
            samples=self.sampler.samples,
            has_tests=self._has_tests,
        )


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
        n_gaps += int(last in STEPS and bool(flags & Flag.GAP) and robot in robots)
        last, reached = Phase(phase), step
        robots.add(robot)
    if reached is not None:
        life.set_position(reached + int(last in STEPS), n_gaps)
