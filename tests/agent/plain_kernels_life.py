"""Two short lives: `python -m ... FILE` saves their weights and prints which kernels were used."""

from __future__ import annotations

import sys

import numpy as np

from horde_agent.bench import workload
from horde_agent.kernels import vectors
from tests.agent.short_lives import Recorded


def weights() -> list[np.ndarray]:
    """Return theta, w and the vector estimates of an eager life and a deferred one, in float64."""
    stream, found = workload.stream(151), []
    questions = [*workload.gibbs_questions(40), *workload.constant_action_questions()[:120]]
    for mode in ("eager", "deferred"):
        learning = Recorded(questions, stream, mode, dtype="float64", secondary_ratio=0.1)
        for t in range(150):
            learning(t)
        found += [*learning.horde.weights(), learning.horde.mspbe_vector()]
    return found


if __name__ == "__main__":
    np.savez(sys.argv[1], *weights())
    print(vectors.hold.__module__.split(".")[-1])
