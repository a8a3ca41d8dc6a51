"""Two short lives whose weights another process compares: `python -m ... FILE` saves them, and says which kernels."""

from __future__ import annotations

import sys

import numpy as np

from horde_agent import Horde, LearnerConfig
from horde_agent.bench import workload
from horde_agent.kernels import vectors


def weights() -> list[np.ndarray]:
    """Return theta and w of an eager life and a deferred one, in float64."""
    stream, found = workload.stream(151), []
    questions = [*workload.gibbs_questions(40), *workload.constant_action_questions()[:120]]
    for mode in ("eager", "deferred"):
        config = LearnerConfig(dtype="float64", secondary_ratio=0.1)
        horde = Horde(questions, n_features=stream.n_features, n_active=stream.n_active, config=config, mode=mode)  # type: ignore[arg-type]
        horde.begin(stream.sensors[0], stream.tiles[0])
        for t in range(150):
            action, b = int(stream.actions[t]), float(stream.probabilities[t])
            horde.learn(action, b, stream.sensors[t + 1], stream.tiles[t + 1])
        found += [*horde.weights(), horde.mspbe_vector()]
    return found


if __name__ == "__main__":
    np.savez(sys.argv[1], *weights())
    print("native" if vectors.IS_NATIVE else "portable")
