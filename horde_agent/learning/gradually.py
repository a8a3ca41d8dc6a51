"""A snapshot of very many demons: copied a few MB in each step, and written by a thread as the copies come.

So it costs a step some 2 ms, whatever the number of demons; the rest is the disk's. Where the disk is slow the copying
waits, for memory has three blocks of demons and no more; where it takes far too long, the snapshot is given up. A life
that nothing drives takes steps as fast as it can, and leaves the thread that writes no time: there a step waits for it.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from queue import SimpleQueue

from horde_agent.learning.gradual import BYTES_A_STEP, GradualCopy, Part
from horde_agent.record.snapshots import Writer

AT_ONCE_BYTES = 64_000_000  # of weights, up to which all is copied at once: some 40 ms; 1,300 demons of the paper's
MOST_WAITING_BYTES = 256_000_000  # of what was told meanwhile, that the disk has not taken
_LONGEST_WAIT_S = 0.1  # of a step that may wait
_NICENESS = 19

GIVEN_UP = "it was given up"

Close = Callable[[Writer], None]


def give_way() -> None:
    """Have this thread run when others need not, where the system can tell threads apart."""
    with suppress(OSError, AttributeError):
        os.setpriority(os.PRIO_PROCESS, threading.get_native_id(), _NICENESS)


class GradualSnapshot:
    """A snapshot that is under way.

    Args:
        copy: Of the engine; nothing of it is copied yet.
        folder: For the snapshots of the life.
        after: Waits for the one before to be written, in this one's thread.
        may_wait: Whether a step may wait for the disk, as in a life that is not in real time.
        engine: Name of the engine in the state.

    Attributes:
        why_not: Why it cannot be written; None while it can.
    """

    def __init__(
        self,
        copy: GradualCopy,
        folder: Path,
        after: Callable[[], None] = lambda: None,
        *,
        may_wait: bool = False,
        engine: str = "horde/engine",
    ) -> None:
        self._copy, self._folder, self._after, self._may_wait, self._engine = copy, folder, after, may_wait, engine
        self.why_not: str | None = None
        self._is_ended = False
        self._n_waiting_bytes, self._is_less = 0, threading.Condition()
        self._queue: SimpleQueue[Part | Close | None] = SimpleQueue()
        self._thread = threading.Thread(target=self._write, name="keeping", daemon=True)
        self._thread.start()

    @property
    def is_complete(self) -> bool:
        """Whether `finish` may be called."""
        return self._copy.is_complete

    @property
    def is_void(self) -> bool:
        """Whether the Horde changed meanwhile, so that it is to be begun anew."""
        return self._copy.is_void

    @property
    def is_alive(self) -> bool:
        """Whether it is still being written."""
        return self._thread.is_alive()

    def advance(self, *, waits: bool = False) -> None:
        """Copy some more, between two steps.

        Args:
            waits: For the disk, where it has not written what was copied.
        """
        if self.why_not is None:
            self._hand_over(self._copy.advance(BYTES_A_STEP, waits=waits))
            if self._may_wait:
                with self._is_less:
                    self._is_less.wait_for(lambda: self._n_waiting_bytes <= MOST_WAITING_BYTES // 2, _LONGEST_WAIT_S)
            if self._n_waiting_bytes > MOST_WAITING_BYTES:
                self.why_not = f"the disk has not taken {MOST_WAITING_BYTES / 1e6:.0f} MB in good time"

    def finish(self, close: Close) -> None:
        """Have the state be that of now, and the snapshot written to its end, for which `close` is called there."""
        self._hand_over(self._copy.finish())
        self._queue.put(close)
        self._end()

    def abandon(self) -> None:
        """Give it up; what was written of it is removed."""
        self._copy.abandon()
        self.why_not = self.why_not or GIVEN_UP
        self._end()

    def _end(self) -> None:
        self._is_ended = True
        self._queue.put(None)

    def join(self) -> None:
        """Wait until nothing more is written; one that was not finished is given up."""
        if not self._is_ended:
            self.abandon()
        self._thread.join()

    def _hand_over(self, parts: list[Part]) -> None:
        for part in parts:
            if part.buffer is None:
                with self._is_less:
                    self._n_waiting_bytes += part.n_bytes
            self._queue.put(part)

    def _write(self) -> None:
        """Write what comes, in a thread; what comes after a fault is only let go of."""
        if not self._may_wait:
            give_way()
        writer: Writer | None = None
        self._after()
        self._copy.make_buffers()
        while (part := self._queue.get()) is not None:
            try:
                if self.why_not is None:
                    writer = writer or Writer(self._folder)
                    if isinstance(part, Part):
                        writer.put(f"{self._engine}/{part.name}", part.whole())
                    else:
                        part(writer)
            except OSError as error:
                self.why_not = str(error.strerror)
            if isinstance(part, Part):
                if part.buffer is not None:
                    self._copy.give_back(part.buffer)
                else:
                    with self._is_less:
                        self._n_waiting_bytes -= part.n_bytes
                        self._is_less.notify()
        if writer is not None and self.why_not is not None:
            with suppress(OSError):
                writer.abandon()
