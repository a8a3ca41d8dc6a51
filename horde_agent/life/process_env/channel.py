"""What two processes share: a block of memory, a bell, a line for whatever the block cannot hold.

The agent's process counts up `ASKED` when it has written a command, the environment's `ANSWERED` when it has written
the answer. Each waits for the other's count, first looking at it for a moment, then asleep until the bell rings: to
sleep and be woken takes longer than a whole step of a light environment.

Pickles pass between the two halves of one program over a socket that nobody else can open; none is read from a file.
"""

from __future__ import annotations

import mmap
import os
import pickle
import socket
import struct
import time
from collections.abc import Mapping
from multiprocessing.connection import Connection
from typing import Any

BLOCK_BYTES = 1 << 16
# Words of the block, 8 bytes each: counts, who is asleep, then the command or the answer.
ASKED, ANSWERED, AGENT_SLEEPS, BODY_SLEEPS, KIND, ACTION, ENDS, REWARD = range(8)
DATA = 64  # byte at which the observation begins, then info
MOST_OBSERVED = BLOCK_BYTES // 2  # bytes of an observation that the block takes

STEP, CALL, CLOSE = range(3)  # kinds of a command
END_MANOEUVRE = b"e"  # an order, which does not wait for its turn
TERMINATED, TRUNCATED, SENT = 1, 2, 4  # bits of ENDS; SENT: the answer comes over the line

GLANCE_S = 0.0004  # how long to look before going to sleep; longer than a step of the simulator
GLANCES = 64  # between two looks at the clock
NAP_S = 0.02  # a ring that was missed costs so much, and no more

_LETTERS = {float: "d", int: "q", bool: "?"}


class Gone(Exception):
    """The other process has ended."""


class Channel:
    """One end of what the two processes share.

    Args:
        block: File of `BLOCK_BYTES` bytes.
        bell: Socket whose bytes mean nothing but "look".
        line: For pickled messages.
        mine: The count that this end raises, and the word that says that the other end sleeps.
        theirs: The count that this end waits for, and the word that says that it sleeps.
    """

    def __init__(
        self, block: int, bell: socket.socket, line: Connection, mine: tuple[int, int], theirs: tuple[int, int]
    ) -> None:
        self.memory = mmap.mmap(block, BLOCK_BYTES)
        self._view = memoryview(self.memory)
        self.words, self.reals = self._view[:DATA].cast("q"), self._view[:DATA].cast("d")
        self._bell, self._line = bell, line
        self._mine, self._other_sleeps = mine
        self._theirs, self._i_sleep = theirs
        bell.settimeout(NAP_S)

    def post(self) -> None:
        """Tell the other end that what is written may be read."""
        words = self.words
        words[self._mine] += 1
        if words[self._other_sleeps]:
            try:
                self._bell.send(b".")
            except OSError:  # full of rings that nobody heard yet, or nobody is there: who waits will see
                return

    def wait(self) -> None:
        """Wait until the other end has posted as often as this end is owed.

        Raises:
            Gone: If the other process has ended.
        """
        words, theirs, wanted = self.words, self._theirs, self._owed()
        end = time.perf_counter() + GLANCE_S
        while time.perf_counter() < end:
            for _ in range(GLANCES):
                if words[theirs] >= wanted:
                    return
            os.sched_yield()  # to the other end, where the two share a core after all
        words[self._i_sleep] = 1
        while words[theirs] < wanted:
            try:
                if not self._bell.recv(64):
                    raise Gone
            except TimeoutError:
                continue
            except OSError as error:
                raise Gone from error
        words[self._i_sleep] = 0

    def _owed(self) -> int:
        """Return the count to wait for: the body waits for one command more than it answered, the agent for its own."""
        n: int = self.words[self._mine]
        return n + 1 if self._mine == ANSWERED else n

    def send(self, message: object) -> None:
        """Post, then send a message; in this order, since the other end reads it only after the post.

        Raises:
            Gone: If the other process has ended.
        """
        data = pickle.dumps(message)
        self.post()
        try:
            self._line.send_bytes(data)
        except OSError as error:
            raise Gone from error

    def receive(self) -> Any:
        """Return the message that belongs to a post.

        Raises:
            Gone: If the other process has ended.
        """
        try:
            return pickle.loads(self._line.recv_bytes())
        except (EOFError, OSError) as error:
            raise Gone from error

    def close(self) -> None:
        """Let go of the memory, the bell and the line. Closing twice does nothing."""
        for part in (self.words, self.reals, self._view):
            part.release()
        self.memory.close()
        self._bell.close()
        self._line.close()


class InfoFormat:
    """How a flat numeric info lies in the block: float, int and bool keep their types and their bits.

    Args:
        info: An example.

    Attributes:
        keys: Its keys in their order.
        kinds: The types of its values.
        is_flat: Whether it can lie there at all.
    """

    def __init__(self, info: Mapping[str, Any]) -> None:
        self.keys, self.kinds = tuple(info), tuple(map(type, info.values()))
        self.is_flat = all(kind in _LETTERS for kind in self.kinds)
        self._struct = struct.Struct("=" + "".join(_LETTERS.get(kind, "") for kind in self.kinds))
        self.n_bytes = self._struct.size

    def fits(self, info: Mapping[str, Any]) -> bool:
        """Whether another info has the same keys and types."""
        return self.is_flat and tuple(info) == self.keys and tuple(map(type, info.values())) == self.kinds

    def write(self, memory: mmap.mmap, at: int, info: Mapping[str, Any]) -> bool:
        """Write an info that fits; return False where a number takes more than eight bytes, or all do not fit."""
        try:
            self._struct.pack_into(memory, at, *info.values())
        except struct.error:
            return False
        return True

    def read(self, memory: mmap.mmap, at: int) -> dict[str, Any]:
        """Return the info that lies there."""
        return dict(zip(self.keys, self._struct.unpack_from(memory, at), strict=True))
