"""The driver's side of the shards: start, send the stream, wait, query and stop."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Mapping, Sequence
from pickle import loads as unpacked
from typing import Any, Literal, NoReturn

import numpy as np

from horde_agent.cluster.runtime import Cluster, Unreachable
from horde_agent.cluster.shard import (
    BATCH,
    CHANGE,
    ClusterError,
    Report,
    ShardLost,
    ShardSpec,
    entry_dtype,
    packed,
    versions,
)
from horde_agent.horde import Mode
from horde_agent.learner import ShardStatus
from horde_agent.types import Floats, Integers, Tiles

IN_FLIGHT = {"eager": 2, "deferred": 4}
"""Maximum number of unanswered messages to a shard; meanwhile, entries are collected."""
_LEAST = {"eager": 1, "deferred": BATCH}  # entries in a message


class Link:
    """The driver's end of one shard; `actor` is its process.

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

    def __init__(
        self,
        number: int,
        demons: Integers,
        cluster: Cluster,
        actor: Any,
        patience_s: float,
        most_in_flight: int,
    ) -> None:
        self.number = number
        self.demons = demons
        self._cluster = cluster
        self.actor = actor
        self._patience_s = patience_s
        self._most_in_flight = most_in_flight
        self.n_confirmed = 0
        self.n_updates = 0
        self.n_diverged = 0
        self._n_bytes = 0
        self.predictions: Any = None
        self.refusal: str | None = None
        self.node = ""
        self.process = 0
        self.why_lost = ""
        # Reply, last entry, whether it has a request
        self._in_flight: deque[tuple[Any, int, bool]] = deque()

    @property
    def n_in_flight(self) -> int:
        """Number of unanswered messages."""
        return len(self._in_flight)

    @property
    def n_demons(self) -> int:
        """Number of its demons."""
        return int(self.demons.size)

    def send(self, message: bytes, last: int, *, has_request: bool) -> None:
        """Send a message for `Shard.receive` that ends with entry number `last`, once few enough are unanswered."""
        while self.n_in_flight >= self._most_in_flight:
            self.wait()
        self._in_flight.append((self.call("receive", message), last, has_request))

    def read_replies(self) -> None:
        """Read the replies that have arrived; raise as `wait` does."""
        if self.why_lost:
            self._lose(self.why_lost)
        while self._in_flight and self._cluster.has_arrived(self._in_flight[0][0]):
            self.wait()

    def wait(self) -> None:
        """Wait for the reply to the oldest message; raise as `result` does."""
        reply, last, has_request = self._in_flight.popleft()
        report = Report(*unpacked(self.result(reply)))
        self.n_confirmed = last
        self.n_updates = report.n_updates
        self.n_diverged = report.n_diverged
        self._n_bytes = report.n_bytes or self._n_bytes
        self.refusal = report.refusal or self.refusal
        if has_request:
            self.predictions = report.predictions

    def call(self, method: str, *arguments: Any) -> Any:
        """Call a method of `Shard`, which runs after everything that was sent; return the reply, for `result`."""
        return self._cluster.call(self.actor, method, *arguments)

    def result(self, reply: Any) -> Any:
        """Wait for a reply and return it; raise ShardLost if the shard is gone, or did not reply for `patience_s`.

        An exception that was raised there, for example by a question's function, is raised here.
        """
        try:
            return self._cluster.result(reply, self._patience_s)
        except Unreachable as error:
            self._lose(str(error))

    def _lose(self, why: str) -> NoReturn:
        self.why_lost = why
        raise ShardLost(self.number, self.n_demons, why)

    def status(self, n_entries: int) -> ShardStatus:
        """Return its status after `n_entries` entries of the stream."""
        state: Literal["learning", "lost"] = "learning"
        if self.why_lost:
            state = "lost"
        return ShardStatus(
            number=self.number,
            n_demons=self.n_demons,
            lag=n_entries - self.n_confirmed,
            n_bytes=self._n_bytes,
            node=self.node,
            process=self.process,
            state=state,
            why=self.why_lost,
        )


class ShardStream:
    """The shards of a Horde, and the stream of entries that all of them receive.

    Args:
        n_features, n_active, mode: As in `Horde`.
        cluster: Runs them.
        patience_s: Seconds without a reply after which a shard counts as lost.

    Attributes:
        links: The driver's end of each shard.
        n_entries: Number of entries of the stream so far, which names the shards' snapshots.
        n_channels: Number of channels of an observation, 0 before the first one.
    """

    def __init__(
        self,
        n_features: int,
        n_active: int,
        mode: Mode,
        cluster: Cluster,
        patience_s: float,
    ) -> None:
        self.n_features = n_features
        self.n_active = n_active
        self.mode = mode
        self._cluster = cluster
        self._patience_s = patience_s
        self.links: list[Link] = []
        self.n_entries = 0
        self._set_channels(0)
        self._postponed: tuple[bytes, list[Link]] = b"", []

    def _set_channels(self, n_channels: int) -> None:
        """Set the number of channels of the observations, 0 before the first one; no entry is waiting."""
        # Entries that are not sent yet
        self.n_channels = n_channels
        self._n = 0
        self._entries = np.zeros(
            BATCH, dtype=entry_dtype(n_channels, self.n_active, self.n_features)
        )

    # ---- starting and stopping --------------------------------------------------------------------------------------

    def start(
        self,
        demons: Sequence[Integers],
        specs: Sequence[ShardSpec],
        n_bytes: Sequence[int],
        n_threads: int,
    ) -> None:
        """Start a process with `n_threads` for each shard, and make its Horde.

        `demons` are the positions of each one's demons in the whole Horde, ascending, shape
        (n_demons,), `specs` their arguments and `n_bytes` their memory. Raise ClusterError if one
        cannot be made, or has other versions.
        """
        for number, demons_of_shard in enumerate(demons):
            actor = self._cluster.actor(number, n_threads, n_bytes[number])
            link = Link(
                number=number,
                demons=demons_of_shard,
                cluster=self._cluster,
                actor=actor,
                patience_s=self._patience_s,
                most_in_flight=IN_FLIGHT[self.mode],
            )
            self.links.append(link)
        replies = [link.call("make", spec) for link, spec in zip(self.links, specs, strict=True)]
        for link, reply in zip(self.links, replies, strict=True):
            try:
                shard_versions, link.node, link.process = link.result(reply)
            except ShardLost as lost:
                why = f"shard {link.number} did not start ({lost.why}): the cluster may have no room for it"
                raise ClusterError(why) from None
            except ValueError as error:
                raise ClusterError(str(error)) from None
            for name, version in versions().items():
                if shard_versions[name] != version:
                    difference = "another horde_agent"
                    if name != "code":
                        difference = f"{name} {shard_versions[name]} instead of {version}"
                    raise ClusterError(
                        f"shard {link.number} on {link.node} has {difference}: install the same versions "
                        "on all machines"
                    )

    def drop(self, link: Link) -> None:
        """End a shard that has no demons left."""
        self._cluster.end(link.actor)
        self.links.remove(link)

    def close(self) -> None:
        """End the shards, and Ray if it was started here. Closing twice does nothing."""
        for link in self.links:
            self._cluster.end(link.actor)
        self.links = []
        self._cluster.close()

    # ---- the stream -------------------------------------------------------------------------------------------------

    def send(
        self,
        verb: int,
        state: tuple[Floats, Tiles] | None = None,
        action: int = 0,
        probability: float = 0.0,
        requested: Mapping[int, Integers] | None = None,
        change: tuple[str, Mapping[int, Any]] | None = None,
        *,
        reward: float = np.nan,
    ) -> None:
        """Append an entry to the stream, and send it unless it waits for others; raise ShardLost if a shard is gone.

        In eager mode, if predictions are requested, only their shards are sent the entry now; the
        others get it by `_send_postponed`, after the replies, because shards on the same processors
        would delay them.

        Args:
            verb: BEGIN, LEARN, LEARN_LAST, CATCH_UP or CHANGE.
            state: Observation, (n_channels,), and tiles, (n_active,), of the state reached.
            action: Action taken.
            probability: b(action).
            requested: Positions of the demons to return predictions of, (n_requested,), by number
                of their shard.
            reward: Reward of the transition; NaN if unknown.
            change: "add", "remove", "reset", "offsets" or "save", and its argument by number of the
                shard: pickled questions; names; theta of shape (n, n_features), or None for zeros;
                offsets, (n,), and sums, (2, n); a folder.
        """
        self.send_postponed()
        if state is not None and state[0].size != self.n_channels:
            if self.n_channels:
                raise ValueError(
                    f"observation must have {self.n_channels} channels as before, not {state[0].size}"
                )
            self.flush()
            self._set_channels(state[0].size)
        for link in self.links:
            link.read_replies()
        if state is None:
            self._entries[self._n] = np.zeros((), self._entries.dtype)
        else:
            self._entries[self._n] = (verb, action, probability, reward, *state)
        self._entries["verb"][self._n] = verb
        self._n += 1
        self.n_entries += 1
        is_urgent = bool(requested) and self.mode == "eager"
        has_room = all(link.n_in_flight < IN_FLIGHT[self.mode] for link in self.links)
        is_due = self._n == BATCH or (self._n >= _LEAST[self.mode] and has_room)
        if is_urgent or is_due or verb == CHANGE:
            self._post(requested or {}, change, postpones=is_urgent)

    def send_postponed(self) -> None:
        """Send the message that waited for the replies to another one."""
        (message, links) = self._postponed
        self._postponed = (b"", [])
        for link in links:
            link.send(message, self.n_entries, has_request=False)

    def flush(self) -> None:
        """Send all collected entries."""
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
        rows = self._entries[: self._n].tobytes()
        self._n = 0
        change_name, by_shard = change or ("", {})
        common = packed((rows, self.n_channels, None, None))
        for link in self.links:
            request = requested.get(link.number)
            if request is None and postpones:
                continue
            part = None
            if link.number in by_shard:
                part = (change_name, by_shard[link.number])
            is_common = request is None and part is None
            if is_common:
                data = common
            else:
                data = packed((rows, self.n_channels, part, request))
            link.send(data, self.n_entries, has_request=request is not None)
        if postpones:
            self._postponed = common, [link for link in self.links if link.number not in requested]

    def raise_refusals(self) -> None:
        """Raise the first refusal since the last call, as ValueError."""
        refusals = [link.refusal for link in self.links if link.refusal]
        for link in self.links:
            link.refusal = None
        if refusals:
            raise ValueError(refusals[0])

    # ---- waiting and queries ----------------------------------------------------------------------------------------

    def wait_for_replies(self) -> None:
        """Wait until all shards have confirmed all entries; deferred steps stay deferred."""
        self.flush()
        for link in self.links:
            link.read_replies()
        for link in self.links:
            while link.n_in_flight:
                link.wait()

    def gather(
        self, method: str, arguments: Callable[[Link], Sequence[Any]] = lambda _: ()
    ) -> list[tuple[Link, Any]]:
        """Call a method of each shard, with `arguments` of its link, after all entries, and return the results."""
        self.wait_for_replies()
        replies = [(link, link.call(method, *arguments(link))) for link in self.links]
        return [(link, link.result(reply)) for link, reply in replies]

    def locate(self, demons: Integers) -> list[tuple[Link, Integers, Integers]]:
        """Return for each shard with any of these demons, (n,): their positions there, and in `demons`."""
        located = []
        for link in self.links:
            nearest = np.minimum(np.searchsorted(link.demons, demons), link.demons.size - 1)
            matches = np.flatnonzero(link.demons[nearest] == demons)
            if matches.size:
                located.append((link, nearest[matches], matches))
        return located

    def rewind(self, n_entries: int, n_channels: int) -> None:
        """Continue after entry `n_entries`, with observations of `n_channels`; no entry is waiting for a reply."""
        self.n_entries = n_entries
        self._set_channels(n_channels)
