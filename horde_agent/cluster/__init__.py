"""A Horde over many processes or machines, on Ray: the demons are divided into shards, each a plain `Horde`.

    horde = ShardedHorde(questions, n_features=6065, n_active=457, shards=4, folder=run / "shards")
    with horde:
        horde.begin(observation, tiles)
        while running:
            ...take an action drawn with `probability`...
            requested = horde.learn(
                action, probability, observation, tiles, ask=["forward/g0.8/light_0"]
            )

Demons are independent of each other: a step is one small message (action, probability, observation,
tiles) to every shard, and only requested predictions are returned. The same questions and the same
stream give the same weights as one `Horde`, bit for bit.

A `ShardedHorde` is a `horde_agent.learner.Learner` with most methods of `horde_agent.horde.Horde`,
and replaces it in a `Life`. `begin` and `learn` return the predictions of the demons in `ask` only;
`predictions`, `mspbe_scalar`, ... of all demons wait until every shard has learned from every step.
With a `folder`, `state()` makes all shards write a snapshot of the same entry of the stream there,
and returns that entry's number.

If a shard's process or machine is gone, every method raises `ShardLost`: return to the latest saved
state, with `horde resume RUN`, or with `restore` and the stream since then. Invalid requests (no
Ray, a wrong address, too little memory, two equal names, ...) raise `ClusterError`, a ValueError of
one sentence, and leave no process running.
"""

from __future__ import annotations

from horde_agent.cluster.shard import ClusterError, ShardLost
from horde_agent.cluster.sharded import ShardedHorde

__all__ = ["ClusterError", "ShardLost", "ShardedHorde"]
