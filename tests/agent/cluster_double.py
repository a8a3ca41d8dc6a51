"""A cluster in this process: shards are objects, replies arrive at once or late, and processes die on command."""

from __future__ import annotations

from concurrent.futures import Future
from typing import Any

from horde_agent.cluster.runtime import Unreachable
from horde_agent.cluster.shard import Shard


class Actor:
    """A process with a shard."""

    def __init__(self, number: int) -> None:
        self.shard, self.is_dead = Shard(number), False

    def die(self) -> None:
        """Lose everything in memory."""
        if self.shard._writing is not None:
            self.shard._writing.join()  # a thread cannot be killed as its process can
        self.is_dead = True


class LocalCluster:
    """Replaces `runtime.Cluster`.

    Attributes:
        actors: Its processes.
        dies_at: By number of a call: the actor that dies there, and whether it dies after the call.
        pending: Calls without a reply; None if all are answered at once.
    """

    is_own, n_cpus, memory = True, 64, 1 << 40

    def __init__(self, address: str | None = None, n_cpus: int = 1) -> None:
        self.actors: list[Actor] = []
        self.ended: list[Actor] = []
        self.n_calls, self.is_closed = 0, False
        self.dies_at: dict[int, tuple[int, bool]] = {}
        self.pending: list[tuple[Future[Any], Actor, str, tuple[Any, ...]]] | None = None

    def actor(self, number: int, n_threads: int, n_bytes: int) -> Actor:
        self.actors.append(Actor(number))
        return self.actors[-1]

    def call(self, actor: Actor, method: str, *arguments: Any) -> Future[Any]:
        future: Future[Any] = Future()
        if self.pending is not None:
            self.pending.append((future, actor, method, arguments))
            return future
        self.do(future, actor, method, arguments)
        return future

    def do(self, future: Future[Any], actor: Actor, method: str, arguments: tuple[Any, ...]) -> None:
        """Answer a call."""
        self.n_calls += 1
        who, is_done = self.dies_at.pop(self.n_calls, (None, False))
        if who is not None and not is_done:
            self.actors[who].die()
        if actor.is_dead:
            future.set_exception(Unreachable("its process is gone"))
            return
        try:
            future.set_result(getattr(actor.shard, method)(*arguments))
        except BaseException as error:
            future.set_exception(error)
        if who is not None and is_done:
            self.actors[who].die()

    def has_arrived(self, reply: Future[Any]) -> bool:
        return reply.done()

    def result(self, reply: Future[Any], patience_s: float) -> Any:
        try:
            return reply.result(patience_s)
        except TimeoutError:
            raise Unreachable(f"it did not answer for {patience_s:g} s") from None

    def end(self, actor: Actor) -> None:
        actor.die()
        self.ended.append(actor)

    def close(self) -> None:
        self.is_closed = True
