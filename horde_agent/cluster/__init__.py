"""A Horde over many processes or machines, on Ray: the demons are cut into shards, and each shard is a plain `Horde`.

    horde = ShardedHorde(questions, n_features=6065, n_active=457, shards=4, folder=run / "shards")
    with horde:
        horde.begin(observation, tiles)
        while alive:
            ...take an action drawn with `probability`...
            asked = horde.learn(action, probability, observation, tiles, ask=["forward/g0.8/light_0"])

Demons know nothing of each other: a step is one small message (action, probability, observation, tiles) that every
shard is sent, and answers come where they are asked for. Same questions, same stream: the same bits as one `Horde`.

Verbs and answers are those of `horde_agent.horde.Horde` (begin, learn, predict, add, remove, catch_up, weights, ...),
so that a `ShardedHorde` may stand in its place in a `Life`. What differs:

* `begin` and `learn` return the predictions of the demons in `ask` (names), shape (len(ask),), and wait for nobody
  else. With nothing asked they return an empty array, and wait only where a shard is too far behind (eager mode).
* `mode="deferred"`: 64 steps make a message, no answer is waited for, and `learn` never waits.
* `predictions`, `predict`, `mspbe_scalar`, ... of all demons wait until every shard has taken every step, and take
  the steps that were only noted, as a `Horde` does. A demon whose shard is being brought back answers NaN:
  `unanswered` says which and why.
* `catch_up()` has noted steps taken and waits for nobody; `wait()` waits until every shard has taken every step.
* `n_updates`: demons that learned, counted in all steps so far, as far as shards have told by now (all of it after
  `wait`): the sum over a life of what a `Horde` says in `n_updated`, for which every shard is waited for.
* `shards`: a `ShardStatus(number, n_demons, lag, n_restarts, n_bytes, node, state, why)` per shard, without waiting;
  `lag` in steps; `state` "learning", "recovering" or "lost". `lags`: the lags alone.
* `state()` and `restore(state)`: with a `folder` each shard writes what it has learned into a folder of its own there,
  and the state says only at which step; keep the folder with it. What very many demons have learned is copied over many
  steps, and is of a later one: `restore` takes the one before, and the stream since.
* `close()` (or `with`) ends the actors, and Ray where this object started it.

Questions by the million are described by `Family` (see `families`), and made by the shards themselves.

What cannot be done (no Ray, a wrong address, too little memory, two equal names, ...) raises `ClusterError`, a
ValueError of one sentence, and leaves nothing running.
"""

from __future__ import annotations

from horde_agent.cluster.errors import ClusterError
from horde_agent.cluster.families import Family, gibbs_family
from horde_agent.cluster.link import ShardStatus
from horde_agent.cluster.sharded import ShardedHorde, Where
from horde_agent.horde import Horde

AnyHorde = Horde | ShardedHorde
"""What a life is lived with: one may stand in the place of the other."""

__all__ = ["AnyHorde", "ClusterError", "Family", "ShardStatus", "ShardedHorde", "Where", "gibbs_family"]
