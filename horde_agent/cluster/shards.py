"""The driver's side of the shards: start, send the stream, wait, query, snapshot and stop."""

from __future__ import annotations

import shutil
import time
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import TimeoutError as Late
from pathlib import Path
from pickle import loads as unpacked
from typing import Any, Literal, NamedTuple, NoReturn

import numpy as np

from horde_agent.cluster.runtime import Cluster, PendingReply
from horde_agent.cluster.shard import (
    BATCH,
    CHANGE,
    ClusterError,
    Report,
    ShardLost,
    ShardSpec,
    folder_of,
    packed,
    row_type,
    versions,
)
from horde_agent.horde import Mode
from horde_agent.record.snapshots import SnapshotDamaged, read_manifest
from horde_agent.record.snapshots import found as snapshots_in
from horde_agent.saving import State
from horde_agent.types import Floats, Integers, Tiles

IN_FLIGHT = {"eager": 2, "deferred": 4}
"""Maximum number of unanswered messages to a shard; meanwhile, entries are collected."""
_LEAST = {"eager": 1, "deferred": BATCH}  # entries in a message
_LIFE = "life-"  # prefix of a life's folder of snapshots
_POLL_S = 0.1


class ShardStatus(NamedTuple):
    """State of a shard, as last reported.

    Attributes:
        number: Its number.
        n_demons: Number of its demons.
        lag: Number of entries of the stream that it has not confirmed.
        n_bytes: Memory of its process, as last reported.
        node: Name of its machine.
        process: Id of its process.
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


class Link:
    """The driver's end of one shard, whose process is `actor`.

    Attributes:
        demons: Positions of its demons in the whole Horde, ascending, shape (n_demons,).
        n_confirmed: Number of entries that it has confirmed.
        n_updates: Number of demons that learned, summed over its steps.
        n_diverged: Number of its diverged demons.
        predictions: The latest requested predictions.
        refusal: Why it refused an entry; the reader sets it to None.
        node, process: Name of its machine, id of its process.
        why_lost: Why it was lost, or "".
    """

    def __init__(self, number: int, demons: Integers, cluster: Cluster, actor: Any, patience_s: float) -> None:
        self.number, self.demons = number, demons
        self._cluster, self.actor, self._patience_s = cluster, actor, patience_s
        self.n_confirmed = self.n_updates = self.n_diverged = self._n_bytes = 0
        self.predictions: Any = None
        self.refusal: str | None = None
        self.node, self.process, self.why_lost = "", 0, ""
        self._in_flight: deque[tuple[PendingReply, int, bool]] = deque()  # last entry, whether it has a request

    @property
    def n_in_flight(self) -> int:
        """Number of unanswered messages."""
        return len(self._in_flight)

    @property
    def n_demons(self) -> int:
        """Number of its demons."""
        return int(self.demons.size)

    def send(self, message: bytes, last: int, *, has_request: bool) -> None:
        """Send a message for `Shard.receive` that ends with entry number `last`."""
        self._in_flight.append((self.call("receive", message), last, has_request))

    def read_replies(self) -> None:
        """Read the replies that have arrived; raise as `wait` does."""
        if self.why_lost:
            self._lose(self.why_lost)
        while self._in_flight and self._in_flight[0][0].done():
            self.wait()

    def wait(self) -> None:
        """Wait for the reply to the oldest message; raise as `result` does."""
        reply, last, has_request = self._in_flight.popleft()
        report = Report(*unpacked(self.result(reply)))
        self.n_confirmed, self.n_updates, self.n_diverged = last, report.n_updates, report.n_diverged
        self._n_bytes = report.n_bytes or self._n_bytes
        self.refusal = report.refusal or self.refusal
        if has_request:
            self.predictions = report.predictions

    def call(self, method: str, *arguments: Any) -> PendingReply:
        """Call a method of `Shard`; it runs after everything that was sent."""
        return self._cluster.call(self.actor, method, *arguments)

    def result(self, reply: PendingReply) -> Any:
        """Wait for a reply and return it.

        Raises:
            ShardLost: If the shard is gone, or did not reply for `patience_s`.
            BaseException: The exception that was raised there, for example by a question's function.
        """
        try:
            error = reply.exception(self._patience_s)
        except Late:
            self._lose(f"it did not answer for {self._patience_s:g} s")
        if error is None:
            return reply.result()
        if self._cluster.is_loss(error):
            self._lose((str(error).strip().splitlines() or ["its process is gone"])[0])
        raise self._cluster.cause(error)

    def _lose(self, why: str) -> NoReturn:
        self.why_lost = why
        raise ShardLost(self.number, self.n_demons, why)

    def status(self, n_entries: int) -> ShardStatus:
        """Return its status after `n_entries` entries of the stream."""
        facts = (self.n_demons, n_entries - self.n_confirmed, self._n_bytes, self.node, self.process)
        return ShardStatus(self.number, *facts, "lost" if self.why_lost else "learning", self.why_lost)


class Shards:
    """The shards of a Horde, and the stream as it is sent to them.

    Args:
        cluster: Runs them.
        folder: For their snapshots; None for none.
        life: Name of the life in that folder, which separates its snapshots from those of other lives.
        mode: As in `Horde`.
        patience_s: Seconds without a reply after which a shard counts as lost.

    Attributes:
        links: The driver's end of each shard.
        n_entries: Number of entries of the stream.
        n_channels: Number of channels of the observations; 0 before the first one.
    """

    def __init__(self, cluster: Cluster, folder: Path | None, life: str, mode: Mode, patience_s: float) -> None:
        self.cluster, self._folder, self.life, self._mode = cluster, folder, life, mode
        self._patience_s, self.links, self.n_entries = patience_s, list[Link](), 0
        self._size = (0, 0)
        self._set_channels(0)
        self._postponed: tuple[bytes, list[Link]] = b"", []

    def _set_channels(self, n_channels: int) -> None:
        """Set the number of channels; no entry is waiting."""
        self.n_channels, self._n = n_channels, 0  # entries that are not sent yet
        self._rows = np.zeros(BATCH, dtype=row_type(n_channels, *self._size))

    @property
    def folder(self) -> Path | None:
        """The folder of this life's snapshots."""
        return None if self._folder is None else self._folder / f"{_LIFE}{self.life}"

    # ---- starting and stopping --------------------------------------------------------------------------------------

    def start(
        self, demons: Sequence[Integers], specs: Sequence[ShardSpec], n_bytes: Sequence[int], n_threads: int
    ) -> None:
        """Start a process for each shard, and make its Horde.

        Args:
            demons: Positions of each one's demons in the whole Horde, ascending, shape (n_demons,).
            specs: Their arguments.
            n_bytes: Memory of each.
            n_threads: Number of threads of each.

        Raises:
            ClusterError: If one cannot be made, or has other versions; `close` ends the others.
        """
        for number, own in enumerate(demons):
            actor = self.cluster.actor(number, n_threads, n_bytes[number])
            self.links.append(Link(number, own, self.cluster, actor, self._patience_s))
        self._size = specs[0].n_active, specs[0].n_features
        self._set_channels(0)
        replies = [link.call("make", spec) for link, spec in zip(self.links, specs, strict=True)]
        for link, reply in zip(self.links, replies, strict=True):
            try:
                there, link.node, link.process = link.result(reply)
            except ShardLost as lost:
                why = f"shard {link.number} did not start ({lost.why}): the cluster may have no room for it"
                raise ClusterError(why) from None
            except ValueError as error:
                raise ClusterError(str(error)) from None
            for name, version in versions().items():
                if there[name] != version:
                    what = "another horde_agent" if name == "code" else f"{name} {there[name]} instead of {version}"
                    raise ClusterError(
                        f"shard {link.number} on {link.node} has {what}: install the same versions on all machines"
                    )

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

    def send(
        self,
        verb: int,
        state: tuple[Floats, Tiles] | None = None,
        action: int = 0,
        probability: float = 0.0,
        requested: Mapping[int, Integers] | None = None,
        change: tuple[str, Mapping[int, Any]] | None = None,
    ) -> None:
        """Append an entry to the stream, and send it unless it waits for others.

        In eager mode, if predictions are requested, only their shards are sent the entry now; the others get it by
        `send_postponed`, after the replies, because shards on the same processors would delay them.

        Args:
            verb: BEGIN, LEARN, LEARN_LAST, CATCH_UP or CHANGE.
            state: Observation, (n_channels,), and tiles, (n_active,), of the state reached.
            action: Action taken.
            probability: b(action).
            requested: Demons to return predictions of after it, by the number of their shard: their positions there,
                shape (n_requested,).
            change: Of CHANGE: "add", "remove", "reset" or "save", and the argument for each shard concerned, by its
                number: pickled questions; names; theta of shape (n, n_features), or None for zeros; a folder.

        Raises:
            ValueError: If an observation has another number of channels than the first.
            ShardLost: If a shard is gone.
        """
        self.send_postponed()
        if state is not None and state[0].size != self.n_channels:
            if self.n_channels:
                raise ValueError(f"observation must have {self.n_channels} channels as before, not {state[0].size}")
            self.flush()
            self._set_channels(state[0].size)
        for link in self.links:
            link.read_replies()
        self._rows[self._n] = np.zeros((), self._rows.dtype) if state is None else (verb, action, probability, *state)
        self._rows["verb"][self._n] = verb
        self._n, self.n_entries = self._n + 1, self.n_entries + 1
        is_urgent = bool(requested) and self._mode == "eager"
        has_room = all(link.n_in_flight < IN_FLIGHT[self._mode] for link in self.links)
        is_due = self._n == BATCH or (self._n >= _LEAST[self._mode] and has_room)
        if is_urgent or is_due or verb == CHANGE:
            self._post(requested or {}, change, postpones=is_urgent)

    def send_postponed(self) -> None:
        """Send the message that `send` postponed."""
        (message, links), self._postponed = self._postponed, (b"", [])
        for link in links:
            self._send_to(link, message)

    def flush(self) -> None:
        """Send all entries that are not sent yet."""
        self.send_postponed()
        if self._n:
            self._post({})

    def _post(
        self,
        requested: Mapping[int, Integers],
        change: tuple[str, Mapping[int, Any]] | None = None,
        *,
        postpones: bool = False,
    ) -> None:
        """Send the entries to all shards; if `postpones`, only to those with requests."""
        rows, self._n = self._rows[: self._n].tobytes(), 0
        what, by_shard = change or ("", {})
        common = packed((rows, self.n_channels, None, None))
        for link in self.links:
            own = requested.get(link.number)
            if own is None and postpones:
                continue
            part = (what, by_shard[link.number]) if link.number in by_shard else None
            is_common = own is None and part is None
            data = common if is_common else packed((rows, self.n_channels, part, own))
            self._send_to(link, data, has_request=own is not None)
        if postpones:
            self._postponed = common, [link for link in self.links if link.number not in requested]

    def _send_to(self, link: Link, message: bytes, *, has_request: bool = False) -> None:
        while link.n_in_flight >= IN_FLIGHT[self._mode]:
            link.wait()
        link.send(message, self.n_entries, has_request=has_request)

    def raise_refusals(self) -> None:
        """Raise the first refusal since the last call, as ValueError."""
        refusals = [link.refusal for link in self.links if link.refusal]
        for link in self.links:
            link.refusal = None
        if refusals:
            raise ValueError(refusals[0])

    # ---- waiting and queries ----------------------------------------------------------------------------------------

    def wait(self) -> None:
        """Wait until all shards have confirmed all entries; raise ShardLost if one is gone, or does not reply."""
        self.flush()
        for link in self.links:
            link.read_replies()
        for link in self.links:
            while link.n_in_flight:
                link.wait()

    def gather(self, method: str, arguments: Callable[[Link], Sequence[Any]] = lambda _: ()) -> list[tuple[Link, Any]]:
        """Call a method of each shard, with `arguments` of its link, after all entries, and return the results."""
        self.wait()
        replies = [(link, link.call(method, *arguments(link))) for link in self.links]
        return [(link, link.result(reply)) for link, reply in replies]

    def status(self) -> list[ShardStatus]:
        """Return the status of each shard, without waiting."""
        return [link.status(self.n_entries) for link in self.links]

    def locate(self, demons: Integers) -> list[tuple[Link, Integers, Integers]]:
        """Return for each shard with any of these demons, (n,): their positions there, and in `demons`."""
        found = []
        for link in self.links:
            here = np.minimum(np.searchsorted(link.demons, demons), link.demons.size - 1)
            own = np.flatnonzero(link.demons[here] == demons)
            if own.size:
                found.append((link, here[own], own))
        return found

    # ---- snapshots --------------------------------------------------------------------------------------------------

    def save(self) -> None:
        """Make all shards copy their state after this entry and write it in the background.

        Snapshots of other lives in the folder are removed.
        """
        assert self._folder is not None
        for path in self._folder.glob(f"{_LIFE}*"):
            if path != self.folder:
                shutil.rmtree(path, ignore_errors=True)
        folders = dict.fromkeys((link.number for link in self.links), str(self.folder))
        self.send(CHANGE, change=("save", folders))

    def wait_for_snapshot(self, n_entries: int) -> None:
        """Wait until all shards have written their snapshot after `n_entries` entries; from any thread.

        Raises:
            OSError: If one could not write it.
            ShardLost: If a shard is gone.
        """
        for link in self.links if self.folder is not None else ():
            while (written := link.result(link.call("written")))[0] < n_entries:
                time.sleep(_POLL_S)
            if written[1]:
                raise OSError(0, written[1])

    def drop_snapshots(self, is_unused: Callable[[int], bool]) -> None:
        """Remove each snapshot if `is_unused` returns True for its number of entries."""
        for link in self.links if self.folder is not None else ():
            for path in snapshots_in(folder_of(self.folder, link.number)):  # type: ignore[arg-type]
                if is_unused(int(path.name)):
                    shutil.rmtree(path)

    def restore(self, life: str, n_entries: int, n_channels: int, states: Mapping[int, State]) -> None:
        """Return all shards to the state after `n_entries` entries of a life.

        Without `states`, by number of the shard, each reads its snapshot.

        Raises:
            ClusterError: If a snapshot is missing or damaged.
        """
        self.wait()
        self.life, self.n_entries = life, n_entries
        self._set_channels(n_channels)
        if not states:
            self.drop_snapshots(lambda other: other > n_entries)  # their steps will be taken again
        sources = [states.get(link.number, str(self.folder)) for link in self.links]
        replies = [link.call("restore", source, n_entries) for link, source in zip(self.links, sources, strict=True)]
        for link, reply in zip(self.links, replies, strict=True):
            link.n_updates, link.n_confirmed = link.result(reply), n_entries


def check_snapshots(folder: Path, life: str, n_entries: int, n_shards: int) -> None:
    """Check that all shards have a snapshot after `n_entries` entries of a life, without reading the weights.

    Raises:
        SnapshotDamaged: If one is missing, or its manifest is damaged.
    """
    found = [*(folder / f"{_LIFE}{life}").glob(f"shard-*/{n_entries:012d}")]
    for path in found:
        read_manifest(path)
    if len(found) != n_shards:
        raise SnapshotDamaged(
            f"snapshots of {n_shards - len(found)} shards after entry {n_entries:,} are missing in {folder}"
        )
