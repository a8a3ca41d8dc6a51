"""The driver's end of a shard: the messages on their way to it, and its latest report."""

from __future__ import annotations

from collections import deque
from concurrent.futures import TimeoutError as Late
from typing import Any, Literal, NamedTuple, NoReturn, Protocol

from horde_agent.cluster.errors import ShardLost
from horde_agent.cluster.shard import Made, Report, unpacked
from horde_agent.types import Integers


class ShardStatus(NamedTuple):
    """What the driver knows of a shard without asking it.

    Attributes:
        number: Its number.
        n_demons: Demons in it.
        lag: Entries of the stream that it has not answered yet.
        n_bytes: Memory of its process, as last reported.
        node: Name of its machine.
        process: Number of its process there.
        state: "learning" or "lost".
        why: Why it was lost, or "".
    """

    number: int
    n_demons: int
    lag: int
    n_bytes: int
    node: str
    process: int
    state: Literal["learning", "lost"]
    why: str


class PendingReply(Protocol):
    """A reply that has not arrived: `runtime.Call`, or a `Future`."""

    def done(self) -> bool:
        """Return whether it has arrived."""

    def exception(self, timeout: float | None = None) -> BaseException | None:
        """Wait for it, and return the exception that was raised, if any."""

    def result(self, timeout: float | None = None) -> Any:
        """Wait for it, and return it."""


class Caller(Protocol):
    """Calls actors: `runtime.Cluster`."""

    def call(self, actor: Any, verb: str, *given: Any) -> PendingReply:
        """Call a method of a shard."""

    def is_loss(self, error: BaseException) -> bool:
        """Return whether an error means that an actor or its machine is gone."""

    def cause(self, error: BaseException) -> BaseException:
        """Return the exception that an actor raised."""

    def end(self, actor: Any) -> None:
        """End a shard's process."""


class InFlight(NamedTuple):
    """A message on its way: the number of its last entry, and whether predictions were asked for."""

    reply: PendingReply
    last: int
    is_asked: bool


class Link:
    """The driver's end of one shard.

    Args:
        number: Its number.
        demons: Places of its demons in the whole, ascending, shape (n_demons,).
        cluster: Calls it.
        actor: What is called.
        patience_s: Seconds without a reply after which it counts as lost.

    Attributes:
        demons: As given; updated when demons come and go.
        done: Entries that it has taken, as far as it has reported.
        n_updates: Demons that learned, summed over its steps.
        n_diverged: Its diverged demons.
        answer: Predictions in its latest reply to a message that asked for some.
        refused: Why it refused an entry; None after somebody has looked.
        why: Why it was lost, or "".
    """

    def __init__(self, number: int, demons: Integers, cluster: Caller, actor: Any, patience_s: float) -> None:
        self.number, self.demons = number, demons
        self._cluster, self.actor, self._patience_s = cluster, actor, patience_s
        self.done = self.n_updates = self.n_bytes = self.n_diverged = self.process = 0
        self.node = self.why = ""
        self.answer: Any = None
        self.refused: str | None = None
        self._in_flight: deque[InFlight] = deque()

    def starts(self, made: Made) -> None:
        """Store where it runs."""
        self.node, self.process = made.node, made.process

    @property
    def n_in_flight(self) -> int:
        """Messages that it has not answered yet."""
        return len(self._in_flight)

    @property
    def n_demons(self) -> int:
        """Demons in it."""
        return int(self.demons.size)

    def send(self, message: bytes, last: int, *, is_asked: bool) -> None:
        """Send a packed `Message` whose last entry is number `last`."""
        self._in_flight.append(InFlight(self._cluster.call(self.actor, "take", message), last, is_asked))

    def look(self) -> None:
        """Read the replies that have arrived.

        Raises:
            ShardLost: If the shard is gone.
            BaseException: If a function of a question raised it there.
        """
        if self.why:
            self._lose(self.why)
        while self._in_flight and self._in_flight[0].reply.done():
            self._read(self._in_flight.popleft())

    def wait(self, timeout_s: float | None = None) -> bool:
        """Wait for the oldest message on its way, and return whether its reply has arrived.

        Args:
            timeout_s: Seconds to wait; `patience_s` unless given.

        Raises:
            ShardLost: If the shard is gone, or did not answer for `patience_s`.
        """
        if not self._in_flight:
            return True
        try:
            self._in_flight[0].reply.exception(self._patience_s if timeout_s is None else timeout_s)
        except Late:
            if timeout_s is not None:
                return False
            self._lose(f"it did not answer for {self._patience_s:g} s")
        self._read(self._in_flight.popleft())
        return True

    def _read(self, message: InFlight) -> None:
        """Read a reply that has arrived."""
        report = Report(*unpacked(self.result(message.reply)))
        self.done, self.n_updates, self.n_diverged = message.last, report.n_updates, report.n_diverged
        self.n_bytes = report.n_bytes or self.n_bytes
        self.refused = report.refused or self.refused
        if message.is_asked:
            self.answer = report.answer

    def ask(self, verb: str, *given: Any) -> PendingReply:
        """Call a method, after everything that was sent."""
        return self._cluster.call(self.actor, verb, *given)

    def result(self, reply: PendingReply, timeout_s: float | None = None) -> Any:
        """Wait for a reply and return it.

        Raises:
            ShardLost: If the shard is gone.
            BaseException: The exception that was raised there.
        """
        try:
            error = reply.exception(timeout_s)
        except Late:
            self._lose(f"it did not answer for {timeout_s:g} s")
        if error is None:
            return reply.result()
        if self._cluster.is_loss(error):
            self._lose((str(error).strip().splitlines() or ["its process is gone"])[0])
        raise self._cluster.cause(error)

    def _lose(self, why: str) -> NoReturn:
        self.why = why
        raise ShardLost(self.number, self.n_demons, why)

    def status(self, n_entries: int) -> ShardStatus:
        """Return what is known of it, after `n_entries` entries of the stream."""
        facts = (self.n_demons, n_entries - self.done, self.n_bytes, self.node, self.process)
        return ShardStatus(self.number, *facts, "lost" if self.why else "learning", self.why)
