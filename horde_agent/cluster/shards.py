"""Start all shards, send them the stream, wait for them, query them, and stop them."""

from __future__ import annotations

import shutil
import time
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import TimeoutError as Late
from pathlib import Path
from typing import Any

import numpy as np

from horde_agent.cluster.errors import ClusterError
from horde_agent.cluster.link import Link, PendingReply, ShardStatus
from horde_agent.cluster.plan import Cut
from horde_agent.cluster.runtime import Cluster
from horde_agent.cluster.shard import Made, Making, Message, folder_of, packed, versions
from horde_agent.cluster.stream import BATCH, CHANGE, Change, Entry, Outbox
from horde_agent.horde import Mode
from horde_agent.record.snapshots import SnapshotDamaged, read_manifest
from horde_agent.record.snapshots import found as snapshots_in
from horde_agent.saving import State
from horde_agent.types import Integers

IN_FLIGHT = {"eager": 2, "deferred": 4}
"""Messages to a shard that are not answered yet; while each shard has so many, entries are collected."""
_LEAST = {"eager": 1, "deferred": BATCH}  # entries in a message
_LIVES = "life-"  # folders of snapshots, one for each life
_POLL_S = 0.1


class Shards:
    """The shards of a Horde, and the stream as it is sent to them.

    Args:
        cluster: Where they run.
        folder: For their snapshots; None if there are none.
        life: Name of the life in that folder: snapshots of another life must not be taken for its own.
        mode: As in `Horde`.
        patience_s: Seconds without a reply after which a shard counts as lost.

    Attributes:
        links: The driver's end of each shard.
        n_entries: Entries of the stream so far.
    """

    def __init__(self, cluster: Cluster, folder: Path | None, life: str, mode: Mode, patience_s: float) -> None:
        self.cluster, self._folder, self.life, self._mode = cluster, folder, life, mode
        self._patience_s, self.links, self.n_entries = patience_s, list[Link](), 0
        self._outbox: Outbox | None = None
        self._size = (0, 0)
        self._kept_back: tuple[bytes, list[Link]] = b"", []

    @property
    def folder(self) -> Path | None:
        """Where the snapshots of this life are."""
        return None if self._folder is None else self._folder / f"{_LIVES}{self.life}"

    # ---- starting and stopping --------------------------------------------------------------------------------------

    def start(self, cuts: Sequence[Cut], makings: Sequence[Making], n_bytes: Sequence[int], n_threads: int) -> None:
        """Start a process for each shard, and make its Horde.

        Args:
            cuts: Their demons.
            makings: Their arguments.
            n_bytes: Memory that each takes.
            n_threads: Of each.

        Raises:
            ClusterError: If one cannot be made; `close` ends the others.
        """
        for number, cut in enumerate(cuts):
            actor = self.cluster.actor(number, n_threads, n_bytes[number])
            self.links.append(Link(number, cut.demons, self.cluster, actor, self._patience_s))
        self._size = makings[0].n_active, makings[0].n_features
        replies = [link.ask("make", making) for link, making in zip(self.links, makings, strict=True)]
        for link, reply in zip(self.links, replies, strict=True):
            made = self._made(link, reply)
            _check(made, versions(), link.number)
            link.starts(made)

    def _made(self, link: Link, reply: PendingReply) -> Made:
        """Return a shard's reply to `make`."""
        try:
            return reply.result(self._patience_s)  # type: ignore[no-any-return]
        except Late:
            raise ClusterError(f"shard {link.number} did not start: the cluster has no room for it") from None
        except Exception as error:
            cause = self.cluster.cause(error)
            if isinstance(cause, ValueError):
                raise ClusterError(str(cause)) from None
            if self.cluster.is_loss(error):
                raise ClusterError(f"shard {link.number} did not start: {error}") from None
            raise cause from None

    def fit(self) -> tuple[int, int]:
        """Return the least number of channels of an observation, and the number of actions, 0 if no policy says.

        Raises:
            ClusterError: If shards expect different numbers of actions.
        """
        facts = [answer for _, answer in self.gather("fits")]
        counts = {n_actions for _, n_actions in facts} - {0}
        if len(counts) > 1:
            raise ClusterError(f"the target policies have different numbers of actions: {sorted(counts)}")
        return max((n for n, _ in facts), default=0), counts.pop() if counts else 0

    def drop(self, link: Link) -> None:
        """End a shard without demons."""
        self.cluster.end(link.actor)
        self.links.remove(link)

    def close(self) -> None:
        """End all shards. Closing twice does nothing."""
        for link in self.links:
            self.cluster.end(link.actor)
        self.links = []

    # ---- the stream -------------------------------------------------------------------------------------------------

    def send(self, entry: Entry, asked: Mapping[int, Integers] | None = None, change: Change | None = None) -> int:
        """Add an entry to the stream, send what is to be sent, and return its number.

        In eager mode, if predictions are asked for, their shards alone are sent the entry: the others follow by
        `send_to_others`, after the answers, because shards that share processors would delay them.

        Args:
            entry: Sent to all shards.
            asked: Demons whose predictions are wanted after it, by the number of their shard: their places there, shape
                (n_asked,).
            change: The change that an entry with the verb CHANGE makes.

        Raises:
            ValueError: If an observation has another number of channels than the first.
            ShardLost: If a shard is gone.
        """
        self.send_to_others()
        outbox = self._outbox_for(entry)
        self.look()
        outbox.append(entry)
        self.n_entries += 1
        is_answered = bool(asked) and self._mode == "eager"
        if is_answered or entry.verb == CHANGE:
            self._post(asked or {}, change, some=is_answered)
        elif outbox.n >= _LEAST[self._mode] and (outbox.n == BATCH or self._has_room()):
            self._post(asked or {})
        return self.n_entries

    def send_to_others(self) -> None:
        """Send what `send` kept back."""
        (message, links), self._kept_back = self._kept_back, (b"", [])
        for link in links:
            self._send_to(link, message)

    def flush(self) -> None:
        """Send all entries that are not sent yet."""
        self.send_to_others()
        if self._outbox is not None and self._outbox.n:
            self._post({})

    def look(self) -> None:
        """Read the replies that have arrived."""
        for link in self.links:
            link.look()

    def _has_room(self) -> bool:
        return all(link.n_in_flight < IN_FLIGHT[self._mode] for link in self.links)

    def _post(self, asked: Mapping[int, Integers], change: Change | None = None, *, some: bool = False) -> None:
        """Send the entries in the outbox to all shards; if `some`, to those asked, and keep them for the others."""
        assert self._outbox is not None, "there are entries"
        message = Message(self._outbox.take(), self._outbox.n_channels, None, None)
        same = packed(message)
        for link in self.links:
            own = asked.get(link.number)
            if own is None and some:
                continue
            part = None if change is None else change.part(link.number)
            plain = own is None and part is None
            to_it = same if plain else packed(message._replace(change=part, asked=own))
            self._send_to(link, to_it, is_asked=own is not None)
        if some:
            self._kept_back = same, [link for link in self.links if link.number not in asked]

    def _send_to(self, link: Link, message: bytes, *, is_asked: bool = False) -> None:
        """Send a message, after there is room for it."""
        while link.n_in_flight >= IN_FLIGHT[self._mode]:
            link.wait()
        link.send(message, self.n_entries, is_asked=is_asked)

    def _outbox_for(self, entry: Entry) -> Outbox:
        """Return the outbox, made when the size of an observation is known; until then there are changes alone."""
        n = self._outbox.n_channels if self._outbox is not None else 0
        wanted = n if entry.observation is None else entry.observation.size
        if n and n != wanted:
            raise ValueError(f"observation must have {n} channels as before, not {wanted}")
        if self._outbox is None or n != wanted:
            self._outbox = Outbox(wanted, *self._size)
        return self._outbox

    @property
    def n_channels(self) -> int:
        """Channels of the observations so far; 0 before the first one."""
        return 0 if self._outbox is None else self._outbox.n_channels

    def raise_refusals(self) -> None:
        """Raise what shards refused since the last call.

        Raises:
            ValueError: If there is anything.
        """
        refused = [link.refused for link in self.links if link.refused]
        for link in self.links:
            link.refused = None
        if refused:
            raise ValueError(refused[0])

    # ---- snapshots --------------------------------------------------------------------------------------------------

    def save(self) -> int:
        """Let all shards copy their state after this entry and write it in the background; return its number.

        Snapshots of other lives in the folder are removed.
        """
        assert self._folder is not None, "there is a folder"
        for path in self._folder.glob(f"{_LIVES}*"):
            if path != self.folder:
                shutil.rmtree(path, ignore_errors=True)
        everybody = dict.fromkeys((link.number for link in self.links), str(self.folder))
        return self.send(Entry(CHANGE), change=Change("save", everybody))

    def wait_for_snapshot(self, at: int) -> None:
        """Wait until all shards have written their snapshot of an entry; from any thread.

        Raises:
            OSError: If one could not write it.
            ShardLost: If a shard is gone.
        """
        for link in self.links if self.folder is not None else ():
            while (told := link.result(link.ask("written"), self._patience_s))[0] < at:
                time.sleep(_POLL_S)
            if told[1]:
                raise OSError(0, told[1])

    def drop_snapshots(self, before: int) -> None:
        """Remove the snapshots of entries before this one."""
        self._remove(lambda at: at < before)

    def _remove(self, is_unused: Callable[[int], bool]) -> None:
        for link in self.links if self.folder is not None else ():
            for path in snapshots_in(folder_of(self.folder, link.number)):  # type: ignore[arg-type]
                if is_unused(int(path.name)):
                    shutil.rmtree(path)

    def restore(self, life: str, at: int, n_channels: int, states: Mapping[int, State]) -> None:
        """Return all shards to an entry.

        Args:
            life: Name of the life in the folder.
            at: Number of the entry.
            n_channels: Channels of the observations until then.
            states: State of each shard, by its number; if empty, each reads its snapshot.

        Raises:
            ClusterError: If a snapshot is missing or damaged.
        """
        self.flush()
        self.life, self.n_entries = life, at
        self._outbox = Outbox(n_channels, *self._size)
        if states:
            replies = [link.ask("restore", states[link.number]) for link in self.links]
        else:
            self._remove(lambda other: other > at)  # of steps that are going to be taken again
            replies = [link.ask("restore_from", str(self.folder), at) for link in self.links]
        self.look()
        for link, reply in zip(self.links, replies, strict=True):
            link.n_updates = link.result(reply)
            link.done = at

    # ---- waiting and asking -----------------------------------------------------------------------------------------

    def wait(self) -> None:
        """Wait until all shards have taken all entries.

        Raises:
            ShardLost: If one is gone, or does not answer.
        """
        self.flush()
        self.look()
        for link in self.links:
            while link.n_in_flight:
                link.wait()

    def gather(self, verb: str, *given: Any) -> list[tuple[Link, Any]]:
        """Call a method of each shard after all entries, and return what each answers.

        Args:
            verb: A method of `Shard`.
            given: Its arguments, or a function of a link that returns them.
        """
        self.wait()
        replies = [(link, link.ask(verb, *_given_to(link, given))) for link in self.links]
        return [(link, link.result(reply)) for link, reply in replies]

    def status(self) -> list[ShardStatus]:
        """Return what is known of each shard, without waiting."""
        return [link.status(self.n_entries) for link in self.links]

    def places_of(self, places: Integers) -> list[tuple[Link, Integers, Integers]]:
        """Return for each shard with any of these demons, (n,): their places there, and in `places`."""
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


def _check(made: Made, here: Mapping[str, str], number: int) -> None:
    """Refuse a shard with other versions than this process has.

    Raises:
        ClusterError: If one differs.
    """
    for what, version in here.items():
        if made.versions[what] != version:
            name, told = what, f"{made.versions[what]}, not {version}"
            if what == "code":
                name, told = "horde_agent", "other files"
            raise ClusterError(
                f"shard {number} on {made.node} has another {name} than this process ({told}): install the same "
                "versions on all machines"
            )


def check_snapshots(folder: Path, life: str, at: int, n_shards: int) -> None:
    """Check that each shard's snapshot of an entry is there, without reading the weights.

    Args:
        folder: As in `Shards`.
        life: Name of the life.
        at: Number of the entry.
        n_shards: Shards that wrote one.

    Raises:
        SnapshotDamaged: If one is missing, or its manifest is damaged.
    """
    for path in (folder / f"{_LIVES}{life}").glob("shard-*"):
        n_shards -= (path / f"{at:012d}").is_dir()
        if (path / f"{at:012d}").is_dir():
            read_manifest(path / f"{at:012d}")
    if n_shards:
        raise SnapshotDamaged(f"snapshots of {n_shards} shards at entry {at:,} are missing in {folder}")
