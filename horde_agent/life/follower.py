"""A second student that learns from a life's stream in its own thread.

    local = Horde(few, ...)                                # used by the robot's policies
    with ShardedHorde(many, ..., mode="deferred") as far:  # all other questions, on other machines
        follower = Follower(Student(far, interface))
        with Life(env, local, behaviour, rng, observers=[follower]) as life:
            life.run(steps)
        follower.close()                                   # waits until every row was learned from

The life appends each row to a queue and never waits. The student receives the rows of a record, so its weights are
those of learning from the record, to the bit.
"""

from __future__ import annotations

import logging
import threading
from collections import deque
from types import TracebackType

from horde_agent.life.life import LifeHooks, StepEvent
from horde_agent.life.student import Student
from horde_agent.record import DRIVES, Flag, Phase, Row

MOST_WAITING = 36_000  # rows: an hour at 10 Hz, some 30 MB

_log = logging.getLogger(__name__)


class Follower(LifeHooks):
    """An observer of a life that passes its rows to a second student.

    If the student falls behind by more than `most_waiting` rows, further rows are dropped, and the next row follows a
    gap. If the student raises, the life continues; `close` raises the exception.

    Args:
        student: Learns and scores; do not use it elsewhere until `close` has returned.
        most_waiting: Maximum length of the queue, in rows.

    Attributes:
        student: As given.
        n_left_out: Rows that were dropped.
    """

    def __init__(self, student: Student, most_waiting: int = MOST_WAITING) -> None:
        self.student, self.n_left_out = student, 0
        self._most_waiting, self._rows, self._is_gap = most_waiting, deque[Row](), False
        self._something, self._is_over = threading.Condition(), False
        self._fault: BaseException | None = None
        self._last = Phase.END
        self._thread = threading.Thread(target=self._follow, name="following", daemon=True)
        self._thread.start()

    def after_step(self, event: StepEvent) -> None:
        """Append the row to the queue; takes microseconds."""
        row = event.row
        with self._something:
            if len(self._rows) >= self._most_waiting or self._fault is not None or self._is_over:
                self.n_left_out += 1
                self._is_gap = True
                return
            flags = row.flags | (Flag.GAP if self._is_gap else Flag.NONE)
            self._is_gap = False
            self._rows.append(row._replace(flags=flags))
            self._something.notify()

    @property
    def n_waiting(self) -> int:
        """Rows in the queue."""
        return len(self._rows)

    def close(self) -> None:
        """Wait until every row was learned from, and end the thread. Closing twice does nothing more.

        Raises:
            BaseException: That of the student, if it failed.
        """
        with self._something:
            self._is_over = True
            self._something.notify()
        self._thread.join()
        if self._fault is not None:
            raise self._fault

    def __enter__(self) -> Follower:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def _follow(self) -> None:
        try:
            while (row := self._next()) is not None:
                self._learn(row)
        except BaseException as error:
            with self._something:
                self._fault = error
                self.n_left_out += len(self._rows)
                self._rows.clear()
            _log.warning("follower stopped (%s); the run continues", error)

    def _next(self) -> Row | None:
        """Wait for a row and return it; None after `close` when the queue is empty."""
        with self._something:
            while not self._rows and not self._is_over:
                self._something.wait()
            return self._rows.popleft() if self._rows else None

    def _learn(self, row: Row) -> None:
        if not (row.phase == self._last and row.phase in DRIVES):
            self.student.observe(row.observation, row.flags)
            self.student.set_action(row.phase, row.action, row.b, row.step, row.policy)
        self._last = row.phase
