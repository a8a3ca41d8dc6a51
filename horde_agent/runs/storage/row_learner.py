"""Learning from recorded rows, as the life of their robot did."""

from __future__ import annotations

from pathlib import Path

from horde_agent.life.excursions import ExcursionConfig
from horde_agent.life.learner import StreamLearner
from horde_agent.life.observers import MspbeWatch, Sampler
from horde_agent.life.robot_stream import RobotCounts
from horde_agent.runs.storage.resume import Resumption, change_questions, check_excursions
from horde_agent.runs.storage.run import Run
from horde_agent.saving import State, attributes, inner, nested


class RowLearner:
    """Learns from recorded rows as the life of their robot did, without the robot.

    Attributes:
        horde: The demons.
        student: Learns, predicts and scores.
        sampler: Samples of the MSPBE.
        counts: Steps, gaps, and actions that were not applied.
        is_observed: Whether the student has observed the next row, at a snapshot of a life.
    """

    def __init__(self, run: Run) -> None:
        self.horde = run.horde
        horizon = ExcursionConfig(horizon=run.config.horizon)
        self.student = StreamLearner(run.horde, run.interface, horizon)
        self.sampler = Sampler()
        self.counts = RobotCounts()
        self.is_observed = False
        self._run = run

    @property
    def steps(self) -> int:
        """Number of periods up to the latest row."""
        return self.counts.steps

    def state(self) -> State:
        """Return everything that later learning depends on, under the names of `Life.state`."""
        saved_counts = self.counts.state() | attributes(self, "is_observed")
        return nested(student=self.student.state(), own=saved_counts)

    def resume(self, resumed: Resumption, excursions: Path) -> None:
        """Continue from a snapshot of a data set's run or of a life; without one, from the first row.

        Excursions are recorded in existing files, of which `excursions` is the first; those after
        the snapshot are removed from them.

        Raises:
            BadInput: If a file of excursions is missing.
            ValueError: If the snapshot does not fit.
        """
        run = self._run
        check_excursions(run.folder, resumed)
        change_questions(self.student, run.interface, run.folder, resumed.changes)
        run.watch = MspbeWatch(run.horde)
        self.student.errors.table.resume_in(excursions)
        if not resumed.state:
            self.student.errors.restore(self.student.errors.state())
            return
        self.sampler.restore(inner(resumed.state, "sampler"))
        run.watch.restore(inner(resumed.state, "watch"))
        state = inner(resumed.state, "life")
        self.student.restore(inner(state, "student"))
        self.counts.restore(inner(state, "own"))
        self.is_observed = bool(state["own/is_observed"])
        # It may be mapped from files that are deleted after newer snapshots
        resumed.state.clear()
