"""A Horde over many processes or machines, on Ray: the demons are divided into shards, each a plain `Horde`.

    horde = ShardedHorde(questions, n_features=6065, n_active=457, shards=4, folder=run / "shards")
    with horde:
        horde.begin(observation, tiles)
        while alive:
            ...take an action drawn with `probability`...
            asked = horde.learn(action, probability, observation, tiles, ask=["forward/g0.8/light_0"])

Demons are independent of each other: a step is one small message (action, probability, observation, tiles) to every
shard, and only predictions that are asked for come back. The same questions and the same stream give the same weights
as one `Horde`, bit for bit.

Its methods are those of `horde_agent.horde.Horde` (begin, learn, predict, add, remove, catch_up, weights, ...), so that
a `ShardedHorde` may stand in the place of a `Horde` in a `Life`. What differs:

* `begin` and `learn` return the predictions of the demons in `ask` (names), shape (len(ask),), after their shards have
  answered. Without `ask` they return an empty array, and wait only for a shard that is too far behind.
* `mode="deferred"`: 64 steps are sent together; `learn` waits if a shard has four such messages to answer.
* `predictions`, `predict`, `mspbe_scalar`, ... of all demons wait until every shard has learned from every step.
* `catch_up()` lets shards learn from the steps they have noted, without waiting; `wait()` waits for all of them.
* `n_updates`: demons that learned, summed over all steps, as far as shards have reported (all of it after `wait`).
* `shards`: a `ShardStatus(number, n_demons, lag, n_bytes, node, process, state, why)` per shard, without waiting.
* `state()` and `restore(state)`: with a `folder` all shards write a snapshot of the same entry of the stream there, and
  the state names that entry alone; keep the folder with it. `wait_for_snapshot` waits until it is written.
* `close()` (or `with`) ends the actors, and Ray if this object started it.

If a shard's process or machine is gone, every method raises `ShardLost`: return to the latest saved state, with `horde
resume RUN`, or with `restore` and the stream since then. What cannot be done (no Ray, a wrong address, too little
memory, two equal names, ...) raises `ClusterError`, a ValueError of one sentence, and leaves nothing running.
"""

from __future__ import annotations

from horde_agent.cluster.errors import ClusterError, ShardLost
from horde_agent.cluster.link import ShardStatus
from horde_agent.cluster.sharded import ShardedHorde, Where
from horde_agent.horde import Horde

AnyHorde = Horde | ShardedHorde
"""Either of them: a `Life` takes both."""

__all__ = ["AnyHorde", "ClusterError", "ShardLost", "ShardStatus", "ShardedHorde", "Where"]
