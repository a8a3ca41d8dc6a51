"""The shards of a Horde together: they come up, are told the stream, are waited for, are asked, and go."""

from __future__ import annotations

import logging
import shutil
import time
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import TimeoutError as Late
from contextlib import suppress
from pathlib import Path
from typing import Any

import numpy as np

from horde_agent.cluster.errors import ClusterError
from horde_agent.cluster.kept import N_RETURNS
from horde_agent.cluster.link import BATCH, NEAR, Answer, Link, ShardStatus, check
from horde_agent.cluster.plan import Cut
from horde_agent.cluster.runtime import Cluster
from horde_agent.cluster.shard import Change, Made, Making, versions
from horde_agent.cluster.stream import CHANGE, Entry, RedoLog, row_type
from horde_agent.types import Integers

_LATE_S = 5.0  # for which a shard that is far behind is waited for; then the others go on until it has answered
_FORGET_EVERY = 1_024  # entries
_LIVES = "life-"  # folders, one for each life

_log = logging.getLogger(__name__)


class Shards:
    """The shards, and the stream as they are told it.

    Args:
        cluster: Where they are.
        folder: For their snapshots and the stream; None keeps none.
        life: Which one it is: what another has written there is of no use to it.
        patience_s: Seconds that one may be away before it is left.

    Attributes:
        links: The driver's end of each.
        changes: Who came and went, by the number of the entry.
        returns: Entries to which the life may go back, ascending.
        log: The stream; None until somebody was told something.
    """

    def __init__(self, cluster: Cluster, folder: Path | None, life: str, patience_s: float) -> None:
        self.cluster, self._folder, self._life, self._patience_s = cluster, folder, life, patience_s
        self.links: list[Link] = []
        self.changes: dict[int, Change] = {}
        self.returns: list[int] = []
        self.log: RedoLog | None = None
        self._n_active = self._n_features = 0

    @property
    def folder(self) -> Path | None:
        """Where this life's snapshots and its stream are kept."""
        return None if self._folder is None else self._folder / f"{_LIVES}{self._life}"

    # ---- coming up, and going ---------------------------------------------------------------------------------------

    def start(self, cuts: Sequence[Cut], makings: Sequence[Making], n_bytes: Sequence[int], n_threads: int) -> None:
        """Have a process started for each shard, and have it come up with nothing learned.

        Args:
            cuts: Their demons.
            makings: What they are made of.
            n_bytes: Memory that each takes.
            n_threads: Of each.

        Raises:
            ClusterError: If one does not come up; the others are to be ended by `close`.
        """
        for number, (cut, making) in enumerate(zip(cuts, makings, strict=True)):
            actor = self.cluster.actor(number, n_threads, n_bytes[number])
            link = Link(number, cut, making, self.cluster, actor, self._patience_s)
            link.changes, link.returns = self.changes, self.returns
            self.links.append(link)
            self._n_active, self._n_features = making.n_active, making.n_features
        self.make(1, 0)

    def make(self, first: int, last: int) -> None:
        """Have all shards come up after an entry between first - 1 and `last`."""
        making = [(link, link.make(first, last)) for link in self.links]
        for link, coming in making:
            made = self._first_answer(link, coming)
            check(made, versions(), link.number, link.making.share.largest_decay)
            link.starts(made)

    def fit(self) -> tuple[int, int]:
        """Return how many channels an observation must have, and how many actions there are, 0 where nobody says.

        Raises:
            ClusterError: If shards expect different numbers of actions.
        """
        facts = [answer for _, answer in self.gather("fits", must=True)]
        counts = {n_actions for _, n_actions in facts} - {0}
        if len(counts) > 1:
            raise ClusterError(f"the target policies have different numbers of actions: {sorted(counts)}")
        return max((n for n, _ in facts), default=0), counts.pop() if counts else 0

    def _first_answer(self, link: Link, coming: Answer) -> Made:
        """Return what a shard says when it came up."""
        try:
            return coming.result(max(60.0, 10 * self._patience_s))  # type: ignore[no-any-return]
        except Late:
            raise ClusterError(f"shard {link.number} did not come up: the cluster has no room for it") from None
        except Exception as error:
            cause = self.cluster.cause(error)
            if isinstance(cause, ValueError):
                raise ClusterError(str(cause)) from None
            if self.cluster.is_loss(error):
                raise ClusterError(f"shard {link.number} did not come up: {error}") from None
            raise cause from None

    def go_on(self, life: str, at: int, returns: Sequence[int], n_channels: int, bases: Mapping[int, Any]) -> None:
        """Have all shards come up, and brought to an entry of a life that was lived elsewhere.

        Args:
            life: Which one.
            at: Number of the entry; 0 if nobody was told anything.
            returns: Entries to which it may go back.
            n_channels: Of its observations.
            bases: What each shard had learned then, by its number; without, it is in the folder.
        """
        if self.log is not None:
            self.log.close()
        self._life, self.log, self.returns[:] = life, None, returns
        for link in self.links:
            folder = None if self.folder is None else str(self.folder)
            link.making, link.base = link.making._replace(folder=folder), bases.get(link.number)
        if not at:
            self.make(1, 0)
            return
        log = self._begin_log(n_channels, at + 1)
        if not bases:
            log.reopen(1, at)
            log.put_loads(self.changes)
        self.make(log.first, at)
        self.wait(must=True)

    def drop(self, link: Link) -> None:
        """End a shard that nobody is left in."""
        self.cluster.end(link.actor)
        self.links.remove(link)

    def close(self) -> None:
        """End all of them, when what was to be kept last is kept. Closing twice does nothing."""
        if self.log is not None and self.returns[-1:] == [self.log.next - 1]:
            self._finish_writing()
        for link in self.links:
            self.cluster.end(link.actor)
        self.links = []
        if self.log is not None:
            self.log.close(keeps_files=self._folder is not None)

    def _finish_writing(self) -> None:
        """Let the shards write to their end the snapshots of a life that has ended; not for ever."""
        until = time.monotonic() + self._patience_s
        calls = [link.ask("finish_writing") for link in self.links if link.state == "learning"]
        for call in calls:
            with suppress(Exception):  # who is gone goes on from the snapshot before
                call.result(max(until - time.monotonic(), 0.0))

    # ---- the stream -------------------------------------------------------------------------------------------------

    def tell(self, entry: Entry, asked: Mapping[int, Integers], n_least: int) -> int:
        """Note an entry, send what there is to send, and return its number.

        Where somebody is asked, the others are told by `tell_others`, when the answers are there: shards that share a
        machine's processors would have the answers wait for the steps of all.

        Args:
            entry: What all are told.
            asked: Whose predictions are wanted after it, by the number of the shard: places there, shape (n_asked,).
            n_least: A message has at least so many entries.

        Raises:
            ValueError: If an observation has another number of channels than the first.
        """
        log = self._log_for(entry)
        number = log.append(entry)
        if entry.verb == CHANGE and entry.load.is_roster:
            self.changes[number] = entry.load
        for link in self.links:
            if not asked or link.number in asked:
                link.advance(log, n_least, asked.get(link.number))
        if number % _FORGET_EVERY == 0:
            log.forget(min((link.oldest for link in self.links if link.state != "lost"), default=0) + 1)
        return number

    def tell_others(self, n_least: int) -> None:
        """Send what `tell` kept back."""
        assert self.log is not None, "something was told"
        for link in self.links:
            link.advance(self.log, n_least)

    def _log_for(self, entry: Entry) -> RedoLog:
        """Return the log, which is made when the size of an observation is known."""
        log = self.log
        if entry.observation is None:
            return log or self._begin_log(0)
        n, known = entry.observation.size, log.row["observation"].shape[0] if log else 0
        if log is None or not known:
            return self._begin_log(n)
        if n != known:
            raise ValueError(f"observation must have {known} channels as before, not {n}")
        return log

    def _begin_log(self, n_channels: int, first: int = 1) -> RedoLog:
        """Make the log; before the size of an observation was known, demons alone have come or gone."""
        row, before = row_type(n_channels, self._n_active, self._n_features), self.log
        self.log = log = RedoLog(row, first, None if self.folder is None else self.folder / "redo")
        for number in range(before.first, before.next) if before is not None else ():
            log.append(Entry(CHANGE, load=self.changes.get(number)))
        return log

    def withdraw(self, number: int) -> None:
        """Take back a change that was refused: nobody is told it again."""
        del self.changes[number]
        assert self.log is not None, "it was told"
        self.log.drop_load(number)

    def keep(self) -> None:
        """Have the shards keep what they have learned by now, or soon after, and the disk the stream until here.

        What other lives have left in the folder is removed.
        """
        everybody = dict.fromkeys((link.number for link in self.links), True)
        number = self.tell(Entry(CHANGE, load=Change("keep", everybody)), {}, 1)
        self.returns[:] = [*self.returns, number][-N_RETURNS:]
        assert self.log is not None, "something was told"
        self.log.keep()
        for path in self._folder.glob(f"{_LIVES}*") if self._folder is not None else ():
            if path != self.folder:
                shutil.rmtree(path, ignore_errors=True)

    def raise_refusals(self) -> None:
        """Raise what shards refused since this was last asked.

        Raises:
            ValueError: If there is anything.
        """
        refused = [link.refused for link in self.links if link.refused]
        for link in self.links:
            link.refused = None
        if refused:
            raise ValueError(refused[0])

    # ---- waiting, and asking ----------------------------------------------------------------------------------------

    def lag(self, link: Link) -> int:
        """Return how many entries a shard is behind."""
        return 0 if self.log is None else self.log.next - 1 - link.done

    def hold_back(self) -> None:
        """Wait until no shard that learns is too far behind; for one that does not answer at all, not for long."""
        assert self.log is not None, "something was told"
        for link in self.links:
            while link.state == "learning" and self.lag(link) > NEAR and link.is_busy and not link.is_late:
                link.is_late = not link.wait(_LATE_S)
                link.advance(self.log, 1)

    def wait(self, *, must: bool) -> None:
        """Wait until all shards have taken all entries; unless they must, not for those that are away."""
        while self.log is not None:
            for link in self.links:
                link.advance(self.log, 1)
            waiting = [link for link in self.links if link.state != "lost" and self.lag(link)]
            waiting = [link for link in waiting if must or link.state == "learning"]
            if not waiting:
                return
            busy = next((link for link in waiting if link.is_busy), None)
            if busy is not None:
                busy.wait(0.05)
            else:
                time.sleep(0.01)  # a process comes up

    def gather(self, verb: str, *given: Any, must: bool = False) -> list[tuple[Link, Any]]:
        """Ask all shards, after every entry, and return what each says; those that are away are left out.

        Args:
            verb: A method of `Shard`.
            given: Its arguments, or a function of a link that returns them.
            must: Wait for those that are away.
        """
        found: dict[int, Any] = {}
        while True:
            self.wait(must=must)
            asked = [link for link in self.links if link.state == "learning" and link.number not in found]
            calls = [(link, link.ask(verb, *_given_to(link, given))) for link in asked]
            for link, call in calls:
                error = call.exception()
                if error is None:
                    found[link.number] = call.result()
                else:
                    link.notice(error)
            if not must or all(link.state == "lost" or link.number in found for link in self.links):
                return [(link, found[link.number]) for link in self.links if link.number in found]

    def status(self) -> list[ShardStatus]:
        """Return what is known of each shard, without waiting; one that is away is helped back by looking."""
        for link in self.links:
            if self.log is not None:
                link.advance(self.log, 1 if link.state == "recovering" else BATCH)
        return [link.status(self.log) for link in self.links]

    def places_of(self, places: Integers) -> list[tuple[Link, Integers, Integers]]:
        """Return of each shard that has any of these demons, (n,): their places there, and in `places`."""
        found = []
        for link in self.links:
            here = np.minimum(np.searchsorted(link.demons, places), link.demons.size - 1)
            own = np.flatnonzero(link.demons[here] == places)
            if own.size:
                found.append((link, here[own], own))
        return found


def _given_to(link: Link, given: Sequence[Any]) -> Sequence[Any]:
    """Return the arguments for a shard."""
    if len(given) == 1 and callable(given[0]):
        of_link: Callable[[Link], Sequence[Any]] = given[0]
        return of_link(link)
    return given
