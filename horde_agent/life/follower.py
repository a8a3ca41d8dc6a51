"""Learning elsewhere: another student learns from a life's stream, in a thread of its own, as late as it likes.

    local = Horde(few, ...)                                # what the robot acts on
    with ShardedHorde(many, ..., mode="deferred") as far:  # everything else, on other machines
        follower = Follower(Student(far, interface))
        with Life(env, local, behaviour, rng, observers=[follower]) as life:
            life.run(steps)
        follower.close()                                   # waits until all was learned from

The body's loop hands on a row and goes its way: it waits for no answer, no full queue and no slow machine. The student
gets what a record would tell, and so learns what learning again from the record would have it learn, bit for bit.
"""

from __future__ import annotations

import logging
import threading
from collections import deque
from types import TracebackType

from horde_agent.life.life import Moment
from horde_agent.life.student import Student
from horde_agent.record import DRIVES, Flag, Phase, Row

MOST_WAITING = 36_000  # rows: an hour at 10 Hz, some 30 MB

_log = logging.getLogger(__name__)


class Follower:
    """An observer of a life by which a further student learns from its stream.

    Where the student falls behind by more than `most_waiting` rows, those that come then are left out, and the first
    one after them is a gap to it. Where it fails, the life goes on; `close` raises what it failed by.

    Args:
        student: Learns and scores; used by the follower's thread alone until `close` has returned.
        most_waiting: Rows that may wait to be learned from.

    Attributes:
        student: As given.
        n_left_out: Rows that found no room.
    """

    def __init__(self, student: Student, most_waiting: int = MOST_WAITING) -> None:
        self.student, self.n_left_out = student, 0
        self._most_waiting, self._rows, self._is_gap = most_waiting, deque[Row](), False
        self._something, self._is_over = threading.Condition(), False
        self._fault: BaseException | None = None
        self._last = Phase.END
        self._thread = threading.Thread(target=self._follow, name="following", daemon=True)
        self._thread.start()

    def __call__(self, moment: Moment) -> None:
        """Observe a life: note its row. Takes some microseconds, whatever the student does."""
        row = moment.row
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
        """Rows that the student has yet to learn from: how many steps it is behind."""
        return len(self._rows)

    def close(self) -> None:
        """Wait until all rows were learned from, and end the thread. Closing twice does nothing more.

        Raises:
            BaseException: What the student failed by, if it did.
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
        """Learn from one row after the other, in a thread."""
        try:
            while (row := self._next()) is not None:
                self._see(row)
        except BaseException as error:
            with self._something:
                self._fault = error
                self.n_left_out += len(self._rows)
                self._rows.clear()
            _log.warning("what follows the life learns no more (%s); the life goes on", error)

    def _next(self) -> Row | None:
        """Return the oldest row that waits, as soon as there is one; None when there will be none."""
        with self._something:
            while not self._rows and not self._is_over:
                self._something.wait()
            return self._rows.popleft() if self._rows else None

    def _see(self, row: Row) -> None:
        """Learn from a row as from a record; within a drive nothing is seen."""
        if not (row.phase == self._last and row.phase in DRIVES):
            self.student.see(row.observation, row.flags)
            self.student.act(row.phase, row.action, row.b, row.step, row.policy)
        self._last = row.phase
