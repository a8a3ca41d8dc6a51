"""A log without actions as the source of a run: learned from on its first part, and scored on the rest."""

from __future__ import annotations

from contextlib import suppress
from typing import Any

import gymnasium
from rich.console import Console

from horde_agent.life.feed import Feed
from horde_agent.life.observers import Progress
from horde_agent.life.student import Student
from horde_agent.measures.return_errors import ReturnErrors
from horde_agent.runs.config import LOG_PASSES
from horde_agent.runs.ending import Cause, End, SignalHandler
from horde_agent.runs.jobs import holdout
from horde_agent.runs.jobs.job import Job, Stopped
from horde_agent.runs.jobs.recorded import Recording
from horde_agent.runs.jobs.tables import NOT_RECORDED, Outcome
from horde_agent.runs.keeping.run import Run, new_recorder


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


class Log(Job):
    """A log in the run's recording.

    Raises:
        ValueError: If the return of a question cannot be computed from it.
    """

    def __init__(self, run: Run, console: Console, signals: SignalHandler | None = None) -> None:
        holdout.known_returns(run.horde)
        student = Student(run.horde, run.interface)
        student.errors = _NoScores(student.errors.policies, run.horde.n_demons)
        student.errors.record_to(run.folder.excursions)
        super().__init__(run, student, console, signals)
        self._rows, self._n_learned = Recording(run.folder.life), 0
        Feed(run.folder.path, run.interface, run.horde).close()  # the live page does not show a replay

    def _learn(self, progress: Progress) -> None:
        """Learn from the first part in several passes."""

        def observe(student: Student, _: int) -> None:
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
        asked = self.run.config.steps
        end = Cause.LOG_END if asked is None or score.n_steps < asked else Cause.STEPS
        return Outcome(
            steps=score.n_steps,
            end=End.of(Cause.CUT_OFF if self.is_rebuilt else self.stopped_by or end),
            robot=NOT_RECORDED | {"gaps": score.n_gaps},
            score=score,
            passes=self._n_learned / score.n_learned,
        )
