"""The driver's end of a shard: what it was sent, how far it is, and how it is brought back.

learning ── its process or machine is gone ──► recovering ── told again what it missed ──► learning
                                                   └── not back in time, or nothing to go on from ──► lost
"""

from __future__ import annotations

import logging
import time
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import TimeoutError as Late
from typing import Any, Literal, NamedTuple, Protocol

from horde_agent.cluster.errors import ClusterError
from horde_agent.cluster.plan import Cut
from horde_agent.cluster.shard import Change, Made, Making, Message, NotMadeError, Report, packed, unpacked
from horde_agent.cluster.stream import RedoLog
from horde_agent.record.snapshots import newest
from horde_agent.saving import State
from horde_agent.types import Integers

Condition = Literal["learning", "recovering", "lost"]

BATCH = 64  # entries of a message at most
NEAR = 64  # entries behind which a shard is near enough to be waited for
_IN_FLIGHT = {"eager": 2, "deferred": 4}  # messages to a shard that are not answered yet
_RETRY_S = 0.1

_log = logging.getLogger(__name__)


class ShardStatus(NamedTuple):
    """What the driver knows of a shard, without asking it.

    Attributes:
        number: Which one.
        n_demons: That it has.
        lag: Steps that it is behind.
        n_restarts: How often it was brought back.
        n_bytes: Memory that its process took when it last said so.
        node: Name of its machine.
        process: Number of its process there.
        state: "learning", "recovering" or "lost".
        why: What happened, "" while nothing has.
    """

    number: int
    n_demons: int
    lag: int
    n_restarts: int
    n_bytes: int
    node: str
    process: int
    state: Condition
    why: str


class Answer(Protocol):
    """An answer that is on its way: `runtime.Call`, or a `Future`."""

    def done(self) -> bool:
        """Say whether it is there."""

    def exception(self, timeout: float | None = None) -> BaseException | None:
        """Wait for it, and return what was raised in its place."""

    def result(self, timeout: float | None = None) -> Any:
        """Wait for it, and return it."""


class Caller(Protocol):
    """Whoever calls an actor: `runtime.Cluster`."""

    def call(self, actor: Any, verb: str, *given: Any) -> Answer:
        """Call a shard's method, and return where its answer will be."""

    def is_loss(self, error: BaseException) -> bool:
        """Say whether an error means that an actor, or its machine, is gone."""

    def cause(self, error: BaseException) -> BaseException:
        """Return what an actor raised."""

    def end(self, actor: Any) -> None:
        """End a shard's process."""


class Flight(NamedTuple):
    """A message on its way: up to which entry, and whether somebody was asked about."""

    answer: Answer
    last: int
    is_asked: bool


class Link:
    """The driver's end of one shard.

    Args:
        number: Which one.
        cut: Its demons.
        making: What it is made of.
        cluster: Calls it.
        actor: What is called on.
        patience_s: For how long it may stay away.
        clock: Gives the time in seconds.

    Attributes:
        demons: Places of its demons in the whole, shape (n_demons,); fewer or more as they come and go.
        state: See `ShardStatus`.
        done: Number of the last entry that it has taken, as far as it has said.
        sent: Number of the last entry that it was sent.
        is_late: Whether it did not answer for so long that nobody waits for it any more, until it does.
        kept: Entries after which it has a snapshot, as far as it has said, ascending.
        n_updates: Demons that learned, counted in all its steps so far.
        n_diverged: Demons that were set aside, as far as it has said.
        answer: The predictions that it told last of whoever was asked about.
        refused: Why it refused a BEGIN or CHANGE, since somebody last looked.
        changes: Who came and went, by the number of the entry: for all shards the same table.
        returns: Entries to which the life may go back: for all shards the same list.
        base: What it had learned when it was restored, where there are no snapshots.
    """

    def __init__(
        self,
        number: int,
        cut: Cut,
        making: Making,
        cluster: Caller,
        actor: Any,
        patience_s: float,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self.number, self.demons, self.making = number, cut.demons, making
        self._cluster, self.actor, self._patience_s, self._clock = cluster, actor, patience_s, clock
        self.state: Condition = "learning"
        self.is_late = False
        self._heard = 0  # number of the newest entry that it has ever said it took
        self.done = self.sent = self.n_updates = self.n_restarts = self.n_bytes = self.n_diverged = 0
        self.kept: tuple[int, ...] = ()
        self.process, self.node, self.why = 0, "", ""
        self._said = ""  # of its trouble
        self.changes: Mapping[int, Change] = {}
        self.returns: Sequence[int] = ()
        self.base: State | None = None
        self.answer: Any = None
        self.refused: str | None = None
        self._flying: deque[Flight] = deque()
        self._making: Answer | None = None
        self._since = self._retry_at = 0.0

    # ---- the stream -------------------------------------------------------------------------------------------------

    def advance(self, log: RedoLog, n_least: int, asked: Integers | None = None) -> None:
        """Take note of what was answered, and send what there is, as far as the shard has room for it.

        Args:
            log: What there is to be sent.
            n_least: Send no fewer entries than so many.
            asked: Of whom predictions are wanted after the last entry: their places here, shape (n_asked,).
        """
        self.look(log)
        room = _IN_FLIGHT[self.making.mode]
        while self._can_take and len(self._flying) < room and log.next - 1 - self.sent >= n_least:
            last = min(self.sent + BATCH, log.next - 1)
            is_end = last == log.next - 1
            self._send(log, last, asked if is_end else None)

    @property
    def _can_take(self) -> bool:
        return self.state != "lost" and self._making is None and not self._is_away

    @property
    def _is_away(self) -> bool:
        return self.state == "recovering" and self._retry_at >= 0

    def _send(self, log: RedoLog, last: int, asked: Integers | None) -> None:
        """Send the entries up to `last`."""
        first = self.sent + 1
        n_channels = log.row["observation"].shape[0]
        loads = {number: load.part(self.number) for number, load in log.loads(first, last).items()}
        message = packed(Message(first, log.read(first, last), n_channels, loads, asked))
        self._flying.append(Flight(self._cluster.call(self.actor, "take", message), last, asked is not None))
        self.sent = last

    def look(self, log: RedoLog) -> None:
        """Take note of all that was answered by now, and bring the shard back where it is away."""
        while self._flying and self._flying[0].answer.done():
            self._hear(self._flying.popleft())
        if self.state == "recovering" and (self._making is not None or self._is_away):
            self._bring_back(log)
        if self.state == "recovering" and self._can_take and log.next - 1 - self.done <= NEAR:
            self.state, self.why = "learning", ""

    def wait(self, timeout_s: float | None = None) -> bool:
        """Wait for the oldest message on its way, and return whether it was answered, or none is."""
        if not self._flying:
            return True
        try:
            self._flying[0].answer.exception(timeout_s)
        except Late:
            return False
        self._hear(self._flying.popleft())
        return True

    def _hear(self, message: Flight) -> None:
        """Take note of an answer.

        Raises:
            BaseException: What a function of the user's raised in the shard.
        """
        error = message.answer.exception()
        if error is not None:
            self.notice(error)
            return
        report: Report = unpacked(message.answer.result())
        if report.at < message.last:  # another process by now, which knows nothing yet
            self._lose("its process was another one")
            return
        self.done, self.n_updates, self.n_diverged = report.at, report.n_updates, report.n_diverged
        self.kept, self.n_bytes = report.kept or self.kept, report.n_bytes or self.n_bytes
        if report.refused and message.last > self._heard:  # else it was told again, and it is known
            self.refused = report.refused
        if report.trouble:
            if report.trouble != self._said:
                _log.warning(
                    "shard %d: %s; it learns on, and what it missed is kept for it", self.number, report.trouble
                )
            self.why = self._said = report.trouble
        self._heard, self.is_late = max(self._heard, report.at), False
        if message.is_asked:
            self.answer = report.answer

    def notice(self, error: BaseException) -> None:
        """Take note of an error: the shard is gone for now, or what it raised is raised here."""
        cause = self._cluster.cause(error)
        if not (self._cluster.is_loss(error) or isinstance(cause, NotMadeError)):
            raise cause
        if self.state != "lost" and not self._is_away:
            self._lose((str(error).strip().splitlines() or ["its process is gone"])[0])

    # ---- away, and back ---------------------------------------------------------------------------------------------

    def _lose(self, why: str) -> None:
        """Take note that the shard is away: what was on its way is sent again when it is back."""
        _log.warning(
            "shard %d is away (%s); its %d demons answer nan until it is back", self.number, why, self.n_demons
        )
        self.state, self.why = "recovering", why
        self._flying.clear()
        self._making = self.answer = None
        self._since = self._retry_at = self._clock()

    def make(self, first: int, last: int) -> Answer:
        """Have it come up, with what it is made of: see `Shard.make`."""
        own = {number: change.part(self.number) for number, change in self.changes.items()}
        return self._cluster.call(self.actor, "make", self.making, own, first, last, self.base, list(self.returns))

    def _bring_back(self, log: RedoLog) -> None:
        """Have it come up again, as soon as there is a process to do it; give it up where that takes too long."""
        now = self._clock()
        if self._making is None:
            if now >= self._retry_at:
                self._making = self.make(log.first, log.next - 1)
            return
        if not self._making.done():
            if now - self._since > self._patience_s:
                self.give_up(f"it did not come back within {self._patience_s:g} s: {self.why}")
            return
        making, self._making = self._making, None
        error = making.exception()
        if error is None:
            self._is_back(making.result())
        elif not self._cluster.is_loss(error):
            self.give_up(str(self._cluster.cause(error)))
        elif now - self._since > self._patience_s:
            self.give_up(f"it did not come back within {self._patience_s:g} s: {self.why}")
        else:
            self._retry_at = now + _RETRY_S

    def _is_back(self, made: Made) -> None:
        """Go on from where it stands."""
        self.done = self.sent = made.at
        self.node, self.process = made.node, made.process
        self.n_restarts, self._retry_at = self.n_restarts + 1, -1.0
        _log.warning("shard %d is back at entry %d, after %.1f s", self.number, made.at, self._clock() - self._since)

    def give_up(self, why: str) -> None:
        """Leave it: its demons answer nan from now on."""
        _log.error("shard %d is lost, with %d demons: %s; the others go on", self.number, self.n_demons, why)
        self.state, self.why, self._making = "lost", why, None
        self._flying.clear()
        self._cluster.end(self.actor)

    # ---- what is known ----------------------------------------------------------------------------------------------

    @property
    def n_demons(self) -> int:
        """Demons that it has."""
        return int(self.demons.size)

    @property
    def absence(self) -> str:
        """Why its demons do not answer."""
        return f"shard {self.number} {'was lost' if self.state == 'lost' else f'is {self.state}'}: {self.why}"

    @property
    def oldest(self) -> int:
        """Number of the entry after which it may have to be told all again; 0 where that is all there was.

        Its newest snapshot may be damaged: then it goes on from the one before. If the life goes back to an entry, it
        goes on from the newest that is not after that; from one of that very entry it need not be told anything.
        """
        if len(self.kept) < 2:
            return 0
        of_returns = [(newest(self.kept, last), last) for last in self.returns]
        return min([self.kept[-2], *(at for at, last in of_returns if at < last)])

    @property
    def is_busy(self) -> bool:
        """Whether a message is on its way."""
        return bool(self._flying)

    def starts(self, made: Made) -> None:
        """Take note of how it came up the first time."""
        self.done = self.sent = made.at
        self.n_updates, self.node, self.process = made.n_updates, made.node, made.process

    def status(self, log: RedoLog | None) -> ShardStatus:
        """Return what is known of it."""
        lag = 0 if log is None else log.next - 1 - self.done
        facts = (self.n_demons, lag, self.n_restarts, self.n_bytes, self.node, self.process, self.state, self.why)
        return ShardStatus(self.number, *facts)

    def ask(self, verb: str, *given: Any) -> Answer:
        """Ask it something, after all that it was sent."""
        return self._cluster.call(self.actor, verb, *given)


def check(made: Made, versions: Mapping[str, str], number: int, largest_decay: float) -> None:
    """Refuse a shard that is not what the driver is.

    Raises:
        ClusterError: If a version differs, or its questions are not what a family says of them.
    """
    for what, here in versions.items():
        if made.versions[what] != here:
            told = ("horde_agent", "other files") if what == "code" else (what, f"{made.versions[what]}, not {here}")
            raise ClusterError(
                f"shard {number} on {made.node} has another {told[0]} than this process ({told[1]}): install the same "
                "versions on all machines"
            )
    if made.largest_decay > largest_decay:
        raise ClusterError(
            f"a family's questions have gamma lambda up to {made.largest_decay:g}, and it says {largest_decay:g} of "
            "itself: raise its largest_decay"
        )
