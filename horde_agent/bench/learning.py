"""The timed program: a Horde that learns from a stream."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from horde_agent.bench.workload import WorkloadStream
from horde_agent.cluster import ShardedHorde
from horde_agent.gvf import GVF
from horde_agent.horde import Horde, Mode
from horde_agent.learner import Learner
from horde_agent.learning.rules import LearnerConfig

Step = Callable[[int], object]
"""A function that learns from transition t."""


class Learning:
    """A Horde that learns from transition t when it is called with t: policies, checks and predictions included.

    It learns as the paper does, but the w rule is "importance-weighted" and no vector MSPBE is kept,
    unless `config` says otherwise.
    With `shards` it is a `ShardedHorde`, and `asked` are the arguments of its `learn` for a
    requested prediction.
    """

    def __init__(
        self,
        questions: Sequence[GVF],
        stream: WorkloadStream,
        mode: Mode = "eager",
        *,
        shards: int = 0,
        asked: Mapping[str, Any] | None = None,
        **config: Any,
    ) -> None:
        self.stream = stream
        options: dict[str, Any] = {
            "n_features": stream.n_features,
            "n_active": stream.n_active,
            "config": LearnerConfig.paper(
                **{"w_rule": "importance-weighted", "vector_mspbe": False, **config}
            ),
            "mode": mode,
        }
        self._shards: ShardedHorde | None = None
        horde: Horde | ShardedHorde
        if shards:
            horde = self._shards = ShardedHorde(questions, **options, shards=shards)
        else:
            horde = Horde(questions, **options)
        self.horde: Learner = horde
        self._learn: Callable[..., Any] = horde.learn
        self._asked = asked or {}
        horde.begin(stream.sensors[0], stream.tiles[0])

    def __call__(self, t: int) -> None:
        """Learn from the transition from state t to state t + 1."""
        s = self.stream
        self._learn(
            int(s.actions[t]),
            float(s.probabilities[t]),
            s.sensors[t + 1],
            s.tiles[t + 1],
            **self._asked,
        )

    def close(self) -> None:
        """End the shards, if there are any."""
        if self._shards is not None:
            self._shards.close()
