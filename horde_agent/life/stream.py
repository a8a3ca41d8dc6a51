"""A stream: rows in the order of time, and the student that learns from them."""

from __future__ import annotations

from typing import Protocol

from horde_agent.life.counts import RobotCounts
from horde_agent.life.learner import StreamLearner
from horde_agent.saving import State


class LearnedStream(Protocol):
    """Rows of one source with their student: of a robot (`Life`), or of a recording, a table or a bag (`RowLearner`).

    However a source makes its rows, each goes through `student.take_row`, in the order of time: so
    that a recording teaches what the life taught, bit for bit. A robot makes a row when its action
    is chosen, and moves while the row is learned from; recorded rows are complete when they are
    read. A stream that is restored continues with the row after those that its state has learned
    from.
    """

    @property
    def student(self) -> StreamLearner:
        """Learns, predicts and scores."""

    @property
    def counts(self) -> RobotCounts:
        """Steps, and faults of the observations up to the newest one."""

    @property
    def steps(self) -> int:
        """Number of periods up to the newest observation."""

    def state(self) -> State:
        """Return everything that its later rows and learning depend on, under the names of `Life.state`."""

    def restore(self, state: State) -> None:
        """Continue from what `state` returned, in a new stream of the same source."""
