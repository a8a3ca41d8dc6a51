"""A log without action probabilities: several passes over its first part, and scores on the rest."""

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
from horde_agent.runs.data.behaviour import Rows
from horde_agent.runs.ending import Cause, End
from horde_agent.runs.jobs import holdout
from horde_agent.runs.jobs.sources.source import (
    NOT_RECORDED,
    Outcome,
    Recording,
    Source,
    Stopped,
    count_broken,
    new_recorder,
    record_table,
)
from horde_agent.runs.keeping.run import Run


class _NoScores(ReturnErrors):
    """Drops the student's own tests: a log is scored on its held-out part, and there are several passes."""

    def add(self, *_: Any) -> None:
        """Drop a test."""


class Log(Source):
    """A log.

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
        self._n_learned = 0

    def begin(self) -> None:
        """Open the log."""
        if self._env is not None and self._table is None:
            self._env.reset()

    def learn(self, progress: Progress) -> None:
        """Record the log, then learn from its first part in several passes."""
        if self._env is not None and self._recorder is not None:
            if self._table is None:
                with self._recorder:
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
                raise Stopped

        with suppress(Stopped):
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
