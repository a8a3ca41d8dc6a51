"""Time of a step of each update rule on the span engine, over that of the default rule, by turns on one thread."""

from __future__ import annotations

import time
from collections.abc import Sequence
from typing import Any

import numba
import numpy as np

from horde_agent import GVF, Horde, LearnerConfig
from horde_agent.bench import workload
from horde_agent.kernels import rules

# Steps between two flushes; chunks that do not count at first
CHUNK = 64
N_CHUNKS = 30
N_SETTLING = 4


def cost_of_rules(questions: Sequence[GVF], stream: workload.WorkloadStream) -> dict[str, Any]:
    """Return the median CPU time of a step of the default rule in ms, and of each rule the median ratio to it.

    A ratio is of two chunks of steps taken one shortly after the other.
    """
    numba.set_num_threads(1)
    names = [name for name in rules.names() if rules.rule(name).SPAN is not None]
    hordes = {}
    for name in names:
        config = LearnerConfig.paper(algorithm=name)
        hordes[name] = Horde(
            questions, n_features=stream.n_features, n_active=stream.n_active, config=config
        )
        hordes[name].begin(stream.sensors[0], stream.tiles[0])
    spent: dict[str, list[float]] = {name: [] for name in names}
    for k in range(N_CHUNKS):
        for name in names if k % 2 else reversed(names):
            began = time.process_time()
            horde = hordes[name]
            for t in range(k * CHUNK, (k + 1) * CHUNK):
                next_step = stream.sensors[t + 1], stream.tiles[t + 1]
                horde.learn(int(stream.actions[t]), float(stream.probabilities[t]), *next_step)
            spent[name].append(1e3 * (time.process_time() - began) / CHUNK)
    counted = {name: np.array(of_chunks[N_SETTLING:]) for name, of_chunks in spent.items()}
    default = counted[LearnerConfig.paper().algorithm]
    ratios = {name: round(float(np.median(ms / default)), 3) for name, ms in counted.items()}
    return {"ms_per_step": round(float(np.median(default)), 3), **ratios}


def main() -> dict[str, Any]:
    """Measure the 795 questions about constant actions and 1,000 about Gibbs policies."""
    stream = workload.stream(CHUNK * N_CHUNKS + 1)
    question_sets = {
        "795": workload.constant_action_questions(),
        "1000": workload.gibbs_questions(1_000),
    }
    return {name: cost_of_rules(questions, stream) for name, questions in question_sets.items()}
