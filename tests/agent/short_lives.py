"""Two short lives, eager and deferred: `python -m` prints hashes of their weights, or saves weights of a dtype."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from typing import Any

import numpy as np

from horde_agent import GVF, Horde, LearnerConfig
from horde_agent.bench import workload
from horde_agent.kernels import vectors


class Recorded:
    """A Horde and a recorded stream: call it with the number of each transition."""

    def __init__(
        self,
        questions: Sequence[GVF],
        stream: workload.WorkloadStream,
        mode: Any = "eager",
        **config: Any,
    ) -> None:
        self.stream = stream
        rules = LearnerConfig.paper(**config)
        args = {"n_features": stream.n_features, "n_active": stream.n_active}
        self.horde = Horde(questions, **args, config=rules, mode=mode)
        self.horde.begin(stream.sensors[0], stream.tiles[0])

    def __call__(self, t: int) -> None:
        stream = self.stream
        self.horde.learn(
            int(stream.actions[t]),
            float(stream.probabilities[t]),
            stream.sensors[t + 1],
            stream.tiles[t + 1],
        )


def hashes() -> list[str]:
    """Return the SHA-256 of the weights of each life."""
    stream = workload.stream(301)
    lives = []
    for mode in ("eager", "deferred"):
        learning = Recorded(workload.constant_action_questions()[:300], stream, mode)
        for t in range(300):
            learning(t)
        lives.append(learning.horde.weights_sha256())
    return lives


def weights(dtype: Any) -> list[np.ndarray]:
    """Return theta, w and the vector estimates of other such lives."""
    stream = workload.stream(151)
    arrays = []
    questions = [*workload.gibbs_questions(40), *workload.constant_action_questions()[:120]]
    for mode in ("eager", "deferred"):
        learning = Recorded(questions, stream, mode, dtype=dtype, secondary_ratio=0.1)
        for t in range(150):
            learning(t)
        arrays += [*learning.horde.weights(), learning.horde.mspbe_vector()]
    return arrays


if __name__ == "__main__":
    if sys.argv[1:]:
        np.savez(sys.argv[1], *weights(sys.argv[2]))
        print(vectors.pack.__module__.split(".")[-1])
    else:
        print(*hashes(), sep="\n")
