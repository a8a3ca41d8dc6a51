"""A log without actions as the source of a run: learned from in several passes, and scored on its last part."""

from __future__ import annotations

from contextlib import suppress
from pathlib import Path
from typing import Any

import gymnasium
from rich.console import Console

from horde_agent.life.learner import StreamLearner
from horde_agent.life.observers import Progress
from horde_agent.runs import log_nexting
from horde_agent.runs.config import LOG_PASSES, LearnConfig
from horde_agent.runs.exit_reason import SignalHandler
from horde_agent.runs.session import Session, Source, Stopped
from horde_agent.runs.sources.recorded_rows import Recording
from horde_agent.runs.storage.folder import RunFolder
from horde_agent.runs.storage.run import Run, make_run, new_recorder
from horde_agent.runs.storage.tables import NOT_RECORDED, SessionOutcome
from horde_agent.scoring.return_errors import ReturnErrors


class _NoScores(ReturnErrors):
    """Drops the student's own tests: a log is scored on its held-out part, and there are several passes."""

    def add(self, *_: Any) -> None:
        """Drop a test."""


def log_session(
    env: gymnasium.Env[Any, Any],
    config: LearnConfig,
    folder: RunFolder,
    console: Console,
    signals: SignalHandler,
) -> Session:
    """Record the log that an environment plays, and return a session that learns from it."""
    run = make_run(env, config, folder)
    source = LogSource(run)
    with new_recorder(run, env, has_tests=False) as recorder:
        log_nexting.read_log(env, recorder, config.steps)
    run.end_live_page()
    return Session(source, console, signals)


class LogSource(Source):
    """A log in the run's recording.

    Args:
        run: The run.
        excursions: File of the excursions, of which there are none; that of the run's folder when
            None.

    Raises:
        ValueError: If the log cannot give the return of a question.
    """

    def __init__(self, run: Run, excursions: Path | None = None) -> None:
        log_nexting.known_returns(run.horde)
        student = StreamLearner(run.horde, run.interface)
        student.errors = _NoScores(student.errors.policies, run.horde.n_demons, student.horizon)
        student.errors.table.record_to(excursions or run.folder.excursions)
        super().__init__(run, student)
        self._rows = Recording(run.folder.life)
        self._n_learned = 0

    def learn(self, progress: Progress) -> None:
        """Learn from the first part in several passes."""
        session = self.session
        self._rows.on_fault = lambda fault: session.say(f"{fault}.")

        def observe(student: StreamLearner, _: int) -> None:
            self._n_learned += 1
            if progress.is_due(self.run.horde):
                progress.show(student.learning_steps, self.run.horde)
            if session.stopped_by is not None:
                raise Stopped

        with suppress(Stopped):
            log_nexting.learn(
                self._rows, self.student, self.run.config.passes or LOG_PASSES, observe
            )

    def finish(self, fault: BaseException | None) -> SessionOutcome:
        """Score the predictions of the held-out part."""
        if fault is not None:
            raise fault
        score = log_nexting.score(self._rows, self.student)
        return SessionOutcome(
            steps=score.n_steps,
            end=self.session.end_of_rows(score.n_steps),
            robot=NOT_RECORDED | {"gaps": score.n_gaps},
            score=score,
            passes=self._n_learned / score.n_learned,
        )
